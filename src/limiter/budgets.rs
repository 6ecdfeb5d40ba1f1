//! Used budgets, kept across restarts (feature `persist`).
//!
//! # How a saved budget finds its agent again
//!
//! The slab knows agents by a hash under a key that is new in every process,
//! and no key is saved: whoever reads the file could otherwise choose ids that
//! collide. So budgets are saved by id. From
//! [`keep_budgets_in`](Limiter::keep_budgets_in) on, whoever is given a record
//! is written down beside it, in a roster with a place for every record; a
//! check of an agent that has a record does nothing for it. An agent that has
//! used a budget keeps its record until the window ends, so a walk over the
//! records meets every used budget, and its id stands beside it.
//!
//! What has no id there was given its record before the file was named, or by
//! a reservation that was settled after the record was gone. It is counted:
//! [`BudgetsSaved::unsaved`].
//!
//! # What can be lost
//!
//! What was charged since the last save that returned, when the process is
//! killed or the machine stops; nothing when it saves as its last act. What was
//! refunded since then counts as used.
//!
//! # Time
//!
//! The file says what the calendar showed. The calendar of the limiter that
//! loads it does not go back behind that, so a wall clock that was put back
//! between the two opens no window again.

use super::Limiter;
use crate::lane::{Choice, budget};
use crate::persist::budgets::{Lines, UsedBudget, UsedBudgets, read};
use crate::persist::{KeptFile, PersistError};
use crate::policy::{Era, Kind, LaneId};
use crate::process;
use crate::sight::roster::Roster;
use crate::slab::Found;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a record that changes hands meanwhile is looked at.
const LOOKS_MAX: usize = 8;

/// What came of a file of used budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetsLoaded {
    /// Budgets that are as used as they were.
    pub loaded: u64,
    /// Budgets whose window is over: nothing of them counts any more.
    pub ended: u64,
    /// Budgets of lanes that the policy does not have, or whose window is
    /// another now. They count no more, and the next save leaves them out.
    pub unknown: u64,
    /// Budgets of agents for whom there was no record: the limiter is too
    /// small. They count no more, and the next save leaves them out.
    pub full: u64,
    /// How far the calendar is ahead of the wall clock, which was put back
    /// since the file was written, or ran ahead before. Windows end so much later.
    pub ahead: Duration,
}

/// What came of saving used budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetsSaved {
    /// Budgets in the file.
    pub saved: u64,
    /// Budgets that were used by agents whose id is not known, since they had
    /// a record before the file was named. A restart loses what they used.
    pub unsaved: u64,
}

/// Where used budgets are kept.
pub(super) struct KeptBudgets {
    /// Who holds which record; `None` if [`Sight`](crate::Sight) has it written down.
    ids: Option<Roster>,
    /// The process that keeps the file. One that was forked from it does not,
    /// and may find the lock held by nobody.
    process: u64,
    file: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    file: Option<KeptFile>,
    random: RandomState,
    /// A hash of the lines that were written last.
    written: Option<u64>,
}

impl KeptBudgets {
    /// Writes down who holds a record now. The caller holds the record's lock.
    pub(super) fn claimed(&self, position: usize, agent: &[u8]) {
        if let Some(ids) = &self.ids {
            ids.write(position, agent);
        }
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.ids.as_ref().map_or(0, Roster::reserved_bytes)
    }

    fn of_this_process(&self) -> Result<&Self, PersistError> {
        if self.process == process::mark() { Ok(self) } else { Err(PersistError::NotKept) }
    }
}

