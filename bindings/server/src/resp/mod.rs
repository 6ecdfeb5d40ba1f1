//! The protocol of Redis, for clients of redis-cell: `CL.THROTTLE`, and what
//! clients send around it.
//!
//! - `listener.rs`: where clients connect, and the threads that serve them
//! - `worker.rs`: such a thread, a loop over epoll
//! - `session.rs`: one client: bytes in, bytes out; commands by name
//! - `words.rs`: the words of a command; `reply.rs`: replies
//! - `throttle.rs`: `CL.THROTTLE`
//! - `service.rs`: what clients share: the limiter, the lane, the tokens
//! - `counts.rs`: clients and commands

mod counts;
pub(crate) mod listener;
mod reply;
mod service;
mod session;
mod throttle;
mod words;
mod worker;

pub(crate) use counts::Counts;
