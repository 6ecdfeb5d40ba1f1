//! One limiter for many processes.

#![cfg(all(feature = "shared", target_os = "linux"))]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is a failure that names its line")]

#[path = "../common/child.rs"]
mod child;
#[path = "../common/random.rs"]
mod random;

mod agreement;
mod awkward;
mod basics;
mod changes;
mod forks;
mod header;
mod holds;
#[cfg(feature = "persist")]
mod kept;
mod killed;
mod locks;
mod namespaces;
mod oracle;
mod place;
mod policies;
mod refused;
mod scribbled;
mod states;
mod stepped;
mod stopped;
mod wounds;
