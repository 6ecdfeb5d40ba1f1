//! Rounds of stress against an exact oracle, for `tests/stress.rs` and for
//! `examples/stress.rs`, which runs them as a plain program under
//! ThreadSanitizer.
//!
//! In a round the clock stands still while threads call a few agents of a tiny
//! slab all at once; then every agent and lane must have admitted exactly what
//! it held. Between rounds the clock moves, so that agents become idle and lose
//! their records to the next ones: in a run, hundreds of times as many as the
//! slab has records.

use crate::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tollgate::{Error, LaneId, Limit, Limiter, ManualClock, OnFull, Policy, Request, Stats, Tick};

/// Tokens and nanoseconds per token of each lane. A token takes a whole number
/// of nanoseconds, so the oracle is exact in whole numbers too. One lane is
/// soon empty; one seldom is, so that charges collide in it.
const LANES: [(u64, u64); 3] = [(3, 100_000_000), (40, 10_000_000), (1_000_000, 500)];

/// The lanes' numbers in a policy of 14 lanes, the others of which are unused.
/// A record is then two cache lines with the tag in one and the busiest lane in
/// the other, and an eviction writes to all lanes: that widens the gap between
/// reading the tag and a charge by the time a cache line takes to travel.
const NUMBERS: [usize; LANES.len()] = [0, 6, 13];
const POLICY_LANES: usize = 14;

/// After this every lane is full.
const REFILL: Duration = Duration::from_secs(1);

/// Built for this few agents, a slab has 104 records in two neighbourhoods of 96.
const AGENTS: u64 = 8;
const RECORDS: u64 = 104;
const NEIGHBOURHOOD: usize = 96;

const THREADS: u64 = 4;

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) form: Form,
    pub(crate) on_full: OnFull,
    pub(crate) calls: u64,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Agents in debt and agents that are called always find room: none is refused.
    Roomy,
    /// More agents than records are called in a round.
    Crowded,
    /// Like `Roomy`, but each call passes an instant between the last round and
    /// this one, as if it had stalled after reading the clock. Only an upper
    /// bound can be checked then.
    Stale,
}

/// What a run saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) calls: u64,
    pub(crate) admitted: u64,
    pub(crate) refunded: u64,
    /// Calls refused with [`Error::Full`].
    pub(crate) full: u64,
    /// Tokens admitted beyond what the oracle allows; only under [`OnFull::Evict`].
    pub(crate) excess: u64,
    pub(crate) stats: Stats,
}

impl Report {
    /// A run without contention, claims and evictions has proven nothing.
    pub(crate) fn assert_contended(&self) {
        assert_eq!(self.stats.records, RECORDS, "the slab is not as tiny as planned: {self:?}");
        assert!(self.stats.retries > 0, "no exchange was ever lost: {self:?}");
        assert!(self.stats.claims > RECORDS * 10, "{self:?}");
        assert!(self.stats.idle_evictions > RECORDS * 10, "{self:?}");
    }
}

/// The oracle's view of one lane of one agent: the time in the bucket, and since when.
#[derive(Clone, Copy)]
struct Level {
    left: u64,
    at: u64,
}

/// What one thread, or all, did to one lane of one agent in a round.
#[derive(Clone, Copy)]
struct Tally {
    admitted: u64,
    refunded: u64,
    full: u64,
    /// The smallest cost that was denied. Fewer tokens were left then, and no
    /// more can be left at the end of the round.
    denied: u64,
}

impl Tally {
    const NONE: Self = Self { admitted: 0, refunded: 0, full: 0, denied: u64::MAX };

    fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.refunded += other.refunded;
        self.full += other.full;
        self.denied = self.denied.min(other.denied);
    }
}

/// One agent's tallies.
type Tallies = [Tally; LANES.len()];

/// What the threads of a round share.
struct Round<'a> {
    limiter: &'a Limiter,
    ids: &'a [String],
    /// The agents that are called, by number.
    active: &'a [usize],
    /// Every second agent is refunded, while the others are checked.
    refunds: bool,
    /// One lane of two agents gets half of the calls.
    hot: bool,
    calls: u64,
    /// The instants that calls pass.
    from: u64,
    to: u64,
    /// How many threads are ready.
    ready: AtomicU64,
}

fn lane_id(lane: usize) -> LaneId {
    LaneId::new(NUMBERS[lane] as u32)
}

