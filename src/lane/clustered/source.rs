//! Where the answer of a lane that machines share came from.

use super::super::Verdict;
use super::super::finding::Finding;
use std::fmt;

/// Where the answer of a lane that machines share came from: what a machine holds of the store, or, while the store is
/// lost, what was chosen for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Allowed from credit: the store was debited before.
    Credit = 1,
    /// Allowed in advance: the store is debited as soon as it is asked.
    Advance,
    /// Denied by what the store last reported.
    View,
    /// Denied because only the store knows: this machine has neither the credit nor the advance that the request
    /// needs, and as far as it knows there are tokens left. The store is being asked; try again in a round trip.
    Pending,
    /// The store is lost, and this is the answer of the machine's share of the limit.
    Share,
    /// The store is lost, and the lane is closed until it answers.
    Closed,
    /// The store is lost, and the lane is open until it answers.
    Open,
    /// The store is lost, and this is the answer of the whole limit, on this machine alone.
    Alone,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Credit, Self::Advance, Self::View, Self::Pending, Self::Share, Self::Closed, Self::Open, Self::Alone];

    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Advance => "advance",
            Self::View => "view",
            Self::Pending => "pending",
            Self::Share => "share",
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Alone => "alone",
        }
    }

    /// Whether the store was lost.
    #[must_use]
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Share | Self::Closed | Self::Open | Self::Alone)
    }

    /// Its number among all, from 0.
    pub(crate) const fn index(self) -> usize {
        self as usize - 1
    }

    /// The finding of an answer that came from here.
    pub(super) const fn of(self, finding: Finding) -> Finding {
        finding.with_source(self as u64)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Verdict {
    /// Where the answer came from, if it is that of a lane that machines share. `None` for every other lane, and where
    /// no machine had to be asked: an exempt agent, a limit that denies everything, and a denial for conduct or by a
    /// plan's total.
    #[must_use]
    pub const fn source(&self) -> Option<Source> {
        let mut index = 0;
        // Ends: the sources are eight.
        while index < Source::ALL.len() {
            if Source::ALL[index] as u64 == self.finding.source() {
                return Some(Source::ALL[index]);
            }
            index += 1;
        }
        None
    }

    /// Whether this is a denial only until the store that machines share the lane through has answered: it is being
    /// asked, and the same request may pass after a round trip, which is about [`retry_after`](Self::retry_after).
    #[must_use]
    pub const fn is_provisional(&self) -> bool {
        self.finding.source() == Source::Pending as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_source_is_read_as_it_was_written() {
        for source in Source::ALL {
            let verdict = Verdict::counted(source.of(Finding::DENY), 9, 3, 7, 8, 1_000_000);
            assert_eq!(verdict.source(), Some(source));
            assert_eq!(verdict.is_provisional(), source == Source::Pending);
            assert_eq!(Source::ALL[source.index()], source);
        }
        assert_eq!(Verdict::EXEMPT.source(), None);
    }
}
