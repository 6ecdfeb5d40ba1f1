//! Writes the file of assignments: one agent per line, sorted by id.
//!
//! Formatted by hand, because a JSON writer breaks lines everywhere or nowhere.

use crate::engine::{Assignment, Assignments};
use crate::keep::changes;
use crate::keep::json::{check_id, id_text, quoted};

/// The version this build writes, and the only one it reads.
pub(super) const VERSION: &str = "1";

/// The file's text for these agents, leaving out those without an assignment.
///
/// # Errors
///
/// An agent that could not be read back, and why.
pub(super) fn write<'a>(
    agents: impl IntoIterator<Item = (&'a [u8], &'a Assignment)>,
) -> Result<String, (Vec<u8>, String)> {
    let mut sorted: Vec<_> = agents.into_iter().filter(|(_, assignment)| !assignment.is_empty()).collect();
    sorted.sort_unstable_by_key(|(id, _)| *id);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err((pair[0].0.to_vec(), "it is given twice".to_owned()));
    }
    let mut lines = Vec::with_capacity(sorted.len());
    for (id, assignment) in sorted {
        let text = agent_text(id, assignment).map_err(|problem| (id.to_vec(), problem))?;
        lines.push(format!("    {text}"));
    }
    Ok(format!("{{\n  \"version\": {VERSION},\n  \"agents\": [\n{}\n  ]\n}}\n", lines.join(",\n")))
}

/// A line with the present assignments of these agents.
///
/// # Errors
///
/// As [`write()`].
pub(super) fn change(agents: &Assignments) -> Result<String, (Vec<u8>, String)> {
    let mut texts = Vec::with_capacity(agents.len());
    for (id, assignment) in agents {
        texts.push(agent_text(id, assignment).map_err(|problem| (id.clone(), problem))?);
    }
    Ok(changes::line(&format!("\"agents\": [{}]", texts.join(", "))))
}

fn agent_text(id: &[u8], assignment: &Assignment) -> Result<String, String> {
    check_id(id)?;
    let mut line = format!("{{\"agent\": {}", id_text(id));
    if let Some(plan) = assignment.plan() {
        line += &format!(", \"plan\": {}", quoted(plan));
    }
    if assignment.overrides().len() > 0 {
        let mut overrides = Vec::with_capacity(assignment.overrides().len());
        for (lane, limit) in assignment.overrides() {
            limit.validate().map_err(|problem| format!("override {lane:?}: {problem}"))?;
            overrides.push(format!("{}: \"{limit}\"", quoted(lane)));
        }
        line += &format!(", \"overrides\": {{{}}}", overrides.join(", "));
    }
    if assignment.is_exempt() {
        line += ", \"exempt\": true";
    }
    Ok(line + "}")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::inputs::{any_assignment, any_assignments, assignment};
    use super::super::read::read;
    use super::*;
    use crate::policy::Limit;
    use proptest::prelude::*;

    fn written(agents: &[(Vec<u8>, Assignment)]) -> Result<String, (Vec<u8>, String)> {
        write(agents.iter().map(|(id, assignment)| (id.as_slice(), assignment)))
    }

    #[test]
    fn each_agent_has_a_line_and_lines_are_sorted() {
        let agents = [
            (b"\xff\n".to_vec(), assignment(Some("free"), &[], false)),
            (b"b \"quoted\"\n".to_vec(), assignment(None, &[], true)),
            (b"nothing".to_vec(), Assignment::default()),
            (b"a".to_vec(), assignment(Some("pro"), &[("ws/light", "deny"), ("ws/heavy", "100/min burst 5")], false)),
        ];
        assert_eq!(
            written(&agents).unwrap(),
            r#"{
  "version": 1,
  "agents": [
    {"agent": "a", "plan": "pro", "overrides": {"ws/heavy": "100/minute burst 5", "ws/light": "deny"}},
    {"agent": "b \"quoted\"\n", "exempt": true},
    {"agent": {"base64": "/wo="}, "plan": "free"}
  ]
}
"#
        );
        assert_eq!(written(&[]).unwrap(), "{\n  \"version\": 1,\n  \"agents\": [\n\n  ]\n}\n");
        assert_eq!(read(written(&[]).unwrap().as_bytes()).map(|(agents, _)| agents), Ok(vec![]));
    }

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let exempt = assignment(None, &[], true);
        let refused = |agents: &[(Vec<u8>, Assignment)]| written(agents).unwrap_err();
        assert_eq!(refused(&[(vec![], exempt.clone())]).1, "an id of 0 bytes; allowed: 1 to 256");
        assert_eq!(refused(&[(vec![7; 257], exempt.clone())]).1, "an id of 257 bytes; allowed: 1 to 256");
        assert!(written(&[(vec![7; 256], exempt.clone())]).is_ok());
        let twice = [(b"a".to_vec(), exempt.clone()), (b"b".to_vec(), exempt.clone()), (b"a".to_vec(), exempt)];
        assert_eq!(refused(&twice), (b"a".to_vec(), "it is given twice".to_owned()));
        let mut nonsense = Assignment::default();
        nonsense.set_override("ws/heavy", Limit::per_minute(0));
        assert!(refused(&[(b"a".to_vec(), nonsense)]).1.starts_with("override \"ws/heavy\": a rate or burst of 0"));
    }

    proptest! {
        /// Any ids, names and limits are read back as they were.
        #[test]
        fn what_is_written_is_read_back(agents in any_assignments()) {
            let text = written(&agents).unwrap();
            prop_assert_eq!(text.lines().count(), 5 + agents.len().max(1), "one line per agent: {}", text);
            prop_assert_eq!(read(text.as_bytes()).unwrap().0, agents);
        }

        /// The order in which agents are given makes no difference.
        #[test]
        fn the_text_does_not_depend_on_the_order(agents in any_assignments(), first in any_assignment()) {
            let mut agents = agents;
            agents.retain(|(id, _)| id != b"first");
            agents.push((b"first".to_vec(), first));
            let text = written(&agents);
            agents.reverse();
            prop_assert_eq!(written(&agents), text);
        }
    }
}
