//! The machine underneath: memory, processor, process. `unsafe` code of the core is here, and where `clock/` asks for
//! the time.
//!
//! - `mapping.rs`: zeroed memory from the system
//! - `arena.rs`: that memory as homes and blocks, for the slab
//! - `processor.rs`: prefetch, and comparing sixteen bytes at once
//! - `process.rs`: which process this is, and work that no fork interrupts

pub(crate) mod arena;
pub(crate) mod mapping;
pub(crate) mod process;
pub(crate) mod processor;
