//! The presets: their numbers, and what an agent sees of them.

#![expect(clippy::unwrap_used, reason = "a panic in a test names its line")]

mod bursts;
#[path = "../common/hub_actions.rs"]
mod hub_actions;
mod numbers;
