//! What survives a restart (feature `persist`), in files that people can read.
//!
//! - `replace.rs`: how a file is replaced in one step
//! - `kept.rs`: who may replace it, and when
//! - `json.rs`: what the texts of all files have in common
//! - `budgets.rs`: the text of the file of used budgets; that of assignments
//!   is with them, in `assignments/`
//! - `error.rs`: what goes wrong

pub(crate) mod budgets;
mod error;
pub(crate) mod json;
mod kept;
mod replace;

pub use error::PersistError;
pub(crate) use kept::{KeptFile, Stamp};
pub(crate) use replace::Replaced;
