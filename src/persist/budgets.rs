//! The text of the file of used budgets: an agent a line.
//!
//! ```json
//! {
//!   "version": 1,
//!   "calendar": 1794832205,
//!   "agents": [
//!     {"agent": "user:42", "budgets": {"llm": {"window": "day", "until": 1794873600, "used": 1200}}}
//!   ]
//! }
//! ```
//!
//! Times are seconds since 1970 UTC: what the calendar showed when the file was
//! written, and when a budget's window ends, which tells the window whatever
//! the numbers of windows are inside.

use super::json::{Mistake, Piece, id_text, only_keys, quoted, read_id};
use crate::bounds::CAPACITY_MAX;
use crate::policy::{Era, Kind, Limit};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The version this build writes, and the only one it reads.
const VERSION: &str = "1";

const SECOND: i64 = 1_000_000_000;

/// The last second that a calendar can show.
const SECONDS_MAX: i64 = i64::MAX / SECOND;

/// What was used of a window of a lane's budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedBudget {
    pub(crate) lane: String,
    pub(crate) era: Era,
    /// The number of the window.
    pub(crate) window: u64,
    pub(crate) used: u64,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsedBudgets {
    /// What the calendar showed, in nanoseconds since 1970 UTC.
    pub(crate) calendar: i64,
    /// By id.
    pub(crate) agents: HashMap<Vec<u8>, Vec<UsedBudget>>,
}

/// The lines of agents.
#[derive(Debug, Default)]
pub(crate) struct Lines(String);

impl Lines {
    pub(crate) fn push<'a>(&mut self, agent: &[u8], budgets: impl Iterator<Item = (&'a str, Era, u64, u64)>) {
        let separator = if self.0.is_empty() { "" } else { ",\n" };
        // Writing to a string does not fail.
        let _ = write!(self.0, "{separator}    {{\"agent\": {}, \"budgets\": {{", id_text(agent));
        for (number, (lane, era, window, used)) in budgets.enumerate() {
            let (separator, lane, until) =
                (if number == 0 { "" } else { ", " }, quoted(lane), era.end(window) / SECOND);
            let _ =
                write!(self.0, "{separator}{lane}: {{\"window\": \"{era}\", \"until\": {until}, \"used\": {used}}}");
        }
        self.0 += "}}";
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The file's text, by a calendar that shows this, in nanoseconds.
    pub(crate) fn file(&self, calendar: i64) -> String {
        // Rounded down: it is in the same window, since windows begin with a second.
        let calendar = calendar.max(0) / SECOND;
        let lines = &self.0;
        format!("{{\n  \"version\": {VERSION},\n  \"calendar\": {calendar},\n  \"agents\": [\n{lines}\n  ]\n}}\n")
    }
}

/// What a file's text says.
///
/// # Errors
///
/// The first mistake, with its place.
pub(crate) fn read(text: &[u8]) -> Result<UsedBudgets, Mistake> {
    let whole = Piece::whole(text)?;
    let fields = whole.versioned(VERSION)?;
    only_keys(&fields, &["version", "calendar", "agents"])?;
    let calendar = read_seconds(whole.need(&fields, "calendar")?)? * SECOND;
    let mut agents = HashMap::new();
    for entry in whole.need(&fields, "agents")?.list()? {
        let fields = entry.object()?;
        let id = read_id(entry.need(&fields, "agent")?)?;
        only_keys(&fields, &["agent", "budgets"]).map_err(|mistake| mistake.of(&id))?;
        let budgets = entry.need(&fields, "budgets").and_then(read_budgets).map_err(|mistake| mistake.of(&id))?;
        if agents.contains_key(&id) {
            return Err(entry.mistake("it is given twice; make one entry of the two").of(&id));
        }
        agents.insert(id, budgets);
    }
    Ok(UsedBudgets { calendar, agents })
}

