//! Open reservations: a table that is allocated once.
//!
//! A slot's state is a generation and what becomes of it:
//!
//! ```text
//!  63                                        2 1     0
//! ┌───────────────────────────────────────────┬───────┐
//! │               generation, 62 bits         │ phase │   free, busy, open
//! └───────────────────────────────────────────┴───────┘
//! ```
//!
//! Whoever exchanges *free* or *open* for *busy* has the slot to itself until
//! it stores another state. Closing a slot moves its generation on, and an id
//! holds the low bits of the generation: so an id works until it is closed, and
//! never again. Generations start at random, so that an id that somebody made
//! up is most likely none.
//!
//! What an expired reservation had charged stays charged, and nothing else is
//! left of it: it counts neither against its agent nor for keeping a record.
//! Its slot is freed by whoever is the first to care.
//!
//! # A reservation belongs to the charge that it made
//!
//! A reset or a change of limits may forgive that charge, or a part of it;
//! what was forgiven must not be given back again. An entry therefore names
//! the record that it charged, and the generation of the lane's word. Forget,
//! reset and changes of limits all move the generation on, and the step that
//! gives back compares it with that of the very word it exchanges. So
//! nothing is given back after such a change, whenever the two meet, unless
//! the change itself says otherwise: once it has moved the words on, it walks
//! the open reservations of the agent. Forget closes them. A reset leaves them
//! worth nothing. A change of limits leaves them what is left of their charge, and
//! puts the new generation in.
//!
//! That walk takes only slots that are open. One that is busy, because its
//! charge or its settlement is under way, keeps the old generation, and
//! is worth nothing afterwards: that is stricter. It cannot slip through when
//! the generations start over either, since each later change walks too, and
//! an entry whose generation is neither the old one nor the new one is left
//! worth nothing. (A record also changes hands without a walk. Then all its
//! lanes were idle, and time had paid for the charge.)
//!
//! # What a bucket gives back
//!
//! A reservation remembers its worth as time, since debt is time: the worth of
//! a charge does not depend on the limits of the day. And it gives back only
//! what others cannot have spent.
//!
//! Think of a bucket's debt as a bar from now until it is full. A
//! reservation is a piece of that bar: it ends at `place`, which is where the bar
//! ended after its charge, and is `worth` long. The pieces do not overlap. What
//! is no piece is *plain*. Time takes the bar away from its start, so what is left of a
//! piece is
//!
//! ```text
//! worth now = min(worth, place - now)
//! ```
//!
//! *Claim*: had none of the open reservations ever been made, the bucket would
//! be in debt for no longer than the plain part. So a reservation may be given
//! back at any time, with all that is left of its piece.
//!
//! - A charge makes the bar longer by a plain part; a reservation by a piece.
//! - Time takes plain parts and pieces; without the pieces it would have taken
//!   at least as much of the plain part.
//! - A settlement takes out what is left of its piece. All other pieces then
//!   have to end within the shorter bar, one below the other ([`lower`]):
//!   those that do not are moved down, as far as need be.
//! - A refund, or the rollback of several charges, takes out no more than the
//!   plain part: what is reserved is given back by its reservation alone.
//!   Pieces move as before.
//! - Other limits may cut the bar. Each piece loses as much as was cut.
//! - To move or to shorten a piece makes the plain part longer: that is
//!   stricter. So it does no harm if an attempt fails after pieces were moved.
//!
//! None slips through. A slot is marked with its agent, its lane and its worth
//! before its charge is made, and ends above all others until the charge tells
//! where. Whoever gives back has loaded a word (Acquire): it finds the
//! slot of every charge that is in it. It moves pieces before it exchanges
//! that word (Release): whoever settles on a word that was lowered finds its
//! own piece moved. A piece that is being charged or settled meanwhile is
//! counted as if it were there: that is stricter.
//!
//! [`lower`]: Reservations::lower
//!
//! # What a window or a budget gives back
//!
//! These count, so there are no places to keep: the count of a window is at
//! least what open reservations have charged to it. A settlement takes out its
//! own, a refund no more than is above their sum ([`reserved_in`]). The loads
//! and marks are those of a bucket's pieces, and so is the argument that none
//! slips through.
//!
//! [`reserved_in`]: Reservations::reserved_in
//!
//! # The total
//!
//! Where a plan has a [total](crate::PolicyBuilder::total), a reservation
//! charges that too, and so is a piece of two bars. The second piece lies
//! beside the slot, in memory that only a limiter with a total has, and all of
//! the above holds for it by itself. One state guards both.
//!
//! # Where slots lie
//!
//! An agent's slots follow one another from the home of its *shade*, a part of
//! its hash, as far as others leave room. Each shade knows how far its slots
//! ever reached, so whoever looks for those of an agent looks at few.
//!
//! # How many an agent may have
//!
//! A slot is marked with its agent, and the shade counts it, before anything is
//! charged. If the shade had fewer than an agent may have, so had the agent.
//! Otherwise the slots are counted, those under way among them: of two callers
//! the later one in the order of the shade's counter has acquired the mark of
//! the earlier. So there are never too many. Callers that cross may both be refused.

