//! What a tenant's lanes are to the next one.

use super::Word;
use crate::clock::{At, Offset, Tick};
use crate::lane::{LaneWord, budget, held};
use crate::policy::Kind;
use crate::sync::{Fault, broken};
use std::time::Duration;

/// How a record passes from one tenant to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Only if every lane is idle and conduct is quiet: nothing is lost.
    Idle,
    /// The newcomer takes over the lanes as they are, debt and all, but not
    /// the tenant's conduct. Never of a tenant that holds a slot or has used a budget.
    Inherit,
    /// The lanes start afresh: the tenant is forgotten on purpose. One that
    /// holds a slot keeps that, and the record for it.
    Forget,
}

/// The instants at which a tenant is replaced, and the kinds of its lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub(crate) kinds: &'a [Kind],
    /// Decides which lanes are idle.
    pub(crate) now: Tick,
    /// Conduct is quiet if there was no violation after this.
    pub(crate) quiet_since: Tick,
    /// The clock's own time: a caller's `now` may lie ahead of it, and nothing
    /// that is left in a lane by a change of tenant may.
    pub(crate) clock: Tick,
    /// No lane is left with an older time than this.
    pub(crate) floor: Tick,
    /// What the calendar is to the clock.
    pub(crate) offset: Offset,
}

impl Moment<'_> {
    pub(super) fn present(&self) -> Tick {
        self.now.min(self.clock)
    }

    pub(super) fn at(&self, now: Tick) -> At {
        At { now, offset: self.offset }
    }
}

