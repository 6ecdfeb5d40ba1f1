//! The text of a kept file: a document, and below it what has changed since, one line per change.
//!
//! ```json
//! {
//!   "version": 1,
//!   "agents": [
//!     {"agent": "agent-7", "plan": "pro"},
//!     {"agent": "agent-8", "plan": "pro"}
//!   ]
//! }
//! {"agents": [{"agent": "agent-7", "plan": "free"}], "sum": "5d41402a"}
//! {"agents": [{"agent": "agent-8"}], "sum": "0c3a9b7f"}
//! ```
//!
//! A document is replaced in one step, so it is complete or absent. A change is
//! appended with one write, and on disk before the next begins. So only the
//! last line can be torn: cut short, or with zeros where a block never reached
//! the disk. Such a line was never reported as saved, and is ignored. Anything
//! wrong elsewhere is an error with a location.
//!
//! `sum` is the CRC-32 of the line before it. It detects a line that was
//! edited, or damaged on disk. A line without it was written by hand, and is
//! read as it is.

use super::json::{Fields, Mistake, Piece};
use std::fmt::Write as _;

/// How the sum of a line begins, and where it ends.
const SUM: &str = ", \"sum\": \"";
const END: &str = "\"}\n";
const SUM_DIGITS: usize = 8;

/// What a file's text consists of.
pub(crate) struct Split<'a> {
    pub(crate) document: Piece<'a>,
    /// The document's fields.
    pub(crate) fields: Fields<'a>,
    /// The fields of each change, oldest first.
    pub(crate) changes: Vec<(Piece<'a>, Fields<'a>)>,
    pub(crate) extent: Extent,
}

/// How a file is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the document.
    pub(crate) document: u64,
    /// Whether a torn line follows the last valid change.
    pub(crate) is_torn: bool,
}

/// A change as a line, from the fields between its braces.
pub(crate) fn line(fields: &str) -> String {
    let mut line = format!("{{{fields}");
    seal(&mut line);
    line
}

/// Ends a line that has all its fields.
pub(crate) fn seal(line: &mut String) {
    let sum = crc32fast::hash(line.as_bytes());
    // Writing to a string does not fail.
    let _ = write!(line, "{SUM}{sum:0SUM_DIGITS$x}{END}");
}

/// Splits a file's text.
///
/// # Errors
///
/// The first mistake, with its location.
pub(crate) fn split(text: &[u8]) -> Result<Split<'_>, Mistake> {
    let (whole, invalid) = Piece::whole(text);
    let (document, fields) = match (whole.first_object(), invalid) {
        (Ok(_), Some(mistake)) if !is_torn(&text[whole.text().len()..]) => return Err(mistake),
        (Err(_), Some(mistake)) => return Err(mistake),
        (object, _) => object?,
    };
    let mut changes = Vec::new();
    let mut extent = Extent { document: document.text().len() as u64, is_torn: whole.text().len() < text.len() };
    for line in whole.lines_after(document).filter(|line| !line.text().trim_ascii().is_empty()) {
        match change(line) {
            Ok(fields) => changes.push((line, fields)),
            Err(_) if is_torn(&text[line.before().len()..]) => extent.is_torn = true,
            Err(mistake) => return Err(mistake),
        }
        // Without a line break, the next change would not begin on a new line.
        extent.is_torn |= !line.text().ends_with('\n');
    }
    Ok(Split { document, fields, changes, extent })
}

/// Whether the text is one line that begins as changes do, and that no edit by hand would leave.
fn is_torn(line: &[u8]) -> bool {
    let end = line.iter().position(|byte| *byte == b'\n');
    let is_cut = end.is_none() || (end == Some(line.len() - 1) && line.contains(&0));
    is_cut && matches!(line, [b'{' | 0, ..])
}

