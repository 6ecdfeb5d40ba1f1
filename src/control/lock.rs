//! The lock under which control calls take turns, and what they share.

use super::ControlError;
use super::words::{ControlWords, WordsGuard};
use crate::bounds::CONTROL_WITHIN;
use crate::limits::Row;
use crate::machine::process::{self, unforked};
use crate::policy::Policy;
use crate::shared::Memory;
use crate::sync::{Counter, Mutex, MutexGuard, Ordering, try_lock, wait};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// How often assignments of a shared limiter had changed when the file was written.
    #[cfg(feature = "persist")]
    pub(super) saved: u64,
    /// What was changed since an engine last looked.
    #[cfg(feature = "cluster")]
    pub(super) changed: super::Changed,
}

/// The lock under which control calls take turns.
///
/// In shared memory a second lock follows, in which processes take turns; if its
/// holder has died, `shared.rs` ends what it had begun.
///
/// If a child is forked while another thread of its parent holds the lock, the
/// child has no thread to release it, and a change may be half made. The
/// holder's mark shows that. Then control calls in the child are refused; its
/// checks go on.
pub(crate) struct ControlLock {
    control: Mutex<ControlState>,
    /// The mark of the process that holds the lock; 0 if it is free.
    holder: Counter,
    /// The lock of all processes, and what a control call is about to do.
    words: Option<ControlWords>,
    /// How often that lock was not to be had in time.
    refused: Counter,
    /// Whether anything was changed since an engine last looked; written under the lock.
    #[cfg(feature = "cluster")]
    pub(super) has_changed: Counter,
}

/// Holds the lock until it is dropped.
pub(super) struct ControlGuard<'a> {
    /// `None` only while it is being dropped.
    control: Option<MutexGuard<'a, ControlState>>,
    holder: &'a Counter,
    words: Option<WordsGuard<'a>>,
}

impl ControlLock {
    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn new(memory: &Memory, policy: Arc<Policy>) -> Result<Self, u64> {
        let control = Mutex::new(ControlState::new(policy));
        Ok(Self {
            control,
            holder: Counter::new(0),
            words: ControlWords::within(memory)?,
            refused: Counter::new(0),
            #[cfg(feature = "cluster")]
            has_changed: Counter::new(0),
        })
    }

    pub(super) fn words(&self) -> Option<&ControlWords> {
        self.words.as_ref()
    }

    /// The wait ends: each holder does a finite amount of work.
    ///
    /// Of several threads that wait for another process, one waits for its lock and the others for that one. When it is
    /// refused, they have waited as long, and are refused too: not one after the other.
    pub(super) fn lock(&self) -> Result<ControlGuard<'_>, ControlError> {
        let me = process::mark();
        let (began, refused) = (self.words.as_ref().map(|_| Instant::now()), self.refused.load(Ordering::Relaxed));
        for round in 0.. {
            let taken = unforked(|| {
                let control = try_lock(&self.control)?;
                self.holder.store(me, Ordering::Relaxed);
                Some(control)
            });
            if taken.is_some() {
                let mut guard = ControlGuard { control: taken, holder: &self.holder, words: None };
                if let Some(words) = &self.words {
                    let was_refused = self.refused.load(Ordering::Relaxed) != refused;
                    let waited = began.filter(|_| was_refused).map_or(Duration::ZERO, |began| began.elapsed());
                    let taken = words.lock(CONTROL_WITHIN.saturating_sub(waited));
                    guard.words = Some(taken.inspect_err(|_| {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                    })?);
                }
                return Ok(guard);
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
        self.words.take();
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
    /// The file, if this process keeps it. A forked child has a copy, and would write over its parent's changes.
    #[cfg(feature = "persist")]
    pub(super) fn own_file(&mut self) -> Option<&mut crate::keep::AssignmentFile> {
        self.file.as_mut().filter(|file| file.is_own())
    }

    fn new(policy: Arc<Policy>) -> Self {
        let mut free_rows: Vec<_> = Row::of_overrides().collect();
        free_rows.reverse(); // The first is taken first: few overrides touch few pages.
        Self {
            policy,
            free_rows,
            overridden: 0,
            #[cfg(feature = "persist")]
            file: None,
            #[cfg(feature = "persist")]
            saved: 0,
            #[cfg(feature = "cluster")]
            changed: super::Changed::default(),
        }
    }
}
