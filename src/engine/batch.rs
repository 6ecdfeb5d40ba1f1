//! Many checks at once: while one is charged, the memory for the next ones is
//! already being fetched.

use super::charge::Answer;
use super::request::ResolvedRequest;
use super::{Engine, Request};
use crate::bounds::BATCH_MAX;
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::Verdict;
use crate::policy::LaneId;
use crate::record::Record;
use crate::slab::hash::AgentHash;

/// How many requests before its charge an agent's fingerprints are prefetched.
const HASHED_AHEAD: usize = 32;

/// How many requests before its charge an agent's record is prefetched: the work
/// in between takes longer than the memory does.
const FOUND_AHEAD: usize = HASHED_AHEAD / 2;

/// A request of a batch in any layout, such as another language's. Each field is
/// read when it is needed.
pub(crate) trait BatchItem: Copy {
    fn agent(&self) -> &[u8];
    fn lane(&self) -> LaneId;
    fn cost(&self) -> u64;
    fn at(&self) -> Option<Tick>;
    /// Whether it has no plan and no limit and is not counted, like most.
    fn is_plain(&self) -> bool;
    /// The whole request.
    fn request(&self) -> Request<'_>;
}

impl BatchItem for &Request<'_> {
    #[inline(always)]
    fn agent(&self) -> &[u8] {
        self.agent
    }

    #[inline(always)]
    fn lane(&self) -> LaneId {
        self.lane
    }

    #[inline(always)]
    fn cost(&self) -> u64 {
        self.cost
    }

    #[inline(always)]
    fn at(&self) -> Option<Tick> {
        self.at
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.plan.is_none() && !self.is_counted && self.limit.is_none()
    }

    fn request(&self) -> Request<'_> {
        **self
    }
}

/// A request that is not charged yet.
#[derive(Clone, Copy)]
struct Upcoming<'a> {
    /// [`AgentHash::NOBODY`] if its id is invalid.
    hash: AgentHash,
    /// The agent's record, if it was found at once.
    record: Option<Record<'a>>,
}

impl Engine {
    /// Answers a batch as if its requests were checked one by one, in order.
    pub(crate) fn check_many(
        &self,
        requests: &[Request<'_>],
        answers: &mut [Result<Verdict, Error>],
    ) -> Result<(), Error> {
        if requests.len() != answers.len() || requests.len() > BATCH_MAX {
            return Err(Error::BatchSize { requests: requests.len(), answers: answers.len() });
        }
        self.check_batch(requests.iter(), answers, None, |place, answer| *place = answer);
        Ok(())
    }

    /// Checks requests in order, each in three steps at different times: its
    /// hash, its record, its charge. Each step prefetches the cache line that
    /// the next one needs, so misses overlap with each other and with the work
    /// on other requests.
    ///
    /// Reads requests and writes answers where the caller keeps them.
    #[inline(always)]
    pub(crate) fn check_batch<R: BatchItem, P>(
        &self,
        requests: impl ExactSizeIterator<Item = R> + Clone,
        places: impl IntoIterator<Item = P>,
        given: Option<Tick>,
        answer: impl Fn(P, Answer),
    ) {
        let now = given.unwrap_or_else(|| self.clock.now());
        let mut ring = [Upcoming { hash: AgentHash::NOBODY, record: None }; HASHED_AHEAD];
        let mut ahead = requests.clone();
        for (known, request) in ring.iter_mut().zip(&mut ahead) {
            known.hash = self.hash_ahead(request);
        }
        for known in ring.iter_mut().take(FOUND_AHEAD.min(requests.len())) {
            known.record = self.record_ahead(known.hash);
        }
        for (index, (request, place)) in requests.zip(places).enumerate() {
            let known = &mut ring[index % HASHED_AHEAD];
            let Upcoming { hash, record } = *known;
            known.hash = ahead.next().map_or(AgentHash::NOBODY, |request| self.hash_ahead(request));
            let next = &mut ring[(index + FOUND_AHEAD) % HASHED_AHEAD];
            next.record = self.record_ahead(next.hash);
            let (give, elsewhere) = (|it| answer(place, it), || self.check_one(request, now, given.is_some()));
            match (self.limits.unobserved_lane(request.lane()), record) {
                (Some(lane), Some(record)) if request.is_plain() => {
                    let now = request.at().unwrap_or(now);
                    self.charge_likely(record, hash, lane, request.cost(), None, now, give, elsewhere);
                }
                _ => give(elsewhere()),
            }
        }
    }

    #[inline(always)]
    fn hash_ahead(&self, request: impl BatchItem) -> AgentHash {
        let Ok(hash) = self.hash(request.agent()) else { return AgentHash::NOBODY };
        self.slab.prefetch_group(hash);
        hash
    }

    /// Nobody has no record, whatever the slab shows.
    #[inline(always)]
    fn record_ahead(&self, hash: AgentHash) -> Option<Record<'_>> {
        if hash == AgentHash::NOBODY {
            return None;
        }
        self.slab.likely_record(hash).inspect(Record::prefetch)
    }

