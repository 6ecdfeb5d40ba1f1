//! The lock under which control calls take turns, and what they share.

use super::ControlError;
use crate::limits::Row;
use crate::machine::process::{self, unforked};
use crate::policy::Policy;
use crate::sync::{Counter, Mutex, MutexGuard, Ordering, try_lock, wait};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What control calls share.
pub(super) struct ControlState {
    pub(super) policy: Arc<Policy>,
    /// Rows that no agent's overrides use. There is always a spare one, since a
    /// change writes the new row before it frees the old.
    pub(super) free_rows: Vec<Row>,
    /// Agents with overrides.
    pub(super) overridden: usize,
    #[cfg(feature = "persist")]
    pub(super) file: Option<crate::keep::AssignmentFile>,
}

/// The lock under which control calls take turns.
///
/// If a child is forked while another thread of its parent holds the lock, the
/// child has no thread to release it, and a change may be half made. The
/// holder's mark shows that. Then control calls in the child are refused; its
/// checks go on.
pub(crate) struct ControlLock {
    control: Mutex<ControlState>,
    /// The mark of the process that holds the lock; 0 if it is free.
    holder: Counter,
}

/// Holds the lock until it is dropped.
pub(super) struct ControlGuard<'a> {
    /// `None` only while it is being dropped.
    control: Option<MutexGuard<'a, ControlState>>,
    holder: &'a Counter,
}

impl ControlLock {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        Self { control: Mutex::new(ControlState::new(policy)), holder: Counter::new(0) }
    }

    /// The wait ends: each holder does a finite amount of work.
    pub(super) fn lock(&self) -> Result<ControlGuard<'_>, ControlError> {
        let me = process::mark();
        for round in 0.. {
            let taken = unforked(|| {
                let control = try_lock(&self.control)?;
                self.holder.store(me, Ordering::Relaxed);
                Some(control)
            });
            if taken.is_some() {
                return Ok(ControlGuard { control: taken, holder: &self.holder });
            }
            if ![0, me].contains(&self.holder.load(Ordering::Relaxed)) {
                break;
            }
            wait(round);
        }
        Err(ControlError::Forked)
    }
}

impl Drop for ControlGuard<'_> {
    fn drop(&mut self) {
        unforked(|| {
            self.holder.store(0, Ordering::Relaxed);
            self.control.take();
        });
    }
}

impl Deref for ControlGuard<'_> {
    type Target = ControlState;

    fn deref(&self) -> &ControlState {
        self.control.as_ref().expect("present until it is dropped")
    }
}

impl DerefMut for ControlGuard<'_> {
    fn deref_mut(&mut self) -> &mut ControlState {
        self.control.as_mut().expect("present until it is dropped")
    }
}

impl ControlState {
    fn new(policy: Arc<Policy>) -> Self {
        let mut free_rows: Vec<_> = Row::of_overrides().collect();
        free_rows.reverse(); // The first is taken first: few overrides touch few pages.
        Self {
            policy,
            free_rows,
            overridden: 0,
            #[cfg(feature = "persist")]
            file: None,
        }
    }
}
