//! The server over real sockets.

#![allow(clippy::panic, reason = "a panic is a failure that names its line")]

mod common;

mod admin;
mod all;
mod bodies;
mod checks;
mod dashboard;
mod grants;
mod headers;
mod heads;
mod hostile;
mod metrics;
mod profiles;
mod shutdown;
mod status;
mod tokens;
mod webhook;
