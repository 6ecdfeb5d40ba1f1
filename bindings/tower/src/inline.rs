//! A short text held in place, so that writing one allocates nothing.

use std::fmt;

/// The first `N` bytes of what was written, and how much there was of it.
#[derive(Clone)]
pub(crate) struct Inline<const N: usize> {
    bytes: [u8; N],
    /// How many bytes were written, also those that found no room.
    len: usize,
}

impl<const N: usize> Inline<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What was written, as far as there was room.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.min(N)]
    }

    pub(crate) fn push(&mut self, more: &[u8]) {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let fits = free.len().min(more.len());
        free[..fits].copy_from_slice(&more[..fits]);
        self.len = self.len.saturating_add(more.len());
    }

    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(decimal(number, &mut [0; DIGITS_MAX]));
    }
}

/// How many digits the largest number has.
const DIGITS_MAX: usize = 20;

/// Writes a number to the end of a text, several times as fast as `write!` does.
pub(crate) fn push_number(text: &mut String, number: u64) {
    let mut digits = [0; DIGITS_MAX];
    // Digits are ASCII.
    text.push_str(std::str::from_utf8(decimal(number, &mut digits)).unwrap_or_default());
}

/// The digits of a number, two at a time from the last to the first.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut first = digits.len();
    while number >= 10 {
        let pair = (number % 100) as u8;
        number /= 100;
        first -= 2;
        digits[first..first + 2].copy_from_slice(&[b'0' + pair / 10, b'0' + pair % 10]);
    }
    if number > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + number as u8;
    }
    &digits[first..]
}

impl<const N: usize> fmt::Write for Inline<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut text = Inline::<4>::new();
        for (more, held, len) in [("ab", "ab", 2), ("cde", "abcd", 5), ("f", "abcd", 6)] {
            text.push(more.as_bytes());
            assert_eq!((text.as_bytes(), text.len()), (held.as_bytes(), len));
        }
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_others_write_them(number in prop_oneof![any::<u64>(), 0..200_u64, Just(u64::MAX)]) {
            let mut text = Inline::<20>::new();
            text.push_number(number);
            let expected = number.to_string();
            prop_assert_eq!(text.as_bytes(), expected.as_bytes());
        }
    }
}
