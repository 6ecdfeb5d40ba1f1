//! Any violations under any rules, against exact instants and counts.

use super::*;
use proptest::prelude::*;

/// An instant that is only known to within these.
#[derive(Clone, Copy, Debug)]
struct Between {
    /// When it truly was.
    exact: u64,
    /// When the word may take it to be, at the latest.
    latest: u64,
}

impl Between {
    /// Whether `span` has passed since then: `None` if the word may take it either way.
    fn passed(self, span: Duration, now: u64) -> Option<bool> {
        let span = nanos_saturating(span);
        match (now >= self.exact + span, now >= self.latest + span) {
            (false, _) => Some(false), // Never early.
            (true, true) => Some(true),
            (true, false) => None,
        }
    }

    fn holds(self, kept: Option<Tick>) -> bool {
        let latest = Tick::from_nanos(self.latest);
        kept.is_some_and(|kept| (Tick::from_nanos(self.exact)..=latest).contains(&kept))
    }
}

/// What the word represents: exact instants, counts without a bound.
#[derive(Clone, Copy, Debug)]
struct Exact {
    last: Between,
    start: Between,
    count: u64,
    in_a_row: u64,
    raised: bool,
}

/// The curve's wait, counted from the rules as the operator gave them.
fn step_of(rules: &ConductRules, in_a_row: u64) -> Duration {
    rules.curve().take(in_a_row as usize).last().unwrap_or_default()
}

impl Exact {
    /// Compares what the word shows with the exact values.
    fn check(known: Option<Self>, word: ConductWord, rules: &ConductRules, now: u64) -> Conduct {
        let seen = assess(word, at(now), &ConductNumbers::new(rules));
        let Some(exact) = known else {
            assert_eq!(seen, Conduct::default());
            return seen;
        };
        let Self { last, start, count, in_a_row, .. } = exact;
        let (quiet, (_, window)) = (rules.quiet_period(), rules.abuse_threshold());
        let shown = |passed: Option<bool>, seen: u32, count: u64, max: u64| {
            let passed = passed.unwrap_or(seen == 0);
            assert_eq!(u64::from(seen), if passed { 0 } else { count.min(max) }, "{exact:?} at {now}: {seen:?}");
        };
        shown(last.passed(quiet, now), seen.in_a_row, in_a_row, IN_A_ROW_MAX);
        shown(start.passed(window, now), seen.count, count, COUNT_MAX);
        let forgotten = last.passed(quiet.max(window), now).unwrap_or(seen.last.is_none());
        assert!(if forgotten { seen.last.is_none() } else { last.holds(seen.last) }, "{exact:?} at {now}: {seen:?}");
        assert!(if seen.count == 0 { seen.window_start.is_none() } else { start.holds(seen.window_start) });
        let step = nanos_saturating(step_of(rules, in_a_row).min(quiet));
        if seen.in_a_row == 0 || step == 0 {
            assert_eq!(seen.wait_ns, 0);
        } else {
            let waits = (last.exact + step).saturating_sub(now)..=(last.latest + step).saturating_sub(now);
            assert!(waits.contains(&seen.wait_ns), "{exact:?} at {now}: {seen:?}");
        }
        seen
    }

    /// The exact values after a violation; `seen` is what the word showed before
    /// it and `next` the word after it, for cases where both may be right.
    fn violate(known: Option<Self>, rules: &ConductRules, now: u64, seen: &Conduct, next: ConductWord) -> Self {
        let count = if seen.count == 0 { 0 } else { known.map_or(0, |exact| exact.count) } + 1;
        let in_a_row = if seen.in_a_row == 0 { 0 } else { known.map_or(0, |exact| exact.in_a_row) } + 1;
        let is_flood = count >= COUNT_MAX && in_a_row >= IN_A_ROW_MAX;
        let latest = now + if is_flood { SECOND } else { SECOND / 8 };
        let (threshold, window) = rules.abuse_threshold();
        let Some(before) = known else {
            let last = Between { exact: now, latest };
            return Self { last, start: last, count, in_a_row, raised: count >= u64::from(threshold) };
        };
        let last = Between { exact: before.last.exact.max(now), latest: before.last.latest.max(latest) };
        let start = if count == 1 { last } else { before.start };
        let reported = before.raised
            && match before.last.passed(window, now) {
                Some(passed) => !passed,
                None => next.fields().raised,
            };
        Self { last, start, count, in_a_row, raised: reported || count >= u64::from(threshold) }
    }
}

