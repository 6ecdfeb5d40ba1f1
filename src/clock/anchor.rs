//! The counter clock's present anchor: a few words that no reader sees half-written.
//!
//! A sequence lock, with the sequence in a separate word:
//!
//! ```text
//!  even ──begin──▶ odd ──publish──▶ even + 2 ──▶ ...     readers use even anchors only
//!    └──────close─────┴───close──▶ CLOSED, odd and final
//! ```
//!
//! A reader loads the sequence, the words, and the sequence again: if it is
//! even and unchanged, the words belong together. No thread waits for ever for
//! a writer: one that was stopped between `begin` and `publish` (or whose
//! thread did not survive a fork) is closed over, and its `publish` fails.

use super::Tick;
use super::sources::Rate;
use crate::sync::{AtomicU64, Ordering};

/// A straight line from counter to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    /// The counter where the line begins.
    pub(super) counter: u64,
    /// The time there, in nanoseconds.
    pub(super) nanos: u64,
    /// How fast time runs from there on.
    pub(super) rate: Rate,
}

impl Anchor {
    /// Whether its whole line can be represented, so that no reading has to check.
    pub(super) fn is_within_range(&self, line_ticks: u64) -> bool {
        self.nanos.saturating_add(self.rate.nanos(line_ticks)) <= Tick::MAX.as_nanos()
    }
}

/// A sequence number as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence(u64);

impl Sequence {
    const FIRST: Self = Self(0);
    /// Odd, so that readers of anchors need no second test, and final.
    const CLOSED: Self = Self(u64::MAX);

    #[inline]
    fn is_even(self) -> bool {
        self.0 & 1 == 0
    }

    /// An anchor is being written.
    pub(super) fn is_busy(self) -> bool {
        !self.is_even() && !self.is_closed()
    }

    pub(super) fn is_closed(self) -> bool {
        self == Self::CLOSED
    }

    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The present anchor.
#[derive(Debug)]
pub(super) struct AnchorCell {
    sequence: AtomicU64,
    counter: AtomicU64,
    nanos: AtomicU64,
    rate: AtomicU64,
    /// What the OS clock showed at the anchor; only the comparison needs it.
    os: AtomicU64,
}

impl AnchorCell {
    pub(super) fn new(anchor: Anchor, os: u64) -> Self {
        Self {
            sequence: AtomicU64::new(Sequence::FIRST.0),
            counter: AtomicU64::new(anchor.counter),
            nanos: AtomicU64::new(anchor.nanos),
            rate: AtomicU64::new(anchor.rate.0),
            os: AtomicU64::new(os),
        }
    }

    /// The anchor, or `None` if one is being written or the cell is closed.
    #[inline]
    pub(super) fn read(&self) -> Option<Anchor> {
        self.read_whole(Self::anchor).ok().map(|(_, anchor)| anchor)
    }

    /// The anchor, its OS time and its sequence number; or the odd number that was found.
    pub(super) fn read_with_os(&self) -> Result<(Sequence, Anchor, u64), Sequence> {
        // Acquire, like every word: see `read_whole`.
        let whole = self.read_whole(|cell| (cell.anchor(), cell.os.load(Ordering::Acquire)));
        whole.map(|(sequence, (anchor, os))| (sequence, anchor, os))
    }

    #[inline]
    fn read_whole<T>(&self, words: impl Fn(&Self) -> T) -> Result<(Sequence, T), Sequence> {
        // Acquire, paired with the release in `publish`: the words are at least as new as this number.
        let sequence = Sequence(self.sequence.load(Ordering::Acquire));
        if !sequence.is_even() {
            return Err(sequence);
        }
        let words = words(self);
        // A word newer than `sequence` was read with acquire from its release
        // store, so the odd number before it is visible here. Acquire again,
        // because a thread that learns that the cell is closed needs what led
        // to it.
        let again = Sequence(self.sequence.load(Ordering::Acquire));
        if again == sequence { Ok((sequence, words)) } else { Err(again) }
    }

    #[inline]
    fn anchor(&self) -> Anchor {
        // Acquire, paired with the stores in `begin`; the reason is in `read_whole`.
        Anchor {
            counter: self.counter.load(Ordering::Acquire),
            nanos: self.nanos.load(Ordering::Acquire),
            rate: Rate(self.rate.load(Ordering::Acquire)),
        }
    }

    /// Replaces the anchor read under `sequence`. `false` if another thread
    /// was first, or closed the cell.
    pub(super) fn replace(&self, sequence: Sequence, anchor: Anchor, os: u64) -> bool {
        self.begin(sequence, anchor, os) && self.publish(sequence.next())
    }

