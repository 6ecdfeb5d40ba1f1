//! Memory for the slab and the table of limits: zeroed words, reserved once,
//! committed as they are touched.

use crate::sync::{AtomicU64, Ordering, Setting};
#[cfg(not(loom))]
use std::marker::PhantomData;
use std::ops::Deref;

/// What may stand in a mapping: atomics without padding between them.
///
/// # Safety
///
/// All bytes zero must be a valid value, and shared access from any thread must be sound.
#[cfg(not(loom))]
pub(crate) unsafe trait Atomics: Sync {
    /// Writes to it what is there.
    fn touch(&self);
}

// SAFETY: an atomic number may be zero, and is made to be shared.
#[cfg(not(loom))]
unsafe impl Atomics for AtomicU64 {
    fn touch(&self) {
        // Nothing is added that the compiler knows to be nothing: it would leave that out.
        self.fetch_add(std::hint::black_box(0), Ordering::Relaxed);
    }
}

// SAFETY: as for each of them.
#[cfg(not(loom))]
unsafe impl<W: Atomics, const N: usize> Atomics for [W; N] {
    fn touch(&self) {
        self.iter().step_by((PAGE_BYTES / size_of::<W>()).max(1)).for_each(W::touch);
    }
}

/// A fixed number of words, or of arrays of words, all zero at first.
#[cfg(not(loom))]
pub(crate) struct Words<W: Atomics = AtomicU64> {
    /// Invariant: the start of a mapping of `len` values that only this one unmaps.
    start: std::ptr::NonNull<W>,
    len: usize,
    /// Invariant: at most `len`.
    shown: Setting,
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
        Some(Self { start: std::ptr::NonNull::new(start.cast())?, len, shown: Setting::new(len) })
    }

    /// Where the value of this number stands. Like an index, it has to exist.
    fn place(&self, index: usize) -> std::ptr::NonNull<W> {
        assert!(index < self.len, "there is no such word");
        // SAFETY: one of the `len` values of the mapping.
        unsafe { self.start.add(index) }
    }

    /// The first of them, as many as are shown: all, if nothing was said.
    #[inline]
    pub(crate) fn shown(&self) -> &[W] {
        // SAFETY: as in `deref`, and no more than there are, by the invariant.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.shown.load(Ordering::Relaxed)) }
    }

    /// Shows only the first `count`, from now on. Relaxed: the words are there
    /// whether they are shown or not.
    pub(crate) fn show(&self, count: usize) {
        self.shown.store(count.min(self.len), Ordering::Relaxed);
    }

    /// Takes all of it from the system now, so that no first touch has to wait
    /// for it later. `false` if there is not enough.
    pub(crate) fn commit(&self) -> bool {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: of this value's own mapping; the call changes no content.
            let status =
                unsafe { libc::madvise(self.start.as_ptr().cast(), size_of_val(&**self), libc::MADV_POPULATE_WRITE) };
            if status == 0 {
                return true;
            }
            let errno = std::io::Error::last_os_error().raw_os_error();
            if matches!(errno, Some(libc::ENOMEM | libc::EFAULT | libc::EHWPOISON)) {
                return false;
            }
            // Linux before 5.14 does not know the advice, and a sandbox may not allow it.
        }
        self.touch();
        true
    }

    /// Writes to every page what is there.
    fn touch(&self) {
        self.iter().step_by((PAGE_BYTES / size_of::<W>()).max(1)).for_each(W::touch);
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

/// What [`Words::commit`] steps by: no system has smaller pages.
#[cfg(not(loom))]
const PAGE_BYTES: usize = 4096;

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
pub(crate) struct Words<W = AtomicU64> {
    values: Vec<W>,
    shown: Setting,
}

#[cfg(loom)]
impl<W: Zero> Words<W> {
    pub(crate) fn reserve(len: usize) -> Option<Self> {
        Some(Self { values: (0..len).map(|_| W::zero()).collect(), shown: Setting::new(len) })
    }

    fn place(&self, index: usize) -> usize {
        index
    }

    pub(crate) fn shown(&self) -> &[W] {
        &self.values[..self.shown.load(Ordering::Relaxed)]
    }

    pub(crate) fn show(&self, count: usize) {
        self.shown.store(count.min(self.values.len()), Ordering::Relaxed);
    }

    pub(crate) fn commit(&self) -> bool {
        true
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

/// Blocks that belong to a home.
const HOME_BLOCKS: usize = 8;

/// Blocks of a home and of the next.
const PAIR_BLOCKS: usize = 2 * HOME_BLOCKS;

/// Words in three parts: plain ones, then *homes* and what belongs to them,
/// then blocks of equal size, a power of two words.
///
/// Every lookup comes here, so the places are kept as addresses and found
/// without a check where none can fail.
pub(crate) struct Parts {
    words: Words,
    /// Invariant: [`HOME_BLOCKS`] for each home.
    blocks_of_homes: usize,
    blocks: usize,
    /// The size of a block in bytes is two to the power of this.
    block_shift: u32,
    /// The number of the last word of a block.
    block_last: usize,
    /// Invariant: a word for each home and one more follow from here on.
    first_home: Place,
    /// Invariant: `blocks` blocks follow from here on.
    first_block: Place,
}

/// The address of a word of the mapping; under loom, its index.
#[cfg(not(loom))]
type Place = std::ptr::NonNull<AtomicU64>;
#[cfg(loom)]
type Place = usize;

impl Parts {
    /// Reserves all of it: `homes` homes from the word `homes_at` on, and
    /// `blocks` blocks of 2^`block_shift` words from `blocks_at` on. `None` if
    /// the system refuses.
    pub(crate) fn reserve(
        homes_at: usize,
        homes: usize,
        blocks_at: usize,
        blocks: usize,
        block_shift: u32,
    ) -> Option<Self> {
        assert!(homes > 0, "a hash has a home");
        let block_size = 1_usize.checked_shl(block_shift)?;
        let words = Words::reserve(blocks.checked_mul(block_size)?.checked_add(blocks_at)?)?;
        assert!(homes_at + homes < blocks_at, "homes, one word behind them, and blocks do not overlap");
        assert!(cfg!(loom) || (homes + 1) * HOME_BLOCKS <= blocks, "each home has its blocks, and so has a next one");
        let place = |index| words.place(index);
        let (first_home, first_block) = (place(homes_at), place(blocks_at));
        Some(Self {
            words,
            blocks_of_homes: homes.checked_mul(HOME_BLOCKS)?,
            blocks,
            block_shift: block_shift + 3,
            block_last: block_size - 1,
            first_home,
            first_block,
        })
    }

    /// All of them as plain words.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// The home of a hash, and its favourite block there: the high bits, scaled.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> Home<'_> {
        // Below the number of those blocks, since the hash is below 2^64.
        let favourite = ((u128::from(hash) * self.blocks_of_homes as u128) >> 64) as usize;
        Home { favourite, parts: self }
    }

    /// The block of this number. Like an index, it has to exist.
    #[inline]
    pub(crate) fn block(&self, number: usize) -> Block<'_> {
        assert!(number < self.blocks, "there is no such block");
        self.existing_block(number)
    }

    /// The block of this number, which exists.
    #[inline]
    fn existing_block(&self, number: usize) -> Block<'_> {
        // Half as long as a multiplication, which every check would wait for.
        let bytes = number << self.block_shift;
        #[cfg(loom)]
        return Block { words: &self.words, start: self.first_block + bytes / 8, last: self.block_last };
        // SAFETY: the callers made sure that it is one of those that are there by the invariant.
        #[cfg(not(loom))]
        Block { words: PhantomData, start: unsafe { self.first_block.byte_add(bytes) }, last: self.block_last }
    }
}

