//! Control calls of a shared limiter: staged, said to count, put in force; and what a dead process had begun is ended.
//!
//! Every step can be repeated. A call that finds another process stopped with a
//! lock that it needs is answered `Busy`. Edits and a policy that count by then
//! are left to the next control call, of whatever process, and the answer says
//! so. A `reset` or a `forget` that is refused leaves nothing.

use super::edit::{Edit, Save};
use super::lock::{ControlGuard, ControlState};
use super::words::{ControlWords, Forgives};
use super::{Control, ControlError};
use crate::bounds::CONTROL_WITHIN;
use crate::clock::Tick;
use crate::engine::registry::table::{AssignmentTable, NoRoom};
use crate::engine::{Agent, effective_limit};
use crate::error::Error;
use crate::policy::LaneId;
use crate::slab::FoundRecord;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, broken};

impl Control<'_> {
    /// Takes the lock of control calls. In shared memory, what an earlier call left undone is done first.
    pub(super) fn enter(&self) -> Result<ControlGuard<'_>, ControlError> {
        let mut control = self.lock.lock()?;
        if let (Some(words), Some(table)) = (self.lock.words(), self.registry.shared()) {
            // Nobody replaces it while this process has the lock, so it is the one whose rows are in force.
            let (policy, epoch) = self.policy_and_epoch();
            if epoch != self.limits.epoch() {
                return Err(ControlError::PolicyUnreadable);
            }
            control.policy = policy;
            if !words.is_clear() && !broken(Fault::NotEnded) {
                // If that cannot be ended, nothing of this call has begun.
                self.end_what_was_begun(&mut control, words, table).map_err(|error| match error {
                    ControlError::Busy { pid, .. } => ControlError::Busy { pid, has_begun: false },
                    other => other,
                })?;
            }
        }
        Ok(control)
    }

    #[cold]
    fn end_what_was_begun(
        &self,
        control: &mut ControlState,
        words: &ControlWords,
        table: &AssignmentTable,
    ) -> Result<(), ControlError> {
        self.end_forgiving(words)?;
        if words.edits_count() {
            self.put_staged_in_force(control, words, table, &table.staged())?;
        } else {
            table.unstage_all();
        }
        // Before the policy, which must find the rows free that the dead process had taken for it.
        if words.was_left() {
            let named = self.slab.rows();
            table.recount(|row| named.contains(&row.number()));
            words.clear_left();
        }
        if let Some((epoch, region)) = words.policy() {
            if self.limits.epoch() == epoch {
                match self.move_on(control, epoch, Some(region)) {
                    Err(error) if error.may_pass() => return Err(error),
                    // The policy is in force but for one agent, whose assignment found no room, now or before.
                    Ok(()) | Err(_) => {}
                }
            }
            words.set_policy(0);
        }
        Ok(())
    }

    /// Ends what a dead process was forgiving. An intent that cannot be carried out, which nobody here wrote, is
    /// dropped: it would be in everybody's way for ever.
    fn end_forgiving(&self, words: &ControlWords) -> Result<(), Error> {
        if let Some((what, hash)) = words.forgives() {
            if let Err(error @ (Error::Busy | Error::NoSeat { .. })) = self.forgive(what, hash, self.clock.now()) {
                return Err(error);
            }
        }
        words.clear_forgives();
        Ok(())
    }

    /// Puts edits in force, all or none even if this process dies: when they are staged and saved, they count.
    pub(super) fn put_all_shared(
        &self,
        control: &mut ControlState,
        table: &AssignmentTable,
        edits: &[Edit],
        save: Save<'_>,
    ) -> Result<(), ControlError> {
        let Some(words) = self.lock.words() else { return Ok(()) };
        let hashes: Vec<_> = edits.iter().map(|edit| edit.hash).collect();
        let more = edits.iter().filter(|edit| edit.before.is_nothing() && !edit.after.is_nothing()).count();
        let less = edits.iter().filter(|edit| !edit.before.is_nothing() && edit.after.is_nothing()).count();
        if !table.has_room(more as u64, less as u64) {
            return Err(ControlError::TooManyAssignments { most: table.most() });
        }
        let staged = edits.iter().try_for_each(|edit| self.stage(control, table, edit));
        if let Err(error) = staged.and_then(|()| save(control, edits)) {
            for hash in hashes {
                if let Some((entry, _)) = table.change_of(hash) {
                    entry.override_row.into_iter().for_each(|row| table.mark_row(row, false));
                }
                table.unstage(hash);
            }
            return Err(error);
        }
        words.set_edits(true);
        self.put_staged_in_force(control, words, table, &hashes)
    }

    /// Writes an edit beside what is in force.
    fn stage(&self, control: &ControlState, table: &AssignmentTable, edit: &Edit) -> Result<(), ControlError> {
        let mut entry = edit.after.clone();
        entry.override_row = None;
        if !entry.overrides.is_empty() {
            let row = table.take_row().ok_or(ControlError::TooManyOverrides)?;
            // The next free row too, unless the agent is about to free one: a new policy writes each override anew,
            // and must find memory for that.
            let spare = table.free_row().filter(|_| edit.before.overrides.is_empty());
            let mut rows = [Some(row), spare].into_iter().flatten();
            if !rows.all(|row| self.limits.allocate_row(row) && table.allocate_terms(row)) {
                table.mark_row(row, false);
                return Err(ControlError::NoMemory);
            }
            let policy = &control.policy;
            let numbers = policy.lanes().filter_map(|(lane, _)| effective_limit(&entry, policy, lane)?.compile().ok());
            self.limits.write_numbers(row, policy.warn_below_percent(), numbers);
            entry.override_row = Some(row);
        }
        table.stage(edit.hash, &edit.id, &entry).map_err(|problem| {
            entry.override_row.into_iter().for_each(|row| table.mark_row(row, false));
            refusal(table, problem)
        })
    }

    /// Puts what is staged for these agents in force: it counts.
    fn put_staged_in_force(
        &self,
        control: &ControlState,
        words: &ControlWords,
        table: &AssignmentTable,
        hashes: &[AgentHash],
    ) -> Result<(), ControlError> {
        let (on_change, epoch) = (control.policy.on_change(), self.limits.epoch());
        for hash in hashes {
            let Some((entry, old_row)) = table.change_of(*hash) else { continue };
            let row = entry.override_row;
            let moved = |found: FoundRecord<'_>, moves: &[_]| {
                let moved = self.moved(found, moves, on_change);
                self.reservations.revise(*hash, |entry| Some(entry.moved(&moved)));
            };
            self.with_change(on_change, &moved, |change| {
                self.slab.change_row(*hash, change, || self.registry.set(*hash, b"", entry, epoch))
            })
            .map_err(|busy| words.busy(busy, true))?;
            table.unstage(*hash);
            // Only now is the row free for others: see "Rows" in `record`.
            if let Some(old) = old_row.filter(|old| row != Some(*old)) {
                table.mark_row(old, false);
            }
        }
        words.set_edits(false);
        Ok(())
    }

    /// As if a process had died when the change of an agent's plan counted and was not in force.
    #[cfg(all(test, loom))]
    pub(crate) fn die_assigning(&self, agent: &[u8], plan: crate::policy::PlanId, holder: u64) {
        let (words, table) = (self.lock.words().unwrap(), self.registry.shared().unwrap());
        let entry = crate::engine::registry::Entry { plan: Some(plan), ..Default::default() };
        table.stage(self.hash(agent).unwrap(), agent, &entry).unwrap();
        words.set_edits(true);
        words.die(holder);
    }

    /// Fills one lane of an agent.
    pub(crate) fn reset_lane(&self, agent: Agent<'_>, lane: LaneId) -> Result<(), Error> {
        self.limits.lane(lane)?;
        self.intend(Forgives::Lane(lane), agent)?;
        self.forgive_in_store(agent, Some(lane))
    }

    /// Fills every lane of an agent.
    pub(crate) fn reset(&self, agent: Agent<'_>) -> Result<(), Error> {
        self.intend(Forgives::Lanes, agent)?;
        self.forgive_in_store(agent, None)
    }

    /// Vacates an agent's record. `false` if it had none.
    pub(crate) fn forget(&self, agent: Agent<'_>) -> Result<bool, Error> {
        let was_known = self.intend(Forgives::Record, agent)?;
        self.forgive_in_store(agent, None)?;
        Ok(was_known)
    }

    /// Lets the store of lanes that machines share forget what an agent has spent.
    fn forgive_in_store(&self, agent: Agent<'_>, lane: Option<LaneId>) -> Result<(), Error> {
        #[cfg(feature = "cluster")]
        self.engine.reset_in_store(agent, lane)?;
        #[cfg(not(feature = "cluster"))]
        let _ = (agent, lane);
        Ok(())
    }

    /// Forgives; in shared memory even if this process dies halfway.
    ///
    /// A call that is refused leaves no intent, or a later call would carry it out when nobody asks for it any more. It
    /// has changed nothing either: what is refused is refused before the first change. Filling lanes needs no lock, and
    /// `forget` has all locks of the neighbourhood before it writes a word. So only a death leaves an intent.
    ///
    /// In a child that was forked in the midst of a control call, the lock of this process's threads is lost. The lock
    /// of all processes is not: that call's process holds it, and the child takes it after that. It keeps out the
    /// threads of the child too, since they all write the same mark. What it guards is enough here: forgiving needs
    /// neither the policy nor the rows that the lost lock guards, and leaves edits and policies that a dead process had
    /// begun to the next control call.
    fn intend(&self, what: Forgives, agent: Agent<'_>) -> Result<bool, Error> {
        let Agent { id, at } = agent;
        let (hash, now) = (self.hash(id)?, at.unwrap_or_else(|| self.clock.now()));
        let Some(words) = self.lock.words() else { return self.forgive(what, hash, now) };
        match self.enter() {
            Ok(_control) => self.forgive_under_lock(words, what, hash, now),
            Err(ControlError::Forked | ControlError::PolicyUnreadable) => {
                let _words = words.lock(CONTROL_WITHIN).map_err(in_the_way)?;
                self.end_forgiving(words)?;
                self.forgive_under_lock(words, what, hash, now)
            }
            Err(error) => Err(in_the_way(error)),
        }
    }

    fn forgive_under_lock(
        &self,
        words: &ControlWords,
        what: Forgives,
        hash: AgentHash,
        now: Tick,
    ) -> Result<bool, Error> {
        words.set_forgives(what, hash);
        let answer = self.forgive(what, hash, now);
        words.clear_forgives();
        answer
    }

    fn forgive(&self, what: Forgives, hash: AgentHash, now: Tick) -> Result<bool, Error> {
        match what {
            Forgives::Lane(lane) => self.engine.reset_lane(hash, lane, now).map(|()| true),
            Forgives::Lanes => {
                self.engine.reset(hash, now);
                Ok(true)
            }
            Forgives::Record => self.engine.forget(hash, now),
        }
    }
}

