//! From an agent id to its home and tag: a keyed hash with a proven bound.
//!
//! The id is read as 64-bit characters c1 .. cn, and
//!
//! ```text
//! h = s + top(k1*c1) + … + top(kn*cn)  mod 2^64
//! ```
//!
//! where every k is a secret random number of 128 bits, s is one of 64 bits for
//! each length in bytes, and top(x) is the high 64 bits of x mod 2^128. This is
//! multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is
//! fast", 2014, with K = 128 and L = 64), except that each product is cut to
//! its top before the sum: no carries, fewer instructions, and a bound at most
//! twice theirs.
//!
//! *Claim*: any two different ids get any given pair of values with a
//! probability of at most 2^-127. So they collide with a probability of at most
//! 2^-63, and in any b chosen bits with at most 2^(1-b).
//!
//! The first value is uniform because of s, whatever the k are, so only the
//! difference of the two values matters. If the lengths differ, it is uniform
//! because of the other s. Otherwise some characters differ, say c > c'; let
//! all other k be given. It remains to bound the probability that top(k*c) -
//! top(k*c') is a given number. With d = c - c', it is top(k*d), plus one if
//! there is a carry. d is 2^t times an odd number with t < 64, so k*d mod 2^128
//! is uniform over the multiples of 2^t, and its top 64 bits are uniform: each
//! of the two cases has a probability of at most 2^-64. (If d is odd, the carry
//! depends on the low bits of k*d alone, and the two add up to exactly 2^-64.)
//! An id of eight bytes is read as its one character twice; the first is enough
//! for the proof.
//!
//! The sum is linear but for carries, and linear structure in the ids (counting up, say) would show in the homes. So it
//! passes through a fixed bijection of 64-bit numbers, which leaves the bound as it is, because different pairs stay
//! different pairs. It scatters arithmetic progressions over the high bits, which choose the home; the low bits need
//! only differ.
//!
//! **Against whom.** The bound holds for ids chosen without knowledge of the
//! key. That is all a client can do unless it has read this process's memory or
//! learned hash bits by some other channel. Hash values and the key never leave
//! the slab. The key is expanded by std's keyed hash (SipHash today) from the
//! 128 random bits that a thread's first `RandomState` gets from the system.
//!
//! **The switch.** [`IdHash::SipHash13`] is a pseudo-random function as far as
//! is known: nothing about it is proven, but it also resists clients that
//! observe something of its output, such as timing. It costs more.
//!
//! **Odds.** Two agents are taken for one if their tags (46 bits of the hash)
//! agree and their homes are so near that each lies in the other's
//! neighbourhood. Among N agents at the documented load that is at most about
//! `N * 96 * 0.75 / 2^45`: with one million agents, the odds that any two of
//! them share a record are 2 in a million; with 10 million, 2 in a hundred
//! thousand. From some 30 million on, tag and home hold all bits of the hash,
//! and the odds are `N^2 / 2^64`: with 100 million, 5 in ten thousand.

use crate::bounds::ID_BYTES_MAX;
use crate::record::tag::Tag;
use siphasher::sip::SipHasher13;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

const CHARACTERS_MAX: usize = ID_BYTES_MAX / 8;

/// The longest id of two characters, in bytes.
const SHORT_MAX: usize = 16;

/// How ids are hashed. Either way with a secret key per limiter, and with the same answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdHash {
    /// Multilinear hashing, with a proven bound: ids chosen without knowledge of
    /// the key collide at most twice as often as by chance. The fastest.
    #[default]
    Multilinear,
    /// SipHash-1-3, a pseudo-random function: for use where clients could learn
    /// hash bits from timing. Costs some ten nanoseconds more.
    SipHash13,
}

impl IdHash {
    /// As it is written in a shared slab.
    #[cfg(feature = "shared")]
    pub(crate) const fn number(self) -> u64 {
        match self {
            IdHash::Multilinear => 0,
            IdHash::SipHash13 => 1,
        }
    }

    #[cfg(feature = "shared")]
    pub(crate) const fn from_number(number: u64) -> Self {
        if number == 1 { IdHash::SipHash13 } else { IdHash::Multilinear }
    }
}

/// The secret numbers of one slab.
#[derive(Clone)]
pub(crate) struct HashKey {
    characters: [u128; CHARACTERS_MAX],
    /// By length in bytes.
    starts: [u64; ID_BYTES_MAX + 1],
    /// SipHash takes its key from the numbers of the first two characters.
    kind: IdHash,
}