fn change(line: Piece<'_>) -> Result<Fields<'_>, Mistake> {
    let text = line.text();
    if let Some((begin, sum)) =
        text.strip_suffix(END).and_then(|text| text.split_at_checked(text.len().checked_sub(SUM_DIGITS)?))
    {
        if let Some(begin) = begin.strip_suffix(SUM) {
            if u32::from_str_radix(sum, 16) != Ok(crc32fast::hash(begin.as_bytes())) {
                return Err(
                    line.mistake("the line was changed after it was written; if you edited it, remove its \"sum\"")
                );
            }
        }
    }
    let mut fields = line.object()?;
    fields.remove("sum");
    Ok(fields)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DOCUMENT: &str = "{\n  \"version\": 1\n}\n";

    fn numbers(text: &[u8]) -> Result<(Vec<u64>, bool), String> {
        let described = |mistake: Mistake| format!("{}:{}: {}", mistake.line, mistake.column, mistake.problem);
        let Split { changes, extent, .. } = split(text).map_err(described)?;
        let number = |(line, fields): &(Piece<'_>, Fields<'_>)| line.need(fields, "n").and_then(Piece::value::<u64>);
        Ok((changes.iter().map(number).collect::<Result<_, _>>().map_err(described)?, extent.is_torn))
    }

    fn file(changes: u64) -> String {
        (0..changes).fold(DOCUMENT.to_owned(), |file, n| file + &line(&format!("\"n\": {n}, \"é\": \"日本\"")))
    }

    #[test]
    fn a_line_carries_its_crc_32() {
        // As gzip computes it: `printf '{"n": 1' | gzip | tail -c8 | od -An -tx4 -N4`.
        assert_eq!(line("\"n\": 1"), "{\"n\": 1, \"sum\": \"f8f815d5\"}\n");
        assert_eq!(numbers(file(3).as_bytes()), Ok((vec![0, 1, 2], false)));
        assert_eq!(split(file(3).as_bytes()).map(|split| split.extent.document).ok(), Some(DOCUMENT.len() as u64 - 1));
    }

    #[test]
    fn a_line_written_by_hand_needs_no_sum() {
        let by_hand = |line: &str| numbers((file(1) + line).as_bytes());
        assert_eq!(by_hand("{\"n\": 7}\n"), Ok((vec![0, 7], false)));
        assert_eq!(by_hand("\n  {\"n\":7 }  \r\n\n"), Ok((vec![0, 7], false)));
        assert_eq!(by_hand("{\"n\": 7}"), Ok((vec![0, 7], true)), "the next begins on a new line");
        assert!(by_hand("{\"n\": 7\n").is_err(), "no killed writer leaves this");
    }

    #[test]
    fn an_edited_line_is_a_mistake_wherever_it_is() {
        let edited = "the line was changed after it was written; if you edited it, remove its \"sum\"";
        for at in 0..3 {
            let text = file(3).replace(&format!("\"n\": {at}"), "\"n\": 9");
            assert_eq!(numbers(text.as_bytes()), Err(format!("{}:1: {edited}", 4 + at)));
        }
    }

    proptest! {
        /// Wherever the last write was cut short, what was saved before is read.
        #[test]
        fn a_torn_change_is_ignored(changes in 1..5_u64, cut in any::<prop::sample::Index>()) {
            let (before, text) = (file(changes - 1), file(changes));
            let cut = before.len() + cut.index(text.len() - before.len());
            let expected = (0..changes - 1).collect::<Vec<_>>();
            let (read, is_torn) = numbers(&text.as_bytes()[..cut]).unwrap();
            // Only the line break is missing: the line may count, or not.
            prop_assert!(read == expected || (cut == text.len() - 1 && read.len() as u64 == changes), "{:?}", read);
            prop_assert_eq!(is_torn, cut > before.len());
        }

        /// However many blocks of the last write never reached the disk.
        #[test]
        fn a_change_with_holes_is_ignored(
            changes in 1..5_u64,
            holes in prop::collection::vec((any::<prop::sample::Index>(), 1..9_usize), 1..4),
        ) {
            let (before, text) = (file(changes - 1).len(), file(changes));
            let mut bytes = text.into_bytes();
            for (at, length) in holes {
                let from = before + at.index(bytes.len() - before);
                let to = (from + length).min(bytes.len());
                bytes[from..to].fill(0);
            }
            prop_assert_eq!(numbers(&bytes), Ok(((0..changes - 1).collect(), true)));
        }

        /// A flipped bit is an error, or the change is ignored, or the document reads differently.
        #[test]
        fn a_damaged_change_is_never_read(changes in 1..5_u64, at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut bytes = file(changes).into_bytes();
            let at = DOCUMENT.len() + at.index(bytes.len() - DOCUMENT.len());
            bytes[at] ^= 1 << bit;
            if let Ok((read, _)) = numbers(&bytes) {
                prop_assert!(read.iter().copied().eq(0..read.len() as u64), "{:?}", read);
            }
        }
    }
}
