//! Threads check a few agents while another thread changes their limits: plans,
//! overrides, exemptions, the whole policy.
//!
//! Before each change, the changing thread publishes which limit is in force
//! and which will be; after it, only the new one. A caller reads that before
//! and after its check, so it knows which limits may have applied: just one if
//! nothing changed. Every number of the verdict must match that limit, so a row
//! of limits that is read while it is written, or used after it was freed, is
//! detected. The clock stands still during a round; at its end each agent owes
//! exactly what it was granted, under whatever limits.

use crate::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tollgate::{Decision, LaneId, Limit, Limiter, ManualClock, OnFull, PlanId, Policy, Request, Verdict};

const THREADS: u64 = 3;
const AGENTS: usize = 5;
const LANES: usize = 2;
const CALLS: u64 = 1_500;

/// No request costs more than the capacity of the smallest bucket.
const COST_MAX: u64 = 300;

/// A limit of a lane: tokens, and the seconds in which they refill. It is
/// identified by its number in `LIMITS`; no two limits of a lane have the same
/// capacity.
///
/// In the first lane all take a minute, so debt is never clamped and the
/// accounts are exact. In the second they differ, so a row that mixes two is
/// never right by chance.
type Numbers = (u64, u64);

const LIMITS: [[Numbers; 13]; LANES] = [
    [
        (u64::MAX, 0), // exempt
        (0, 0),        // deny
        (1_000, 60),
        (100_000, 60),
        (60_000, 60),
        (12_000, 60),
        (2_000, 60),
        (300_000, 60),
        (1_500, 60),
        (48_000, 60),
        (7_500, 60),
        (200_000, 60),
        (3_000, 60),
    ],
    [
        (u64::MAX, 0),
        (0, 0),
        (1_000, 30),
        (100_000, 120),
        (60_000, 60),
        (12_000, 30),
        (2_000, 120),
        (300_000, 30),
        (1_500, 60),
        (48_000, 120),
        (7_500, 60),
        (200_000, 60),
        (3_000, 30),
    ],
];

const EXEMPT: usize = 0;
const DENY: usize = 1;
/// The limits of three policies: of the plan `default`, of `plan`, and of
/// `auth`, which requests name in place of an assignment.
const DEFAULT: [usize; 3] = [2, 3, 4];
const PLAN: [usize; 3] = [5, 6, 7];
const AUTH: [usize; 3] = [8, 9, 10];
/// The limits that overrides use.
const OWN: [usize; 3] = [11, 12, DENY];

const PLAN_ID: PlanId = PlanId::new(1);
const AUTH_ID: PlanId = PlanId::new(2);

fn limit(lane: usize, number: usize) -> Limit {
    let (capacity, seconds) = LIMITS[lane][number];
    if number == DENY { Limit::deny_all() } else { Limit::new(capacity, Duration::from_secs(seconds)) }
}

fn token_ns(lane: usize, number: usize) -> u64 {
    let (capacity, seconds) = LIMITS[lane][number];
    seconds * 1_000_000_000 / capacity
}

fn policy(version: usize) -> Policy {
    let lane = |lane, numbers: [usize; 3]| limit(lane, numbers[version]);
    Policy::builder()
        .lane("a", lane(0, DEFAULT))
        .lane("b", lane(1, DEFAULT))
        .plan("plan", [("a", lane(0, PLAN)), ("b", lane(1, PLAN))])
        .plan("auth", [("a", lane(0, AUTH)), ("b", lane(1, AUTH))])
        .build()
        .expect("valid")
}

/// What a run saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) calls: u64,
    pub(crate) changes: u64,
    /// Verdicts while only one limit was in force.
    pub(crate) sure: u64,
    /// Verdicts during a change, by the old limit or by the new one.
    pub(crate) old: u64,
    pub(crate) new: u64,
    /// Exchanges that another thread won.
    pub(crate) retries: u64,
}

/// The limits, by number, that may apply to an agent on a lane: in a check, and
/// in one under the plan `auth`; each before and after the current change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InForce {
    changes: u64,
    check: [usize; 2],
    check_as: [usize; 2],
}

impl InForce {
    fn to_bits(self) -> u64 {
        let numbers = [self.check[0], self.check[1], self.check_as[0], self.check_as[1]];
        numbers.into_iter().fold(self.changes, |bits, number| bits << 4 | number as u64)
    }

    fn from_bits(bits: u64) -> Self {
        let number = |place: u32| (bits >> (4 * place) & 0xf) as usize;
        Self { changes: bits >> 16, check: [number(3), number(2)], check_as: [number(1), number(0)] }
    }
}

/// What is assigned to an agent.
#[derive(Clone, Copy, Default)]
struct Decided {
    plan: Option<PlanId>,
    own: [Option<usize>; LANES],
    exempt: bool,
}

