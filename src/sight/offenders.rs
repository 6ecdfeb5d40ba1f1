//! Who violates limits the most, in memory that does not depend on how many
//! agents do.
//!
//! *Space-Saving* (Metwally, Agrawal, El Abbadi 2005): k counters with ids.
//! A violation of an agent that has a counter adds one to it. One of an agent
//! that has none takes over the counter that is least, c, which becomes c + 1
//! with an *error* of c: so many of these may be somebody else's. Of N
//! violations the least counter has at most N / k, and so
//!
//! - a count is never too low, and too high by at most its error;
//! - an error is at most N / k;
//! - whoever has no counter has at most N / k violations.
//!
//! For the last hour there are [`PANES`] such summaries of ten minutes each,
//! one after the other, which are added up when somebody asks: an agent that
//! one of them has no counter for gets its least counter as count and error.
//! The three sentences hold for the sum, with N all violations of the hour.
//! Of the sum no more than k agents are told, those with the highest counts.
//!
//! Whoever violates a limit while another thread is counting waits for a few
//! dozen nanoseconds, and else is not counted here but as *missed*: then a
//! count may also be too low, by no more than what was missed in all.

use super::counters::{Shard, shard, shards};
use crate::bounds::{ID_BYTES_MAX, OFFENDERS_KEPT};
use crate::clock::{Tick, nanos_saturating};
use crate::process::generation;
use crate::sync::{Counter, Mutex, MutexGuard, Ordering, try_lock, wait};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Summaries that make up the hour.
const PANES: usize = 6;
const PANE: Duration = Duration::from_secs(600);

/// How often a violation tries to be counted before it is missed. A round is a
/// pause of the processor, and the holder needs some dozens of them.
const TRIES_MAX: u32 = 64;

/// How often somebody who asks tries; the holder is counting one violation.
const ASKS_MAX: u32 = 10_000;

/// Who violates limits the most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offenders {
    /// Those with the most violations, the worst first, up to
    /// [`OFFENDERS_KEPT`]. Nobody who is not among them has more than the
    /// last, or than `error_max`.
    pub list: Vec<Offender>,
    /// Violations of all agents in the last hour, exact; an hour is 60 whole
    /// minutes, the present one among them.
    pub violations: u64,
    /// How many violations the counts in `list` are too high by, at most: one
    /// in 128 of all.
    pub error_max: u64,
    /// Violations that are in no agent's count, since threads were in each
    /// other's way.
    pub missed: u64,
}

/// An agent that violates limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offender {
    /// The agent.
    pub agent: Vec<u8>,
    /// Its violations in the last hour, counted by tens of minutes. At least
    /// as many as there were, but for those that were missed.
    pub violations: u64,
    /// So many of them may be other agents', and no more.
    pub error: u64,
}

/// Violations by agent and by minute.
pub(crate) struct Violations {
    panes: Mutex<Panes>,
    /// The [`generation`](crate::process::generation) of the process that holds
    /// `panes`; 0 if none does.
    holder: Counter,
    all: Minutes,
    missed: Minutes,
}

impl Violations {
    pub(crate) fn new() -> Self {
        Self { panes: Mutex::new(Panes::new()), holder: Counter::new(0), all: Minutes::new(), missed: Minutes::new() }
    }

    /// Counts a violation. Waits for nobody longer than it takes to count one.
    pub(crate) fn add(&self, agent: &[u8], now: Tick) {
        self.all.add(now);
        match self.lock(TRIES_MAX) {
            Some(mut panes) => panes.add(agent, now),
            None => self.missed.add(now),
        }
    }

    /// Violations in the last hour.
    pub(crate) fn last_hour(&self, now: Tick) -> u64 {
        self.all.sum(now)
    }

