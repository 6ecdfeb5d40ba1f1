//! The machine below. The core's `unsafe` lives here.
//!
//! - `mapping.rs`: zeroed memory from the system
//! - `arena.rs`: that memory as homes and blocks, for the slab
//! - `processor.rs`: prefetch, and sixteen bytes compared at once
//! - `process.rs`: which process this is, and what no fork interrupts

pub(crate) mod arena;
pub(crate) mod mapping;
pub(crate) mod process;
pub(crate) mod processor;
