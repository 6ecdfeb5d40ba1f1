//! Loom models of every pair of operations on a record.
//!
//! Slabs of one or two records with one or two lanes, two or three threads
//! with one or two calls each: loom explores interleavings, not load. Each
//! model states what must hold when all threads are done. [`holds`] explores
//! it; [`breaks`] explores it with one step of the protocol left out and
//! requires that the model notices.
//!
//! In all of them a token takes [`TOKEN`] nanoseconds to refill, and
//! [`Model::new`] leaves agent A with a lane that was charged at instant 0.

use super::hash::fixed_key;
use super::{Geometry, OnFull, Slab};
use crate::clock::{ManualClock, Tick};
use crate::engine::{Agent, Request};
use crate::limiter::Limiter;
use crate::policy::{LaneId, Limit, Policy};
use crate::shared::{Joined, Memory};
use crate::sync::{BROKEN, Fault};
use crate::{Error, Verdict};
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const A: &str = "agent A";
const B: &str = "agent B";
const C: &str = "agent C";

const FIRST: LaneId = LaneId::new(0);
const SECOND: LaneId = LaneId::new(1);

/// Nanoseconds in which a token refills.
const TOKEN: u64 = 10;

/// When one token, charged at instant 0, has been refilled: A is idle.
const PAID: Tick = Tick::from_nanos(TOKEN);

/// The seed of the key.
const KEY: u64 = 3;

/// The stack of the thread that builds a limiter: 256 KB.
const STACK_WORDS: usize = 1 << 15;

/// A limiter so small that loom can know it all.
#[derive(Clone)]
struct Model(Arc<Limiter>);

fn buckets(lanes: usize, capacity: u64) -> Policy {
    let limit = Limit::new(1, Duration::from_nanos(TOKEN)).burst(capacity);
    let policy = (0..lanes).fold(Policy::builder(), |policy, lane| policy.lane(format!("lane-{lane}"), limit));
    policy.build().unwrap()
}

impl Model {
    /// `records` records of `lanes` lanes that hold `capacity` tokens each; A
    /// has spent one token of its first lane at instant 0.
    fn new(records: usize, lanes: usize, capacity: u64, on_full: OnFull) -> Self {
        let model = Self::vacant(records, lanes, capacity, on_full);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        model
    }

    /// One record and one lane, at instant 0 by the clock too: refunds are made
    /// at the clock's time at least.
    fn at_origin(capacity: u64, on_full: OnFull) -> Self {
        let model = Self::at(1, buckets(1, capacity), on_full, 0);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        model
    }

    fn vacant(records: usize, lanes: usize, capacity: u64, on_full: OnFull) -> Self {
        Self::with_policy(records, buckets(lanes, capacity), on_full)
    }

    fn with_policy(records: usize, policy: Policy, on_full: OnFull) -> Self {
        Self::at(records, policy, on_full, 1_000)
    }

    /// With a clock that is ahead of every instant that the model uses.
    fn at(records: usize, policy: Policy, on_full: OnFull, clock_ns: u64) -> Self {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(clock_ns));
        Self::on_clock(records, policy, on_full, clock)
    }

    /// One record of a slab that processes share.
    fn shared(policy: Policy, on_full: OnFull) -> Self {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(1_000));
        Self::built(1, policy, on_full, clock, || Memory::Shared(Arc::new(Joined)))
    }

    fn on_clock(records: usize, policy: Policy, on_full: OnFull, clock: ManualClock) -> Self {
        Self::built(records, policy, on_full, clock, || Memory::Private)
    }

    /// Built by a separate thread: a limiter that is about to be moved to its
    /// place takes more than the 32 KB of stack that loom gives the first one.
    fn built(records: usize, policy: Policy, on_full: OnFull, clock: ManualClock, memory: fn() -> Memory) -> Self {
        let build = move || {
            let kinds = policy.cell_kinds();
            let geometry = Geometry { groups: 1, window: 1, records, lanes: kinds.len() };
            let slab = Slab::within(memory(), geometry, fixed_key(KEY), kinds, 2).unwrap();
            Arc::new(Limiter::builder(policy).clock(clock).on_full(on_full).over(slab).unwrap())
        };
        let builder = thread::Builder::new().stack_size(STACK_WORDS).spawn(build);
        Self(builder.unwrap().join().unwrap())
    }

    fn check(&self, agent: &str, lane: LaneId, now: Tick) -> Result<Verdict, Error> {
        self.0.check_request(Request::new(agent, lane).at(now))
    }

    fn allows(&self, agent: &str, lane: LaneId, now: Tick) -> bool {
        self.check(agent, lane, now).is_ok_and(|verdict| verdict.is_allowed())
    }

    fn remaining(&self, agent: &str, lane: LaneId, now: Tick) -> u64 {
        self.0.peek(Request::new(agent, lane).at(now)).unwrap().remaining()
    }

    fn agents(&self) -> u64 {
        self.0.stats().agents
    }

    fn spawn<T: 'static>(&self, call: impl FnOnce(&Self) -> T + 'static) -> thread::JoinHandle<T> {
        let model = self.clone();
        thread::spawn(move || call(&model))
    }
}

/// How far loom may go: everything, or this many preemptions.
pub(crate) type Preemptions = Option<usize>;

pub(crate) fn explore(
    name: &str,
    preemptions: Preemptions,
    fault: Option<Fault>,
    model: impl Fn() + Sync + Send + 'static,
) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    BROKEN.set(fault);
    let explored = catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            model();
        });
    }));
    BROKEN.set(None);
    let executions = executions.load(Ordering::Relaxed);
    match (fault, explored) {
        (None, Ok(())) => println!("{name}: holds in all {executions} executions"),
        (Some(fault), Err(_)) => println!("{name}: breaks with {fault:?} in execution {executions}"),
        (None, Err(failure)) => std::panic::resume_unwind(failure),
        (Some(fault), Ok(())) => panic!("{name} did not notice {fault:?} in {executions} executions"),
    }
}

/// A model as tests: it holds, and it breaks with each of the named faults.
macro_rules! model {
    ($(#[$doc:meta])* $name:ident, $preemptions:expr, breaks with [$($fault:ident),*], $body:expr) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            explore(stringify!($name), $preemptions, None, $body);
            $(explore(stringify!($name), $preemptions, Some(Fault::$fault), $body);)*
        }
    };
}

const UNBOUNDED: Preemptions = None;

#[cfg(feature = "cluster")]
mod budgets;
#[cfg(feature = "cluster")]
mod cluster;
mod conduct; // After the macro that they use.
#[cfg(feature = "cluster")]
mod credit;
mod first_contact;
mod joining;
mod journal;
mod kinds;
mod plans;
mod processes;
mod rollback;
mod stale;
mod tenancies;