    /// The worst `most` agents, as far as there are counters for them.
    ///
    /// In a child that was forked while another thread counted there are none:
    /// nobody will ever finish there.
    pub(crate) fn top(&self, most: usize, now: Tick) -> Offenders {
        let (mut list, error_max) = self.lock(ASKS_MAX).map(|panes| panes.sum(now)).unwrap_or_default();
        list.sort_unstable_by(|a, b| b.violations.cmp(&a.violations).then_with(|| a.agent.cmp(&b.agent)));
        list.truncate(most.min(OFFENDERS_KEPT));
        Offenders { list, violations: self.all.sum(now), error_max, missed: self.missed.sum(now) }
    }

    fn lock(&self, tries: u32) -> Option<PanesGuard<'_>> {
        let me = generation();
        for round in 0..tries {
            match self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                // The mutex is free: whoever holds it is the holder.
                Ok(_) => {
                    return try_lock(&self.panes).map(|panes| PanesGuard { panes: Some(panes), holder: &self.holder });
                }
                // A violation spins; only a caller that asks yields the processor.
                Err(holder) if holder == me => wait(round),
                // Another process holds it, from before a fork: here nobody will release it.
                Err(_) => return None,
            }
        }
        None
    }
}

/// The right to count, until it is dropped.
///
/// One exchange takes the lock and names the process that holds it. So a child
/// that is forked at any moment finds either an open lock or one that is its
/// parent's; the mutex inside is held only within that time.
struct PanesGuard<'a> {
    /// `None` only while it is being dropped.
    panes: Option<MutexGuard<'a, Panes>>,
    holder: &'a Counter,
}

impl Deref for PanesGuard<'_> {
    type Target = Panes;

    fn deref(&self) -> &Panes {
        self.panes.as_ref().expect("present until it is dropped")
    }
}

impl DerefMut for PanesGuard<'_> {
    fn deref_mut(&mut self) -> &mut Panes {
        self.panes.as_mut().expect("present until it is dropped")
    }
}

impl Drop for PanesGuard<'_> {
    fn drop(&mut self) {
        self.panes.take();
        // Release, paired with the Acquire of the next holder, which finds the mutex free.
        self.holder.store(0, Ordering::Release);
    }
}

/// The summaries of the hour, each in the place of its number.
struct Panes([Summary; PANES]);

impl Panes {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Summary::new()))
    }

    fn add(&mut self, agent: &[u8], now: Tick) {
        let number = pane(now);
        let summary = &mut self.0[(number % PANES as u64) as usize];
        // A caller with an old instant counts in the pane that has taken the place of its own.
        if summary.number < number {
            summary.clear(number);
        }
        summary.add(agent);
    }

    /// Every agent with a counter, and what their counts may be too high by.
    fn sum(&self, now: Tick) -> (Vec<Offender>, u64) {
        let number = pane(now);
        let recent = || self.0.iter().filter(|summary| summary.number + PANES as u64 > number);
        let mut sums: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
        for agent in recent().flat_map(Summary::counters).map(Counted::id) {
            if !sums.contains_key(agent) {
                let parts = recent().map(|summary| summary.count_of(agent));
                sums.insert(agent, parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1)));
            }
        }
        let offender = |(agent, (violations, error)): (&[u8], _)| Offender { agent: agent.to_vec(), violations, error };
        (sums.into_iter().map(offender).collect(), recent().map(Summary::least).sum())
    }
}

fn pane(now: Tick) -> u64 {
    now.as_nanos() / nanos_saturating(PANE)
}

/// A Space-Saving summary.
struct Summary {
    number: u64,
    /// What is compared first, one for each counter.
    keys: [u64; OFFENDERS_KEPT],
    /// Reserved once, and never more than [`OFFENDERS_KEPT`].
    counters: Vec<Counted>,
}

struct Counted {
    count: u64,
    error: u64,
    length: u16,
    id: [u8; ID_BYTES_MAX],
}

