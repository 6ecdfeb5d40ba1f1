//! Sequences of calls through the C ABI, drawn from bytes, against an oracle:
//! for `tests/ffi.rs`, which draws the bytes itself, and for the target of
//! cargo-fuzz in `bindings/c/fuzz`.
//!
//! Any function may be next, with arguments that are right or wrong in any
//! way a library can answer: NULL, absurd lengths, lanes and costs that are
//! not there, flags that do not exist, tags that are too small, buffers too
//! short, any bytes for ids and texts. A wrong argument has to be answered with its status and leave
//! everything as it was; a right one has to be answered as the oracle says.
//!
//! The oracle keeps each bucket as the instant at which it is full, in plain
//! arithmetic. It is exact while instants only move ahead; when one moves back
//! the limiter may be stricter, and then the oracle says what is too much.

mod actions;
mod arguments;
mod assignments;
mod call_limits;
mod checks;
mod conduct;
mod control;
mod lanes;
mod limiters;
mod observe;
mod oracle;
mod policies;
mod reservations;
mod several;

use arguments::{Bytes, fresh};
use oracle::{Lane, TIME_MAX, Watched};
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
    /// Limiters whose memory other processes could share.
    pub(crate) shared: u64,
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
            policies: Vec::new(),
            limiters: Vec::new(),
            crowded: false,
        };
        world.crowded = world.bytes.once_in(8);
        assert_eq!(call!(world, tollgate_clock_new(ClockSource::Manual as i32, &mut world.clock)), Status::Ok);
        world.first_policy();
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

    /// The start of an array, or NULL now and then, which is no fault of an empty one.
    fn array<T>(&mut self, start: *mut T, count: usize, faults: &mut Vec<Status>) -> *mut T {
        let mut found = Vec::new();
        let start = self.handle(start, &mut found);
        faults.extend(found.into_iter().filter(|_| count > 0));
        start
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

    /// An instant as an argument, TOLLGATE_NOW or the caller's own, and which it is.
    fn instant(&mut self) -> (u64, u64) {
        let now = match self.bytes.below(4) {
            0 => self.bytes.number().min(TIME_MAX),
            1 => self.now.saturating_add(self.bytes.number()).min(TIME_MAX),
            2 => self.now,
            _ => return (TOLLGATE_NOW, self.now),
        };
        (now, now)
    }

    /// A flag that is set now and then, or flags that do not exist.
    fn flags(&mut self, flag: u32, faults: &mut Vec<Status>) -> u32 {
        let flags = match self.bytes.below(24) {
            0 => self.bytes.number() as u32,
            1..=8 => flag,
            _ => 0,
        };
        if flags & !flag != 0 {
            faults.push(Status::InvalidOption);
        }
        flags
    }

    /// What needs no handle.
    fn others(&mut self) {
        match self.bytes.below(3) {
            0 => assert!(!call!(self, tollgate_version()).is_null() && call!(self, tollgate_features()) < 16),
            1 => assert!(call!(self, tollgate_version_number()) > 0),
            _ => {
                let status = self.bytes.number() as i32;
                assert!(!call!(self, tollgate_status_text(status)).is_null());
            }
        }
        assert_eq!(call!(self, tollgate_verdict_remaining(null())), 0);
        let (wait, step) = (self.bytes.number(), self.bytes.number() % 100_000);
        let told = call!(self, tollgate_wait_ms(wait, step, 7));
        assert!(if wait == TOLLGATE_NEVER { told == 7 } else { told >= 1 && told >= wait / 1_000_000 });
    }

    fn step(&mut self) {
        match self.bytes.below(16) {
            0 => self.draw_policy(),
            1 => match self.bytes.below(2) {
                0 => self.look_at_policy(),
                _ => self.make_policy(),
            },
            2 => match self.bytes.below(5) {
                0 => self.new_limiter(),
                1 => self.others(),
                2 => self.log_and_show(),
                3 => self.read_call_limit(),
                _ => self.look_at_clock(),
            },
            5 | 6 => self.move_clock(),
            choice => {
                let Some(mut watched) = self.take_limiter() else { return self.new_limiter() };
                match choice {
                    3 | 7 => match self.bytes.below(5) {
                        3 | 4 => self.observe(&mut watched),
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
