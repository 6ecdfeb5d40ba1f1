//! The server over real sockets.

#![allow(clippy::panic, reason = "a panic names the line that failed")]

mod certificates;
mod common;
mod curl;
#[path = "../common/directory.rs"]
mod directory;
#[path = "../../../../tests/common/tools.rs"]
mod tools;

mod access;
mod admin;
mod agents;
mod all;
mod audit;
mod bodies;
mod checks;
mod conformance;
mod dashboard;
mod envoy;
mod gate;
mod grants;
mod headers;
mod heads;
mod hostile;
mod http2;
mod metrics;
mod openapi;
mod profiles;
mod shutdown;
mod sockets;
mod tls;
mod tokens;
mod webhook;
