//! A bounded lock-free queue that any thread pushes to and any thread polls: a
//! push never waits, and drops the oldest item when the queue is full.
//!
//! A push takes a ticket, and with it the slot that holds the ticket's words; a
//! poll reads the slot of the oldest ticket.
//!
//! ```text
//! slot:  state │ lost │ words of the item
//! state: 2 * ticket + 1  is being written
//!        2 * ticket + 2  is written          (0: never was)
//! ```
//!
//! **No item is torn.** A writer moves the state to *being written* by an
//! exchange before it writes the words, and only from an even state: no two
//! threads write a slot at once. A reader loads the words between two loads of
//! the state and discards them unless both found the ticket *written*. The
//! words are stored with Release and loaded with Acquire: a reader that got a
//! word of a later ticket sees in its second load that the state has moved on.
//!
//! **No item is polled twice, and none out of order.** The oldest ticket
//! belongs to the thread that moves `tail` past it by an exchange.
//!
//! **No thread waits.** A writer that finds its slot still being written, by
//! one that stalled a whole round ago, drops its item and leaves the ticket in
//! `lost`, so that readers skip it. A reader that finds the oldest ticket not
//! written yet returns nothing: later items stay queued behind it until it is
//! written or the ring has wrapped around. A child that is forked while another
//! thread writes loses one slot.

use crate::sync::{AtomicU64, Counter, Fault, Ordering, QuietU64, broken};

/// A bounded queue of items of `WORDS` words.
pub(crate) struct Ring<const WORDS: usize> {
    slots: Box<[Slot<WORDS>]>,
    /// The next ticket to push.
    head: AtomicU64,
    /// The oldest ticket that has not been polled.
    tail: AtomicU64,
    /// How many tickets below `tail` were never polled.
    skipped: Counter,
}

struct Slot<const WORDS: usize> {
    state: AtomicU64,
    /// One past the last ticket that was dropped here; 0 if none was.
    lost: AtomicU64,
    words: [QuietU64; WORDS],
}

const fn writing(ticket: u64) -> u64 {
    2 * ticket + 1
}

const fn written(ticket: u64) -> u64 {
    2 * ticket + 2
}

impl<const WORDS: usize> Ring<WORDS> {
    /// A ring of this many slots, at least one.
    pub(crate) fn new(slots: usize) -> Self {
        let slot = |_| Slot {
            state: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            words: std::array::from_fn(|_| QuietU64::new(0)),
        };
        Self {
            slots: (0..slots.max(1)).map(slot).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            skipped: Counter::new(0),
        }
    }

    fn slot(&self, ticket: u64) -> &Slot<WORDS> {
        &self.slots[(ticket % self.slots.len() as u64) as usize]
    }

