//! A short text stored inline, so that writing one allocates nothing.

use std::fmt;

/// The first `N` bytes that were written, and the number of all of them.
#[derive(Clone)]
pub(crate) struct Inline<const N: usize> {
    bytes: [u8; N],
    /// How many bytes were written, including those that did not fit.
    len: usize,
}

impl<const N: usize> Inline<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes that fit.
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

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

/// Appends a number to a text, several times as fast as `write!` does.
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
    fn bytes_that_do_not_fit_are_counted() {
        let mut text = Inline::<4>::new();
        for (more, stored, len) in [("ab", "ab", 2), ("cde", "abcd", 5), ("f", "abcd", 6)] {
            text.push(more.as_bytes());
            assert_eq!((text.as_bytes(), text.len()), (stored.as_bytes(), len));
        }
    }

    proptest! {
        #[test]
        fn numbers_are_written_like_std_does(number in prop_oneof![any::<u64>(), 0..200_u64, Just(u64::MAX)]) {
            let mut text = Inline::<20>::new();
            text.push_number(number);
            let expected = number.to_string();
            prop_assert_eq!(text.as_bytes(), expected.as_bytes());
        }
    }
}
