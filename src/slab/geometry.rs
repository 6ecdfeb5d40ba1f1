//! How large a slab is, and where its parts are.

use super::fingerprints::{self, GROUP};
use super::region::REGION_WORDS;
use crate::bounds::{LOAD_DENOMINATOR, LOAD_NUMERATOR, RECORD_WORDS_MAX, RECORD_WORDS_MIN, RECORD_WORDS_RESERVED};
use crate::machine::arena::Arena;

/// Groups in a region: 1,024 records. Many more than a neighbourhood, so that
/// few claims take two locks; few enough that claims seldom meet.
const REGION_GROUPS: usize = 128;

/// Records in a region.
pub(crate) const REGION_RECORDS: usize = fingerprints::GROUP * REGION_GROUPS;

/// Groups in a neighbourhood: 96 records. Even, because lookups take them in pairs.
pub(crate) const WINDOW: usize = 12;
const _: () = assert!(WINDOW % 2 == 0);

/// The layout of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Home groups.
    pub(crate) groups: usize,
    /// Groups in a neighbourhood; `window - 1` more groups follow the last home.
    pub(crate) window: usize,
    /// Records, filling all groups except perhaps the last.
    pub(crate) records: usize,
    pub(crate) lanes: usize,
}

impl Geometry {
    /// The layout for this many agents at the assumed load.
    pub(crate) fn for_agents(agents: u64, lanes: usize) -> Self {
        let records = (agents * LOAD_DENOMINATOR).div_ceil(LOAD_NUMERATOR);
        let groups = usize::try_from(records).unwrap_or(usize::MAX / GROUP).div_ceil(GROUP);
        Self { groups, window: WINDOW, records: (groups + WINDOW - 1) * GROUP, lanes }
    }

    pub(super) fn record_words(&self) -> usize {
        (self.lanes + RECORD_WORDS_RESERVED).next_power_of_two().clamp(RECORD_WORDS_MIN, RECORD_WORDS_MAX)
    }

    pub(super) fn all_groups(&self) -> usize {
        self.groups + self.window - 1
    }

    pub(super) fn regions(&self) -> usize {
        self.all_groups().div_ceil(REGION_GROUPS)
    }

    pub(super) fn fingerprints_start(&self) -> usize {
        self.regions() * REGION_WORDS
    }

    /// Records start on a cache line. At least one unused word of fingerprints
    /// comes before that line: lookups read the groups in pairs.
    pub(super) fn records_start(&self) -> usize {
        (self.fingerprints_start() + self.all_groups() + 1).next_multiple_of(REGION_WORDS)
    }

    /// All words of the slab; saturated if there are too many.
    pub(crate) fn words(&self) -> usize {
        Arena::len(self.records_start(), self.records, self.record_words().ilog2()).unwrap_or(usize::MAX)
    }
}
