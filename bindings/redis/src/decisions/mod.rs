//! What operators decide on one machine, for all of them.
//!
//! - `field.rs`: what is decided about: an agent, or the policy
//! - `wire.rs`: what is asked of the store, and what it answers

mod field;
mod wire;

pub use field::Field;
pub use wire::{DECISIONS_MAX, DecisionScripts, Head, Put, StoreReply, StoreRequest, Stored};
