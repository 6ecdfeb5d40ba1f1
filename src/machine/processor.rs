//! What the processor does better than portable Rust: prefetch a cache line,
//! compare sixteen bytes at once.

use crate::sync::AtomicU64;
#[cfg(not(all(target_arch = "x86_64", not(loom))))]
use crate::sync::peek;

/// Starts to fetch the cache line of `word`: a hint that changes no value.
#[inline]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and cannot fault, and SSE is part of every x86_64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    let _ = word;
}

/// Waits until every load before this one is complete. A processor may read its
/// counter before loads that come first in the program: so a clock reading that
/// must be later than what was loaded comes after this.
#[inline]
pub(crate) fn finish_loads() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: every x86-64 processor has the instruction; it touches no memory, stack or flags.
    unsafe {
        std::arch::asm!("lfence", options(nostack, preserves_flags));
    }
}

/// A bit for each byte of the two words that equals the highest byte of
/// `wanted`, or 1 where that is 0; the lowest bit stands for the lowest byte of
/// the first word. Each byte is what a relaxed load finds; two bytes need not
/// be from the same moment.
#[inline]
pub(crate) fn same_bytes(words: &[AtomicU64; 2], wanted: u32) -> u16 {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi8, _mm_cvtsi32_si128, _mm_max_epu8, _mm_movemask_epi8, _mm_set1_epi8,
            _mm_shuffle_epi32, _mm_shufflelo_epi16, _mm_unpacklo_epi8,
        };
        let shown: __m128i;
        // SAFETY: both words are live, and the instruction only reads them. It
        // never tears a byte, and bytes are all that is compared.
        unsafe {
            std::arch::asm!(
                "movdqu {}, xmmword ptr [{}]",
                out(xmm_reg) shown,
                in(reg) words,
                options(readonly, nostack, preserves_flags),
            );
        }
        #[target_feature(enable = "sse2")]
        #[inline]
        fn compare(shown: __m128i, wanted: u32) -> u16 {
            let twice = _mm_cvtsi32_si128(wanted as i32);
            // The fourth byte, doubled, is the fourth of these pairs; it is copied everywhere.
            let wanted = _mm_shufflelo_epi16::<0xff>(_mm_unpacklo_epi8(twice, twice));
            let wanted = _mm_max_epu8(_mm_shuffle_epi32::<0>(wanted), _mm_set1_epi8(1));
            _mm_movemask_epi8(_mm_cmpeq_epi8(shown, wanted)) as u16
        }
        // SAFETY: SSE2 is part of every x86_64.
        unsafe { compare(shown, wanted) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    {
        let wanted = u64::from_ne_bytes([((wanted >> 24) as u8).max(1); 8]);
        let [first, second] = [0, 1].map(|word: usize| same_bytes_of_word(peek(&words[word]), wanted));
        first | second << 8
    }
}

/// A bit for each byte of a word that equals the one in `wanted`, on any processor.
#[inline]
pub(crate) const fn same_bytes_of_word(word: u64, wanted: u64) -> u16 {
    const LOW_SEVEN: u64 = u64::from_ne_bytes([0x7f; 8]);
    let different = word ^ wanted;
    // The high bit of each zero byte, and no other: no sum carries into the next byte.
    let same = !(((different & LOW_SEVEN) + LOW_SEVEN) | different | LOW_SEVEN);
    // The bits of the eight bytes, gathered in the highest.
    ((same >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_the_equal_bytes_are_found(
            shown in proptest::array::uniform16(0_u8..4),
            wanted in 0_u8..4,
            high: bool,
            rest in 0_u32..1 << 24,
        ) {
            // Few distinct values, so that many are equal, from both halves of the range.
            let high = if high { 0xfc } else { 0 };
            let shown = shown.map(|byte| byte | high);
            let wanted = wanted | high;
            let matches = |wanted| (0..16).filter(move |byte| shown[*byte] == wanted);
            let exact = |wanted| matches(wanted).fold(0, |bits, byte| bits | 1_u16 << byte);
            let words = [0, 8].map(|at| u64::from_le_bytes(shown[at..at + 8].try_into().unwrap()));
            let found = same_bytes(&words.map(AtomicU64::new), u32::from(wanted) << 24 | rest);
            prop_assert_eq!(found, exact(wanted.max(1)));
            let [first, second] = words.map(|word| same_bytes_of_word(word, u64::from_le_bytes([wanted; 8])));
            prop_assert_eq!(first | second << 8, exact(wanted));
        }
    }
}
