//! The border: what happens inside comes out as a status, a panic too.

use super::Status;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call. Every exported function that does more than return a constant
/// goes through here.
///
/// Unwind safety is asserted: a limiter is atomics under protocols that stand
/// a thread that stops anywhere, and what else a call touches is either its
/// own or replaced as a whole.
#[inline(always)]
pub fn guard(call: impl FnOnce() -> Result<(), Status>) -> Status {
    let guarded = || {
        #[cfg(any(test, tollgate_test_hooks))]
        hook::panic_if_asked();
        call()
    };
    match catch_unwind(AssertUnwindSafe(guarded)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(status)) => status,
        Err(payload) => {
            drop(payload);
            Status::Panic
        }
    }
}

/// A panic on demand, so that tests see what becomes of one. No release has
/// this: it takes `--cfg tollgate_test_hooks`, or the crate's own unit tests.
#[cfg(any(test, tollgate_test_hooks))]
mod hook {
    use std::cell::Cell;

    thread_local! {
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }

    pub(in crate::ffi) fn ask() {
        ASKED.set(true);
    }

    #[expect(clippy::panic, reason = "it is what the hook is for")]
    pub(super) fn panic_if_asked() {
        if ASKED.replace(false) {
            panic!("a test asked for this panic");
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(super) use hook::ask as panic_next;

/// The next call of this thread panics inside. For tests alone.
#[cfg(tollgate_test_hooks)]
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_test_panic_next() {
    hook::ask();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_once() {
        panic_next();
        assert_eq!(guard(|| Ok(())), Status::Panic);
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert_eq!(guard(|| Err(Status::Full)), Status::Full);
    }
}
