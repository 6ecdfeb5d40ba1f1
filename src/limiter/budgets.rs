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
//! # What is written
//!
//! A save walks the records and compares what each says with what the file
//! says, which is remembered beside it: whose it is, of which window how much,
//! and where in the file. What differs goes into one line at the end of the
//! file. A budget whose window is over needs none. An agent that was forgotten
//! or given everything back may have lost its record to another since, and its
//! id with it: then its id is read back from the file.
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
use super::saved::Saved;
use crate::bounds::ID_BYTES_MAX;
use crate::clock::Tick;
use crate::keep::budgets::{BudgetLane, Entry, Text, UsedBudget, UsedBudgets, id_at, read};
use crate::keep::{KeptFile, PersistError};
use crate::lane::{Choice, LaneWord, budget};
use crate::machine::process;
use crate::observe::roster::Roster;
use crate::policy::{Era, Kind, LaneId};
use crate::slab::Found;
use crate::slab::hash::AgentHash;
use std::cmp::Reverse;
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
    /// Who holds which record; `None` if [`Observe`](crate::observe::Observe) has it written down.
    ids: Option<Roster>,
    /// The process that keeps the file. One that was forked from it does not,
    /// and may find the lock held by nobody.
    process: u64,
    /// What it takes to remember what the file says.
    saved_bytes: u64,
    file: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    file: Option<KeptFile>,
    /// What the file says.
    saved: Saved,
    /// Whether the file has to be replaced: it says what is not to be loaded again.
    is_outdated: bool,
}

/// A lane with a budget.
struct Budgeted {
    lane: LaneId,
    name: String,
    era: Era,
    /// The number of the present window.
    now: u64,
    text: BudgetLane,
}

/// A look at all records.
struct Walk<'a> {
    limiter: &'a Limiter,
    ids: &'a Roster,
    lanes: &'a [Budgeted],
    text: Text,
    counts: BudgetsSaved,
    /// What the file will say: position, holder, place in the text, words.
    rows: Vec<u64>,
    /// Where the file says what is so no longer.
    gone: Vec<u64>,
}

impl KeptBudgets {
    /// Writes down who holds a record now. The caller holds the record's lock.
    pub(super) fn claimed(&self, position: usize, agent: &[u8]) {
        if let Some(ids) = &self.ids {
            ids.write(position, agent);
        }
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.ids.as_ref().map_or(0, Roster::reserved_bytes) + self.saved_bytes
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
    /// The file is JSON, an agent a line, and is written as
    /// [`AssignmentFile`](crate::keep::AssignmentFile) is: a large one grows by what
    /// has changed. It can be edited while no limiter uses it. To remember ids
    /// takes 272 bytes of memory for each agent that is given a record, unless
    /// there is a [roster](crate::observe::Observe::roster) of all of them already; what
    /// the file says of an agent takes 16, and 8 for each lane with a budget.
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
    /// use tollgate::{Limiter, Policy, Request};
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
    /// assert!(limiter.check_request(Request::new("user:42", llm).cost(1_200))?.is_allowed());
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
        let (used, seen) = file.read(read)?;
        let kept = self.kept_budgets(file.path())?;
        let saved = Saved::new(self.slab.records(), self.budgeted().len());
        let saved = saved.ok_or_else(|| out_of_memory(file.path()))?;
        // Locked before anything is charged: no save comes between.
        let mut kept = kept.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.accept(seen);
        *kept = Kept { file: Some(file), saved, is_outdated: false };
        let mut loaded = BudgetsLoaded::default();
        if let Some(dates) = &self.dates {
            loaded.ahead = dates.raise(&self.clock, used.calendar);
        }
        // By the calendar as it is now.
        let (lanes, now) = (self.budgeted(), self.clock.now());
        let mut row = Vec::with_capacity(3 + lanes.len());
        for (hash, number) in self.last_words(&used) {
            self.load_entry(hash, used.entry(number), &lanes, now, &mut loaded, &mut row);
            kept.saved.set(&row);
        }
        let is_stale = loaded.ended > 0 && loaded.ended >= loaded.loaded;
        kept.is_outdated = is_stale || loaded.unknown + loaded.full > 0;
        Ok(loaded)
    }

    /// The last entry of each agent, by its number, in the order of their
    /// homes: neighbours share memory.
    fn last_words(&self, used: &UsedBudgets) -> Vec<(AgentHash, usize)> {
        let hashed = |number| Some((self.hash(used.entry(number).id).ok()?, number));
        let mut all: Vec<_> = (0..used.len()).filter_map(hashed).collect();
        // Of one agent the last comes first, and stays.
        all.sort_unstable_by_key(|(hash, number)| (*hash, Reverse(*number)));
        all.dedup_by(|(hash, number), (known, last)| hash == known && used.entry(*number).id == used.entry(*last).id);
        all
    }

