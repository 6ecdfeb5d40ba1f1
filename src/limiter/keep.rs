//! Used budgets across restarts (feature `persist`).

use super::Limiter;
use crate::keep::{BudgetsLoaded, BudgetsSaved, PersistError};
use std::path::Path;

impl Limiter {
    /// Keeps used budgets in a file, and charges what it records for windows that are not over.
    /// Call it once, before the first check and after
    /// [`keep_assignments_in`](Limiter::keep_assignments_in). Then call
    /// [`save_budgets`](Limiter::save_budgets) every few seconds, and once more before the process
    /// ends. It starts no thread.
    ///
    /// **What can be lost**: if the process is killed, what was charged since the last save;
    /// nothing if it saves as its last act. The answers count the budgets that cannot be loaded or
    /// saved.
    ///
    /// The file is JSON, an agent a line, and is written as
    /// [`AssignmentFile`](crate::keep::AssignmentFile) is: a large file grows by what has changed.
    /// Edit it only while no limiter uses it. Remembering an id takes 272 bytes for each agent that
    /// has a record, unless a [roster](crate::observe::Observe::roster) has them all already; in a
    /// shared slab they are taken at once, for as many agents as there is room for.
    /// Remembering an agent's line of the file takes 16 bytes, and 8 for each lane with a budget.
    ///
    /// A wall clock that was set back while no limiter ran reopens no window: the calendar continues
    /// from the time in the file.
    ///
    /// A budget that machines share is kept by their store and not here. What the file has of one, from before it
    /// was shared, counts as [`unknown`](BudgetsLoaded::unknown).
    ///
    /// # Errors
    ///
    /// [`PersistError::InUse`] if another process, or this one, keeps budgets there;
    /// [`PersistError::Content`] if the file is invalid, and then it is left as it is; otherwise
    /// what the system refused. After an error nothing was charged.
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
        self.budgets.keep_in(&self.engine, path.as_ref())
    }

    /// Writes to the file what has been used of budgets since the last save. When this returns, it
    /// is on the disk. Delays no check.
    ///
    /// Each budget is saved as it is at some moment during the call. The write is as large as the
    /// change, about 120 bytes an agent. A file that is smaller than 64 KiB, or half outdated, is
    /// rewritten. It reads all records: a million take about 40 ms.
    ///
    /// # Errors
    ///
    /// [`PersistError::NotKept`] without [`keep_budgets_in`](Limiter::keep_budgets_in), or in a
    /// forked child; [`PersistError::Changed`] if another writer changed the file; otherwise what
    /// the system refused. Except after [`PersistError::NotSynced`], the file is as it was.
    pub fn save_budgets(&self) -> Result<BudgetsSaved, PersistError> {
        self.budgets.save(&self.engine)
    }
}
