//! The library: which version runs, and what is built into it.

use std::ffi::c_char;

/// A bit of tollgate_features: policies as TOML text, tollgate_policy_from_toml.
pub const TOLLGATE_FEATURE_CONFIG: u32 = 1;
/// A bit of tollgate_features: files, as in tollgate_keep_assignments_in,
/// tollgate_keep_budgets_in and tollgate_write_report.
pub const TOLLGATE_FEATURE_PERSIST: u32 = 2;
/// A bit of tollgate_features: limiters that processes share, shared_by in
/// tollgate_limiter_options.
pub const TOLLGATE_FEATURE_SHARED: u32 = 4;
/// A bit of tollgate_features: lanes that machines share, as libtollgate_redis
/// has it; see tollgate_redis.h.
pub const TOLLGATE_FEATURE_CLUSTER: u32 = 8;
/// The longest text or path that a function takes, in bytes: 1 MiB.
pub const TOLLGATE_TEXT_BYTES_MAX: usize = 1_048_576;

/// The version of the library that runs, such as "1.2.3": a static string.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The version of the library that runs, as a number to compare with
/// TOLLGATE_VERSION_NUMBER: 1.2.3 is 0x010203.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_version_number() -> u32 {
    const NUMBER: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | part(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | part(env!("CARGO_PKG_VERSION_PATCH"));
    NUMBER
}

/// A part of the version. Not compiled if it has more than 8 bits.
const fn part(text: &str) -> u32 {
    match u8::from_str_radix(text, 10) {
        Ok(part) => part as u32,
        Err(_) => unreachable!(),
    }
}

/// What is built into the library: a sum of the bits TOLLGATE_FEATURE_. Without a
/// feature, its functions and options exist and return TOLLGATE_STATUS_NOT_BUILT_IN.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_features() -> u32 {
    let config = if cfg!(feature = "config") { TOLLGATE_FEATURE_CONFIG } else { 0 };
    let persist = if cfg!(feature = "persist") { TOLLGATE_FEATURE_PERSIST } else { 0 };
    let shared = if cfg!(feature = "shared") { TOLLGATE_FEATURE_SHARED } else { 0 };
    let cluster = if cfg!(feature = "cluster") { TOLLGATE_FEATURE_CLUSTER } else { 0 };
    config | persist | shared | cluster
}