    /// The roster of those who hold records, from now on if there was none.
    fn kept_budgets(&self, path: &Path) -> Result<&KeptBudgets, PersistError> {
        if let Some(kept) = self.budgets.get() {
            return kept.of_this_process();
        }
        let records = usize::try_from(self.slab.records()).unwrap_or(usize::MAX);
        let ids = self.complete_roster().is_none().then(|| Roster::new(records, records)).transpose();
        let ids = ids.map_err(|_| out_of_memory(path))?;
        let (process, saved_bytes) = (process::mark(), Saved::bytes(self.slab.records(), self.budgeted().len()));
        Ok(self.budgets.get_or_init(|| Box::new(KeptBudgets { ids, process, saved_bytes, file: Mutex::default() })))
    }

    /// The roster that lists are made of, if it has a place for every record.
    fn complete_roster(&self) -> Option<&Roster> {
        let roster = self.watch.as_ref()?.roster.as_ref()?;
        (roster.places() as u64 >= self.slab.records()).then_some(roster)
    }

    /// Charges what an agent has used, counts it, and makes the row of what the file says.
    fn load_entry(
        &self,
        hash: AgentHash,
        entry: Entry<'_>,
        lanes: &[Budgeted],
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
        // The claim keeps the record the agent's, and its row.
        let Some(claimed) = self.claim_free(hash, Some(entry.id), now) else {
            counts.full += loading;
            return row.clear();
        };
        let found = claimed.found;
        for (lane, word) in lanes.iter().zip(&*words).filter(|(_, word)| **word != 0) {
            let (window, used) = budget::unpacked(*word);
            let restore = |words: &[LaneWord]| Choice::of(budget::restore(words[0], window, used));
            let cells = self.limits.cells(lane.lane);
            let restored = found.record.update_lane(found.tag, cells, restore, || self.slab.count_retry());
            *(if restored.is_some() { &mut counts.loaded } else { &mut counts.full }) += 1;
        }
        row[..3].copy_from_slice(&[found.position as u64, found.tag.tenant_bits(), entry.offset]);
    }

    /// Writes to the file what has been used of budgets since the last save.
    /// When this returns, it is on the disk. Holds up no check.
    ///
    /// Each budget is saved as it is at some moment during the call. What is
    /// written follows what has changed, some 120 bytes an agent; a file that
    /// is smaller than 64 KiB, or half of which is outdated, is written anew.
    /// All records are looked at: a million take some 40 ms.
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
        let Kept { file: Some(file), saved, is_outdated } = &mut *kept else {
            return Err(PersistError::NotKept);
        };
        let ids = ids.as_ref().or_else(|| self.complete_roster()).ok_or(PersistError::NotKept)?;
        let lanes = self.budgeted();
        if file.is_as_seen()? && !*is_outdated {
            let mut walk = Walk::new(self, ids, &lanes, false);
            walk.compare(saved);
            if walk.say_gone(file) {
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
        let mut walk = Walk::new(self, ids, &lanes, true);
        walk.compare(&Saved::default());
        let Walk { text, counts, rows, .. } = walk;
        file.save(&text.finish())?;
        saved.clear();
        saved.set_all(&rows, 0);
        *is_outdated = false;
        Ok(counts)
    }

    /// The lanes that have budgets.
    fn budgeted(&self) -> Vec<Budgeted> {
        let (policy, date) = (self.policy(), self.at(self.clock.now()).unix_ns());
        let lanes = self.limits.kinds().iter().zip(policy.lanes()).filter_map(|(kind, (lane, name))| match kind {
            Kind::Budget(era) => {
                let now = era.index(date);
                Some(Budgeted { lane, name: name.to_owned(), era: *era, now, text: BudgetLane::new(name, *era, now) })
            }
            _ => None,
        });
        lanes.collect()
    }
}

fn out_of_memory(path: &Path) -> PersistError {
    PersistError::System {
        doing: "reserve memory for the ids of",
        path: path.to_owned(),
        source: std::io::ErrorKind::OutOfMemory.into(),
    }
}

impl<'a> Walk<'a> {
    fn new(limiter: &'a Limiter, ids: &'a Roster, lanes: &'a [Budgeted], is_document: bool) -> Self {
        let text = Text::new(is_document, limiter.at(limiter.clock.now()).unix_ns());
        Self { limiter, ids, lanes, text, counts: BudgetsSaved::default(), rows: Vec::new(), gone: Vec::new() }
    }

