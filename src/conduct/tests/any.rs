//! Any word at any instant.

use super::*;
use crate::bounds::QUIET_MAX;
use proptest::prelude::*;

fn rules() -> impl Strategy<Value = ConductNumbers> {
    let span = |longest: Duration| 1..=longest.as_nanos() as u64;
    let curve = prop::collection::vec(span(QUIET_MAX).prop_map(Duration::from_nanos), 0..=CURVE_STEPS_MAX);
    let abuse = (1..=ABUSE_VIOLATIONS_MAX, span(ABUSE_WINDOW_MAX).prop_map(Duration::from_nanos));
    let quiet = span(QUIET_MAX).prop_map(Duration::from_nanos);
    (curve, abuse, quiet).prop_map(|(curve, (violations, window), quiet)| {
        let rules = ConductRules::default().with_curve(curve).with_abuse_threshold(violations, window);
        ConductNumbers::new(&rules.with_quiet_period(quiet))
    })
}

fn instant() -> impl Strategy<Value = Tick> {
    let end = Tick::MAX.as_nanos();
    prop_oneof![0..=end, 0..1_000_000_000_000_u64, end - 1_000_000_000_000..=end].prop_map(Tick::from_nanos)
}

proptest! {
    /// Whatever a word holds and whenever it is, nothing overflows, a
    /// violation counts, and it does not move the last one back.
    #[test]
    fn any_word_at_any_instant_is_answered(bits: u64, now in instant(), rules in rules()) {
        let word = ConductWord::from_bits(bits);
        let before = assess(word, now, &rules);
        let Outcome { next, answer } = violate(word, now, &rules);
        let next = next.unwrap_or(word);
        prop_assert_eq!(next.bits() & GENERATION_MASK, bits & GENERATION_MASK);
        prop_assert!(answer.in_a_row >= before.in_a_row.max(1));
        let after = assess(next, now, &rules);
        prop_assert_eq!(after.in_a_row, answer.in_a_row);
        prop_assert!(after.last >= before.last && after.wait_ns >= before.wait_ns.min(nanos_saturating(answer.step)));
        prop_assert!(!next.is_idle(now.checked_sub(rules.keep()).unwrap_or(Tick::ZERO)));
        let _ = (format!("{word:?}"), forgive(word, now, &rules), word.next_tenancy());
    }

    /// The instants of violations, each a while after the one before.
    #[test]
    fn violations_agree_with_a_list_of_their_instants(
        gaps in prop::collection::vec(prop_oneof![Just(0), 0..80_u64, 0..400_u64], 1..80),
    ) {
        let rules = ConductNumbers::new(&ConductRules::default());
        let mut word = ConductWord::default();
        let (mut now, mut start, mut count, mut in_a_row, mut reported) = (1_u64, 0, 0_u32, 0_u32, false);
        for (index, gap) in gaps.into_iter().enumerate() {
            now += gap;
            in_a_row = if index == 0 || gap >= 60 { 1 } else { (in_a_row + 1).min(15) };
            reported &= gap < 300;
            (start, count) = if index == 0 || now >= start + 300 { (now, 1) } else { (start, (count + 1).min(63)) };
            let crossed = !reported && count >= 10;
            reported |= crossed;
            let Outcome { next, answer } = violate(word, Tick::from_nanos(now * 1_000_000_000), &rules);
            word = next.unwrap_or(word);
            prop_assert_eq!((answer.in_a_row, answer.sustained_abuse), (in_a_row, crossed), "violation {}", index);
        }
    }
}
