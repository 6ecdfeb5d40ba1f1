//! The store and the other machines, as a check has to know them.
//!
//! ```text
//!  63            42 41                18  17      16    15            0
//! ┌────────────────┬────────────────────┬───────┬──────┬───────────────┐
//! │     until      │ wait after an ask  │ asks? │ lost │    nodes      │
//! └────────────────┴────────────────────┴───────┴──────┴───────────────┘
//! ```
//!
//! `asks?` of a lost store says that the engine has *ended*: no credit is spent any
//! more, since it is given back, or is another process's.
//!
//! The engine renews `until`, in units of about a quarter of a second. So an engine
//! that has died is found lost after a second or two, by every check.

use crate::clock::Tick;
use std::num::NonZeroU16;

/// Whether the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Connected,
    Lost,
}

/// The state of the link, the number of machines, and how long a question takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkWord(u64);

const LOST: u64 = 1 << 16;
const TAKES_ASKS: u64 = 1 << 17;
const WAIT_SHIFT: u32 = 18;
const WAIT_BITS: u32 = 24;
/// The longest wait, in microseconds: 16 s.
const WAIT_MAX_US: u64 = (1 << WAIT_BITS) - 1;
const UNTIL_SHIFT: u32 = WAIT_SHIFT + WAIT_BITS;
const UNTIL_MASK: u64 = u64::MAX >> UNTIL_SHIFT;
/// 2^28 ns.
const UNIT_SHIFT: u32 = 28;
/// For how many units the engine's word holds: 0.8 to 1.1 s.
const LIVES_FOR: u64 = 4;

fn unit(now: Tick) -> u64 {
    now.as_nanos() >> UNIT_SHIFT
}

impl LinkWord {
    /// Before an engine says otherwise.
    pub(crate) const LOST: Self = Self::lost(NonZeroU16::MIN);

    /// What a living engine says at `now`.
    pub(crate) fn connected(nodes: NonZeroU16, wait_us: u64, now: Tick) -> Self {
        let until = (unit(now) + LIVES_FOR) & UNTIL_MASK;
        Self(until << UNTIL_SHIFT | wait_us.min(WAIT_MAX_US) << WAIT_SHIFT | TAKES_ASKS | u64::from(nodes.get()))
    }

    pub(crate) const fn lost(nodes: NonZeroU16) -> Self {
        Self(LOST | nodes.get() as u64)
    }

    /// The same for good: no engine settles any more, and credit is not to be spent.
    pub(crate) const fn ended(nodes: u16) -> Self {
        Self(LOST | TAKES_ASKS | nodes as u64)
    }

    /// Whether credit may be spent.
    pub(crate) const fn honours_credit(self) -> bool {
        self.0 & (LOST | TAKES_ASKS) != LOST | TAKES_ASKS
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn state(self, now: Tick) -> LinkState {
        let left = (self.0 >> UNTIL_SHIFT).wrapping_sub(unit(now)) & UNTIL_MASK;
        let is_live = (1..=2 * LIVES_FOR).contains(&left);
        if self.0 & LOST == 0 && is_live { LinkState::Connected } else { LinkState::Lost }
    }

    /// How many machines share the store, this one among them; at least 1.
    pub(crate) const fn nodes(self) -> u16 {
        let nodes = self.0 as u16;
        if nodes == 0 { 1 } else { nodes }
    }

    /// The same while too many questions are waiting: nothing is spent in advance then, since nobody would pay.
    pub(crate) const fn without_asks(self) -> Self {
        // Of a lost store it says something else, and nothing is spent in advance anyway.
        if self.0 & LOST == 0 { Self(self.0 & !TAKES_ASKS) } else { self }
    }

    pub(crate) const fn takes_asks(self) -> bool {
        self.0 & TAKES_ASKS != 0
    }

    /// How long a client should stay away that needs an answer of the store.
    pub(crate) const fn wait_ns(self) -> u64 {
        (self.0 >> WAIT_SHIFT & WAIT_MAX_US) * 1_000
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn each_part_is_read_as_it_was_written() {
        let link = LinkWord::connected(NonZeroU16::MAX, 3_000, second(7));
        assert_eq!((link.state(second(7)), link.nodes(), link.wait_ns()), (LinkState::Connected, u16::MAX, 3_000_000));
        assert!(link.takes_asks() && !link.without_asks().takes_asks());
        assert_eq!(link.without_asks().nodes(), u16::MAX);
        assert_eq!(LinkWord::connected(NonZeroU16::MIN, u64::MAX, second(7)).wait_ns(), WAIT_MAX_US * 1_000);
        let lost = LinkWord::lost(NonZeroU16::MIN);
        assert_eq!((lost, lost.state(second(0)), lost.takes_asks()), (LinkWord::LOST, LinkState::Lost, false));
        assert!(link.honours_credit() && link.without_asks().honours_credit() && lost.honours_credit());
        let ended = LinkWord::ended(3);
        assert_eq!((ended.state(second(0)), ended.nodes(), ended.honours_credit()), (LinkState::Lost, 3, false));
        assert_eq!(ended.without_asks(), ended);
        assert_eq!(LinkWord::from_bits(link.bits()), link);
        assert_eq!(LinkWord::from_bits(0).nodes(), 1);
    }

    #[test]
    fn an_engine_that_says_nothing_more_is_lost() {
        for start in [0, 1, 100, 1 << 30] {
            let link = LinkWord::connected(NonZeroU16::MIN, 0, second(start));
            assert_eq!(link.state(second(start)), LinkState::Connected);
            assert_eq!(link.state(second(start + 2)), LinkState::Lost);
        }
    }
}
