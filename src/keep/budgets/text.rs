//! The text of the file of used budgets: one agent per line.
//!
//! ```json
//! {
//!   "version": 1,
//!   "calendar": 1794832205,
//!   "agents": [
//!     {"agent": "user:42", "budgets": {"llm": {"window": "day", "until": 1794873600, "used": 1200}}}
//!   ]
//! }
//! {"calendar": 1794832210, "agents": [{"agent": "user:42", "budgets": {}}], "sum": "5d41402a"}
//! ```
//!
//! Times are seconds since 1970 UTC: what the calendar showed when this was
//! written, and when a budget's window ends. The end identifies the window,
//! however windows are numbered internally.
//!
//! Below the document is what has changed since, one line per save. The last entry of an agent counts, even within one
//! part of the file, because an agent may move between records during a save: an entry is all that the agent has used.
//!
//! `quick.rs` reads entries as this build writes them, quickly.

use super::quick::QuickReader;
use crate::bounds::CAPACITY_MAX;
use crate::keep::changes::{self, Extent, Split, split};
use crate::keep::json::{Fields, Mistake, Piece, id_text, only_keys, quoted, read_id};
use crate::policy::{Era, Kind, Limit};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;

/// The version this build writes, and the only one it reads.
const VERSION: &str = "1";

const SECOND: i64 = 1_000_000_000;

/// The last second that a calendar can show.
const SECONDS_MAX: i64 = i64::MAX / SECOND;

/// How much of one window of a lane's budget was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedBudget {
    pub(crate) lane: Arc<str>,
    pub(crate) era: Era,
    /// The number of the window.
    pub(crate) window: u64,
    pub(crate) used: u64,
}

/// The contents of a file.
///
/// Ids are stored back to back in one allocation, and budgets in another: a
/// million agents do not take two million allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsedBudgets {
    /// What the calendar showed, in nanoseconds since 1970 UTC.
    pub(crate) calendar: i64,
    ends: Vec<Ends>,
    ids: Vec<u8>,
    budgets: Vec<UsedBudget>,
}

/// Where the id and the budgets of an entry end, and those of the next begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    id: usize,
    budgets: usize,
    offset: u64,
}

/// One agent's entry in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) id: &'a [u8],
    /// Its offset in the file, where [`id_at`] reads the id.
    pub(crate) offset: u64,
    pub(crate) budgets: &'a [UsedBudget],
}

impl UsedBudgets {
    /// How many entries there are. If an agent has several, the last counts.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// An entry, in the order of the file. Panics if there is none, as an index does.
    pub(crate) fn entry(&self, number: usize) -> Entry<'_> {
        let start = number.checked_sub(1).map_or(Ends::default(), |before| self.ends[before]);
        let Ends { id, budgets, offset } = self.ends[number];
        Entry { id: &self.ids[start.id..id], offset, budgets: &self.budgets[start.budgets..budgets] }
    }

    /// Ends an entry whose budgets have been added.
    fn end(&mut self, id: &[u8], offset: u64) {
        self.ids.extend_from_slice(id);
        self.ends.push(Ends { id: self.ids.len(), budgets: self.budgets.len(), offset });
    }
}

/// A lane with a budget, as the text shows it.
pub(crate) struct BudgetLane {
    era: Era,
    /// What comes before the end of the window.
    begin: String,
    /// A window and the second in which it ends, cached: most agents have used the same one.
    window: (u64, i64),
}

impl BudgetLane {
    /// `window` is the present one.
    pub(crate) fn new(name: &str, era: Era, window: u64) -> Self {
        let begin = format!("{}: {{\"window\": \"{era}\", \"until\": ", quoted(name));
        Self { era, begin, window: (window, era.end(window) / SECOND) }
    }

    fn until(&self, window: u64) -> i64 {
        if window == self.window.0 { self.window.1 } else { self.era.end(window) / SECOND }
    }
}

/// A text being built: a document, or what has changed.
pub(crate) struct Text {
    text: String,
    is_document: bool,
    is_empty: bool,
}

impl Text {
    /// With this calendar time, in nanoseconds.
    pub(crate) fn new(is_document: bool, calendar: i64) -> Self {
        // Rounded down. That is in the same window, because windows begin on a second.
        let calendar = calendar.max(0) / SECOND;
        let text = if is_document {
            format!("{{\n  \"version\": {VERSION},\n  \"calendar\": {calendar},\n  \"agents\": [\n")
        } else {
            format!("{{\"calendar\": {calendar}, \"agents\": [")
        };
        Self { text, is_document, is_empty: true }
    }

    /// Whether it has no entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Adds all that an agent has used, by lane and window. Returns the entry's offset in the text.
    pub(crate) fn push<'a>(&mut self, agent: &[u8], budgets: impl Iterator<Item = (&'a BudgetLane, u64, u64)>) -> u64 {
        let text = &mut self.text;
        *text += match (self.is_document, self.is_empty) {
            (true, true) => "    ",
            (true, false) => ",\n    ",
            (false, true) => "",
            (false, false) => ", ",
        };
        self.is_empty = false;
        let offset = text.len() as u64;
        *text += "{\"agent\": ";
        push_id(text, agent);
        *text += ", \"budgets\": {";
        for (number, (lane, window, used)) in budgets.enumerate() {
            *text += if number == 0 { "" } else { ", " };
            *text += &lane.begin;
            // Writing to a string does not fail.
            let _ = write!(text, "{}, \"used\": {used}}}", lane.until(window));
        }
        *text += "}}";
        offset
    }

    pub(crate) fn finish(mut self) -> String {
        if self.is_document {
            self.text += "\n  ]\n}\n";
        } else {
            self.text += "]";
            changes::seal(&mut self.text);
        }
        self.text
    }
}

