//! Ids: 16-byte strings, random or chosen with knowledge of the code but not of
//! the key. Nothing is measured here.

/// An agent's id.
pub type Id = [u8; ID_BYTES];

/// The length of every id in this program.
pub const ID_BYTES: usize = 16;

/// A small generator of repeatable random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// How a set of ids is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Sixteen random hexadecimal digits.
    Random,
    /// `agent-0000012345`, counting up.
    Sequential,
    /// Twelve common bytes, then a counter of four bytes.
    CommonPrefix,
    /// A counter of four bytes, then twelve common bytes.
    CommonSuffix,
    /// Both characters of the hash in arithmetic progression, in steps of 2^32:
    /// low bits never differ.
    HighBits,
    /// The two characters add up to a constant, against sums with equal factors.
    Opposed,
    /// Zero bytes except for the bits of a counter spread over the id, against
    /// folded multiplies and sums of few terms.
    Sparse,
}

impl Pattern {
    /// Every chosen pattern.
    pub const CHOSEN: [Self; 6] =
        [Self::Sequential, Self::CommonPrefix, Self::CommonSuffix, Self::HighBits, Self::Opposed, Self::Sparse];

    /// Its name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::CommonPrefix => "common prefix",
            Self::CommonSuffix => "common suffix",
            Self::HighBits => "steps of 2^32",
            Self::Opposed => "opposed halves",
            Self::Sparse => "sparse bits",
        }
    }

    /// The id with this number. Different numbers below 2^30 give different
    /// ids (random ones: with near certainty).
    #[must_use]
    pub fn id(self, number: u64) -> Id {
        let halves = |first: u64, second: u64| {
            let mut id = [0; ID_BYTES];
            id[..8].copy_from_slice(&first.to_le_bytes());
            id[8..].copy_from_slice(&second.to_le_bytes());
            id
        };
        let text = |text: String| {
            let mut id = [0; ID_BYTES];
            id.copy_from_slice(text.as_bytes());
            id
        };
        match self {
            Self::Random => text(format!("{:016x}", Random::new(number ^ 0x5eed_0000_0000_0000).word())),
            Self::Sequential => text(format!("agent-{number:010}")),
            Self::CommonPrefix => halves(0x6363_6363_6363_6363, number << 32 | 0x6464_6464),
            Self::CommonSuffix => halves(number | 0x6363_6363 << 32, 0x6464_6464_6464_6464),
            Self::HighBits => halves(number << 32, number << 32),
            Self::Opposed => halves(number, number.wrapping_neg()),
            Self::Sparse => halves(spread(number & 0x7fff), spread(number >> 15)),
        }
    }

    /// The first `count` ids.
    #[must_use]
    pub fn ids(self, count: usize) -> Vec<Id> {
        (0..count as u64).map(|number| self.id(number)).collect()
    }
}

/// The low 16 bits of a number, four positions apart.
fn spread(number: u64) -> u64 {
    (0..16).fold(0, |spread, bit| spread | (number >> bit & 1) << (bit * 4))
}

/// `count` uniform draws from `ids`.
#[must_use]
pub fn draws(ids: &[Id], count: usize, random: &mut Random) -> Vec<Id> {
    (0..count).map(|_| ids[random.below(ids.len())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_pattern_gives_different_ids() {
        for pattern in Pattern::CHOSEN.into_iter().chain([Pattern::Random]) {
            let ids = pattern.ids(100_000);
            assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "{pattern:?}");
        }
        assert_eq!(&Pattern::Sequential.id(12_345), b"agent-0000012345");
    }
}
