//! The wait that was last announced to an agent on a lane, in one word. It
//! distinguishes an agent that comes back too early from one that has waited.
//!
//! ```text
//!  63                   26 25      18 17     14 13           0
//! ┌───────────────────────┬──────────┬─────────┬──────────────┐
//! │      at, 38 bits      │ wait, 8  │ crowd 4 │ fingerprint  │
//! └───────────────────────┴──────────┴─────────┴──────────────┘
//! ```
//!
//! - *at*: when it was announced, in units of 2^22 nanoseconds (4.2 ms), rounded down.
//! - *wait*: how long it is, in the same units: four bits after the leading
//!   one, rounded down, up to 35 minutes. So a wait ends up to a sixteenth
//!   early, and never late.
//! - *crowd*: how many denials came before the wait was over without being
//!   counted; 15 once one was.
//! - *fingerprint*: the agent and the lane that the word belongs to.
//!
//! A denial before the wait is over is a violation, unless the request may have
//! been under way when the wait was announced. A request is under way for a
//! second at most, and that is a *moment*: within it a denial is taken for one
//! of several parallel requests. But an agent has only as many of those as it
//! has workers. More than [`PARALLEL_MAX`] are a violation, and so are more than
//! [`PARALLEL_LATE_MAX`] once half of a wait of at least a moment has passed,
//! when few can still be under way. A moment has one violation.
//!
//! A request that would have to wait less than the announced wait is a different
//! one, for fewer tokens. No wait was announced for it yet.

use crate::bounds::{PARALLEL_LATE_MAX, PARALLEL_MAX};
use crate::clock::Tick;
use crate::lane::Outcome;
use crate::lane::Word;

const FINGERPRINT_BITS: u32 = 14;
const CROWD_SHIFT: u32 = FINGERPRINT_BITS;
const CROWD_MAX: u64 = 15;
const WAIT_SHIFT: u32 = 18;
const WAIT_MAX: u64 = 0xff;
const AT_SHIFT: u32 = 26;

/// A unit of time in nanoseconds, as a power of two.
const UNIT_SHIFT: u32 = 22;
/// A second in units, rounded as a wait is.
const SECOND: u64 = units_of(code_of(1_000_000_000 >> UNIT_SHIFT));

const _: () = assert!(Tick::MAX.as_nanos() >> UNIT_SHIFT < 1 << (64 - AT_SHIFT));
const _: () = assert!(PARALLEL_MAX == CROWD_MAX);

/// A word of the table of announced waits. Zero is a wait that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitWord(u64);

impl Word for WaitWord {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn bits(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WaitFields {
    at: u64,
    wait: u64,
    crowd: u64,
    fingerprint: u64,
}

impl WaitWord {
    const fn fields(self) -> WaitFields {
        WaitFields {
            at: self.0 >> AT_SHIFT,
            wait: units_of(self.0 >> WAIT_SHIFT & WAIT_MAX),
            crowd: self.0 >> CROWD_SHIFT & CROWD_MAX,
            fingerprint: self.0 & ((1 << FINGERPRINT_BITS) - 1),
        }
    }

    const fn new(WaitFields { at, wait, crowd, fingerprint }: WaitFields) -> Self {
        Self(at << AT_SHIFT | code_of(wait) << WAIT_SHIFT | crowd << CROWD_SHIFT | fingerprint)
    }
}

/// The longest wait of 8 bits that is not longer, encoded like a floating point
/// number: an exponent, and the four bits after the leading one.
const fn code_of(units: u64) -> u64 {
    if units < 32 {
        return units;
    }
    let shift = 59 - units.leading_zeros() as u64; // From 1: the leading one is bit 5 or above.
    if shift > 14 { WAIT_MAX } else { (shift << 4) + (units >> shift) }
}

const fn units_of(code: u64) -> u64 {
    if code < 32 {
        return code;
    }
    (16 + (code & 15)) << ((code >> 4) - 1)
}

/// The waits that a denied agent may be given, in nanoseconds. The judgement of
/// its denial selects one, and the agent gets that or the lane's if it is longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// The wait that the lane asks for.
    pub(crate) lane: u64,
    /// For a denial that does not count.
    pub(crate) first: u64,
    /// For a denial in a moment that has a violation already.
    pub(crate) counted: u64,
    /// For an agent that came back early.
    pub(crate) early: u64,
}

/// How a denial is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The agent has waited, or no wait was announced to it.
    First,
    /// The request may have been under way when the wait was announced.
    Parallel,
    /// Its moment has a violation already.
    Counted,
    /// The agent came back before the wait was over: a violation.
    Early,
}

