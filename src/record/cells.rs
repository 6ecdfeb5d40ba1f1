//! The same loop for a lane of several words.

use super::tag::TagWord;
#[cfg(feature = "cluster")]
use super::tag::{Row, Tag};
use super::{Attempt, Record, Word};
use crate::bounds::EXACT_MAX;
use crate::lane::{Choice, LaneWord, Outcome};
use crate::policy::Cells;
use crate::sync::{AtomicU64, Fault, Ordering, broken, peek};

/// Cleared room on the stack for the words of a lane, no more than needed:
/// clearing room for the longest lane takes longer than most steps.
pub(crate) fn with_words<T>(count: usize, with: impl FnOnce(&mut [LaneWord]) -> T) -> T {
    match count {
        0..=2 => with(&mut [LaneWord::default(); 2][..count]),
        3 => with(&mut [LaneWord::default(); 3]),
        _ => with(&mut [LaneWord::default(); EXACT_MAX as usize][..count]),
    }
}

impl<'a> Record<'a> {
    /// Applies a step to a lane, which may have several words; see
    /// [`update`](Self::update). The step chooses which of them changes.
    ///
    /// All are loaded before the look at the tag, so the argument for
    /// (c) holds for the one that is exchanged. An answer that changes no word
    /// holds if all are the same at a second look: then they all had these
    /// values at once, between the two looks.
    ///
    /// A step may first ask for a change that only prepares it
    /// ([`Choice::again`]). The step is then repeated on the words it finds.
    pub(crate) fn update_lane<A>(
        &self,
        seen: TagWord,
        cells: Cells,
        step: impl Fn(&[LaneWord]) -> Choice<A>,
        retried: impl Fn(),
    ) -> Option<A> {
        loop {
            match self.try_update_cells(seen, cells, &step) {
                Attempt::Done(answer) => return Some(answer),
                Attempt::Moved => return None,
                Attempt::Lost => retried(),
            }
        }
    }

    fn try_update_cells<A>(&self, seen: TagWord, cells: Cells, step: impl Fn(&[LaneWord]) -> Choice<A>) -> Attempt<A> {
        if cells.count == 1 {
            return self.try_update(seen, self.words.word(1 + cells.own), |word| step(&[word]).outcome);
        }
        // The loop ends: a step is prepared once for each change that others made meanwhile.
        with_words(cells.count, |words| {
            loop {
                if let Some(attempt) = self.try_update_words(seen, cells, words, &step) {
                    return attempt;
                }
            }
        })
    }

    /// The same with room for the words of the lane. `None` if the step was
    /// only prepared, and has to be repeated. Compiled once for each type of
    /// answer: such lanes do not have to be the fastest.
    #[inline(never)]
    fn try_update_words<A>(
        &self,
        seen: TagWord,
        cells: Cells,
        words: &mut [LaneWord],
        step: &dyn Fn(&[LaneWord]) -> Choice<A>,
    ) -> Option<Attempt<A>> {
        // (a)
        for (word, place) in words.iter_mut().zip(self.places(cells)) {
            *word = LaneWord::from_bits(place.load(Ordering::Acquire));
        }
        // (b)
        if self.tag() != seen && !broken(Fault::NoLookAfterLoad) {
            return Some(Attempt::Moved);
        }
        let Choice { cell, outcome: Outcome { next, answer }, again } = step(words);
        let Some(next) = next else {
            // (d)
            let mut again = words.iter().zip(self.places(cells));
            let same =
                broken(Fault::NoLastScan) || again.all(|(word, place)| place.load(Ordering::Relaxed) == word.bits());
            return Some(if same { Attempt::Done(answer) } else { Attempt::Lost });
        };
        // (c)
        let place = self.words.word(1 + cells.place(cell));
        // Because of Acquire above, a thread that sees a further word bumped by
        // a change of tenant or of limits, or by a reset, sees the own word
        // bumped too.
        let own = self.words.word(1 + cells.own);
        if again && own.load(Ordering::Relaxed) != words[0].bits() && !broken(Fault::NoLookBack) {
            return Some(Attempt::Lost);
        }
        if broken(Fault::PermitByStore) {
            place.store(next.bits(), Ordering::Release);
            return (!again).then_some(Attempt::Done(answer));
        }
        match place.compare_exchange(words[cell].bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => (!again).then_some(Attempt::Done(answer)),
            Err(_) => Some(Attempt::Lost),
        }
    }

    /// One round of an update for a tenant whose tag has not been read yet, of a lane of two words of which the first
    /// alone changes; see [`try_update_lane_of`](Self::try_update_lane_of). `None` of the step is a miss, as if the
    /// record were another's.
    ///
    /// What the second word said may have changed before the exchange: the step's answer must not rest on that.
    #[cfg(feature = "cluster")]
    #[inline(always)]
    pub(crate) fn try_update_first_of<A>(
        &self,
        tenant: Tag,
        cells: Cells,
        step: impl FnOnce([LaneWord; 2], Row) -> Option<Outcome<A>>,
    ) -> Attempt<A> {
        let place = self.words.word(1 + cells.own);
        let too_early = broken(Fault::NoLookAfterLoad).then(|| self.tag());
        // (a)
        let words = [Self::load(place), Self::load(self.words.word(1 + cells.more))];
        // (b)
        let row = too_early.unwrap_or_else(|| self.tag()).row_of(tenant);
        match row.and_then(|row| step(words, row)) {
            Some(outcome) => Self::put(place, words[0], outcome),
            None => Attempt::Moved,
        }
    }

    /// The words of a lane.
    fn places(&self, cells: Cells) -> impl Iterator<Item = &'a AtomicU64> + use<'a> {
        let words = self.words;
        cells.places().map(move |place| words.word(1 + place))
    }

    /// Passes the present words of a lane to `read`. A hint.
    pub(crate) fn peek_cells<T>(&self, cells: Cells, read: impl FnOnce(&[LaneWord]) -> T) -> T {
        with_words(cells.count, |words| {
            for (word, place) in words.iter_mut().zip(self.places(cells)) {
                *word = LaneWord::from_bits(peek(place));
            }
            read(words)
        })
    }
}
