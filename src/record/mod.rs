//! An agent's state: a tag word, a word per lane, a conduct word; and the one
//! loop in which lanes meet threads.
//!
//! ```text
//! ┌───────┬────────┬────────┬─────┬────────┬─────────┐
//! │  tag  │ lane 0 │ lane 1 │  …  │ lane n │ conduct │   4 to 256 words, a power of two
//! └───────┴────────┴────────┴─────┴────────┴─────────┘
//! ```
//!
//! The tag is in `tag.rs`, and lanes of several words are in `cells.rs`.
//! `change.rs` changes the tenant or its limits, at the instants of `moment.rs`.
//! What a lane's word means, only its [kind](crate::lane) knows.
//!
//! With three to six lanes a record is one 64-byte cache line. What follows
//! about lanes holds for the conduct word as well.
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
//!    fails if the tenant opened its tag again, and then nothing has changed
//!    except that some generations moved on.
//!
//! A tenant that keeps its record keeps its conduct. An idle tenant has no
//! conduct to keep, but a newcomer that inherits debt must not inherit
//! violations. In that case the tag is first exchanged for one that is nobody's
//! ([`TagWord::BETWEEN`]), which decides who has the record; the conduct word
//! is bumped after that, and the new tag replaces nobody's. A thread that looks
//! for one of the two agents meanwhile finds it absent, and a claim waits for
//! the lock. The argument below holds for both orders: the bump comes after the
//! old tag was closed and before the new one is published.
//!
//! [`update`](Record::update) charges: it loads the lane (a), reads the tag
//! (b), whether or not it has seen it before, computes, and exchanges the lane
//! word (c). If there is nothing to exchange, it looks at the word again (d).
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
//!   moves on to the present when the generations start over. That is a bucket;
//!   for other kinds, see the kind's file.)
//! - The eviction that ends tenancy k bumps this word after (c), by an
//!   exchange that therefore sees the charge: the word is then idle only if
//!   time has paid the charge back, and an inheriting newcomer inherits it.
//!
//! A tenant that finds its tag closed opens it (an exchange that makes the
//! evictor's publish fail) and goes on: a thread that stalls or dies between
//! close and publish blocks nobody. Since the closer holds the lock of the
//! region, no second evictor can close the record in the meantime, so the
//! publishing exchange cannot mistake a tag that was opened and closed again
//! for its own.
//!
//! # Rows
//!
//! The tag also names the row of limits that applies. The table of limits is
//! read after (b), and [`change_row`](Record::change_row) changes the row in
//! this order, under the region's lock too:
//!
//! 1. **write** the new row, which no tag names;
//! 2. **name** it: an exchange of the tag;
//! 3. **bump** each lane as above, with the debt that the new limits allow.
//!
//! After that the old row is free, and may be written for somebody else.
//!
//! *Claim*: if (c) succeeds, or (d) finds the same word, then the limits were
//! those of one row, whole, that the tag named at (b).
//!
//! Number the changes of the record's row, and say (b) read the tag that
//! change n wrote. That exchange came after the row was written (Release), so
//! what is read from the row after (b) is what change n wrote or something
//! later. If a word of the row is later, then its writer came after bump n+1,
//! since only that frees the row; reading it (Acquire) lets (c) and (d) see
//! that bump. And the word loaded at (a) is older than bump n+1: otherwise
//! (b), which comes after, would have seen the tag of change n+1. So (c)
//! fails and (d) finds another word. If no word is later, the row is whole.
//!
//! The same holds for the row of another plan of the same policy, which
//! [a request](crate::Request::plan) may name instead of the tag's own:
//! such rows are overwritten only after every record has been moved on to
//! the rows of the next policy.
//!
//! Each exchange is linearised where it succeeds. A denial, a peek and a
//! refund of nothing have no exchange: they look at the lane again (d),
//! and the argument for (c) holds for a look that finds the same word. They
//! are linearised there.

mod cells;
mod change;
mod moment;
pub(crate) mod tag;

pub(crate) use crate::lane::{Succession, Word};
pub(crate) use cells::with_words;
pub(crate) use moment::{Confirm, Moment};