use crate::clock::Tick;
use crate::lane::LaneWord;
use crate::policy::{Kind, LaneId, PlanId};
use crate::record::Move;
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Counter, Fault, Ordering, QuietU64, broken, wait};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const FREE: u64 = 0;
const BUSY: u64 = 1;
const OPEN: u64 = 2;

/// Bits of an id that number the slot; the others are of its generation.
const SLOT_BITS: u32 = 24;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const ID_GENERATION_MASK: u64 = u64::MAX >> SLOT_BITS;

/// How often somebody who finds a slot busy looks again: it is so for the time
/// of one charge, unless its holder was lost in a fork.
const ROUNDS_MAX: u32 = 100_000;

/// How many shades agents have: a part of their hash.
const SHADES: usize = if cfg!(loom) { 1 } else { 4_096 };

/// What is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: AgentHash,
    pub(crate) lane: LaneId,
    /// The plan that applied if the agent had no assignment.
    pub(crate) plan: Option<PlanId>,
    /// Tokens that are charged and not yet accounted for.
    pub(crate) left: u64,
    /// What one of them was charged with: nanoseconds of a bucket's time, or 1.
    pub(crate) token: u64,
    /// The most that may be given back, in the same measure.
    pub(crate) worth: u64,
    /// In which window it was charged (see `Kind::receipt`); of a bucket, no
    /// later than it has ever been going to be full since the charge.
    pub(crate) place: u64,
    /// The record that was charged.
    pub(crate) position: usize,
    /// The generation of the lane's word then.
    pub(crate) generation: u64,
    pub(crate) expires: Tick,
    /// Not for an agent that is exempt.
    pub(crate) is_charged: bool,
}

impl Entry {
    /// What the charge of a bucket is worth at `now`.
    pub(crate) fn worth_at(&self, now: Tick) -> u64 {
        left_at(self.place, self.worth, now)
    }

    /// The entry after the words of a record have moved on under other limits:
    /// `moves` holds each lane's word before and after.
    pub(crate) fn moved(self, moved: &Moved<'_>) -> Self {
        let of_lane = moved.moves.get(self.lane.index()).filter(|_| moved.position == self.position);
        let Some((before, after)) = of_lane else {
            return self;
        };
        if self.generation == after.generation() {
            return self; // Charged since.
        }
        if moved.is_reset || self.generation != before.generation() {
            return self.worthless();
        }
        let (worth, place) = if moved.kinds[self.lane.index()].is_bucket() {
            // All of what was cut may have been this charge's.
            let cut = before.payload().saturating_sub(after.payload());
            (self.worth_at(moved.now).saturating_sub(cut), self.place.min(after.payload()))
        } else {
            (self.worth, self.place)
        };
        Self { worth, place, generation: after.generation(), ..self }
    }

    /// The entry after its charge was forgiven.
    pub(crate) const fn worthless(self) -> Self {
        Self { worth: 0, ..self }
    }
}

/// What is left at `now` of a piece that ends there.
fn left_at(place: u64, worth: u64, now: Tick) -> u64 {
    worth.min(place.saturating_sub(now.as_nanos()))
}

