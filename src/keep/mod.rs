//! What survives a restart (feature `persist`), in files that people can read.
//!
//! - `replace.rs`: how a file is replaced in one step
//! - `kept.rs`: who may write it, and when it is added to or replaced
//! - `changes.rs`: what is added to it, and how a torn end is recognised
//! - `json.rs`: what the texts of all files have in common
//! - `assignments.rs`: the file of assignments, and its text
//! - `budgets/`: the file of used budgets
//! - `error.rs`: what can go wrong

mod assignments;
mod budgets;
pub(crate) mod changes;
mod error;
pub(crate) mod json;
mod kept;
mod replace;

pub use assignments::AssignmentFile;
pub(crate) use budgets::BudgetKeeper;
pub use budgets::{BudgetsLoaded, BudgetsSaved};
pub use error::PersistError;
pub(crate) use kept::{FileVersion, KeptFile};
pub(crate) use replace::publish;
