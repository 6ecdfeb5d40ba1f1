//! The shared file of loom's models: memory of their own, one living process, and one that is dead.

use super::lock::Holders;
use super::memory::Section;
use crate::machine::mapping::{Atomics, Words};

/// The process whose calls a model makes.
pub(crate) const LIVING: u64 = 1;

/// A process that has died. A model makes what it left behind.
#[cfg_attr(not(test), allow(dead_code, reason = "models are tests"))]
pub(crate) const DEAD: u64 = 2;

/// A shared file that all threads of a model use.
pub(crate) struct Joined;

impl Joined {
    pub(crate) fn words<W: Atomics>(&self, _: Section, len: usize) -> Option<Words<W>> {
        Words::reserve(len)
    }

    pub(crate) fn is_maker(&self) -> bool {
        true
    }

    pub(crate) fn allocate(&self, _: Section, _: usize, _: usize) -> bool {
        true
    }

    pub(crate) fn short_mark(&self) -> u64 {
        LIVING
    }

    pub(crate) fn is_short_dead(&self, process: u64) -> bool {
        process == DEAD
    }

    pub(crate) fn counters<W: Atomics>(&self, len: usize) -> Option<Words<W>> {
        Words::reserve(len)
    }

    pub(crate) fn all_counters<W: Atomics>(&self, _: usize) -> std::iter::Empty<Words<W>> {
        std::iter::empty()
    }

    pub(crate) fn seat_refusal(&self) -> Option<i32> {
        None
    }

    pub(crate) fn pid(&self, process: u64) -> u32 {
        process as u32
    }

    #[cfg(feature = "shared")]
    pub(crate) fn set_policy_differs(&self, _: bool) {}

    pub(crate) fn count_takeover(&self) {}

    pub(crate) fn count_busy(&self) {}
}

impl Holders for Joined {
    fn me(&self) -> u64 {
        LIVING
    }

    fn is_dead(&self, holder: u64) -> bool {
        holder == DEAD
    }
}