// SAFETY: the addresses are those of the words, which are not bound to a thread.
#[cfg(not(loom))]
unsafe impl Send for Parts {}

// SAFETY: shared access hands out atomics only.
#[cfg(not(loom))]
unsafe impl Sync for Parts {}

/// One of the homes. Each has a word and [`HOME_BLOCKS`] blocks of its own.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    parts: &'a Parts,
    /// The number of a block. Invariant: it belongs to a home, this one.
    favourite: usize,
}

impl<'a> Home<'a> {
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.favourite / HOME_BLOCKS
    }

    /// Which of its own blocks is the favourite.
    pub(crate) fn favourite_number(&self) -> usize {
        self.favourite % HOME_BLOCKS
    }

    /// The favourite one of its own blocks.
    #[inline]
    pub(crate) fn favourite(&self) -> Block<'a> {
        self.parts.existing_block(self.favourite)
    }

    /// Its word and that of the next home; behind the last home is a word too.
    #[inline]
    pub(crate) fn pair(&self) -> &'a [AtomicU64; 2] {
        #[cfg(loom)]
        return self.parts.words[self.parts.first_home + self.number()..]
            .first_chunk()
            .expect("a word behind each home");
        // SAFETY: of one of the homes, which are there by the invariant.
        #[cfg(not(loom))]
        let word = unsafe { self.parts.first_home.add(self.number()) };
        // SAFETY: two words of the mapping, by the invariant; it lives as long as `parts`.
        #[cfg(not(loom))]
        unsafe {
            word.cast().as_ref()
        }
    }

    /// One of its own blocks, or from [`HOME_BLOCKS`] on of the next home's;
    /// the numbers start over behind those.
    #[inline]
    pub(crate) fn block(&self, number: u32) -> Block<'a> {
        // It exists: each home has that many, and behind the last home are as many.
        self.parts.existing_block(self.number() * HOME_BLOCKS + number as usize % PAIR_BLOCKS)
    }
}