/// A record whose words have moved on under other limits.
pub(crate) struct Moved<'a> {
    pub(crate) position: usize,
    /// Each lane's word before and after.
    pub(crate) moves: &'a [Move],
    pub(crate) kinds: &'a [Kind],
    /// Whether all lanes were filled.
    pub(crate) is_reset: bool,
    pub(crate) now: Tick,
}

/// A slot of the table. Its fields are read and written by whoever has it. But
/// others read the hash, the lane, the worth and the time, and lower `place`.
struct Slot {
    state: AtomicU64,
    /// 0 if nobody has it.
    hash: QuietU64,
    /// Of the lane.
    piece: Piece,
    left: Counter,
    expires: Counter,
}

/// What a reservation charged to one word of a record.
struct Piece {
    /// The lane and, above it, the generation of its word, whether anything was
    /// charged, and the record's position.
    charged: QuietU64,
    token: Counter,
    worth: QuietU64,
    place: QuietU64,
}

impl Piece {
    fn new() -> Self {
        let (charged, worth, place) = (QuietU64::new(NO_LANE), QuietU64::new(0), QuietU64::new(0));
        Self { charged, token: Counter::new(0), worth, place }
    }

    fn is_of(&self, lane: LaneId) -> bool {
        self.charged.load(Ordering::Relaxed) & LANE_MASK == u64::from(lane.number())
    }

    /// It is about to be charged, and ends above all others until that is done.
    fn announce(&self, lane: u64, worth: u64) {
        self.charged.store(lane, Ordering::Relaxed);
        self.worth.store(worth, Ordering::Relaxed);
        self.place.store(u64::MAX, Ordering::Relaxed);
    }

    fn put(&self, entry: &Entry) {
        let flag = if entry.is_charged { 0 } else { NOT_CHARGED };
        let charged = u64::from(entry.lane.number())
            | entry.generation << GENERATION_SHIFT
            | flag
            | (entry.position as u64 & POSITION_MASK) << POSITION_SHIFT
            | entry.plan.map_or(0, |plan| u64::from(plan.number()) + 1) << PLAN_SHIFT;
        self.charged.store(charged, Ordering::Relaxed);
        // Never raised: somebody may have lowered it meanwhile.
        self.place.fetch_min(entry.place, Ordering::Relaxed);
        self.worth.store(entry.worth, Ordering::Relaxed);
        self.token.store(entry.token, Ordering::Relaxed);
    }
}

const _: () = assert!(cfg!(loom) || size_of::<Slot>() == crate::bounds::RESERVATION_BYTES);

const GENERATION_SHIFT: u32 = 8;
const LANE_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
/// No lane has this number.
const NO_LANE: u64 = LANE_MASK;
const NOT_CHARGED: u64 = 1 << 12;
const POSITION_SHIFT: u32 = 16;
const POSITION_MASK: u64 = (1 << (PLAN_SHIFT - POSITION_SHIFT)) - 1;
/// One more than the number of the plan; 0 for none.
const PLAN_SHIFT: u32 = 48;
const _: () = assert!((crate::bounds::LANES_MAX as u64) < NO_LANE);
const _: () = assert!(crate::bounds::AGENTS_MAX < POSITION_MASK && crate::bounds::PLANS_MAX < 1 << (64 - PLAN_SHIFT));

/// The record that was charged.
const fn position(charged: u64) -> usize {
    (charged >> POSITION_SHIFT & POSITION_MASK) as usize
}

/// What is known of the agents that share a part of their hash.
struct Shade {
    /// Their open reservations.
    open: QuietU64,
    /// How many slots from its home on may be theirs.
    reach: QuietU64,
}

/// A slot that somebody has to itself.
pub(crate) struct Held<'a> {
    table: &'a Reservations,
    index: usize,
    generation: u64,
}

pub(crate) struct Reservations {
    slots: Box<[Slot]>,
    /// What each slot charged to a total; empty if there is none.
    totals: Box<[Piece]>,
    shades: Box<[Shade]>,
    /// How many an agent may have open.
    per_agent: usize,
    expired: Counter,
    refused: Counter,
}

/// How many reservations there are and were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) open: u64,
    pub(crate) expired: u64,
    pub(crate) refused: u64,
}

