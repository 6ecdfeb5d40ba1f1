//! The two words of a window: counts of parts, and which of them count at an
//! instant.

use super::super::{Choice, LaneWord, Outcome};
use super::{CountLimit, FIRST, SECOND};
use crate::clock::{TICK_BITS, Tick};
use crate::sync::{Fault, broken};

/// How many parts a window has.
pub(super) const PARTS: u64 = 3;

/// The length of a lane's window, in nanoseconds, and the layout of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(super) length: u64,
    /// The length of a part: together they are no shorter than the window.
    pub(super) part: u64,
    /// Bits of a count.
    pub(super) bits: u32,
}

impl Frame {
    /// `length` is not 0.
    pub(super) const fn new(length: u64) -> Self {
        let part = length.div_ceil(PARTS);
        let last_index = Tick::MAX.as_nanos() / part;
        let index_bits = u64::BITS - last_index.leading_zeros();
        Self { length, part, bits: (TICK_BITS - index_bits) / 2 }
    }

    /// All ones: there is no count.
    pub(super) const fn ones(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// The largest count.
    pub(super) const fn count_max(self) -> u64 {
        self.ones() - 1
    }
}

/// How many parts count: the present one, and a window's worth before it.
const COUNTED: usize = PARTS as usize + 1;

/// The contents of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) index: u64,
    previous: u64,
    current: u64,
}

impl Counts {
    /// What was charged in a part, as far as the word knows.
    const fn of(self, index: u64) -> u64 {
        match self.index.checked_sub(index) {
            Some(0) => self.current,
            Some(1) => self.previous,
            _ => 0,
        }
    }

    pub(super) const fn has(self, index: u64) -> bool {
        matches!(self.index.checked_sub(index), Some(0 | 1))
    }

    pub(super) const fn is_zero(self) -> bool {
        self.previous == 0 && self.current == 0
    }

    /// How much of this counts at a part, or at one before it.
    pub(super) fn counting_at(self, index: u64) -> Self {
        let counts = |of: u64| of.saturating_add(PARTS) >= index;
        let current = if counts(self.index) { self.current } else { 0 };
        let previous = if self.index > 0 && counts(self.index - 1) { self.previous } else { 0 };
        Self { index: self.index, previous, current }
    }

    /// The same less `cost`, off the later part first; and how much came off.
    pub(super) fn less(self, cost: u64) -> (Self, u64) {
        let of_current = cost.min(self.current);
        let of_previous = (cost - of_current).min(self.previous);
        let left =
            Self { current: self.current - of_current, previous: self.previous - of_previous, index: self.index };
        (left, of_current + of_previous)
    }

    /// The same less `cost`, off a part that it has.
    pub(super) fn less_of(self, index: u64, cost: u64) -> Self {
        match self.index.checked_sub(index) {
            Some(0) => Self { current: self.current.saturating_sub(cost), ..self },
            Some(1) => Self { previous: self.previous.saturating_sub(cost), ..self },
            _ => self,
        }
    }
}

/// What the two words mean at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    now: u64,
    /// The part that a charge is made in.
    pub(super) index: u64,
    /// What was charged in it, and in those before it.
    pub(super) counts: [u64; COUNTED],
    /// What the second word has to hold before the first moves on to this part.
    record: Option<Counts>,
    /// The instant from which it is known what counts, or 0.
    known_from: u64,
}

impl Seen {
    fn is_unknown(&self) -> bool {
        self.now < self.known_from
    }

    /// What counts as charged: the whole limit if it is unknown.
    pub(super) fn charged(&self, limit: CountLimit) -> u64 {
        if self.is_unknown() { limit.count() } else { self.counts.iter().sum() }
    }

    pub(super) fn with(mut self, cost: u64) -> Self {
        self.counts[0] = self.counts[0].saturating_add(cost);
        self
    }

    /// The instant at which counts of this age stop counting.
    fn over_at(&self, frame: Frame, age: usize) -> u64 {
        (self.index + COUNTED as u64 - age as u64).saturating_mul(frame.part)
    }

    /// How long until `cost`, at most the limit, passes if nothing more is charged.
    pub(super) fn wait(&self, frame: Frame, limit: u64, cost: u64) -> u64 {
        let (mut sum, mut until) = (self.counts.iter().sum::<u64>(), self.known_from);
        for (age, count) in self.counts.iter().enumerate().rev().filter(|(_, count)| **count > 0) {
            if sum <= limit.saturating_sub(cost) {
                break;
            }
            sum -= count;
            until = until.max(self.over_at(frame, age));
        }
        until.saturating_sub(self.now)
    }

    /// How long until nothing counts any more.
    pub(super) fn empty_in(&self, frame: Frame) -> u64 {
        let latest = self.counts.iter().position(|count| *count > 0);
        let over = latest.map_or(0, |age| self.over_at(frame, age));
        over.max(self.known_from).saturating_sub(self.now)
    }
}

impl Frame {
    pub(super) const fn counts(self, word: LaneWord) -> Counts {
        let payload = word.payload();
        let (previous, current) = (payload >> self.bits & self.ones(), payload & self.ones());
        let index = payload >> (2 * self.bits);
        if previous == self.ones() {
            return Counts { index, previous: 0, current: 0 };
        }
        Counts { index, previous, current }
    }

