//! The C ABI: the limiter for C, C++ and every language that can call C.
//!
//! Rust callers need none of this. It translates and decides nothing. The doc
//! comments become the text of `include/tollgate.h`, which is the manual, so
//! they are written for a C reader: the comment on top of a file introduces
//! its section, and `# Safety` sections stay here. `build.rs` says which files
//! it reads, in which order, and `cbindgen.toml` has the manual's first page.
//!
//! | file | what |
//! |---|---|
//! | `guard.rs` | the border that no panic crosses |
//! | `pointers.rs` | what a caller hands in, checked before it is used |
//! | `status.rs`, `error.rs`, `failure.rs`, `library.rs` | what became of a call; which library this is |
//! | `clock.rs`, `policy.rs`, `limiter.rs`, `log.rs` | one handle each |
//! | `shared.rs` | one limiter for all processes of a machine |
//! | `cluster.rs` | lanes that machines share; it stands in `tollgate_redis.h`, with what `bindings/c/redis` adds |
//! | `border.rs` | what that library needs of this one |
//! | `request.rs`, `verdict.rs` | the question and the answer |
//! | `check.rs`, `all.rs` | one request, many, all or none |
//! | `lane.rs` | one lane of an agent: peek, refund, hold, release, reset |
//! | `reservation.rs` | an estimate now, the real cost later |
//! | `conduct.rs` | violations and waits |
//! | `control.rs`, `assignment.rs` | what an operator decides about agents |
//! | `budgets.rs` | used budgets, kept across restarts |
//! | `action.rs` | from what an agent does to the lane that pays for it |
//! | `snapshot.rs`, `agent.rs`, `offender.rs`, `event.rs`, `report.rs` | what an operator sees |

#[cfg(panic = "abort")]
compile_error!("the C ABI turns panics into a status, which panic = \"abort\" would keep it from doing");

mod action;
mod agent;
mod all;
mod assignment;
#[doc(hidden)]
pub mod border;
mod budgets;
mod check;
mod clock;
mod cluster;
mod conduct;
mod control;
mod error;
mod event;
mod failure;
mod guard;
mod lane;
mod library;
mod limiter;
mod log;
mod offender;
mod pointers;
mod policy;
mod report;
mod request;
mod reservation;
mod shared;
mod snapshot;
mod status;
mod verdict;

pub use action::*;
pub use agent::*;
pub use all::*;
pub use assignment::*;
pub use budgets::*;
pub use check::*;
pub use clock::*;
pub use cluster::{ClusterLane, ClusterOptions, Source, WhenLost};
pub use conduct::*;
pub use control::*;
pub use error::*;
pub use event::*;
#[cfg(tollgate_test_hooks)]
pub use guard::tollgate_test_panic_next;
pub use lane::*;
pub use library::*;
pub use limiter::*;
pub use log::*;
pub use offender::*;
pub use policy::*;
pub use report::*;
pub use request::*;
pub use reservation::*;
pub use shared::SharedBy;
pub use snapshot::*;
pub use status::*;
pub use verdict::*;

/// What the header says of threads, for the compiler to check.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Limiter>();
    shared::<Policy>();
    shared::<Clock>();
    shared::<LogThrottle>();
};
