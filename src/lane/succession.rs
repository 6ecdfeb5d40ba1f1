//! What becomes of a tenant's words under the next tenant, and under other limits.

use super::kind::{Kind, of_rules};
use super::rules::Rules;
use super::{LaneWord, Word};
use crate::clock::{At, Tick};
use crate::sync::{Fault, broken};
use std::time::Duration;

/// How a record passes from one tenant to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Only if every lane is idle and conduct is quiet: nothing is lost.
    Idle,
    /// The newcomer takes over the lanes as they are, debt and all, but not
    /// the tenant's conduct. Never from a tenant that holds a slot or has used a budget.
    Inherit,
    /// The lanes start afresh: the tenant is forgotten on purpose. If it holds a
    /// slot, it keeps the slot and the record.
    Forget,
}

/// How and when a word passes to the next tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    pub(crate) succession: Succession,
    /// Decides what is idle.
    pub(crate) now: At,
    /// The word may hold no time after this.
    pub(crate) present: Tick,
    /// No later charge counts from an instant before this.
    pub(crate) floor: At,
}

impl Kind {
    /// The word that the next tenant finds. `None` if the word must be idle
    /// and is not, or must not be given up.
    pub(crate) fn succeeded_by(self, word: LaneWord, passing: Passing) -> Option<LaneWord> {
        let Passing { succession, now, present, floor } = passing;
        let must_stay = match succession {
            Succession::Idle => !self.is_idle(word, now) && !broken(Fault::IdleUnchecked),
            Succession::Inherit => self.is_kept(word, now) && !broken(Fault::KeptUnchecked),
            Succession::Forget => false,
        };
        if must_stay {
            return None;
        }
        let left = of_rules!(self, rules => match succession {
            Succession::Idle => rules.vacated(word, present, floor),
            Succession::Forget => rules.forgotten(word, present, floor),
            Succession::Inherit if broken(Fault::NothingInherited) => rules.emptied(word, floor),
            Succession::Inherit => rules.inherited(word, floor),
        });
        Some(self.moved_on(left, present, true))
    }

    /// The word of the same tenant under another row of limits, which leaves
    /// at most `debt_max` of debt on a bucket. Held slots stay held even if
    /// lanes are filled, because their holders are still there.
    pub(crate) fn under_other_row(self, word: LaneWord, at: At, is_reset: bool, debt_max: Duration) -> LaneWord {
        let left = of_rules!(self, rules => rules.under_other_limit(word, at, is_reset, debt_max));
        // Counts are exact, so they stay as they are, and the word may return
        // if sixteen changes of the agent's row happen during one stall of a
        // call of the same agent.
        self.moved_on(left, at.now, false)
    }

    /// The next generation.
    fn moved_on(self, word: LaneWord, present: Tick, is_other_tenant: bool) -> LaneWord {
        let word = if word.is_last_generation() {
            of_rules!(self, rules => rules.renewed(word, present, is_other_tenant))
        } else {
            word
        };
        if broken(Fault::SameGeneration) { word } else { word.next_generation() }
    }

