//! Policies as TOML files: what is read, what is written, what is refused.

#![cfg(feature = "config")]

mod errors;
mod files;
mod properties;