/// One block.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    #[cfg(not(loom))]
    words: PhantomData<&'a Words>,
    #[cfg(loom)]
    words: &'a Words,
    /// Invariant: `last + 1` words follow from here on, a power of two.
    start: Place,
    last: usize,
}

impl<'a> Block<'a> {
    /// Its word of this number, which starts over behind the last: cheaper
    /// than an index that is checked, and as safe.
    #[inline]
    pub(crate) fn word(&self, number: usize) -> &'a AtomicU64 {
        let number = number & self.last;
        #[cfg(loom)]
        return &self.words[self.start + number];
        // SAFETY: at most `last`, so it is one of the words that are there by the invariant.
        #[cfg(not(loom))]
        let word = unsafe { self.start.add(number) };
        // SAFETY: a word of the mapping from which the block was borrowed.
        #[cfg(not(loom))]
        unsafe {
            word.as_ref()
        }
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
    fn parts_do_not_overlap_and_the_words_of_a_block_start_over() {
        let parts = Parts::reserve(1, 2, 4, 25, 2).expect("a page");
        assert_eq!(parts.words().len(), 4 + 25 * 4);
        for (hash, value) in [(0, 7), (u64::MAX / 2, 8), (u64::MAX, 9)] {
            parts.home(hash).pair()[0].store(value, Ordering::Relaxed);
        }
        for (block, word) in (0..25).flat_map(|block| (0..4).map(move |word| (block, word))) {
            parts.block(block).word(word).store((10 * block + word) as u64, Ordering::Relaxed);
        }
        let values: Vec<u64> = parts.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(values[..12], [0, 8, 9, 0, 0, 1, 2, 3, 10, 11, 12, 13]);
        assert_eq!(parts.block(4).word(4 + 3).load(Ordering::Relaxed), 43);
        assert_eq!(parts.home(u64::MAX).block(16 + 15).word(1).load(Ordering::Relaxed), 231);
        assert!(std::panic::catch_unwind(|| parts.block(25).word(0).load(Ordering::Relaxed)).is_err());
        assert!(Parts::reserve(0, 1, 2, usize::MAX, 1).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_committed_is_resident_and_unchanged() {
        let resident = |words: &Words<[AtomicU64; 4]>| {
            let mut pages = vec![0_u8; size_of_val(&**words) / PAGE_BYTES];
            // SAFETY: the mapping is live, and there is a byte for each of its pages.
            let status =
                unsafe { libc::mincore(words.start.as_ptr().cast(), size_of_val(&**words), pages.as_mut_ptr()) };
            assert_eq!(status, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        // As the system does it, and where it does not know how.
        for commit in [|words: &Words<_>| assert!(words.commit()), |words: &Words<_>| words.touch()] {
            let words: Words<[AtomicU64; 4]> = Words::reserve(1 << 18).expect("8 MB");
            words[77][3].store(7, Ordering::Relaxed);
            assert!(resident(&words) < 2_048, "one page was touched, perhaps a large one");
            commit(&words);
            assert_eq!(resident(&words), 2_048);
            assert_eq!(words[77][3].load(Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn what_cannot_be_reserved_is_refused() {
        assert!(Words::<AtomicU64>::reserve(0).is_none());
        assert!(Words::<[AtomicU64; 4]>::reserve(usize::MAX).is_none());
        assert!(Words::<AtomicU64>::reserve(1 << 50).is_none());
    }
}