impl Counted {
    fn new(id: &[u8], count: u64, error: u64) -> Self {
        let mut counted = Self { count, error, length: id.len() as u16, id: [0; ID_BYTES_MAX] };
        counted.id[..id.len()].copy_from_slice(id);
        counted
    }

    fn id(&self) -> &[u8] {
        &self.id[..self.length as usize]
    }
}

/// Tells most ids apart.
fn key(id: &[u8]) -> u64 {
    let read = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let (first, last) = (&id[..id.len().min(8)], &id[id.len().saturating_sub(8)..]);
    read(first) ^ read(last).rotate_left(29) ^ id.len() as u64
}

impl Summary {
    fn new() -> Self {
        Self { number: 0, keys: [0; OFFENDERS_KEPT], counters: Vec::with_capacity(OFFENDERS_KEPT) }
    }

    fn clear(&mut self, number: u64) {
        self.number = number;
        self.counters.clear();
    }

    fn counters(&self) -> impl Iterator<Item = &Counted> {
        self.counters.iter()
    }

    fn find(&self, id: &[u8]) -> Option<usize> {
        let key = key(id);
        let keys = self.keys[..self.counters.len()].iter().enumerate();
        keys.filter(|(_, known)| **known == key).map(|(index, _)| index).find(|index| self.counters[*index].id() == id)
    }

    /// Adds one. `id` has at most [`ID_BYTES_MAX`] bytes.
    fn add(&mut self, id: &[u8]) {
        if let Some(index) = self.find(id) {
            self.counters[index].count += 1;
        } else if self.counters.len() < OFFENDERS_KEPT {
            self.keys[self.counters.len()] = key(id);
            self.counters.push(Counted::new(id, 1, 0));
        } else if let Some((index, least)) = self.counters.iter().enumerate().min_by_key(|(_, counted)| counted.count) {
            let error = least.count;
            self.keys[index] = key(id);
            self.counters[index] = Counted::new(id, error + 1, error);
        }
    }

    /// The most violations that an agent without a counter can have.
    fn least(&self) -> u64 {
        let is_full = self.counters.len() == OFFENDERS_KEPT;
        self.counters().map(|counted| counted.count).min().filter(|_| is_full).unwrap_or(0)
    }

    /// An agent's count and error.
    fn count_of(&self, id: &[u8]) -> (u64, u64) {
        self.find(id).map_or((self.least(), self.least()), |index| {
            let Counted { count, error, .. } = self.counters[index];
            (count, error)
        })
    }
}

/// Counts by the minute for an hour, in shards as the counters have.
struct Minutes(Box<[CachePadded<[Counter; MINUTES]>]>);