impl Reservations {
    pub(crate) fn new(slots: usize, per_agent: usize, has_total: bool) -> Self {
        let random = RandomState::new();
        let slot = |index: usize| Slot {
            state: AtomicU64::new(random.hash_one(index) << PHASE_BITS | FREE),
            hash: QuietU64::new(0),
            piece: Piece::new(),
            left: Counter::new(0),
            expires: Counter::new(0),
        };
        let shade = |_| Shade { open: QuietU64::new(0), reach: QuietU64::new(0) };
        Self {
            slots: (0..slots).map(slot).collect(),
            totals: (0..if has_total { slots } else { 0 }).map(|_| Piece::new()).collect(),
            shades: (0..SHADES).map(shade).collect(),
            per_agent,
            expired: Counter::new(0),
            refused: Counter::new(0),
        }
    }

    /// How many may be open at once.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many an agent may have open.
    pub(crate) fn per_agent(&self) -> usize {
        self.per_agent
    }

    fn shade(&self, low_bits: u64) -> &Shade {
        &self.shades[low_bits as usize % self.shades.len()]
    }

    /// Whether an agent with these low bits of its hash may have a reservation.
    ///
    /// Relaxed: who must not miss one has read a word that the reservation's
    /// charge released, and it was announced before that.
    pub(crate) fn may_have(&self, low_bits: u64) -> bool {
        self.shade(low_bits).open.load(Ordering::Relaxed) > 0
    }

    /// The slot that lies so far from the home of the agent's shade.
    fn index(&self, hash: AgentHash, offset: usize) -> usize {
        let shades = self.shades.len();
        let home = hash.low_bits() as usize % shades * self.slots.len() / shades;
        (home + offset) % self.slots.len()
    }