/// Most ids need no escapes.
fn push_id(text: &mut String, id: &[u8]) {
    match std::str::from_utf8(id) {
        Ok(plain) if id.iter().all(|byte| is_plain(*byte)) => {
            text.push('"');
            *text += plain;
            text.push('"');
        }
        _ => *text += &id_text(id),
    }
}

/// Whether a byte of a JSON string stands for itself.
pub(super) fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

/// The id at an entry's [offset](Entry::offset); `None` if there is none.
pub(crate) fn id_at(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_prefix(b"{\"agent\": ")?;
    // The text may end in the middle of what follows the id.
    let text = std::str::from_utf8(text).or_else(|error| std::str::from_utf8(&text[..error.valid_up_to()])).ok()?;
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&serde_json::value::RawValue>();
    let id = values.next()?.ok()?.get();
    read_id(Piece::whole(id.as_bytes()).0).ok()
}

/// Reads a file's text.
///
/// # Errors
///
/// The first mistake, with its location.
pub(crate) fn read(text: &[u8]) -> Result<(UsedBudgets, Extent), Mistake> {
    let Split { document, fields, changes, extent } = split(text)?;
    document.has_version(&fields, VERSION)?;
    only_keys(&fields, &["version", "calendar", "agents"])?;
    let (mut used, mut known) = (UsedBudgets::default(), QuickReader::default());
    used.read(document, &fields, &mut known)?;
    for (line, fields) in changes {
        only_keys(&fields, &["calendar", "agents"])?;
        used.read(line, &fields, &mut known)?;
    }
    Ok((used, extent))
}

impl UsedBudgets {
    /// Reads a part of the file.
    fn read(&mut self, part: Piece<'_>, fields: &Fields<'_>, known: &mut QuickReader) -> Result<(), Mistake> {
        self.calendar = self.calendar.max(read_seconds(part.need(fields, "calendar")?)? * SECOND);
        let both = RefCell::new((self, known));
        let quick = |piece: Piece<'_>| {
            let (used, known) = &mut *both.borrow_mut();
            let (id, length) = known.read(piece.text(), &mut used.budgets)?;
            used.end(id, piece.before().len() as u64);
            Some(length)
        };
        let careful = |piece: Piece<'_>| {
            let (used, known) = &mut *both.borrow_mut();
            let (id, mut budgets) = read_entry(piece)?;
            known.learn(&budgets);
            used.budgets.append(&mut budgets);
            used.end(&id, piece.before().len() as u64);
            Ok(())
        };
        part.need(fields, "agents")?.each(quick, careful)
    }
}

pub(super) fn read_entry(entry: Piece<'_>) -> Result<(Vec<u8>, Vec<UsedBudget>), Mistake> {
    let fields = entry.object()?;
    let id = read_id(entry.need(&fields, "agent")?)?;
    only_keys(&fields, &["agent", "budgets"]).map_err(|mistake| mistake.of(&id))?;
    let budgets = entry.need(&fields, "budgets").and_then(read_budgets).map_err(|mistake| mistake.of(&id))?;
    Ok((id, budgets))
}

fn read_seconds(piece: Piece<'_>) -> Result<i64, Mistake> {
    match piece.value()? {
        seconds @ 0..=SECONDS_MAX => Ok(seconds),
        other => Err(piece.mistake(format!("{other} is not a time; give seconds since 1970, from 0 to {SECONDS_MAX}"))),
    }
}

fn read_budgets(piece: Piece<'_>) -> Result<Vec<UsedBudget>, Mistake> {
    let read = |(lane, piece): (String, Piece<'_>)| {
        let fields = piece.object()?;
        only_keys(&fields, &["window", "until", "used"])?;
        let era = read_era(piece.need(&fields, "window")?)?;
        let until = piece.need(&fields, "until")?;
        let end = read_seconds(until)? * SECOND;
        let window = era.index(end.saturating_sub(1));
        if era.end(window) != end {
            return Err(until.mistake(format!("no {era} ends then; give the second at which the next one begins")));
        }
        let used = piece.need(&fields, "used")?;
        let count: u64 = used.value()?;
        if count > CAPACITY_MAX {
            return Err(used.mistake(format!("{count} is more than can be used; at most {CAPACITY_MAX}")));
        }
        Ok(UsedBudget { lane: lane.into(), era, window, used: count })
    };
    piece.object()?.into_iter().map(read).collect()
}

/// The calendar and zone of a window, as in the text of a limit.
fn read_era(piece: Piece<'_>) -> Result<Era, Mistake> {
    let window: String = piece.value()?;
    let limit = format!("budget 1/{window}").parse::<Limit>();
    match limit.map(|limit| limit.lane_kind()) {
        Ok(Some(Kind::Budget(era))) => Ok(era),
        _ => Err(piece.mistake(format!(
            "{window:?} is not a budget window; write hour, day, week or month, as in \"day zone +01:00\""
        ))),
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests;
