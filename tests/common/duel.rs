//! Two threads and one record: its tenant returns at the moment when a newcomer would evict it.
//!
//! In a slab of 96 records, all but one belong to agents in deep debt. The
//! tenant of the last one is idle. In every round one thread calls for that
//! tenant and the other for a newcomer, a few nanoseconds apart. Whichever of
//! the two keeps the record, each must then owe exactly what it was granted.
//! The rounds of `rounds.rs` seldom hit this moment; here every round does.

use crate::random::Random;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tollgate::{Error, LaneId, Limit, Limiter, ManualClock, OnFull, Policy, Request};

/// Two cache lines a record, with the tag in one and the tenant's lane in the
/// other: the gap between reading one and charging the other lasts as long as a
/// cache line takes to travel.
const LANES: u32 = 14;
const TENANTS_LANE: LaneId = LaneId::new(13);
const NEWCOMERS_LANE: LaneId = LaneId::new(6);
const DEBTORS_LANE: LaneId = LaneId::new(0);

const RECORDS: u32 = 96;
const CAPACITY: u64 = 3;
const TOKEN: Duration = Duration::from_millis(1);

/// Some microseconds: more than a claim takes.
const HANDICAP_MAX: u64 = 10_000;

/// What a run saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) rounds: u64,
    /// Rounds in which the tenant kept its record.
    pub(crate) kept: u64,
    /// Rounds in which the newcomer took it.
    pub(crate) taken: u64,
}

/// A gate at which both threads spin until the other arrives.
struct Gate(AtomicU64);

/// More arrivals than there will ever be: an open gate.
const OPEN: u64 = 1 << 63;

impl Gate {
    fn pass(&self) {
        let arrived = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        let both = arrived.next_multiple_of(2);
        let mut turns = 0;
        while arrived < OPEN && self.0.load(Ordering::Acquire) < both {
            turns += 1;
            // The other thread may need this processor to arrive.
            if turns < 1_000 { spin_loop() } else { thread::yield_now() }
        }
    }
}

/// Leaves the gate open when a thread fails, so that the other does not wait for it.
struct OpenOnPanic<'a>(&'a Gate);

impl Drop for OpenOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.0.store(OPEN, Ordering::Release);
        }
    }
}

struct Duel {
    limiter: Limiter,
    clock: ManualClock,
    gate: Gate,
    /// The number of the tenant. The newcomer has the round's number.
    tenant: AtomicU64,
    /// How many turns of a loop the tenant waits, so that it arrives when the
    /// newcomer has found the record and is about to take it. Adapts: longer
    /// after a round that the tenant won, shorter after the others.
    handicap: AtomicU64,
    /// What tenant and newcomer were granted.
    granted: Mutex<[u64; 2]>,
}

/// Runs this many rounds.
pub(crate) fn duel(rounds: u64) -> Report {
    let lane = |number| match LaneId::new(number) {
        DEBTORS_LANE => Limit::per_day(1).burst(1_000),
        _ => Limit::new(1, TOKEN).burst(CAPACITY),
    };
    let policy =
        (0..LANES).fold(Policy::builder(), |policy, number| policy.lane(format!("lane/{number}"), lane(number)));
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy.build().expect("valid")).agents(1).on_full(OnFull::Deny);
    let limiter = limiter.clock(clock.clone()).build().expect("a small slab");
    for debtor in 1..RECORDS {
        let verdict = limiter.check_request(Request::new(&format!("debtor-{debtor}"), DEBTORS_LANE).cost(1_000));
        assert!(verdict.is_ok_and(|verdict| verdict.is_allowed()));
    }
    let (gate, granted) = (Gate(AtomicU64::new(0)), Mutex::new([0, 0]));
    let (tenant, handicap) = (AtomicU64::new(0), AtomicU64::new(0));
    let duel = Duel { limiter, clock, gate, tenant, handicap, granted };
    thread::scope(|scope| {
        let rival = scope.spawn(|| {
            let _open = OpenOnPanic(&duel.gate);
            (1..=rounds).for_each(|round| duel.play(round, 1));
        });
        let _open = OpenOnPanic(&duel.gate);
        let mut report = Report::default();
        for round in 1..=rounds {
            duel.play(round, 0);
            duel.settle(round, &mut report);
        }
        // ThreadSanitizer sees a join, but not the wait at the end of a scope.
        rival.join().expect("no thread panics");
        report
    })
}

impl Duel {
    /// One thread's part of a round. Which of the two plays the tenant is random.
    fn play(&self, round: u64, thread: usize) {
        let mut random = Random::new(round);
        let newcomer = (random.below(2) == 0) == (thread == 0);
        let jitter = random.below(100);
        let calls = 1 + random.below(CAPACITY);
        self.begin(round, thread);
        let (agent, lane, delay) = if newcomer {
            (round, NEWCOMERS_LANE, 50)
        } else {
            let handicap = self.handicap.load(Ordering::Relaxed);
            (self.tenant.load(Ordering::Acquire), TENANTS_LANE, handicap + jitter)
        };
        self.gate.pass();
        (0..delay).for_each(|turn| {
            black_box(turn);
        });
        let granted = (0..calls).filter(|_| self.ask(agent, lane)).count() as u64;
        let mut both = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        both[usize::from(newcomer)] = granted;
        drop(both);
        self.gate.pass();
    }

    /// Before a round: the last tenant becomes idle. The first thread does it.
    fn begin(&self, round: u64, thread: usize) {
        if thread == 0 {
            self.clock.advance(TOKEN * CAPACITY as u32);
            if round == 1 {
                assert!(self.ask(0, TENANTS_LANE), "the last record is vacant");
                self.clock.advance(TOKEN * CAPACITY as u32);
            }
        }
        self.gate.pass();
    }

    fn ask(&self, agent: u64, lane: LaneId) -> bool {
        match self.limiter.check(agent.to_le_bytes(), lane) {
            Ok(verdict) => verdict.is_allowed(),
            Err(error) => {
                assert_eq!(error, Error::Full);
                false
            }
        }
    }

    /// After a round: each owes what it was granted, and one has the record.
    fn settle(&self, round: u64, report: &mut Report) {
        let [tenants, newcomers] = *self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = self.tenant.load(Ordering::Acquire);
        for (agent, lane, granted) in [(tenant, TENANTS_LANE, tenants), (round, NEWCOMERS_LANE, newcomers)] {
            for other in [TENANTS_LANE, NEWCOMERS_LANE] {
                let status =
                    self.limiter.peek(Request::new(&agent.to_le_bytes(), other)).expect("a lane of the policy");
                let owed = if other == lane { TOKEN * granted as u32 } else { Duration::ZERO };
                assert_eq!(
                    status.full_in(),
                    owed,
                    "round {round}: {tenants} to the tenant, {newcomers} to the newcomer"
                );
            }
        }
        assert_eq!(self.limiter.stats().agents, u64::from(RECORDS), "round {round}");
        report.rounds += 1;
        report.kept += u64::from(tenants > 0);
        report.taken += u64::from(newcomers > 0);
        assert_eq!(report.kept + report.taken, report.rounds, "round {round}: {tenants} and {newcomers} granted");
        let handicap = self.handicap.load(Ordering::Relaxed);
        if newcomers > 0 {
            self.tenant.store(round, Ordering::Release);
            self.handicap.store(handicap.saturating_sub(3), Ordering::Relaxed);
        } else {
            self.handicap.store((handicap + 3).min(HANDICAP_MAX), Ordering::Relaxed);
        }
    }
}
