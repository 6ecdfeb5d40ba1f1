//! What was changed here and follows to other machines, and what follows from there.
//!
//! A control call leaves the name of what it has changed in [`Changed`], under the lock under which it is in force; an
//! engine takes it out. So whoever holds that lock knows whether a change of this machine still waits for its engine. A
//! change that follows from another machine is put in force under the same lock, only if none waits, and is not named:
//! else it would go back and forth.

use super::edit::{Edit, Save};
use super::lock::ControlState;
use super::{Control, ControlError};
use crate::bounds::CHANGED_AGENTS_MAX;
use crate::engine::Assignment;
use crate::policy::Policy;
use crate::sync::Ordering;
use std::collections::BTreeSet;

/// What operators have changed on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The ids of agents whose assignments have changed. What is assigned to them now is in force already.
    pub agents: BTreeSet<Box<[u8]>>,
    /// More agents have changed than are named here.
    pub is_more: bool,
    /// Another policy was put in force.
    pub policy: bool,
    /// Assignments were read from a file that outlived a restart, so others may have changed them since.
    pub is_restored: bool,
}

impl Changed {
    fn is_nothing(&self) -> bool {
        self.agents.is_empty() && !self.is_more && !self.policy && !self.is_restored
    }

    fn add(&mut self, agent: Box<[u8]>) {
        if self.agents.len() < CHANGED_AGENTS_MAX {
            self.agents.insert(agent);
        } else if !self.agents.contains(&agent) {
            self.is_more = true;
        }
    }

    /// Whether a change of this agent may be among these.
    fn may_have(&self, agent: &[u8]) -> bool {
        self.is_more || self.agents.contains(agent)
    }
}

/// What became of a change that followed from another machine.
#[derive(Debug)]
pub enum Followed {
    /// It is in force.
    InForce,
    /// Nothing was changed: this machine has a change of its own that its engine has not [taken](Changed) yet.
    ChangedHere,
    /// Nothing was changed, and why.
    Refused(ControlError),
}

impl Control<'_> {
    /// The ids of edited agents, if there may be an engine to take them.
    pub(super) fn followed_ids(&self, edits: &[Edit]) -> Vec<Box<[u8]>> {
        if !self.has_asks() {
            return Vec::new();
        }
        edits.iter().map(|edit| edit.id.clone()).collect()
    }

    /// Names agents whose assignments an operator has changed.
    pub(super) fn note_changed(&self, control: &mut ControlState, agents: Vec<Box<[u8]>>) {
        if !agents.is_empty() {
            agents.into_iter().for_each(|agent| control.changed.add(agent));
            self.lock.has_changed.store(1, Ordering::Relaxed);
        }
    }

    /// Says that an operator has put another policy in force.
    pub(super) fn note_policy_changed(&self, control: &mut ControlState) {
        if self.has_asks() {
            control.changed.policy = true;
            self.lock.has_changed.store(1, Ordering::Relaxed);
        }
    }

    /// Says that assignments were read from a file.
    #[cfg(feature = "persist")]
    pub(super) fn note_restored(&self, control: &mut ControlState) {
        if self.has_asks() {
            control.changed.is_restored = true;
            self.lock.has_changed.store(1, Ordering::Relaxed);
        }
    }

    /// Takes the names of what operators have changed. `None` if nothing was: that takes no lock.
    pub(crate) fn take_changed(&self) -> Result<Option<Changed>, ControlError> {
        // A change that is under way is seen next time.
        if self.lock.has_changed.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let mut control = self.enter()?;
        self.lock.has_changed.store(0, Ordering::Relaxed);
        Ok(Some(std::mem::take(&mut control.changed)).filter(|changed| !changed.is_nothing()))
    }

    /// Puts assignments in force that were made on other machines: each for itself, and all of them with one write to
    /// the file.
    pub(crate) fn follow(&self, assignments: &[(Box<[u8]>, Assignment)]) -> Result<Vec<Followed>, ControlError> {
        let mut control = self.enter()?;
        let mut edits = Vec::new();
        let outcomes = assignments.iter().map(|(agent, assignment)| {
            if control.changed.may_have(agent) {
                return Followed::ChangedHere;
            }
            match self.edit_of(&control, agent, assignment) {
                Ok(edit) => {
                    edits.push(edit);
                    Followed::InForce
                }
                Err(problem) => Followed::Refused(problem),
            }
        });
        let mut outcomes: Vec<_> = outcomes.collect();
        let save: Save<'_> = &mut |control, edits| self.save(control, edits);
        match self.countable(&control, edits) {
            Ok(edits) => self.put_all_in_force(&mut control, edits, save)?,
            // Not for all of them is there a row: one after the other, as far as they go.
            Err(_) => {
                for ((agent, assignment), outcome) in assignments.iter().zip(&mut outcomes) {
                    if matches!(outcome, Followed::InForce) {
                        let edit = self.edit_of(&control, agent, assignment);
                        let edits = edit.and_then(|edit| self.countable(&control, vec![edit]));
                        let put = edits.and_then(|edits| self.put_all_in_force(&mut control, edits, save));
                        put.unwrap_or_else(|problem| *outcome = Followed::Refused(problem));
                    }
                }
            }
        }
        Ok(outcomes)
    }

    /// Puts a policy in force that was put in force on another machine.
    pub(crate) fn follow_policy(&self, policy: Policy) -> Followed {
        let followed = self.enter().and_then(|mut control| {
            if control.changed.policy {
                return Ok(Followed::ChangedHere);
            }
            self.put_policy_in_force(&mut control, policy).map(|()| Followed::InForce)
        });
        followed.unwrap_or_else(Followed::Refused)
    }
}
