//! Configuration of envoyproxy/ratelimit as a policy file of ours.

use super::upstream::{File, Unused};
use super::written::{Step, WrittenLimit, WrittenRule};
use std::fmt::Write as _;

const HEAD: &str = "\
# Made by `tollgate import envoy`. Serve it with `tollgate serve --config FILE`.
#
# What differs from envoyproxy/ratelimit:
# - A limit is a token bucket, and no counter that starts anew with each minute: \"5/minute\" allows 5 at once, and then
#   one more every 12 seconds. No client gets twice its limit around the turn of a minute.
# - A request that is denied is charged nothing, by none of its limits.
# - A month has 30 days and a year 365, as there.
";

/// The policy file. `files` has a name and what was read for each file.
pub(crate) fn to_toml(files: &[(String, String)]) -> Result<String, (usize, tollgate::ConfigError)> {
    let mut text = HEAD.to_owned();
    text.push_str("\n[lanes]\n# The limits of the rules below are in this lane, for each descriptor its own.\n");
    text.push_str("\"envoy\" = \"dynamic\"\n\n[envoy]\nlisten = \"127.0.0.1:8081\"\n");
    for (index, (name, yaml)) in files.iter().enumerate() {
        let file = super::upstream::read(yaml).map_err(|error| (index, error))?;
        write(&mut text, name, &file);
    }
    Ok(text)
}

fn write(text: &mut String, name: &str, file: &File) {
    // Writing to a `String` never fails.
    _ = writeln!(text, "\n# {}", name.replace(char::is_control, " "));
    for Unused { line, key } in &file.unused {
        let why = match *key {
            "metadata" => "no metadata is sent back",
            _ => "metrics have a label for each rule, and none for each value",
        };
        _ = writeln!(text, "# Line {line}: {key} has no effect here: {why}.");
    }
    if file.rules.is_empty() {
        _ = writeln!(text, "# The domain {} has no rules.", quoted(&file.domain));
    }
    for rule in &file.rules {
        write_rule(text, rule);
    }
}

fn write_rule(text: &mut String, rule: &WrittenRule) {
    let WrittenRule { domain, steps, limit, name, replaces, is_shadow, is_quota, .. } = rule;
    let steps: Vec<_> = steps.iter().map(step).collect();
    _ = writeln!(text, "\n[[envoy.rules]]\ndomain = {}\ndescriptor = [{}]", quoted(domain), steps.join(", "));
    _ = match limit {
        WrittenLimit::None => writeln!(text, "# Without a limit: such requests are exempt."),
        WrittenLimit::Unlimited => writeln!(text, "limit = \"unlimited\""),
        WrittenLimit::Deny => writeln!(text, "limit = \"deny\""),
        WrittenLimit::Lane(lane, _) => writeln!(text, "lane = {}", quoted(lane)),
        WrittenLimit::Text(limit, _) => writeln!(text, "limit = {}", quoted(limit)),
        WrittenLimit::Rate(rate) => writeln!(text, "limit = \"{rate}\""),
    };
    if let Some(name) = name {
        _ = writeln!(text, "name = {}", quoted(name));
    }
    if !replaces.is_empty() {
        let names: Vec<_> = replaces.iter().map(|name| quoted(name)).collect();
        _ = writeln!(text, "replaces = [{}]", names.join(", "));
    }
    for (key, is_set) in [("shadow", is_shadow), ("quota", is_quota)] {
        if *is_set {
            _ = writeln!(text, "{key} = true");
        }
    }
}

fn step(step: &Step) -> String {
    let key = quoted(&step.key);
    match &step.value {
        None => format!("{{ key = {key} }}"),
        Some(value) if step.is_shared => format!("{{ key = {key}, value = {}, shared = true }}", quoted(value)),
        Some(value) => format!("{{ key = {key}, value = {} }}", quoted(value)),
    }
}

/// A text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => _ = write!(quoted, "\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use std::path::Path;

    /// Two services of one gateway, with every key that the configuration has.
    const FULL: &str = include_str!("../../../../docs/envoy/ratelimit.yaml");

    fn rules(yaml: &str) -> (Vec<WrittenRule>, Vec<WrittenRule>) {
        let toml = to_toml(&[("ratelimit.yaml".to_owned(), yaml.to_owned())]).unwrap();
        let settings = Settings::from_toml(&toml, Path::new("")).unwrap();
        tollgate::Policy::from_toml(&toml).unwrap();
        (super::super::upstream::read(yaml).unwrap().rules, settings.envoy.unwrap().rules)
    }

    /// The place in the file, and whether a limit was written as a rate or as its text.
    fn plain(rule: WrittenRule) -> WrittenRule {
        let limit = match rule.limit {
            WrittenLimit::Rate(rate) => WrittenLimit::Text(rate.to_string(), 0..0),
            WrittenLimit::Text(text, _) => WrittenLimit::Text(text, 0..0),
            other => other,
        };
        WrittenRule { limit, at: 0..0, ..rule }
    }

    #[test]
    fn what_is_written_reads_as_the_same_rules() {
        let odd = "domain: \"a\\\"b\\\\c\\n\"\ndescriptors:\n- key: 'é \"'\n  value: 'x*'\n  share_threshold: true\n";
        for yaml in [FULL, odd] {
            let (read, written) = rules(yaml);
            let [read, written] = [read, written].map(|rules| rules.into_iter().map(plain).collect::<Vec<_>>());
            assert_eq!(read, written);
            assert!(!read.is_empty());
        }
    }

    #[test]
    fn what_has_no_effect_is_named_with_its_line() {
        let yaml = "domain: a\ndescriptors:\n  - key: b\n    detailed_metric: true\n    metadata: {x: [1]}\n";
        let toml = to_toml(&[("a.yaml".to_owned(), yaml.to_owned())]).unwrap();
        assert!(toml.contains("# Line 4: detailed_metric has no effect here"), "{toml}");
        assert!(toml.contains("# Line 5: metadata has no effect here"), "{toml}");
    }
}