impl Limiter {
    /// Keeps used budgets in a file, and charges what it says was used of
    /// windows that are not over. Call it once, before the first check, and
    /// after [`keep_assignments_in`](Limiter::keep_assignments_in); then call
    /// [`save_budgets`](Limiter::save_budgets) every few seconds and as the
    /// last thing before the process ends. No thread is started for it.
    ///
    /// **What can be lost**: what was charged since the last save that
    /// returned, if the process is killed; nothing if it saves last of all.
    /// Budgets that cannot be loaded or saved are counted in the answers.
    ///
    /// The file is JSON, an agent a line, and is replaced in one step, as
    /// [`AssignmentFile`](crate::AssignmentFile) is; it can be edited while no
    /// limiter uses it. To remember ids takes 272 bytes of memory for each
    /// agent that is given a record, unless there is a
    /// [roster](crate::Sight::roster) of all of them already.
    ///
    /// A wall clock that was put back while no limiter ran opens no window
    /// again: the calendar goes on from what the file says.
    ///
    /// # Errors
    ///
    /// [`PersistError::InUse`] if another process, or this one, keeps budgets
    /// there; [`PersistError::Content`] if the file makes no sense, and then
    /// it is left as it is; otherwise what the system refused. Nothing was charged.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tollgate-doc-budgets-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// # let path = directory.join("budgets.json");
    /// let start = || -> Result<_, Box<dyn std::error::Error>> {
    ///     let policy = Policy::builder().lane("llm", "budget 10_000/month").build()?;
    ///     let limiter = Limiter::builder(policy).agents(1_000).build()?;
    ///     let loaded = limiter.keep_budgets_in(&path)?;
    ///     Ok((limiter, loaded))
    /// };
    /// let (limiter, loaded) = start()?;
    /// assert_eq!(loaded.loaded, 0); // There was no file yet.
    /// let llm = limiter.lane("llm").expect("named above");
    /// assert!(limiter.check_cost("user:42", llm, 1_200)?.is_allowed());
    /// assert_eq!(limiter.save_budgets()?.saved, 1); // Every few seconds, and at the end.
    /// drop(limiter);
    ///
    /// let (limiter, loaded) = start()?;
    /// assert_eq!(loaded.loaded + loaded.ended, 1); // Unless a month ended just now.
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_budgets_in(&self, path: impl AsRef<Path>) -> Result<BudgetsLoaded, PersistError> {
        let mut file = KeptFile::open(path.as_ref())?;
        let (text, stamp) = file.read()?.unzip();
        let used = text.map_or(Ok(UsedBudgets::default()), |text| read(&text)).map_err(|error| file.content(error))?;
        let kept = self.kept_budgets(file.path())?;
        // Locked before anything is charged: no save comes between.
        let mut kept = kept.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.accept(stamp);
        *kept = Kept { file: Some(file), ..Kept::default() };
        let mut loaded = BudgetsLoaded::default();
        if let Some(dates) = &self.dates {
            loaded.ahead = dates.raise(&self.clock, used.calendar);
        }
        for (agent, budgets) in &used.agents {
            for budget in budgets {
                *self.load_budget(agent, budget, &mut loaded) += 1;
            }
        }
        Ok(loaded)
    }

    /// The roster of those who hold records, from now on if there was none.
    fn kept_budgets(&self, path: &Path) -> Result<&KeptBudgets, PersistError> {
        if let Some(kept) = self.budgets.get() {
            return kept.of_this_process();
        }
        let records = usize::try_from(self.slab.records()).unwrap_or(usize::MAX);
        let ids = self.complete_roster().is_none().then(|| Roster::new(records, records)).transpose();
        let ids = ids.map_err(|_| PersistError::System {
            doing: "reserve memory for the ids of",
            path: path.to_owned(),
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        let process = process::mark();
        Ok(self.budgets.get_or_init(|| Box::new(KeptBudgets { ids, process, file: Mutex::default() })))
    }

    /// The roster that lists are made of, if it has a place for every record.
    fn complete_roster(&self) -> Option<&Roster> {
        let roster = self.watch.as_ref()?.roster.as_ref()?;
        (roster.places() as u64 >= self.slab.records()).then_some(roster)
    }

    /// Charges what was used, and says as what it is to be counted.
    fn load_budget<'a>(&self, agent: &[u8], saved: &UsedBudget, counts: &'a mut BudgetsLoaded) -> &'a mut u64 {
        let lane = self.lane(&saved.lane).filter(|lane| self.limits.kinds()[lane.index()] == Kind::Budget(saved.era));
        let (Some(lane), Ok(hash)) = (lane.and_then(|lane| self.limits.lane(lane).ok()), self.hash(agent)) else {
            return &mut counts.unknown;
        };
        let now = self.clock.now();
        if saved.window < saved.era.index(self.at(now).unix_ns()) {
            return &mut counts.ended;
        }
        let restored = self.impose(hash, Some(agent), lane, now, |_, words, _| {
            Choice::of(budget::restore(words[0], saved.window, saved.used))
        });
        if restored.is_some() { &mut counts.loaded } else { &mut counts.full }
    }