    /// The same tenancy with other counts. Under a torn limit they may be too
    /// large; such a word is thrown away.
    pub(super) fn put(self, word: LaneWord, counts: Counts) -> LaneWord {
        let Counts { index, previous, current } = counts;
        let count = |count: u64| count.min(self.count_max());
        word.with_payload(index << (2 * self.bits) | count(previous) << self.bits | count(current))
    }

    /// The same tenancy with nothing charged, in the part of `time` or later.
    /// The salt stays, if there is one. What was charged before is no longer
    /// known, so an older `now` is denied until that part begins.
    pub(super) fn emptied(self, word: LaneWord, time: Tick) -> LaneWord {
        let payload = word.payload();
        let salt = if self.is_emptied(word) { payload & self.ones() } else { 0 };
        let index = self.counts(word).index.max(time.as_nanos() / self.part);
        word.with_payload(index << (2 * self.bits) | self.ones() << self.bits | salt)
    }

    const fn is_emptied(self, word: LaneWord) -> bool {
        word.payload() >> self.bits & self.ones() == self.ones()
    }

    /// The word with its salt moved on; `None` if it has counts in its place.
    pub(super) fn salted(self, word: LaneWord) -> Option<LaneWord> {
        let payload = word.payload();
        self.is_emptied(word).then(|| word.with_payload(payload & !self.ones() | payload.wrapping_add(1) & self.ones()))
    }

    /// The word with one more in its count.
    pub(super) fn raised(self, word: LaneWord) -> LaneWord {
        let counts = self.counts(word);
        self.put(word, Counts { current: counts.current + 1, ..counts })
    }

    /// The first word moved on to `floor` if that is later, so that no later
    /// charge counts from an earlier instant. What falls off counts as charged
    /// just before that, which is stricter: this step cannot change the second
    /// word.
    pub(super) fn lifted(self, word: LaneWord, floor: Tick) -> LaneWord {
        let index = floor.as_nanos() / self.part;
        let counts = self.counts(word).counting_at(index);
        match counts.index {
            _ if counts.is_zero() => self.emptied(word, floor),
            part if part >= index => self.put(word, counts),
            _ => self.put(word, Counts { index, previous: counts.previous + counts.current, current: 0 }),
        }
    }

    /// The second word moved on to `floor`.
    pub(super) fn past_lifted(self, word: LaneWord, floor: Tick) -> LaneWord {
        let counts = self.counts(word).counting_at(floor.as_nanos() / self.part);
        if counts.is_zero() { self.emptied(word, floor) } else { word }
    }

    /// Whether nothing in this word counts at `now`.
    pub(super) fn is_idle(self, word: LaneWord, now: Tick) -> bool {
        let (counts, index) = (self.counts(word), now.as_nanos() / self.part);
        let is_unknown = self.is_emptied(word) && counts.index > index;
        counts.counting_at(index).is_zero() && !is_unknown
    }

    pub(super) fn seen(self, words: &[LaneWord], now: Tick) -> Seen {
        let [first, second] = both(words);
        let (hot, cold, now) = (self.counts(first), self.counts(second), now.as_nanos());
        let present = now / self.part;
        // Recorded for a part that the first word has yet to move on to.
        let recorded = if cold.is_zero() || broken(Fault::RecordIgnored) { 0 } else { cold.index + 2 };
        let index = present.max(hot.index).max(recorded);
        let of = |age: usize| index.checked_sub(age as u64).map_or(0, |part| hot.of(part).max(cold.of(part)));
        let counts: [u64; COUNTED] = std::array::from_fn(of);
        let falls_off = |age: u64| index.checked_sub(age).is_some_and(|part| hot.of(part) > cold.of(part));
        let is_due = index > hot.index && (falls_off(2) || falls_off(3)) && !broken(Fault::MovedOnUnrecorded);
        // Only a count of a part that existed falls off.
        let record = Counts { index: index.saturating_sub(2), previous: counts[3], current: counts[2] };
        let is_unknown = self.is_emptied(first) && hot.index > present;
        let known_from = if is_unknown { hot.index.saturating_mul(self.part) } else { 0 };
        Seen { now, index, counts, record: is_due.then_some(record), known_from }
    }

    /// Puts the counts into the first word, once what falls off there is in the second.
    pub(super) fn change<A>(self, words: &[LaneWord], seen: &Seen, current: u64, answer: A) -> Choice<A> {
        let [first, second] = both(words);
        if let Some(record) = seen.record {
            let next = Some(self.put(second, record));
            return Choice { cell: SECOND, outcome: Outcome { next, answer }, again: true };
        }
        let next = self.put(first, Counts { index: seen.index, previous: seen.counts[1], current });
        Choice::at(FIRST, Outcome { next: (next != first).then_some(next), answer })
    }
}

/// The two words of a lane; a missing one has nothing charged.
pub(super) fn both(words: &[LaneWord]) -> [LaneWord; 2] {
    [FIRST, SECOND].map(|word| words.get(word).copied().unwrap_or_default())
}
