//! What a conduct word does, by example.

mod any;
mod edges;
mod exact;

use super::word::*;
use super::*;
use crate::bounds::{ABUSE_VIOLATIONS_MAX, ABUSE_WINDOW_MAX, CURVE_STEPS_MAX};
use crate::clock::nanos_saturating;
use crate::lane::Word;
use crate::policy::ConductRules;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const FRESH: ConductWord = ConductWord(0);

fn at(nanos: u64) -> Tick {
    Tick::from_nanos(nanos)
}

fn numbers(rules: ConductRules) -> ConductNumbers {
    ConductNumbers::new(&rules)
}

/// The waits of the hub.
fn curved() -> ConductRules {
    ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs))
}

fn defaults() -> ConductNumbers {
    numbers(curved())
}

/// Records a violation in the word.
fn violated(word: &mut ConductWord, nanos: u64, rules: &ConductNumbers) -> Violation {
    let Outcome { next, answer } = violate(*word, at(nanos), rules);
    *word = next.unwrap_or(*word);
    answer
}

#[test]
fn waits_follow_the_curve_and_a_quiet_period_starts_it_over() {
    let (mut word, rules) = (FRESH, defaults());
    let steps = [1, 2, 5, 10, 30, 30, 30].map(Duration::from_secs);
    assert_eq!([(); 7].map(|()| violated(&mut word, 5 * SECOND, &rules).step()), steps);
    assert_eq!(assess(word, at(65 * SECOND - 1), &rules).in_a_row(), 7);
    assert_eq!(assess(word, at(65 * SECOND), &rules).in_a_row(), 0);
    assert_eq!(violated(&mut word, 65 * SECOND, &rules).step(), Duration::from_secs(1));
    assert_eq!(violated(&mut word, 125 * SECOND - 1, &rules).step(), Duration::from_secs(2));
}

#[test]
fn nobody_is_forgiven_early_and_nobody_more_than_an_eighth_of_a_second_late() {
    let rules = defaults();
    for instant in [1, SECOND - 1, SECOND, SECOND + 1, 7 * SECOND + UNIT_NANOS / 2] {
        let mut word = FRESH;
        violated(&mut word, instant, &rules);
        assert!(assess(word, at(instant + 60 * SECOND - 1), &rules).is_rate_limited());
        assert!(!assess(word, at(instant + 60 * SECOND + UNIT_NANOS), &rules).is_rate_limited());
        assert_eq!(assess(word, at(instant + 300 * SECOND - 1), &rules).violations(), 1);
        assert_eq!(assess(word, at(instant + 300 * SECOND + UNIT_NANOS), &rules), Conduct::default());
    }
}

/// The instants at which abuse is reported, of violations at these.
fn reported_at(violations: impl IntoIterator<Item = u64>, rules: &ConductNumbers) -> Vec<u64> {
    let mut word = FRESH;
    violations.into_iter().filter(|second| violated(&mut word, second * SECOND, rules).sustained_abuse()).collect()
}

#[test]
fn abuse_is_reported_once_and_again_only_after_a_window_without_a_violation() {
    let rules = defaults();
    assert_eq!(reported_at(0..9, &rules), [0_u64; 0]);
    assert_eq!(reported_at(0..10, &rules), [9]);
    // Windows roll over, and each has ten; but no window was without one.
    assert_eq!(reported_at((0..3_000).step_by(10), &rules), [90]);
    assert_eq!(reported_at((0..30).chain((328..3_000).step_by(299)), &rules), [9]);
    // 299 seconds after the last one it still counts; after 300 it is forgiven.
    assert_eq!(reported_at((0..30).chain(328..360), &rules), [9]);
    assert_eq!(reported_at((0..30).chain(329..360), &rules), [9, 338]);
    // Nine in one window and nine in the next are not ten in one.
    assert_eq!(reported_at((1..10).chain(301..310), &rules), [0_u64; 0]);
    let always = numbers(ConductRules::default().with_abuse_threshold(1, Duration::from_secs(300)));
    assert_eq!(reported_at([0, 299, 598, 898], &always), [0, 898]);
}