fn any_rules() -> impl Strategy<Value = ConductRules> {
    // From instants that the word cannot distinguish to the longest allowed.
    let span = |max: u64| {
        prop_oneof![1..SECOND, (1_u64..100).prop_map(|eighths| eighths * SECOND / 8), SECOND..600 * SECOND, 1..=max]
            .prop_map(move |nanos| Duration::from_nanos(nanos.min(max)))
    };
    let day = nanos_saturating(crate::bounds::QUIET_MAX);
    let curve = prop::collection::vec(span(day), 0..=CURVE_STEPS_MAX);
    let threshold = prop_oneof![1..=3_u32, 1..=ABUSE_VIOLATIONS_MAX];
    let window = span(nanos_saturating(ABUSE_WINDOW_MAX));
    (curve, span(day), threshold, window, any::<(bool, bool)>()).prop_map(
        |(curve, quiet, threshold, window, (every_denial, enforce))| {
            ConductRules::default()
                .with_curve(curve)
                .with_quiet_period(quiet)
                .with_abuse_threshold(threshold, window)
                .with_every_denial(every_denial)
                .with_enforced_wait(enforce)
        },
    )
}

/// How far the next call is from the last: `steps` of the given size from
/// one of the spans that matter.
#[derive(Clone, Copy, Debug)]
struct Gap {
    span: usize,
    steps: i64,
    size: u64,
    back: bool,
}

impl Gap {
    fn from(self, now: u64, rules: &ConductRules, in_a_row: u32) -> u64 {
        let (_, window) = rules.abuse_threshold();
        let wait = step_of(rules, u64::from(in_a_row.max(1)));
        let spans = [Duration::ZERO, Duration::ZERO, wait, rules.quiet_period(), window];
        let span = i128::from(nanos_saturating(spans[self.span])) + i128::from(self.steps) * i128::from(self.size);
        let next = i128::from(now) + if self.back { -span } else { span };
        next.clamp(0, i128::from(Tick::MAX.as_nanos())) as u64
    }
}

fn any_gap() -> impl Strategy<Value = Gap> {
    let size = prop_oneof![Just(1), Just(UNIT_NANOS / 2), Just(UNIT_NANOS), Just(SECOND)];
    let back = prop::bool::weighted(0.1);
    (0..5_usize, -3..=3_i64, size, back).prop_map(|(span, steps, size, back)| Gap { span, steps, size, back })
}

fn any_start() -> impl Strategy<Value = u64> {
    let last = Tick::MAX.as_nanos();
    prop_oneof![Just(0), Just(1), 0..=last, last - 600 * SECOND..=last, Just(last)]
}

/// A word in which some violations have been recorded, and when the last was.
fn any_word(rules: &ConductNumbers, start: u64, gaps: &[Gap], policy: &ConductRules) -> (ConductWord, u64) {
    let (mut word, mut now) = (FRESH, start);
    for gap in gaps {
        now = gap.from(now, policy, violated(&mut word, now, rules).in_a_row);
    }
    (word, now)
}