/// The index of the agent's word for a lane in a table of this length, and its fingerprint.
pub(crate) const fn index_and_fingerprint(hash: u64, lane: u32, len: usize) -> (usize, u64) {
    // The product scatters the bits that the lane changes; its high bits are the best.
    let mixed = (hash ^ (lane as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((mixed >> 32) as usize % len, mixed >> (64 - FINGERPRINT_BITS))
}

/// Judges a denial at `now`. The judgement decides which wait the agent is given.
pub(crate) fn judge(word: WaitWord, fingerprint: u64, now: Tick, waits: Waits) -> Outcome<Judgement, WaitWord> {
    let now = now.as_nanos() >> UNIT_SHIFT;
    let longer = |step: u64| step.max(waits.lane) >> UNIT_SHIFT;
    let anew = |step, crowd| WaitWord::new(WaitFields { at: now, wait: longer(step), crowd, fingerprint });
    let outcome = |next: WaitWord, answer| Outcome { next: (next != word).then_some(next), answer };
    let last = word.fields();
    if last.fingerprint != fingerprint {
        return outcome(anew(waits.first, 0), Judgement::First);
    }
    // For an older instant no time has passed.
    let (elapsed, until) = (now.saturating_sub(last.at), last.at + last.wait);
    if last.crowd == CROWD_MAX && elapsed < SECOND {
        return outcome(word, Judgement::Counted);
    }
    if now >= until || now + longer(waits.counted) < until {
        return outcome(anew(waits.first, 0), Judgement::First);
    }
    let is_late = last.wait >= SECOND && elapsed >= last.wait / 2;
    // Counts the one that the wait was announced to.
    let parallel = last.crowd + 1;
    if elapsed >= SECOND || parallel >= if is_late { PARALLEL_LATE_MAX } else { PARALLEL_MAX } {
        return outcome(anew(waits.early, CROWD_MAX), Judgement::Early);
    }
    outcome(WaitWord::new(WaitFields { crowd: parallel, ..last }), Judgement::Parallel)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn waits(ms: u64) -> Waits {
        Waits { lane: ms * MS, first: 0, counted: 0, early: 0 }
    }

    fn judged(word: &mut WaitWord, ms: u64, waits: Waits) -> Judgement {
        let Outcome { next, answer } = judge(*word, 7, Tick::from_nanos(ms * MS), waits);
        *word = next.unwrap_or(*word);
        answer
    }

    /// Denials of an agent that is given `wait_ms` each time, by their instants.
    fn judgements<const N: usize>(wait_ms: u64, instants_ms: [u64; N]) -> [Judgement; N] {
        let mut word = WaitWord::default();
        instants_ms.map(|ms| judged(&mut word, ms, waits(wait_ms)))
    }

    use Judgement::{Counted, Early, First, Parallel};

    #[test]
    fn a_denial_after_the_wait_is_excused_and_an_early_one_is_a_violation() {
        assert_eq!(judgements(6_000, [1_000, 7_000, 13_000, 19_001]), [First; 4]);
        assert_eq!(judgements(6_000, [1_000, 4_000, 6_000, 8_000]), [First, Early, Early, Early]);
        assert_eq!(judgements(1_500, [1_000, 1_900, 2_100, 2_900, 3_700]), [First, Parallel, Early, Counted, First]);
    }

    #[test]
    fn parallel_requests_are_of_one_moment() {
        assert_eq!(judgements(6_000, [1_000, 1_000, 1_500, 1_950]), [First, Parallel, Parallel, Parallel]);
        assert_eq!(judgements(6_000, [1_000, 3_000, 3_000, 3_500, 4_100]), [First, Early, Counted, Counted, Early]);
        assert_eq!(judgements(50, [1_000, 1_020, 1_040, 1_055, 1_070]), [First, Parallel, Parallel, First, Parallel]);
    }

    #[test]
    fn a_crowd_violates_once_a_moment() {
        for wait_ms in [50, 1_000, 30_000] {
            let mut word = WaitWord::default();
            let seen: Vec<_> = (0..1_000).map(|_| judged(&mut word, 5_000, waits(wait_ms))).collect();
            assert_eq!((seen[0], seen[1], seen[14], seen[15]), (First, Parallel, Parallel, Early), "{wait_ms}");
            assert_eq!(seen.iter().filter(|seen| **seen == Early).count(), 1, "{wait_ms}");
        }
    }

    #[test]
    fn few_requests_are_under_way_late_in_a_wait() {
        // A client that polls ten times a second is given a wait of one.
        let mut word = WaitWord::default();
        let polls: Vec<_> = (0..9).map(|poll| judged(&mut word, 1_000 + 100 * poll, waits(1_000))).collect();
        assert_eq!((polls[0], polls[7], polls[8]), (First, Parallel, Early));
    }

    #[test]
    fn a_flood_violates_about_once_a_second_and_writes_little() {
        for wait_ms in [2, 50, 1_000, 30_000] {
            let (mut word, mut violations, mut writes) = (WaitWord::default(), 0, 0);
            for ms in 0..100_000 {
                let before = word;
                violations += u32::from(judged(&mut word, 1_000 + ms / 10, waits(wait_ms)) == Early);
                writes += u32::from(word != before);
            }
            // Ten seconds.
            assert!(violations <= 11 && (wait_ms < 5 || violations >= 5), "{wait_ms}: {violations}");
            assert!(writes <= 2_600, "{wait_ms}: {writes}");
        }
    }

    #[test]
    fn the_wait_of_a_larger_request_was_not_announced_to_a_smaller_one() {
        let mut word = WaitWord::default();
        assert_eq!(judged(&mut word, 1_000, waits(10_000)), First);
        assert_eq!(judged(&mut word, 4_000, waits(500)), First);
        assert_eq!(judged(&mut word, 5_000, waits(6_000)), First);
    }

    #[test]
    fn another_agents_word_is_written_over() {
        let mut word = WaitWord::default();
        judged(&mut word, 1_000, waits(6_000));
        let Outcome { next, answer } = judge(word, 8, Tick::from_nanos(4_000 * MS), waits(6_000));
        assert_eq!((answer, next.map(|next| next.fields().fingerprint)), (First, Some(8)));
    }

    #[test]
    fn waits_are_rounded_down_by_less_than_a_sixteenth() {
        for units in (0..1 << 20).chain([u64::MAX >> UNIT_SHIFT]) {
            let kept = units_of(code_of(units));
            assert!(kept <= units && (kept + kept / 16 >= units || kept == 31 << 14), "{units}: {kept}");
        }
    }

    proptest! {
        /// Whatever a word holds and whenever it is, nothing overflows.
        #[test]
        fn any_word_at_any_instant_is_answered(
            bits: u64,
            fingerprint in 0..1_u64 << 14,
            now in 0..=Tick::MAX.as_nanos(),
            wait: u64,
        ) {
            let waits = Waits { lane: wait, first: wait, counted: wait, early: wait };
            let word = WaitWord::from_bits(bits);
            prop_assert_eq!(WaitWord::new(word.fields()), word);
            let Outcome { next, .. } = judge(word, fingerprint, Tick::from_nanos(now), waits);
            prop_assert_ne!(next, Some(word));
            prop_assert_eq!(next.unwrap_or(word).fields().fingerprint, fingerprint);
        }

        /// If up to fourteen workers each come back no earlier than asked, and
        /// waits are under a second, there is no violation.
        #[test]
        fn obedient_workers_never_violate_a_short_wait(
            seed: u64, workers in 1..=14_usize, wait_ms in 1..900_u64, latency_ms in 0..200_u64,
        ) {
            let mut random = seed;
            let mut any = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below.max(1)
            };
            let mut word = WaitWord::default();
            let mut due: Vec<u64> = (0..workers).map(|_| any(1_000)).collect();
            for _ in 0..500 {
                let next = due.iter().enumerate().min_by_key(|(_, at)| **at).map_or(0, |(next, _)| next);
                let now = due[next];
                prop_assert_ne!(judged(&mut word, now, waits(wait_ms)), Early);
                due[next] = now + wait_ms + any(latency_ms);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod edges;