    /// Says what differs from what was saved.
    fn compare(&mut self, saved: &Saved) {
        let (mut words, mut next) = (Vec::new(), 0);
        for found in self.limiter.slab.held() {
            let position = found.position;
            (next..position).for_each(|vacant| self.lose(saved, vacant));
            next = position + 1;
            let holder = found.tag.tenant_bits();
            self.look(&found, &mut words);
            let budgets = words.iter().filter(|word| **word != 0).count() as u64;
            if saved.is(position, holder, &words, |word, lane| self.is_over(word, lane)) {
                self.counts.saved += budgets;
                continue;
            }
            if saved.holder(position) != holder || budgets == 0 {
                self.lose(saved, position);
            }
            if budgets == 0 {
                continue;
            }
            let id = self.used_by(found, &mut words);
            let budgets = words.iter().filter(|word| **word != 0).count() as u64;
            match id {
                Some(id) => {
                    self.counts.saved += budgets;
                    let offset = self.say(&id, &words);
                    self.rows.extend([position as u64, holder, offset]);
                    self.rows.extend(&words);
                }
                None => self.counts.unsaved += budgets,
            }
        }
        (next..saved.positions()).for_each(|vacant| self.lose(saved, vacant));
    }

    /// What the file says of a record's holder is so no longer.
    fn lose(&mut self, saved: &Saved, position: usize) {
        if saved.holder(position) == 0 {
            return;
        }
        let mut words = saved.words(position).iter().enumerate();
        if words.any(|(lane, word)| *word != 0 && !self.is_over(*word, lane)) {
            self.gone.push(saved.offset(position));
        }
        self.rows.extend([position as u64, 0, 0]);
        self.rows.extend(self.lanes.iter().map(|_| 0));
    }

    /// Says how agents stand of whom the file says what is so no longer.
    /// `false` if it cannot be told who they are.
    fn say_gone(&mut self, file: &KeptFile) -> bool {
        // An id, each byte escaped, and what is before it.
        let mut text = vec![0; 6 * ID_BYTES_MAX + 64];
        let (mut words, gone) = (Vec::new(), std::mem::take(&mut self.gone));
        gone.into_iter().all(|offset| {
            let read = file.read_at(offset, &mut text).unwrap_or(0);
            let Some(id) = id_at(&text[..read]) else { return false };
            let found = self.limiter.hash(&id).ok().and_then(|hash| self.limiter.slab.find(hash));
            words.clear();
            // The agent may be back, with another record.
            let is_back = found.is_some_and(|found| self.used_by(found, &mut words).is_some());
            self.say(&id, if is_back { &words } else { &[] });
            true
        })
    }

    fn say(&mut self, id: &[u8], words: &[u64]) -> u64 {
        let used = self.lanes.iter().zip(words).filter(|(_, word)| **word != 0);
        self.text.push(
            id,
            used.map(|(lane, word)| {
                let (window, used) = budget::unpacked(*word);
                (&lane.text, window, used)
            }),
        )
    }

    fn is_over(&self, word: u64, lane: usize) -> bool {
        budget::unpacked(word).0 < self.lanes[lane].now
    }

    /// What is used of each lane of a record.
    fn look(&self, found: &Found<'_>, words: &mut Vec<u64>) {
        words.clear();
        words.extend(self.lanes.iter().map(|lane| {
            let used = |words: &[_]| budget::used(words[0], lane.now);
            let used = found.record.peek_cells(self.limiter.limits.cells(lane.lane), used);
            used.map_or(0, |(window, used)| budget::packed(window, used))
        }));
    }

    /// What the holder of a record has used, and its id if that is known.
    fn used_by(&self, mut found: Found<'_>, words: &mut Vec<u64>) -> Option<Vec<u8>> {
        for _ in 0..LOOKS_MAX {
            self.look(&found, words);
            if words.iter().all(|word| *word == 0) {
                return None;
            }
            let id = self.ids.read(found.position);
            let tag = found.record.tag();
            let is_own = |id: &Vec<u8>| self.limiter.hash(id).is_ok_and(|hash| tag.belongs_to(hash.tag()));
            // The same holder before and after: what was read between is its own.
            // The id may still be missing: an agent that was forgotten and came
            // back has the same tag, and a claim that has not yet written its id
            // down. Its new record has used nothing, as the next look finds.
            match id.filter(is_own) {
                Some(id) if tag.opened().with_row(found.tag.row()) == found.tag.opened() => return Some(id),
                _ => found.tag = tag,
            }
        }
        None
    }
}