/// A power of two, and more than an hour has.
const MINUTES: usize = 64;
const HOUR: u64 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// A counter of a minute: its number from [`COUNT_BITS`] on, 26 bits for 127
/// years, and how many, up to 2.7 * 10^11.
const COUNT_BITS: u32 = 38;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl Minutes {
    fn new() -> Self {
        Self((0..shards()).map(|_| CachePadded::new(std::array::from_fn(|_| Counter::new(0)))).collect())
    }

    fn add(&self, now: Tick) {
        let minute = now.as_nanos() / nanos_saturating(MINUTE);
        let Shard { index, is_owned } = shard();
        let counter = &self.0[index][(minute % MINUTES as u64) as usize];
        // An hour later the place is another minute's. A caller with an old
        // instant counts in that.
        let next = |seen: u64| match seen >> COUNT_BITS < minute {
            true => minute << COUNT_BITS | 1,
            false if seen & COUNT_MASK == COUNT_MASK => seen,
            false => seen + 1,
        };
        if is_owned {
            counter.store(next(counter.load(Ordering::Relaxed)), Ordering::Relaxed);
        } else {
            // Never refuses, so it ends with the first undisturbed exchange.
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(next(seen)));
        }
    }

    /// What was counted in the 60 minutes of which the present one is the last.
    fn sum(&self, now: Tick) -> u64 {
        let minute = now.as_nanos() / nanos_saturating(MINUTE);
        let counters = self.0.iter().flat_map(|shard| shard.iter()).map(|counter| counter.load(Ordering::Relaxed));
        counters.filter(|seen| (seen >> COUNT_BITS) + HOUR > minute).map(|seen| seen & COUNT_MASK).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::thread;

    fn at(minutes: u64) -> Tick {
        Tick::ZERO.saturating_add(MINUTE * minutes as u32)
    }

    /// Numbers that repeat.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }

    /// Holds the list against exact counts.
    fn hold(top: &Offenders, exact: &HashMap<Vec<u8>, u64>) {
        let total: u64 = exact.values().sum();
        assert_eq!((top.violations, top.missed), (total, 0));
        assert!(top.error_max <= total / OFFENDERS_KEPT as u64, "{} of {total}", top.error_max);
        for Offender { agent, violations, error } in &top.list {
            let truth = exact.get(agent).copied().unwrap_or(0);
            assert!(*error <= top.error_max, "{error}");
            assert!(*violations >= truth && violations - error <= truth, "{violations} -{error} for {truth}");
        }
        let is_listed = |agent: &Vec<u8>| top.list.iter().any(|offender| offender.agent == *agent);
        if top.list.len() < OFFENDERS_KEPT {
            assert!(exact.keys().all(is_listed));
        }
        let last = top.list.last().map_or(0, |offender| offender.violations).max(top.error_max);
        for (agent, count) in exact {
            assert!(is_listed(agent) || *count <= last, "{count} of {total}");
        }
        assert!(top.list.is_sorted_by_key(|offender| std::cmp::Reverse(offender.violations)));
    }

    #[test]
    fn counts_of_a_skewed_stream_are_within_the_stated_error() {
        let violations = Violations::new();
        let mut exact = HashMap::new();
        let mut state = 1;
        // Zipf with exponent 1 over 5,000 agents, and every third from a stranger.
        let weights: Vec<f64> = (1..=5_000).map(|rank| 1.0 / f64::from(rank)).collect();
        let all: f64 = weights.iter().sum();
        for step in 0..60_000_u64 {
            let agent = if step % 3 == 0 {
                format!("stranger-{step}")
            } else {
                let mut left = (random(&mut state) >> 11) as f64 / (1_u64 << 53) as f64 * all;
                let rank = weights.iter().position(|weight| {
                    left -= weight;
                    left < 0.0
                });
                format!("agent-{}", rank.unwrap_or(0))
            };
            // Over all panes of an hour.
            violations.add(agent.as_bytes(), at(step / 1_000));
            *exact.entry(agent.into_bytes()).or_insert(0) += 1;
        }
        let top = violations.top(OFFENDERS_KEPT, at(59));
        hold(&top, &exact);
        let mut truth: Vec<_> = exact.iter().collect();
        truth.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let names = |list: &[Offender]| list.iter().map(|offender| offender.agent.clone()).collect::<Vec<_>>();
        assert_eq!(names(&top.list[..3]), truth[..3].iter().map(|(agent, _)| (*agent).clone()).collect::<Vec<_>>());
        assert_eq!(violations.top(3, at(59)).list, top.list[..3]);
        assert!(violations.top(0, at(59)).list.is_empty());
    }

    #[test]
    fn violations_of_more_than_an_hour_ago_are_forgotten() {
        let violations = Violations::new();
        violations.add(b"old", at(0));
        violations.add(b"new", at(59));
        assert_eq!((violations.last_hour(at(59)), violations.last_hour(at(60))), (2, 1));
        assert_eq!(violations.top(9, at(59)).list.len(), 2);
        let names = |minute| violations.top(9, at(minute)).list.into_iter().map(|one| one.agent).collect::<Vec<_>>();
        assert_eq!(names(60), [b"new"], "a pane is forgotten as a whole");
        assert_eq!((names(109), names(110)), (vec![b"new".to_vec()], vec![]));
        assert_eq!((violations.last_hour(at(118)), violations.last_hour(at(119))), (1, 0));
        // The places of minutes and panes are used again.
        for minute in 0..1_000 {
            violations.add(b"steady", at(200 + minute));
            assert_eq!(violations.last_hour(at(200 + minute)), (minute + 1).min(60));
        }
        // An old instant is counted with the present.
        violations.add(b"late", at(3));
        assert_eq!(violations.last_hour(at(1_199)), 61);
        assert!(violations.top(9, at(1_199)).list.iter().any(|one| one.agent == b"late"));
    }

    #[test]
    fn whoever_finds_another_counting_is_missed_and_that_is_counted() {
        let violations = Violations::new();
        violations.add(b"a", at(0));
        let held = violations.lock(1).unwrap();
        violations.add(b"a", at(0));
        drop(held);
        let top = violations.top(1, at(0));
        assert_eq!((top.violations, top.missed, top.list[0].violations), (2, 1, 1));
    }

    /// A child was forked while a list was being made, and asked for one of
    /// its own 10,000 times, yielding each time: 41 s on a busy machine.
    #[cfg(unix)]
    #[test]
    fn a_child_does_not_wait_for_a_holder_in_its_parent() {
        let violations = Violations::new();
        violations.add(b"a", at(0));
        crate::process::mark(); // Forks are watched from here on, as in any limiter.
        let held = violations.lock(1).unwrap();
        // SAFETY: the child tries a lock and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: asks for a signal that ends the child if it waits.
            unsafe { libc::alarm(20) };
            let refused = violations.lock(u32::MAX).is_none();
            // SAFETY: ends the child without running anybody's destructors.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
        drop(held);
        assert_eq!(violations.top(1, at(0)).list.len(), 1);
    }

    #[test]
    fn threads_lose_no_violation() {
        let violations = Violations::new();
        thread::scope(|scope| {
            for worker in 0..4_u8 {
                let violations = &violations;
                scope.spawn(move || (0..5_000).for_each(|_| violations.add(&[worker % 2], at(1))));
            }
        });
        let top = violations.top(9, at(1));
        let counted: u64 = top.list.iter().map(|offender| offender.violations).sum();
        assert_eq!((top.violations, counted + top.missed), (20_000, 20_000));
    }

    #[test]
    fn ids_of_any_bytes_and_with_the_same_key_are_told_apart() {
        let violations = Violations::new();
        let long = |fill: u8| [&[1; 8][..], &[fill; 240], &[2; 8]].concat();
        assert_eq!(key(&long(3)), key(&long(4)));
        for (id, times) in [(long(3), 3), (long(4), 2), (vec![0], 1), (vec![0xff; 256], 4)] {
            (0..times).for_each(|_| violations.add(&id, at(0)));
        }
        let counts: Vec<_> = violations.top(9, at(0)).list.into_iter().map(|one| (one.agent, one.violations)).collect();
        assert_eq!(counts, [(vec![0xff; 256], 4), (long(3), 3), (long(4), 2), (vec![0], 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        /// Whatever the stream, also the worst: everybody once, many times over.
        #[test]
        fn any_stream_is_counted_within_the_stated_error(
            seed: u64,
            agents in 1..400_u64,
            minutes in 1..60_u64,
        ) {
            let violations = Violations::new();
            let (mut exact, mut state) = (HashMap::new(), seed);
            for step in 0..3_000_u64 {
                let agent = random(&mut state) % (random(&mut state) % agents + 1);
                violations.add(&agent.to_le_bytes(), at(step * minutes / 3_000));
                *exact.entry(agent.to_le_bytes().to_vec()).or_insert(0) += 1;
            }
            hold(&violations.top(OFFENDERS_KEPT, at(minutes - 1)), &exact);
        }
    }
}
