//! A word that is an instant, after which it carries no information: when a
//! bucket is full again, or when a permit is free again.
//!
//! ```text
//!  63                                        4 3        0
//! ┌───────────────────────────────────────────┬──────────┐
//! │      time: nanoseconds, 60 bits           │generation│
//! └───────────────────────────────────────────┴──────────┘
//! ```
//!
//! Whether it is idle and what the next tenant finds follow from the instant
//! alone, so the kinds whose words are instants share this code.

use super::LaneWord;
use crate::clock::Tick;
use std::time::Duration;

/// The word of a bucket or of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InstantWord(LaneWord);

impl InstantWord {
    pub(crate) const fn of(word: LaneWord) -> Self {
        Self(word)
    }

    pub(crate) const fn time(self) -> Tick {
        Tick::from_nanos(self.0.payload())
    }

    /// The same tenancy at another instant.
    pub(crate) const fn at(self, time: Tick) -> LaneWord {
        self.0.with_payload(time.as_nanos())
    }

    /// How long until the instant; 0 if it has passed.
    pub(super) const fn wait(self, now: Tick) -> u64 {
        self.time().as_nanos().saturating_sub(now.as_nanos())
    }

    pub(super) fn is_idle(self, now: Tick) -> bool {
        self.time() <= now
    }

    /// The same, but no earlier than `floor`.
    pub(super) fn lifted(self, floor: Tick) -> LaneWord {
        self.at(self.time().max(floor))
    }

    /// No later than `present`, and no earlier than `floor`.
    pub(super) fn vacated(self, present: Tick, floor: Tick) -> LaneWord {
        self.at(self.time().min(present).max(floor))
    }

    /// No later than `longest` after `now`.
    pub(super) fn cut(self, now: Tick, longest: Duration) -> LaneWord {
        self.at(self.time().min(now.saturating_add(longest)))
    }

    /// Whether [`cut`](Self::cut) would change it.
    pub(super) fn is_cut(self, now: Tick, longest: Duration) -> bool {
        self.time() > now.saturating_add(longest)
    }

    /// Another instant, so that the word of sixteen generations ago does not
    /// return: the present, or a later one.
    pub(super) fn renewed(self, present: Tick) -> LaneWord {
        match self.time() {
            time if time > present => self.at(time.saturating_add(Duration::from_nanos(1))),
            _ => self.at(present),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn word(nanos: u64) -> InstantWord {
        InstantWord::of(LaneWord::default().next_generation().with_payload(nanos))
    }

    fn tick(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn an_instant_is_lifted_cut_and_renewed() {
        assert_eq!((word(90).time(), word(90).at(tick(7))), (tick(90), word(7).0));
        assert_eq!([80, 90, 100].map(|now| word(90).wait(tick(now))), [10, 0, 0]);
        assert_eq!([89, 90].map(|now| word(90).is_idle(tick(now))), [false, true]);
        assert_eq!([80, 100].map(|floor| word(90).lifted(tick(floor))), [90, 100].map(|time| word(time).0));
        assert_eq!(word(90).vacated(tick(70), tick(40)), word(70).0);
        assert_eq!(word(10).vacated(tick(70), tick(40)), word(40).0);
        let longest = Duration::from_nanos(20);
        assert_eq!([70, 69].map(|now| word(90).is_cut(tick(now), longest)), [false, true]);
        assert_eq!(word(90).cut(tick(60), longest), word(80).0);
        assert_eq!(
            [90, 100, 101, 500].map(|time| word(time).renewed(tick(100))),
            [100, 100, 102, 501].map(|t| word(t).0)
        );
    }
}
