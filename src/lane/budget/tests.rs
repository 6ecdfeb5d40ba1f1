//! A budget's word alone: its salt, windows ahead, and what is counted at the edges.

use super::*;
use crate::clock::Offset;
use crate::lane::Decision;

const DAY: Era = Era { calendar: Calendar::Day, zone_minutes: 0 };
const DAY_NS: u64 = 86_400_000_000_000;
const HOUR_NS: u64 = DAY_NS / 24;

/// `hour` hours after the midnight with which this day begins.
fn at(day: u64, hour: u64) -> At {
    At { now: Tick::from_nanos(day * DAY_NS + hour * HOUR_NS), offset: Offset::default() }
}

fn index(day: u64) -> u64 {
    DAY.index(at(day, 0).unix_ns())
}

/// This much used on this day, in the last generation but one.
fn word(day: u64, used: u64) -> LaneWord {
    let word = (0..14).fold(LaneWord::default(), |word, _| word.next_generation());
    put(word, Seen { index: index(day), used, is_unknown: false })
}

/// Nothing used, with this salt.
fn salt(day: u64, salt: u64) -> LaneWord {
    word(day, 0).with_payload(index(day) << USED_BITS | salt)
}

const LIMIT: CountLimit = CountLimit::new(10, 20);

#[test]
fn the_salt_moves_on_and_starts_over_and_what_is_used_has_none() {
    assert_eq!(salted(salt(5, SALT_MIN)), Some(salt(5, SALT_MIN + 1)));
    assert_eq!(salted(salt(5, SALT_MIN + 6)), Some(salt(5, SALT_MIN + 7)));
    assert_eq!(salted(salt(5, USED_MASK)), Some(salt(5, SALT_MIN)));
    assert_eq!(salted(word(5, 3)), None);
    assert_eq!(salted(word(5, CAPACITY_MAX)), None);
    // Emptied, it has one, and the later of the two windows.
    assert_eq!(emptied(DAY, word(5, 3), at(4, 0)), salt(5, SALT_MIN));
    assert_eq!(emptied(DAY, salt(5, SALT_MIN + 9), at(7, 3)), salt(7, SALT_MIN + 9));
}

#[test]
fn of_a_window_ahead_what_is_used_counts_and_what_is_not_known_denies() {
    let used = step(DAY, word(6, 3), at(5, 0), LIMIT, 7);
    assert_eq!(used.next, Some(word(6, 10)));
    assert_eq!(used.answer.map(|verdict| verdict.remaining()), Ok(0));
    let unknown = step(DAY, salt(6, SALT_MIN), at(5, 18), LIMIT, 1);
    assert_eq!(unknown.next, None);
    let denied = unknown.answer.unwrap();
    assert_eq!((denied.remaining(), denied.retry_after_ns, denied.full_in_ns), (0, 6 * HOUR_NS, 6 * HOUR_NS));
    assert!(!is_idle(DAY, salt(6, SALT_MIN), at(5, 0)) && is_idle(DAY, salt(6, SALT_MIN), at(6, 0)));
    assert!(!is_idle(DAY, word(6, 1), at(6, 0)) && is_idle(DAY, word(6, 1), at(7, 0)));
}

#[test]
fn a_charge_is_told_what_is_left_and_when_there_is_more() {
    for (used, cost, decision, left) in
        [(0, 8, Decision::Allow, 2), (0, 9, Decision::Warn, 1), (4, 6, Decision::Warn, 0), (4, 7, Decision::Deny, 6)]
    {
        let Outcome { next, answer } = step(DAY, word(5, used), at(5, 20), LIMIT, cost);
        let verdict = answer.unwrap();
        assert_eq!((verdict.decision(), verdict.remaining()), (decision, left), "{used} and {cost}");
        assert_eq!(next, (decision != Decision::Deny).then(|| word(5, used + cost)));
        let wait = if decision == Decision::Deny { 4 * HOUR_NS } else { 0 };
        assert_eq!((verdict.retry_after_ns, verdict.full_in_ns), (wait, 4 * HOUR_NS));
    }
    // Nothing of the window before counts.
    assert_eq!(step(DAY, word(5, 9), at(6, 0), LIMIT, 10).next, Some(word(6, 10)));
    let end = At { now: Tick::MAX, offset: Offset::default() };
    let Outcome { next, answer } = step(DAY, LaneWord::default(), end, LIMIT, 1);
    assert_eq!(
        (next, answer.map(|verdict| (verdict.retry_after_ns, verdict.full_in_ns))),
        (None, Ok((RETRY_NEVER, 0)))
    );
    assert_eq!(step(DAY, word(5, 0), at(5, 0), LIMIT, 0).answer, Err(Error::ZeroCost));
}

