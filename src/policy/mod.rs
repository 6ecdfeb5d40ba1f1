//! What an operator configures, checked once when it is built.
//!
//! | what | file |
//! |---|---|
//! | a checked policy | `policy.rs` |
//! | how it is collected and checked | `builder.rs`, `error.rs` |
//! | its lanes' numbers, and the words of each lane | `lane_id.rs`, `cells.rs` |
//! | its plans | `plan.rs` |
//! | which lane an action is charged to; the name that was probably meant | `actions.rs`, `nearest.rs` |
//! | what follows from violations | `conduct.rs` |
//! | ready-made policies | `preset.rs` |
//! | policies as TOML | `file/` |
//!
//! Limits and their kinds are a level below, in [`lane`](crate::lane).

mod actions;
mod builder;
mod cells;
mod conduct;
mod error;
#[cfg(feature = "config")]
mod file;
mod lane_id;
mod nearest;
mod plan;
#[expect(clippy::module_inception, reason = "the noun of this folder")]
mod policy;
pub mod preset;

#[cfg(feature = "persist")]
pub(crate) use crate::lane::Era;
pub(crate) use crate::lane::Kind;
pub use crate::lane::{Calendar, CallLimit, Limit, LimitError};
pub use actions::Classification;
#[cfg(feature = "config")]
use builder::NamedLimit;
pub use builder::PolicyBuilder;
pub(crate) use cells::Cells;
pub use conduct::{ConductError, ConductRules};
pub use error::PolicyError;
#[cfg(feature = "config")]
pub use file::ConfigError;
pub use lane_id::LaneId;
pub use plan::{OnChange, PlanId};
pub use policy::Policy;