impl Kind {
    /// The word that the next tenant finds. `None` if the lane must be idle
    /// and is not, or is not to be given up.
    pub(super) fn succeeded_by(self, word: LaneWord, succession: Succession, moment: Moment<'_>) -> Option<LaneWord> {
        let (now, floor) = (moment.at(moment.now), moment.at(moment.floor));
        let must_stay = match succession {
            Succession::Idle => !self.is_idle(word, now) && !broken(Fault::IdleUnchecked),
            Succession::Inherit => self.is_kept(word, now) && !broken(Fault::KeptUnchecked),
            Succession::Forget => false,
        };
        if must_stay {
            return None;
        }
        let inherits = succession == Succession::Inherit && !broken(Fault::NothingInherited);
        let left = match self {
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } if inherits => word.at(word.time().max(floor.now)),
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } if succession == Succession::Inherit => word.at(floor.now),
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => word.at(word.time().min(moment.present()).max(floor.now)),
            Kind::Window(frame) if inherits => frame.lifted(word, floor.now),
            Kind::Past(frame) if inherits => frame.past_lifted(word, floor.now),
            // Whoever holds a slot is still there, and the tenant stays for it.
            Kind::Held if succession == Succession::Forget => word,
            Kind::Window(_) | Kind::Past(_) | Kind::Budget(_) | Kind::Held => self.emptied(word, floor),
        };
        // One more in an inherited count is only stricter.
        let raised = |word| match self {
            Kind::Window(frame) | Kind::Past(frame) => frame.raised(word),
            _ => word,
        };
        Some(self.moved_on(left, moment.present(), raised))
    }

    /// The word of the same tenant under another row of limits, which leaves
    /// at most `debt_max` nanoseconds of debt on a bucket. Slots that are held
    /// stay so even if lanes are to be filled: whoever holds them is still there.
    pub(crate) fn under_other_row(self, word: LaneWord, at: At, reset: bool, debt_max: Duration) -> LaneWord {
        let left = match self {
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => word.at(word.time().min(at.now.saturating_add(debt_max))),
            Kind::Window(_) | Kind::Past(_) | Kind::Budget(_) if reset => self.emptied(word, at),
            Kind::Window(_) | Kind::Past(_) | Kind::Budget(_) | Kind::Held => word,
        };
        // Counts are exact, so they stay as they are, and the word may return
        // if sixteen changes of the agent's row happen during one stall of a
        // call of the same agent.
        self.moved_on(left, at.now, |word| word)
    }

    /// The next generation. When the generations start over, something else of
    /// the word moves on, so that the word of sixteen generations ago does not
    /// return: an instant, or the salt of a lane in which nothing was charged;
    /// `raised` says what else.
    fn moved_on(self, word: LaneWord, present: Tick, raised: impl Fn(LaneWord) -> LaneWord) -> LaneWord {
        let word = match self {
            _ if !word.is_last_generation() => word,
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } if word.time() > present => {
                word.at(word.time().saturating_add(Duration::from_nanos(1)))
            }
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => word.at(present),
            Kind::Window(frame) | Kind::Past(frame) => frame.salted(word).unwrap_or_else(|| raised(word)),
            Kind::Budget(_) => budget::salted(word).unwrap_or(word),
            Kind::Held => held::salted(word),
        };
        if broken(Fault::SameGeneration) { word } else { word.next_generation() }
    }

    /// The word of a vacant record that is about to be claimed, if it must change.
    pub(super) fn settled(self, word: LaneWord, floor: At) -> Option<LaneWord> {
        let lifted = match self {
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => word.at(word.time().max(floor.now)),
            Kind::Window(_) | Kind::Past(_) | Kind::Budget(_) | Kind::Held => self.emptied(word, floor),
        };
        (lifted.bits() != word.bits()).then_some(lifted)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::bump;
    use super::*;
    use crate::policy::{Calendar, Era, Frame};
    use crate::sync::{AtomicU64, peek};

    /// A stalled charge on a lane that later tenants never use once landed on
    /// the seventeenth of them: the generation was the same again, and so was the time.
    #[test]
    fn a_word_does_not_return_when_the_generations_start_over() {
        let now = Tick::from_nanos(5);
        let day = Era { calendar: Calendar::Day, zone_minutes: 0 };
        let kinds = [
            Kind::Bucket,
            Kind::Debt,
            Kind::Exact { length: 1_000_000 },
            Kind::Window(Frame::new(1_000_000)),
            Kind::Past(Frame::new(1_000_000)),
            Kind::Budget(day),
            Kind::Held,
        ];
        for kind in kinds {
            let offset = Offset::default();
            let moment = Moment { kinds: &kinds, now, quiet_since: now, clock: now, floor: Tick::ZERO, offset };
            for (succession, start) in [(Succession::Idle, 0), (Succession::Forget, 0), (Succession::Inherit, 9)] {
                let start = if matches!(kind, Kind::Budget(_) | Kind::Held) { 0 } else { start };
                let first = LaneWord::default().with_payload(start);
                let lane = AtomicU64::new(first.bits());
                for tenancy in 1..=32 {
                    assert!(bump(&lane, |word| kind.succeeded_by(word, succession, moment)));
                    assert_ne!(peek(&lane), first.bits(), "{kind:?}, {succession:?}, tenancy {tenancy}");
                }
            }
        }
    }

    /// A tenant that comes back while it is forgotten keeps its record, and
    /// with it the lanes as they were left.
    #[test]
    fn nobody_leaves_a_lane_below_the_floor() {
        let (now, floor) = (Tick::from_nanos(5), Tick::from_nanos(70_000_000_000));
        let kinds =
            [Kind::Bucket, Kind::Debt, Kind::Exact { length: 1_000_000 }, Kind::Window(Frame::new(60_000_000_000))];
        let moment = Moment { kinds: &kinds, now, quiet_since: now, clock: now, floor, offset: Offset::default() };
        for kind in kinds {
            for succession in [Succession::Idle, Succession::Forget, Succession::Inherit] {
                let left = kind.succeeded_by(LaneWord::default(), succession, moment).unwrap();
                let at = |now| kind.is_idle(left, moment.at(now));
                assert!(!at(now) && at(floor), "{kind:?}, {succession:?}");
            }
        }
    }

    const DAY: Kind = Kind::Budget(Era { calendar: Calendar::Day, zone_minutes: 0 });
    const DAY_NS: u64 = 86_400_000_000_000;

    fn bucket(nanos: u64) -> LaneWord {
        LaneWord::default().at(Tick::from_nanos(nanos))
    }

    fn last_generation(word: LaneWord) -> LaneWord {
        (0..15).fold(word, |word, _| word.next_generation())
    }

    fn moment(now: u64, clock: u64, floor: u64) -> Moment<'static> {
        let [now, clock, floor] = [now, clock, floor].map(Tick::from_nanos);
        Moment { kinds: &[], now, quiet_since: now, clock, floor, offset: Offset::default() }
    }

    /// A lane of each kind, and what is left of it in each succession.
    #[test]
    fn what_is_left_depends_on_the_kind_and_on_the_succession() {
        use Succession::{Forget, Idle, Inherit};
        let left = |kind: Kind, word, succession, moment| kind.succeeded_by(word, succession, moment);
        let then = |word: LaneWord| Some(word.next_generation());
        for kind in [Kind::Bucket, Kind::Exact { length: 50 }] {
            let left = |nanos, succession| left(kind, bucket(nanos), succession, moment(100, 100, 40));
            assert_eq!([10, 90, 100].map(|nanos| left(nanos, Idle)), [40, 90, 100].map(|nanos| then(bucket(nanos))));
            assert_eq!(left(101, Idle), None);
            assert_eq!([10, 90, 120].map(|nanos| left(nanos, Inherit)), [40, 90, 120].map(|nanos| then(bucket(nanos))));
            assert_eq!([10, 90, 120].map(|nanos| left(nanos, Forget)), [40, 90, 100].map(|nanos| then(bucket(nanos))));
        }
        // A caller ahead of the clock leaves nothing that is.
        assert_eq!(left(Kind::Bucket, bucket(90), Forget, moment(100, 70, 40)), then(bucket(70)));

        let held = LaneWord::default().with_payload(3);
        let of_held =
            [Idle, Inherit, Forget].map(|succession| left(Kind::Held, held, succession, moment(100, 100, 40)));
        assert_eq!(of_held, [None, None, then(held)]);

        // Three used on the first day; evicted on that day, and on the next.
        let used = budget::force(
            Era { calendar: Calendar::Day, zone_minutes: 0 },
            LaneWord::default(),
            moment(0, 0, 0).at(Tick::ZERO),
            3,
        );
        let used = used.next.unwrap();
        let day =
            |now, floor| [Idle, Inherit, Forget].map(|succession| left(DAY, used, succession, moment(now, now, floor)));
        let emptied = |floor| then(DAY.emptied(used, moment(0, 0, 0).at(Tick::from_nanos(floor))));
        assert_eq!(day(100, 40), [None, None, emptied(40)]);
        assert_eq!(day(DAY_NS, DAY_NS), [emptied(DAY_NS); 3]);

        let frame = Frame::new(60_000_000_000);
        let counted = LaneWord::default().with_payload(7);
        let window = |succession| left(Kind::Window(frame), counted, succession, moment(100, 100, 70_000_000_000));
        let floor = Tick::from_nanos(70_000_000_000);
        assert_eq!(window(Inherit), then(frame.lifted(counted, floor)));
        assert_eq!(window(Forget), then(Kind::Window(frame).emptied(counted, moment(0, 0, 0).at(floor))));
    }

    #[test]
    fn other_limits_cut_the_debt_of_a_bucket_and_a_reset_empties_what_counts() {
        let at = moment(100, 100, 0).at(Tick::from_nanos(100));
        let under =
            |kind: Kind, word, reset, longest| kind.under_other_row(word, at, reset, Duration::from_nanos(longest));
        for kind in [Kind::Bucket, Kind::Exact { length: 50 }] {
            for (debt_max, left) in [(0, 100), (50, 150), (400, 500), (1_000, 500)] {
                assert_eq!(under(kind, bucket(500), false, debt_max), bucket(left).next_generation());
            }
        }
        let counted = LaneWord::default().with_payload(7);
        for kind in [DAY, Kind::Window(Frame::new(60_000_000_000))] {
            assert_eq!(under(kind, counted, false, 0), counted.next_generation());
            assert_eq!(under(kind, counted, true, 0), kind.emptied(counted, at).next_generation());
        }
        assert_eq!(under(Kind::Held, counted, true, 0), counted.next_generation());
    }

    #[test]
    fn when_the_generations_start_over_the_instant_is_the_present_or_a_later_one() {
        let moved = |nanos| Kind::Bucket.moved_on(last_generation(bucket(nanos)), Tick::from_nanos(100), |word| word);
        assert_eq!([90, 100, 101, 500].map(moved), [100, 100, 102, 501].map(bucket));
    }

    #[test]
    fn a_vacant_lane_is_lifted_to_the_floor() {
        let floor = moment(0, 0, 0).at(Tick::from_nanos(40));
        for kind in [Kind::Bucket, Kind::Exact { length: 50 }] {
            assert_eq!([10, 40, 90].map(|nanos| kind.settled(bucket(nanos), floor)), [Some(bucket(40)), None, None]);
        }
        assert_eq!(Kind::Held.settled(LaneWord::default(), floor), None);
        assert_eq!(Kind::Held.settled(LaneWord::default().with_payload(3), floor), Some(LaneWord::default()));
    }
}
