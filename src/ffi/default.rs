//! The limiter of the whole process, for callers without a place to keep one.

use super::guard::guard;
use super::limiter::make;
use super::pointers::out;
use super::{Limiter, LimiterOptions, Policy, Status};
use crate as tollgate;
use once_cell::race::OnceBox;

/// Nobody ever waits for it to be made: two threads that make one at once each
/// do, and all use the first. So a child that was forked at that very moment
/// does not wait for a thread that it does not have.
static DEFAULT: OnceBox<Limiter> = OnceBox::new();

/// Whether this is the limiter that nobody frees.
pub(super) fn is_default(limiter: *const Limiter) -> bool {
    DEFAULT.get().is_some_and(|default| std::ptr::eq(default, limiter))
}

/// The limiter of the whole process, made on the first call.
///
/// It belongs to the library, is the same on every call, and lives as long as
/// the process: tollgate_limiter_free leaves it alone. Unless
/// tollgate_default_configure was called before, it is made with default
/// options and the preset "hub": the lanes ws/light, ws/normal, ws/heavy,
/// http/light, http/normal and http/heavy, in this order, of 120, 60 and 10 a
/// minute, and the actions of a message hub.
///
/// Status: OUT_OF_MEMORY.
///
/// # Safety
///
/// `limiter_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_default(limiter_out: *mut *mut Limiter) -> Status {
    guard(|| {
        let limiter_out = out(limiter_out)?;
        let limiter = DEFAULT.get_or_try_init(|| {
            let policy = tollgate::Policy::preset("hub").map_err(|_| Status::UnknownPreset)?;
            Ok::<_, Status>(Box::new(Limiter(tollgate::Limiter::builder(policy).build()?)))
        })?;
        // Nothing is ever written through it that is not atomic.
        let limiter = std::ptr::from_ref(limiter).cast_mut();
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { limiter_out.write(limiter) };
        Ok(())
    })
}

/// Makes the limiter of the whole process with a policy and options of the
/// caller's. Must come before its first use.
///
/// Status: ALREADY_MADE, and whatever tollgate_limiter_new returns.
///
/// # Safety
///
/// `policy` and `options` are as for tollgate_limiter_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_default_configure(policy: *const Policy, options: *const LimiterOptions) -> Status {
    guard(|| {
        if DEFAULT.get().is_some() {
            return Err(Status::AlreadyMade);
        }
        // SAFETY: as this function's contract has it.
        let limiter = unsafe { make(policy, options) }?;
        DEFAULT.set(Box::new(limiter)).map_err(|_| Status::AlreadyMade)
    })
}
