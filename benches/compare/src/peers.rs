//! The contestants: tollgate, governor and the tuned DashMap, behind one trait.
//!
//! All of them enforce the same limits on 16-byte ids: 1,000,000 tokens per
//! second with a burst of 2^32 - 1 (always allowed here), and one token per day
//! (always denied after the first). Where the setup could favour one side, it
//! favours the peers:
//!
//! - Peers get keys of type `[u8; 16]`, whose length the compiler knows; we get
//!   a slice whose length it does not know.
//! - governor keeps one lane and answers yes or no; we keep six, and write the
//!   whole verdict (remaining, retry, ...) for the caller.
//! - governor runs as its documentation recommends: `RateLimiter::keyed`, the
//!   default DashMap store with SipHash, the `quanta` clock (also the TSC).
//! - The DashMap has a fast hash (foldhash, no resistance to chosen ids), the
//!   scaled TSC without any checks, reserved capacity, and six lanes like ours
//!   or one lane like governor's.

use crate::floor::{Tsc, opaque};
use crate::ids::{ID_BYTES, Id};
use crate::measure::Stopwatch;
use dashmap::DashMap;
use governor::clock::{Clock as GovernorClock, QuantaClock};
use governor::{DefaultKeyedRateLimiter, NotUntil, Quota, RateLimiter};
use std::cell::RefCell;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::clock::ClockSource;
use tollgate::{Clock, Error, IdHash, LaneId, Limit, Limiter, Policy, Request, Tick, Verdict};

/// The clock of "ours" in every row: the one line to change.
#[must_use]
pub fn our_clock() -> Clock {
    Clock::auto()
}

const TOKENS_PER_SECOND: u32 = 1_000_000;
const BURST: u32 = u32::MAX;
const DAY: Duration = Duration::from_secs(86_400);
const LANES: usize = 6;

/// The limit that a contestant checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Never reached here.
    Allowed,
    /// Always exhausted here, after the first check.
    Denied,
}

impl Lane {
    /// Our number for it.
    #[must_use]
    pub fn of_ours(self) -> LaneId {
        LaneId::new(match self {
            Self::Allowed => 2,
            Self::Denied => 5,
        })
    }

    fn quota(self) -> Quota {
        let burst = |tokens| NonZeroU32::new(tokens).expect("not zero");
        match self {
            Self::Allowed => Quota::per_second(burst(TOKENS_PER_SECOND)).allow_burst(burst(BURST)),
            Self::Denied => Quota::with_period(DAY).expect("not zero").allow_burst(burst(1)),
        }
    }

    /// Nanoseconds per token, and of the whole bucket.
    fn nanos(self) -> (u64, u64) {
        match self {
            Self::Allowed => (1_000, 1_000 * u64::from(BURST)),
            Self::Denied => (DAY.as_nanos() as u64, DAY.as_nanos() as u64),
        }
    }
}

/// Our policy: six lanes, the last of which is exhausted by one check.
#[must_use]
pub fn policy() -> Policy {
    let plenty = Limit::per_second(u64::from(TOKENS_PER_SECOND)).burst(u64::from(BURST));
    ["ws/light", "ws/heavy", "http/light", "http/heavy", "api/light"]
        .into_iter()
        .fold(Policy::builder(), |policy, lane| policy.lane(lane, plenty))
        .lane("api/heavy", Limit::per_day(1))
        .build()
        .expect("a valid policy")
}

/// Our limiter for this many agents, with the default hash.
#[must_use]
pub fn limiter(agents: usize) -> Limiter {
    limiter_with(IdHash::default(), agents)
}

/// Our limiter for this many agents, with this hash.
#[must_use]
pub fn limiter_with(hash: IdHash, agents: usize) -> Limiter {
    let builder = Limiter::builder(policy()).agents(agents as u64).clock(our_clock()).hash(hash);
    builder.build().expect("memory for the slab")
}

