//! What a gate in front of a service decides and says, for any web server.
//!
//! A [`Gate`] sees the head of a request and rules on it: the service gets the
//! request, and its response carries the client's limits in headers; or the gate
//! answers it, 429 with a body. It does no input or output. `tollgate-tower` and
//! the Python package adapt it to their servers, and `conformance/` in this crate
//! has requests as data, which every adapter answers alike.
//!
//! ```
//! use http::Request;
//! use tollgate::{Limiter, ManualClock, Policy};
//! use tollgate_gate::{Gate, Head, Key, Ruling};
//!
//! let policy = Policy::builder().lane("api", "60/min burst 1").build()?;
//! let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
//! let gate = Gate::builder(limiter).key(Key::header("x-agent-id")).build()?;
//!
//! let request = Request::get("/").header("x-agent-id", "agent-7").body(())?;
//! assert!(matches!(gate.rule(&Head::from(&request)), Ruling::Pass(Some(_))));
//! let Ruling::Answer(refusal) = gate.rule(&Head::from(&request)) else { return Err("one token".into()) };
//! assert_eq!(refusal.status(), 429);
//! assert_eq!(refusal.headers()["ratelimit"], r#""api";r=0;t=1"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `gate.rs`, `verdicts.rs` | the ruling on a request |
//! | `message.rs` | the ruling on a message of a connection |
//! | `builder.rs`, `error.rs` | settings, each checked once |
//! | `head.rs`, `key.rs`, `address.rs` | what is read of a request, and whose it is |
//! | `route.rs`, `lanes.rs` | which lane it is on, and what bypasses the limiter |
//! | `quota.rs`, `headers.rs`, `refusal.rs`, `profile.rs`, `frame.rs` | what a client sees |
//! | `inline.rs`, `json.rs` | texts written without allocating, and JSON |

#![forbid(unsafe_code)]
// Tests may unwrap: a panic there is a failure that names its line.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod address;
mod builder;
mod error;
pub mod frame;
mod gate;
mod head;
pub mod headers;
mod inline;
mod json;
pub mod key;
mod lanes;
mod message;
pub mod profile;
mod quota;
pub mod refusal;
pub mod route;
mod verdicts;

pub use builder::GateBuilder;
pub use error::BuildError;
pub use gate::{Asked, Gate, LimitHeaders, Question, Ruling};
pub use head::{Head, Peer};
pub use headers::Style;
pub use key::Key;
pub use message::{Delivery, Holding};
pub use profile::Profile;
pub use quota::Quota;
pub use refusal::{Form, Reason, Refusal};

/// The example of the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
