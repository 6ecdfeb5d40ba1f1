//! The files that the limiter keeps in the state directory, and who keeps them.
//!
//! One process at a time keeps `assignments.json` and `budgets.json`, which it locks.
//! Of servers that share a slab the first one does. The others start without the
//! files, and try again every few seconds: when the first one ends, one of them takes
//! over. A slab that has loaded the files before is newer than they are: they are
//! written, and not loaded again.

use crate::error::StartError;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tollgate::keep::{BudgetsLoaded, PersistError};
use tollgate::{ControlError, Limiter};

/// The files of assignments and used budgets.
pub(crate) struct StateFiles {
    directory: PathBuf,
    kept: Mutex<KeptFiles>,
}

/// Which of the files this process keeps.
#[derive(Default)]
struct KeptFiles {
    assignments: bool,
    budgets: bool,
    /// Why the last try failed, so that it is logged once.
    problem: String,
}

impl StateFiles {
    /// Loads the files, and keeps them from now on. If another process does, and the
    /// limiter is shared, this one only says so.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub(crate) fn start(limiter: &Limiter, directory: PathBuf) -> Result<Self, StartError> {
        let files = Self { directory, kept: Mutex::default() };
        let kept = files.keep(limiter, &mut files.lock());
        match kept {
            Err(error) if is_in_use(&error) && limiter.sharing().is_some() => {
                let directory = files.directory.display();
                tracing::info!(%directory, "another process keeps the files of the state directory; this one takes over when it ends");
                Ok(files)
            }
            kept => kept.map(|()| files).map_err(|error| StartError::new(error.to_string())),
        }
    }

    /// Whether this process keeps the assignments.
    pub(crate) fn has_assignments(&self) -> bool {
        self.lock().assignments
    }

    /// Takes over from a process that has ended.
    pub(crate) fn take_over(&self, limiter: &Limiter) {
        let mut kept = self.lock();
        if kept.assignments && kept.budgets {
            return;
        }
        match self.keep(limiter, &mut kept) {
            Ok(()) => {
                let directory = self.directory.display();
                tracing::info!(%directory, "this process keeps the files of the state directory now");
            }
            Err(error) if is_in_use(&error) => {}
            Err(error) => {
                let problem = error.to_string();
                if problem != kept.problem {
                    tracing::error!(%error, "cannot take over the files of the state directory; trying again");
                    kept.problem = problem;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeptFiles> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, limiter: &Limiter, kept: &mut KeptFiles) -> Result<(), ControlError> {
        if !kept.assignments {
            limiter.keep_assignments_in(self.directory.join("assignments.json"))?;
            kept.assignments = true;
        }
        if !kept.budgets {
            let loaded = limiter.keep_budgets_in(self.directory.join("budgets.json"))?;
            kept.budgets = true;
            warn_about(&loaded);
        }
        Ok(())
    }
}

fn is_in_use(error: &ControlError) -> bool {
    matches!(error, ControlError::File(PersistError::InUse { .. }))
}

/// Warns about used budgets that could not be loaded as they were.
fn warn_about(budgets: &BudgetsLoaded) {
    let BudgetsLoaded { unknown, full, ahead, .. } = *budgets;
    if unknown > 0 || full > 0 {
        tracing::warn!(
            unknown,
            full,
            "used budgets are lost: their lane is gone or has another window, or there is no room for their agent"
        );
    }
    if !ahead.is_zero() {
        tracing::warn!(
            ?ahead,
            "the wall clock is behind the time at which budgets were saved: their windows end that much later"
        );
    }
}
