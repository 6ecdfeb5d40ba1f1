//! The listener and its connections.
//!
//! - `listener.rs`: accepts connections, up to a bound, and shuts down gracefully
//! - `socket.rs`: what it listens on; `stages.rs`: the stages of a shutdown
//! - `workers.rs`: the threads that serve them
//! - `connection.rs`: serves one, in HTTP/1.1 or HTTP/2; `tls.rs`: inside TLS
//! - `multiplex.rs`: its requests; `exchange.rs`: their bodies; `stream.rs`: its bytes
//! - `progress.rs`: what one is doing; `connections.rs`: all of them, and which ones make room
//! - `watch.rs`: ends those that take too long, and makes room when there are too many
//! - `flight.rs`: a bound on the memory of bodies and responses
//! - `body.rs`: reads bodies, up to a bound in bytes and time
//! - `front.rs`: what is checked first of every request; `cors.rs`: pages of other origins

pub(crate) mod body;
pub(crate) mod connection;
mod connections;
mod cors;
mod exchange;
pub(crate) mod flight;
pub(crate) mod front;
pub(crate) mod listener;
mod multiplex;
mod progress;
pub(crate) mod socket;
pub(crate) mod stages;
mod stream;
pub(crate) mod tls;
mod watch;
mod workers;