#[test]
fn a_flood_of_denials_writes_sixty_three_times_a_window_and_otherwise_once_a_second() {
    let rules = defaults();
    let (mut word, mut writes) = (FRESH, Vec::new());
    for second in 0..1_000 {
        for denial in 0..1_000 {
            let now = at(second * SECOND + denial * SECOND / 1_000 + 1);
            if let Some(next) = violate(word, now, &rules).next {
                writes.push(second);
                word = next;
            }
        }
    }
    let in_second = |second| writes.iter().filter(|written| **written == second).count();
    let crowded: Vec<_> = (0..1_000).filter(|second| in_second(*second) > 2).collect();
    assert!(crowded.len() <= 4, "{crowded:?}");
    assert!(crowded.iter().all(|second| in_second(*second) <= 64), "{crowded:?}");
    assert!(writes.len() <= 4 * 63 + 1_000, "{}", writes.len());
    assert!((0..1_000).all(|second| in_second(second) > 0), "an agent in a flood is forgiven during it");
}

#[test]
fn an_older_instant_adds_a_violation_and_moves_nothing_back() {
    let (mut word, rules) = (FRESH, defaults());
    violated(&mut word, 1_000 * SECOND, &rules);
    for older in [999 * SECOND, 500 * SECOND, 0] {
        violated(&mut word, older, &rules);
        let seen = assess(word, at(1_000 * SECOND), &rules);
        assert_eq!((seen.last_violation(), seen.window_start()), (Some(at(1_000 * SECOND)), Some(at(1_000 * SECOND))));
    }
    assert_eq!(assess(word, at(1_059 * SECOND), &rules).in_a_row(), 4);
    assert_eq!(assess(word, at(1_299 * SECOND), &rules).violations(), 4);
    assert_eq!(assess(word, at(1_300 * SECOND), &rules), Conduct::default());
}

#[test]
fn a_violation_at_either_end_of_time_is_remembered() {
    let rules = defaults();
    for end in [Tick::ZERO, Tick::MAX] {
        let mut word = FRESH;
        let steps = [(); 100].map(|()| violated(&mut word, end.as_nanos(), &rules).in_a_row());
        assert_eq!((steps[0], steps[1], steps[99]), (1, 2, 15));
        let seen = assess(word, end, &rules);
        assert_eq!((seen.violations(), seen.in_a_row()), (63, 15));
        assert!(!word.is_idle(Tick::ZERO) && seen.is_rate_limited(), "{word:?}");
    }
}

#[test]
fn without_a_curve_violations_count_and_ask_for_no_wait() {
    let (mut word, rules) = (FRESH, numbers(ConductRules::default()));
    for count in 1..=15 {
        let violation = violated(&mut word, 5 * SECOND, &rules);
        assert_eq!((violation.in_a_row(), violation.wait()), (count, Duration::ZERO));
        assert_eq!(violation.sustained_abuse(), count == 10);
    }
    let seen = assess(word, at(5 * SECOND), &rules);
    assert_eq!((seen.wait(), seen.is_rate_limited()), (Duration::ZERO, true));
}

/// The instant of a violation is kept rounded up to an eighth of a second. A policy that enforces
/// waits but has no curve took the rounding for a wait, and blocked the agent for it.
#[test]
fn without_a_curve_nothing_is_enforced() {
    let (mut word, rules) = (FRESH, numbers(ConductRules::default().with_enforced_wait(true)));
    let now = 5 * SECOND + 1;
    assert_eq!(violated(&mut word, now, &rules).wait(), Duration::ZERO);
    assert_eq!(assess(word, at(now), &rules).wait(), Duration::ZERO);
}

#[test]
fn new_rules_apply_to_what_is_recorded() {
    let (mut word, rules) = (FRESH, defaults());
    for second in 0..12 {
        violated(&mut word, second * SECOND, &rules);
    }
    let strict = ConductRules::default().with_curve([Duration::from_secs(7)]).with_quiet_period(Duration::from_secs(9));
    let strict = numbers(strict.with_abuse_threshold(63, Duration::from_secs(10)));
    let seen = assess(word, at(12 * SECOND), &strict);
    assert_eq!((seen.violations(), seen.in_a_row(), seen.wait()), (0, 12, Duration::from_secs(6)));
    assert_eq!(assess(word, at(21 * SECOND), &strict), Conduct::default());
    assert_eq!(violated(&mut word, 12 * SECOND, &strict).step(), Duration::from_secs(7));
    // Under the old rules again, it is reported again only after a window without a violation.
    assert!((13..40).all(|second| !violated(&mut word, second * SECOND, &rules).sustained_abuse()));
}

#[test]
fn a_word_of_which_nothing_is_known_returns_after_half_a_million_tenancies_and_not_before() {
    let mut first = FRESH;
    violated(&mut first, 3 * SECOND, &defaults());
    let first = first.next_tenancy();
    let mut word = first;
    let again = (1_u32..).find(|_| {
        word = word.next_tenancy();
        word == first
    });
    assert_eq!(again, Some(16 << 15));
}
