//! Limits that many machines share over Redis or Valkey.
//!
//! The server holds one number for each agent and lane: of a bucket its debt, of
//! a budget what is used of it. A node *settles* with it in one call, a script
//! that runs whole or not at all: it gives back the credit it did not spend, pays
//! what it owes, and takes new credit.
//!
//! An [`Engine`] is the thread that does so for a limiter:
//!
//! ```no_run
//! use std::sync::Arc;
//! use tollgate::cluster::Cluster;
//! use tollgate::{Limiter, Policy};
//! use tollgate_redis::{EngineBuilder, Keyring};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::builder().lane("http", "1000/s burst 2000").build()?;
//! // The same secret on every machine: 16 bytes or more, random.
//! let cluster = Cluster::new(Keyring::new(b"0f6f4c0d9d1e7e4a0a2b")?.key());
//! let limiter = Arc::new(Limiter::builder(policy).agents(1_000_000).cluster(cluster).build()?);
//! let engine = EngineBuilder::new("redis://10.0.0.5")?.nodes_at_least(3.try_into()?).attach(Arc::clone(&limiter))?;
//!
//! let http = limiter.lane("http").expect("named above");
//! limiter.check("agent-7", http)?; // As ever: it never waits for the server.
//! println!("{:?} since {:?}", engine.status().state, engine.status().since);
//! # Ok(()) }
//! ```
//!
//! [`Settler`] has its decisions, without a clock, a thread or a socket. Below are
//! the scripts, the commands that send them, what they answer, and the keys:
//!
//! ```
//! use tollgate_redis::{Keyring, LaneKey, Scripts, Settlement};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The same secret on every node: 16 bytes or more, random.
//! let keyring = Keyring::new(b"0f6f4c0d9d1e7e4a0a2b")?;
//! let key = keyring.agent(b"agent-7").bucket(&LaneKey::new("http/heavy"));
//! assert!(key.starts_with("tollgate:{") && key.ends_with("}:http/heavy"));
//!
//! // 60 a minute, 60 at once; ten tokens are owed, and five are wanted.
//! let settlement = Settlement {
//!     token_ns: 1_000_000_000,
//!     capacity: 60,
//!     owed: 10,
//!     give: 0,
//!     min: 1,
//!     want: 5,
//!     share: 6,
//!     over: 24,
//!     floor_ns: 0,
//! };
//! # let replies: Vec<redis::Value> =
//! #     (0..4).map(|_| redis::Value::BulkString(b"0123456789012345678901234567890123456789".to_vec())).collect();
//! // On a new connection: send the four commands of `Scripts::load()`, and keep the replies.
//! let scripts = Scripts::loaded(&replies)?;
//! let command = scripts.settle(&key, &settlement)?;
//! # drop(command);
//! // Send `command`. Of the 50 tokens left a sixth may be taken, which is more than 5.
//! let reply = redis::Value::Array(vec![redis::Value::Int(5), redis::Value::Int(15_000_000_000)]);
//! let settled = scripts.settled(&settlement, &reply)?;
//! assert_eq!((settled.granted, settled.debt_ns), (5, 15_000_000_000));
//! # Ok(()) }
//! ```
//!
//! # The contract
//!
//! Every settlement works on the number in this order, whatever its limits are:
//!
//! 1. **give**: credit that was not spent is returned, as if it had never been
//!    taken. That never mints: the number does not fall below that of a full lane.
//! 2. **owed**: what was spent before it was paid is charged by force, up to `over`
//!    tokens beyond the capacity.
//! 3. **floor**: the number is at least this, after a server has lost its state.
//! 4. **grant**: if `min` tokens are left, up to `want` of them are taken, but no
//!    more than `min` or a `share`th of what is left, whichever is more.
//!
//! Sending *owed* twice is strict, sending *give* twice mints tokens. So nothing
//! here sends anything again: a command is sent once, and a reply that does not
//! come means that its *give* is lost. `NOSCRIPT` is an error like any other.
//!
//! Only durations travel, and no node's clock is compared with the server's.
//! Limits travel with each call. So nodes with different limits for the same lane
//! agree on its debt, and a node with a smaller limit never shortens a debt that
//! was made under a larger one.
//!
//! # When the server's clock steps
//!
//! A bucket's value says when it was written. If the clock is behind that, no time
//! has passed: the debt is what it was then, and it goes on from the clock's new
//! time. A step back so makes no debt longer. A step forward by x is a refill of x.
//!
//! # Exact
//!
//! Redis's Lua computes in doubles, which are exact for integers below 2^53. The
//! types here refuse what could go beyond: [`DEBT_NS_MAX`] and [`COUNT_MAX`]. The
//! tests compare both servers with exact integers.

#![forbid(unsafe_code)]

// The models in `tests` name it so.
#[cfg(test)]
extern crate self as tollgate_redis;

mod decisions;
mod demand;
mod engine;
mod error;
mod followed;
mod key;
mod lane_key;
mod reply;
mod script;
mod settlement;
mod settler;
mod steps;

pub use decisions::{DECISIONS_MAX, DecisionScripts, Decisions, DecisionsStatus, Field, Head};
pub use decisions::{Put, StoreReply, StoreRequest, Stored};
pub use engine::{Engine, EngineBuilder, EngineError, Losses, RoundTrips, Status, Tls};
pub use error::{RangeError, ReplyError, SecretError};
pub use followed::Out;
pub use key::{AgentKey, Keyring, LaneKey, SECRET_BYTES_MIN};
pub use script::{SETTLEMENTS_MAX, Script, Scripts};
pub use settlement::{BudgetSettled, BudgetSettlement, COUNT_MAX, DEBT_NS_MAX, EXPIRY_MARGIN_MS, Settle};
pub use settlement::{Settled, Settlement};
pub use settler::Settler;
pub use steps::{Batch, Counts, KeyStep, State, Step, StepReply};