struct Stress {
    run: Run,
    limiter: Limiter,
    clock: ManualClock,
    random: Random,
    ids: Vec<String>,
    levels: Vec<[Level; LANES.len()]>,
    recent: Vec<usize>,
    report: Report,
}

/// A run that waits for contention makes at most this many times the requested calls.
const PATIENCE: u64 = 300;

/// Runs rounds until the number of calls is reached and an exchange was lost.
/// On a busy machine, threads seldom overlap.
pub(crate) fn stress(run: Run) -> Report {
    let policy = (0..POLICY_LANES).fold(Policy::builder(), |policy, number| {
        let limit = NUMBERS.iter().position(|used| *used == number).map_or(Limit::deny_all(), |lane| {
            let (capacity, token) = LANES[lane];
            Limit::new(1, Duration::from_nanos(token)).burst(capacity)
        });
        policy.lane(format!("lane/{number}"), limit)
    });
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy.build().expect("valid")).agents(AGENTS).on_full(run.on_full);
    let limiter = limiter.clock(clock.clone()).build().expect("a small slab");
    let ids: Vec<String> = (0..3_000).map(|agent| format!("agent-{agent}")).collect();
    let full = LANES.map(|(capacity, token)| Level { left: capacity * token, at: 0 });
    let levels = vec![full; ids.len()];
    let report = Report { calls: 0, admitted: 0, refunded: 0, full: 0, excess: 0, stats: limiter.stats() };
    let random = Random::new(run.seed);
    let mut stress = Stress { run, limiter, clock, random, ids, levels, recent: Vec::new(), report };
    let contended = |stress: &Stress| stress.limiter.stats().retries > 0;
    while stress.report.calls < run.calls || !contended(&stress) && stress.report.calls < run.calls * PATIENCE {
        stress.round();
    }
    Report { stats: stress.limiter.stats(), ..stress.report }
}

impl Stress {
    fn round(&mut self) {
        let from = self.clock.now().as_nanos();
        let active = self.next_agents();
        let to = self.clock.now().as_nanos();
        // Rounds are short, since agents are claimed when a round begins. But
        // threads that share a processor collide only where one is interrupted
        // in the middle of a call, and for that they must run for milliseconds.
        let waiting = self.report.calls >= self.run.calls;
        let calls = if waiting { 100_000 } else { 100 + self.random.below(900) };
        let round = Round {
            limiter: &self.limiter,
            ids: &self.ids,
            active: &active,
            refunds: self.run.form != Form::Stale && self.random.below(3) == 0,
            hot: waiting || self.random.below(2) == 0,
            calls,
            from: if self.run.form == Form::Stale { from } else { to },
            to,
            ready: AtomicU64::new(0),
        };
        let mut tallies = vec![[Tally::NONE; LANES.len()]; active.len()];
        thread::scope(|scope| {
            let seeds = (0..THREADS).map(|_| self.random.next());
            let threads: Vec<_> = seeds
                .map(|seed| {
                    let round = &round;
                    scope.spawn(move || round.hammer(Random::new(seed)))
                })
                .collect();
            for thread in threads {
                let seen = thread.join().expect("no thread panics");
                let lanes = tallies.iter_mut().flatten().zip(seen.iter().flatten());
                lanes.for_each(|(sum, tally)| sum.add(tally));
            }
        });
        self.report.calls += round.calls * THREADS;
        let from = round.from;
        for (agent, tallies) in active.iter().zip(&tallies) {
            for (lane, tally) in tallies.iter().enumerate() {
                self.settle(*agent, lane, tally, from, to);
            }
        }
        self.recent = active;
    }

    /// Moves the clock and picks the agents of a round: some of the last
    /// round's, which may be idle and about to lose their records, and others.
    fn next_agents(&mut self) -> Vec<usize> {
        let most = [0, 100_000, 50_000_000, 600_000_000][self.random.below(4) as usize];
        self.clock.advance(Duration::from_nanos(self.random.below(most + 1)));
        let count = if self.run.form == Form::Crowded { 150 } else { 40 } + self.random.below(10) as usize;
        let mut active = Vec::with_capacity(count);
        while active.len() < count {
            let again = !self.recent.is_empty() && self.random.below(3) == 0;
            let agent = if again {
                self.recent[self.random.below(self.recent.len() as u64) as usize]
            } else {
                self.random.below(self.ids.len() as u64) as usize
            };
            if !active.contains(&agent) {
                active.push(agent);
            }
        }
        let now = self.clock.now().as_nanos();
        let in_debt = (0..self.ids.len()).filter(|agent| !active.contains(agent) && self.in_debt(*agent, now));
        if self.run.form != Form::Crowded && in_debt.count() + active.len() >= NEIGHBOURHOOD {
            self.clock.advance(REFILL); // No agent is in debt now, so there is room.
        }
        active
    }

