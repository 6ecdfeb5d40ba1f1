//! Memory for the slab and the table of limits: zeroed words, reserved once,
//! committed as they are touched.

use crate::sync::AtomicU64;
use std::ops::Deref;

/// What may stand in a mapping: atomics without padding between them.
///
/// # Safety
///
/// All bytes zero must be a valid value, and shared access from any thread must be sound.
#[cfg(not(loom))]
pub(crate) unsafe trait Atomics: Sync {}

// SAFETY: an atomic number may be zero, and is made to be shared.
#[cfg(not(loom))]
unsafe impl Atomics for AtomicU64 {}

// SAFETY: as for each of them.
#[cfg(not(loom))]
unsafe impl<const N: usize> Atomics for [AtomicU64; N] {}

/// A fixed number of words, or of arrays of words, all zero at first.
#[cfg(not(loom))]
pub(crate) struct Words<W: Atomics = AtomicU64> {
    /// Invariant: the start of a mapping of `len` values that only this one unmaps.
    start: std::ptr::NonNull<W>,
    len: usize,
}

#[cfg(not(loom))]
impl<W: Atomics> Words<W> {
    /// Reserves `len` of them, aligned to a page. `None` if the system refuses.
    pub(crate) fn reserve(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<W>()).filter(|bytes| *bytes > 0)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Private, so that a forked child goes on with its own copy; without a
        // reserve, so that pages are taken from the system one by one, on first touch.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address the system chooses touches no memory in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Self { start: std::ptr::NonNull::new(start.cast())?, len })
    }

    /// Asks for pages of 2 MB, which save most of the address translation for
    /// a slab larger than the processor can keep in mind. Where the system has
    /// none to give, nothing changes.
    pub(crate) fn ask_for_huge_pages(&self) {
        let bytes = size_of_val(&**self);
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGES_FROM {
            // SAFETY: advice about this value's own mapping; it changes no content, and its failure is no error.
            unsafe { libc::madvise(self.start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
    }
}

/// Below this, ordinary pages do: a processor translates some 1,500 of them
/// without a walk, and small slabs stay as small as what is touched.
#[cfg(all(not(loom), target_os = "linux"))]
const HUGE_PAGES_FROM: usize = 8 << 20;

#[cfg(not(loom))]
impl<W: Atomics> Deref for Words<W> {
    type Target = [W];

    #[inline]
    fn deref(&self) -> &[W] {
        // SAFETY: `start` is a live, page-aligned mapping of `len` values by this
        // type's invariant; zeroed memory is a valid `W`, and all access to it
        // goes through shared references to atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

#[cfg(not(loom))]
impl<W: Atomics> Drop for Words<W> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference outlives it.
        // Unmapping a whole mapping of ours cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * size_of::<W>()) };
    }
}

// SAFETY: the mapping is not bound to the thread that made it.
#[cfg(not(loom))]
unsafe impl<W: Atomics> Send for Words<W> {}

// SAFETY: shared access hands out atomics only.
#[cfg(not(loom))]
unsafe impl<W: Atomics> Sync for Words<W> {}

/// Loom's atomics have no bit pattern to map, so models keep them in a vector.
#[cfg(loom)]
pub(crate) struct Words<W = AtomicU64>(Vec<W>);

#[cfg(loom)]
impl<W: Zero> Words<W> {
    pub(crate) fn reserve(len: usize) -> Option<Self> {
        Some(Self((0..len).map(|_| W::zero()).collect()))
    }

    pub(crate) fn ask_for_huge_pages(&self) {}
}

/// What a model's memory holds at first.
#[cfg(loom)]
pub(crate) trait Zero {
    fn zero() -> Self;
}

#[cfg(loom)]
impl Zero for AtomicU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

#[cfg(loom)]
impl<const N: usize> Zero for [crate::sync::QuietU64; N] {
    fn zero() -> Self {
        std::array::from_fn(|_| crate::sync::QuietU64::new(0))
    }
}

#[cfg(loom)]
impl<W> Deref for Words<W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        &self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn words_start_at_zero_and_keep_what_is_written() {
        let words: Words = Words::reserve(10_000).expect("80 kB");
        assert_eq!(words.len(), 10_000);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        words[9_999].store(7, Ordering::Relaxed);
        assert_eq!(words[9_999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_cannot_be_reserved_is_refused() {
        assert!(Words::<AtomicU64>::reserve(0).is_none());
        assert!(Words::<[AtomicU64; 4]>::reserve(usize::MAX).is_none());
        assert!(Words::<AtomicU64>::reserve(1 << 50).is_none());
    }
}
