//! What is wrong with a policy file, and where.

use std::fmt;
use std::ops::Range;

/// How many characters of a long line are shown: before the location, and in all.
const SHOWN_BEFORE: usize = 60;
const SHOWN: usize = 120;

/// Why a policy file cannot be used: the first mistake in it.
///
/// It prints as the location and one sentence, the line of the file, and a mark
/// under the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    line: usize,
    column: usize,
    message: String,
    /// The line, or the part of a long one around the location.
    shown: String,
    /// Which characters of `shown` are marked.
    marked: Range<usize>,
}

impl ConfigError {
    /// An error at these bytes of the text, for a program that reads more of a
    /// policy file than [`Policy::from_toml`](crate::Policy::from_toml) does. A
    /// location past the end is the end.
    #[must_use]
    pub fn new(text: &str, at: Range<usize>, message: String) -> Self {
        let start = (0..=at.start.min(text.len())).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        let (before, after) = text.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = after.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        let column = before[line_start..].chars().count();
        let wanted = text.get(start..at.end).map_or(1, |marked| marked.chars().count());
        let width = wanted.min(rest.chars().count()).max(1);

        let skipped = column.saturating_sub(SHOWN_BEFORE);
        let line = before[line_start..].chars().chain(rest.chars());
        // A tab or any other control character would move the mark.
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let shown: String = line.skip(skipped).take(SHOWN).map(plain).collect();
        let marked = column - skipped..(column - skipped + width).min(SHOWN);
        Self { line: before.matches('\n').count() + 1, column: column + 1, message, shown, marked }
    }

    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, counted from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, without the location.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message, shown, marked } = self;
        let margin = " ".repeat(line.to_string().len());
        writeln!(f, "line {line}, column {column}: {message}")?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{line} | {shown}")?;
        write!(f, "{margin} | {}{}", " ".repeat(marked.start), "^".repeat(marked.len().max(1)))
    }
}

impl std::error::Error for ConfigError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shown(text: &str, at: Range<usize>) -> String {
        ConfigError::new(text, at, "wrong".into()).to_string()
    }

    #[test]
    fn the_mark_is_under_the_mistake() {
        assert_eq!(shown("ab\ncd ef\n", 6..8), "line 2, column 4: wrong\n  |\n2 | cd ef\n  |    ^^");
        assert_eq!(shown("é\tü = 1\r\n", 3..5), "line 1, column 3: wrong\n  |\n1 | é ü = 1\n  |   ^");
    }

    #[test]
    fn a_place_within_a_character_is_its_start_and_one_past_the_end_is_the_end() {
        let place = |text, start| {
            let error = ConfigError::new(text, start..start + 1, String::new());
            (error.line(), error.column())
        };
        assert_eq!(place("aé", 2), (1, 2));
        assert_eq!(place("a\nb", 3), (2, 2));
        assert_eq!(place("a\nb", 100), (2, 2));
    }

    #[test]
    fn every_place_of_every_text_can_be_shown() {
        for text in ["", "\n", "a\n", "é\u{1F980}\r\n\tb", &"x".repeat(1_000)] {
            for start in 0..=text.len() + 2 {
                for end in [0, start, start + 1, start + 500, usize::MAX] {
                    let error = ConfigError::new(text, start..end, String::new());
                    assert!(error.marked.end <= SHOWN && error.shown.chars().count() <= SHOWN);
                    assert!(error.to_string().contains('^'));
                }
            }
        }
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let text = format!("{}WRONG{}", "a".repeat(500), "b".repeat(500));
        let error = ConfigError::new(&text, 500..505, "wrong".into());
        assert_eq!((error.line(), error.column(), error.message()), (1, 501, "wrong"));
        assert_eq!(error.shown, format!("{}WRONG{}", "a".repeat(60), "b".repeat(55)));
        assert_eq!(error.marked, 60..65);
    }
}
