//! Assignments in a file (feature `persist`).

use super::edit::{Edit, unsaved};
use super::lock::ControlState;
use super::{Control, ControlError};
use crate::engine::{Assignment, Assignments, named};
use crate::keep::{AssignmentFile, PersistError};
use crate::limits::LoadedFile;
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

impl Control<'_> {
    /// Keeps assignments in a file from now on, and puts in force those it holds already.
    pub(crate) fn keep_assignments_in(&self, path: &Path) -> Result<(), ControlError> {
        let (mut file, kept) = AssignmentFile::open(path)?;
        let mut control = self.enter()?;
        // A shared slab that outlived its processes has what was changed since.
        let is_loaded = self.limits.state().is_loaded(LoadedFile::Assignments) && self.registry.shared().is_some();
        let kept_ones = kept.iter().filter(|_| !is_loaded);
        let edits = self.edits(&control, kept_ones.map(|(id, assignment)| (&**id, assignment)))?;
        self.put_all_in_force(&mut control, edits, &mut |control, edits| {
            let all = self.assignments_after(edits, &control.policy);
            if all != kept {
                file.save(all.iter().map(|(id, assignment)| (&**id, assignment)))?;
            }
            Ok(())
        })?;
        self.limits.state().set_loaded(LoadedFile::Assignments);
        control.file = Some(file);
        #[cfg(feature = "cluster")]
        self.note_restored(&mut control);
        control.saved = self.changes();
        Ok(())
    }

    /// Reads the file again, after somebody has edited it, and puts it in force.
    ///
    /// What other processes have changed since the last save is written first. If the file was edited too, nobody can
    /// tell an agent that was removed from it by hand from one that another process has added: that is refused.
    pub(crate) fn reload_assignments(&self) -> Result<(), ControlError> {
        let mut control = self.enter()?;
        self.save_others(&mut control).map_err(|error| match error {
            PersistError::Changed { path } => PersistError::Unsaved { path },
            other => other,
        })?;
        let (mut assignments, stamp) = control.own_file().ok_or(ControlError::NoFile)?.read()?;
        // One by one, here and below: `collect` would sort first, which is a lot of code.
        let mut named = BTreeSet::new();
        named.extend(assignments.iter().map(|(id, _)| id.clone()));
        let gone = self.registry.list().into_iter().filter(|(_, registered)| !named.contains(&*registered.id));
        assignments.extend(gone.map(|(_, registered)| (registered.id.into_vec(), Assignment::default())));
        let edits = self.edits(&control, assignments.iter().map(|(id, assignment)| (&**id, assignment)))?;
        self.decide(&mut control, edits, &mut unsaved)?;
        if let Some(file) = control.own_file() {
            file.accept(stamp);
        }
        Ok(())
    }

    /// Writes to the file what other processes have changed since, if this one keeps it.
    pub(crate) fn save_assignments(&self) -> Result<(), ControlError> {
        let mut control = self.enter()?;
        Ok(self.save_others(&mut control)?)
    }

    fn save_others(&self, control: &mut ControlState) -> Result<(), PersistError> {
        let changes = self.changes();
        if control.saved != changes && control.own_file().is_some() {
            let all = self.assignments_after(&[], &control.policy);
            let Some(file) = control.own_file() else { return Ok(()) };
            file.save(all.iter().map(|(id, assignment)| (&**id, assignment)))?;
            control.saved = changes;
        }
        Ok(())
    }

    /// How often assignments of a shared limiter have changed.
    pub(super) fn changes(&self) -> u64 {
        self.registry.shared().map_or(0, |table| table.changes())
    }

    /// Puts edits into the file, if there is one.
    pub(super) fn save(&self, control: &mut ControlState, edits: &[Edit]) -> Result<(), ControlError> {
        let policy = Arc::clone(&control.policy);
        let Some(file) = control.own_file().filter(|_| !edits.is_empty()) else {
            return Ok(());
        };
        let changes: Assignments = edits.iter().map(|edit| (edit.id.to_vec(), named(&edit.after, &policy))).collect();
        Ok(file.change(&changes, || self.assignments_after(edits, &policy))?)
    }

    /// Every assignment after these edits, sorted by id.
    fn assignments_after(&self, edits: &[Edit], policy: &Policy) -> Assignments {
        let now = self.registry.list().into_iter().map(|(_, registered)| (registered.id, registered.entry));
        let mut all = BTreeMap::new();
        all.extend(now);
        all.extend(edits.iter().map(|edit| (edit.id.clone(), edit.after.clone())));
        let named = all.into_iter().map(|(id, entry)| (id.into_vec(), named(&entry, policy)));
        named.filter(|(_, assignment)| !assignment.is_empty()).collect()
    }
}