    /// Writes to the file what is used of every budget, unless that is what it
    /// says already. When this returns, it is on the disk. Holds up no check.
    ///
    /// Each budget is saved as it is at some moment during the call. All of them
    /// are written each time: of a million agents 105 MB, which takes seconds,
    /// so save less often if there are so many.
    ///
    /// # Errors
    ///
    /// [`PersistError::NotKept`] without
    /// [`keep_budgets_in`](Limiter::keep_budgets_in), or in a process that was
    /// forked since; [`PersistError::Changed`] if somebody else wrote to the
    /// file; otherwise what the system refused.
    /// Except after [`PersistError::NotSynced`] the file is as it was.
    pub fn save_budgets(&self) -> Result<BudgetsSaved, PersistError> {
        let KeptBudgets { ids, file: kept, .. } = self.budgets.get().ok_or(PersistError::NotKept)?.of_this_process()?;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = ids.as_ref().or_else(|| self.complete_roster()).ok_or(PersistError::NotKept)?;
        let (lines, saved) = self.used_budgets(ids);
        let calendar = self.at(self.clock.now()).unix_ns();
        let written = kept.random.hash_one(lines.text());
        let Kept { file: Some(file), written: before, .. } = &mut *kept else {
            return Err(PersistError::NotKept);
        };
        if *before != Some(written) || !file.is_as_seen()? {
            *before = None;
            file.save(&lines.file(calendar))?;
            *before = Some(written);
        }
        Ok(saved)
    }

    /// What every agent with an id has used of its budgets.
    fn used_budgets(&self, ids: &Roster) -> (Lines, BudgetsSaved) {
        let policy = self.policy();
        let eras = self.limits.kinds().iter().zip(policy.lanes()).filter_map(|(kind, (lane, name))| match kind {
            Kind::Budget(era) => Some((lane, name, *era)),
            _ => None,
        });
        let eras: Vec<(LaneId, &str, Era)> = eras.collect();
        let (mut lines, mut counts) = (Lines::default(), BudgetsSaved::default());
        let mut used = Vec::with_capacity(eras.len());
        for found in self.slab.held() {
            let id = self.used_by(ids, found, &eras, &mut used);
            let budgets = used.len() as u64;
            match id {
                _ if budgets == 0 => {}
                None => counts.unsaved += budgets,
                Some(id) => {
                    counts.saved += budgets;
                    lines.push(&id, used.iter().copied());
                }
            }
        }
        (lines, counts)
    }

    /// What the holder of a record has used, and its id if that is known.
    fn used_by<'a>(
        &self,
        ids: &Roster,
        mut found: Found<'_>,
        eras: &[(LaneId, &'a str, Era)],
        used: &mut Vec<(&'a str, Era, u64, u64)>,
    ) -> Option<Vec<u8>> {
        let at = self.at(self.clock.now());
        for _ in 0..LOOKS_MAX {
            used.clear();
            used.extend(eras.iter().filter_map(|(lane, name, era)| {
                let cells = self.limits.cells(*lane);
                let (window, used) = found.record.peek_cells(cells, |words| budget::used(*era, words[0], at))?;
                Some((*name, *era, window, used))
            }));
            if used.is_empty() {
                return None;
            }
            let id = ids.read(found.position);
            let tag = found.record.tag();
            // The same holder before and after: what was read between is its own.
            if tag.opened().with_row(found.tag.row()) == found.tag.opened() {
                return id.filter(|id| self.hash(id).is_ok_and(|hash| tag.belongs_to(hash.tag())));
            }
            found.tag = tag;
        }
        None
    }
}
