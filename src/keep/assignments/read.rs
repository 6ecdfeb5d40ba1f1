//! Reads the file of assignments piece by piece, so that an error names its location and its agent.

use super::write::VERSION;
use crate::engine::{Assignment, Assignments};
use crate::keep::changes::{Extent, Split, split};
use crate::keep::json::{Fields, Mistake, Piece, only_keys, read_id};
use std::collections::BTreeMap;

/// The agents in a file's text, sorted by id.
///
/// # Errors
///
/// The first mistake, with its location.
pub(super) fn read(text: &[u8]) -> Result<(Assignments, Extent), Mistake> {
    let Split { document, fields, changes, extent } = split(text)?;
    document.has_version(&fields, VERSION)?;
    only_keys(&fields, &["version", "agents"])?;
    let mut agents = read_agents(document, &fields)?;
    for (line, fields) in changes {
        only_keys(&fields, &["agents"])?;
        agents.extend(read_agents(line, &fields)?);
    }
    Ok((agents.into_iter().filter(|(_, assignment)| !assignment.is_empty()).collect(), extent))
}

fn read_agents(piece: Piece<'_>, fields: &Fields<'_>) -> Result<BTreeMap<Vec<u8>, Assignment>, Mistake> {
    let mut agents = BTreeMap::new();
    for entry in piece.need(fields, "agents")?.list()? {
        let (id, assignment) = read_agent(entry)?;
        if agents.contains_key(&id) {
            return Err(entry.mistake("it is given twice; make one entry of the two").of(&id));
        }
        agents.insert(id, assignment);
    }
    Ok(agents)
}

fn read_agent(entry: Piece<'_>) -> Result<(Vec<u8>, Assignment), Mistake> {
    let fields = entry.object()?;
    let id = read_id(entry.need(&fields, "agent")?)?;
    match read_assignment(&fields) {
        Ok(assignment) => Ok((id, assignment)),
        Err(mistake) => Err(mistake.of(&id)),
    }
}

