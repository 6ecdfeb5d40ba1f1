//! Used budgets, kept across restarts (feature `persist`).
//!
//! # How a saved budget finds its agent again
//!
//! The slab knows agents by a hash under a key that is new in every process,
//! and no key is saved: a reader of the file could otherwise choose ids that
//! collide. So budgets are saved by id. From
//! [`keep_budgets_in`](crate::Limiter::keep_budgets_in) on, the id of an agent
//! that is given a record is stored in a roster with a place for every record; a
//! check of an agent that has a record does nothing extra. An agent that has used
//! a budget keeps its record until the window ends, so a walk over the records
//! meets every used budget, with its agent's id.
//!
//! An agent without an id there was given its record before the file was named,
//! or by a reservation that was settled after the record was gone. It is counted:
//! [`BudgetsSaved::unsaved`].
//!
//! # What is written
//!
//! A save walks the records and compares each with its entry in the file, which
//! is remembered in memory: the agent, how much of which window, and the offset
//! in the file. The differences go into one line at the end of the file. A budget
//! whose window is over needs no entry. An agent that was forgotten or given
//! everything back may have lost its record to another since, and its id with it:
//! then its id is read back from the file.
//!
//! # What can be lost
//!
//! If the process is killed or the machine stops: what was charged since the
//! last save that returned. Nothing if the process saves as its last act. What
//! was refunded since then counts as used.
//!
//! # Time
//!
//! The file records the calendar's time. The calendar of the limiter that loads
//! it does not go back before that, so a wall clock that was set back meanwhile
//! reopens no window.
//!
//! - `load.rs`: from the file to the records
//! - `walk.rs`: from the records to the file
//! - `rows.rs`: the entries of the file, by record
//! - `text.rs`: the text of the file, and `quick.rs` a reader for what this build has written

mod load;
mod quick;
mod rows;
mod text;
mod walk;

use super::{KeptFile, PersistError};
use crate::engine::Engine;
use crate::limits::LoadedFile;
use crate::machine::process;
use crate::policy::{Era, Kind, LaneId};
use rows::SavedRows;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use text::BudgetLane;
use walk::Walk;

/// The result of loading a file of used budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetsLoaded {
    /// Budgets that are charged again as they were.
    pub loaded: u64,
    /// Budgets whose window is over: they do not count any more.
    pub ended: u64,
    /// Budgets of lanes that the policy does not have, or has with another
    /// window. They do not count, and the next save leaves them out.
    pub unknown: u64,
    /// Budgets of agents for which no record was free: the limiter is too
    /// small. They do not count, and the next save leaves them out.
    pub full: u64,
    /// How far the calendar is ahead of the wall clock, which was set back
    /// since the file was written, or ran ahead before. Windows end this much later.
    pub ahead: Duration,
}

/// The result of saving used budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetsSaved {
    /// Budgets in the file.
    pub saved: u64,
    /// Budgets of agents whose id is unknown, because they had a record before
    /// the file was named. A restart loses what they used.
    pub unsaved: u64,
}

/// Where a limiter keeps its used budgets, if anywhere.
#[derive(Default)]
pub(crate) struct BudgetKeeper(OnceLock<Box<KeptBudgets>>);

struct KeptBudgets {
    /// The process that keeps the file. A child that was forked from it does not,
    /// and may find the lock taken by a thread that it does not have.
    process: u64,
    /// The memory for the entries of the file.
    saved_bytes: u64,
    file: Mutex<BudgetFile>,
}

#[derive(Default)]
struct BudgetFile {
    file: Option<KeptFile>,
    /// The entries of the file.
    saved: SavedRows,
    /// Whether the file has to be replaced, because it has entries that must not be loaded again.
    is_outdated: bool,
}

/// A lane with a budget.
struct BudgetedLane {
    lane: LaneId,
    name: String,
    era: Era,
    /// The number of the present window.
    now: u64,
    text: BudgetLane,
}

impl KeptBudgets {
    /// The file, for the process that keeps it.
    fn lock(&self) -> Result<MutexGuard<'_, BudgetFile>, PersistError> {
        let is_own = self.process == process::mark();
        if is_own { Ok(self.file.lock().unwrap_or_else(PoisonError::into_inner)) } else { Err(PersistError::NotKept) }
    }
}

