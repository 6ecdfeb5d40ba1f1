//! Sequences of calls through the C ABI, drawn from bytes, against an oracle:
//! for `tests/ffi.rs`, which draws the bytes itself, and for the target of
//! cargo-fuzz in `bindings/c/fuzz`.
//!
//! Any function may be next, with arguments that are right or wrong in any
//! way a library can answer: NULL, absurd lengths, lanes and costs that are
//! not there, tags that are too small, buffers too short, any bytes for ids
//! and texts. A wrong argument has to be answered with its status and leave
//! everything as it was; a right one has to be answered as the oracle says.
//!
//! The oracle keeps each bucket as the instant at which it is full, in plain
//! arithmetic. It is exact while instants only move ahead; when one moves back
//! the limiter may be stricter, and then the oracle says what is too much.

mod arguments;
mod control;
mod limiters;
mod oracle;
mod policies;
mod reservations;
mod several;
mod sight;

use arguments::{Bytes, Raw, fresh};
use oracle::{Lane, Watched, known_limit};
use std::collections::BTreeMap;
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

/// What the sequences did, summed up.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How often each function was called.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    /// Calls that were answered with each status.
    pub(crate) statuses: BTreeMap<i32, u64>,
    /// Verdicts held against the oracle, and how many of them exactly.
    pub(crate) verdicts: u64,
    pub(crate) exact: u64,
    pub(crate) denied: u64,
}

/// Calls of a sequence, at most.
const CALLS_MAX: usize = 200;

/// A policy, with what went into it.
struct Known {
    policy: *mut Policy,
    /// `None` for a limit that nobody here can read.
    lanes: Vec<Option<Lane>>,
    warn_percent: u64,
}

struct World<'a> {
    bytes: Bytes<'a>,
    report: &'a mut Report,
    clock: *mut Clock,
    now: u64,
    /// The latest that the clock has told.
    now_max: u64,
    builder: *mut PolicyBuilder,
    /// What was added to the builder.
    added: Vec<Option<Lane>>,
    warn_percent: u64,
    policies: Vec<Known>,
    limiters: Vec<Watched>,
    /// Whether this sequence calls more agents than there may be room for.
    crowded: bool,
}

/// Calls a function of the C ABI and counts it.
macro_rules! call {
    ($world:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: handles are NULL or alive and used by this thread alone; every
        // other pointer is NULL or to memory of ours, of the size that is
        // stated, unless the size is one that must not be believed.
        #[allow(unused_unsafe, reason = "some take no pointer")]
        let answer = unsafe { $function($($argument),*) };
        *$world.report.calls.entry(stringify!($function)).or_default() += 1;
        answer
    }};
}

use call;

impl<'a> World<'a> {
    fn new(bytes: &'a [u8], report: &'a mut Report) -> Self {
        let mut world = World {
            bytes: Bytes(bytes),
            report,
            clock: null_mut(),
            now: 0,
            now_max: 0,
            builder: null_mut(),
            added: Vec::new(),
            warn_percent: 20,
            policies: Vec::new(),
            limiters: Vec::new(),
            crowded: false,
        };
        world.crowded = world.bytes.once_in(8);
        assert_eq!(call!(world, tollgate_clock_new(TimeSource::Manual as i32, &mut world.clock)), Status::Ok);
        world.new_builder();
        for (name, limit) in [("fast", "1000/s"), ("odd", "7/min burst 3")] {
            let (name_start, limit_start) = (name.as_ptr().cast(), limit.as_ptr().cast());
            let builder = world.builder;
            let status =
                call!(world, tollgate_policy_builder_lane(builder, name_start, name.len(), limit_start, limit.len()));
            assert_eq!(status, Status::Ok);
            world.added.push(known_limit(limit.as_bytes()));
        }
        world.build();
        world.new_limiter();
        world
    }

    /// Holds a status against what was wrong with the arguments.
    fn judge(&mut self, status: Status, faults: &[Status]) -> bool {
        *self.report.statuses.entry(status as i32).or_default() += 1;
        match faults {
            [] => assert_eq!(status, Status::Ok),
            faults => assert!(faults.contains(&status), "{status:?}, but wrong was {faults:?}"),
        }
        faults.is_empty()
    }

    /// A handle, or NULL now and then.
    fn handle<T>(&mut self, handle: *mut T, faults: &mut Vec<Status>) -> *mut T {
        if self.bytes.once_in(32) || handle.is_null() {
            faults.push(Status::NullPointer);
            return null_mut();
        }
        handle
    }