/// Our limiter for this many agents, with all its memory touched from the start.
#[must_use]
pub fn committed_limiter(agents: usize) -> Limiter {
    let builder = Limiter::builder(policy()).agents(agents as u64).clock(our_clock()).prefault(true);
    builder.build().expect("memory for the slab")
}

/// Something that can be run over a stream of ids.
pub trait Contestant: Sync {
    /// Checks each id once, in order.
    fn run(&self, ids: &[Id]);

    /// The same, timing each check.
    fn time_each(&self, ids: &[Id], stopwatch: &mut Stopwatch<'_>) {
        for id in ids {
            stopwatch.lap(|| self.run(std::slice::from_ref(id)));
        }
    }

    /// Whether a check of this id passes. A piece of the floor always passes.
    fn allows(&self, _id: &Id) -> bool {
        true
    }
}

/// A limiter that answers one check at a time. Its whole answer is written to memory.
trait Check: Sync {
    type Answer;
    fn check(&self, id: &Id) -> Self::Answer;
    fn is_allowed(answer: &Self::Answer) -> bool;
}

impl<T: Check> Contestant for T {
    #[inline(never)]
    fn run(&self, ids: &[Id]) {
        for id in ids {
            black_box(&self.check(id));
        }
    }

    #[inline(never)]
    fn time_each(&self, ids: &[Id], stopwatch: &mut Stopwatch<'_>) {
        for id in ids {
            stopwatch.lap(|| {
                black_box(&self.check(id));
            });
        }
    }

    fn allows(&self, id: &Id) -> bool {
        T::is_allowed(&self.check(id))
    }
}

/// An id as our callers have it: a slice whose length is known only at run time.
#[inline(always)]
#[must_use]
pub fn slice(id: &Id) -> &[u8] {
    // SAFETY: `opaque` returns what it is given, and an id has that many bytes.
    unsafe { std::slice::from_raw_parts(id.as_ptr(), opaque(ID_BYTES)) }
}

/// Ours with its own clock.
pub struct Ours {
    limiter: Arc<Limiter>,
    lane: LaneId,
}

impl Ours {
    /// Over a slab that other forms of ours may share.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>, lane: Lane) -> Self {
        Self { limiter, lane: lane.of_ours() }
    }
}

impl Check for Ours {
    type Answer = Result<Verdict, Error>;

    #[inline(always)]
    fn check(&self, id: &Id) -> Self::Answer {
        self.limiter.check(slice(id), self.lane)
    }

    fn is_allowed(answer: &Self::Answer) -> bool {
        answer.is_ok_and(|verdict| verdict.is_allowed())
    }
}

/// Ours with the operating system's clock.
pub struct OursOs {
    limiter: Arc<Limiter>,
    lane: LaneId,
    clock: Clock,
}

impl OursOs {
    /// Over a slab that other forms of ours may share.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>, lane: Lane) -> Self {
        let clock = Clock::os();
        // The column must match its heading, whatever `our_clock` is.
        assert_eq!(clock.source(), ClockSource::Os);
        Self { limiter, lane: lane.of_ours(), clock }
    }
}

impl Check for OursOs {
    type Answer = Result<Verdict, Error>;

    #[inline(always)]
    fn check(&self, id: &Id) -> Self::Answer {
        self.limiter.check_request(Request::new(slice(id), self.lane).at(self.clock.now()))
    }

    fn is_allowed(answer: &Self::Answer) -> bool {
        answer.is_ok_and(|verdict| verdict.is_allowed())
    }
}

/// Ours at the caller's own `now`, which moves 20 ns per check.
pub struct OursNow {
    limiter: Arc<Limiter>,
    lane: LaneId,
    now: AtomicU64,
}

impl OursNow {
    /// Starts at the limiter's present.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>, lane: Lane) -> Self {
        let now = AtomicU64::new(limiter.now().as_nanos());
        Self { limiter, lane: lane.of_ours(), now }
    }
}

