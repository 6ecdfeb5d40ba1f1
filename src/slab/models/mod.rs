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

    /// With a clock that stands ahead of every instant that the model uses.
    fn at(records: usize, policy: Policy, on_full: OnFull, clock_ns: u64) -> Self {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(clock_ns));
        Self::on_clock(records, policy, on_full, clock)
    }

    /// Built by a thread of its own: a limiter that is about to be moved to its
    /// place takes more than the 32 KB of stack that loom gives the first.
    fn on_clock(records: usize, policy: Policy, on_full: OnFull, clock: ManualClock) -> Self {
        let build = move || {
            let kinds = policy.cell_kinds();
            let geometry = Geometry { groups: 1, window: 1, records, lanes: kinds.len() };
            let slab = Slab::new(geometry, fixed_key(KEY), kinds).unwrap();
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

/// How far loom may go: everything, or so many preemptions.
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

mod conduct; // After the macro that they use.
mod kinds;
mod plans;
mod rollback;
mod stale;

model! {
    /// Two callers race for the last token: exactly one gets it.
    last_token_of_two, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
    }
}

model! {
    /// Three callers race for the last token: exactly one gets it.
    last_token_of_three, Some(3), breaks with [ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rivals = [0, 1].map(|_| model.spawn(|model| model.allows(A, FIRST, Tick::ZERO)));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        let others = rivals.map(|rival| rival.join().unwrap());
        assert_eq!([mine, others[0], others[1]].iter().filter(|allowed| **allowed).count(), 1);
    }
}

model! {
    /// Lanes of one agent do not disturb each other.
    different_lanes, UNBOUNDED, breaks with [], || {
        let model = Model::new(1, 2, 2, OnFull::Deny);
        let other = model.spawn(|model| model.allows(A, SECOND, Tick::ZERO));
        assert!(model.allows(A, FIRST, Tick::ZERO) && other.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
        assert_eq!(model.remaining(A, SECOND, Tick::ZERO), 1);
    }
}

model! {
    /// Two threads meet a new agent: it gets one record, and one of them its only token.
    first_contact_of_one_agent, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::vacant(2, 1, 1, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let mine = model.allows(A, FIRST, Tick::ZERO);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// Two new agents get a record each.
    first_contact_of_two_agents, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::vacant(2, 1, 1, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        assert!(model.allows(A, FIRST, Tick::ZERO) && rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 0);
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), 0);
        assert_eq!(model.agents(), 2);
    }
}

model! {
    /// Two newcomers want the only record, which is idle: one is told that it is full.
    two_claims_against_one_idle_record, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.check(C, FIRST, PAID));
        let mine = model.check(B, FIRST, PAID);
        let other = rival.join().unwrap();
        assert!(mine.is_ok() ^ other.is_ok(), "{mine:?} {other:?}");
        assert_eq!(model.remaining(B, FIRST, PAID), if mine.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(C, FIRST, PAID), if other.is_ok() { 1 } else { 2 });
    }
}

/// An idle tenant returns while a newcomer takes its record: one of them has
/// it in the end, with exactly its own charge.
fn check_against_eviction(lanes: usize, lane: LaneId) -> impl Fn() + Sync + Send + 'static {
    move || {
        let model = Model::new(1, lanes, 2, OnFull::Deny);
        let newcomer = model.spawn(move |model| model.check(B, FIRST, PAID));
        let tenant = model.check(A, lane, PAID);
        let newcomer = newcomer.join().unwrap();
        assert!(tenant.is_ok() ^ newcomer.is_ok(), "{tenant:?} {newcomer:?}");
        assert_eq!(model.remaining(A, lane, PAID), if tenant.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(B, FIRST, PAID), if newcomer.is_ok() { 1 } else { 2 });
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// The eviction gives up on the only lane there is. Bounded, since all of
    /// its 1,469,346 executions take minutes; they hold as well.
    check_against_eviction_of_one_lane, Some(5),
    breaks with [NoLookAfterLoad, NoClose, IdleUnchecked, StayClosed, RelaxedLane],
    check_against_eviction(1, FIRST)
}

