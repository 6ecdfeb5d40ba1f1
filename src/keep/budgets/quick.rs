//! Reads entries of used budgets that are written exactly as this build writes
//! them, some twenty times faster than the reader that reports errors.
//! Everything else is left to that reader, and the windows that it finds are
//! remembered here: a million agents have used the same few.

use super::text::{UsedBudget, is_plain};
use crate::bounds::{CAPACITY_MAX, ID_BYTES_MAX};
use crate::policy::Era;
use std::sync::Arc;

/// How many windows and lanes are remembered; more than one file has at a time.
const KNOWN_MAX: usize = 64;

/// A window of a budget, as an entry writes it.
struct Window {
    /// `day`, say.
    name: String,
    /// The second in which it ends.
    until: u64,
    era: Era,
    number: u64,
}

/// The windows and lanes found so far.
#[derive(Default)]
pub(super) struct QuickReader {
    windows: Vec<Window>,
    lanes: Vec<Arc<str>>,
}

impl QuickReader {
    /// Remembers the windows and lanes of an entry that was read with care.
    pub(super) fn learn(&mut self, budgets: &[UsedBudget]) {
        for UsedBudget { lane, era, window, .. } in budgets {
            let is_known = self.windows.iter().any(|known| known.era == *era && known.number == *window);
            if let (false, Ok(until)) = (is_known || self.windows.len() == KNOWN_MAX, u64::try_from(era.end(*window))) {
                let until = until / 1_000_000_000;
                self.windows.push(Window { name: era.to_string(), until, era: *era, number: *window });
            }
            if self.lanes.len() < KNOWN_MAX && !self.lanes.contains(lane) {
                self.lanes.push(Arc::clone(lane));
            }
        }
    }

    /// The agent of the entry at the start of a text, and how long the entry
    /// is; what the agent has used is added to `used`. `None`, with nothing
    /// added, if the entry is not written as this build writes it, has an
    /// unknown window or lane, or has a mistake.
    pub(super) fn read<'a>(&self, text: &'a str, used: &mut Vec<UsedBudget>) -> Option<(&'a [u8], usize)> {
        let before = used.len();
        let read = self.read_on(text, before, used);
        if read.is_none() {
            used.truncate(before);
        }
        read
    }

    fn read_on<'a>(&self, text: &'a str, before: usize, used: &mut Vec<UsedBudget>) -> Option<(&'a [u8], usize)> {
        let mut rest = Rest(text.as_bytes());
        rest.skip(b"{\"agent\": ")?;
        let id = rest.string().filter(|id| (1..=ID_BYTES_MAX).contains(&id.len()))?;
        rest.skip(b", \"budgets\": {")?;
        // Ends with the text at the latest: each round consumes some of it.
        while rest.skip(b"}}").is_none() {
            if used.len() > before {
                rest.skip(b", ")?;
            }
            let budget = self.budget(&mut rest)?;
            if used[before..].iter().any(|before| before.lane == budget.lane) {
                return None;
            }
            used.push(budget);
        }
        Some((id, text.len() - rest.0.len()))
    }

    fn budget(&self, rest: &mut Rest<'_>) -> Option<UsedBudget> {
        let lane = rest.string()?;
        rest.skip(b": {\"window\": ")?;
        let name = rest.string()?;
        rest.skip(b", \"until\": ")?;
        let until = rest.number()?;
        rest.skip(b", \"used\": ")?;
        let used = rest.number().filter(|used| *used <= CAPACITY_MAX)?;
        rest.skip(b"}")?;
        let window = self.windows.iter().find(|known| known.until == until && known.name.as_bytes() == name)?;
        let lane = Arc::clone(self.lanes.iter().find(|known| known.as_bytes() == lane)?);
        Some(UsedBudget { lane, era: window.era, window: window.number, used })
    }
}

