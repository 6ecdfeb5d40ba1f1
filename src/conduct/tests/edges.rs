//! The parts of a word by themselves, and instants on a border.

use super::*;

fn word(parts: ConductFields) -> ConductWord {
    ConductWord(7).with(parts)
}

const NOTHING: ConductFields = ConductFields { last: 40, age: 5, count: 0, in_a_row: 0, raised: false };

#[test]
fn the_age_moves_on_when_the_generations_start_over() {
    let mut word = FRESH.with(ConductFields { age: AGE_MAX, ..NOTHING });
    for tenancy in 1..=40 {
        word = word.next_tenancy();
        let age = if tenancy < 16 { AGE_MAX } else { tenancy / 16 - 1 };
        assert_eq!(word.fields(), ConductFields { age, ..NOTHING }, "tenancy {tenancy}");
    }
}

#[test]
fn a_word_is_idle_if_nothing_is_known_or_all_of_it_is_old() {
    let last = Tick::from_nanos(40 * UNIT_NANOS);
    let before = Tick::from_nanos(40 * UNIT_NANOS - 1);
    for (count, in_a_row) in [(0, 1), (1, 0), (1, 1)] {
        let word = word(ConductFields { count, in_a_row, ..NOTHING });
        assert!(word.is_idle(last) && !word.is_idle(before) && !word.is_idle(Tick::ZERO), "{word:?}");
    }
    assert!(word(NOTHING).is_idle(Tick::ZERO));
    assert_eq!(
        format!("{:?}", word(NOTHING)),
        "ConductWord(ConductFields { last: 40, age: 5, count: 0, in_a_row: 0, raised: false }, generation 7)"
    );
}

#[test]
fn a_forgiven_agent_has_neither_violations_nor_abuse() {
    let abuser = word(ConductFields { count: 12, in_a_row: 3, raised: true, ..NOTHING });
    let forgiven = forgive(abuser, at(40 * UNIT_NANOS), &defaults());
    assert_eq!((forgiven.next, forgiven.answer), (Some(word(NOTHING)), true));
    assert_eq!(forgive(word(NOTHING), at(40 * UNIT_NANOS), &defaults()), Outcome { next: None, answer: false });
}

/// Conduct matters for longer than the window here, so the word alone decides.
#[test]
fn abuse_is_told_again_a_whole_window_after_the_last_violation() {
    let rules = ConductRules::default().with_quiet_period(Duration::from_secs(600));
    let rules = numbers(rules.with_abuse_threshold(1, Duration::from_secs(300)));
    assert_eq!(reported_at([1, 300], &rules), [1]);
    assert_eq!(reported_at([1, 301], &rules), [1, 301]);
}

#[test]
fn during_a_block_everybody_is_told_what_is_left_of_it() {
    let waits = |rules: &ConductNumbers, wait_ns, in_a_row| {
        let announced::Waits { lane, first, counted, early } =
            rules.waits(&Conduct { wait_ns, in_a_row, ..Conduct::default() }, 77);
        assert_eq!(lane, 77);
        [first, counted, early]
    };
    let (announced, enforced) = (defaults(), numbers(curved().with_enforced_wait(true)));
    for rules in [&announced, &enforced] {
        assert_eq!(waits(rules, 0, 0), [1, 1, 1].map(|seconds| seconds * SECOND));
        assert_eq!(waits(rules, 0, 3), [1, 5, 10].map(|seconds| seconds * SECOND));
    }
    assert_eq!(waits(&announced, 9, 3), [1, 5, 10].map(|seconds| seconds * SECOND));
    assert_eq!(waits(&enforced, 9, 3), [9, 9, 10 * SECOND]);
}

/// Rules that are read while others write them may be made of two.
#[test]
fn torn_rules_have_a_step_for_any_number() {
    let torn = ConductNumbers::from_words([u64::MAX; ConductNumbers::WORDS]);
    assert_eq!([0, 1, 15, 16, 17, u64::MAX].map(|in_a_row| torn.step(in_a_row)), [u64::MAX; 6]);
}

#[test]
fn rules_say_what_they_were_told() {
    let said = |rules: ConductRules| (numbers(rules.clone()).enforces_wait(), numbers(rules).counts_every_denial());
    assert_eq!(said(curved()), (false, false));
    assert_eq!(said(curved().with_enforced_wait(true)), (true, false));
}
