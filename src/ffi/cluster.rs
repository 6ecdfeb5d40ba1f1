//! Machines: lanes that machines share over one Redis or Valkey, the store.
//!
//! Name the options here in tollgate_limiter_options, and then start an engine for
//! the limiter. A check never waits for the store: it spends credit, which the
//! store was debited for, or a few tokens in advance, or it denies by what the
//! store last said. Buckets can be shared; lanes of other kinds have to be left to
//! each machine. A lane that is shared cannot be reserved.
//!
//! With N machines, a capacity C, a rate r and a slack s, all of them together
//! admit in any window of length d at most C (1 + s) + r d, or C + N + r d where
//! s C is less than 2 N.

use super::failure::Failure;
use super::pointers::{Tagged, list, tagged_in, text};
use super::{Status, TOLLGATE_TEXT_BYTES_MAX};
use crate as tollgate;
use std::ffi::{c_char, c_void};
use std::ptr::NonNull;

/// What a machine does with a lane while the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum WhenLost {
    /// Of a lane: as tollgate_cluster_options has it. There: the next.
    Default = 0,
    /// Each machine allows its share: the limit divided by the number of machines.
    Share = 1,
    /// Everything is denied.
    Closed = 2,
    /// Everything is allowed, and nothing is counted.
    Open = 3,
    /// Each machine allows the whole limit.
    Alone = 4,
}

/// Where the answer of a lane that machines share came from: the member source of
/// a tollgate_verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Source {
    /// No machine had to be asked: the lane is not shared, the agent is exempt, the
    /// limit denies everything, or conduct or a total denied it.
    None = 0,
    /// Allowed from credit: the store was debited before.
    Credit = 1,
    /// Allowed in advance: the store is debited as soon as it is asked.
    Advance = 2,
    /// Denied by what the store last said.
    View = 3,
    /// Denied because only the store knows, and it is being asked: the same request
    /// may pass after a round trip, which is about retry_after_ns. No violation.
    Pending = 4,
    /// The store is lost, and this is the answer of the machine's share.
    Share = 5,
    /// The store is lost, and the lane is closed.
    Closed = 6,
    /// The store is lost, and the lane is open.
    Open = 7,
    /// The store is lost, and this is the answer of the whole limit, on this machine alone.
    Alone = 8,
}

/// How machines share one lane, where it differs from the others. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClusterLane {
    /// The lane's name, in UTF-8.
    pub name: *const c_char,
    /// Its length in bytes.
    pub name_len: usize,
    /// 1: machines do not share it, and each has it for itself. The members below
    /// are then 0.
    pub own: u32,
    /// 1: nothing is spent in advance. A machine without credit denies with
    /// TOLLGATE_SOURCE_PENDING.
    pub exact: u32,
    /// As in tollgate_cluster_options. 0: as there.
    pub slack_percent: u32,
    /// A tollgate_when_lost.
    pub when_lost: i32,
}

const _: () = assert!(size_of::<ClusterLane>() == 32);

/// How machines share the lanes of a limiter: all of them, unless an element of
/// lanes says otherwise.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClusterOptions {
    /// Set it to sizeof(tollgate_cluster_options).
    pub struct_size: u32,
    /// How much of a lane's capacity all machines together may hold in credit and owe
    /// in advance, 1 to 100. 0: 10. More lets more checks be answered without the
    /// store, and lets more pass in any window.
    pub slack_percent: u32,
    /// The same on every machine, at least 16 bytes, random. The store knows an agent
    /// by a hash of its id with this secret. It is not kept, and never shown.
    pub secret: *const c_void,
    /// Its length in bytes.
    pub secret_len: usize,
    /// Lanes that are shared otherwise than the others, or not at all; NULL if there are none.
    pub lanes: *const ClusterLane,
    /// How many there are.
    pub lanes_count: usize,
    /// A tollgate_when_lost.
    pub when_lost: i32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<ClusterOptions>() == 48);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for ClusterOptions {
    const SIZE_MIN: u32 = 48;
}

/// A limiter with these lanes shared.
///
/// # Safety
///
/// `options` is NULL, or readable for as many bytes as its tag says; its secret and
/// its lanes are NULL or readable for the lengths that it states, and so are the
/// names of the lanes.
pub(super) unsafe fn apply(
    options: *const ClusterOptions,
    builder: tollgate::LimiterBuilder,
) -> Result<tollgate::LimiterBuilder, Failure> {
    if options.is_null() {
        return Ok(builder);
    }
    // SAFETY: as the caller guarantees.
    let options = unsafe { tagged_in(options) }?;
    let secret = NonNull::new(options.secret.cast_mut()).ok_or(Status::NullPointer)?;
    if options.secret_len > TOLLGATE_TEXT_BYTES_MAX {
        return Err(Status::TextTooLong.into());
    }
    // SAFETY: not NULL, readable for this length as the caller guarantees, and a length that is allowed for a slice.
    let secret = unsafe { std::slice::from_raw_parts(secret.as_ptr().cast::<u8>(), options.secret_len) };
    // SAFETY: as the caller guarantees.
    let lanes = unsafe { list(options.lanes, options.lanes_count) }?;
    // SAFETY: as the caller guarantees, of each name.
    let named = lanes.iter().map(|lane| Ok((unsafe { text(lane.name, lane.name_len) }?, lane)));
    let named: Vec<_> = named.collect::<Result<_, Status>>()?;
    built_in::apply(&options, secret, &named, builder)
}

