//! Which tollgate this is. The macros of the header say what the caller was
//! compiled with; these say what it runs with.

use std::ffi::c_char;

/// The version of the library in use, such as "1.2.3", NUL-terminated. It is
/// part of the library: never free it.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The version of the library in use as a number that grows, 8 bits a part:
/// 1.2.3 is 0x010203. Compare with TOLLGATE_VERSION_NUMBER.
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

/// What tollgate_features tells: policies as TOML text, tollgate_policy_from_toml.
pub const TOLLGATE_FEATURE_CONFIG: u32 = 1;
/// What tollgate_features tells: assignments kept in a file,
/// tollgate_limiter_keep_assignments_in.
pub const TOLLGATE_FEATURE_PERSIST: u32 = 2;

/// What is built into the library in use: a sum of TOLLGATE_FEATURE_CONFIG and
/// the like. Functions of what is not are there all the same, and return
/// TOLLGATE_STATUS_NOT_BUILT_IN.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_features() -> u32 {
    let config = if cfg!(feature = "config") { TOLLGATE_FEATURE_CONFIG } else { 0 };
    let persist = if cfg!(feature = "persist") { TOLLGATE_FEATURE_PERSIST } else { 0 };
    config | persist
}
