//! The presets: what they say, and how an agent meets it.

#![expect(clippy::unwrap_used, reason = "a panic in a test names its line")]

mod bursts;
mod numbers;