    /// The slots that may be the agent's.
    fn likely(&self, hash: AgentHash) -> impl Iterator<Item = usize> + '_ {
        // Relaxed, as for `may_have`. In an empty table nobody has reached anything.
        let reach = self.shade(hash.low_bits()).reach.load(Ordering::Relaxed) as usize;
        let slots = if self.may_have(hash.low_bits()) { reach } else { 0 };
        (0..slots).map(move |offset| self.index(hash, offset))
    }

    /// How many are open at `now`, have expired unsettled, and were refused. Walks the table.
    pub(crate) fn counts(&self, now: Tick) -> Counts {
        let is_open = |slot: &&Slot| {
            let state = slot.state.load(Ordering::Acquire);
            state & PHASE_MASK == OPEN && slot.expires() > now
        };
        Counts {
            open: self.slots.iter().filter(is_open).count() as u64,
            expired: self.expired.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Counts a reservation that was refused for want of a slot.
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a slot that is free, or whose time has passed at `now`. `None` if there is none.
    pub(crate) fn take(&self, hash: AgentHash, now: Tick) -> Option<Held<'_>> {
        let (reach, held) = (0..self.slots.len()).find_map(|offset| {
            let index = self.index(hash, offset);
            let slot = &self.slots[index];
            let state = slot.state.load(Ordering::Acquire);
            let is_open = state & PHASE_MASK == OPEN;
            if state & PHASE_MASK == BUSY || is_open && slot.expires() > now {
                return None;
            }
            let held = self.exchange(index, state)?;
            if is_open {
                // Its old id must not work for what comes next.
                return Some((offset as u64 + 1, held.expired_at(now)?));
            }
            Some((offset as u64 + 1, held))
        })?;
        self.shade(hash.low_bits()).reach.fetch_max(reach, Ordering::Relaxed);
        Some(held)
    }

    /// Closes what has expired at `now`.
    pub(crate) fn close_expired(&self, now: Tick) {
        (0..self.slots.len()).for_each(|index| self.close_if_expired(index, now));
    }

    fn close_if_expired(&self, index: usize, now: Tick) {
        let slot = &self.slots[index];
        let state = slot.state.load(Ordering::Acquire);
        if state & PHASE_MASK == OPEN && slot.expires() <= now {
            if let Some(held) = self.exchange(index, state).and_then(|held| held.expired_at(now)) {
                held.free();
            }
        }
    }

    /// The agent's reservations of a lane, but for one: where each ends, and
    /// its worth. Relaxed: of one whose charge is in a word that the caller has
    /// loaded, all of it was stored before that.
    fn pieces(&self, hash: AgentHash, lane: LaneId, but: Option<usize>) -> impl Iterator<Item = (&Piece, u64, u64)> {
        self.likely(hash).filter(move |index| but != Some(*index)).filter_map(move |index| {
            let is_theirs = self.slots[index].hash.load(Ordering::Relaxed) == hash.bits();
            let piece = if is_theirs { self.piece(index, lane) } else { None };
            piece.map(|piece| (piece, piece.place.load(Ordering::Relaxed), piece.worth.load(Ordering::Relaxed)))
        })
    }

    /// What a slot charged to this lane.
    fn piece(&self, index: usize, lane: LaneId) -> Option<&Piece> {
        let pieces = [Some(&self.slots[index].piece), self.totals.get(index)];
        pieces.into_iter().flatten().find(|piece| piece.is_of(lane))
    }

    /// How much of a bucket's debt at `now` is reserved.
    pub(crate) fn reserved(&self, hash: AgentHash, lane: LaneId, now: Tick) -> u64 {
        let lengths = self.pieces(hash, lane, None).map(|(_, place, worth)| left_at(place, worth, now));
        lengths.fold(0, u64::saturating_add)
    }

    /// How much of what was charged to a window or a calendar window is
    /// reserved. What is being charged counts for every window.
    pub(crate) fn reserved_in(&self, hash: AgentHash, lane: LaneId, window: u64) -> u64 {
        if broken(Fault::ReservedRefunded) {
            return 0;
        }
        let of_window = self.pieces(hash, lane, None).filter(|(slot, place, _)| {
            let is_charged = slot.charged.load(Ordering::Relaxed) & NOT_CHARGED == 0;
            is_charged && (*place == window || *place == u64::MAX)
        });
        of_window.map(|(_, _, worth)| worth).fold(0, u64::saturating_add)
    }

    /// Closes those of the agent that have expired at `now`.
    pub(crate) fn close_expired_of(&self, hash: AgentHash, now: Tick) {
        self.likely(hash).for_each(|index| self.close_if_expired(index, now));
    }

    /// A bucket is about to be full at `next`, sooner than it was: all pieces
    /// but that of `but` are moved down to fit. Before the exchange.
    ///
    /// Slots lie in any order, and a piece that was moved may no longer lie
    /// above one that was not yet. So it is done until all fit. A round leaves the
    /// highest piece that did not fit before it where it stays, so there is a
    /// round for each at most, and one more; others only move pieces down too.
    /// Each round takes the square of how many the agent has open on this lane.
    pub(crate) fn lower(&self, hash: AgentHash, lane: LaneId, next: LaneWord, but: Option<&Held<'_>>) {
        let but = but.map(|held| held.index);
        while !broken(Fault::NotLowered) && self.lower_once(hash, lane, next, but) {}
    }

    /// One round of it. Says whether a piece was moved.
    fn lower_once(&self, hash: AgentHash, lane: LaneId, next: LaneWord, but: Option<usize>) -> bool {
        let mut is_moved = false;
        for (piece, place, _) in self.pieces(hash, lane, but) {
            // Of those that end at the same place, one lies above the other: that is stricter.
            let is_above = |(other, end, _): &(&Piece, u64, u64)| {
                (*end, std::ptr::from_ref::<Piece>(other)) > (place, std::ptr::from_ref(piece))
            };
            let above = self.pieces(hash, lane, but).filter(is_above).map(|(_, _, worth)| worth);
            let end = next.payload().saturating_sub(above.fold(0, u64::saturating_add));
            if end < place {
                piece.place.fetch_min(end, Ordering::Relaxed);
                is_moved = true;
            }
        }
        is_moved
    }

    /// Gives every open reservation of the agent to `revise`, which says what
    /// becomes of it; `None` closes it.
    pub(crate) fn revise(&self, hash: AgentHash, revise: impl Fn(Entry) -> Option<Entry>) {
        self.likely(hash).for_each(|index| self.revise_slot(index, Some(hash), &revise));
    }

    /// The same with one slot, of this agent or of whichever.
    pub(crate) fn revise_slot(&self, index: usize, hash: Option<AgentHash>, revise: &impl Fn(Entry) -> Option<Entry>) {
        let slot = &self.slots[index];
        let state = slot.state.load(Ordering::Acquire);
        let is_other = hash.is_some_and(|hash| slot.hash.load(Ordering::Relaxed) != hash.bits());
        if state & PHASE_MASK != OPEN || is_other {
            return;
        }
        // If somebody else is faster, the slot is busy: see the module.
        let Some(held) = self.exchange(index, state) else {
            return;
        };
        let (entry, total) = (held.entry(), held.total());
        if let Some(total) = total.and_then(revise) {
            held.keep_total(Some(total));
        }
        match revise(entry) {
            Some(entry) => held.keep(entry),
            None => held.close(entry.hash),
        }
    }

    /// The slots that are open on records in this range, by position. A hint:
    /// others may be opened meanwhile.
    pub(crate) fn open_in(&self, positions: &Range<usize>) -> Vec<(usize, usize)> {
        let mut open: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| {
                let state = slot.state.load(Ordering::Acquire);
                let position = position(slot.piece.charged.load(Ordering::Relaxed));
                (state & PHASE_MASK == OPEN && positions.contains(&position)).then_some((position, index))
            })
            .collect();
        open.sort_unstable();
        open
    }

    /// Takes the slot of an id that is open at `now`.
    ///
    /// The wait ends: whoever has a slot charges a lane and gives it back; and
    /// it is bounded, should that one be lost in a fork.
    pub(crate) fn find(&self, id: u64, now: Tick) -> Option<Held<'_>> {
        let index = (id & SLOT_MASK) as usize;
        let slot = self.slots.get(index)?;
        for round in 0..ROUNDS_MAX {
            let state = slot.state.load(Ordering::Acquire);
            if state >> PHASE_BITS & ID_GENERATION_MASK != id >> SLOT_BITS && !broken(Fault::StaleId) {
                return None;
            }
            match state & PHASE_MASK {
                FREE => return None,
                OPEN => {
                    let Some(held) = self.exchange(index, state) else {
                        continue;
                    };
                    let entry = held.entry();
                    if entry.expires > now {
                        return Some(held);
                    }
                    held.keep(entry);
                    return None;
                }
                _ => wait(round),
            }
        }
        None
    }

    /// Acquire, paired with the Release of whoever had the slot before.
    fn exchange(&self, index: usize, state: u64) -> Option<Held<'_>> {
        let (busy, slot) = (state & !PHASE_MASK | BUSY, &self.slots[index].state);
        let taken = slot.compare_exchange(state, busy, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        taken.then_some(Held { table: self, index, generation: state >> PHASE_BITS })
    }
}

