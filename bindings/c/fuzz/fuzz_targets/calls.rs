//! Sequences of calls through the C ABI, spelled by the fuzzer, under
//! AddressSanitizer. The generator and the oracle are those of `tests/ffi.rs`.

#![no_main]

#[path = "../../../../tests/common/calls/mod.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| calls::play(bytes, &mut calls::Report::default()));
