//! One limiter for all processes of a machine (feature `shared`).
//!
//! N processes with a limiter each admit N times the limit. Processes that
//! share a slab check, reserve, hold, plan and override in **one** limiter:
//! what it decides with is in a file in memory that all of them map.
//!
//! ```no_run
//! use tollgate::{Limiter, Policy};
//!
//! let policy = Policy::builder().lane("http", "100/minute").build()?;
//! // The same in every process: the first one makes the slab, the others join it.
//! let limiter = Limiter::builder(policy).agents(1_000_000).shared("/run/tollgate/slab").build()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - `memory.rs`: private words, or sections of the file
//! - `place.rs`: which file
//! - `header.rs`: what has to agree
//! - `join.rs`: make the file or join it; `attach.rs`: which of the two
//! - `seats.rs`: who uses it, and who is dead
//! - `joined.rs`: a file that this process uses; `absent.rs` where there can be none, `modelled.rs` in loom's models
//! - `lock.rs`: locks that a dead process does not keep
//! - `view.rs`: what an operator sees of it
//! - `error.rs`: why it cannot be used
//!
//! # What is shared
//!
//! Records, limits, plans, overrides, exemptions, reservations, held slots,
//! conduct, announced waits, the ids of a roster, counts, the policy in force.
//! Events, offenders, unknown actions and log throttles stay with the process
//! that saw them.
//!
//! # What a process may do to the others
//!
//! A process that ends, or is killed at any instruction, leaves nothing that
//! blocks the others. A process that is stopped blocks nobody but newcomers
//! whose record lies in the region that it was changing, and control calls: they
//! are answered [`Busy`](crate::Error::Busy). A forked child that may not open the
//! file itself is answered [`NoSeat`](crate::Error::NoSeat) there. But a process
//! that may write the file may write anything: all that share it trust each other.
//!
//! Nothing is computed from the file's words that could lead out of it: lengths
//! and addresses are known when a process has joined, and stay as they are.

/// Bits of a short mark: see [`Joined::short_mark`].
pub(crate) const SHORT_BITS: u32 = 22;

#[cfg(not(any(loom, all(feature = "shared", target_os = "linux"))))]
mod absent;
#[cfg(any(all(test, loom), all(feature = "shared", target_os = "linux", not(loom))))]
pub(crate) mod attach;
#[cfg(feature = "shared")]
mod error;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
mod header;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
mod join;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
mod joined;
pub(crate) mod lock;
pub(crate) mod memory;
#[cfg(loom)]
pub(crate) mod modelled;
#[cfg(feature = "shared")]
mod place;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
mod seats;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
pub(crate) use seats::SEAT_BYTES;
#[cfg(feature = "shared")]
mod view;

#[cfg(not(any(loom, all(feature = "shared", target_os = "linux"))))]
pub(crate) use absent::Joined;
#[cfg(feature = "shared")]
pub use error::SharedError;
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
pub(crate) use header::{Agreed, Shape};
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
pub(crate) use join::{Attached, attach};
#[cfg(all(feature = "shared", target_os = "linux", not(loom)))]
pub(crate) use joined::Joined;
#[cfg(all(feature = "shared", not(loom)))]
pub(crate) use memory::Layout;
pub(crate) use memory::{Memory, Section};
#[cfg(loom)]
pub(crate) use modelled::Joined;
#[cfg(feature = "shared")]
pub use place::Shared;
#[cfg(feature = "shared")]
pub use view::{Process, SharedSecret, Sharing};
