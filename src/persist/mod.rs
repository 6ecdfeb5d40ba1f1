//! What survives a restart (feature `persist`), in files that people can read.
//!
//! - `replace.rs`: how a file is replaced in one step
//! - `kept.rs`: who may write it, and when it is added to or replaced
//! - `changes.rs`: what is added to it, and how a torn end is told
//! - `json.rs`: what the texts of all files have in common
//! - `budgets.rs`: the text of the file of used budgets, and `known.rs` how a
//!   million of them are read; that of assignments is with them, in `assignments/`
//! - `error.rs`: what goes wrong

pub(crate) mod budgets;
pub(crate) mod changes;
mod error;
pub(crate) mod json;
mod kept;
mod known;
mod replace;

pub use error::PersistError;
pub(crate) use kept::{KeptFile, Seen};
pub(crate) use replace::{ANYBODY, Replaced};