impl HashKey {
    /// A fresh random key.
    pub(crate) fn random(kind: IdHash) -> Self {
        let random = RandomState::new();
        let mut count = 0_u64;
        Self::from_words(kind, || {
            count += 1;
            random.hash_one(count)
        })
    }

    /// The key made of these words.
    pub(crate) fn from_words(kind: IdHash, mut word: impl FnMut() -> u64) -> Self {
        let characters = std::array::from_fn(|_| u128::from(word()) << 64 | u128::from(word()));
        let starts = std::array::from_fn(|_| word());
        Self { characters, starts, kind }
    }

    /// The key's words, in the order in which [`from_words`](Self::from_words) takes them.
    #[cfg(all(any(test, feature = "shared"), not(loom)))]
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        let characters = self.characters.iter().flat_map(|number| [(number >> 64) as u64, *number as u64]);
        characters.chain(self.starts)
    }

    /// Where the agent belongs. `id` has 1 to [`ID_BYTES_MAX`] bytes.
    pub(crate) fn hash(&self, id: &[u8]) -> AgentHash {
        debug_assert!((1..=ID_BYTES_MAX).contains(&id.len()));
        self.hash_short(id).unwrap_or_else(|| AgentHash(scatter(self.sum(id))))
    }

    /// The hash of an id of 8 to 16 bytes, the most common: its first eight
    /// bytes and its last eight.
    #[inline]
    pub(crate) fn hash_short(&self, id: &[u8]) -> Option<AgentHash> {
        // In this order the length is compared only once.
        if id.len() > SHORT_MAX {
            return None;
        }
        let (first, last) = (id.first_chunk()?, id.last_chunk()?);
        if self.kind != IdHash::Multilinear {
            return None;
        }
        let first = top(self.characters[0], u64::from_le_bytes(*first));
        let last = top(self.characters[1], u64::from_le_bytes(*last));
        Some(AgentHash(scatter(first.wrapping_add(*self.starts.get(id.len())?).wrapping_add(last))))
    }

    /// All but the last one to eight bytes in whole characters, then the last
    /// eight bytes, which may overlap. For a given length that is one-to-one.
    #[inline(never)]
    fn sum(&self, id: &[u8]) -> u64 {
        if self.kind == IdHash::SipHash13 {
            let [first, second, ..] = self.characters;
            return SipHasher13::new_with_keys(first as u64, second as u64).hash(id);
        }
        let last = id.len().saturating_sub(1) / 8;
        let whole = id
            .chunks_exact(8)
            .take(last)
            .map(|chunk| chunk.first_chunk::<8>().map_or(0, |character| u64::from_le_bytes(*character)));
        whole
            .chain([last_character(id)])
            .zip(&self.characters)
            .fold(self.starts[id.len()], |sum, (character, key)| sum.wrapping_add(top(*key, character)))
    }
}

/// The top 64 bits of the product modulo 2^128.
#[inline]
const fn top(key: u128, character: u64) -> u64 {
    (key.wrapping_mul(character as u128) >> 64) as u64
}

/// The last eight bytes, or all of a shorter id.
#[inline]
fn last_character(id: &[u8]) -> u64 {
    if let Some(last) = id.last_chunk::<8>() {
        return u64::from_le_bytes(*last);
    }
    if let (Some(first), Some(last)) = (id.first_chunk::<4>(), id.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
    }
    id.iter().fold(0, |character, byte| character << 8 | u64::from(*byte))
}

/// A fixed bijection that breaks linear structure in the high bits; every bit
/// of the sum affects them.
#[inline]
const fn scatter(sum: u64) -> u64 {
    (sum ^ sum >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25) // Odd, so it has an inverse.
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

/// An agent's hash: its home, its tag and its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentHash(u64);

impl AgentHash {
    /// A placeholder that no agent has.
    pub(crate) const NOBODY: Self = Self(0);

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The part that a [`TagWord`](crate::record::tag::TagWord) shows too.
    pub(crate) const fn low_bits(self) -> u64 {
        self.0 & 0xffff
    }

    /// All of it. Its high bits choose the home group and the favourite slot.
    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Its fingerprint in the highest byte.
    #[inline]
    pub(crate) fn shown(self) -> u32 {
        self.0 as u32
    }

    /// The low bits, which the record stores.
    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag::of_hash(self.0)
    }

    /// Which of `shards` shards the agent belongs to.
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0 >> 16) as usize % shards
    }
}