    fn in_debt(&self, agent: usize, now: u64) -> bool {
        (0..LANES.len()).any(|lane| self.left(agent, lane, now) < LANES[lane].0 * LANES[lane].1)
    }

    /// The time in the bucket at `now`.
    fn left(&self, agent: usize, lane: usize, now: u64) -> u64 {
        let (capacity, token) = LANES[lane];
        let level = self.levels[agent][lane];
        (level.left + (now - level.at)).min(capacity * token)
    }

    /// Compares what a lane was charged with what it held, and keeps the accounts.
    fn settle(&mut self, agent: usize, lane: usize, tally: &Tally, from: u64, to: u64) {
        let (capacity, token) = LANES[lane];
        // For instants in between, the refill counts once, on top of what was there.
        let held = self.left(agent, lane, from) + (to - from);
        let charged = tally.admitted * token;
        self.report.admitted += tally.admitted;
        self.report.refunded += tally.refunded;
        self.report.full += tally.full;
        self.report.excess += charged.saturating_sub(held).div_ceil(token);

        let left = (held.saturating_sub(charged) + tally.refunded * token).min(capacity * token);
        self.levels[agent][lane] = Level { left, at: to };
        if self.run.on_full == OnFull::Evict {
            return; // Not exact: the excess is reported.
        }
        let who = (&self.ids[agent], lane, self.report.calls);
        assert!(charged <= held, "{} admitted of {} tokens: {who:?}", tally.admitted, held / token);
        let status = self.limiter.peek(Request::new(&self.ids[agent], lane_id(lane))).expect("a lane of the policy");
        let full_in = Duration::from_nanos(capacity * token - left);
        if self.run.form == Form::Stale {
            assert!(status.full_in() >= full_in, "{status:?}, full in {full_in:?} at the earliest: {who:?}");
            return;
        }
        // Nothing was denied that could have passed: with costs of 1, exactly
        // as many are admitted as were tried or as there were tokens.
        assert!((held - charged) / token < tally.denied, "{} denied in vain: {who:?}", tally.denied);
        assert_eq!((status.remaining(), status.full_in()), (left / token, full_in), "{who:?}");
    }
}

impl Round<'_> {
    /// Spins until all threads of the round are ready: `std::sync::Barrier`
    /// wakes them one by one, and the first is done before the last has begun.
    fn begin(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        while self.ready.load(Ordering::Acquire) < THREADS {
            thread::yield_now();
        }
    }

    /// One thread's calls.
    fn hammer(&self, mut random: Random) -> Vec<Tallies> {
        let mut tallies = vec![[Tally::NONE; LANES.len()]; self.active.len()];
        self.begin();
        for _ in 0..self.calls {
            let hot = self.hot && random.below(2) == 0;
            let index = random.below(if hot { 2 } else { self.active.len() as u64 }) as usize;
            let agent = &self.ids[self.active[index]];
            let lane = if hot { LANES.len() - 1 } else { random.below(LANES.len() as u64) as usize };
            let cost = if random.below(4) == 0 { 1 + random.below(3) } else { 1 };
            let now = Tick::from_nanos(self.from + random.below(self.to - self.from + 1));
            let tally = &mut tallies[index][lane];
            // Peeking and sweeping change nothing, whenever they happen.
            if random.below(200) == 0 {
                self.limiter.sweep(Duration::from_nanos(self.limiter.now().as_nanos().saturating_sub(now.as_nanos())));
            }
            if self.refunds && index % 2 == 0 {
                let refunded = self.limiter.refund(Request::new(agent, lane_id(lane)).cost(cost).at(now));
                assert!(refunded.is_ok(), "{refunded:?}");
                tally.refunded += cost;
                continue;
            }
            match self.limiter.check_request(Request::new(agent, lane_id(lane)).cost(cost).at(now)) {
                Ok(verdict) if verdict.is_allowed() => tally.admitted += cost,
                Ok(_) => tally.denied = tally.denied.min(cost),
                Err(error) => {
                    assert_eq!(error, Error::Full);
                    tally.full += 1;
                }
            }
        }
        tallies
    }
}