    /// Pushes an item of up to `WORDS` words; more are cut off.
    pub(crate) fn push(&self, words: impl Iterator<Item = u64>) {
        let ticket = self.head.fetch_add(1, Ordering::AcqRel);
        let slot = self.slot(ticket);
        let seen = slot.state.load(Ordering::Relaxed);
        let is_free = (seen & 1 == 0 || broken(Fault::EventOverEvent)) && seen < writing(ticket);
        // Release, so that a thread that sees it also sees how far `head` is;
        // Acquire continues the order of earlier writers of this slot.
        let taken =
            is_free && slot.state.compare_exchange(seen, writing(ticket), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !taken {
            // Release, paired with the Acquire in `poll`.
            slot.lost.fetch_max(ticket + 1, Ordering::Release);
            return;
        }
        let order = if broken(Fault::RelaxedEvent) { Ordering::Relaxed } else { Ordering::Release };
        for (place, word) in slot.words.iter().zip(words) {
            place.store(word, order);
        }
        slot.state.store(written(ticket), Ordering::Release);
    }

    /// The oldest item and its ticket; `None` if there is none, or it is still
    /// being written.
    ///
    /// The loop ends: in each further round `tail` has moved on, by this thread
    /// or another, or the ring has wrapped around under a reader.
    pub(crate) fn poll(&self) -> Option<(u64, [u64; WORDS])> {
        loop {
            let ticket = self.tail.load(Ordering::Acquire);
            let head = self.head.load(Ordering::Acquire);
            if ticket >= head {
                return None;
            }
            let oldest = head.saturating_sub(self.slots.len() as u64);
            if ticket < oldest {
                self.skip(ticket, oldest);
                continue;
            }
            let slot = self.slot(ticket);
            let state = slot.state.load(Ordering::Acquire);
            if state < written(ticket) {
                if slot.lost.load(Ordering::Acquire) > ticket {
                    self.skip(ticket, ticket + 1);
                    continue;
                }
                return None;
            }
            let words = slot.words.each_ref().map(|word| word.load(Ordering::Acquire));
            let again = slot.state.load(Ordering::Relaxed);
            let is_whole = state == written(ticket) && (again == state || broken(Fault::NoSecondEventLook));
            if is_whole && self.advance(ticket, ticket + 1) {
                return Some((ticket, words));
            }
        }
    }

    fn advance(&self, from: u64, to: u64) -> bool {
        self.tail.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn skip(&self, from: u64, to: u64) {
        if self.advance(from, to) {
            self.skipped.fetch_add(to - from, Ordering::Relaxed);
        }
    }

    /// How many items were dropped. Those lost to a stalled writer are counted
    /// when a poll passes them.
    pub(crate) fn dropped(&self) -> u64 {
        let (tail, head) = (self.tail.load(Ordering::Acquire), self.head.load(Ordering::Acquire));
        let lapped = head.saturating_sub(tail).saturating_sub(self.slots.len() as u64);
        self.skipped.load(Ordering::Relaxed).wrapping_add(lapped)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::thread;

    fn push<const N: usize>(ring: &Ring<N>, number: u64) {
        ring.push(std::iter::repeat(number));
    }

    #[test]
    fn items_come_out_in_order_and_the_oldest_goes_first_when_it_is_full() {
        let ring = Ring::<3>::new(4);
        assert_eq!((ring.poll(), ring.dropped()), (None, 0));
        let mut kept = VecDeque::new();
        let mut dropped = 0;
        for number in 0..1_000_u64 {
            push(&ring, number);
            kept.push_back(number);
            if kept.len() > 4 {
                kept.pop_front();
                dropped += 1;
            }
            assert_eq!(ring.dropped(), dropped);
            // Polls sometimes one, sometimes all, mostly none.
            let polls = match number % 13 {
                3 | 4 => 1,
                7 => 9,
                _ => 0,
            };
            for _ in 0..polls {
                assert_eq!(ring.poll(), kept.pop_front().map(|number| (number, [number; 3])));
            }
        }
        assert_eq!(ring.dropped(), dropped);
    }

    #[test]
    fn a_short_item_is_followed_by_whatever_was_there() {
        let ring = Ring::<3>::new(1);
        push(&ring, 7);
        ring.push([1, 2].into_iter());
        assert_eq!(ring.poll(), Some((1, [1, 2, 7])));
        assert_eq!((ring.poll(), ring.dropped()), (None, 1));
    }

    /// A writer that stalls for ever costs its own item and one item per round.
    #[test]
    fn a_stalled_writer_blocks_nobody() {
        let ring = Ring::<1>::new(2);
        push(&ring, 0);
        let ticket = ring.head.fetch_add(1, Ordering::AcqRel);
        ring.slot(ticket).state.store(writing(ticket), Ordering::Relaxed);
        assert_eq!(ring.poll(), Some((0, [0])));
        push(&ring, 2);
        assert_eq!(ring.poll(), None, "what follows the stalled item waits for it");
        push(&ring, 3); // In the slot of the stalled writer.
        assert_eq!(ring.poll(), Some((2, [2])), "the ring has wrapped around");
        assert_eq!(ring.poll(), None);
        push(&ring, 4);
        assert_eq!(ring.poll(), Some((4, [4])), "and the dropped item is skipped");
        assert_eq!((ring.poll(), ring.dropped()), (None, 2));
    }

    #[test]
    fn threads_get_every_item_once_in_order_or_it_is_counted_as_dropped() {
        const PUSHED: u64 = 20_000;
        let ring = Ring::<4>::new(64);
        let polled: Vec<Vec<u64>> = thread::scope(|scope| {
            for pusher in 0..2 {
                let ring = &ring;
                scope.spawn(move || (0..PUSHED / 2).for_each(|number| push(ring, number * 2 + pusher)));
            }
            let pollers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let mut seen = Vec::new();
                    let mut last = None;
                    // Bounded by what can be pushed and by the rounds.
                    for _ in 0..200_000 {
                        let Some((ticket, words)) = ring.poll() else {
                            thread::yield_now();
                            continue;
                        };
                        assert!(words.iter().all(|word| *word == words[0]), "torn: {words:?}");
                        assert!(last < Some(ticket), "{ticket} after {last:?}");
                        last = Some(ticket);
                        seen.push(words[0]);
                    }
                    seen
                })
            });
            pollers.into_iter().map(|poller| poller.join().unwrap()).collect()
        });
        let mut all: Vec<u64> = polled.into_iter().flatten().collect();
        all.extend(std::iter::from_fn(|| ring.poll()).map(|(_, words)| words[0]));
        let count = all.len() as u64;
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u64, count, "none twice");
        assert_eq!(count + ring.dropped(), PUSHED);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::slab::models::{Preemptions, explore};
    use loom::thread;
    use std::sync::Arc;

    /// Without a bound these models take minutes.
    const BOUNDED: Preemptions = Some(3);

    /// Few slots of two words, so that pushes collide.
    fn ring(slots: usize) -> Arc<Ring<2>> {
        Arc::new(Ring::new(slots))
    }

    fn push(ring: &Ring<2>, number: u64) {
        ring.push([number, number].into_iter());
    }

    fn poll(ring: &Ring<2>) -> Option<u64> {
        ring.poll().map(|(_, [first, second])| {
            assert_eq!(first, second, "torn");
            first
        })
    }

    /// What was pushed is polled once or dropped and counted.
    fn assert_all_arrived(ring: &Ring<2>, mut polled: Vec<u64>, pushed: u64) {
        polled.extend(std::iter::from_fn(|| poll(ring)));
        let count = polled.len() as u64;
        polled.sort_unstable();
        polled.dedup();
        assert_eq!(polled.len() as u64, count, "none twice");
        assert_eq!(count + ring.dropped(), pushed, "{polled:?}");
    }

    fn a_push_over_an_item_that_is_polled() {
        let ring = ring(1);
        push(&ring, 1);
        let pusher = thread::spawn({
            let ring = Arc::clone(&ring);
            move || push(&ring, 2)
        });
        let polled = poll(&ring);
        pusher.join().unwrap();
        assert_all_arrived(&ring, polled.into_iter().collect(), 2);
    }

    #[test]
    fn a_poll_never_tears_an_item_that_is_pushed_over() {
        let name = "a_poll_never_tears_an_item_that_is_pushed_over";
        explore(name, BOUNDED, None, a_push_over_an_item_that_is_polled);
        explore(name, BOUNDED, Some(Fault::RelaxedEvent), a_push_over_an_item_that_is_polled);
        explore(name, BOUNDED, Some(Fault::NoSecondEventLook), a_push_over_an_item_that_is_polled);
    }

    fn two_pushes_to_one_slot() {
        let ring = ring(1);
        let pusher = thread::spawn({
            let ring = Arc::clone(&ring);
            move || push(&ring, 1)
        });
        push(&ring, 2);
        let polled = poll(&ring);
        pusher.join().unwrap();
        assert_all_arrived(&ring, polled.into_iter().collect(), 2);
    }

    #[test]
    fn two_pushes_do_not_mix() {
        explore("two_pushes_do_not_mix", BOUNDED, None, two_pushes_to_one_slot);
        explore("two_pushes_do_not_mix", BOUNDED, Some(Fault::EventOverEvent), two_pushes_to_one_slot);
    }

    #[test]
    fn two_polls_do_not_get_one_item() {
        explore("two_polls_do_not_get_one_item", BOUNDED, None, || {
            let ring = ring(2);
            push(&ring, 1);
            push(&ring, 2);
            let poller = thread::spawn({
                let ring = Arc::clone(&ring);
                move || poll(&ring)
            });
            let mine = poll(&ring);
            let polled = mine.into_iter().chain(poller.join().unwrap()).collect();
            assert_all_arrived(&ring, polled, 2);
        });
    }

    #[test]
    fn a_push_and_two_polls() {
        explore("a_push_and_two_polls", Some(1), None, || {
            let ring = ring(1);
            push(&ring, 1);
            let spawn = |act: fn(&Ring<2>) -> Option<u64>| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || act(&ring))
            };
            let pusher = spawn(|ring| {
                push(ring, 2);
                None
            });
            let poller = spawn(poll);
            let mine = poll(&ring);
            let polled = mine.into_iter().chain(poller.join().unwrap()).chain(pusher.join().unwrap()).collect();
            assert_all_arrived(&ring, polled, 2);
        });
    }
}
