//! Runs code right after a [`ManualClock`](super::ManualClock) was read: a
//! single-threaded test plays the other threads, which act before the reading
//! is used.

use std::cell::RefCell;

type Hook = Box<dyn FnOnce()>;

thread_local! {
    /// How many readings are left until it runs.
    static HOOK: RefCell<Option<(u32, Hook)>> = const { RefCell::new(None) };
}

/// Runs `hook` once, after this thread's reading of this number, counted from 1.
pub(crate) fn at_reading(number: u32, hook: impl FnOnce() + 'static) {
    HOOK.set(Some((number, Box::new(hook))));
}

/// Removes the hook. `false` if it has run, or there is none.
pub(crate) fn remove() -> bool {
    HOOK.take().is_some()
}

/// Readings by the hook itself do not count: it has been removed by then.
pub(super) fn after_reading() {
    match HOOK.take() {
        Some((number, hook)) if number <= 1 => hook(),
        Some((number, hook)) => HOOK.set(Some((number - 1, hook))),
        None => {}
    }
}
