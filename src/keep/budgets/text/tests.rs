//! What is written is read back, and errors have a location.

use super::*;
use crate::policy::Calendar;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(in crate::keep::budgets) fn era(calendar: Calendar, zone_minutes: i16) -> Era {
    Era { calendar, zone_minutes }
}

type Agents = BTreeMap<Vec<u8>, Vec<UsedBudget>>;

fn written(is_document: bool, calendar: i64, agents: &Agents) -> String {
    let mut text = Text::new(is_document, calendar);
    for (id, used) in agents {
        push(&mut text, id, used);
    }
    text.finish()
}

fn push(text: &mut Text, id: &[u8], used: &[UsedBudget]) -> u64 {
    let lanes: Vec<_> = used.iter().map(|budget| BudgetLane::new(&budget.lane, budget.era, budget.window)).collect();
    text.push(id, lanes.iter().zip(used).map(|(lane, budget)| (lane, budget.window, budget.used)))
}

fn agents(text: &[u8]) -> Result<(i64, Agents), Mistake> {
    let (read, _) = read(text)?;
    let entries = || (0..read.len()).map(|number| read.entry(number));
    for Entry { id, offset, .. } in entries() {
        assert_eq!(id_at(&text[offset as usize..]).as_deref(), Some(id));
    }
    Ok((read.calendar, entries().map(|entry| (entry.id.to_vec(), entry.budgets.to_vec())).collect()))
}

fn any_budget() -> impl Strategy<Value = UsedBudget> {
    let calendar = prop::sample::select(vec![Calendar::Hour, Calendar::Day, Calendar::Week, Calendar::Month]);
    let zone = (-12 * 60..=14 * 60_i16).prop_map(|minutes| minutes);
    // Windows that end within the calendar's range, and after 1970.
    (any::<String>(), calendar, zone, 1..2_000_u64, 0..=CAPACITY_MAX).prop_map(
        |(lane, calendar, zone, window, used)| UsedBudget {
            lane: lane.into(),
            era: era(calendar, zone),
            window: window + 24,
            used,
        },
    )
}

fn any_agents() -> impl Strategy<Value = Agents> {
    let id = prop_oneof![prop::collection::vec(any::<u8>(), 1..=16), "[a-c]".prop_map(String::into_bytes)];
    let budgets = prop::collection::vec(any_budget(), 0..4).prop_map(|budgets| {
        let by_lane: BTreeMap<_, _> = budgets.into_iter().map(|budget| (budget.lane.clone(), budget)).collect();
        by_lane.into_values().collect::<Vec<_>>()
    });
    prop::collection::btree_map(id, budgets, 0..8)
}

#[test]
fn each_agent_has_a_line() {
    let day = UsedBudget { lane: "llm".into(), era: era(Calendar::Day, 60), window: 20_773, used: 7 };
    let hour = UsedBudget { lane: "a \"b\"".into(), era: era(Calendar::Hour, 0), window: 498_564, used: 0 };
    let write = |is_document| {
        let mut text = Text::new(is_document, 1_794_832_205_999_999_999);
        assert!(text.is_empty());
        push(&mut text, b"user:42", &[day.clone(), hour.clone()]);
        push(&mut text, b"\xff", &[]);
        text.finish()
    };
    assert_eq!(
        write(true),
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
    let line = write(false);
    let begin = "{\"calendar\": 1794832205, \"agents\": [{\"agent\": \"user:42\", \"budgets\": {\"llm\": {";
    assert!(line.starts_with(begin) && line.ends_with("\"}\n") && line.matches('\n').count() == 1, "{line}");
    assert_eq!(agents(written(true, 0, &Agents::new()).as_bytes()), Ok((0, Agents::new())));
}

#[test]
fn an_error_names_its_location_and_its_agent() {
    let budget = |fields: &str| {
        let line = format!("{{\"agent\": \"a\", \"budgets\": {{\"llm\": {{{fields}}}}}}}");
        format!("{{\"version\": 1, \"calendar\": 0, \"agents\": [\n{line}\n]}}")
    };
    for (text, expected) in [
        (
            budget(r#""window": "day", "until": 86400, "used": -1"#),
            "2:77: a: invalid value: integer `-1`, expected u64",
        ),
        (
            budget(r#""window": "day", "until": 86400, "used": 1.5"#),
            "2:77: a: invalid type: floating point `1.5`, expected u64",
        ),
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
            "2:62: a: -86400 is not a time; give seconds since 1970, from 0 to 9223372036",
        ),
        (
            budget(r#""window": "fortnight", "until": 86400, "used": 1"#),
            "2:46: a: \"fortnight\" is not a budget window; write hour, day, week or month, as in \"day zone +01:00\"",
        ),
        (budget(r#""window": "day", "used": 1"#), "2:35: a: the key \"until\" is missing"),
        (
            budget(r#""window": "day", "until": 86400, "used": 1, "left": 2"#),
            "2:88: a: unknown key \"left\"; allowed: window, until, used",
        ),
        (
            "{\"version\": 1, \"calendar\": 0, \"agents\": [{\"agent\": \"a\"}]}".into(),
            "1:42: a: the key \"budgets\" is missing",
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
    /// In a document and in changes, the last entry of an agent counts.
    #[test]
    fn what_is_written_is_read_back(
        seconds in 0..=SECONDS_MAX,
        first in any_agents(),
        turns in prop::collection::vec(any_agents(), 0..3),
    ) {
        let mut text = written(true, seconds * SECOND, &first);
        let mut expected = first;
        for turn in turns {
            text += &written(false, 0, &turn);
            expected.extend(turn);
        }
        prop_assert_eq!(agents(text.as_bytes()), Ok((seconds * SECOND, expected)));
    }

    #[test]
    fn a_cut_document_is_never_read(budgets in any_agents(), cut in any::<prop::sample::Index>()) {
        let text = written(true, 0, &budgets);
        let whole = text.trim_end().len();
        prop_assert!(read(&text.as_bytes()[..cut.index(whole)]).is_err());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read(&text).is_err());
    }
}