impl Decided {
    /// The limits that follow: in a check, and in one under the plan `auth`.
    fn limits(self, lane: usize, version: usize) -> [usize; 2] {
        let registered = self.plan.is_some() || self.own.iter().any(Option::is_some);
        let of_plan = |plan| match plan {
            PLAN_ID => PLAN[version],
            AUTH_ID => AUTH[version],
            _ => DEFAULT[version],
        };
        let check = self.own[lane].unwrap_or(of_plan(self.plan.unwrap_or(PlanId::DEFAULT)));
        match self.exempt {
            true => [EXEMPT; 2],
            false => [check, if registered { check } else { AUTH[version] }],
        }
    }
}

/// What the threads share.
struct Shared {
    limiter: Limiter,
    ids: [String; AGENTS],
    in_force: [[AtomicU64; LANES]; AGENTS],
}

/// The thread that changes.
struct Changer<'a> {
    shared: &'a Shared,
    random: Random,
    decided: [Decided; AGENTS],
    version: usize,
    /// How often each agent's limits changed in this round.
    changes: [u64; AGENTS],
}

/// What one thread saw: nanoseconds granted to each agent in the first lane,
/// and verdicts before, after and outside of changes.
#[derive(Clone, Copy, Default)]
struct Seen {
    granted: [u64; AGENTS],
    sure: u64,
    old: u64,
    new: u64,
}

/// Runs rounds until this many checks were made and some of them overlapped a change.
pub(crate) fn stress(calls: u64) -> Report {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy(0)).agents(8).on_full(OnFull::Deny).clock(clock.clone());
    let shared = Shared {
        limiter: limiter.build().expect("a small slab"),
        ids: std::array::from_fn(|agent| format!("agent-{agent}")),
        in_force: Default::default(),
    };
    let mut changer = Changer {
        shared: &shared,
        random: Random::new(calls),
        decided: [Decided::default(); AGENTS],
        version: 0,
        changes: [0; AGENTS],
    };
    changer.announce(0, [Decided::default(); AGENTS]);
    let mut report = Report { calls: 0, changes: 0, sure: 0, old: 0, new: 0, retries: 0 };
    let met = |report: &Report| report.old > 0 && report.new > 0 && shared.limiter.stats().retries > 0;
    // On a busy machine threads seldom overlap: then it takes more rounds.
    while report.calls < calls || !met(&report) && report.calls < calls * 100 {
        clock.advance(Duration::from_secs(600)); // All debt is paid.
        changer.round(&mut report);
    }
    Report { retries: shared.limiter.stats().retries, ..report }
}

impl Changer<'_> {
    fn round(&mut self, report: &mut Report) {
        self.changes = [0; AGENTS];
        let shared = self.shared;
        let seen = thread::scope(|scope| {
            let seeds = (0..THREADS).map(|_| self.random.next());
            let threads: Vec<_> = seeds.map(|seed| scope.spawn(move || shared.hammer(Random::new(seed)))).collect();
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                self.change();
                report.changes += 1;
            }
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
        });
        report.calls += THREADS * CALLS;
        report.sure += seen.iter().map(|seen| seen.sure).sum::<u64>();
        report.old += seen.iter().map(|seen| seen.old).sum::<u64>();
        report.new += seen.iter().map(|seen| seen.new).sum::<u64>();
        for agent in 0..AGENTS {
            let id = &shared.ids[agent];
            shared.limiter.unexempt(id).expect("a valid id");
            let granted: u64 = seen.iter().map(|seen| seen.granted[agent]).sum();
            let owed = shared
                .limiter
                .peek(Request::new(id, LaneId::new(0)))
                .expect("a lane of the policy")
                .full_in()
                .as_nanos() as u64;
            // One more nanosecond each time the lane's generations wrap around.
            let most = granted + (self.changes[agent] + 1) / 16 + 1;
            assert!((granted..=most).contains(&owed), "{id} owes {owed} ns of {granted}: {report:?}");
            assert!(granted <= 60_000_000_000, "{id} was granted {granted} ns: {report:?}");
            if self.decided[agent].exempt {
                shared.limiter.exempt(id).expect("a valid id");
            }
        }
    }

    /// Publishes what may apply from now on: the present limits, and those that follow from these assignments.
    fn announce(&self, version: usize, decided: [Decided; AGENTS]) {
        for (agent, decided) in decided.into_iter().enumerate() {
            for lane in 0..LANES {
                let place = &self.shared.in_force[agent][lane];
                let old = self.decided[agent].limits(lane, self.version);
                let new = decided.limits(lane, version);
                let changes = InForce::from_bits(place.load(Ordering::Acquire)).changes + 1;
                let [check, check_as] = [0, 1].map(|kind| [old[kind], new[kind]]);
                place.store(InForce { changes, check, check_as }.to_bits(), Ordering::SeqCst);
            }
        }
    }

    /// One change: announced, made, and announced as done.
    fn change(&mut self) {
        let Self { shared: Shared { limiter, ids, .. }, random, .. } = self;
        let (agent, lane) = (random.below(AGENTS as u64) as usize, random.below(LANES as u64) as usize);
        let (id, name) = (&ids[agent], ["a", "b"][lane]);
        let own = OWN[random.below(OWN.len() as u64) as usize];
        let (mut version, mut decided) = (self.version, self.decided);
        let next = &mut decided[agent];
        let action = random.below(12);
        match action {
            0 => next.plan = Some(PLAN_ID),
            1 => next.plan = Some(AUTH_ID),
            2 => next.plan = Some(PlanId::DEFAULT),
            3 => next.plan = None,
            4 => next.exempt = true,
            5 | 6 => next.exempt = false,
            7 | 8 => next.own[lane] = Some(own),
            9 => next.own[lane] = None,
            10 => next.own = [None; LANES],
            _ => version = (version + 1) % DEFAULT.len(),
        }
        let plan = next.plan;
        self.announce(version, decided);
        match action {
            0..=2 => limiter.assign(id, plan.unwrap_or(PlanId::DEFAULT)),
            3 => limiter.unassign(id),
            4 => limiter.exempt(id),
            5 | 6 => limiter.unexempt(id),
            7 | 8 => limiter.set_override(id, name, limit(lane, own)),
            9 => limiter.remove_override(id, name),
            10 => limiter.remove_overrides(id),
            _ => limiter.replace_policy(policy(version)),
        }
        .expect("a valid change");
        (self.version, self.decided) = (version, decided);
        self.announce(version, decided);
        self.changes.iter_mut().enumerate().for_each(|(number, changes)| {
            *changes += u64::from(number == agent || action == 11);
        });
    }
}

