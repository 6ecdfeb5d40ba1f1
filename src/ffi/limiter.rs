//! Limiters: made from a policy, for a fixed number of agents.

use super::failure::{Failure, guard_error};
use super::guard::guard;
use super::pointers::{Tagged, borrow, hand_over, instant, out, tagged_in, tell, text};
use super::{Clock, ClusterOptions, Error, Policy, Status, shared};
use crate as tollgate;
use crate::sync::{AtomicU64, Ordering};
use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// The most agents that a limiter can be built for.
pub const TOLLGATE_AGENTS_MAX: u64 = 1_073_741_824;
/// How many agents a limiter is built for by default.
pub const TOLLGATE_AGENTS_DEFAULT: u64 = 1_000_000;

const _: () = assert!(TOLLGATE_AGENTS_MAX == tollgate::bounds::AGENTS_MAX);
const _: () = assert!(TOLLGATE_AGENTS_DEFAULT == tollgate::bounds::AGENTS_DEFAULT);

/// An exact rate limiter for a fixed number of agents. Any number of threads
/// may use it at once.
//
// The handle points to it without another step, and it is counted: an engine keeps it too.
pub struct Limiter(
    pub(super) tollgate::Limiter,
    /// Freed with the handle, so that a checker of memory names a handle that is freed twice: the count would hide it.
    ManuallyDrop<Box<u8>>,
    /// The process whose engine settles for it, or 0.
    AtomicU64,
);

impl AsRef<tollgate::Limiter> for Limiter {
    fn as_ref(&self) -> &tollgate::Limiter {
        &self.0
    }
}

impl Limiter {
    /// The limiter of a handle, which then outlives the handle.
    ///
    /// # Safety
    ///
    /// `handle` is NULL or a limiter that is not freed.
    #[doc(hidden)]
    pub unsafe fn keep(handle: *const Self) -> Result<Arc<Self>, Status> {
        let handle = out(handle.cast_mut())?.as_ptr();
        // SAFETY: from `Arc::into_raw` in tollgate_limiter_new, and not freed, as the caller guarantees.
        unsafe { Arc::increment_strong_count(handle) };
        // SAFETY: as above; this is the count that was added.
        Ok(unsafe { Arc::from_raw(handle) })
    }

    /// Whether there is no engine yet, and the caller may start one. An engine of the process that this one was forked
    /// from does not count.
    ///
    /// Relaxed: it decides between callers, and tells them nothing else.
    #[doc(hidden)]
    #[must_use]
    pub fn claim_engine(&self) -> bool {
        self.2.swap(std::process::id().into(), Ordering::Relaxed) != u64::from(std::process::id())
    }

