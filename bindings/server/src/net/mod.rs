//! The listener and its connections.
//!
//! - `listener.rs`: accepts connections, up to a bound, and ends gracefully
//! - `workers.rs`: the threads that serve them
//! - `watch.rs`: ends connections that take too long, and the idlest when there are too many
//! - `body.rs`: reads bodies, up to a bound in bytes and time
//! - `front.rs`: what every request has to pass first

pub(crate) mod body;
pub(crate) mod front;
pub(crate) mod listener;
mod watch;
mod workers;
