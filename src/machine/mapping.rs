//! Memory for the slab and the table of limits: zeroed words, reserved once.
//! The system provides each page when it is first touched.

use crate::sync::{AtomicU64, Ordering, Setting};
use std::ops::Deref;

/// What a mapping may hold: atomics without padding between them.
///
/// # Safety
///
/// All bytes zero must be a valid value, and shared access from any thread must be sound.
#[cfg(not(loom))]
pub(crate) unsafe trait Atomics: Sync {
    /// Writes back its own value.
    fn touch(&self);
}

// SAFETY: zero is a valid atomic integer, and atomics may be shared.
#[cfg(not(loom))]
unsafe impl Atomics for AtomicU64 {
    fn touch(&self) {
        // The compiler would drop the addition of a zero it knows.
        self.fetch_add(std::hint::black_box(0), Ordering::Relaxed);
    }
}

/// Declares a struct of atomics that a mapping may hold.
macro_rules! atomics {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $($(#[$note:meta])* $of:vis $field:ident: $type:ty,)+ }) => {
        $(#[$about])*
        #[repr(C)]
        $vis struct $name {
            $($(#[$note])* $of $field: $type,)+
        }

        // SAFETY: zero is valid for each field, and each may be shared: `touch` wants them to be `Atomics`.
        #[cfg(not(loom))]
        unsafe impl $crate::machine::mapping::Atomics for $name {
            fn touch(&self) {
                $($crate::machine::mapping::Atomics::touch(&self.$field);)+
            }
        }

        #[cfg(loom)]
        impl $crate::machine::mapping::Zero for $name {
            fn zero() -> Self {
                Self { $($field: $crate::machine::mapping::Zero::zero(),)+ }
            }
        }
    };
}

pub(crate) use atomics;

// SAFETY: as for each element.
#[cfg(not(loom))]
unsafe impl<W: Atomics, const N: usize> Atomics for [W; N] {
    fn touch(&self) {
        self.iter().step_by((PAGE_BYTES / size_of::<W>()).max(1)).for_each(W::touch);
    }
}

/// A fixed number of words, or of arrays of words, all zero at first.
#[cfg(not(loom))]
pub(crate) struct Words<W: Atomics = AtomicU64> {
    /// Invariant: the start of `len` values of a mapping that lives as long as this, or that only this one unmaps.
    start: std::ptr::NonNull<W>,
    len: usize,
    /// Invariant: at most `len`.
    shown: Setting,
    /// The mapping that these words are a part of; `None` if they are one of their own.
    #[cfg(all(feature = "shared", target_os = "linux"))]
    part_of: Option<std::sync::Arc<super::file::FileMap>>,
}

#[cfg(not(loom))]
impl<W: Atomics> Words<W> {
    /// Reserves `len` of them, aligned to a page. `None` if the system refuses.
    pub(crate) fn reserve(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<W>())?;
        if bytes == 0 {
            return Some(Self::new(std::ptr::NonNull::dangling(), 0));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Private, so that a forked child continues with its own copy; without a reserve, so that the system provides
        // pages one by one, on first touch.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address the system chooses touches no memory in use.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        Some(Self::new(std::ptr::NonNull::new(start.cast())?, len))
    }

    /// Words that are a mapping of their own; the caller keeps the invariant.
    fn new(start: std::ptr::NonNull<W>, len: usize) -> Self {
        Self {
            start,
            len,
            shown: Setting::new(len),
            #[cfg(all(feature = "shared", target_os = "linux"))]
            part_of: None,
        }
    }

    /// `len` of them, from this offset of a shared file on. `None` if the file has not that many, or they would not be
    /// aligned there.
    #[cfg(all(feature = "shared", target_os = "linux"))]
    pub(crate) fn part_of(file: &std::sync::Arc<super::file::FileMap>, offset: usize, len: usize) -> Option<Self> {
        let start = file.at(offset, len.checked_mul(size_of::<W>())?)?.cast();
        let mut words = Self::new(start, len);
        words.part_of = Some(std::sync::Arc::clone(file));
        start.is_aligned().then_some(words)
    }

    /// The address of the value at `index`. Panics if there is none, as an index does.
    pub(super) fn address(&self, index: usize) -> std::ptr::NonNull<W> {
        assert!(index < self.len, "no such word");
        // SAFETY: one of the `len` values of the mapping.
        unsafe { self.start.add(index) }
    }

    /// The values that are shown: all of them, unless `show` limited them.
    #[inline]
    pub(crate) fn shown(&self) -> &[W] {
        // SAFETY: as in `deref`, and no more than there are, by the invariant.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.shown.load(Ordering::Relaxed)) }
    }

    /// Shows only the first `count` from now on. Relaxed: the words exist
    /// whether they are shown or not.
    pub(crate) fn show(&self, count: usize) {
        self.shown.store(count.min(self.len), Ordering::Relaxed);
    }

    /// Touches every page now, so that no later access waits for one. `false`
    /// if there is not enough memory.
    pub(crate) fn prefault(&self) -> bool {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the mapping is this value's own; the call changes no content.
            let status =
                unsafe { libc::madvise(self.start.as_ptr().cast(), size_of_val(&**self), libc::MADV_POPULATE_WRITE) };
            if status == 0 {
                return true;
            }
            let errno = std::io::Error::last_os_error().raw_os_error();
            if matches!(errno, Some(libc::ENOMEM | libc::EFAULT | libc::EHWPOISON)) {
                return false;
            }
            // Linux before 5.14 does not know this advice, and a sandbox may forbid it.
        }
        self.touch();
        true
    }

    /// Writes to every page without changing it.
    fn touch(&self) {
        self.iter().step_by((PAGE_BYTES / size_of::<W>()).max(1)).for_each(W::touch);
    }

    /// Asks for pages of 2 MB, which save most of the address translation of a
    /// slab larger than the processor's translation cache. Without effect where
    /// the system has none.
    pub(crate) fn ask_for_huge_pages(&self) {
        let bytes = size_of_val(&**self);
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGES_FROM {
            // SAFETY: advice about this value's own mapping; it changes no content, and it may fail.
            unsafe { libc::madvise(self.start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
    }
}

/// What [`Words::prefault`] steps by: no system has smaller pages.
#[cfg(not(loom))]
const PAGE_BYTES: usize = 4096;

/// Below this, ordinary pages are enough: a processor translates some 1,500 of
/// them without a page walk, and a small slab takes only what is touched.
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
        #[cfg(all(feature = "shared", target_os = "linux"))]
        if self.part_of.is_some() {
            return;
        }
        // SAFETY: the mapping is this value's own, and no reference outlives it.
        // Unmapping a whole mapping of ours cannot fail; of an empty one there is
        // nothing to unmap, and the system says so.
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
pub(crate) struct Words<W = AtomicU64> {
    values: Vec<W>,
    shown: Setting,
}

#[cfg(loom)]
impl<W: Zero> Words<W> {
    pub(crate) fn reserve(len: usize) -> Option<Self> {
        Some(Self { values: (0..len).map(|_| W::zero()).collect(), shown: Setting::new(len) })
    }

    pub(super) fn address(&self, index: usize) -> usize {
        index
    }

    pub(crate) fn shown(&self) -> &[W] {
        &self.values[..self.shown.load(Ordering::Relaxed)]
    }

    pub(crate) fn show(&self, count: usize) {
        self.shown.store(count.min(self.values.len()), Ordering::Relaxed);
    }

    pub(crate) fn prefault(&self) -> bool {
        true
    }

    pub(crate) fn ask_for_huge_pages(&self) {}
}

/// The initial value of a model's memory.
#[cfg(loom)]
pub(crate) trait Zero {
    fn zero() -> Self;
}

#[cfg(loom)]
pub(crate) use Zero as Atomics;

#[cfg(loom)]
impl Zero for AtomicU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

#[cfg(loom)]
impl Zero for crate::sync::Counter {
    fn zero() -> Self {
        Self::new(0)
    }
}

#[cfg(loom)]
impl Zero for crate::sync::QuietU64 {
    fn zero() -> Self {
        Self::new(0)
    }
}

#[cfg(loom)]
impl<W: Zero, const N: usize> Zero for [W; N] {
    fn zero() -> Self {
        std::array::from_fn(|_| W::zero())
    }
}

#[cfg(loom)]
impl<W> Deref for Words<W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        &self.values
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

    #[cfg(target_os = "linux")]
    #[test]
    fn prefaulted_memory_is_resident_and_unchanged() {
        let resident = |words: &Words<[AtomicU64; 4]>| {
            let mut pages = vec![0_u8; size_of_val(&**words) / PAGE_BYTES];
            // SAFETY: the mapping is live, and there is a byte for each of its pages.
            let status =
                unsafe { libc::mincore(words.start.as_ptr().cast(), size_of_val(&**words), pages.as_mut_ptr()) };
            assert_eq!(status, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        // With the system's help, and without.
        for prefault in [|words: &Words<_>| assert!(words.prefault()), |words: &Words<_>| words.touch()] {
            let words: Words<[AtomicU64; 4]> = Words::reserve(1 << 18).expect("8 MB");
            words[77][3].store(7, Ordering::Relaxed);
            assert!(resident(&words) < 2_048, "one page was touched, perhaps a large one");
            prefault(&words);
            assert_eq!(resident(&words), 2_048);
            assert_eq!(words[77][3].load(Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn impossible_reservations_are_refused() {
        assert!(Words::<AtomicU64>::reserve(0).is_some_and(|none| none.is_empty() && none.prefault()));
        assert!(Words::<[AtomicU64; 4]>::reserve(usize::MAX).is_none());
        assert!(Words::<AtomicU64>::reserve(1 << 50).is_none());
    }
}