    /// Says that the engine has ended, if it was one of this process.
    #[doc(hidden)]
    pub fn release_engine(&self) {
        let _ = self.2.compare_exchange(std::process::id().into(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What happens to a new agent when every record near its place is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OnFull {
    /// It takes the record with the least debt, and inherits that debt. The
    /// agent that lost the record may come back with full lanes: see
    /// lossy_evictions in tollgate_limiter_view.
    Evict = 0,
    /// It is refused with TOLLGATE_STATUS_FULL. Limits are exact for every agent.
    Deny = 1,
}

/// How agent ids are hashed, with a random key of the limiter's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum IdHash {
    /// Multilinear: the fastest.
    Multilinear = 0,
    /// SipHash-1-3: for ids chosen by adversaries that can watch how the
    /// limiter treats them.
    Siphash13 = 1,
}

/// What a limiter records of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Observe {
    /// Nothing. This costs a check nothing.
    Off = 0,
    /// Verdicts by lane, the worst offenders and the last events, in about 700 kB.
    On = 1,
}

/// How a limiter is built. Zero in every member but struct_size is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LimiterOptions {
    /// Set it to sizeof(tollgate_limiter_options).
    pub struct_size: u32,
    /// A tollgate_on_full.
    pub on_full: i32,
    /// How many agents it tracks at the same time. 0: TOLLGATE_AGENTS_DEFAULT.
    pub agents: u64,
    /// Where its time comes from. NULL: a clock of its own.
    pub clock: *const Clock,
    /// A tollgate_id_hash.
    pub id_hash: i32,
    /// A tollgate_observe.
    pub observe: i32,
    /// With TOLLGATE_OBSERVE_ON: each thread makes an event of one check in this
    /// many. 0 samples none.
    pub sample_every: u32,
    /// 1 touches the memory of all records and of the roster at once, so that no
    /// check waits for a page, and fails if there is too little. 0 leaves each
    /// page to the agent that first needs it.
    pub prefault: u32,
    /// With TOLLGATE_OBSERVE_ON: room for the ids of this many agents, up to
    /// 1,048,576, so that tollgate_agents can list them; 272 bytes each. Agents
    /// that find no room are not listed. More room than records is never taken,
    /// so UINT64_MAX asks for as much as possible. 0 lists no agent.
    pub roster: u64,
    /// How many reservations may be open at once, up to
    /// TOLLGATE_RESERVATIONS_MAX; 64 bytes each. 0: TOLLGATE_RESERVATIONS_DEFAULT.
    pub reservations: u64,
    /// How many reservations one agent may have open. 0: one in 64 of them, but
    /// at least 16.
    pub reservations_per_agent: u32,
    /// A tollgate_shared_by. Anything but a private limiter needs
    /// TOLLGATE_FEATURE_SHARED.
    pub shared_by: i32,
    /// With TOLLGATE_SHARED_BY_PATH: a file on a file system in memory, such as
    /// "/run/tollgate/slab", that all processes name. Any bytes without a NUL; the
    /// number of the memory's layout is appended, so that versions of this library
    /// with different layouts do not meet. NULL: a private limiter.
    pub shared_path: *const c_char,
    /// The length of shared_path in bytes.
    pub shared_path_len: usize,
    /// Who may use the file at shared_path, as for chmod. 0: 0600, its owner alone.
    pub shared_mode: u32,
    /// With TOLLGATE_SHARED_BY_DESCRIPTOR: the descriptor. The limiter makes a copy,
    /// so close it when you like.
    pub shared_fd: i32,
    /// How machines share lanes over Redis or Valkey, see tollgate_redis.h. NULL: not.
    /// Anything else needs TOLLGATE_FEATURE_CLUSTER.
    pub cluster: *const ClusterOptions,
}

const _: () = assert!(size_of::<LimiterOptions>() == 96);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for LimiterOptions {
    const SIZE_MIN: u32 = 64;
}

impl LimiterOptions {
    fn apply(&self, builder: tollgate::LimiterBuilder) -> Result<tollgate::LimiterBuilder, Failure> {
        let on_full = match self.on_full {
            on_full if on_full == OnFull::Evict as i32 => tollgate::OnFull::Evict,
            on_full if on_full == OnFull::Deny as i32 => tollgate::OnFull::Deny,
            other => return Err(unknown("on_full", other.into())),
        };
        let hash = match self.id_hash {
            hash if hash == IdHash::Multilinear as i32 => tollgate::IdHash::Multilinear,
            hash if hash == IdHash::Siphash13 as i32 => tollgate::IdHash::SipHash13,
            other => return Err(unknown("id_hash", other.into())),
        };
        let is_observed = match self.observe {
            observe if observe == Observe::Off as i32 => false,
            observe if observe == Observe::On as i32 => true,
            other => return Err(unknown("observe", other.into())),
        };
        let prefault = match self.prefault {
            0 => false,
            1 => true,
            other => return Err(unknown("prefault", other.into())),
        };
        if !is_observed && (self.sample_every, self.roster) != (0, 0) {
            let problem = &"roster and sample_every need observe = TOLLGATE_OBSERVE_ON";
            return Err(Failure::new(Status::InvalidOption, problem));
        }
        let mut builder = builder.on_full(on_full).hash(hash).prefault(prefault);
        // The builder's defaults are those of the header; or, without a policy, those of the slab that it joins.
        if self.agents > 0 {
            builder = builder.agents(self.agents);
        }
        if self.reservations > 0 {
            builder = builder.reservations(usize::try_from(self.reservations).unwrap_or(usize::MAX));
        }
        if self.reservations_per_agent > 0 {
            builder = builder.reservations_per_agent(self.reservations_per_agent as usize);
        }
        if is_observed {
            let roster = usize::try_from(self.roster).unwrap_or(usize::MAX);
            builder = builder.observe(tollgate::observe::Observe::new().roster(roster).sample_every(self.sample_every));
        }
        // SAFETY: NULL or a clock that is not freed, by the contract of whoever takes options.
        Ok(match unsafe { self.clock.as_ref() } {
            Some(clock) => builder.clock(clock.shared()),
            None => builder,
        })
    }
}

/// What is wrong with an option whose value means nothing.
pub(super) fn unknown(option: &str, value: i64) -> Failure {
    let problem =
        format_args!("{option} is {value}, which means nothing in this version; clear the struct, then fill it");
    Failure::new(Status::InvalidOption, &problem)
}

/// Builds a limiter, and reserves all its memory. options may be NULL. The policy
/// and the clock may be freed as soon as this returns. Free the limiter with
/// tollgate_limiter_free.
///
/// A limiter that is shared joins the memory that another process has made, or
/// makes it. If policy is NULL it only joins, with the policy, the clock's source,
/// the number of agents and on_full that the memory was made with.
///
/// Status: INVALID_OPTION, AGENTS_OUT_OF_RANGE, OUT_OF_MEMORY, STRUCT_SIZE; SHARED
/// if the limiter cannot be shared so, TEXT_TOO_LONG, NOT_BUILT_IN. Of lanes that
/// machines cannot share: UNKNOWN_LANE, WRONG_KIND, INVALID_LIMIT.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `options` is NULL or
/// readable for as many bytes as its struct_size says, its clock is NULL or a
/// clock that is not freed, its shared_path is NULL or readable for
/// shared_path_len bytes, and its cluster is NULL or readable for as many bytes
/// as its struct_size says, with what it points to; `error_out` is NULL, or readable and writable
/// for as many bytes as its struct_size says; `limiter_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_new(
    policy: *const Policy,
    options: *const LimiterOptions,
    error_out: *mut Error,
    limiter_out: *mut *mut Limiter,
) -> Status {
    let make = || -> Result<(), Failure> {
        let limiter_out = out(limiter_out)?;
        let options = match options.is_null() {
            true => None,
            // SAFETY: readable for as many bytes as its tag says, by this function's contract.
            false => Some(unsafe { tagged_in(options) }?),
        };
        let place = match &options {
            // SAFETY: its path is NULL, or readable for as many bytes as it says, by this function's contract.
            Some(options) => unsafe { options.place() }?,
            None => None,
        };
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { policy.as_ref() }.map(|policy| policy.0.clone());
        let mut builder = shared::builder(policy, place)?;
        if let Some(options) = options {
            builder = options.apply(builder)?;
            // SAFETY: NULL, or readable with what it points to, by this function's contract.
            builder = unsafe { super::cluster::apply(options.cluster, builder) }?;
        }
        let limiter = Arc::new(Limiter(builder.build()?, ManuallyDrop::new(Box::new(0)), AtomicU64::new(0)));
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { limiter_out.write(Arc::into_raw(limiter).cast_mut()) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_error(error_out, make) }
}

/// Frees a limiter. NULL is allowed.
///
/// # Safety
///
/// `limiter` is NULL, or came from tollgate_limiter_new, was not freed yet, and
/// is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_free(limiter: *mut Limiter) {
    guard(|| {
        let Some(limiter) = NonNull::new(limiter) else { return Ok(()) };
        // SAFETY: from `Arc::into_raw` in tollgate_limiter_new, and the caller's no longer.
        let limiter = unsafe { Arc::from_raw(limiter.as_ptr()) };
        // SAFETY: read here alone, once, as the caller guarantees; nobody drops it otherwise.
        drop(ManuallyDrop::into_inner(unsafe { std::ptr::read(&limiter.1) }));
        drop(limiter);
        Ok(())
    });
}

