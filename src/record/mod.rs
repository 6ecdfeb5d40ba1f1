//! An agent's state: a tag word, a word per lane, a conduct word; and the one
//! loop in which lanes meet threads.
//!
//! ```text
//! ┌───────┬────────┬────────┬─────┬────────┬─────────┐
//! │  tag  │ lane 0 │ lane 1 │  …  │ lane n │ conduct │   4 to 64 words, a power of two
//! └───────┴────────┴────────┴─────┴────────┴─────────┘
//! ```
//!
//! With three to six lanes it is one 64-byte cache line. The last word is kept
//! for conduct.
//!
//! # Why a charge is never lost, doubled, or made to somebody else
//!
//! A *tenancy* is the time from the exchange that publishes an agent's tag in
//! a record to the one that replaces it. [`replace_tenant`](Record::replace_tenant)
//! ends one, in this order, and only one thread at a time does so to a record
//! (the region's lock, see [`slab`](crate::slab)):
//!
//! 1. **close**: the tag gets its closed bit by an exchange;
//! 2. **bump**: each lane word gets the next generation by an exchange, which
//!    requires the word to be idle if the eviction is to lose nothing;
//! 3. **publish**: the new tag replaces the closed one by an exchange. It
//!    fails if the tenant opened its tag again, and then nothing has happened
//!    but that some generations moved on.
//!
//! [`update`](Record::update) charges: it loads the lane (a), reads the tag
//! again (b), computes, and exchanges the lane word (c), or if there is
//! nothing to exchange looks at it once more (d).
//!
//! *Claim*: if (b) sees the caller's open tag and (c) succeeds, then (c)
//! happens in the tenancy that (b) saw, and the eviction that ends this
//! tenancy takes the charge into account.
//!
//! Number the tenancies of the record. The bump that begins tenancy n divides
//! the history of each lane word: what is written after it, up to the next
//! such bump, belongs to n. Say the word loaded at (a) belongs to k, and (b)
//! saw the open tag of j.
//!
//! - k <= j: (a) read bump k or something that came after it by exchanges and
//!   stores with Release, so it synchronises with that bump (Acquire). So (b)
//!   sees the close that preceded it or something later, and the first open
//!   tag after that is the tag of k.
//! - j <= k: the tag of j was published after bump j, and (b) synchronises
//!   with it, so the exchange (c) meets the word of j or of a later tenancy.
//!   It succeeds only on the word of k, so j is not later than k.
//! - So j = k, and the word did not change from (a) to (c): a bump always
//!   changes the generation. (For a word to return, sixteen bumps would have
//!   to happen during one stall and within one tick of the clock: the time
//!   moves on to the present when the generations start over.)
//! - The eviction that ends tenancy k bumps this word after (c), by an
//!   exchange that therefore sees the charge: the word is then idle only if
//!   time has paid the charge back, and an inheriting newcomer inherits it.
//!
//! A tenant that finds its tag closed opens it (an exchange that lets the
//! evictor's publish fail) and goes on: a thread that stalls or dies between
//! close and publish blocks nobody. Since the closer holds the lock of the
//! region, no second evictor can close the record in the meantime, so the
//! publishing exchange cannot mistake a tag that was opened and closed again
//! for its own.
//!
//! Each exchange is linearised where it succeeds. A denial, a status and a
//! refund of nothing have no exchange: they look at the lane once more (d),
//! and the argument for (c) holds for a look that finds the same word. They
//! are linearised there.

pub(crate) mod tag;

use crate::bounds::RECORD_WORDS_RESERVED;
use crate::clock::Tick;
use crate::lane::{LaneWord, Outcome};
use crate::policy::LaneId;
use crate::prefetch::prefetch;
use crate::sync::{AtomicU64, Fault, Ordering, broken, peek};
use std::time::Duration;
use tag::TagWord;

/// How a record passes from one tenant to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Succession {
    /// Only if every lane is idle: nothing is lost.
    Idle,
    /// The newcomer takes over the lanes as they are, debt and all.
    Inherit,
    /// The lanes start afresh: the tenant is forgotten on purpose.
    Forget,
}

/// The instants at which a tenant is replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Decides what is idle.
    pub(crate) now: Tick,
    /// The clock's own time: a caller's `now` may lie ahead of it, and nothing
    /// that is left in a lane by a change of tenant may.
    pub(crate) clock: Tick,
    /// No lane is left with an older time than this.
    pub(crate) floor: Tick,
}