impl Contestant for OursNow {
    #[inline(never)]
    fn run(&self, ids: &[Id]) {
        let mut now = self.now.load(Ordering::Relaxed);
        for id in ids {
            now += 20;
            black_box(&self.limiter.check_request(Request::new(slice(id), self.lane).at(Tick::from_nanos(now))));
        }
        self.now.store(now, Ordering::Relaxed);
    }

    fn allows(&self, id: &Id) -> bool {
        let now = Tick::from_nanos(self.now.load(Ordering::Relaxed));
        self.limiter.check_request(Request::new(slice(id), self.lane).at(now)).is_ok_and(|verdict| verdict.is_allowed())
    }
}

/// Ours in batches, each of which reads the clock once. Building the batch
/// from the stream of ids is included.
pub struct OursBatch {
    limiter: Arc<Limiter>,
    lane: LaneId,
    size: usize,
}

impl OursBatch {
    /// This many requests per call, over a slab that other forms of ours may share.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>, lane: Lane, size: usize) -> Self {
        Self { limiter, lane: lane.of_ours(), size }
    }
}

thread_local! {
    /// Where a thread keeps the answers of its batches.
    static ANSWERS: RefCell<Vec<Result<Verdict, Error>>> = const { RefCell::new(Vec::new()) };
}

impl Contestant for OursBatch {
    #[inline(never)]
    fn run(&self, ids: &[Id]) {
        let mut requests = Vec::with_capacity(self.size);
        ANSWERS.with_borrow_mut(|answers| {
            answers.resize(self.size, Err(Error::EmptyId));
            for batch in ids.chunks(self.size) {
                requests.clear();
                requests.extend(batch.iter().map(|id| Request::new(slice(id), self.lane)));
                let answers = &mut answers[..batch.len()];
                self.limiter.check_many(&requests, answers).expect("as many answers as requests");
                black_box(&*answers);
            }
        });
    }

    fn allows(&self, id: &Id) -> bool {
        self.limiter.check(id, self.lane).is_ok_and(|verdict| verdict.is_allowed())
    }
}

/// governor, keyed, default store.
pub struct Governor(DefaultKeyedRateLimiter<Id>);

impl Governor {
    /// A limiter with one lane.
    #[must_use]
    pub fn new(lane: Lane) -> Self {
        Self(RateLimiter::keyed(lane.quota()))
    }
}

impl Check for Governor {
    type Answer = Result<(), NotUntil<<QuantaClock as GovernorClock>::Instant>>;

    #[inline(always)]
    fn check(&self, id: &Id) -> Self::Answer {
        self.0.check_key(id)
    }

    fn is_allowed(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

/// The strongest limiter that a user writes in ten lines. Always lane 0 of `N`.
pub struct TunedDashMap<const N: usize> {
    full_at: DashMap<Id, [u64; N], foldhash::fast::RandomState>,
    clock: Tsc,
    price: u64,
    depth: u64,
}

/// As many lanes as ours.
pub type SixLanes = TunedDashMap<LANES>;
/// As many lanes as governor.
pub type OneLane = TunedDashMap<1>;

impl<const N: usize> TunedDashMap<N> {
    /// Reserves room for this many agents.
    #[must_use]
    pub fn new(agents: usize, lane: Lane, clock: Tsc) -> Self {
        let (price, depth) = lane.nanos();
        let full_at = DashMap::with_capacity_and_hasher(agents, foldhash::fast::RandomState::default());
        Self { full_at, clock, price, depth }
    }
}

impl<const N: usize> Check for TunedDashMap<N> {
    type Answer = bool;

    #[inline(always)]
    fn check(&self, id: &Id) -> bool {
        let now = self.clock.now();
        // The write lock of the shard is one exchange; a read lock and an
        // atomic value would be two.
        let mut lanes = match self.full_at.get_mut(id) {
            Some(lanes) => lanes,
            None => self.full_at.entry(*id).or_insert([0; N]),
        };
        let next = lanes[0].max(now) + self.price;
        let allowed = next - now <= self.depth;
        if allowed {
            lanes[0] = next;
        }
        allowed
    }

    fn is_allowed(answer: &bool) -> bool {
        *answer
    }
}