fn read_seconds(piece: Piece<'_>) -> Result<i64, Mistake> {
    match piece.value()? {
        seconds @ 0..=SECONDS_MAX => Ok(seconds),
        other => Err(piece.mistake(format!("{other} is no time; give seconds since 1970, from 0 to {SECONDS_MAX}"))),
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
        Ok(UsedBudget { lane, era, window, used: count })
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
            "{window:?} is no window of a budget; write hour, day, week or month, as in \"day zone +01:00\""
        ))),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::Calendar;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn era(calendar: Calendar, zone_minutes: i16) -> Era {
        Era { calendar, zone_minutes }
    }

    fn written(budgets: &UsedBudgets) -> String {
        let mut lines = Lines::default();
        for (id, used) in &budgets.agents {
            push(&mut lines, id, used);
        }
        lines.file(budgets.calendar)
    }

    fn push(lines: &mut Lines, id: &[u8], used: &[UsedBudget]) {
        lines.push(id, used.iter().map(|budget| (budget.lane.as_str(), budget.era, budget.window, budget.used)));
    }

    fn any_budget() -> impl Strategy<Value = UsedBudget> {
        let calendar = prop::sample::select(vec![Calendar::Hour, Calendar::Day, Calendar::Week, Calendar::Month]);
        let zone = (-12 * 60..=14 * 60_i16).prop_map(|minutes| minutes);
        // Windows that end within the calendar's range, and after 1970.
        (any::<String>(), calendar, zone, 1..2_000_u64, 0..=CAPACITY_MAX).prop_map(
            |(lane, calendar, zone, window, used)| UsedBudget {
                lane,
                era: era(calendar, zone),
                window: window + 24,
                used,
            },
        )
    }

    fn any_budgets() -> impl Strategy<Value = UsedBudgets> {
        let id = prop::collection::vec(any::<u8>(), 1..=16);
        let budgets = prop::collection::vec(any_budget(), 0..4).prop_map(|budgets| {
            let by_lane: BTreeMap<_, _> = budgets.into_iter().map(|budget| (budget.lane.clone(), budget)).collect();
            by_lane.into_values().collect::<Vec<_>>()
        });
        (0..=SECONDS_MAX, prop::collection::hash_map(id, budgets, 0..8))
            .prop_map(|(seconds, agents)| UsedBudgets { calendar: seconds * SECOND, agents })
    }

    #[test]
    fn an_agent_is_a_line() {
        let day = UsedBudget { lane: "llm".into(), era: era(Calendar::Day, 60), window: 20_773, used: 7 };
        let hour = UsedBudget { lane: "a \"b\"".into(), era: era(Calendar::Hour, 0), window: 498_564, used: 0 };
        let mut lines = Lines::default();
        push(&mut lines, b"user:42", &[day, hour]);
        push(&mut lines, b"\xff", &[]);
        assert_eq!(
            lines.file(1_794_832_205_999_999_999),
            r#"{
  "version": 1,
  "calendar": 1794832205,
  "agents": [
    {"agent": "user:42", "budgets": {"llm": {"window": "day zone +01:00", "until": 1794870000, "used": 7}, "a \"b\"": {"window": "hour", "until": 1794834000, "used": 0}}},
    {"agent": {"base64": "/w=="}, "budgets": {}}
  ]
}
"#
        );
        assert_eq!(read(written(&UsedBudgets::default()).as_bytes()), Ok(UsedBudgets::default()));
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_its_agent() {
        let budget = |fields: &str| {
            let line = format!("{{\"agent\": \"a\", \"budgets\": {{\"llm\": {{{fields}}}}}}}");
            format!("{{\"version\": 1, \"calendar\": 0, \"agents\": [\n{line}\n]}}")
        };
        for (text, expected) in [
            (budget(r#""window": "day", "until": 86400, "used": -1"#), "2:77: a: invalid value: integer `-1`, expected u64"),
            (budget(r#""window": "day", "until": 86400, "used": 1.5"#), "2:77: a: invalid type: floating point `1.5`, expected u64"),
            (
                budget(r#""window": "day", "until": 86400, "used": 1000000000001"#),
                "2:77: a: 1000000000001 is more than can be used; at most 1000000000000",
            ),
            (
                budget(r#""window": "day", "until": 86401, "used": 1"#),
                "2:62: a: no day ends then; give the second at which the next one begins",
            ),
            (
                budget(r#""window": "day", "until": -86400, "used": 1"#),
                "2:62: a: -86400 is no time; give seconds since 1970, from 0 to 9223372036",
            ),
            (
                budget(r#""window": "fortnight", "until": 86400, "used": 1"#),
                "2:46: a: \"fortnight\" is no window of a budget; write hour, day, week or month, as in \"day zone +01:00\"",
            ),
            (budget(r#""window": "day", "used": 1"#), "2:35: a: the key \"until\" is missing"),
            (
                budget(r#""window": "day", "until": 86400, "used": 1, "left": 2"#),
                "2:88: a: unknown key \"left\"; allowed are window, until, used",
            ),
            (
                "{\"version\": 1, \"calendar\": 0, \"agents\": [{\"agent\": \"a\"}]}".into(),
                "1:42: a: the key \"budgets\" is missing",
            ),
            (
                "{\"version\": 1, \"calendar\": 0, \"agents\": [\n{\"agent\": \"a\", \"budgets\": {}},\n{\"agent\": \"a\", \"budgets\": {}}]}".into(),
                "3:1: a: it is given twice; make one entry of the two",
            ),
            ("{\"version\": 1, \"agents\": []}".into(), "1:1: the key \"calendar\" is missing"),
            ("{\"version\": 2, \"calendar\": 0}".into(), "1:13: version 2; this build reads version 1"),
            (String::new(), "1:1: the file is cut off: EOF while parsing a value"),
        ] {
            let Mistake { line, column, agent, problem } = read(text.as_bytes()).expect_err(&text);
            let agent = agent.map(|id| format!("{}: ", id.escape_ascii())).unwrap_or_default();
            assert_eq!(format!("{line}:{column}: {agent}{problem}"), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(budgets in any_budgets()) {
            prop_assert_eq!(read(written(&budgets).as_bytes()), Ok(budgets));
        }

        #[test]
        fn a_cut_file_is_never_read(budgets in any_budgets(), cut in any::<prop::sample::Index>()) {
            let text = written(&budgets);
            let whole = text.trim_end().len();
            prop_assert!(read(&text.as_bytes()[..cut.index(whole)]).is_err());
        }

        #[test]
        fn any_bytes_are_answered(text in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(read(&text).is_err());
        }
    }
}