impl Moment {
    fn present(&self) -> Tick {
        self.now.min(self.clock)
    }
}

/// What became of one round of an update.
pub(crate) enum Attempt<A> {
    /// It is in place, or nothing was to be put in place.
    Done(A),
    /// The record is no longer the tenant's.
    Moved,
    /// Another thread's exchange came first.
    Lost,
}

/// A view of one record: the words of the slab from `start` on.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    words: &'a [AtomicU64],
    start: usize,
    lanes: usize,
}

impl<'a> Record<'a> {
    /// The record of `lanes` lanes at `start`.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], start: usize, lanes: usize) -> Self {
        debug_assert!(start + lanes + RECORD_WORDS_RESERVED <= words.len());
        Self { words, start, lanes }
    }

    /// Acquire, paired with the Release of the publishing exchange: whoever
    /// sees a tag also sees the lane words it was published over.
    #[inline]
    pub(crate) fn tag(&self) -> TagWord {
        TagWord::from_bits(self.words[self.start].load(Ordering::Acquire))
    }

    /// Asks the processor for its first cache line.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.words[self.start]);
    }

    fn lanes(&self) -> impl Iterator<Item = &'a AtomicU64> {
        self.words[self.start + 1..][..self.lanes].iter()
    }

    /// Exchanges the tag. Release pairs with [`tag`](Self::tag); Acquire
    /// continues the order of those who changed it before.
    fn exchange_tag(&self, seen: TagWord, next: TagWord) -> bool {
        self.words[self.start].compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Opens a tag that an evictor closed: its tenant is back. `None` if the
    /// record has changed hands or been opened by somebody else.
    #[cold]
    #[inline(never)]
    pub(crate) fn reopen(&self, seen: TagWord) -> Option<TagWord> {
        self.exchange_tag(seen, seen.opened()).then_some(seen.opened())
    }

    /// Applies a pure step to one lane of the tenant that holds the tag `seen`.
    ///
    /// `None` means the tag is no longer that: look the agent up again.
    /// `retried` is called after each exchange that another thread won. The
    /// loop is lock-free: a lost round is another caller's success, or an
    /// eviction that the next look at the tag ends.
    pub(crate) fn update<A>(
        &self,
        seen: TagWord,
        lane: LaneId,
        step: impl Fn(LaneWord) -> Outcome<A>,
        retried: impl Fn(),
    ) -> Option<A> {
        loop {
            match self.try_update(seen, lane, &step) {
                Attempt::Done(answer) => return Some(answer),
                Attempt::Moved => return None,
                Attempt::Lost => retried(),
            }
        }
    }

    /// One round of [`update`](Self::update).
    #[inline]
    pub(crate) fn try_update<A>(
        &self,
        seen: TagWord,
        lane: LaneId,
        step: impl Fn(LaneWord) -> Outcome<A>,
    ) -> Attempt<A> {
        let lane = &self.words[self.start + 1 + lane.index()];
        // (a) Acquire, paired with the Release of the bump in
        // `replace_tenant`: whoever reads a bumped word sees the tag closed.
        let order = if broken(Fault::RelaxedLane) { Ordering::Relaxed } else { Ordering::Acquire };
        let word = LaneWord::from_bits(lane.load(order));
        // (b) The proof rests on this second look.
        if self.tag() != seen && !broken(Fault::NoSecondLook) {
            return Attempt::Moved;
        }
        let Outcome { next, answer } = step(word);
        let Some(next) = next else {
            // (d) Nothing to exchange, so look instead whether the word is still there.
            let same = lane.load(Ordering::Relaxed) == word.bits() || broken(Fault::NoLastLook);
            return if same { Attempt::Done(answer) } else { Attempt::Lost };
        };
        if broken(Fault::ChargeByStore) {
            lane.store(next.bits(), Ordering::Release);
            return Attempt::Done(answer);
        }
        // (c) Release, so that an evictor that reads the charged word has
        // everything the charging thread did before it; the rest of the
        // argument needs only that an exchange is atomic.
        match lane.compare_exchange(word.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Attempt::Done(answer),
            Err(_) => Attempt::Lost,
        }
    }

    /// Whether every lane has been idle since `since` at the latest. A hint
    /// unless the tag is closed.
    pub(crate) fn is_idle(&self, since: Tick) -> bool {
        self.lanes().all(|lane| LaneWord::from_bits(peek(lane)).is_idle(since))
    }

    /// The words as they stand, for ranking victims. A hint.
    pub(crate) fn lane_words(&self) -> impl Iterator<Item = LaneWord> + use<'a> {
        self.words[self.start + 1..][..self.lanes].iter().map(|lane| LaneWord::from_bits(peek(lane)))
    }

    /// Puts `next` in the place of the tenant `seen`, or of nobody.
    ///
    /// The caller holds the lock of the record's region. `false` means that the
    /// tenant came back, or (with [`Succession::Idle`]) was not idle, and
    /// keeps the record.
    pub(crate) fn replace_tenant(&self, seen: TagWord, next: TagWord, succession: Succession, moment: Moment) -> bool {
        if seen.is_vacant() {
            self.settle(moment.floor);
            return self.exchange_tag(seen, next);
        }
        // Close. A tag found closed was left so by a thread that died: every
        // living closer holds the lock that this caller holds.
        let closed = if broken(Fault::NoClose) { seen } else { seen.closed() };
        if !seen.is_closed() && !self.exchange_tag(seen, closed) {
            return false;
        }
        for lane in self.lanes() {
            if !bump(lane, succession, moment) {
                // Not idle: the tenant gets its tag back, unless it took it.
                self.exchange_tag(closed, if broken(Fault::StayClosed) { closed } else { seen.opened() });
                return false;
            }
        }
        self.exchange_tag(closed, next)
    }

    /// Lifts the lanes of a vacant record to `floor`. Nobody else writes to
    /// them: its last tenant's exchanges fail on the generation. Release, as
    /// in `bump`: a caller that reads the lifted word must see the tag gone.
    fn settle(&self, floor: Tick) {
        for lane in self.lanes() {
            let word = LaneWord::from_bits(peek(lane));
            if word.time() < floor {
                let order = if broken(Fault::RelaxedSettling) { Ordering::Relaxed } else { Ordering::Release };
                lane.store(word.at(floor).bits(), order);
            }
        }
    }
}

