//! A limiter that keeps its assignments in a file.

#![cfg(feature = "persist")]

#[path = "common/child.rs"]
mod child;
#[path = "common/directory.rs"]
mod directory;
#[path = "common/file_size.rs"]
mod file_size;

use directory::Directory;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use tollgate::keep::{AssignmentFile, PersistError};
use tollgate::{Assignment, ControlError, Limiter, ManualClock, Policy};

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

/// Writes a file with these lines of agents.
fn write(path: &Path, agents: &[&str]) {
    fs::write(path, format!("{{\"version\": 1, \"agents\": [\n{}\n]}}\n", agents.join(",\n")))
        .expect("a directory for this test");
}

/// The ids in a file that is not in use.
fn ids(path: &Path) -> Vec<String> {
    let (_, agents) = AssignmentFile::open(path).expect("a valid file");
    agents.into_iter().map(|(id, _)| String::from_utf8(id).expect("ids of text")).collect()
}

/// A hand-edited file that names a plan missing from the policy was refused,
/// and then overwritten by the next control call.
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

/// Assignments made before the file was named were not in it until the next change.
#[test]
fn assignments_made_before_the_file_was_named_are_kept_too() {
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

/// Assignments for a second file were written to the first too.
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

/// The iterator ran under the lock of control calls, so a control call inside it waited for ever.
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

/// A limiter with enough assignments that changes are appended to their file.
fn large(path: &Path) -> Limiter {
    let limiter = limiter();
    let mut exempt = Assignment::default();
    exempt.set_exempt(true);
    limiter.set_assignments((0..2_000).map(|agent| (format!("agent-{agent:04}"), exempt.clone()))).expect("valid ids");
    limiter.keep_assignments_in(path).expect("a directory for this test");
    limiter
}

/// Every change wrote every assignment: 160 ms with 100,000 of them.
#[test]
fn a_change_is_appended_to_a_large_file() {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    let first = large(&path);
    let look = || fs::metadata(&path).map(|file| (file.ino(), file.len())).unwrap();
    let (inode, bytes) = look();
    let pro = first.plan("pro").unwrap();
    first.assign("a", pro).unwrap();
    first.set_override("a", "api", "7/min").unwrap();
    first.unexempt("agent-0007").unwrap();
    let (same, more) = look();
    assert_eq!(same, inode, "not replaced");
    assert!((150..400).contains(&(more - bytes)), "{bytes} and then {more}");
    let expected = first.assignments();
    first.reload_assignments().unwrap();
    assert_eq!(first.assignments(), expected);
    drop(first);

    let second = limiter();
    second.keep_assignments_in(&path).unwrap();
    assert_eq!(second.assignments(), expected);
    assert_eq!(look(), (inode, more), "what is in force already need not be written");
    // The file does not grow without bound.
    for round in 0..3_000_u64 {
        second.set_override("a", "api", format!("{}/min", 1 + round % 50).as_str()).unwrap();
        assert!(look().1 <= 2 * bytes + 1_000, "{round}");
    }
    assert_ne!(look().0, inode);
    let expected = second.assignments();
    drop(second);
    assert_eq!(AssignmentFile::open(&path).unwrap().1, expected);
}

#[test]
fn an_edited_large_file_is_not_appended_to() {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    let limiter = large(&path);
    limiter.exempt("a").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.clone() + "{\"agents\": [{\"agent\": \"by hand\", \"plan\": \"pro\"}]}\n").unwrap();
    let error = limiter.exempt("b").unwrap_err();
    assert!(matches!(error, ControlError::File(PersistError::Changed { .. })), "{error}");
    assert!(!is_exempt(&limiter, "b"));
    limiter.reload_assignments().unwrap();
    assert_eq!(limiter.assignment("by hand").unwrap().plan(), Some("pro"));
    limiter.exempt("b").unwrap();
    fs::remove_file(&path).unwrap();
    limiter.exempt("c").unwrap();
    drop(limiter);
    assert!(["agent-0000", "a", "b", "by hand", "c"].iter().all(|id| ids(&path).contains(&(*id).to_owned())));
}

/// A limit on the size of files stands in for a full disk. It applies to a
/// process, hence the child.
#[test]
fn a_change_that_does_not_fit_on_the_disk_leaves_the_file_unchanged() {
    let Some(path) = child::argument() else {
        let directory = Directory::new();
        let path = directory.path().join("assignments.json");
        let name = "a_change_that_does_not_fit_on_the_disk_leaves_the_file_unchanged";
        let child = child::command(name, &path).output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        return;
    };
    let limiter = large(&path);
    let text = fs::read(&path).unwrap();
    file_size::limit(text.len() as libc::rlim_t + 20);
    let error = limiter.exempt("a").unwrap_err();
    assert!(error.to_string().contains("make room there and try again; the file is as it was"), "{error}");
    assert!(!is_exempt(&limiter, "a"));
    assert_eq!(fs::read(&path).unwrap(), text);
    file_size::limit(libc::RLIM_INFINITY);
    let inode = fs::metadata(&path).unwrap().ino();
    limiter.exempt("a").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "added");
    drop(limiter);
    assert!(ids(&path).contains(&"a".to_owned()));
}
