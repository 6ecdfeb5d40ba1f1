//! A policy in the making.

use super::error::guard_told;
use super::guard::guard;
use super::pointers::{borrow, hand_over, out, take_back, text};
use super::{Error, Policy, Status};
use crate as tollgate;
use std::ffi::c_char;
use std::time::Duration;

/// The most bytes of a text handed in, such as a limit.
pub const TOLLGATE_TEXT_BYTES_MAX: usize = 1_048_576;

/// Collects lanes; tollgate_policy_builder_build checks them all.
///
/// One thread at a time may use it.
pub struct PolicyBuilder(tollgate::PolicyBuilder);

impl PolicyBuilder {
    fn change(&mut self, change: impl FnOnce(tollgate::PolicyBuilder) -> tollgate::PolicyBuilder) {
        self.0 = change(std::mem::replace(&mut self.0, tollgate::Policy::builder()));
    }
}

/// The builder to change.
///
/// # Safety
///
/// `builder` is NULL, or alive and used by no other thread.
unsafe fn borrow_mut<'a>(builder: *mut PolicyBuilder) -> Result<&'a mut PolicyBuilder, Status> {
    // SAFETY: NULL, or alive and used by us alone, as the caller guarantees.
    unsafe { builder.as_mut() }.ok_or(Status::NullPointer)
}

/// Starts a policy without lanes.
///
/// The caller owns the builder and gives it back with tollgate_policy_builder_free.
///
/// # Safety
///
/// `builder_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_new(builder_out: *mut *mut PolicyBuilder) -> Status {
    guard(|| {
        let builder_out = out(builder_out)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(builder_out, PolicyBuilder(tollgate::Policy::builder())) };
        Ok(())
    })
}

/// Gives a builder back. NULL is fine.
///
/// # Safety
///
/// `builder` is NULL, or came from tollgate_policy_builder_new, was not freed
/// yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_free(builder: *mut PolicyBuilder) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(builder) }
}

/// Adds a lane whose limit is given as text: "10/second burst 20", "60/min",
/// "5 per 5 minutes" or "deny".
///
/// Lanes are numbered from 0 in the order in which they are added. What makes
/// no sense is told when the policy is built. Neither text is kept.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `name` and
/// `limit` are NULL or readable for as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_lane(
    builder: *mut PolicyBuilder,
    name: *const c_char,
    name_len: usize,
    limit: *const c_char,
    limit_len: usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let builder = unsafe { borrow_mut(builder) }?;
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let name = unsafe { text(name, name_len) }?;
        // SAFETY: NULL, or readable for `limit_len` bytes, by this function's contract.
        let limit = unsafe { text(limit, limit_len) }?;
        builder.change(|builder| builder.lane(name, limit));
        Ok(())
    })
}

/// Adds a lane whose limit is given in numbers: a bucket that holds `capacity`
/// tokens and gets `tokens` of them back every `per_ns` nanoseconds.
///
/// Otherwise as tollgate_policy_builder_lane.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `name` is
/// NULL or readable for `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_lane_bucket(
    builder: *mut PolicyBuilder,
    name: *const c_char,
    name_len: usize,
    tokens: u64,
    per_ns: u64,
    capacity: u64,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let builder = unsafe { borrow_mut(builder) }?;
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let name = unsafe { text(name, name_len) }?;
        let limit = tollgate::Limit::new(tokens, Duration::from_nanos(per_ns)).burst(capacity);
        builder.change(|builder| builder.lane(name, limit));
        Ok(())
    })
}

/// Warns when less than this share of a lane's capacity is left, in percent:
/// 20 if nothing is said, 0 for never.
///
/// Status: INVALID_OPTION above 100.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_warn_below_percent(
    builder: *mut PolicyBuilder,
    percent: u32,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let builder = unsafe { borrow_mut(builder) }?;
        let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100).ok_or(Status::InvalidOption)?;
        builder.change(|builder| builder.warn_below_percent(percent));
        Ok(())
    })
}

/// Checks everything and makes the policy.
///
/// The caller owns the policy and gives it back with tollgate_policy_free. The
/// builder stays as it is and may be used again. `error_out` may be NULL.
///
/// Status: INVALID_POLICY, with the first thing that makes no sense in the
/// error's message; STRUCT_SIZE of the error.
///
/// # Safety
///
/// `builder` is NULL, or not freed and in use by no other thread; `policy_out`
/// is NULL or writable; `error_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_builder_build(
    builder: *const PolicyBuilder,
    policy_out: *mut *mut Policy,
    error_out: *mut Error,
) -> Status {
    let build = || {
        let policy_out = out(policy_out)?;
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let builder = unsafe { borrow(builder) }?;
        let policy = Policy(builder.0.clone().build()?);
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(policy_out, policy) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_told(error_out, build) }
}