/// Moves a lane on to the next tenancy. `false` if it must be idle and is not.
///
/// The loop ends: the tag is closed, so each lost round is a charge by one of
/// the callers that had passed the second look at the tag before.
fn bump(lane: &AtomicU64, succession: Succession, moment: Moment) -> bool {
    let Moment { now, floor, .. } = moment;
    // A guess; the exchange decides.
    let mut word = LaneWord::from_bits(peek(lane));
    loop {
        let time = match succession {
            Succession::Idle if !word.is_idle(now) && !broken(Fault::IdleUnchecked) => return false,
            Succession::Inherit if broken(Fault::NothingInherited) => floor,
            Succession::Inherit => word.time().max(floor),
            Succession::Idle | Succession::Forget => word.time().min(moment.present()).max(floor),
        };
        // The generations start over: the time moves on, so that the word of
        // sixteen tenancies ago does not return.
        let time = match word.is_last_generation() {
            true if time > moment.present() => time.saturating_add(Duration::from_nanos(1)),
            true => moment.present(),
            false => time,
        };
        let next = if broken(Fault::SameGeneration) { word.at(time) } else { word.next_tenancy(time) };
        // Release, paired with (a) in `update`.
        match lane.compare_exchange(word.bits(), next.bits(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(bits) => word = LaneWord::from_bits(bits),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A stalled charge on a lane that later tenants never use once landed on
    /// the seventeenth of them: the generation was the same again, and so was the time.
    #[test]
    fn a_word_does_not_return_when_the_generations_start_over() {
        let now = Tick::from_nanos(5);
        let moment = Moment { now, clock: now, floor: Tick::ZERO };
        for (succession, start) in [(Succession::Idle, 0), (Succession::Forget, 0), (Succession::Inherit, 9)] {
            let first = LaneWord::default().at(Tick::from_nanos(start));
            let lane = AtomicU64::new(first.bits());
            for tenancy in 1..=16 {
                assert!(bump(&lane, succession, moment));
                assert_ne!(peek(&lane), first.bits(), "{succession:?}, tenancy {tenancy}");
            }
        }
    }
}