#[test]
fn a_status_tells_when_there_is_more_only_if_something_is_used() {
    let seen = |word, at| {
        let LaneState { remaining, next_in_ns, full_in_ns, .. } = state(DAY, word, at, LIMIT);
        (remaining, next_in_ns, full_in_ns)
    };
    assert_eq!(seen(word(5, 4), at(5, 20)), (6, 4 * HOUR_NS, 4 * HOUR_NS));
    assert_eq!(seen(word(5, 0), at(5, 20)), (10, 0, 0));
    assert_eq!(seen(salt(6, SALT_MIN), at(5, 20)), (0, 4 * HOUR_NS, 4 * HOUR_NS));
    assert_eq!(seen(word(5, 4), at(6, 20)), (10, 0, 0));
}

#[test]
fn what_is_given_back_is_of_this_window_and_no_more_than_was_used() {
    let after = |used, cost| refund(DAY, word(5, used), at(5, 20), LIMIT, cost);
    assert_eq!((after(4, 3).next, after(4, 3).answer.remaining()), (Some(word(5, 1)), 9));
    assert_eq!((after(4, 9).next, after(4, 9).answer.remaining()), (Some(salt(5, SALT_MIN)), 10));
    assert_eq!((after(0, 9).next, after(0, 9).answer.remaining()), (None, 10));
    assert_eq!(refund(DAY, word(5, 4), at(6, 0), LIMIT, 3).next, None);
    let undone = |word, window, cost| undo(DAY, word, at(5, 20), window, cost).next;
    assert_eq!(undone(word(5, 4), index(5), 3), Some(word(5, 1)));
    assert_eq!(undone(word(5, 4), index(5), 4), Some(salt(5, SALT_MIN)));
    assert_eq!((undone(word(5, 4), index(4), 3), undone(word(5, 4), index(6), 3)), (None, None));
    assert_eq!((undone(word(5, 0), index(5), 3), undone(salt(5, SALT_MIN), index(5), 3)), (None, None));
    assert_eq!(receipt(word(5, 4)), index(5));
}

#[test]
fn a_charge_by_force_ends_at_what_the_word_can_count() {
    let forced = |used, cost| force(DAY, word(5, used), at(5, 0), cost).next;
    assert_eq!((forced(8, 5), forced(8, u64::MAX)), (Some(word(5, 13)), Some(word(5, CAPACITY_MAX))));
    assert_eq!(forced(CAPACITY_MAX, 1), None);
    assert_eq!(force(DAY, word(5, 8), at(6, 0), 5).next, Some(word(6, 5)));
}

#[cfg(feature = "persist")]
#[test]
fn what_was_used_before_a_restart_is_added_to_its_own_window() {
    assert_eq!(used(word(5, 3), index(5)), Some((index(5), 3)));
    assert_eq!(used(word(5, 3), index(4)), Some((index(5), 3)));
    assert_eq!(
        (used(word(5, 3), index(6)), used(word(5, 0), index(5)), used(salt(5, USED_MASK), index(5))),
        (None, None, None)
    );
    assert_eq!(
        (packed(6, 0), unpacked(packed(6, 9)), unpacked(packed(6, CAPACITY_MAX))),
        (0, (6, 9), (6, CAPACITY_MAX))
    );
    let restored = |word, used| restore(word, index(5), used).next;
    assert_eq!(
        (restored(word(5, 3), 4), restored(word(4, 3), 4), restored(word(6, 3), 4)),
        (Some(word(5, 7)), Some(word(5, 4)), None)
    );
    assert_eq!((restored(word(5, 3), 0), restored(word(4, 3), 0)), (None, None));
    assert_eq!(
        (restored(word(5, CAPACITY_MAX), 4), restored(word(5, 3), u64::MAX)),
        (None, Some(word(5, CAPACITY_MAX)))
    );
}
