//! Numbers and lengths of time as people write them: `1_000`, `5min`, `10/s`.

use super::limit_error::LimitError;
use std::fmt;
use std::time::Duration;

pub(crate) struct Unit {
    nanos: u64,
    /// The full name first, then the one used after a number.
    names: &'static [&'static str],
}

/// Longest first, so that a length is written in the largest unit that fits.
const UNITS: [Unit; 7] = [
    Unit { nanos: 86_400_000_000_000, names: &["day", "d", "days"] },
    Unit { nanos: 3_600_000_000_000, names: &["hour", "h", "hours", "hr"] },
    Unit { nanos: 60_000_000_000, names: &["minute", "min", "minutes", "m", "mins"] },
    Unit { nanos: 1_000_000_000, names: &["second", "s", "seconds", "sec", "secs"] },
    Unit { nanos: 1_000_000, names: &["millisecond", "ms", "milliseconds"] },
    Unit { nanos: 1_000, names: &["microsecond", "us", "microseconds"] },
    Unit { nanos: 1, names: &["nanosecond", "ns", "nanoseconds"] },
];

impl Unit {
    pub(crate) fn name(&self) -> &'static str {
        self.names[0]
    }

    pub(crate) fn short(&self) -> &'static str {
        self.names[1]
    }

    /// This many of the unit; `None` past 584 years.
    pub(crate) fn times(&self, count: u64) -> Option<Duration> {
        count.checked_mul(self.nanos).map(Duration::from_nanos)
    }
}

pub(crate) fn unit_named(name: &str) -> Option<&'static Unit> {
    UNITS.iter().find(|unit| unit.names.contains(&name))
}

/// A length as a count of the largest unit that divides it.
pub(crate) fn unit_of(length: Duration) -> (u128, &'static Unit) {
    let nanos = length.as_nanos();
    let [.., nanosecond] = &UNITS;
    let unit = UNITS.iter().find(|unit| nanos > 0 && nanos % u128::from(unit.nanos) == 0).unwrap_or(nanosecond);
    (nanos / u128::from(unit.nanos), unit)
}

/// A length of time: a number and a unit. `None` for anything else.
#[cfg(feature = "config")]
pub(crate) fn length(text: &str) -> Option<Duration> {
    let mut parts = Parts(text.trim());
    let count = number(parts.digits()?)?;
    let unit = unit_named(parts.word())?;
    if parts.0.is_empty() { unit.times(count) } else { None }
}

/// The value of [`Parts::digits`]; `None` if it is too large.
pub(crate) fn number(digits: &str) -> Option<u64> {
    digits.replace('_', "").parse().ok()
}

/// A number; `None` if the text does not start with one.
pub(super) fn number_in(parts: &mut Parts<'_>) -> Result<Option<u64>, LimitError> {
    let read = |digits| number(digits).ok_or_else(|| too_large(digits));
    parts.digits().map(read).transpose()
}

/// A number per period; `None` if it is something else.
pub(super) fn rate(parts: &mut Parts<'_>) -> Result<Option<(u64, Duration)>, LimitError> {
    let Some(tokens) = number_in(parts)? else {
        return Ok(None);
    };
    if !parts.take("/") && !parts.take("per") {
        return Ok(None);
    }
    let count = number_in(parts)?.unwrap_or(1);
    let length = |unit: &Unit| unit.times(count).ok_or_else(|| too_large(&format!("{count}{}", unit.short())));
    let per = unit_named(parts.word()).map(length).transpose()?;
    Ok(per.map(|per| (tokens, per)))
}

fn too_large(number: &str) -> LimitError {
    LimitError::TooLarge { number: number.chars().take(40).collect() }
}

/// A period as it is written after a slash.
pub(super) struct Per(pub(super) Duration);

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unit_of(self.0) {
            (1, unit) => f.write_str(unit.name()),
            (count, unit) => write!(f, "{count}{}", unit.short()),
        }
    }
}

/// What is left to read of a text. Each call takes from the front.
pub(crate) struct Parts<'a>(pub(crate) &'a str);

impl<'a> Parts<'a> {
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !wanted(c)).unwrap_or(self.0.len());
        let (head, rest) = self.0.split_at(end);
        self.0 = rest.trim_start();
        head
    }

    /// A number as it is written, with underscores and at least one digit.
    pub(crate) fn digits(&mut self) -> Option<&'a str> {
        let before = self.0;
        let digits = self.take_while(|c| c.is_ascii_digit() || c == '_');
        if digits.contains(|c: char| c.is_ascii_digit()) {
            return Some(digits);
        }
        self.0 = before;
        None
    }

    pub(crate) fn word(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphabetic())
    }

    pub(crate) fn take(&mut self, word: &str) -> bool {
        match self.0.strip_prefix(word) {
            Some(rest) => {
                self.0 = rest.trim_start();
                true
            }
            None => false,
        }
    }
}

#[cfg(all(test, feature = "config", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_number_and_a_unit() {
        for (text, seconds) in [("60s", 60), (" 5 minutes ", 300), ("1h", 3_600), ("1_000sec", 1_000), ("0s", 0)] {
            assert_eq!(length(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "60", "s", "60 s 1", "-1s", "1.5s", "60x", "99999999999999999999s", "300000days"] {
            assert_eq!(length(text), None, "{text}");
        }
    }
}
