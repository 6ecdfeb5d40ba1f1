//! The shared file where there is none: without the feature `shared`, or on a system that has no such locks. No value
//! of it exists, so nothing here ever runs, and a private limiter pays nothing.

use super::lock::Holders;
use super::memory::Section;
use crate::machine::mapping::{Atomics, Words};

/// A shared file that this process uses.
pub(crate) enum Joined {}

impl Joined {
    pub(crate) fn words<W: Atomics>(&self, _: Section, _: usize) -> Option<Words<W>> {
        match *self {}
    }

    pub(crate) fn is_maker(&self) -> bool {
        match *self {}
    }

    pub(crate) fn allocate(&self, _: Section, _: usize, _: usize) -> bool {
        match *self {}
    }

    pub(crate) fn short_mark(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn is_short_dead(&self, _: u64) -> bool {
        match *self {}
    }

    pub(crate) fn counters<W: Atomics>(&self, _: usize) -> Option<Words<W>> {
        match *self {}
    }

    pub(crate) fn all_counters<W: Atomics>(&self, _: usize) -> std::iter::Empty<Words<W>> {
        match *self {}
    }

    pub(crate) fn seat_refusal(&self) -> Option<i32> {
        match *self {}
    }

    pub(crate) fn pid(&self, _: u64) -> u32 {
        match *self {}
    }

    #[cfg(feature = "shared")]
    pub(crate) fn set_policy_differs(&self, _: bool) {
        match *self {}
    }

    pub(crate) fn count_takeover(&self) {
        match *self {}
    }

    pub(crate) fn count_busy(&self) {
        match *self {}
    }
}

impl Holders for Joined {
    fn me(&self) -> u64 {
        match *self {}
    }

    fn is_dead(&self, _: u64) -> bool {
        match *self {}
    }
}