impl Shared {
    /// One thread's calls.
    fn hammer(&self, mut random: Random) -> Seen {
        let mut seen = Seen::default();
        for _ in 0..CALLS {
            // Half of the calls are to one agent.
            let agent = random.below(2 * AGENTS as u64).saturating_sub(AGENTS as u64) as usize;
            let (lane, cost) = (random.below(LANES as u64) as usize, 1 + random.below(COST_MAX));
            let (id, lane_id) = (&self.ids[agent], LaneId::new(lane as u32));
            if random.below(100) == 0 {
                self.limiter.sweep(Duration::ZERO);
            }
            let kind = random.below(4);
            let look = || InForce::from_bits(self.in_force[agent][lane].load(Ordering::SeqCst));
            let before = look();
            let verdict = match kind {
                0 => self.limiter.check_request(Request::new(id, lane_id).cost(cost).plan(AUTH_ID)),
                1 => self.limiter.check_request(Request::new(id, lane_id).cost(cost).counted()),
                _ => self.limiter.check_request(Request::new(id, lane_id).cost(cost)),
            }
            .expect("a valid request");
            let after = look();
            let number = number_of(lane, &verdict);
            let granted = whole(lane, number, cost, &verdict);
            seen.granted[agent] += if lane == 0 { granted } else { 0 };
            let of = |state: InForce| if kind == 0 { state.check_as } else { state.check };
            let ([old, new], last) = (of(before), of(after));
            match after.changes - before.changes {
                0 if old == new => {
                    assert_eq!(number, old, "{id}, lane {lane}: {verdict:?}, {before:?}");
                    seen.sure += 1;
                }
                0 | 1 => {
                    assert!([old, new, last[0], last[1]].contains(&number), "{id}, {verdict:?}: {before:?}, {after:?}");
                    seen.old += u64::from(old != new && number == old);
                    seen.new += u64::from(old != new && number == new);
                }
                _ => {} // Too many changes overlapped to know.
            }
        }
        seen
    }
}

/// The limit with this capacity.
fn number_of(lane: usize, verdict: &Verdict) -> usize {
    let number = LIMITS[lane].iter().position(|(capacity, _)| *capacity == verdict.capacity());
    assert!(number.is_some(), "a capacity that no limit of lane {lane} has: {verdict:?}");
    number.unwrap_or_default()
}

/// Compares every number of a verdict with the limit, and returns how many
/// nanoseconds were granted.
fn whole(lane: usize, number: usize, cost: u64, verdict: &Verdict) -> u64 {
    if number == EXEMPT || number == DENY {
        let decision = if number == EXEMPT { Decision::Exempt } else { Decision::Deny };
        assert_eq!((verdict.decision(), verdict.retry_after()), (decision, None), "{verdict:?}");
        return 0;
    }
    let (capacity, seconds) = LIMITS[lane][number];
    let (depth, ticks) = (seconds * 1_000_000_000, token_ns(lane, number));
    let (debt, price) = (verdict.full_in().as_nanos() as u64, cost * ticks);
    let who = (lane, number, cost);
    assert_eq!(verdict.remaining(), capacity.saturating_sub(debt.div_ceil(ticks)), "{who:?}: {verdict:?}");
    if !verdict.is_allowed() {
        let wait = (debt + price).checked_sub(depth).filter(|wait| *wait > 0).map(Duration::from_nanos);
        assert_eq!(verdict.retry_after(), wait, "{who:?}: {verdict:?}");
        return 0;
    }
    assert!((price..=depth).contains(&debt), "{who:?}: {verdict:?}");
    let is_near = depth - debt < capacity.div_ceil(5) * ticks;
    assert_eq!(verdict.decision() == Decision::Warn, is_near, "{who:?}: {verdict:?}");
    price
}