#[cfg(feature = "cluster")]
mod built_in {
    use super::super::limiter::unknown;
    use super::tollgate::LimiterBuilder;
    use super::tollgate::cluster::{self, Cluster, ClusterError};
    use super::{ClusterLane, ClusterOptions, Failure, Source, Status, WhenLost};

    /// The sources of C have the numbers of Rust's.
    const _: () = {
        assert!(cluster::Source::ALL.len() == 8 && Source::Alone as usize == 8);
        assert!(Source::Credit as u32 == cluster::Source::Credit as u32);
        assert!(Source::Pending as u32 == cluster::Source::Pending as u32);
        assert!(Source::Alone as u32 == cluster::Source::Alone as u32);
    };

    pub(super) fn apply(
        options: &ClusterOptions,
        secret: &[u8],
        lanes: &[(&str, &ClusterLane)],
        builder: LimiterBuilder,
    ) -> Result<LimiterBuilder, Failure> {
        if options.reserved != 0 {
            return Err(unknown("reserved", options.reserved.into()));
        }
        let mut cluster = Cluster::with_secret(secret).map_err(tollgate_failure)?;
        if let Some(percent) = percent(options.slack_percent)? {
            cluster = cluster.slack_percent(percent);
        }
        if let Some(when_lost) = when_lost(options.when_lost)? {
            cluster = cluster.when_lost(when_lost);
        }
        for (name, lane) in lanes {
            let about = |failure: Failure| failure.about(&format_args!("lane {name:?}"));
            cluster = match lane.own {
                0 => cluster.lane(*name, shared(lane).map_err(about)?),
                1 if (lane.exact, lane.slack_percent, lane.when_lost) == (0, 0, 0) => cluster.except(*name),
                1 => {
                    let problem = &"exact, slack_percent and when_lost are for lanes that are shared; leave them 0";
                    return Err(about(Failure::new(Status::InvalidOption, problem)));
                }
                other => return Err(about(unknown("own", other.into()))),
            };
        }
        Ok(builder.cluster(cluster))
    }

    fn tollgate_failure(error: ClusterError) -> Failure {
        Failure::new(Status::from(&error), &error)
    }

    fn shared(lane: &ClusterLane) -> Result<cluster::ClusterLane, Failure> {
        let mut shared = match lane.exact {
            0 => cluster::ClusterLane::new(),
            1 => cluster::ClusterLane::new().exact(),
            other => return Err(unknown("exact", other.into())),
        };
        if let Some(percent) = percent(lane.slack_percent)? {
            shared = shared.slack_percent(percent);
        }
        if let Some(when_lost) = when_lost(lane.when_lost)? {
            shared = shared.when_lost(when_lost);
        }
        Ok(shared)
    }

    /// `None` for the default. What is more than 100 is an error here, the rest one when the limiter is built.
    fn percent(percent: u32) -> Result<Option<u8>, Failure> {
        match u8::try_from(percent) {
            Ok(0) => Ok(None),
            Ok(percent @ ..=100) => Ok(Some(percent)),
            _ => {
                let problem = format_args!("slack_percent is {percent}; allowed: 1 to 100, or 0 for the default");
                Err(Failure::new(Status::InvalidOption, &problem))
            }
        }
    }

    impl From<cluster::WhenLost> for WhenLost {
        fn from(when_lost: cluster::WhenLost) -> Self {
            match when_lost {
                cluster::WhenLost::Share => Self::Share,
                cluster::WhenLost::Closed => Self::Closed,
                cluster::WhenLost::Open => Self::Open,
                cluster::WhenLost::Alone => Self::Alone,
            }
        }
    }

    fn when_lost(when_lost: i32) -> Result<Option<cluster::WhenLost>, Failure> {
        Ok(match when_lost {
            0 => None,
            other if other == WhenLost::Share as i32 => Some(cluster::WhenLost::Share),
            other if other == WhenLost::Closed as i32 => Some(cluster::WhenLost::Closed),
            other if other == WhenLost::Open as i32 => Some(cluster::WhenLost::Open),
            other if other == WhenLost::Alone as i32 => Some(cluster::WhenLost::Alone),
            other => return Err(unknown("when_lost", other.into())),
        })
    }
}

#[cfg(not(feature = "cluster"))]
mod built_in {
    use super::tollgate::LimiterBuilder;
    use super::{ClusterLane, ClusterOptions, Failure, Status};

    pub(super) fn apply(
        _: &ClusterOptions,
        _: &[u8],
        _: &[(&str, &ClusterLane)],
        _: LimiterBuilder,
    ) -> Result<LimiterBuilder, Failure> {
        Err(Status::NotBuiltIn.into())
    }
}
