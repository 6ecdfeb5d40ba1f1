//! From the records to the file: writes what has changed since the last save.

use super::rows::SavedRows;
use super::text::{Text, id_at};
use super::{BudgetedLane, BudgetsSaved};
use crate::bounds::ID_BYTES_MAX;
use crate::engine::Engine;
use crate::keep::KeptFile;
use crate::lane::budget;
use crate::observe::roster::Roster;
use crate::slab::FoundRecord;

/// How often a record that changes hands meanwhile is looked at.
const ATTEMPTS_MAX: usize = 8;

/// A walk over all records.
pub(super) struct Walk<'a> {
    engine: &'a Engine,
    ids: &'a Roster,
    lanes: &'a [BudgetedLane],
    pub(super) text: Text,
    pub(super) counts: BudgetsSaved,
    /// The new rows of the file: position, tenant, offset in the text, words.
    pub(super) rows: Vec<u64>,
    /// Offsets of outdated entries.
    gone: Vec<u64>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(engine: &'a Engine, ids: &'a Roster, lanes: &'a [BudgetedLane], is_document: bool) -> Self {
        let text = Text::new(is_document, engine.at(engine.clock.now()).unix_ns());
        Self { engine, ids, lanes, text, counts: BudgetsSaved::default(), rows: Vec::new(), gone: Vec::new() }
    }

    /// Writes what differs from what was saved.
    pub(super) fn compare(&mut self, saved: &SavedRows) {
        let (mut words, mut next) = (Vec::new(), 0);
        for found in self.engine.slab.occupied() {
            let position = found.position;
            (next..position).for_each(|vacant| self.lose(saved, vacant));
            next = position + 1;
            let tenant = found.tag.tenant_bits();
            self.used_words(&found, &mut words);
            let budgets = words.iter().filter(|word| **word != 0).count() as u64;
            if saved.is(position, tenant, &words, |word, lane| self.is_over(word, lane)) {
                self.counts.saved += budgets;
                continue;
            }
            if saved.tenant(position) != tenant || budgets == 0 {
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
                    let offset = self.write(&id, &words);
                    self.rows.extend([position as u64, tenant, offset]);
                    self.rows.extend(&words);
                }
                None => self.counts.unsaved += budgets,
            }
        }
        (next..saved.positions()).for_each(|vacant| self.lose(saved, vacant));
    }

    /// Marks the entry of a record's tenant as outdated.
    fn lose(&mut self, saved: &SavedRows, position: usize) {
        if saved.tenant(position) == 0 {
            return;
        }
        let mut words = saved.words(position).iter().enumerate();
        if words.any(|(lane, word)| *word != 0 && !self.is_over(*word, lane)) {
            self.gone.push(saved.offset(position));
        }
        self.rows.extend([position as u64, 0, 0]);
        self.rows.extend(self.lanes.iter().map(|_| 0));
    }

    /// Writes new entries for the agents whose entries in the file are outdated.
    /// `false` if their ids cannot be found.
    pub(super) fn write_gone(&mut self, file: &KeptFile) -> bool {
        // An id, each byte escaped, and what is before it.
        let mut text = vec![0; 6 * ID_BYTES_MAX + 64];
        let (mut words, gone) = (Vec::new(), std::mem::take(&mut self.gone));
        gone.into_iter().all(|offset| {
            let read = file.read_at(offset, &mut text).unwrap_or(0);
            let Some(id) = id_at(&text[..read]) else { return false };
            let found = self.engine.hash(&id).ok().and_then(|hash| self.engine.slab.find(hash));
            words.clear();
            // The agent may be back, with another record.
            let is_back = found.is_some_and(|found| self.used_by(found, &mut words).is_some());
            self.write(&id, if is_back { &words } else { &[] });
            true
        })
    }

    fn write(&mut self, id: &[u8], words: &[u64]) -> u64 {
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
    fn used_words(&self, found: &FoundRecord<'_>, words: &mut Vec<u64>) {
        words.clear();
        words.extend(self.lanes.iter().map(|lane| {
            let used = |words: &[_]| budget::used(words[0], lane.now);
            let used = found.record.peek_cells(self.engine.limits.cells(lane.lane), used);
            used.map_or(0, |(window, used)| budget::packed(window, used))
        }));
    }

    /// What the tenant of a record has used, and its id if that is known.
    fn used_by(&self, mut found: FoundRecord<'_>, words: &mut Vec<u64>) -> Option<Vec<u8>> {
        for _ in 0..ATTEMPTS_MAX {
            self.used_words(&found, words);
            if words.iter().all(|word| *word == 0) {
                return None;
            }
            let id = self.ids.read(found.position);
            let tag = found.record.tag();
            let is_own = |id: &Vec<u8>| self.engine.hash(id).is_ok_and(|hash| tag.belongs_to(hash.tag()));
            // The same tenant before and after, so what was read between is its own.
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