proptest! {
    #[test]
    fn words_round_trip(
        last in 0..1_u64 << 34, age in 0..=AGE_MAX, count in 0..=COUNT_MAX, in_a_row in 0..=IN_A_ROW_MAX,
        raised: bool, bits: u64,
    ) {
        let parts = ConductFields { last, age, count, in_a_row, raised };
        let word = ConductWord::from_bits(bits);
        prop_assert_eq!(word.bits(), bits);
        prop_assert_eq!(word.with(word.fields()), word);
        prop_assert_eq!(word.with(parts).fields(), parts);
        prop_assert_eq!(word.with(parts).0 & GENERATION_MASK, bits & GENERATION_MASK);
        let next = word.next_tenancy();
        prop_assert_eq!(next.fields().last, word.fields().last);
        prop_assert_eq!((next.fields().count, next.fields().in_a_row, next.fields().raised), (0, 0, false));
        prop_assert_eq!(next.0 & GENERATION_MASK, (bits + 1) & GENERATION_MASK);
        let numbers = defaults();
        prop_assert_eq!(assess(next, at(bits), &numbers), Conduct::default());
    }

    #[test]
    fn rules_round_trip(rules in any_rules()) {
        let numbers = ConductNumbers::new(&rules);
        let words: Vec<u64> = numbers.to_words().collect();
        prop_assert_eq!(ConductNumbers::from_words(words.try_into().unwrap()), numbers);
    }

    /// Any violations under any rules, which may change in between: the
    /// word agrees with exact instants and counts, except for the stated
    /// rounding, which is always to the later.
    #[test]
    fn agrees_with_exact_instants_and_counts(
        rules in prop::collection::vec(any_rules(), 2),
        start in any_start(),
        calls in prop::collection::vec((any_gap(), 0..60_u8, 1..40_usize), 1..40),
    ) {
        let (mut word, mut known, mut now) = (FRESH, None, start);
        let mut policy = &rules[0];
        for (gap, call, times) in calls {
            match call {
                // Forgiven by an operator, evicted, or under new rules.
                0 => {
                    let Outcome { next, answer } = forgive(word, at(now), &ConductNumbers::new(policy));
                    prop_assert_eq!(answer, Exact::check(known, word, policy, now).last.is_some());
                    word = next.unwrap_or(word);
                    known = None;
                }
                1 => {
                    word = word.next_tenancy();
                    known = None;
                }
                2 | 3 => policy = &rules[usize::from(call - 2)],
                _ => {}
            }
            let numbers = ConductNumbers::new(policy);
            // Every tenth call is a crowd: counts reach their bounds.
            for _ in 0..if call % 10 == 9 { times * 3 } else { 1 } {
                let seen = Exact::check(known, word, policy, now);
                let Outcome { next, answer } = violate(word, at(now), &numbers);
                prop_assert_ne!(next, Some(word), "a write that changes nothing");
                let was_raised = word.fields().raised;
                word = next.unwrap_or(word);
                let exact = Exact::violate(known, policy, now, &seen, word);
                prop_assert_eq!(word.fields().raised, exact.raised);
                // Reported when it is reached, and not again while it lasts.
                if answer.sustained_abuse {
                    let (threshold, window) = policy.abuse_threshold();
                    prop_assert!(exact.count >= u64::from(threshold));
                    let is_over = known.is_none_or(|known| known.last.passed(window, now) != Some(false));
                    prop_assert!(!was_raised || is_over);
                } else {
                    prop_assert!(was_raised || !exact.raised);
                }
                prop_assert_eq!(u64::from(answer.in_a_row), exact.in_a_row.min(IN_A_ROW_MAX));
                prop_assert_eq!(answer.step, step_of(policy, exact.in_a_row));
                known = Some(exact);
                let seen = Exact::check(known, word, policy, now);
                prop_assert_eq!(answer.wait, if policy.enforces_wait() { seen.wait() } else { answer.step });
            }
            if let Some(Exact { last, .. }) = known {
                prop_assert!(word.is_idle(at(last.latest)) || last.latest > Tick::MAX.as_nanos());
                prop_assert!(last.exact == 0 || !word.is_idle(at(last.exact - 1)));
            } else {
                prop_assert!(word.is_idle(Tick::ZERO));
            }
            now = gap.from(now, policy, Exact::check(known, word, policy, now).in_a_row);
        }
    }

    /// Giving the record of a quiet agent away loses nothing.
    #[test]
    fn an_idle_word_answers_like_a_fresh_one(
        policy in any_rules(),
        start in any_start().prop_map(|start| start / 2),
        gaps in prop::collection::vec(any_gap(), 1..20),
        later in prop::collection::vec(any_gap(), 1..20),
    ) {
        let rules = ConductNumbers::new(&policy);
        let (mut word, now) = any_word(&rules, start, &gaps, &policy);
        let quiet = word.fields().last * UNIT_NANOS + nanos_saturating(rules.keep());
        let since = |now: u64| at(now).checked_sub(rules.keep()).unwrap_or(Tick::ZERO);
        prop_assert!(word.is_idle(since(quiet)) && !word.is_idle(since(quiet - 1)));
        prop_assert_eq!(word.is_idle(since(now)), assess(word, at(now), &rules) == Conduct::default());

        let (mut fresh, mut now) = (FRESH, quiet);
        prop_assert!(!forgive(word, at(now), &rules).answer);
        for gap in later {
            prop_assert_eq!(assess(word, at(now), &rules), assess(fresh, at(now), &rules));
            let answer = violated(&mut fresh, now, &rules);
            prop_assert_eq!(violated(&mut word, now, &rules), answer);
            now = gap.from(now, &policy, answer.in_a_row).max(quiet);
        }
    }

    /// An agent that has waited as long as it was asked to is not blocked any more.
    #[test]
    fn an_enforced_wait_ends_when_it_was_told(
        policy in any_rules(),
        start in any_start().prop_map(|start| start / 2),
        gaps in prop::collection::vec(any_gap(), 0..100),
    ) {
        let policy = policy.with_enforced_wait(true);
        let rules = ConductNumbers::new(&policy);
        let (mut word, now) = any_word(&rules, start, &gaps, &policy);
        let wait = nanos_saturating(violated(&mut word, now, &rules).wait);
        prop_assert_eq!(assess(word, at(now + wait), &rules).wait_ns, 0);
        prop_assert_eq!(assess(word, at((now + wait).saturating_sub(1)), &rules).wait_ns > 0, wait > 0);
    }
}