/// Why an entry was not staged.
pub(super) fn refusal(table: &AssignmentTable, problem: NoRoom) -> ControlError {
    match problem {
        NoRoom::Entries => ControlError::TooManyAssignments { most: table.most() },
        NoRoom::Memory | NoRoom::Term => ControlError::NoMemory,
    }
}

/// Why something was not forgiven.
fn in_the_way(error: ControlError) -> Error {
    match error {
        ControlError::Agent(error) => error,
        _ => Error::Busy,
    }
}

#[cfg(all(test, feature = "shared", target_os = "linux", not(loom)))]
mod tests {
    use super::*;
    use crate::shared::Shared;
    use crate::{Limiter, Policy};

    fn limiter() -> Limiter {
        let policy = Policy::builder().lane("api", "10/day").build().unwrap();
        Limiter::builder(policy).agents(100).shared(Shared::memfd()).build().unwrap()
    }

    /// An intent that nobody can carry out, as a corrupt word is one, was tried by every control call of every process
    /// before its own change, and each of them was refused with its error.
    #[test]
    fn an_intent_that_cannot_be_ended_is_dropped() {
        let limiter = limiter();
        let control = limiter.control();
        let words = control.lock.words().unwrap();
        words.set_forgives(Forgives::Lane(LaneId::new(999)), control.hash(b"agent-7").unwrap());
        limiter.exempt("agent-8").unwrap();
        assert!(words.is_clear());
    }

    /// A `forget` that was refused left its intent, and an unrelated control call carried it out much later: the agent
    /// was allowed its whole limit once more.
    #[test]
    fn a_call_that_is_refused_leaves_no_intent() {
        let limiter = limiter();
        let control = limiter.control();
        let refused = control.intend(Forgives::Lane(LaneId::new(999)), "agent-7".into());
        assert_eq!(refused, Err(Error::UnknownLane { lane: 999, lanes: 1 }));
        assert!(control.lock.words().unwrap().is_clear());
    }
}