    pub(super) fn begin(&self, sequence: Sequence, anchor: Anchor, os: u64) -> bool {
        // Release: a thread that finds the odd number sees what its writer did
        // before, and may close over it.
        if !self.advance(sequence, sequence.next()) {
            return false;
        }
        // Release, each: a thread that reads one of them sees the odd number too.
        self.counter.store(anchor.counter, Ordering::Release);
        self.nanos.store(anchor.nanos, Ordering::Release);
        self.rate.store(anchor.rate.0, Ordering::Release);
        self.os.store(os, Ordering::Release);
        true
    }

    /// Release, paired with the acquire in `read_whole`. An exchange, because
    /// the writer may have been closed over meanwhile.
    fn publish(&self, sequence: Sequence) -> bool {
        self.advance(sequence, sequence.next())
    }

    /// Ends the use of anchors for good, if the number is still this one.
    /// `true` for the thread that did it.
    pub(super) fn close(&self, sequence: Sequence) -> bool {
        self.advance(sequence, Sequence::CLOSED)
    }

    fn advance(&self, from: Sequence, to: Sequence) -> bool {
        self.sequence.compare_exchange(from.0, to.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    pub(super) fn is_closed(&self) -> bool {
        Sequence(self.sequence.load(Ordering::Acquire)).is_closed()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn anchor(of: u64) -> Anchor {
        Anchor { counter: of, nanos: of, rate: Rate(of) }
    }

    #[test]
    fn replaces_only_what_was_read() {
        let cell = AnchorCell::new(anchor(1), 1);
        let (stale, ..) = cell.read_with_os().unwrap();
        assert!(cell.replace(stale, anchor(2), 2));
        assert!(!cell.replace(stale, anchor(3), 3), "another was first");
        assert_eq!(cell.read(), Some(anchor(2)));
    }

    #[test]
    fn a_writer_that_stopped_is_closed_over() {
        let cell = AnchorCell::new(anchor(1), 1);
        let (first, ..) = cell.read_with_os().unwrap();
        assert!(cell.begin(first, anchor(2), 2));
        assert_eq!(cell.read(), None, "half written");
        let odd = cell.read_with_os().unwrap_err();
        assert!(odd.is_busy());
        assert!(cell.close(odd));
        assert!(!cell.publish(odd), "too late");
        assert!(!cell.close(odd), "closed once");
        assert!(cell.is_closed() && cell.read().is_none());
    }
}

/// Seen to fail with each of these changes alone: no second load of the
/// sequence in `read_whole`, or the first one relaxed; the words loaded relaxed
/// in `anchor`, or stored relaxed in `begin`; the exchange relaxed in
/// `advance`; a plain store in its place in `begin`, or in `publish`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn anchor(of: u64) -> Anchor {
        Anchor { counter: of, nanos: of, rate: Rate(of) }
    }

    /// A thread that replaces the first anchor.
    fn writer(cell: &Arc<AnchorCell>, of: u64) -> thread::JoinHandle<bool> {
        let cell = Arc::clone(cell);
        thread::spawn(move || cell.replace(Sequence::FIRST, anchor(of), of))
    }

    /// The one number in all words, if there is an anchor to read.
    fn whole(cell: &AnchorCell) -> Option<u64> {
        let (_, anchor, os) = cell.read_with_os().ok()?;
        let words = [anchor.counter, anchor.nanos, anchor.rate.0];
        assert!(words == [os; 3], "torn: {anchor:?}, {os}");
        Some(os)
    }

    /// One thread re-anchors while another reads: the reader never sees a mix.
    #[test]
    fn clock_anchor_is_never_torn() {
        loom::model(|| {
            let cell = Arc::new(AnchorCell::new(anchor(1), 1));
            let writer = writer(&cell, 2);
            whole(&cell);
            assert!(writer.join().unwrap());
            assert_eq!(whole(&cell), Some(2));
        });
    }

    /// Two threads re-anchor from the same reading: one of them succeeds.
    #[test]
    fn clock_anchor_has_one_writer() {
        loom::model(|| {
            let cell = Arc::new(AnchorCell::new(anchor(1), 1));
            let (one, other) = (writer(&cell, 2), writer(&cell, 3));
            let wrote = [one.join().unwrap(), other.join().unwrap()];
            assert!(wrote[0] != wrote[1], "{wrote:?}");
            assert_eq!(whole(&cell), Some(if wrote[0] { 2 } else { 3 }));
        });
    }

    /// One thread closes over a writer: either the anchor is published or the cell is closed.
    #[test]
    fn clock_anchor_is_published_or_closed() {
        loom::model(|| {
            let cell = Arc::new(AnchorCell::new(anchor(1), 1));
            let writer = writer(&cell, 2);
            let closed = cell.read_with_os().is_err_and(|seen| seen.is_busy() && cell.close(seen));
            let published = writer.join().unwrap();
            assert!(published != closed, "published {published}, closed {closed}");
            assert_eq!(cell.is_closed(), closed);
        });
    }
}
