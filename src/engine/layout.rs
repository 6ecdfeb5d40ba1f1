//! The sections of a shared file.

use super::registry::table;
use super::{policy_text, reservations};
use crate::bounds::{EXEMPT_KEPT, LANES_MAX, PROCESSES_MAX, WAITS_KEPT, WARNED_KEPT};
use crate::limits;
use crate::observe::{counters, roster};
use crate::shared::memory::PAGE_BYTES;
use crate::shared::{Layout, SEAT_BYTES, Section, Shape};
use crate::slab::{Geometry, forgiven, holds};

/// The layout of a file of this shape. A change here needs another
/// [number](crate::bounds::SHARED_LAYOUT).
pub(crate) fn layout(shape: &Shape, control_words: usize) -> Layout {
    // Lossless: each was made from a number of this size, or is compared with the file's length.
    let [lanes, cells, reservations, roster, kept_ids] =
        [shape.lanes, shape.cells, shape.reservations, shape.roster, shape.kept_ids].map(|number| number as usize);
    let [slots, totals, shades] = reservations::bytes(reservations, shape.has_total != 0);
    let [entries, homes] = holds::bytes(shape.holds as usize);
    let [hashes, ids, terms, rows] = table::bytes(shape.agents, lanes);
    let counters = counters::bytes(lanes).next_multiple_of(PAGE_BYTES);
    let layout = Layout::new()
        .section(Section::Header, PAGE_BYTES)
        .section(Section::Seats, PROCESSES_MAX * SEAT_BYTES)
        .section(Section::Control, control_words * 8)
        .section(Section::Slab, Geometry::for_agents(shape.agents, cells).words().saturating_mul(8))
        .section(Section::Forgiven, forgiven::WORDS * 8)
        .section(Section::LimitState, limits::STATE_WORDS * 8)
        .sparse(Section::Limits, lanes * limits::LANE_BYTES)
        .sparse(Section::Terms, terms)
        .section(Section::Rows, rows)
        .section(Section::Assigned, hashes)
        .section(Section::Decisions, hashes)
        .section(Section::Staged, hashes)
        .sparse(Section::AssignedIds, ids)
        .section(Section::Exempt, EXEMPT_KEPT * 8)
        .section(Section::Waits, WAITS_KEPT * 8)
        .section(Section::Warned, WARNED_KEPT * 8)
        .section(Section::Reservations, slots)
        .section(Section::Totals, totals)
        .section(Section::Shades, shades)
        .section(Section::Holds, entries)
        .section(Section::HoldHomes, homes)
        .section(Section::Policy, policy_text::bytes(shape.policy_bytes as usize))
        .section(Section::Roster, roster * roster::PLACE_BYTES)
        .section(Section::RosterUsed, roster::used_words(roster) * 8)
        .sparse(Section::KeptIds, kept_ids * roster::PLACE_BYTES)
        .sparse(Section::KeptIdsUsed, roster::used_words(kept_ids) * 8)
        .sparse(Section::Counters, PROCESSES_MAX * counters)
        // Of the maker, which has the first seat.
        .part(Section::Counters, 0, counters);
    // Not beyond the most, whatever the file says.
    let lanes = 0..lanes.min(LANES_MAX);
    lanes.fold(layout, |layout, lane| layout.part(Section::Limits, lane * limits::LANE_BYTES, limits::PLAN_ROW_BYTES))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two processes of different versions must not take one layout for the
    /// other: if these numbers change, raise `SHARED_LAYOUT`.
    #[test]
    fn the_layout_is_the_one_of_its_number() {
        let shape = Shape {
            agents: 1_000,
            lanes: 2,
            cells: 3,
            reservations: 16_384,
            reservations_per_agent: 256,
            has_total: 1,
            roster: 500,
            policy_bytes: 65_536,
            holds: 1_024,
            kept_ids: 1_104,
        };
        let layout = layout(&shape, crate::control::CONTROL_WORDS);
        assert_eq!(crate::bounds::SHARED_LAYOUT, 1);
        let allocated: usize = layout.allocated().map(|(_, bytes)| bytes).sum();
        assert_eq!((layout.bytes(), allocated), (34_828_288, 3_006_688));
    }
}
