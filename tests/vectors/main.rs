//! Runs the vectors: the limiter's answers as data that every language reads.
//! `README.md` beside it defines every field.

#![expect(clippy::panic, reason = "a vector that does not hold fails its test")]

mod answers;
mod fields;
mod policies;

use answers::Reservations;
use fields::Fields;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate::{Limiter, ManualClock, OnFull, Tick};

/// A test for each file.
macro_rules! files {
    ($($(#[$attribute:meta])* $file:ident,)*) => {
        const FILES: &[&str] = &[$(stringify!($file)),*];
        $($(#[$attribute])* #[test] fn $file() { run(&directory().join(concat!(stringify!($file), ".json"))); })*
    };
}

files! {
    abuse,
    all_or_none,
    changed_limits,
    conduct,
    dynamic,
    errors,
    exemption,
    hub_actions,
    hub_contract,
    kind_budget,
    kind_exact,
    kind_held,
    kind_window,
    lanes,
    overrides,
    plans,
    #[cfg(feature = "config")]
    policy_file,
    preset_adr,
    preset_citizen,
    preset_hub,
    preset_platform,
    preset_standard,
    reservations,
    time,
    total,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

#[test]
fn every_file_is_run() {
    let entries = std::fs::read_dir(directory()).expect("the directory of the vectors");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let json = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let found: BTreeSet<_> =
        json.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    assert_eq!(found, FILES.iter().map(|file| (*file).to_owned()).collect());
}

fn run(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if let Err(problem) = portable(&file).and_then(|()| run_file(&Fields::of(&file))) {
        panic!("{}: {problem}", path.display());
    }
}

/// Every language can read its numbers: whole, and below 2^53.
fn portable(value: &Value) -> Result<(), String> {
    match value {
        Value::Number(number) if number.as_u64().is_none_or(|number| number >= 1 << 53) => {
            Err(format!("{number} is not a whole number from 0 to 2^53 - 1"))
        }
        Value::Array(values) => values.iter().try_for_each(portable),
        Value::Object(fields) => fields.values().try_for_each(portable),
        _ => Ok(()),
    }
}

fn run_file(file: &Fields) -> Result<(), String> {
    file.text("about")?;
    let cases = file.list("cases")?;
    file.all_used()?;
    for case in cases {
        let case = Fields::of(case);
        let name = case.text("name")?;
        run_case(&case).map_err(|problem| format!("case {name:?}, {problem}"))?;
    }
    Ok(())
}

fn run_case(case: &Fields) -> Result<(), String> {
    let policy = policies::read(&case.object("policy")?)??;
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(100).reservations(16).clock(clock.clone()).on_full(OnFull::Deny);
    let limiter = limiter.build().map_err(|error| error.to_string())?;
    let steps = case.list("steps")?;
    case.all_used()?;
    let reservations = Reservations::default();
    for (index, step) in steps.iter().enumerate() {
        let place = |problem| format!("step {}: {problem}\n  {step}", index + 1);
        run_step(&limiter, &clock, &reservations, &Fields::of(step)).map_err(place)?;
    }
    Ok(())
}

fn run_step(limiter: &Limiter, clock: &ManualClock, reservations: &Reservations, step: &Fields) -> Result<(), String> {
    match (step.optional_number("at_ms")?, step.optional_number("at_ns")?) {
        (Some(ms), None) => clock.set(Tick::from_nanos(ms.saturating_mul(1_000_000))),
        (None, Some(ns)) => clock.set(Tick::from_nanos(ns)),
        (None, None) => {}
        (Some(_), Some(_)) => return Err("at_ms and at_ns; give one of them".into()),
    }
    let times = step.optional_number("times")?.unwrap_or(1);
    let every = Duration::from_millis(step.optional_number("every_ms")?.unwrap_or(0));
    let expected = step.optional_object("expect")?.unwrap_or_default();
    let mut counts = Map::new();
    let mut last = None;
    for time in 0..times {
        if time > 0 {
            clock.advance(every);
        }
        let answer = answers::of(limiter, reservations, step)?;
        if let Some(decision) = answer.as_ref().ok().and_then(|answer| answer["decision"].as_str()) {
            let count = counts.get(decision).and_then(Value::as_u64).unwrap_or(0);
            counts.insert(decision.to_owned(), json!(count + 1));
        }
        match answer {
            Err(error) if time + 1 < times => return Err(format!("call {} was refused: {error}", time + 1)),
            answer => last = Some(answer),
        }
    }
    let last = last.ok_or("times is 0")?;
    step.all_used()?;
    let got = match last {
        Ok(Value::Object(mut got)) => {
            if !counts.is_empty() {
                got.insert("counts".into(), Value::Object(counts));
            }
            got
        }
        Ok(_) => Map::new(),
        Err(error) => Map::from_iter([("error".to_owned(), json!(error))]),
    };
    // The step of the curve alone is for C to report.
    let is_step = |field: &str| field == "step_ns" && got.contains_key("lane_wait_ns");
    // An error must be expected; other fields need not be.
    let mut fields = expected.iter().filter(|(field, _)| !is_step(field));
    let agrees = fields.all(|(field, value)| got.get(field) == Some(value))
        && (got.contains_key("error") == expected.contains_key("error"));
    let shown = |fields: &Map<String, Value>| Value::Object(fields.clone()).to_string();
    if agrees { Ok(()) } else { Err(format!("expected {}, got {}", shown(&expected), shown(&got))) }
}

/// What is wrong with a file of one case under the preset `hub`.
fn problem_of(steps: &Value) -> String {
    let case = json!({ "name": "a case", "policy": { "preset": "hub" }, "steps": steps });
    run_file(&Fields::of(&json!({ "about": "a file", "cases": [case] }))).expect_err("a broken vector")
}

#[test]
fn a_failing_vector_names_its_step_and_what_differs() {
    let check = |remaining: u64| json!({ "op": "check", "agent": "a", "lane": "ws/normal", "expect": { "remaining": remaining } });
    let problem = problem_of(&json!([check(59), check(59)]));
    assert!(problem.starts_with("case \"a case\", step 2: expected {\"remaining\":59}, got {"), "{problem}");
    assert!(problem.contains("\"remaining\":58"), "{problem}");
}

#[test]
fn an_error_must_be_expected_and_an_expected_error_must_occur() {
    let forget = json!({ "op": "forget", "agent": "" });
    assert!(problem_of(&json!([forget])).contains("got {\"error\":\"empty_id\"}"));
    let forget = json!({ "op": "forget", "agent": "a", "expect": { "error": "empty_id" } });
    assert!(problem_of(&json!([forget])).contains("expected {\"error\":\"empty_id\"}, got {\"known\":false}"));
}

#[test]
fn numbers_are_whole_and_below_2_to_the_53() {
    assert!(portable(&json!({ "a": [0, 9_007_199_254_740_991_u64, { "b": null }] })).is_ok());
    for number in [json!(-1), json!(1.5), json!(1e3), json!(9_007_199_254_740_992_u64)] {
        assert!(portable(&json!({ "a": [number] })).is_err(), "{number}");
    }
}

#[test]
fn an_invalid_vector_is_refused() {
    for (step, problem) in [
        (json!({ "op": "chekc", "agent": "a" }), "there is no op \"chekc\""),
        (json!({ "op": "reset", "agnt": "a" }), "agent is missing"),
        (json!({ "op": "reset", "agent": "a", "cost": 1 }), "the field \"cost\" means nothing here"),
        (json!({ "op": "reset", "agent": "a", "expect": { "known": true } }), "expected {\"known\":true}, got {}"),
        (json!({ "op": "check", "agent": "a", "lane": "ws/lihgt" }), "there is no lane \"ws/lihgt\""),
        (json!({ "op": "check", "agent": "a", "lane": "ws/light", "cost": 1.5 }), "cost is 1.5"),
        (json!({ "op": "reset", "agent": "a", "at_ms": 1, "at_ns": 1 }), "give one of them"),
        (json!({ "op": "reset", "agent": "a", "times": 0 }), "times is 0"),
        (json!({ "op": "check", "agent": "", "lane": "ws/light", "times": 2 }), "call 1 was refused: empty_id"),
    ] {
        let found = problem_of(&json!([step]));
        assert!(found.contains(problem), "{found}");
    }
    assert!(problem_of(&json!([])).contains("steps is empty or missing"));
}
