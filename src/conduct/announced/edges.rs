//! Denials on a border between two judgements, in units of time.

use super::Judgement::{Counted, Early, First, Parallel};
use super::*;

const FINGERPRINT: u64 = 9;

fn at(units: u64) -> Tick {
    Tick::from_nanos(units << UNIT_SHIFT)
}

fn announced(at: u64, wait: u64, crowd: u64) -> WaitWord {
    WaitWord::new(WaitFields { at, wait, crowd, fingerprint: FINGERPRINT })
}

/// Waits in units: for a denial that does not count, one that does, and an early one.
fn waits(first: u64, counted: u64, early: u64) -> Waits {
    let nanos = |units: u64| units << UNIT_SHIFT;
    Waits { lane: 0, first: nanos(first), counted: nanos(counted), early: nanos(early) }
}

fn judged(word: WaitWord, now: u64, waits: Waits) -> (Judgement, Option<WaitWord>) {
    let Outcome { next, answer } = judge(word, FINGERPRINT, at(now), waits);
    (answer, next)
}

#[test]
fn a_word_has_its_parts_side_by_side() {
    let word = WaitWord::from_bits(5 << 26 | 77 << 18 | 6 << 14 | 9);
    assert_eq!(word.fields(), WaitFields { at: 5, wait: SECOND, crowd: 6, fingerprint: 9 });
    assert_eq!((announced(5, SECOND, 6), SECOND, word.bits()), (word, 232, 5 << 26 | 77 << 18 | 6 << 14 | 9));
}

#[test]
fn waits_are_kept_exactly_up_to_32_units_and_by_their_five_leading_bits_from_there() {
    for (units, code) in [(0, 0), (31, 31), (32, 32), (33, 32), (34, 33), (63, 47), (64, 48), (507_903, 254)] {
        assert_eq!(code_of(units), code, "{units}");
    }
    assert_eq!([507_904, 524_287, 524_288, u64::MAX].map(code_of), [255; 4]);
    assert_eq!([31, 32, 33, 47, 48, 77, 254, 255].map(units_of), [31, 32, 34, 62, 64, 232, 30 << 14, 31 << 14]);
}

#[test]
fn a_moment_ends_with_its_second() {
    let violated = announced(1_000, 464, CROWD_MAX);
    assert_eq!(judged(violated, 1_000 + SECOND - 1, waits(1, 464, 3)), (Counted, None));
    assert_eq!(
        judged(violated, 1_000 + SECOND, waits(1, 464, 3)),
        (Early, Some(announced(1_000 + SECOND, 3, CROWD_MAX)))
    );
    // For an older instant no time has passed.
    assert_eq!(judged(violated, 900, waits(1, 464, 3)), (Counted, None));
    let fresh = announced(1_000, 464, 0);
    assert_eq!(judged(fresh, 1_000 + SECOND - 1, waits(1, 464, 3)), (Parallel, Some(announced(1_000, 464, 1))));
    assert_eq!(judged(fresh, 1_000 + SECOND, waits(1, 464, 3)), (Early, Some(announced(1_000 + SECOND, 3, CROWD_MAX))));
}

#[test]
fn a_wait_ends_as_announced() {
    let word = announced(1_000, 20, 2);
    assert_eq!(judged(word, 1_019, waits(5, 20, 7)), (Parallel, Some(announced(1_000, 20, 3))));
    assert_eq!(judged(word, 1_020, waits(5, 20, 7)), (First, Some(announced(1_020, 5, 0))));
    // A request for fewer tokens would have to wait less than what is left.
    assert_eq!(judged(word, 1_008, waits(5, 12, 7)), (Parallel, Some(announced(1_000, 20, 3))));
    assert_eq!(judged(word, 1_008, waits(5, 11, 7)), (First, Some(announced(1_008, 5, 0))));
    // The lane's own wait counts, if it is longer.
    let longer = Waits { lane: 15 << UNIT_SHIFT, ..waits(5, 11, 7) };
    assert_eq!(judged(word, 1_008, longer), (Parallel, Some(announced(1_000, 20, 3))));
    assert_eq!(judged(word, 1_020, longer), (First, Some(announced(1_020, 15, 0))));
}

#[test]
fn few_are_under_way_from_the_half_of_a_wait_of_a_second_on() {
    let late = PARALLEL_LATE_MAX - 1;
    assert!(late + 1 < PARALLEL_MAX);
    let judgement = |wait, crowd, elapsed| judged(announced(1_000, wait, crowd), 1_000 + elapsed, waits(1, wait, 3)).0;
    assert_eq!((judgement(SECOND, late, SECOND / 2 - 1), judgement(SECOND, late, SECOND / 2)), (Parallel, Early));
    assert_eq!(judgement(SECOND, late - 1, SECOND / 2), Parallel);
    // A shorter wait has no such half.
    assert_eq!((judgement(224, late, 223), judgement(224, PARALLEL_MAX - 2, 1)), (Parallel, Parallel));
    assert_eq!((judgement(224, PARALLEL_MAX - 1, 1), judgement(SECOND, PARALLEL_MAX - 1, 1)), (Early, Early));
}

#[test]
fn places_and_fingerprints_depend_on_every_bit_of_the_hash_and_on_the_lane() {
    const HASH: u64 = 0x0123_4567_89ab_cdef;
    const LEN: usize = 1 << 20;
    let all: std::collections::BTreeSet<_> = (0..8).map(|lane| index_and_fingerprint(HASH, lane, LEN)).collect();
    assert_eq!(all.len(), 8);
    for lane in 0..8 {
        for bit in 0..64 {
            assert_ne!(
                index_and_fingerprint(HASH ^ 1 << bit, lane, LEN),
                index_and_fingerprint(HASH, lane, LEN),
                "lane {lane}, bit {bit}"
            );
        }
    }
    let seen: Vec<_> =
        (0..4_096_u64).map(|agent| index_and_fingerprint(agent.wrapping_mul(0x5851_f42d_4c95_7f2d), 1, 64)).collect();
    for place in 0..64 {
        let here = seen.iter().filter(|(seen, _)| *seen == place).count();
        assert!((24..=110).contains(&here), "{here} of 4096 in one of 64 places");
    }
    let fingerprints: std::collections::BTreeSet<_> = seen.iter().map(|(_, fingerprint)| *fingerprint).collect();
    assert!(fingerprints.len() > 3_000 && fingerprints.iter().all(|fingerprint| *fingerprint < 1 << FINGERPRINT_BITS));
    assert!(fingerprints.iter().any(|fingerprint| *fingerprint >= 1 << (FINGERPRINT_BITS - 1)));
}
