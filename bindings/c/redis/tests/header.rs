//! The committed `tollgate_redis.h` is what the sources say, its example compiles,
//! and the C tests call every function.

#![cfg(feature = "header")]

use std::path::Path;
use std::process::Command;

const COMMITTED: &str = include_str!("../../../../include/tollgate_redis.h");
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/tollgate_redis.h"));

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
}

#[test]
fn the_committed_header_is_the_generated_one() {
    let differs = COMMITTED.lines().zip(GENERATED.lines()).find(|(committed, generated)| committed != generated);
    assert!(
        COMMITTED == GENERATED,
        "include/tollgate_redis.h is out of date: run `make header`; it differs in {differs:?}"
    );
}

#[test]
fn every_function_has_a_test_in_c() {
    let test = std::fs::read_to_string(root().join("bindings/c/tests/test_engine.c")).unwrap();
    let lines = COMMITTED.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = lines.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    let names: Vec<_> = names.filter(|name| name.starts_with("tollgate_")).collect();
    assert_eq!(names, ["tollgate_engine_new", "tollgate_engine_free", "tollgate_engine_status"]);
    for name in names {
        assert!(test.contains(&format!("{name}(")), "test_engine.c does not call {name}");
    }
}

#[test]
fn the_header_is_for_c_readers() {
    for word in ["# Safety", "`", "#[", "crate"] {
        let line = COMMITTED.lines().find(|line| line.contains(word) && !line.contains("make header"));
        assert_eq!(line, None, "{word:?} means nothing to a C reader");
    }
}

/// The example on the first page is C without a warning.
#[test]
fn the_example_compiles() {
    let lines = COMMITTED.lines().map_while(|line| line.strip_prefix([' ', '/']));
    let example = lines.filter_map(|line| line.strip_prefix("*     ").or((line == "*").then_some("")));
    let example: String = example.map(|line| format!("{line}\n")).collect();
    assert!(example.contains("int main(void)"), "{example}");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_page_redis.c");
    std::fs::write(&file, example).unwrap();
    let include = format!("-I{}", root().join("include").display());
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", &include]).arg(&file);
    // Whoever has no compiler has no use for the header.
    let Ok(output) = compiler.output() else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
