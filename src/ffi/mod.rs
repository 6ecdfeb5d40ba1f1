//! The C ABI: the limiter for C, C++ and whatever can call them.
//!
//! Rust callers need none of this. It translates and decides nothing. The doc
//! comments of the items become the text of `include/tollgate.h`, so they are
//! written for a C reader; `build.rs` says which files are read, in which
//! order. The rules that all functions share stand at the top of the header
//! and in `bindings/c/README.md`.
//!
//! | file | what |
//! |---|---|
//! | `status.rs`, `error.rs` | what came of a call, as a number and as text |
//! | `guard.rs` | the border that no panic crosses |
//! | `pointers.rs` | what a caller hands in, checked before it is used |
//! | `version.rs` | which tollgate this is |
//! | `clock.rs`, `policy_builder.rs`, `policy.rs`, `limiter.rs` | one handle each |
//! | `check.rs` | verdicts: single checks and batches |
//! | `agent.rs` | what is known of an agent: status, refund, reset, forget |
//! | `all.rs` | several charges, all or none |
//! | `held.rs` | slots that are held |
//! | `budgets.rs` | used budgets, kept across restarts |
//! | `reservation.rs` | an estimate, settled when the cost is known |
//! | `conduct.rs` | checks that count violations, and what follows from those |
//! | `control.rs` | what an operator decides: plans, overrides, exemptions, a new policy |
//! | `assignment.rs` | the same as data: one handle for an agent's, one for a list |
//! | `action.rs` | from what an agent does to the lane that pays for it |
//! | `observe.rs` | seeing what happens: counts, agents, offenders, events, log lines |
//! | `default.rs` | the limiter of the whole process |

#[cfg(panic = "abort")]
compile_error!("the C ABI turns panics into a status, which panic = \"abort\" would keep it from doing");

mod action;
mod agent;
mod all;
mod assignment;
mod budgets;
mod check;
mod clock;
mod conduct;
mod control;
mod default;
mod error;
mod guard;
mod held;
mod limiter;
mod observe;
mod pointers;
mod policy;
mod policy_builder;
mod reservation;
mod status;
mod version;

pub use action::*;
pub use agent::*;
pub use all::*;
pub use assignment::*;
pub use budgets::*;
pub use check::*;
pub use clock::*;
pub use conduct::*;
pub use control::*;
pub use default::*;
pub use error::*;
#[cfg(tollgate_test_hooks)]
pub use guard::tollgate_test_panic_next;
pub use held::*;
pub use limiter::*;
pub use observe::*;
pub use policy::*;
pub use policy_builder::*;
pub use reservation::*;
pub use status::*;
pub use version::*;

/// What the header says of threads, for the compiler to check.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<Limiter>();
    shared::<Policy>();
    shared::<Clock>();
    shared::<UnknownActions>();
    shared::<AgentPage>();
    shared::<Offenders>();
    shared::<LogThrottle>();
    moved::<PolicyBuilder>();
    moved::<Assignment>();
    moved::<Assignments>();
};