/// A copy of the policy in force. Free it with tollgate_policy_free.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `policy_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_policy(limiter: *const Limiter, policy_out: *mut *mut Policy) -> Status {
    guard(|| {
        let policy_out = out(policy_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(policy_out, Policy((*limiter.0.policy()).clone())) };
        Ok(())
    })
}

/// The number of a lane, by name. It stays the same as long as the limiter
/// lives: ask once.
///
/// Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `name` is NULL or readable
/// for `name_len` bytes; `lane_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_lane(
    limiter: *const Limiter,
    name: *const c_char,
    name_len: usize,
    lane_out: *mut u32,
) -> Status {
    let number = |limiter: &Limiter| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let lane = limiter.0.lane(unsafe { text(name, name_len) }?);
        lane.map(tollgate::LaneId::number).ok_or(Status::UnknownLane)
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, lane_out, number) }
}

/// The number of a plan, by name. It stays the same as long as the limiter
/// lives: ask once.
///
/// Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `name` is NULL or readable
/// for `name_len` bytes; `plan_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_plan(
    limiter: *const Limiter,
    name: *const c_char,
    name_len: usize,
    plan_out: *mut u32,
) -> Status {
    let number = |limiter: &Limiter| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let plan = limiter.0.plan(unsafe { text(name, name_len) }?).ok_or(Status::UnknownPlan)?;
        Ok(plan.number().into())
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, plan_out, number) }
}

/// The present instant of the limiter's clock, for any now_ns.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `now_ns_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_now(limiter: *const Limiter, now_ns_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, now_ns_out, |limiter| Ok(limiter.0.now().as_nanos())) }
}

/// Frees the records of agents that have been idle, with every lane full, for
/// idle_for_ns. swept_out gets how many.
///
/// Limits do not need it: a new agent takes over an idle record by itself. After
/// a sweep, tollgate_snapshot and tollgate_agents show recent agents only. It
/// walks all records, so call it from a timer, every few minutes.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `swept_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_sweep(
    limiter: *mut Limiter,
    idle_for_ns: u64,
    now_ns: u64,
    swept_out: *mut u64,
) -> Status {
    let sweep = |limiter: &Limiter| {
        let now = instant(now_ns).unwrap_or_else(|| limiter.0.now());
        Ok(limiter.0.sweep_at(Duration::from_nanos(idle_for_ns), now))
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, swept_out, sweep) }
}
