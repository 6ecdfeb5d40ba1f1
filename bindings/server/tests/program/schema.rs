//! `docs/policy.schema.json`, with which editors check a policy file: it takes what the program takes.

use crate::{Directory, error, output};
use boon::{Compiler, Schemas};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use toml::de::{DeTable, DeValue};

const SCHEMA: &str = include_str!("../../../../docs/policy.schema.json");

fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).unwrap().into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().unwrap().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Array(items) => items.iter().map(|item| to_json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), to_json(value.get_ref()))).collect()
        }
        other => other.as_str().unwrap_or_default().into(),
    }
}

/// What is wrong with a file.
fn mistake(text: &str) -> Option<String> {
    let file = DeTable::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let file = to_json(&DeValue::Table(file.into_inner()));
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("http://tollgate.test/policy", serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let schema = compiler.compile("http://tollgate.test/policy", &mut schemas).unwrap();
    schemas.validate(&file, schema).err().map(|error| format!("{error:#}"))
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn files_of(folder: &str, ending: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(ending) {
            files.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    files
}

#[test]
fn it_takes_the_presets_and_every_example() {
    let mut files = files_of("presets", ".toml");
    files.extend(files_of("examples", ".toml"));
    assert!(files.len() >= 6);
    // Blocks that name a table of a policy file, or a preset; others are for Cargo and for gateways.
    let tables = ["lanes", "plans", "conduct", "shared", "cluster", "gate", "envoy", "server", "resp"];
    for folder in ["docs", "docs/gateways"] {
        for (name, page) in files_of(folder, ".md") {
            let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
            let is_policy = |block: &&str| {
                let of_table = |line: &str| tables.iter().any(|table| line.starts_with(&format!("[{table}")));
                !block.contains("[dependencies")
                    && block.lines().any(|line| of_table(line) || line.starts_with("preset"))
            };
            files.extend(blocks.filter(is_policy).map(|block| (name.clone(), block.to_owned())));
        }
    }
    // Five presets, an example and the blocks of the pages.
    assert!(files.len() >= 12, "{}", files.len());
    for (name, text) in files {
        assert_eq!(mistake(&text), None, "{name}: {text}");
    }
}

/// Every key of the file that `init --full` writes, also of those without a default.
#[test]
fn it_takes_what_init_writes() {
    let directory = Directory::new("schema");
    let path = directory.path().join("full.toml");
    assert!(output(&["init", "--full", path.to_str().unwrap()]).status.success());
    let full = std::fs::read_to_string(&path).unwrap();
    let is_key = |line: &str| line.strip_prefix('#').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '));
    let (mut seen, mut text) = (BTreeSet::new(), String::new());
    for line in full.lines() {
        let line = if is_key(line) { &line[1..] } else { line };
        if line.starts_with('[') {
            seen.clear();
        }
        // A key that stands there twice shows two forms of its value.
        let key = line.split_once(" = ").map(|(key, _)| key.to_owned());
        if key.is_none_or(|key| key.starts_with('#') || seen.insert(key)) {
            text = text + line + "\n";
        }
    }
    assert_eq!(mistake(&text), None, "{text}");
    for table in ["cluster", "gate", "envoy", "resp", "shared"] {
        assert!(text.contains(&format!("\n[{table}]\n")), "{table}");
    }
}

/// The program lists the keys of a table when it refuses one.
#[test]
fn it_has_the_keys_of_the_program_and_no_others() {
    let directory = Directory::new("schema keys");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for (table, pointer) in [
        ("", ""),
        ("[conduct]", "/properties/conduct"),
        ("[shared]", "/properties/shared"),
        ("[cluster]", "/properties/cluster"),
        ("[cluster.lane.a]", "/properties/cluster/properties/lane/additionalProperties"),
        ("[gate]", "/properties/gate"),
        ("[envoy]", "/properties/envoy"),
        ("[[envoy.rules]]", "/properties/envoy/properties/rules/items"),
        ("[resp]", "/properties/resp"),
        ("[server]", "/properties/server"),
        ("[server.tokens.a]", "/properties/server/properties/tokens/additionalProperties"),
    ] {
        let begin = if table.is_empty() { "no_such_key = 1\n" } else { "" };
        let rest = if table.is_empty() { String::new() } else { format!("{table}\nno_such_key = 1\n") };
        let file = directory.file("tollgate.toml", &format!("{begin}[lanes]\na = \"1/min\"\n{rest}"));
        let refused = error(&output(&["check-config", &file]));
        let listed = refused.split("allowed: ").nth(1).unwrap_or_else(|| panic!("{table}: {refused}"));
        let listed = listed.lines().next().unwrap().split("; did you mean").next().unwrap();
        let listed: BTreeSet<_> = listed.split(", ").collect();
        let written = schema.pointer(&format!("{pointer}/properties")).unwrap().as_object().unwrap();
        assert_eq!(listed, written.keys().map(String::as_str).collect(), "{table}");
    }
}

#[test]
fn it_refuses_what_the_program_refuses() {
    let directory = Directory::new("schema mistakes");
    for wrong in [
        "presett = \"hub\"\n",
        "preset = \"hubb\"\n",
        "warn_below_percent = 101\n",
        "on_change = \"forget\"\n",
        "exempt = \"a\"\n",
        "[lanes]\na = 5\n",
        "[lanes]\na = \"\"\n",
        "[lanes]\na = \"/minute\"\n",
        "[lanes]\na.b = \"1/min\"\n",
        "[plans]\npro = \"1/min\"\n",
        "[actions.http]\nheavy = \"a\"\n",
        "[conduct]\nabuse = { violations = 64 }\n",
        "[conduct]\nquiet = 5\n",
        "[server]\nlisten = 8787\n",
        "[server]\nlisten = []\n",
        "[server]\nadmin_token = \"short\"\n",
        "[server]\non_full = \"drop\"\n",
        "[server]\ngrace = \"10\"\n",
        "[server]\nagents = 0\n",
        "[server]\nagents = \"many\"\n",
        "[server.tokens.a]\nmay = \"write\"\n",
        "[gate]\nagent = [{ cookie = \"a\" }]\n",
        "[gate]\non_error = \"maybe\"\n",
        "[envoy]\nrules = [{ domain = \"a\" }]\n",
        "[shared]\nmode = \"rw\"\n",
        "[cluster]\nredis = \"redis://a\"\nsecret = \"0123456789abcdef\"\n",
        "[cluster]\nslack = 10\n",
    ] {
        // Without lanes of its own the file starts from a preset.
        let begin = if wrong.contains("[lanes]") || wrong.starts_with("preset =") { "" } else { "preset = \"hub\"\n" };
        let text = format!("{begin}{wrong}");
        error(&output(&["check-config", &directory.file("tollgate.toml", &text)]));
        assert!(mistake(&text).is_some(), "{text}");
    }
}