    /// A place for a number, or NULL now and then; asks, and judges the answer.
    fn ask<T: Copy + PartialEq>(
        &mut self,
        mut faults: Vec<Status>,
        ask: impl FnOnce(&mut Self, *mut T) -> Status,
    ) -> Option<T> {
        let mut value = fresh::<T>();
        let before = value;
        let place = self.handle(&raw mut value, &mut faults);
        let status = ask(self, place);
        if self.judge(status, &faults) {
            return Some(value);
        }
        assert!(value == before, "written in spite of {status:?}");
        None
    }

    /// What needs no handle of ours.
    fn others(&mut self) {
        match self.bytes.below(4) {
            0 => assert!(!call!(self, tollgate_version()).is_null() && call!(self, tollgate_features()) < 4),
            1 => assert!(call!(self, tollgate_version_number()) > 0),
            2 => {
                let status = self.bytes.number() as i32;
                assert!(!call!(self, tollgate_status_text(status)).is_null());
            }
            _ => {
                let limiter = self.ask(Vec::new(), |world, place| call!(world, tollgate_default(place)));
                if let Some(limiter) = limiter {
                    call!(self, tollgate_limiter_free(limiter)); // It stays.
                    let mut raw = Raw::<40>::new(40);
                    let place = (&raw mut raw).cast();
                    let status = call!(self, tollgate_limiter_check(limiter, b"a".as_ptr().cast(), 1, 0, 1, place));
                    self.judge(status, &[]);
                }
                let mut made = null_mut();
                assert_eq!(call!(self, tollgate_default(&mut made)), Status::Ok);
                let policy = self.policies.last().map_or(null(), |known| known.policy.cast_const());
                let status = call!(self, tollgate_default_configure(policy, null()));
                self.judge(status, &[Status::AlreadyMade]);
            }
        }
        assert_eq!(call!(self, tollgate_verdict_remaining(null())), 0);
        assert_eq!(call!(self, tollgate_answer_remaining(null())), 0);
        assert_eq!(call!(self, tollgate_admission_remaining(null())), 0);
    }

    fn step(&mut self) {
        match self.bytes.below(16) {
            0 => self.add_lane(),
            1 => self.add_bucket(),
            2 => match self.bytes.below(5) {
                4 => self.add_rules(),
                0 => self.warn_below(),
                1 => self.new_builder(),
                _ => self.build(),
            },
            3 => match self.bytes.below(3) {
                0 => self.look_at_policy(),
                1 => self.look_at_plans(),
                _ => self.make_policy(),
            },
            4 => match self.bytes.below(4) {
                0 => self.new_limiter(),
                1 => self.others(),
                _ => self.look_at_clock(),
            },
            5 | 6 => self.move_clock(),
            choice => {
                let Some(mut watched) = self.take_limiter() else { return self.new_limiter() };
                match choice {
                    7 => match self.bytes.below(4) {
                        3 => self.look_at_sight(&mut watched),
                        0 => self.look_at_limiter(&mut watched),
                        1 => self.look_at_actions(&mut watched),
                        _ => self.decide_at_large(&mut watched),
                    },
                    8 => match self.bytes.below(5) {
                        4 => self.hold(&mut watched),
                        0 | 1 => self.reset_or_forget(&mut watched),
                        2 => self.decide(&mut watched),
                        _ => self.judge_conduct(&mut watched),
                    },
                    9 | 10 => self.look_or_refund(&mut watched),
                    11 => self.check_many(&mut watched),
                    12 | 13 if self.crowded => self.check_many(&mut watched),
                    14 => self.check_all(&mut watched),
                    15 => self.reserve_or_settle(&mut watched),
                    _ => self.check(&mut watched),
                }
                self.limiters.push(watched);
            }
        }
    }
}

impl Drop for World<'_> {
    /// Everything is given back, so that a leak is the library's.
    fn drop(&mut self) {
        for watched in std::mem::take(&mut self.limiters) {
            call!(self, tollgate_limiter_free(watched.limiter));
        }
        for known in std::mem::take(&mut self.policies) {
            call!(self, tollgate_policy_free(known.policy));
        }
        call!(self, tollgate_policy_builder_free(self.builder));
        call!(self, tollgate_clock_free(self.clock));
    }
}

/// Plays the sequence that these bytes spell.
pub(crate) fn play(bytes: &[u8], report: &mut Report) {
    let mut world = World::new(bytes, report);
    for _ in 0..CALLS_MAX {
        if world.bytes.0.is_empty() {
            break;
        }
        world.step();
    }
}
