//! The server over real sockets.

#![allow(clippy::panic, reason = "a panic names the line that failed")]

mod common;
#[path = "../common/directory.rs"]
mod directory;
#[path = "../../../../tests/common/tools.rs"]
mod tools;

mod admin;
mod agents;
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
mod sockets;
mod tokens;
mod webhook;
