//! From the file to the records: charges what was used.
//!
//! # Once
//!
//! What a file records is added to what agents have used since: a process of a
//! shared slab may have met them before the file was loaded. So it must be added
//! once. A shared slab remembers how far its loader has come, in the order of the
//! agents' hashes, and which file it has loaded to the end. The next keeper, after
//! one that died, charges the rest. Of one agent, the one that was being charged
//! when the loader died, it cannot know, and charges it again: never too little.

use super::rows::SavedRows;
use super::text::{Entry, UsedBudget, UsedBudgets};
use super::{BudgetedLane, BudgetsLoaded, budget_lanes};
use crate::clock::Tick;
use crate::engine::Engine;
use crate::lane::{Choice, LaneWord, budget};
use crate::slab::hash::AgentHash;
use std::cmp::Reverse;

/// Charges what the file records for windows that are not over, and remembers the file's entries.
pub(super) fn load(engine: &Engine, used: &UsedBudgets, saved: &mut SavedRows) -> BudgetsLoaded {
    let mut loaded = BudgetsLoaded::default();
    if let Some(dates) = &engine.dates {
        loaded.ahead = dates.raise(&engine.clock, used.calendar);
    }
    load_entries(engine, used, &last_entries(engine, used), saved, &mut loaded);
    loaded
}

fn load_entries(
    engine: &Engine,
    used: &UsedBudgets,
    entries: &[(AgentHash, usize)],
    saved: &mut SavedRows,
    counts: &mut BudgetsLoaded,
) {
    // By the calendar as it is now.
    let (lanes, now) = (budget_lanes(engine), engine.clock.now());
    let mut row = Vec::with_capacity(3 + lanes.len());
    for (hash, number) in entries {
        load_entry(engine, *hash, used.entry(*number), &lanes, now, counts, &mut row);
        saved.set(&row);
    }
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
    let state = engine.slab.joined().map(|_| engine.limits.state());
    let is_charged = state.is_some_and(|state| state.is_charged(hash.bits()));
    for (lane, word) in lanes.iter().zip(&*words).filter(|(_, word)| **word != 0) {
        let (window, used) = budget::unpacked(*word);
        let used = if is_charged { 0 } else { used };
        let restore = |words: &[LaneWord]| Choice::of(budget::restore(words[0], window, used));
        let cells = engine.limits.cells(lane.lane);
        let restored = found.record.update_lane(found.tag, cells, restore, || engine.slab.count_retry());
        *(if restored.is_some() { &mut counts.loaded } else { &mut counts.full }) += 1;
    }
    if let (false, Some(state)) = (is_charged, state) {
        state.set_charged(hash.bits());
    }
    row[..3].copy_from_slice(&[found.position as u64, found.tag.tenant_bits(), entry.offset]);
}

#[cfg(all(test, feature = "shared", target_os = "linux", not(loom)))]
mod tests {
    use super::*;
    use crate::keep::budgets::{BudgetKeeper, text};
    use crate::shared::Shared;
    use crate::{Limiter, LimiterBuilder, Policy, Request};

    const AGENTS: usize = 20;

    fn builder() -> LimiterBuilder {
        let policy = Policy::builder().lane("llm", "budget 1000/month").build().unwrap();
        Limiter::builder(policy).agents(100)
    }

    /// What is left to each agent after it has used this much.
    fn used(limiter: &Limiter, cost: u64) -> Vec<u64> {
        let llm = limiter.lane("llm").unwrap();
        let left = |agent: String| {
            if cost > 0 {
                assert!(limiter.check_request(Request::new(&agent, llm).cost(cost)).unwrap().is_allowed());
            }
            limiter.peek(Request::new(&agent, llm)).unwrap().remaining()
        };
        (0..AGENTS).map(|agent| left(format!("agent-{agent}"))).collect()
    }

    /// The first keeper was killed while it charged what the file records, and the next one charged it all again:
    /// agents that had used 600 of 1,000 had nothing left.
    #[test]
    fn what_a_dead_loader_has_charged_is_not_charged_again() {
        let path = std::env::temp_dir().join(format!("tollgate-unit-{}-load.json", std::process::id()));
        let first = builder().build().unwrap();
        first.keep_budgets_in(&path).unwrap();
        used(&first, 600);
        first.save_budgets().unwrap();
        drop(first);
        let file = text::read(&std::fs::read(&path).unwrap()).unwrap().0;
        // The machine restarts. A process uses 10 before the file is loaded, and 10 more when a part of it is.
        let shared = builder().shared(Shared::memfd()).build().unwrap();
        used(&shared, 10);
        let (engine, mut counts) = (&shared.engine, BudgetsLoaded::default());
        let mut saved = SavedRows::new(engine.slab.records(), 1).unwrap();
        let entries = last_entries(engine, &file);
        load_entries(engine, &file, &entries[..AGENTS / 3], &mut saved, &mut counts);
        assert_eq!(counts.loaded, AGENTS as u64 / 3);
        used(&shared, 10);
        // Nothing is lost, and nothing counts twice, however often that is repeated.
        for _ in 0..2 {
            assert_eq!(BudgetKeeper::default().keep_in(engine, &path).unwrap().loaded, AGENTS as u64);
            assert_eq!(used(&shared, 0), [380; AGENTS]);
        }
        drop(shared);
        for path in [path.with_extension("json.lock"), path] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
