//! Assignments kept in a file.

#[path = "../common/directory.rs"]
mod directory;

use super::plans::{capacities, exempt, plan, plans};
use super::*;
use directory::Directory;
use std::fs;
use std::path::{Path, PathBuf};
use tollgate::ControlError;
use tollgate::keep::PersistError;

/// A path for a file in a directory for this test.
fn place() -> (Directory, PathBuf) {
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    (directory, path)
}

fn limiter() -> Limiter {
    build(plans().build().expect("valid"), 100, OnFull::Deny).0
}

/// A limiter that has started with the file.
fn started(path: &Path) -> Limiter {
    let limiter = limiter();
    limiter.keep_assignments_in(path).expect("a valid file");
    limiter
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

/// Replaces the file with this text, as an editor does.
fn edit(path: &Path, text: &str) {
    let other = path.with_extension("edited");
    fs::write(&other, text).expect("a writable directory");
    fs::rename(other, path).expect("a writable directory");
}

const BY_HAND: &str = r#"{"version": 1, "agents": [
  {"agent": "agent-7", "plan": "free", "overrides": {"ws/light": "3/min"}},
  {"agent": "agent-9", "exempt": true}
]}"#;

#[test]
fn every_kind_of_assignment_survives_a_restart() {
    let (_directory, path) = place();
    let limiter = started(&path);
    assert!(!path.exists(), "nothing is assigned yet");
    let pro = plan(&limiter, "pro");
    limiter.assign("agent-7", pro).unwrap();
    limiter.set_override("agent-7", "heavy", "7/min").unwrap();
    limiter.remove_override("agent-7", "http/heavy").unwrap();
    limiter.exempt("agent-8").unwrap();
    limiter.exempt([0xff]).unwrap();
    limiter.exempt("gone").unwrap();
    limiter.unexempt("gone").unwrap();
    limiter.set_assignments([("agent-9", exempt()), ("agent-10", exempt())]).unwrap();
    let before = limiter.assignments();
    assert_eq!(before.len(), 5);
    drop(limiter);

    let limiter = started(&path);
    assert_eq!(limiter.assignments(), before);
    assert_eq!(capacities(&limiter, "agent-7"), [7, 200, 120]);
    assert_eq!(capacities(&limiter, "agent-8"), [u64::MAX; 3]);
    let written = text(&path);
    limiter.exempt("agent-8").unwrap();
    assert_eq!(text(&path), written, "a call that changes nothing writes nothing");
    limiter.unexempt("agent-8").unwrap();
    drop(limiter);
    assert_eq!(capacities(&started(&path), "agent-8"), [10, 20, 120]);
}

#[test]
fn an_edited_file_is_in_force_once_it_is_reloaded() {
    let (_directory, path) = place();
    let limiter = started(&path);
    limiter.exempt("agent-7").unwrap();
    limiter.exempt("agent-8").unwrap();
    edit(&path, BY_HAND);
    assert_eq!(capacities(&limiter, "agent-7"), [u64::MAX; 3]);
    limiter.reload_assignments().unwrap();
    assert_eq!(capacities(&limiter, "agent-7"), [5, 20, 3]);
    assert_eq!(capacities(&limiter, "agent-8"), [10, 20, 120], "not in the file");
    assert_eq!(capacities(&limiter, "agent-9"), [u64::MAX; 3]);
    assert_eq!(limiter.assignments().len(), 2);
    // From here on, changes are kept as before.
    limiter.exempt("agent-8").unwrap();
    drop(limiter);
    assert_eq!(started(&path).assignments().len(), 3);
}

#[test]
fn a_file_that_names_unknown_plans_or_lanes_is_refused_and_left_as_it_is() {
    let (_directory, path) = place();
    let limiter = started(&path);
    limiter.exempt("agent-8").unwrap();
    let before = limiter.assignments();
    let files = [
        (BY_HAND.replace("free", "gold"), "there is no plan \"gold\"; the plans are default, free, pro"),
        (BY_HAND.replace("ws/light", "light"), "there is no lane or tier \"light\"; the lanes are ws/heavy,"),
        (BY_HAND.replace("3/min", "lots"), ""),
        (BY_HAND[..40].to_owned(), ""),
    ];
    for (broken, expected) in &files {
        edit(&path, broken);
        let error = limiter.reload_assignments().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(limiter.assignments(), before);
        assert_eq!(capacities(&limiter, "agent-7"), [10, 20, 120]);
        // Nor does the next change overwrite it.
        let refused = limiter.exempt("agent-7").unwrap_err();
        assert!(matches!(refused, ControlError::File(PersistError::Changed { .. })), "{refused}");
        assert_eq!((limiter.assignments(), text(&path)), (before.clone(), broken.clone()));
    }
    edit(&path, BY_HAND);
    limiter.reload_assignments().unwrap();
    limiter.exempt("agent-8").unwrap();
    drop(limiter);

    for (broken, _) in &files {
        edit(&path, broken);
        let limiter = self::limiter();
        limiter.exempt("agent-1").unwrap();
        assert!(limiter.keep_assignments_in(&path).is_err());
        limiter.exempt("agent-2").unwrap();
        assert_eq!(limiter.assignments().len(), 2);
        assert_eq!(text(&path), *broken);
        let refused = limiter.reload_assignments().unwrap_err();
        assert!(matches!(refused, ControlError::NoFile), "{refused}");
    }
}

#[test]
fn what_cannot_be_written_is_not_in_force() {
    let (directory, path) = place();
    let limiter = started(&path);
    limiter.exempt("agent-8").unwrap();
    let (before, written) = (limiter.assignments(), text(&path));
    let refused = |why: &str| {
        let pro = plan(&limiter, "pro");
        let calls = [
            limiter.assign("agent-7", pro),
            limiter.set_override("agent-7", "heavy", "7/min"),
            limiter.exempt("agent-7"),
            limiter.unexempt("agent-8"),
            limiter.set_assignments([("agent-7", exempt())]),
        ];
        for result in calls {
            assert!(matches!(result, Err(ControlError::File(_))), "{why}: {result:?}");
            assert_eq!(limiter.assignments(), before, "{why}");
            assert_eq!(capacities(&limiter, "agent-7"), [10, 20, 120], "{why}");
            assert_eq!(capacities(&limiter, "agent-8"), [u64::MAX; 3], "{why}");
        }
    };
    // Something that cannot be removed is in the place of the temporary file.
    let temporary = directory.path().join("assignments.json.tmp");
    fs::create_dir_all(temporary.join("inside")).unwrap();
    refused("the temporary file cannot be written");
    fs::remove_dir_all(&temporary).unwrap();
    assert_eq!(text(&path), written);
    edit(&path, BY_HAND);
    refused("somebody has edited the file");
    assert_eq!(text(&path), BY_HAND);
    edit(&path, &written);
    limiter.reload_assignments().unwrap();
    limiter.exempt("agent-7").unwrap();
    assert_eq!(capacities(&limiter, "agent-7"), [u64::MAX; 3]);
}

#[test]
fn one_file_is_kept_by_one_limiter() {
    let (_directory, path) = place();
    let limiter = started(&path);
    let refused = self::limiter().keep_assignments_in(&path).unwrap_err();
    assert!(matches!(refused, ControlError::File(PersistError::InUse { .. })), "{refused}");
    drop(limiter);
    started(&path);
}