impl BudgetKeeper {
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.0.get().map_or(0, |kept| kept.saved_bytes)
    }

    /// Keeps used budgets in a file, and charges what it records for windows that are not over.
    pub(crate) fn keep_in(&self, engine: &Engine, path: &Path) -> Result<BudgetsLoaded, PersistError> {
        let mut file = KeptFile::open(path)?;
        let (used, seen) = file.read(text::read)?;
        let lanes = budget_lanes(engine).len();
        let kept = self.kept(engine, lanes, file.path())?;
        let saved = SavedRows::new(engine.slab.records(), lanes).ok_or_else(|| out_of_memory(file.path()))?;
        // Locked before anything is charged: no save comes between.
        let mut kept = kept.lock()?;
        file.accept(seen);
        *kept = BudgetFile { file: Some(file), saved, is_outdated: false };
        let loaded = load::load(engine, &used, &mut kept.saved);
        engine.limits.state().set_loaded(LoadedFile::Budgets);
        let is_stale = loaded.ended > 0 && loaded.ended >= loaded.loaded;
        kept.is_outdated = is_stale || loaded.unknown + loaded.full > 0;
        Ok(loaded)
    }

    /// Makes the engine store the ids of agents that get records.
    fn kept(&self, engine: &Engine, lanes: usize, path: &Path) -> Result<&KeptBudgets, PersistError> {
        engine.keep_ids().map_err(|_| out_of_memory(path))?;
        let (process, saved_bytes) = (process::mark(), SavedRows::bytes(engine.slab.records(), lanes));
        Ok(self.0.get_or_init(|| Box::new(KeptBudgets { process, saved_bytes, file: Mutex::default() })))
    }

    /// Writes to the file what has been used of budgets since the last save.
    pub(crate) fn save(&self, engine: &Engine) -> Result<BudgetsSaved, PersistError> {
        let mut kept = self.0.get().ok_or(PersistError::NotKept)?.lock()?;
        let BudgetFile { file: Some(file), saved, is_outdated } = &mut *kept else {
            return Err(PersistError::NotKept);
        };
        let ids = engine.ids().ok_or(PersistError::NotKept)?;
        let lanes = budget_lanes(engine);
        if file.is_as_seen()? && !*is_outdated {
            let mut walk = Walk::new(engine, ids, &lanes, false);
            walk.compare(saved);
            if walk.write_gone(file) {
                if walk.text.is_empty() && walk.rows.is_empty() {
                    return Ok(walk.counts);
                }
                let Walk { text, counts, rows, .. } = walk;
                let is_change = !text.is_empty();
                let (line, end) = (text.finish(), file.bytes());
                if !is_change || file.takes(line.len())? {
                    if is_change {
                        file.append(&line)?;
                    }
                    saved.set_all(&rows, end);
                    return Ok(counts);
                }
            }
        }
        let mut walk = Walk::new(engine, ids, &lanes, true);
        walk.compare(&SavedRows::default());
        let Walk { text, counts, rows, .. } = walk;
        file.save(&text.finish())?;
        saved.clear();
        saved.set_all(&rows, 0);
        *is_outdated = false;
        Ok(counts)
    }
}

/// The lanes that have budgets.
fn budget_lanes(engine: &Engine) -> Vec<BudgetedLane> {
    let (policy, date) = (engine.policy(), engine.at(engine.clock.now()).unix_ns());
    let lanes = engine.limits.kinds().iter().zip(policy.lanes()).filter_map(|(kind, (lane, name))| match kind {
        Kind::Budget(era) => {
            let now = era.index(date);
            Some(BudgetedLane { lane, name: name.to_owned(), era: *era, now, text: BudgetLane::new(name, *era, now) })
        }
        _ => None,
    });
    lanes.collect()
}

fn out_of_memory(path: &Path) -> PersistError {
    PersistError::System {
        doing: "reserve memory for the ids of",
        path: path.to_owned(),
        source: std::io::ErrorKind::OutOfMemory.into(),
    }
}