    /// Checks one request after the fast path has missed, or could not be taken.
    #[inline(never)]
    fn check_one(&self, request: impl BatchItem, now: Tick, is_given: bool) -> Answer {
        let request = request.request();
        let answer = self.resolve_from(request, Some(now)).and_then(|resolved| {
            let resolved = ResolvedRequest { is_given: resolved.is_given || is_given, ..resolved };
            if request.is_counted { self.charge_counted(&resolved) } else { self.charge(&resolved) }
        });
        self.finish(request.agent, request.lane, request.cost, answer)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::observe::{Observe, Snapshot};
    use crate::slab::hash::{HashKey, fixed_key};
    use crate::slab::{Geometry, IdHash, OnFull, Slab};
    use crate::{Limiter, ManualClock, PlanId, Policy};
    use proptest::prelude::*;
    use std::time::Duration;

    /// One of two that have the same key: nothing may differ between them, not
    /// even a word of the slab.
    fn twin(agents: u64, on_full: OnFull, watched: bool, hash: IdHash, total: Option<&str>) -> (Limiter, ManualClock) {
        let lanes =
            ["10/min", "7/s burst 11", "held 3", "exact 3/min", "window 5/min", "budget 9/day", "4/min", "deny"];
        let lanes = lanes.into_iter().enumerate();
        let policy = lanes.fold(Policy::builder(), |policy, (lane, limit)| policy.lane(format!("lane-{lane}"), limit));
        let policy = policy.plan("small", [("lane-0", "3/min")]);
        let policy = total.into_iter().fold(policy, |policy, total| policy.total(total)).build().unwrap();
        let mut words = fixed_key(3).words().collect::<Vec<_>>().into_iter();
        let key = HashKey::from_words(hash, || words.next().unwrap());
        let kinds = policy.cell_kinds();
        let slab = Slab::new(Geometry::for_agents(agents, kinds.len()), key, kinds).unwrap();
        let clock = ManualClock::new();
        let mut builder = Limiter::builder(policy).clock(clock.clone()).on_full(on_full);
        if watched {
            builder = builder.observe(Observe::new().roster(200).sample_every(3));
        }
        (builder.over(slab).unwrap(), clock)
    }

    /// Ids of every length that takes a different path, some invalid ones, and plenty more.
    fn id(number: usize) -> Vec<u8> {
        const LENGTHS: [usize; 8] = [0, 257, 256, 1, 7, 8, 16, 17];
        LENGTHS.get(number).map_or_else(|| format!("agent-{number}").into_bytes(), |length| vec![7; *length])
    }

    /// Verdicts by lane, and what could not be answered.
    fn counts(snapshot: &Snapshot) -> (Vec<[u64; 4]>, u64, u64) {
        let lanes = snapshot.lanes.iter().map(|lane| [lane.allowed, lane.warned, lane.denied, lane.exempt]);
        (lanes.collect(), snapshot.errors, snapshot.full)
    }

    /// Around the distance that a batch looks ahead, and beyond.
    const LENGTHS: [usize; 12] = [0, 1, 15, 16, 17, 31, 32, 33, 47, 64, 65, 300];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_batch_leaves_every_word_as_single_checks_do(
            batches in prop::collection::vec(
                (
                    prop::sample::select(LENGTHS.to_vec()),
                    prop::collection::vec((0..400_usize, 0..30_u32, 0..13_u64, 0..12_u16), 300),
                    0..2_000_000_000_u64,
                    prop::sample::select(vec![0_u64, 5]),
                ),
                1..6,
            ),
            agents in prop::sample::select(vec![1_u64, 7, 50]),
            ids in prop::sample::select(vec![12_usize, 110, 400]),
            on_full in prop::sample::select(vec![OnFull::Deny, OnFull::Evict]),
            hash in prop::sample::select(vec![IdHash::Multilinear, IdHash::SipHash13]),
            watched: bool,
            total in prop::sample::select(vec![None, Some("12/min"), Some("budget 30/day")]),
        ) {
            let twins = [(); 2].map(|()| twin(agents, on_full, watched, hash, total));
            let [(together, one_clock), (single, other_clock)] = twins;
            let mut asked = 0;
            for (length, asks, wait, ahead) in &batches {
                for clock in [&one_clock, &other_clock] {
                    clock.advance(Duration::from_nanos(*wait));
                }
                let asks = &asks[..*length];
                let agents: Vec<Vec<u8>> = asks.iter().map(|(agent, ..)| id(agent % ids)).collect();
                let now = together.now().saturating_add(Duration::from_secs(*ahead));
                let requests: Vec<Request<'_>> = asks
                    .iter()
                    .zip(&agents)
                    // Mostly the first lane; two numbers are not lanes.
                    .map(|((_, lane, cost, option), agent)| {
                        let request = Request::new(agent, LaneId::new(if *lane < 10 { *lane } else { 0 }));
                        let request = request.cost(*cost).at(now);
                        match option {
                            0 | 1 => request.plan(PlanId::new(*option)),
                            2 => request.plan(PlanId::new(7)), // There is no such plan.
                            3 => request.counted(),
                            4 => Request { at: None, ..request },
                            _ => request,
                        }
                    })
                    .collect();
                let mut answers = vec![Err(Error::Full); requests.len()];
                together.check_many(&requests, &mut answers).unwrap();
                for (index, (request, answer)) in requests.iter().zip(answers).enumerate() {
                    let alone = single.check_request(*request);
                    prop_assert_eq!(alone, answer, "request {} of {}", index, requests.len());
                }
                asked += requests.len() as u64;
                prop_assert_eq!(together.stats(), single.stats());
                prop_assert!(together.engine.slab.snapshot() == single.engine.slab.snapshot());
            }
            let (lanes, errors, full) = counts(&together.snapshot());
            if watched {
                prop_assert_eq!(lanes.iter().flatten().sum::<u64>() + errors + full, asked);
            }
            prop_assert_eq!((lanes, errors, full), counts(&single.snapshot()));
        }
    }
}