model! {
    /// The eviction gives up halfway: one lane has moved on, the other was
    /// charged. Bounded; all of its 177,647 executions hold as well.
    check_against_eviction_of_two_lanes, Some(5),
    breaks with [NoLookAfterLoad, NoClose, IdleUnchecked, StayClosed],
    check_against_eviction(2, SECOND)
}

model! {
    /// A check stalls while its agent is forgotten and the record passes to C
    /// with the very word that the check has loaded. Without generations its
    /// exchange would land on C.
    check_stalled_across_two_tenancies, Some(3), breaks with [NoLookAfterLoad, SameGeneration], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap();
        let others = model.spawn(|model| {
            model.0.forget(Agent::new(A).at(Tick::ZERO)).unwrap() && model.allows(C, FIRST, Tick::ZERO)
        });
        let _ = model.check(A, FIRST, Tick::ZERO);
        let third = others.join().unwrap();
        assert_eq!(model.remaining(C, FIRST, Tick::ZERO), if third { 1 } else { 2 });
    }
}

/// Something is given back to A while a newcomer takes its record, in debt as
/// it is: what the newcomer was told is what it has.
fn giving_back_against_eviction(give_back: fn(&Limiter)) -> impl Fn() + Sync + Send + 'static {
    move || {
        let model = Model::at_origin(2, OnFull::Evict);
        let newcomer = model.spawn(|model| model.check(B, FIRST, Tick::ZERO).map_or(2, |verdict| verdict.remaining()));
        give_back(&model.0);
        let left = newcomer.join().unwrap();
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2);
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), left);
    }
}

model! {
    /// A refund stalls while a newcomer takes the record. Bounded, since all
    /// of its 349,610 executions take a minute; they hold as well.
    refund_against_eviction, Some(4), breaks with [NoLookAfterLoad, ChargeByStore],
    giving_back_against_eviction(|limiter| {
        assert_eq!(limiter.refund(Request::new(A, FIRST).at(Tick::ZERO)).unwrap().remaining(), 2);
    })
}

model! {
    /// A reset stalls while a newcomer takes the record; as for a refund.
    reset_against_eviction, Some(4), breaks with [NoLookAfterLoad, ChargeByStore],
    giving_back_against_eviction(|limiter| limiter.reset(Agent::new(A).at(Tick::ZERO)).unwrap())
}

model! {
    /// The tenant is forgotten while a newcomer evicts it.
    forget_against_eviction, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, PAID));
        model.0.forget(Agent::new(A).at(PAID)).unwrap();
        assert!(newcomer.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, PAID), 2);
        assert_eq!(model.remaining(B, FIRST, PAID), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// A sweep and a newcomer are after the same idle record.
    sweep_against_eviction, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, PAID));
        let swept = model.0.sweep_at(Duration::ZERO, PAID);
        assert!(newcomer.join().unwrap() && swept <= 1);
        assert_eq!(model.remaining(B, FIRST, PAID), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// Each refund gives back one token, whatever is charged meanwhile.
    refund_against_check, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = Model::at_origin(2, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, Tick::ZERO));
        let _ = model.0.refund(Request::new(A, FIRST).at(Tick::ZERO)).unwrap();
        assert!(rival.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 1);
    }
}

model! {
    /// A check comes before a reset and is wiped out, or after and stays.
    reset_against_check, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.check(A, FIRST, Tick::ZERO).unwrap().remaining());
        model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap();
        let before = rival.join().unwrap() == 0;
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), if before { 2 } else { 1 });
    }
}

model! {
    /// A check comes before forgetting and is wiped out, or after and stays.
    forget_against_check, UNBOUNDED, breaks with [NoLookAfterLoad, NoClose], || {
        let model = Model::new(2, 1, 2, OnFull::Deny);
        let rival = model.spawn(|model| model.check(A, FIRST, Tick::ZERO).unwrap().remaining());
        model.0.forget(Agent::new(A).at(Tick::ZERO)).unwrap();
        let before = rival.join().unwrap() == 0;
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), if before { 2 } else { 1 });
    }
}

