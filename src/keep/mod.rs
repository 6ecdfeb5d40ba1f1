//! What survives a restart (feature `persist`), in files that people can read.
//!
//! - `replace.rs`: replaces a file in one step
//! - `kept.rs`: locks a file, and decides whether to append to it or replace it
//! - `changes.rs`: what is appended to it, and how a torn end is recognised
//! - `json.rs`: what the texts of all files share
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