use crate::conduct::ConductWord;
use crate::lane::{Kind, LaneWord, Outcome};
use crate::machine::arena::Block;
use crate::machine::processor::prefetch;
use crate::policy::LaneId;
use crate::sync::{AtomicU64, Fault, Ordering, broken, peek};
use tag::{Row, Tag, TagWord};

/// A lane's word before and after a change of row.
pub(crate) type Move = (LaneWord, LaneWord);

/// The result of one round of an update.
pub(crate) enum Attempt<A> {
    /// It is in place, or there was nothing to put in place.
    Done(A),
    /// The record is no longer the tenant's.
    Moved,
    /// Another thread's exchange came first.
    Lost,
}

/// A view of one record: the tag, the lanes, the conduct word.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    words: Block<'a>,
    lanes: usize,
}

impl<'a> Record<'a> {
    /// The record of `lanes` lanes in these words, which are enough for it.
    #[inline]
    pub(crate) fn new(words: Block<'a>, lanes: usize) -> Self {
        Self { words, lanes }
    }

    /// Asks for the first words of it; see [`prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.tag_word());
    }

    #[inline]
    fn tag_word(&self) -> &'a AtomicU64 {
        self.words.word(0)
    }

    #[inline]
    fn lane_word(&self, lane: LaneId) -> &'a AtomicU64 {
        self.words.word(1 + lane.index())
    }

    /// Acquire, paired with the Release of the publishing exchange: a thread
    /// that sees a tag also sees the lane words it was published over.
    #[inline]
    pub(crate) fn tag(&self) -> TagWord {
        TagWord::from_bits(self.tag_word().load(Ordering::Acquire))
    }

    fn lanes(&self) -> impl Iterator<Item = &'a AtomicU64> + use<'a> {
        let words = self.words;
        (1..=self.lanes).map(move |word| words.word(word))
    }

    /// The conduct word follows the lanes.
    fn conduct(&self) -> &'a AtomicU64 {
        self.words.word(1 + self.lanes)
    }

    /// Exchanges the tag. Release pairs with [`tag`](Self::tag); Acquire
    /// orders this change after the earlier ones.
    fn exchange_tag(&self, seen: TagWord, next: TagWord) -> bool {
        self.tag_word().compare_exchange(seen.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// What a thread may have left behind.
    #[cfg(test)]
    pub(crate) fn set_tag(&self, tag: TagWord) {
        self.tag_word().store(tag.bits(), Ordering::Release);
    }

    /// Opens a tag that an evictor closed: its tenant is back. `None` if the
    /// record has changed hands or been opened by somebody else.
    #[cold]
    #[inline(never)]
    pub(crate) fn reopen(&self, seen: TagWord) -> Option<TagWord> {
        self.exchange_tag(seen, seen.opened()).then_some(seen.opened())
    }

    /// Applies a pure step to one word of the tenant with the tag `seen`.
    ///
    /// `None` means that the tag has changed: look the agent up again.
    /// `retried` is called after each exchange that another thread won. The
    /// loop is lock-free: a lost round is another caller's success, or an
    /// eviction or a change of row, and then the next look at the tag ends it.
    #[inline(always)]
    fn update<W: Word, A>(
        &self,
        seen: TagWord,
        place: &AtomicU64,
        step: impl Fn(W) -> Outcome<A, W>,
        retried: impl Fn(),
    ) -> Option<A> {
        loop {
            match self.try_update(seen, place, &step) {
                Attempt::Done(answer) => return Some(answer),
                Attempt::Moved => return None,
                Attempt::Lost => retried(),
            }
        }
    }

    /// Applies a step to the conduct word; see [`update`](Self::update).
    pub(crate) fn update_conduct<A>(
        &self,
        seen: TagWord,
        step: impl Fn(ConductWord) -> Outcome<A, ConductWord>,
        retried: impl Fn(),
    ) -> Option<A> {
        self.update(seen, self.conduct(), step, retried)
    }

    /// Applies a step to a lane of one word; see [`update`](Self::update).
    #[inline]
    pub(crate) fn update_word<A>(
        &self,
        seen: TagWord,
        lane: LaneId,
        retried: impl Fn(),
        step: impl Fn(LaneWord) -> Outcome<A>,
    ) -> Option<A> {
        self.update(seen, self.lane_word(lane), step, retried)
    }

    /// One round of an update for a tenant whose tag has not been read yet; the step is given its
    /// row. [`Attempt::Moved`] if the record is another's, or the tenant is being evicted.
    #[inline]
    pub(crate) fn try_update_lane_of<A>(
        &self,
        tenant: Tag,
        lane: LaneId,
        step: impl FnOnce(LaneWord, Row) -> Outcome<A>,
    ) -> Attempt<A> {
        let place = self.lane_word(lane);
        let too_early = broken(Fault::NoLookAfterLoad).then(|| self.tag());
        let word = Self::load(place);
        // (b)
        match too_early.unwrap_or_else(|| self.tag()).row_of(tenant) {
            Some(row) => Self::put(place, word, step(word, row)),
            None => Attempt::Moved,
        }
    }

    #[inline]
    fn try_update<W: Word, A>(
        &self,
        seen: TagWord,
        place: &AtomicU64,
        step: impl Fn(W) -> Outcome<A, W>,
    ) -> Attempt<A> {
        let word = Self::load(place);
        // (b) The proof rests on this look, which comes after the load.
        if self.tag() != seen && !broken(Fault::NoLookAfterLoad) {
            return Attempt::Moved;
        }
        Self::put(place, word, step(word))
    }

    /// (a) Acquire, paired with the Release of the bump in
    /// [`replace_tenant`](Self::replace_tenant): a thread that reads a bumped word sees the tag closed.
    #[inline]
    fn load<W: Word>(place: &AtomicU64) -> W {
        let order = if broken(Fault::RelaxedLane) { Ordering::Relaxed } else { Ordering::Acquire };
        W::from_bits(place.load(order))
    }

    /// The end of an update: (c) or (d).
    #[inline]
    fn put<W: Word, A>(place: &AtomicU64, word: W, Outcome { next, answer }: Outcome<A, W>) -> Attempt<A> {
        let Some(next) = next else {
            // (d) Nothing to exchange, so see instead whether the word is still there.
            let same = place.load(Ordering::Relaxed) == word.bits() || broken(Fault::NoLastLook);
            return if same { Attempt::Done(answer) } else { Attempt::Lost };
        };
        if broken(Fault::ChargeByStore) {
            place.store(next.bits(), Ordering::Release);
            return Attempt::Done(answer);
        }
        // (c) Release, so that an evictor that reads the charged word has
        // everything the charging thread did before it; the rest of the
        // argument needs only that an exchange is atomic.
        match place.compare_exchange(word.bits(), next.bits(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => Attempt::Done(answer),
            Err(_) => Attempt::Lost,
        }
    }

    /// Whether every lane has been idle since `moment.now` at the latest, and
    /// conduct quiet. A hint unless the tag is closed.
    pub(crate) fn is_idle(&self, moment: Moment<'_>) -> bool {
        let conduct = ConductWord::from_bits(peek(self.conduct()));
        let mut lanes = self.lane_words().zip(moment.kinds);
        lanes.all(|(word, kind)| kind.is_idle(word, moment.at(moment.now))) && conduct.is_idle(moment.quiet_since)
    }

    /// Whether a slot is held. A hint unless the tag is closed and the lanes have moved on.
    pub(crate) fn holds_slots(&self, kinds: &[Kind]) -> bool {
        self.lane_words().zip(kinds).any(|(word, kind)| kind.is_held(word))
    }

    /// A lane's own word. Acquire, as in (a).
    pub(crate) fn lane_now(&self, lane: LaneId) -> LaneWord {
        Self::load(self.lane_word(lane))
    }

    /// The present words, for ranking victims. A hint.
    pub(crate) fn lane_words(&self) -> impl Iterator<Item = LaneWord> + use<'a> {
        self.lanes().map(|lane| LaneWord::from_bits(peek(lane)))
    }
}
