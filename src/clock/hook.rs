//! What happens right after a [`ManualClock`](super::ManualClock) was read: a
//! test of one thread plays the others, who act before the reading is used.

use std::cell::RefCell;

type Hook = Box<dyn FnOnce()>;

thread_local! {
    /// How many readings there are until it is run.
    static HOOK: RefCell<Option<(u32, Hook)>> = const { RefCell::new(None) };
}

/// Runs `hook` once, after the reading of this number, counted from 1, by this thread.
pub(crate) fn at_reading(number: u32, hook: impl FnOnce() + 'static) {
    HOOK.set(Some((number, Box::new(hook))));
}

/// Takes the hook back. `false` if it was run, or there is none.
pub(crate) fn remove() -> bool {
    HOOK.take().is_some()
}

/// Readings by the hook itself count for nothing, since it is out of its place by then.
pub(super) fn after_reading() {
    match HOOK.take() {
        Some((number, hook)) if number <= 1 => hook(),
        Some((number, hook)) => HOOK.set(Some((number - 1, hook))),
        None => {}
    }
}
