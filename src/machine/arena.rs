//! The slab's memory as homes and blocks: from a hash to a record's words,
//! without a bounds check.

use super::mapping::Words;
use crate::sync::AtomicU64;
#[cfg(not(loom))]
use std::marker::PhantomData;

/// The blocks of a home.
const HOME_BLOCKS: usize = 8;

/// The blocks of a home and of the next.
const PAIR_BLOCKS: usize = 2 * HOME_BLOCKS;

/// Words in three areas: plain ones, then a word per *home*, then blocks of
/// equal size, a power of two words; each home has [`HOME_BLOCKS`] of them.
///
/// Every lookup comes here, so the areas are kept as addresses, and what cannot
/// be out of range is not checked.
pub(crate) struct Arena {
    words: Words,
    /// Invariant: [`HOME_BLOCKS`] for each home.
    blocks_of_homes: usize,
    blocks: usize,
    /// The size of a block in bytes is two to the power of this.
    block_shift: u32,
    /// The number of the last word of a block.
    block_last: usize,
    /// Invariant: a word for each home and one more follow from here on.
    first_home: Address,
    /// Invariant: `blocks` blocks follow from here on.
    first_block: Address,
}

/// The address of a word of the mapping; under loom, its index.
#[cfg(not(loom))]
type Address = std::ptr::NonNull<AtomicU64>;
#[cfg(loom)]
type Address = usize;

impl Arena {
    /// How many words it takes: see [`over`](Self::over).
    pub(crate) fn len(blocks_at: usize, blocks: usize, block_shift: u32) -> Option<usize> {
        blocks.checked_mul(1_usize.checked_shl(block_shift)?)?.checked_add(blocks_at)
    }

    /// These words as `homes` homes from the word `homes_at` on, and `blocks`
    /// blocks of 2^`block_shift` words from `blocks_at` on. `None` if they are
    /// not as many as that takes.
    pub(crate) fn over(
        words: Words,
        homes_at: usize,
        homes: usize,
        blocks_at: usize,
        blocks: usize,
        block_shift: u32,
    ) -> Option<Self> {
        assert!(homes > 0, "every hash needs a home");
        let block_size = 1_usize.checked_shl(block_shift)?;
        if words.len() != Self::len(blocks_at, blocks, block_shift)? {
            return None;
        }
        assert!(homes_at + homes < blocks_at, "homes, one word after them, and blocks do not overlap");
        assert!(cfg!(loom) || (homes + 1) * HOME_BLOCKS <= blocks, "every home has its blocks, and so has one more");
        let (first_home, first_block) = (words.address(homes_at), words.address(blocks_at));
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

    /// The whole arena as plain words.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    /// The home of a hash, and its favourite block there: the high bits, scaled.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> Home<'_> {
        // Below `blocks_of_homes`, since the hash is below 2^64.
        let favourite = ((u128::from(hash) * self.blocks_of_homes as u128) >> 64) as usize;
        Home { favourite, arena: self }
    }

    /// The block of this number. Panics if there is none, as an index does.
    #[inline]
    pub(crate) fn block(&self, number: usize) -> Block<'_> {
        assert!(number < self.blocks, "no such block");
        self.existing_block(number)
    }

    /// The block of this number, which the caller knows to exist.
    #[inline]
    fn existing_block(&self, number: usize) -> Block<'_> {
        // Half the latency of a multiplication, and every check waits for it.
        let bytes = number << self.block_shift;
        #[cfg(loom)]
        return Block { words: &self.words, start: self.first_block + bytes / 8, last: self.block_last };
        // SAFETY: every caller made sure that `number` is below `blocks`, so it is a block of the invariant.
        #[cfg(not(loom))]
        Block { words: PhantomData, start: unsafe { self.first_block.byte_add(bytes) }, last: self.block_last }
    }
}

// SAFETY: the addresses point to the words, which are not bound to a thread.
#[cfg(not(loom))]
unsafe impl Send for Arena {}

// SAFETY: shared access hands out atomics only.
#[cfg(not(loom))]
unsafe impl Sync for Arena {}

/// One of the homes. Each owns a word and [`HOME_BLOCKS`] blocks.
#[derive(Clone, Copy)]
pub(crate) struct Home<'a> {
    arena: &'a Arena,
    /// The number of a block. Invariant: it belongs to a home, this one.
    favourite: usize,
}

impl<'a> Home<'a> {
    #[inline]
    pub(crate) fn number(&self) -> usize {
        self.favourite / HOME_BLOCKS
    }

    /// Which of its blocks is the favourite: 0 to 7.
    pub(crate) fn favourite_number(&self) -> usize {
        self.favourite % HOME_BLOCKS
    }

    /// Its favourite block.
    #[inline]
    pub(crate) fn favourite(&self) -> Block<'a> {
        self.arena.existing_block(self.favourite)
    }

    /// Its word and that of the next home; a word follows the last home too.
    #[inline]
    pub(crate) fn pair(&self) -> &'a [AtomicU64; 2] {
        #[cfg(loom)]
        return self.arena.words[self.arena.first_home + self.number()..]
            .first_chunk()
            .expect("a word after each home");
        // SAFETY: the word of a home, one of those of the invariant.
        #[cfg(not(loom))]
        let word = unsafe { self.arena.first_home.add(self.number()) };
        // SAFETY: two words of the mapping, by the invariant; it lives as long as `arena`.
        #[cfg(not(loom))]
        unsafe {
            word.cast().as_ref()
        }
    }

    /// One of its blocks, or from [`HOME_BLOCKS`] on one of the next home's;
    /// higher numbers wrap around.
    #[inline]
    pub(crate) fn block(&self, number: u32) -> Block<'a> {
        // It exists: each home has that many, and as many follow the last home's.
        self.arena.existing_block(self.number() * HOME_BLOCKS + number as usize % PAIR_BLOCKS)
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
    start: Address,
    last: usize,
}

impl<'a> Block<'a> {
    /// Its word of this number, wrapping around after the last: as safe as a
    /// checked index, and cheaper.
    #[inline]
    pub(crate) fn word(&self, number: usize) -> &'a AtomicU64 {
        let number = number & self.last;
        #[cfg(loom)]
        return &self.words[self.start + number];
        // SAFETY: at most `last`, so it is one of the words of the invariant.
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
    fn areas_do_not_overlap_and_the_words_of_a_block_wrap_around() {
        let arena = Arena::over(Words::reserve(104).expect("a page"), 1, 2, 4, 25, 2).expect("as many words");
        assert_eq!(arena.words().len(), 4 + 25 * 4);
        for (hash, value) in [(0, 7), (u64::MAX / 2, 8), (u64::MAX, 9)] {
            arena.home(hash).pair()[0].store(value, Ordering::Relaxed);
        }
        for (block, word) in (0..25).flat_map(|block| (0..4).map(move |word| (block, word))) {
            arena.block(block).word(word).store((10 * block + word) as u64, Ordering::Relaxed);
        }
        let values: Vec<u64> = arena.words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(values[..12], [0, 8, 9, 0, 0, 1, 2, 3, 10, 11, 12, 13]);
        assert_eq!(arena.block(4).word(4 + 3).load(Ordering::Relaxed), 43);
        assert_eq!(arena.home(u64::MAX).block(16 + 15).word(1).load(Ordering::Relaxed), 231);
        assert!(std::panic::catch_unwind(|| arena.block(25).word(0).load(Ordering::Relaxed)).is_err());
        assert!(Arena::len(2, usize::MAX, 1).is_none());
        assert!(Arena::over(Words::reserve(104).expect("a page"), 0, 1, 2, 50, 1).is_none());
    }
}
