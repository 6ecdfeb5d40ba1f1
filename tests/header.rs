//! The committed C header is what the sources say, and the C tests leave
//! nothing of it out.

#![cfg(feature = "header")]

use std::collections::BTreeSet;
use std::path::Path;

const COMMITTED: &str = include_str!("../include/tollgate.h");
/// What the build script has just made.
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/tollgate.h"));

/// Every word that begins so.
fn words<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with(prefix)).collect()
}

/// The functions that the header declares: a name at the start of a line, or
/// after the type that is returned, with an open parenthesis behind it.
fn functions() -> BTreeSet<&'static str> {
    let lines = COMMITTED.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = lines.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("tollgate_")).collect()
}

/// All that the C tests consist of.
fn c_tests() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/c/tests");
    let files = std::fs::read_dir(folder).expect("the folder of the C tests").flatten().map(|file| file.path());
    let sources = files.filter(|file| file.extension().is_some_and(|extension| extension == "c"));
    sources.map(|file| std::fs::read_to_string(file).expect("a C test that can be read")).collect()
}

#[test]
fn the_committed_header_is_the_generated_one() {
    let differs = COMMITTED.lines().zip(GENERATED.lines()).find(|(committed, generated)| committed != generated);
    assert!(COMMITTED == GENERATED, "include/tollgate.h is out of date: run `make header`; it differs in {differs:?}");
}

#[test]
fn every_function_and_every_status_has_a_test_in_c() {
    let tests = c_tests();
    let functions = functions();
    assert!(functions.len() > 40, "{functions:?}");
    let called = words(&tests, "tollgate_");
    let missing: Vec<_> = functions.difference(&called).collect();
    assert!(missing.is_empty(), "no C test calls {missing:?}");

    let named = words(&tests, "TOLLGATE_STATUS_");
    let statuses = words(COMMITTED, "TOLLGATE_STATUS_");
    let missing: Vec<_> = statuses.difference(&named).filter(|status| !UNREACHABLE.contains(*status)).collect();
    assert!(missing.is_empty(), "no C test expects {missing:?}");
}

/// Statuses that a test cannot bring about: for memory to run out, the machine
/// has to be small; two agents have the same hash once in 2^64; and a child that
/// is forked at that very moment is the subject of `tests/fork.rs`.
const UNREACHABLE: [&str; 3] = ["TOLLGATE_STATUS_OUT_OF_MEMORY", "TOLLGATE_STATUS_SAME_HASH", "TOLLGATE_STATUS_FORKED"];

/// What takes a panic to a status is tested function by function.
#[test]
fn every_function_that_can_panic_is_made_to() {
    let test = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/c/tests/test_panic.c");
    let test = std::fs::read_to_string(test).unwrap();
    let constant = [
        "tollgate_version",
        "tollgate_version_number",
        "tollgate_features",
        "tollgate_status_text",
        "tollgate_preset_name",
    ];
    let pure = ["tollgate_verdict_remaining", "tollgate_wait_ms"];
    let called = words(&test, "tollgate_");
    let missing: Vec<_> = functions().into_iter().filter(|name| !called.contains(name)).collect();
    let missing: Vec<_> = missing.iter().filter(|name| !constant.contains(name) && !pure.contains(name)).collect();
    assert!(missing.is_empty(), "test_panic.c leaves out {missing:?}");
}

/// The example on the first page is C without a warning.
#[test]
fn the_example_compiles() {
    let example: Vec<&str> = COMMITTED.lines().map_while(|line| line.strip_prefix([' ', '/'])).collect();
    let example = example.iter().filter_map(|line| line.strip_prefix("*     ").or((*line == "*").then_some("")));
    let example: String = example.map(|line| format!("{line}\n")).collect();
    assert!(example.contains("int main(void)"), "{example}");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_page.c");
    std::fs::write(&file, example).expect("a directory for files of tests");
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", include]).arg(&file);
    // Whoever has no compiler has no use for the header.
    let Ok(output) = compiler.output() else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the rules on the first page say once is not said by each function.
#[test]
fn the_header_is_for_c_readers() {
    for word in ["# Safety", "`", "#[", "crate"] {
        let line = COMMITTED.lines().find(|line| line.contains(word) && !line.contains("make header"));
        assert_eq!(line, None, "{word:?} means nothing to a C reader");
    }
}

/// The names of statuses that a comment gives are names of statuses.
#[test]
fn comments_name_statuses_that_exist() {
    let statuses = words(COMMITTED, "TOLLGATE_STATUS_");
    let comments: String =
        COMMITTED.lines().filter_map(|line| line.trim_start().strip_prefix("* ")).collect::<Vec<_>>().join(" ");
    for list in comments.split("Status: ").skip(1) {
        let list = list.split('.').next().unwrap_or_default();
        let is_upper = |word: &str| word.len() > 3 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let upper = |word: &&str| is_upper(word) && !word.starts_with("TOLLGATE_");
        for name in list.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(upper) {
            let full = format!("TOLLGATE_STATUS_{name}");
            assert!(statuses.contains(full.as_str()), "\"Status: {list}\" names {name}");
        }
    }
}
