//! `libtollgate_redis`: the limiter for C, with limits that machines share over
//! Redis or Valkey.
//!
//! The library has every function of `tollgate.h`, which the crate `tollgate`
//! defines, and those of `tollgate_redis.h`. It takes the place of `libtollgate`:
//! two libraries with a copy of the core each could not pass a limiter to each
//! other, whose memory has the shape that its own copy gave it.
//!
//! - `engine.rs`: the thread that settles with the store, started and stopped
//! - `status.rs`: what it shows of itself
//!
//! The options for a limiter whose lanes are shared are the core's:
//! `src/ffi/cluster.rs`.

mod engine;
mod status;

pub use engine::*;
pub use status::*;
pub use tollgate::ffi;