impl fmt::Debug for AgentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentHash(secret)")
    }
}

/// A key that is the same in every run.
#[cfg(test)]
pub(crate) fn fixed_key(seed: u64) -> HashKey {
    let mut state = seed;
    HashKey::from_words(IdHash::Multilinear, || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// The fast path reads an id as the definition does, character by character.
        #[test]
        fn the_hash_is_the_documented_sum(
            id in prop_oneof![1..=ID_BYTES_MAX, 6..=18_usize]
                .prop_flat_map(|bytes| proptest::collection::vec(any::<u8>(), bytes)),
        ) {
            let key = fixed_key(7);
            let mut characters: Vec<u64> = Vec::new();
            for i in 0..(id.len() - 1) / 8 {
                characters.push(u64::from_le_bytes(id[i * 8..i * 8 + 8].try_into().unwrap()));
            }
            characters.push(last_character(&id));
            if id.len() == 8 {
                characters.push(characters[0]);
            }
            let sum = characters.iter().zip(&key.characters).fold(
                key.starts[id.len()],
                |sum, (c, k)| sum.wrapping_add((k.wrapping_mul(u128::from(*c)) >> 64) as u64),
            );
            prop_assert!(key.hash(&id) == AgentHash(scatter(sum)));
        }
    }

    /// The argument for the bound, with characters of six bits and every key of twelve.
    #[test]
    fn no_difference_is_more_than_twice_as_likely_as_chance() {
        const BITS: u32 = 6;
        let top = |key: u32, character: u32| (key * character) >> BITS & ((1 << BITS) - 1);
        let mut most = 0;
        for (larger, smaller) in (0..1 << BITS).flat_map(|larger| (0..larger).map(move |smaller| (larger, smaller))) {
            let mut seen = [0; 1 << BITS];
            for key in 0..1 << (2 * BITS) {
                seen[(top(key, larger).wrapping_sub(top(key, smaller)) & ((1 << BITS) - 1)) as usize] += 1;
            }
            // By chance, each value appears once for every half of a key.
            let likeliest = seen.into_iter().max().unwrap();
            if (larger - smaller) % 2 == 1 {
                assert_eq!(likeliest, 1 << BITS, "{larger} {smaller}");
            }
            most = most.max(likeliest);
        }
        assert!(most <= 2 << BITS, "{most}");
        println!("at most {most} of {}, by chance {}", 1 << (2 * BITS), 1 << BITS);
    }

    #[test]
    fn the_switch_is_siphash_with_the_key() {
        let mut words = fixed_key(5).words().collect::<Vec<_>>().into_iter();
        let key = HashKey::from_words(IdHash::SipHash13, || words.next().unwrap());
        let [first, second, ..] = key.characters.map(|number| number as u64);
        for id in [&b"a"[..], b"agent-0000000001", &[9; ID_BYTES_MAX]] {
            let reference = SipHasher13::new_with_keys(first, second).hash(id);
            assert!(key.hash(id) == AgentHash(scatter(reference)));
            assert!(key.hash(id) != fixed_key(5).hash(id));
        }
    }

    #[test]
    fn ids_that_differ_in_padding_length_or_one_bit_differ_in_hash() {
        let key = fixed_key(1);
        let mut seen = HashSet::new();
        for length in 1..=ID_BYTES_MAX {
            for fill in [0, 3, 255] {
                assert!(seen.insert(key.hash(&vec![fill; length]).0), "{fill} x {length}");
            }
            for bit in 0..length * 8 {
                let mut id = vec![0; length];
                id[bit / 8] = 1 << (bit % 8);
                assert!(seen.insert(key.hash(&id).0), "bit {bit} of {length} bytes");
            }
        }
    }

    #[test]
    fn scatter_is_a_bijection() {
        // x ^ x>>32 undoes itself, and an odd multiplier has an inverse.
        let mut inverse = 0x9fb2_1c65_1e98_df25_u64;
        for _ in 0..6 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(inverse.wrapping_mul(0x9fb2_1c65_1e98_df25)));
        }
        for x in [0, 1, 0xdead_beef, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef] {
            let mixed = scatter(x);
            let back = mixed.wrapping_mul(inverse);
            assert_eq!(back ^ back >> 32, x);
        }
    }
}