fn read_assignment(fields: &Fields<'_>) -> Result<Assignment, Mistake> {
    only_keys(fields, &["agent", "plan", "overrides", "exempt"])?;
    let mut assignment = Assignment::default();
    if let Some(plan) = fields.get("plan") {
        assignment.set_plan(Some(plan.value()?));
    }
    if let Some(overrides) = fields.get("overrides") {
        for (lane, limit) in overrides.object()? {
            let parsed = limit.value::<String>()?.parse();
            let parsed = parsed.map_err(|problem| limit.mistake(format!("override {lane:?}: {problem}")))?;
            assignment.set_override(lane, parsed);
        }
    }
    if let Some(exempt) = fields.get("exempt") {
        assignment.set_exempt(exempt.value()?);
    }
    Ok(assignment)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::inputs::{any_assignments, assignment};
    use super::super::write::{change, write};
    use super::super::{Assignment, Assignments};
    use super::{Mistake, read as read_with_extent};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use proptest::prelude::*;
    use serde_json::Value;
    use std::collections::BTreeMap;

    fn read(text: &[u8]) -> Result<Assignments, Mistake> {
        read_with_extent(text).map(|(agents, _)| agents)
    }

    /// The place, the agent and the problem of the only mistake in `text`.
    fn problem_of(text: &str) -> String {
        let Mistake { line, column, agent, problem } = read(text.as_bytes()).expect_err(text);
        let agent = agent.map(|id| format!("{}: ", id.escape_ascii())).unwrap_or_default();
        format!("{line}:{column}: {agent}{problem}")
    }

    /// A file whose third line is this.
    fn file(third_line: &str) -> String {
        format!("{{\"version\": 1, \"agents\": [\n  {{\"agent\": \"first\", \"plan\": \"pro\"}},\n{third_line}\n]}}\n")
    }

    #[test]
    fn what_people_write_is_read() {
        let first = (b"first".to_vec(), assignment(Some("pro"), &[], false));
        for (line, expected) in [
            (r#"{"agent": "a"}"#, None),
            (r#"{"agent": "a", "overrides": {}, "exempt": false}"#, None),
            (r#"  {"exempt":true,"agent":"a"}"#, Some(assignment(None, &[], true))),
            (r#"{"agent": {"base64": "YQ=="}, "plan": "pro"}"#, Some(assignment(Some("pro"), &[], false))),
            (
                "{\"agent\": \"\\u0061\",\r\n\t\"overrides\": {\n\"x\": \" 1_000 / s \"\n}}",
                Some(assignment(None, &[("x", "1000/s")], false)),
            ),
        ] {
            let expected: Vec<_> = expected.map(|assignment| (b"a".to_vec(), assignment)).into_iter().collect();
            assert_eq!(read(file(line).as_bytes()), Ok([expected, vec![first.clone()]].concat()), "{line}");
        }
        assert_eq!(read(br#"{"agents":[],"version":1}"#), Ok(vec![]));
    }

    #[test]
    fn an_error_names_its_location_and_its_agent() {
        for (line, expected) in [
            (r#"{"agent": "a", "plan": 7}"#, "3:24: a: invalid type: integer `7`, expected a string"),
            (r#"{"agent": "a", "plan": null}"#, "3:24: a: invalid type: null, expected a string"),
            (r#"{"agent": "a", "exempt": "yes"}"#, "3:26: a: invalid type: string \"yes\", expected a boolean"),
            (r#"{"agent": "a", "overrides": []}"#, "3:29: a: invalid type: sequence, expected an object"),
            (
                r#"{"exempt": true, "plans": "pro", "agent": "a"}"#,
                "3:27: a: unknown key \"plans\"; allowed: agent, plan, overrides, exempt",
            ),
            (
                r#"{"agent": "a", "overrides": {"ws/heavy": "10/fortnight"}}"#,
                "3:42: a: override \"ws/heavy\": \"10/fortnight\" is not a limit; write \"10/second burst 20\", \"60/min\", \"5 per 5 minutes\" or \"deny\", or of another kind \"window 100/min\", \"exact 5/5min\", \"budget 10000/day\", \"held 3\" or \"dynamic\"",
            ),
            (
                "{\"agent\": \"a\",\n\"overrides\": {\n  \"x\": \"0/s\"}}",
                "5:8: a: override \"x\": a rate or burst of 0; give at least 1, or \"deny\" to let nothing through",
            ),
            (
                r#"{"agent": "a", "overrides": {"x": "1/s", "x": "2/s"}}"#,
                "3:47: a: the key \"x\" is given twice; keep one",
            ),
            (r#"{"agent": "a", "overrides": {"x": 5}}"#, "3:35: a: invalid type: integer `5`, expected a string"),
            (r#"{"agent": "a", "plan": "b", "plan": "c"}"#, "3:37: the key \"plan\" is given twice; keep one"),
            (r#"{"agent": "first"}"#, "3:1: first: it is given twice; make one entry of the two"),
            (r#"{"agent": {"base64": "Zmlyc3Q="}}"#, "3:1: first: it is given twice; make one entry of the two"),
            (r#"{"agent": ""}"#, "3:11: an id of 0 bytes; allowed: 1 to 256"),
            (&format!(r#"{{"agent": "{}"}}"#, "x".repeat(257)), "3:11: an id of 257 bytes; allowed: 1 to 256"),
            (r#"{"agent": 7}"#, "3:11: invalid type: integer `7`, expected a string"),
            (r#"{"agent": {"base64": "Zg"}}"#, "3:22: an id that is not base64; write it as in \"/w==\""),
            (r#"{"agent": {"base64": "Zh=="}}"#, "3:22: an id that is not base64; write it as in \"/w==\""),
            (r#"{"agent": {"hex": "66"}}"#, "3:19: unknown key \"hex\"; allowed: base64"),
            (r#"{"agent": {}}"#, "3:11: the key \"base64\" is missing"),
            (r#"{"plan": "pro"}"#, "3:1: the key \"agent\" is missing"),
            (r#"["a", "pro"]"#, "3:1: invalid type: sequence, expected an object"),
            (r#"{"agent": "a"},"#, "4:1: expected value"),
            (r#"{"agent": "a"} {"agent": "b"}"#, "3:16: expected `,` or `]`"),
            (r#"{"agent": "a" "plan": "b"}"#, "3:15: expected `,` or `}`"),
            (r#"{"agent": "a", plan: "b"}"#, "3:16: key must be a string"),
            (r#"{"agent": "\ud800"}"#, "3:18: unexpected end of hex escape"),
        ] {
            assert_eq!(problem_of(&file(line)), expected, "{line}");
        }
    }

    #[test]
    fn an_error_outside_the_agents_names_its_location() {
        for (text, expected) in [
            ("", "1:1: the file is cut off: EOF while parsing a value"),
            ("{\n \"version\": 1,\n \"agents\": [", "3:12: the file is cut off: EOF while parsing a list"),
            ("\0\0\0\0", "1:1: expected value"),
            ("[]", "1:1: invalid type: sequence, expected an object"),
            ("{}", "1:1: the key \"version\" is missing"),
            ("{\"agents\": []}", "1:1: the key \"version\" is missing"),
            ("{\"version\": 1}", "1:1: the key \"agents\" is missing"),
            ("{\"version\": 1, \"agents\": {}}", "1:26: invalid type: map, expected a sequence"),
            ("{\"tenants\": 2, \"version\":\n2}", "2:1: version 2; this build reads version 1"),
            ("{\"version\": \"1\", \"agents\": []}", "1:13: version \"1\"; this build reads version 1"),
            (
                "{\"version\": 1, \"agents\": [], \"comment\": \"x\"}",
                "1:41: unknown key \"comment\"; allowed: version, agents",
            ),
            ("{\"version\": 1, \"agents\": [], \"agents\": []}", "1:40: the key \"agents\" is given twice; keep one"),
            ("{\"version\": 1, \"agents\": []}\n{}", "2:1: the key \"agents\" is missing"),
            ("{\"version\": 1, \"agents\": []}\n[]\n", "2:1: invalid type: sequence, expected an object"),
            (
                "{\"version\": 1, \"agents\": []}\n{\"agents\": [{\"agent\": \"a\"}, {\"agent\": \"a\"}]}\n",
                "2:29: a: it is given twice; make one entry of the two",
            ),
        ] {
            assert_eq!(problem_of(text), expected, "{text:?}");
        }
        let mistake = read(b"{\"version\": 1,\n\"agents\": [{\"agent\": \"\xff\"}]}").unwrap_err();
        assert_eq!((mistake.line, mistake.column), (2, 23));
        assert!(mistake.problem.starts_with("not UTF-8"), "{mistake:?}");
    }

    #[test]
    fn nesting_does_not_exhaust_the_stack() {
        let deep = "[".repeat(1_000_000);
        assert!(read(deep.as_bytes()).is_err());
        assert!(read(file(&format!("{{\"agent\": {deep}}}")).as_bytes()).is_err());
    }

    fn written(agents: &[(Vec<u8>, Assignment)]) -> String {
        write(agents.iter().map(|(id, assignment)| (id.as_slice(), assignment))).unwrap()
    }

    /// What a file contains, read without any of the code above.
    fn meaning(text: &[u8]) -> Assignments {
        let mut agents = BTreeMap::new();
        let mut parts =
            serde_json::Deserializer::from_slice(text).into_iter::<Value>().map_while(Result::ok).peekable();
        assert_eq!(parts.peek().unwrap()["version"], 1);
        let entries = parts.flat_map(|part| part["agents"].as_array().unwrap().clone());
        for entry in entries {
            let id = match &entry["agent"] {
                Value::String(id) => id.clone().into_bytes(),
                other => BASE64.decode(other["base64"].as_str().unwrap()).unwrap(),
            };
            let mut assignment = Assignment::default();
            assignment.set_plan(entry.get("plan").map(|plan| plan.as_str().unwrap().to_owned()));
            for (lane, limit) in entry.get("overrides").map(|all| all.as_object().unwrap()).into_iter().flatten() {
                assignment.set_override(lane, limit.as_str().unwrap().parse().unwrap());
            }
            assignment.set_exempt(entry.get("exempt").is_some_and(|exempt| exempt.as_bool().unwrap()));
            agents.insert(id, assignment);
        }
        agents.into_iter().filter(|(_, assignment)| !assignment.is_empty()).collect()
    }

    /// How a file may be damaged by an edit or a disk.
    #[derive(Clone, Debug)]
    enum Damage {
        Set(prop::sample::Index, u8),
        Insert(prop::sample::Index, u8),
        Remove(prop::sample::Index, prop::sample::Index),
        Repeat(prop::sample::Index, prop::sample::Index),
    }

    fn damage() -> impl Strategy<Value = Damage> {
        let place = any::<prop::sample::Index>;
        let byte = || prop_oneof![prop::sample::select(b"{}[]\",:\\ \n01etn".to_vec()), any::<u8>()];
        prop_oneof![
            (place(), byte()).prop_map(|(at, byte)| Damage::Set(at, byte)),
            (place(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
            (place(), place()).prop_map(|(from, to)| Damage::Remove(from, to)),
            (place(), place()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        ]
    }

    impl Damage {
        fn apply(&self, text: &mut Vec<u8>) {
            if text.is_empty() {
                return;
            }
            let len = text.len();
            // Short, so that something of the file is left.
            let span = |a: prop::sample::Index, b: prop::sample::Index| {
                a.index(len)..(a.index(len) + 1 + b.index(40)).min(len)
            };
            match *self {
                Damage::Set(at, byte) => text[at.index(len)] = byte,
                Damage::Insert(at, byte) => text.insert(at.index(len), byte),
                Damage::Remove(a, b) => drop(text.drain(span(a, b))),
                Damage::Repeat(a, b) => {
                    let copy = text[span(a, b)].to_vec();
                    let at = b.index(len);
                    text.splice(at..at, copy);
                }
            }
        }
    }

    proptest! {
        /// The last entry of an agent counts; a change that is cut short does not.
        #[test]
        fn changes_apply_in_order(
            agents in any_assignments(),
            turns in prop::collection::vec(any_assignments(), 0..4),
            gone in any::<prop::sample::Index>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut text = written(&agents);
            let mut expected: BTreeMap<_, _> = agents.into_iter().collect();
            for mut turn in turns {
                // Some no longer have an assignment.
                if let Some(id) = expected.keys().nth(gone.index(expected.len() + 1)).cloned() {
                    turn.retain(|(other, _)| *other != id);
                    turn.push((id, Assignment::default()));
                }
                text += &change(&turn).unwrap();
                expected.extend(turn);
                expected.retain(|_, assignment| !assignment.is_empty());
            }
            let expected: Assignments = expected.into_iter().collect();
            prop_assert_eq!(read(text.as_bytes()), Ok(expected.clone()));
            let torn = change(&vec![(b"torn".to_vec(), assignment(Some("pro"), &[], false))]).unwrap();
            let torn = &torn.as_bytes()[..cut.index(torn.len() - 1)];
            prop_assert_eq!(read(&[text.as_bytes(), torn].concat()), Ok(expected));
        }

        /// A file that is cut off anywhere before its last brace is an error.
        #[test]
        fn a_cut_file_is_never_read(agents in any_assignments(), cut in any::<prop::sample::Index>()) {
            let text = written(&agents);
            let whole = text.trim_end().len();
            let mistake = read(&text.as_bytes()[..cut.index(whole)]).unwrap_err();
            prop_assert!(mistake.line >= 1 && mistake.column >= 1);
            prop_assert_eq!(read(&text.as_bytes()[..whole]), Ok(agents));
        }

        /// A damaged file is an error, or is read as exactly what it now contains.
        #[test]
        fn a_damaged_file_is_refused_or_read_literally(
            agents in any_assignments(),
            damages in prop::collection::vec(damage(), 1..4),
        ) {
            let mut text = written(&agents).into_bytes();
            for damage in damages {
                damage.apply(&mut text);
            }
            if let Ok(agents) = read(&text) {
                prop_assert_eq!(agents, meaning(&text));
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(read(&text).is_err());
        }
    }
}
