//! The agents that violate limits the most, in constant memory.
//!
//! Counts come from `offenders/panes.rs`, which states how far off they may be,
//! and the exact total of an hour from `offenders/minutes.rs`.
//!
//! A violation that finds another thread counting waits for a few dozen
//! nanoseconds; after that it is not counted per agent but as *missed*. A count
//! may then also be too low, by at most the number missed.

mod minutes;
mod panes;

use self::minutes::Minutes;
use self::panes::Panes;
use crate::bounds::OFFENDERS_KEPT;
use crate::clock::Tick;
use crate::machine::process::generation;
use crate::sync::{Counter, Mutex, MutexGuard, Ordering, try_lock, wait};
use std::ops::{Deref, DerefMut};

/// How often a violation tries to be counted before it is missed. A round is
/// one processor pause, and the holder needs some dozens of them.
const TRIES_MAX: u32 = 64;

/// How often a caller that needs the list tries; the holder is counting one violation.
const ASKS_MAX: u32 = 10_000;

/// The agents that violate limits the most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offenders {
    /// The agents with the most violations, worst first, up to
    /// [`OFFENDERS_KEPT`]. An agent that is not listed has at most as many as
    /// the last one, or `error_max` if that is more.
    pub list: Vec<Offender>,
    /// Violations of all agents in the last hour, exact. The hour is 60 whole
    /// minutes and ends with the current one.
    pub violations: u64,
    /// The counts in `list` are too high by at most this: 1 in 128 of all
    /// violations.
    pub error_max: u64,
    /// Violations that are in no agent's count because another thread was counting.
    pub missed: u64,
}

/// An agent that violates limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offender {
    /// The agent.
    pub agent: Vec<u8>,
    /// Its violations in the last hour, in steps of ten minutes. Never too low,
    /// except by those that were missed.
    pub violations: u64,
    /// At most this many of them may be other agents'.
    pub error: u64,
}

/// Violations by agent and by minute.
pub(crate) struct Violations {
    panes: Mutex<Panes>,
    /// The [`generation`] of the process that holds `panes`, or 0.
    holder: Counter,
    all: Minutes,
    missed: Minutes,
}

impl Violations {
    pub(crate) fn new() -> Self {
        Self { panes: Mutex::new(Panes::new()), holder: Counter::new(0), all: Minutes::new(), missed: Minutes::new() }
    }

    /// Counts a violation. Waits no longer than another thread takes to count one.
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

    /// The worst `most` agents.
    ///
    /// None in a child that was forked while another thread was counting: there
    /// the lock is never released.
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
                // The mutex is free: only the holder locks it.
                Ok(_) => {
                    return try_lock(&self.panes).map(|panes| PanesGuard { panes: Some(panes), holder: &self.holder });
                }
                // A violation only spins; a caller that needs the list yields the processor too.
                Err(holder) if holder == me => wait(round),
                // Held by the process that forked this one: no thread here will release it.
                Err(_) => return None,
            }
        }
        None
    }
}

/// The right to count, until it is dropped.
///
/// One exchange takes the lock and names the process that holds it. So a child
/// that is forked at any moment finds the lock free or held by its parent; the
/// mutex inside is locked only while the lock is held.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::thread;
    use std::time::Duration;

    fn at(minutes: u64) -> Tick {
        Tick::ZERO.saturating_add(Duration::from_secs(60) * minutes as u32)
    }

    /// Reproducible pseudo-random numbers.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }

    /// Compares the list with exact counts.
    fn assert_within_error(top: &Offenders, exact: &HashMap<Vec<u8>, u64>) {
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
        // Zipf with exponent 1 over 5,000 agents, and every third from a new agent.
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
        assert_within_error(&top, &exact);
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
        // The slots of minutes and panes are reused.
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
    fn a_violation_during_another_one_is_counted_as_missed() {
        let violations = Violations::new();
        violations.add(b"a", at(0));
        let held = violations.lock(1).unwrap();
        violations.add(b"a", at(0));
        drop(held);
        let top = violations.top(1, at(0));
        assert_eq!((top.violations, top.missed, top.list[0].violations), (2, 1, 1));
    }

    /// A child forked while its parent made a list tried the lock 10,000 times,
    /// yielding each time: 41 s on a busy machine.
    #[cfg(unix)]
    #[test]
    fn a_child_does_not_wait_for_a_holder_in_its_parent() {
        let violations = Violations::new();
        violations.add(b"a", at(0));
        crate::machine::process::mark(); // Forks are watched from here on, as in any limiter.
        let held = violations.lock(1).unwrap();
        // SAFETY: the child tries a lock and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: asks for a signal that ends the child if it waits.
            unsafe { libc::alarm(20) };
            let refused = violations.lock(u32::MAX).is_none();
            // SAFETY: ends the child without running destructors.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made; `status` is writable.
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
    fn ids_of_any_bytes_are_distinguished_even_with_the_same_key() {
        let violations = Violations::new();
        let long = |fill: u8| [&[1; 8][..], &[fill; 240], &[2; 8]].concat();
        assert_eq!(panes::key(&long(3)), panes::key(&long(4)));
        for (id, times) in [(long(3), 3), (long(4), 2), (vec![0], 1), (vec![0xff; 256], 4)] {
            (0..times).for_each(|_| violations.add(&id, at(0)));
        }
        let counts: Vec<_> = violations.top(9, at(0)).list.into_iter().map(|one| (one.agent, one.violations)).collect();
        assert_eq!(counts, [(vec![0xff; 256], 4), (long(3), 3), (long(4), 2), (vec![0], 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        /// Any stream, the worst included: every agent once, over and over.
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
            assert_within_error(&violations.top(OFFENDERS_KEPT, at(minutes - 1)), &exact);
        }
    }
}
