//! Changes to the assignments of single agents: prepared, counted, saved, put in force.

use super::lock::ControlState;
use super::names::entry_of;
use super::{Control, ControlError};
use crate::bounds::OVERRIDES_MAX;
use crate::engine::registry::Entry;
use crate::engine::{Assignment, effective_limit};
use crate::observe::Note;
use crate::policy::{LaneId, Limit, LimitError, Policy};
use crate::slab::FoundRecord;
use crate::slab::hash::AgentHash;
use std::collections::BTreeSet;

/// A change to one agent's assignment.
pub(super) struct Edit {
    pub(super) hash: AgentHash,
    pub(super) id: Box<[u8]>,
    pub(super) before: Entry,
    /// Without a row for its overrides yet.
    pub(super) after: Entry,
}

/// Saves edits before they are put in force.
pub(super) type Save<'a> = &'a mut dyn FnMut(&mut ControlState, &[Edit]) -> Result<(), ControlError>;

/// For what is in its file, or belongs in none.
pub(super) fn unsaved(_: &mut ControlState, _: &[Edit]) -> Result<(), ControlError> {
    Ok(())
}

impl Control<'_> {
    /// Edits an agent's assignment. After an error it is as it was.
    pub(super) fn edit(
        &self,
        agent: &[u8],
        edit: impl FnOnce(&Policy, &mut Entry) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let mut control = self.enter()?;
        let edit = self.prepare(agent, |entry| edit(&control.policy, entry))?;
        let edits = self.countable(&control, vec![edit])?;
        self.decide(&mut control, edits, &mut |control, edits| self.save(control, edits))
    }

    /// Puts in force what an operator of this machine has decided; it follows to the others.
    pub(super) fn decide(
        &self,
        control: &mut ControlState,
        edits: Vec<Edit>,
        save: Save<'_>,
    ) -> Result<(), ControlError> {
        #[cfg(feature = "cluster")]
        let agents = self.followed_ids(&edits);
        self.put_all_in_force(control, edits, save)?;
        #[cfg(feature = "cluster")]
        self.note_changed(control, agents);
        Ok(())
    }

    /// There is no file.
    #[cfg(not(feature = "persist"))]
    pub(super) fn save(&self, control: &mut ControlState, edits: &[Edit]) -> Result<(), ControlError> {
        unsaved(control, edits)
    }

    /// The edits that put these assignments in force.
    pub(super) fn edits<'a>(
        &self,
        control: &ControlState,
        assignments: impl Iterator<Item = (&'a [u8], &'a Assignment)>,
    ) -> Result<Vec<Edit>, ControlError> {
        let edits = assignments.map(|(agent, assignment)| {
            self.edit_of(control, agent, assignment)
                .map_err(|problem| ControlError::Of { agent: shown(agent), problem: problem.into() })
        });
        self.countable(control, edits.collect::<Result<_, _>>()?)
    }

    /// The edit that puts an assignment in force.
    pub(super) fn edit_of(
        &self,
        control: &ControlState,
        agent: &[u8],
        assignment: &Assignment,
    ) -> Result<Edit, ControlError> {
        let after = entry_of(&control.policy, assignment)?;
        self.prepare(agent, |entry| {
            *entry = Entry { by_policy: entry.by_policy, ..after };
            Ok(())
        })
    }

    fn prepare(
        &self,
        agent: &[u8],
        edit: impl FnOnce(&mut Entry) -> Result<(), ControlError>,
    ) -> Result<Edit, ControlError> {
        let hash = self.hash(agent)?;
        let before = self.registry.get(hash, agent).ok_or(ControlError::SameHash)?;
        let mut after = before.clone();
        edit(&mut after)?;
        for (lane, limit) in &after.overrides {
            self.is_for(*lane, limit).map_err(ControlError::Limit)?;
        }
        Ok(Edit { hash, id: agent.into(), before, after })
    }

    /// Refuses a limit of another kind than the lane's, or one that needs more
    /// words than the lane has.
    pub(super) fn is_for(&self, lane: LaneId, limit: &Limit) -> Result<(), LimitError> {
        limit.is_for_total(self.limits.is_total(lane))?;
        let room = self.limits.cells(lane).count;
        if self.limits.is_for(lane, limit) {
            let fits = limit.words() <= room;
            return if fits { Ok(()) } else { Err(LimitError::ExactRoom { count: limit.capacity(), room }) };
        }
        // The policy in force shows the lane's kind.
        let policy = self.policy();
        let mut known = policy.plans().filter_map(|(plan, _)| policy.plan_limit(plan, lane));
        let known = known.find(|known| known.lane_kind().is_some()).unwrap_or(Limit::deny_all());
        Err(LimitError::OtherKind { limit: limit.to_string(), known: known.to_string() })
    }

    /// Saves counted edits, and puts them in force.
    ///
    /// What can be refused is refused before `save`, so no file has a change that was refused for want of room. After
    /// `save` they count, unless this process dies at once: then the file may have edits that were never in force and
    /// never acknowledged. What is in force wins: the next process to keep the file writes that. Only if the slab is
    /// lost before, with the machine, is the file all that there is.
    pub(super) fn put_all_in_force(
        &self,
        control: &mut ControlState,
        edits: Vec<Edit>,
        save: Save<'_>,
    ) -> Result<(), ControlError> {
        // Those that free a row come first: one spare row is enough for all.
        let (mut edits, others): (Vec<_>, Vec<_>) = edits.into_iter().partition(|edit| edit.after.overrides.is_empty());
        edits.extend(others);
        let agents = edits.len();
        let first = edits.first().map(|edit| edit.id.clone());
        #[cfg(feature = "persist")]
        let is_saved = control.saved == self.changes();
        match self.registry.shared() {
            Some(table) => self.put_all_shared(control, table, &edits, save)?,
            None => {
                save(control, &edits)?;
                edits.into_iter().for_each(|edit| self.put_in_force(control, edit));
            }
        }
        #[cfg(feature = "persist")]
        if is_saved {
            control.saved = self.changes(); // These edits are in the file already.
        }
        match first {
            Some(agent) if agents == 1 => self.note(|| Note::AssignmentChanged { agent: &agent }),
            Some(_) => self.note(|| Note::AssignmentsChanged { agents: agents as u64 }),
            None => {}
        }
        Ok(())
    }

    /// Puts one edit of a private limiter in force. There is a row for its overrides: the caller
    /// has counted.
    pub(super) fn put_in_force(&self, control: &mut ControlState, edit: Edit) {
        let Edit { hash, id, before, mut after } = edit;
        after.override_row = None;
        if !after.overrides.is_empty() {
            after.override_row = control.free_rows.pop();
            control.overridden += 1;
        }
        if let Some(row) = after.override_row {
            let policy = &control.policy;
            let numbers = policy.lanes().filter_map(|(lane, _)| effective_limit(&after, policy, lane)?.compile().ok());
            self.limits.write_numbers(row, policy.warn_below_percent(), numbers);
        }
        let epoch = self.limits.epoch();
        let moved = |found: FoundRecord<'_>, moves: &[_]| {
            let moved = self.moved(found, moves, control.policy.on_change());
            self.reservations.revise(hash, |entry| Some(entry.moved(&moved)));
        };
        let changed = self.with_change(control.policy.on_change(), &moved, |change| {
            self.slab.change_row(hash, change, || self.registry.set(hash, &id, after, epoch))
        });
        debug_assert!(changed.is_ok(), "in private memory every wait ends");
        // Only now is the row free for others: see "Rows" in `record`.
        if let Some(row) = before.override_row {
            control.free_rows.push(row);
            control.overridden -= 1;
        }
    }

    /// The edits that change something, if there are rows for all of them.
    pub(super) fn countable(&self, control: &ControlState, mut edits: Vec<Edit>) -> Result<Vec<Edit>, ControlError> {
        // Of several edits of one agent, the last one counts.
        let mut seen = BTreeSet::new();
        edits.reverse();
        edits.retain(|edit| seen.insert(edit.hash));
        edits.retain(|Edit { before, after, .. }| !before.decides_as(after));
        let more = edits.iter().filter(|edit| !edit.after.overrides.is_empty()).count();
        let less = edits.iter().filter(|edit| !edit.before.overrides.is_empty()).count();
        let overridden = self.registry.shared().map_or(control.overridden, |table| table.rows_taken());
        if overridden + more - less > OVERRIDES_MAX { Err(ControlError::TooManyOverrides) } else { Ok(edits) }
    }
}

/// An id for a message, with escapes for what a terminal would act on.
fn shown(id: &[u8]) -> String {
    String::from_utf8_lossy(id).chars().take(80).flat_map(char::escape_debug).collect()
}
