//! The listener and its connections.
//!
//! - `listener.rs`: accepts connections, up to a bound, and ends gracefully
//! - `workers.rs`: the threads that serve them
//! - `connection.rs`: the requests of one; `exchange.rs` their bodies, `stream.rs` the bytes
//! - `line.rs`: what one is doing; `lines.rs`: all of them, and which ones make room
//! - `watch.rs`: ends those that take too long, and makes room when there are too many
//! - `flight.rs`: how much bodies and answers may make the server hold
//! - `body.rs`: reads bodies, up to a bound in bytes and time
//! - `front.rs`: what every request has to pass first

pub(crate) mod body;
mod connection;
mod exchange;
pub(crate) mod flight;
pub(crate) mod front;
mod line;
mod lines;
pub(crate) mod listener;
mod stream;
mod watch;
mod workers;