impl Slot {
    fn expires(&self) -> Tick {
        Tick::from_nanos(self.expires.load(Ordering::Relaxed))
    }
}

impl<'a> Held<'a> {
    fn slot(&self) -> &'a Slot {
        &self.table.slots[self.index]
    }

    pub(crate) fn id(&self) -> u64 {
        (self.generation & ID_GENERATION_MASK) << SLOT_BITS | self.index as u64
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry_of(&self.slot().piece)
    }

    /// The same of the total; `None` if nothing of one is reserved.
    pub(crate) fn total(&self) -> Option<Entry> {
        let piece = self.table.totals.get(self.index)?;
        let is_any = piece.charged.load(Ordering::Relaxed) & LANE_MASK != NO_LANE;
        is_any.then(|| self.entry_of(piece))
    }

    fn entry_of(&self, piece: &Piece) -> Entry {
        let slot = self.slot();
        let read = |word: &Counter| word.load(Ordering::Relaxed);
        let charged = piece.charged.load(Ordering::Relaxed);
        Entry {
            hash: AgentHash::from_bits(slot.hash.load(Ordering::Relaxed)),
            lane: LaneId::new((charged & LANE_MASK) as u32),
            // Lossless: there are no more plans than that.
            plan: (charged >> PLAN_SHIFT).checked_sub(1).map(|number| PlanId::new(number as u16)),
            left: read(&slot.left),
            token: read(&piece.token),
            worth: piece.worth.load(Ordering::Relaxed),
            place: piece.place.load(Ordering::Relaxed),
            position: position(charged),
            generation: charged >> GENERATION_SHIFT & 0xf,
            expires: slot.expires(),
            is_charged: charged & NOT_CHARGED == 0,
        }
    }

    /// `place` of the lane or of the total as it is now: others may have lowered
    /// it since the entry was read.
    pub(crate) fn place(&self, lane: LaneId) -> u64 {
        self.table.piece(self.index, lane).map_or(0, |piece| piece.place.load(Ordering::Relaxed))
    }

    /// Says what the reservation is about to take of a total, if anything, before
    /// the agent is [announced](Self::announce).
    pub(crate) fn announce_total(&self, total: Option<(LaneId, u64)>) {
        if let Some(piece) = self.table.totals.get(self.index) {
            let (lane, worth) = total.map_or((NO_LANE, 0), |(lane, worth)| (lane.number().into(), worth));
            piece.announce(lane, worth);
        }
    }

    /// Says that the agent is about to have a reservation of this lane and
    /// worth, before anything is charged. `false` if it has as many as it may;
    /// then the slot has to be closed.
    #[must_use]
    pub(crate) fn announce(&self, hash: AgentHash, lane: LaneId, worth: u64, now: Tick) -> bool {
        let slot = self.slot();
        slot.hash.store(hash.bits(), Ordering::Relaxed);
        slot.piece.announce(lane.number().into(), worth);
        let before = self.table.shade(hash.low_bits()).open.fetch_add(1, Ordering::AcqRel) as usize;
        let most = self.table.per_agent;
        before < most || self.others_of(hash, now) < most
    }

    /// How many other slots are the agent's, open or under way. Closes those
    /// that have expired at `now`.
    fn others_of(&self, hash: AgentHash, now: Tick) -> usize {
        self.table.close_expired_of(hash, now);
        let is_theirs = |index: &usize| {
            let slot = &self.table.slots[*index];
            let state = slot.state.load(Ordering::Acquire);
            *index != self.index && state & PHASE_MASK != FREE && slot.hash.load(Ordering::Relaxed) == hash.bits()
        };
        self.table.likely(hash).filter(is_theirs).count()
    }

    /// The slot, ready for another reservation, if this one has expired.
    /// Otherwise it was extended meanwhile, and stays.
    fn expired_at(self, now: Tick) -> Option<Self> {
        let entry = self.entry();
        if entry.expires > now {
            self.keep(entry);
            return None;
        }
        self.table.expired.fetch_add(1, Ordering::Relaxed);
        self.table.shade(entry.hash.low_bits()).open.fetch_sub(1, Ordering::Relaxed);
        Some(Held { generation: self.generation.wrapping_add(1), ..self })
    }

    /// Puts in what was reserved of a total, before [`keep`](Self::keep) opens the slot.
    pub(crate) fn keep_total(&self, total: Option<Entry>) {
        match (self.table.totals.get(self.index), total) {
            (Some(piece), Some(entry)) => piece.put(&entry),
            (Some(piece), None) => piece.charged.store(NO_LANE, Ordering::Relaxed),
            (None, _) => {}
        }
    }

    /// Opens the slot, or leaves it open, with this in it.
    pub(crate) fn keep(self, entry: Entry) {
        let slot = self.slot();
        slot.hash.store(entry.hash.bits(), Ordering::Relaxed);
        slot.piece.put(&entry);
        slot.left.store(entry.left, Ordering::Relaxed);
        slot.expires.store(entry.expires.as_nanos(), Ordering::Relaxed);
        slot.state.store(self.generation << PHASE_BITS | OPEN, Ordering::Release);
    }

    /// Frees the slot: its id works no more.
    pub(crate) fn close(self, hash: AgentHash) {
        self.table.shade(hash.low_bits()).open.fetch_sub(1, Ordering::Relaxed);
        let generation = self.generation.wrapping_add(1);
        Held { generation, ..self }.free();
    }

    /// Frees a slot that no shade counts any more.
    fn free(self) {
        self.slot().hash.store(0, Ordering::Relaxed);
        self.slot().state.store(self.generation << PHASE_BITS | FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
