//! What cannot be loaded or saved, and how a limiter reports it.

use super::*;
use std::os::unix::fs::PermissionsExt as _;
use tollgate::keep::PersistError;

/// A message, with the directory's path as `DIR`.
fn message(error: impl ToString, directory: &Directory) -> String {
    error.to_string().replace(directory.path().to_str().expect("a path of UTF-8"), "DIR")
}

#[test]
fn what_cannot_be_loaded_or_saved_is_counted() {
    let (_directory, path) = file();
    let wall = || ManualWallClock::new(MORNING);
    let many = builder(&[("llm", "budget 1_000/day"), ("images", "budget 50/day")]).agents(4_000);
    let limiter = many.wall_clock(wall()).build().unwrap();
    spend(&limiter, "before the file", LLM, 1);
    limiter.keep_budgets_in(&path).unwrap();
    for agent in 0..1_000 {
        spend(&limiter, format!("agent-{agent}"), LLM, 1);
    }
    spend(&limiter, "agent-0", LaneId::new(1), 1);
    let saved = limiter.save_budgets().unwrap();
    assert_eq!((saved.saved, saved.unsaved), (1_001, 1));
    drop(limiter);

    // The limiter is too small; one lane now has another window, and one another name.
    let load = |agents, lane, limit| {
        let limiter = builder(&[(lane, limit)]).agents(agents).wall_clock(wall()).build().unwrap();
        let loaded = limiter.keep_budgets_in(&path).unwrap();
        (loaded.loaded, loaded.ended, loaded.unknown, loaded.full)
    };
    assert_eq!(load(1, "llm", "budget 1_000/day"), (96, 0, 1, 904));
    assert_eq!(load(4_000, "llm", "budget 1_000/hour"), (0, 0, 1_001, 0));
    assert_eq!(load(4_000, "llm", "budget 1_000/day zone +01:00"), (0, 0, 1_001, 0));
    assert_eq!(load(4_000, "llm", "10/min"), (0, 0, 1_001, 0));
    assert_eq!(load(4_000, "llm/tokens", "budget 1_000/day"), (0, 0, 1_001, 0));
    // With a limit below what was used, nothing is left.
    assert_eq!(load(4_000, "llm", "budget 1/day"), (1_000, 0, 1, 0));
}

#[test]
fn an_invalid_file_is_refused_and_left_alone() {
    let (directory, path) = file();
    let limiter = builder(&[("llm", "budget 1_000/day")]).build().unwrap();
    let good = r#"{"version": 1, "calendar": 0, "agents": [{"agent": "a", "budgets": {"llm": {"window": "day", "until": 86400, "used": 5}}}]}"#;
    for (text, expected) in [
        (&good[..good.len() - 9], "DIR/budgets.json:1:114: the file is cut off: EOF while parsing a string"),
        ("\0\0\0", "DIR/budgets.json:1:1: expected value"),
        ("", "DIR/budgets.json:1:1: the file is cut off: EOF while parsing a value"),
        (&good.replace(": 1,", ": 7,"), "DIR/budgets.json:1:13: version 7; this build reads version 1"),
        (
            &good.replace("86400", "86399"),
            "DIR/budgets.json:1:103: agent \"a\": no day ends then; give the second at which the next one begins",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let error = limiter.keep_budgets_in(&path).unwrap_err();
        let advice = "; correct the file, or move it away to start without it";
        assert_eq!(message(&error, &directory), format!("{expected}{advice}"));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(matches!(limiter.save_budgets(), Err(PersistError::NotKept)));
        assert_eq!(used(&limiter, "a", LLM), 0);
    }
    fs::write(&path, good).unwrap();
    assert_eq!(limiter.keep_budgets_in(&path).unwrap().loaded, 1);
    assert_eq!(used(&limiter, "a", LLM), 5);
}

#[test]
fn a_file_has_one_writer_and_no_edit_is_overwritten() {
    let (directory, path) = file();
    let (limiter, _) = start(&path, MORNING);
    let other = builder(&[("llm", "budget 1_000/day")]).build().unwrap();
    let error = other.keep_budgets_in(&path).unwrap_err();
    assert!(matches!(error, PersistError::InUse { .. }), "{error}");
    assert!(matches!(limiter.keep_budgets_in(&path), Err(PersistError::InUse { .. })), "nor twice");
    assert!(other.keep_budgets_in(directory.path().join("no/budgets.json")).is_err());

    spend(&limiter, "a", LLM, 700);
    limiter.save_budgets().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Nothing was charged since: the file is left as it is, and a deleted one is written again.
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    limiter.save_budgets().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    fs::remove_file(&path).unwrap();
    limiter.save_budgets().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("700", "7")).unwrap();
    spend(&limiter, "a", LLM, 1);
    let error = limiter.save_budgets().unwrap_err();
    assert!(matches!(error, PersistError::Changed { .. }), "{error}");
    assert!(fs::read_to_string(&path).unwrap().contains("\"used\": 7}"));
}
