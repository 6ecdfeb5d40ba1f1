//! The machine underneath: memory, processor, process. `unsafe` code of the core is here, and where `clock/` asks for
//! the time.
//!
//! - `mapping.rs`: zeroed memory from the system, private or shared
//! - `file.rs`: memory that several processes map, and locks that show which of them live
//! - `arena.rs`: that memory as homes and blocks, for the slab
//! - `processor.rs`: prefetch, and comparing sixteen bytes at once
//! - `process.rs`: which process this is, and work that no fork interrupts

pub(crate) mod arena;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
pub(crate) mod file;
pub(crate) mod mapping;
pub(crate) mod process;
pub(crate) mod processor;
