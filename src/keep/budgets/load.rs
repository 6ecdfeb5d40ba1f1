//! From the file to the records: charges what was used.

use super::rows::SavedRows;
use super::text::{Entry, UsedBudget, UsedBudgets};
use super::{BudgetedLane, BudgetsLoaded, budget_lanes};
use crate::clock::Tick;
use crate::engine::Engine;
use crate::lane::{Choice, LaneWord, budget};
use crate::limits::LoadedFile;
use crate::slab::hash::AgentHash;
use std::cmp::Reverse;

/// Charges what the file records for windows that are not over, and remembers the file's entries.
pub(super) fn load(engine: &Engine, used: &UsedBudgets, saved: &mut SavedRows) -> BudgetsLoaded {
    let mut loaded = BudgetsLoaded::default();
    if let Some(dates) = &engine.dates {
        loaded.ahead = dates.raise(&engine.clock, used.calendar);
    }
    // By the calendar as it is now.
    let (lanes, now) = (budget_lanes(engine), engine.clock.now());
    let mut row = Vec::with_capacity(3 + lanes.len());
    for (hash, number) in last_entries(engine, used) {
        load_entry(engine, hash, used.entry(number), &lanes, now, &mut loaded, &mut row);
        saved.set(&row);
    }
    loaded
}

/// The number of each agent's last entry, in the order of the agents' homes:
/// neighbours share memory.
fn last_entries(engine: &Engine, used: &UsedBudgets) -> Vec<(AgentHash, usize)> {
    let hashed = |number| Some((engine.hash(used.entry(number).id).ok()?, number));
    let mut all: Vec<_> = (0..used.len()).filter_map(hashed).collect();
    // An agent's last entry comes first, and stays.
    all.sort_unstable_by_key(|(hash, number)| (*hash, Reverse(*number)));
    all.dedup_by(|(hash, number), (known, last)| hash == known && used.entry(*number).id == used.entry(*last).id);
    all
}

/// Charges what an agent has used, counts it, and fills its row of saved words.
fn load_entry(
    engine: &Engine,
    hash: AgentHash,
    entry: Entry<'_>,
    lanes: &[BudgetedLane],
    now: Tick,
    counts: &mut BudgetsLoaded,
    row: &mut Vec<u64>,
) {
    row.clear();
    row.resize(3 + lanes.len(), 0);
    let words = &mut row[3..];
    for UsedBudget { lane, era, window, used } in entry.budgets {
        match lanes.iter().position(|known| *known.name == **lane && known.era == *era) {
            None => counts.unknown += 1,
            Some(known) if *window < lanes[known].now => counts.ended += 1,
            Some(known) => words[known] = budget::packed(*window, *used),
        }
    }
    let loading = words.iter().filter(|word| **word != 0).count() as u64;
    if loading == 0 {
        return row.clear();
    }
    // The claim keeps the record and its row for the agent.
    let Some(claimed) = engine.claim_free(hash, Some(entry.id), now) else {
        counts.full += loading;
        return row.clear();
    };
    let found = claimed.found;
    if let (false, Some(ids)) = (claimed.is_new, engine.ids()) {
        // Another process may have given the agent its record before ids were stored.
        ids.write(found.position, entry.id);
    }
    let is_loaded = engine.slab.joined().is_some() && engine.limits.state().is_loaded(LoadedFile::Budgets);
    for (lane, word) in lanes.iter().zip(&*words).filter(|(_, word)| **word != 0) {
        let (window, used) = budget::unpacked(*word);
        // A shared slab that outlived its processes has what was used since, too.
        let used = if is_loaded { 0 } else { used };
        let restore = |words: &[LaneWord]| Choice::of(budget::restore(words[0], window, used));
        let cells = engine.limits.cells(lane.lane);
        let restored = found.record.update_lane(found.tag, cells, restore, || engine.slab.count_retry());
        *(if restored.is_some() { &mut counts.loaded } else { &mut counts.full }) += 1;
    }
    row[..3].copy_from_slice(&[found.position as u64, found.tag.tenant_bits(), entry.offset]);
}
