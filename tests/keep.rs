//! A limiter that keeps its assignments in a file.

#![cfg(feature = "persist")]

#[path = "common/directory.rs"]
mod directory;

use directory::Directory;
use std::fs;
use std::path::Path;
use tollgate::{Assignment, AssignmentFile, ControlError, Limiter, ManualClock, PersistError, Policy};

fn limiter() -> Limiter {
    let policy = Policy::builder().lane("api", "20/min").plan("pro", [("api", "500/min")]).build();
    Limiter::builder(policy.expect("a valid policy"))
        .agents(100)
        .clock(ManualClock::new())
        .build()
        .expect("a small slab")
}

fn is_exempt(limiter: &Limiter, agent: &str) -> bool {
    limiter.is_exempt(agent).expect("a valid id")
}

/// A file of these lines of agents.
fn write(path: &Path, agents: &[&str]) {
    fs::write(path, format!("{{\"version\": 1, \"agents\": [\n{}\n]}}\n", agents.join(",\n")))
        .expect("a directory of its own");
}

/// The ids in a file that nobody uses.
fn ids(path: &Path) -> Vec<String> {
    let (_, agents) = AssignmentFile::open(path).expect("a file that makes sense");
    agents.into_iter().map(|(id, _)| String::from_utf8(id).expect("ids of text")).collect()
}

/// A hand-edited file that names a plan which the policy does not have was
/// refused, and then overwritten by the next control call.
#[test]
fn a_file_that_was_not_put_in_force_is_not_overwritten() {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    let limiter = limiter();
    limiter.keep_assignments_in(&path).unwrap();
    limiter.exempt("a").unwrap();
    write(&path, &["{\"agent\": \"a\", \"plan\": \"pro\"}", "{\"agent\": \"b\", \"plan\": \"por\"}"]);
    let edited = fs::read(&path).unwrap();

    let error = limiter.reload_assignments().unwrap_err();
    assert_eq!(error.to_string(), "agent \"b\": there is no plan \"por\"; the plans are default, pro");
    assert!(is_exempt(&limiter, "a"));
    let error = limiter.exempt("c").unwrap_err();
    assert!(matches!(error, ControlError::File(PersistError::Changed { .. })), "{error}");
    assert!(!is_exempt(&limiter, "c"));
    assert_eq!(fs::read(&path).unwrap(), edited);

    write(&path, &["{\"agent\": \"b\", \"plan\": \"pro\"}"]);
    let edited = fs::read(&path).unwrap();
    limiter.reload_assignments().unwrap();
    assert_eq!(fs::read(&path).unwrap(), edited, "what is in force already need not be written");
    assert!(!is_exempt(&limiter, "a"));
    assert_eq!(limiter.assignment("b").unwrap().plan(), Some("pro"));
    limiter.exempt("c").unwrap();
    drop(limiter);
    assert_eq!(ids(&path), ["b", "c"]);
}

/// What was decided before the file was named was not in it until the next change.
#[test]
fn what_was_decided_before_is_kept_as_well() {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    write(&path, &["{\"agent\": \"b\", \"exempt\": true}"]);
    let before = limiter();
    before.exempt("a").unwrap();
    before.keep_assignments_in(&path).unwrap();
    drop(before);

    let after = limiter();
    after.keep_assignments_in(&path).unwrap();
    assert!(is_exempt(&after, "a") && is_exempt(&after, "b"));
}

/// A second file's assignments were written to the first as well.
#[test]
fn the_file_that_was_kept_before_stays_as_it_is() {
    let directory = Directory::new();
    let [first, second] = ["first.json", "second.json"].map(|name| directory.path().join(name));
    write(&second, &["{\"agent\": \"b\", \"exempt\": true}"]);
    let limiter = limiter();
    limiter.keep_assignments_in(&first).unwrap();
    limiter.exempt("a").unwrap();
    limiter.keep_assignments_in(&second).unwrap();
    limiter.exempt("c").unwrap();
    assert_eq!(ids(&first), ["a"]);
    drop(limiter);
    assert_eq!(ids(&second), ["a", "b", "c"]);
}

#[test]
fn a_file_that_cannot_be_kept_changes_nothing() {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    write(&path, &["{\"agent\": \"a\", \"exempt\": true}", "{\"agent\": \"b\", \"overrides\": {\"apo\": \"1/s\"}}"]);
    let edited = fs::read(&path).unwrap();
    let limiter = limiter();
    let error = limiter.keep_assignments_in(&path).unwrap_err();
    assert_eq!(error.to_string(), "agent \"b\": there is no lane or tier \"apo\"; the lanes are api");
    assert_eq!(limiter.assignments(), []);
    limiter.exempt("c").unwrap();
    assert_eq!(fs::read(&path).unwrap(), edited);
    assert!(matches!(limiter.reload_assignments(), Err(ControlError::NoFile)));
}

/// The iterator ran under the lock of control calls, and a control call in it
/// waited for ever.
#[test]
fn assignments_may_be_made_by_calling_the_limiter() {
    let limiter = limiter();
    let assignments = ["a", "b"].map(|agent| (agent, Assignment::default())).into_iter().map(|(agent, assignment)| {
        limiter.exempt(agent).unwrap();
        (agent, assignment)
    });
    limiter.set_assignments(assignments).unwrap();
    assert_eq!(limiter.assignments(), []);
}