    /// The word of a vacant record that is about to be claimed, if it must change.
    pub(crate) fn settled(self, word: LaneWord, floor: At) -> Option<LaneWord> {
        let lifted = of_rules!(self, rules => rules.settled(word, floor));
        (lifted.bits() != word.bits()).then_some(lifted)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::Offset;
    use crate::lane::exact::Exact;
    use crate::lane::kind::LaneLimit;
    use crate::lane::window::Window;
    use crate::lane::{Calendar, Era, Numbers};

    /// A stalled charge on a lane that later tenants never use once landed on
    /// the seventeenth of them: the generation was the same again, and so was the time.
    #[test]
    fn a_word_does_not_return_when_the_generations_start_over() {
        let day = Era { calendar: Calendar::Day, zone_minutes: 0 };
        let kinds = [
            Kind::Bucket,
            Kind::Debt,
            Kind::Exact(Exact { length: 1_000_000 }),
            Kind::Window(Window::new(1_000_000)),
            Kind::Window(Window::new(1_000_000).second()),
            Kind::Budget(day),
            Kind::Held,
            Kind::Dynamic,
        ];
        for kind in kinds {
            for (succession, start) in [(Succession::Idle, 0), (Succession::Forget, 0), (Succession::Inherit, 9)] {
                let start = if matches!(kind, Kind::Budget(_) | Kind::Held) { 0 } else { start };
                let first = LaneWord::default().with_payload(start);
                let mut word = first;
                for tenancy in 1..=32 {
                    word = kind.succeeded_by(word, passing(succession, 5, 5, 0)).unwrap();
                    assert_ne!(word, first, "{kind:?}, {succession:?}, tenancy {tenancy}");
                }
            }
        }
    }

    /// A tenant that comes back while it is being forgotten keeps its record,
    /// with the lanes as they are by then.
    #[test]
    fn nobody_leaves_a_lane_below_the_floor() {
        let (now, floor) = (5, 70_000_000_000);
        let kinds = [
            Kind::Bucket,
            Kind::Debt,
            Kind::Exact(Exact { length: 1_000_000 }),
            Kind::Window(Window::new(60_000_000_000)),
            Kind::Dynamic,
        ];
        for kind in kinds {
            for succession in [Succession::Idle, Succession::Forget, Succession::Inherit] {
                let left = kind.succeeded_by(LaneWord::default(), passing(succession, now, now, floor)).unwrap();
                let at = |now| kind.is_idle(left, at(now));
                assert!(!at(now) && at(floor), "{kind:?}, {succession:?}");
            }
        }
    }

    const DAY: Kind = Kind::Budget(Era { calendar: Calendar::Day, zone_minutes: 0 });
    const DAY_NS: u64 = 86_400_000_000_000;

    fn bucket(nanos: u64) -> LaneWord {
        LaneWord::default().with_payload(nanos)
    }

    fn last_generation(word: LaneWord) -> LaneWord {
        (0..15).fold(word, |word, _| word.next_generation())
    }

    fn at(now: u64) -> At {
        At { now: Tick::from_nanos(now), offset: Offset::default() }
    }

    fn passing(succession: Succession, now: u64, clock: u64, floor: u64) -> Passing {
        Passing { succession, now: at(now), present: Tick::from_nanos(now.min(clock)), floor: at(floor) }
    }

    /// A lane of each kind, and what is left of it in each succession.
    #[test]
    fn what_is_left_depends_on_the_kind_and_on_the_succession() {
        use Succession::{Forget, Idle, Inherit};
        let then = |word: LaneWord| Some(word.next_generation());
        for kind in [Kind::Bucket, Kind::Dynamic, Kind::Exact(Exact { length: 50 })] {
            let left = |nanos, succession| kind.succeeded_by(bucket(nanos), passing(succession, 100, 100, 40));
            assert_eq!([10, 90, 100].map(|nanos| left(nanos, Idle)), [40, 90, 100].map(|nanos| then(bucket(nanos))));
            assert_eq!(left(101, Idle), None);
            assert_eq!([10, 90, 120].map(|nanos| left(nanos, Inherit)), [40, 90, 120].map(|nanos| then(bucket(nanos))));
            assert_eq!([10, 90, 120].map(|nanos| left(nanos, Forget)), [40, 90, 100].map(|nanos| then(bucket(nanos))));
        }
        // A caller ahead of the clock leaves no time ahead of it.
        assert_eq!(Kind::Bucket.succeeded_by(bucket(90), passing(Forget, 100, 70, 40)), then(bucket(70)));

        let each = |kind: Kind, word, now, floor| {
            [Idle, Inherit, Forget].map(|succession| kind.succeeded_by(word, passing(succession, now, now, floor)))
        };
        let held = LaneWord::default().with_payload(3);
        assert_eq!(each(Kind::Held, held, 100, 40), [None, None, then(held)]);

        // Three used on the first day; evicted on that day, and on the next.
        let limit = LaneLimit::new(DAY, DAY.row(Numbers::Count(9), 20));
        let used = limit.force(&[LaneWord::default()], at(0), 3);
        let used = used.outcome.next.unwrap();
        let emptied = |floor| then(DAY.emptied(used, at(floor)));
        assert_eq!(each(DAY, used, 100, 40), [None, None, emptied(40)]);
        assert_eq!(each(DAY, used, DAY_NS, DAY_NS), [emptied(DAY_NS); 3]);

        // Seven in the first part of a window, and a floor in the fourth.
        let (window, floor) = (Kind::Window(Window::new(60_000_000_000)), 70_000_000_000);
        let counted = LaneWord::default().with_payload(7);
        let [_, inherited, forgotten] = each(window, counted, 100, floor);
        assert_eq!(forgotten, then(window.emptied(counted, at(floor))));
        let [inherited, forgotten] = [inherited, forgotten].map(Option::unwrap);
        assert!(window.is_idle(forgotten, at(floor)) && !window.is_idle(inherited, at(floor)));
    }

    #[test]
    fn other_limits_cut_the_debt_of_a_bucket_and_a_reset_empties_what_counts() {
        let at = at(100);
        let under =
            |kind: Kind, word, reset, longest| kind.under_other_row(word, at, reset, Duration::from_nanos(longest));
        for kind in [Kind::Bucket, Kind::Dynamic, Kind::Exact(Exact { length: 50 })] {
            for (debt_max, left) in [(0, 100), (50, 150), (400, 500), (1_000, 500)] {
                assert_eq!(under(kind, bucket(500), false, debt_max), bucket(left).next_generation());
            }
        }
        let counted = LaneWord::default().with_payload(7);
        for kind in [DAY, Kind::Window(Window::new(60_000_000_000))] {
            assert_eq!(under(kind, counted, false, 0), counted.next_generation());
            assert_eq!(under(kind, counted, true, 0), kind.emptied(counted, at).next_generation());
        }
        assert_eq!(under(Kind::Held, counted, true, 0), counted.next_generation());
    }

    #[test]
    fn when_the_generations_start_over_the_instant_is_the_present_or_a_later_one() {
        let moved = |nanos| Kind::Bucket.moved_on(last_generation(bucket(nanos)), Tick::from_nanos(100), false);
        assert_eq!([90, 100, 101, 500].map(moved), [100, 100, 102, 501].map(bucket));
    }

    #[test]
    fn a_vacant_lane_is_lifted_to_the_floor() {
        let floor = at(40);
        for kind in [Kind::Bucket, Kind::Exact(Exact { length: 50 })] {
            assert_eq!([10, 40, 90].map(|nanos| kind.settled(bucket(nanos), floor)), [Some(bucket(40)), None, None]);
        }
        assert_eq!(Kind::Held.settled(LaneWord::default(), floor), None);
        assert_eq!(Kind::Held.settled(LaneWord::default().with_payload(3), floor), Some(LaneWord::default()));
    }
}