/// What is left of an entry.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.skip(b"\"")?;
        let end = self.0.iter().position(|byte| !is_plain(*byte))?;
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        self.skip(b"\"")?;
        Some(text)
    }

    /// A whole number of at most 18 digits.
    fn number(&mut self) -> Option<u64> {
        let digits = self.0.iter().take(18).take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.0.split_at(digits);
        let has_zero = matches!(number, [b'0', _, ..]);
        self.0 = rest;
        let number = number.iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0'));
        (digits > 0 && !has_zero).then_some(number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::text::read_entry;
    use super::super::text::tests::era;
    use super::*;
    use crate::keep::json::Piece;
    use crate::policy::Calendar;
    use proptest::prelude::*;

    const ENTRY: &str = "{\"agent\": \"user:42\", \"budgets\": {\"llm\": {\"window\": \"day\", \"until\": 1794873600, \"used\": 1200}, \
                         \"images\": {\"window\": \"month\", \"until\": 1796083200, \"used\": 0}}}";

    type Read = (Vec<u8>, Vec<UsedBudget>);

    /// The other reader sorts by lane, and is given nothing more.
    fn whole(known: &QuickReader, text: &str) -> Option<Read> {
        let (id, mut budgets, length) = read(known, text)?;
        assert!(length <= text.len());
        budgets.sort_by(|a, b| a.lane.cmp(&b.lane));
        (length == text.len()).then_some((id, budgets))
    }

    /// Behind what was read before, which stays as it is.
    fn read(known: &QuickReader, text: &str) -> Option<(Vec<u8>, Vec<UsedBudget>, usize)> {
        let first = UsedBudget { lane: "llm".into(), era: era(Calendar::Day, 0), window: 1, used: 1 };
        let mut used = vec![first.clone()];
        let read = known.read(text, &mut used);
        assert_eq!(used.remove(0), first);
        assert!(read.is_some() || used.is_empty());
        read.map(|(id, length)| (id.to_vec(), used, length))
    }

    fn known() -> QuickReader {
        let mut known = QuickReader::default();
        assert_eq!(read(&known, ENTRY), None, "no window is known yet");
        known.learn(&read_entry(Piece::whole(ENTRY.as_bytes()).0).unwrap().1);
        known
    }

    #[test]
    fn an_entry_as_this_build_writes_it_is_read_directly() {
        let known = known();
        assert_eq!(whole(&known, ENTRY), read_entry(Piece::whole(ENTRY.as_bytes()).0).ok());
        assert_eq!(read(&known, "{\"agent\": \"a\", \"budgets\": {}},"), Some((b"a".to_vec(), vec![], 29)));
        for other in [
            ENTRY.replace("1200", "01200"),
            ENTRY.replace("1200", "1000000000001"),
            ENTRY.replace("images", "llm"),
            ENTRY.replace("1794873600", "1794873601"),
            ENTRY.replace("user:42", ""),
            ENTRY.replace("user:42", &"x".repeat(257)),
            ENTRY.replace("user:42", "\\u0061"),
            ENTRY.replace("day", "hour"),
            ENTRY.replace(", ", ","),
        ] {
            assert_eq!(read(&known, &other), None, "{other}");
        }
    }

    proptest! {
        /// However an entry is changed, it is left to the other reader, or read with the same result.
        #[test]
        fn both_readers_agree_on_every_entry(
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, prop::sample::select(b"{}\", :01a\\9".to_vec())), 1..4),
        ) {
            let mut entry = ENTRY.as_bytes().to_vec();
            for (at, how, byte) in edits {
                let at = at.index(entry.len());
                match how {
                    0 => entry[at] = byte,
                    1 => entry.insert(at, byte),
                    _ => drop(entry.remove(at)),
                }
            }
            let entry = String::from_utf8(entry).unwrap();
            if let Some(read) = whole(&known(), &entry) {
                prop_assert_eq!(Ok(read), read_entry(Piece::whole(entry.as_bytes()).0));
            }
        }
    }
}
