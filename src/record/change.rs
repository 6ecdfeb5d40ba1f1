//! Changes of a record's tenant, and of its tenant's limits.
//!
//! [`record`](super) proves that they never lose a charge, double it or make it
//! to another agent.

use super::tag::{Row, TagWord};
use super::{Confirm, Moment, Move, Record, Succession, Word};
use crate::bounds::LANES_MAX;
use crate::clock::At;
use crate::conduct::ConductWord;
use crate::lane::{Kind, LaneWord};
use crate::policy::{LaneId, OnChange};
use crate::sync::{AtomicU64, Fault, Ordering, broken, peek};
use std::time::Duration;

impl Record<'_> {
    /// Replaces the tenant `seen`, or a vacancy, by `next`.
    ///
    /// The caller holds the lock of the record's region. `false` means that the
    /// tenant keeps the record: it came back, or (with [`Succession::Idle`]) was
    /// not idle, or `stays` returned `true` once its lanes had moved on.
    pub(crate) fn replace_tenant(
        &self,
        seen: TagWord,
        next: TagWord,
        succession: Succession,
        moment: Moment<'_>,
        stays: &dyn Fn() -> bool,
    ) -> bool {
        if seen.is_vacant() {
            self.settle(moment);
            return self.exchange_tag(seen, next);
        }
        // Close. A tag found closed was left so by a thread that died: every
        // living closer holds the lock that this caller holds.
        let closed = if broken(Fault::NoClose) { seen } else { seen.closed() };
        if !seen.is_closed() && !self.exchange_tag(seen, closed) {
            return false;
        }
        let left = self.lanes().zip(moment.kinds).all(|(lane, kind)| {
            bump(lane, |word: LaneWord| {
                confirm(moment.confirm, *kind, word);
                kind.succeeded_by(word, moment.passing(succession))
            })
        });
        // `stays` is called after the lanes: a charge that was made before they
        // moved on is visible by then, with all that its caller did before it.
        let waits = succession == Succession::Inherit && !broken(Fault::ConductGivenUpEarly);
        let stays = match succession {
            // Its conduct is forgotten, even if it stays.
            Succession::Forget => !left || !self.bump_conduct(succession, moment) || stays(),
            _ => !left || stays() || !waits && !self.bump_conduct(succession, moment),
        };
        if stays {
            // Not idle: the tenant gets its tag back, unless it took it.
            self.exchange_tag(closed, if broken(Fault::StayClosed) { closed } else { seen.opened() });
            return false;
        }
        if !waits {
            return self.exchange_tag(closed, next);
        }
        // From here on the record is nobody's, and its former tenant can no
        // longer keep it.
        if !self.exchange_tag(closed, TagWord::BETWEEN) {
            return false;
        }
        self.bump_conduct(succession, moment);
        let published = self.exchange_tag(TagWord::BETWEEN, next);
        debug_assert!(published, "under the lock nobody else changes a tag that is nobody's");
        published
    }

    fn bump_conduct(&self, succession: Succession, moment: Moment<'_>) -> bool {
        if broken(Fault::ConductNotBumped) {
            return true;
        }
        bump(self.conduct(), |word: ConductWord| {
            let may = succession != Succession::Idle || word.is_idle(moment.quiet_since);
            may.then(|| word.next_tenancy())
        })
    }

    /// Ends a change of tenant that a fork interrupted: a tenant that can
    /// still have its record gets it back, and a record between two tenants
    /// becomes vacant. Returns the tag. The caller holds the lock of the
    /// record's region.
    #[cold]
    pub(crate) fn put_right(&self) -> TagWord {
        let seen = self.tag();
        if seen == TagWord::BETWEEN {
            bump(self.conduct(), |word: ConductWord| Some(word.next_tenancy()));
        }
        if seen.is_closed() {
            self.reopen(seen); // Or its tenant did.
        }
        self.tag()
    }

    /// Puts the tenant `seen` under another row of limits, which is written
    /// already. `debt_max` is the longest debt that the row leaves on a lane.
    /// Returns each lane's own word before and after.
    ///
    /// The caller holds the lock of the record's region, so nobody else
    /// changes an open tag.
    #[expect(clippy::too_many_arguments, reason = "all that a change of limits depends on")]
    pub(crate) fn change_row(
        &self,
        seen: TagWord,
        row: Row,
        kinds: &[Kind],
        on_change: OnChange,
        clock: impl Fn() -> At,
        debt_max: impl Fn(LaneId) -> u64,
        confirms: Option<&dyn Confirm>,
    ) -> [Move; LANES_MAX] {
        let mut moves = [(LaneWord::default(), LaneWord::default()); LANES_MAX];
        let name_row = || {
            let named = self.exchange_tag(seen, seen.with_row(row));
            debug_assert!(named, "under the lock an open tag does not change");
        };
        if !broken(Fault::BumpBeforeRow) {
            name_row();
        }
        let start = clock();
        for ((index, lane), kind) in self.lanes().enumerate().zip(kinds) {
            if broken(Fault::RowWithoutBump) {
                break;
            }
            let longest = Duration::from_nanos(match on_change {
                OnChange::KeepDebt if kind.is_bucket() => debt_max(LaneId::new(index as u32)),
                // A permit rests for the same time under every limit of its lane.
                OnChange::KeepDebt => u64::MAX,
                OnChange::Reset => 0,
            });
            bump(lane, |word: LaneWord| {
                confirm(confirms, *kind, word);
                // Debt is cut at an instant after it was made, and so after
                // the word was read: an older instant would also cut the time
                // between, and pay it back twice.
                let at = if kind.is_cut(word, start.now, longest) { clock() } else { start };
                let next = kind.under_other_row(word, at, on_change == OnChange::Reset, longest);
                // The lanes' own words come first; nobody needs the further ones.
                if let Some(moved) = moves.get_mut(index) {
                    *moved = (word, next);
                }
                Some(next)
            });
        }
        if broken(Fault::BumpBeforeRow) {
            name_row();
        }
        moves
    }

    /// Lifts the lanes of a vacant record to the floor. Nobody else writes to
    /// them: its last tenant's exchanges fail on the generation. Release, as
    /// in `bump`: a caller that reads the lifted word must see the tag gone.
    fn settle(&self, moment: Moment<'_>) {
        for (lane, kind) in self.lanes().zip(moment.kinds) {
            if let Some(lifted) = kind.settled(LaneWord::from_bits(peek(lane)), moment.at(moment.floor)) {
                let order = if broken(Fault::RelaxedSettling) { Ordering::Relaxed } else { Ordering::Release };
                lane.store(lifted.bits(), order);
            }
        }
    }
}

/// Confirms a word that is about to be replaced, if it is a held one of a shared slab.
fn confirm(confirms: Option<&dyn Confirm>, kind: Kind, word: LaneWord) {
    if let (Some(confirms), Kind::Held) = (confirms, kind) {
        confirms.confirm(word);
    }
}

/// Moves a word on by an exchange. `false` if `next` returns `None`: it must stay.
///
/// The loop ends: each lost round is the success of a caller that had passed
/// its look at the tag before the tag changed, or of one that came after a
/// change of row.
fn bump<W: Word>(place: &AtomicU64, mut next: impl FnMut(W) -> Option<W>) -> bool {
    // A guess; the exchange decides.
    let mut word = W::from_bits(peek(place));
    loop {
        let Some(next) = next(word) else {
            return false;
        };
        // Release, paired with (a) in `update`.
        match place.compare_exchange(word.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(bits) => word = W::from_bits(bits),
        }
    }
}