model! {
    /// A sweep takes an idle record while its tenant returns: the charge stays.
    sweep_against_check, UNBOUNDED, breaks with [NoLookAfterLoad, NoClose, IdleUnchecked], || {
        let model = Model::new(2, 1, 2, OnFull::Deny);
        let tenant = model.spawn(|model| model.allows(A, FIRST, PAID));
        let _ = model.0.sweep_at(Duration::ZERO, PAID);
        assert!(tenant.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, PAID), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// A newcomer claims the vacant record of an agent that is being forgotten.
    forget_against_claim, UNBOUNDED, breaks with [NoLock], || {
        let model = Model::new(2, 1, 2, OnFull::Deny);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        assert_eq!(model.0.forget(Agent::new(A).at(Tick::ZERO)), Ok(true));
        assert!(newcomer.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, Tick::ZERO), 2);
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), 1);
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// The only record, in debt, passes back and forth: its last token is given
    /// out once. Bounded, since all of its 2,394,610 executions take minutes;
    /// they hold as well.
    lossy_eviction_inherits, Some(5), breaks with [NothingInherited, ChargeByStore], || {
        let model = Model::new(1, 1, 2, OnFull::Evict);
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        let tenant = model.allows(A, FIRST, Tick::ZERO);
        assert!(tenant ^ newcomer.join().unwrap());
    }
}

model! {
    /// A check stalls while its record is vacated and claimed by B, whose lane
    /// is lifted to the instant of the eviction by a plain store.
    check_against_claim_of_a_vacated_record, Some(3), breaks with [RelaxedSettling], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let later = Tick::from_nanos(2 * TOKEN);
        let others = model.spawn(move |model| {
            model.0.sweep_at(Duration::ZERO, later) == 1 && model.check(B, FIRST, later).is_ok()
        });
        let _ = model.check(A, FIRST, later);
        if others.join().unwrap() {
            assert_eq!(model.remaining(B, FIRST, later), 1);
        }
    }
}

model! {
    /// A is looked at while it is forgotten, B spends everything in its record
    /// and is forgotten, and A returns: A's own lane never had less than 1 left.
    status_is_never_of_a_stranger, Some(3), breaks with [NoLastLook], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let others = model.spawn(|model| {
            let _ = model.0.forget(Agent::new(A).at(Tick::ZERO));
            let _ = model.0.check_request(Request::new(B, FIRST).cost(2).at(Tick::ZERO));
            let _ = model.0.forget(Agent::new(B).at(Tick::ZERO));
            let _ = model.check(A, FIRST, Tick::ZERO);
        });
        assert!(model.remaining(A, FIRST, Tick::ZERO) >= 1);
        others.join().unwrap();
    }
}

model! {
    /// A returns while two newcomers look for a record: whoever is let in has
    /// exactly its own charge. Two preemptions: with three, the two that wait
    /// for the lock give way to each other until loom's branches run out.
    check_against_two_claims, Some(2), breaks with [NoLookAfterLoad, NoClose], || {
        let model = Model::new(1, 1, 2, OnFull::Deny);
        let newcomers = [B, C].map(|agent| model.spawn(move |model| model.check(agent, FIRST, PAID).is_ok()));
        let tenant = model.check(A, FIRST, PAID).is_ok();
        let [second, third] = newcomers.map(|newcomer| newcomer.join().unwrap());
        assert_eq!([tenant, second, third].iter().filter(|let_in| **let_in).count(), 1);
        for (agent, let_in) in [(A, tenant), (B, second), (C, third)] {
            assert_eq!(model.remaining(agent, FIRST, PAID), if let_in { 1 } else { 2 });
        }
    }
}

model! {
    /// The only record is so far in debt that B would be denied in it, while
    /// its tenant is reset: if B is allowed, then B has the record, charged.
    refusal_against_reset, UNBOUNDED, breaks with [], || {
        let model = Model::new(1, 1, 1, OnFull::Evict);
        let reset = model.spawn(|model| model.0.reset(Agent::new(A).at(Tick::ZERO)).unwrap());
        let allowed = model.allows(B, FIRST, Tick::ZERO);
        reset.join().unwrap();
        assert_eq!(model.remaining(B, FIRST, Tick::ZERO), u64::from(!allowed));
    }
}
