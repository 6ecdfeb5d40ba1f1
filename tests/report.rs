//! The report: its contents, and that it is replaced in one step.

#![cfg(feature = "persist")]

#[path = "common/directory.rs"]
mod directory;

use directory::Directory;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};
use tollgate::keep::PersistError;
use tollgate::observe::{Observe, REPORT_FILE};
use tollgate::{ConductRules, LaneId, Limiter, ManualClock, Policy, Request};

const WS: LaneId = LaneId::new(0);
const HTTP: LaneId = LaneId::new(1);

fn limiter(observe: Observe) -> Limiter {
    let policy = Policy::builder().lane("ws", "10/min").lane("http", "2/min").plan("pro", [("ws", "20/min")]);
    let policy = policy.conduct(ConductRules::default().with_every_denial(true));
    let builder = Limiter::builder(policy.build().expect("a valid policy")).agents(100).clock(ManualClock::new());
    builder.observe(observe).build().expect("a small slab")
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| unreachable!("{error}: {text}"))
}

#[test]
fn it_lists_offenders_the_busiest_agents_and_the_counts() {
    let limiter = limiter(Observe::new().roster(1_000));
    limiter.assign("agent-7", limiter.plan("pro").expect("a plan")).expect("valid");
    limiter.exempt("dashboard").expect("valid");
    assert!(limiter.check_request(Request::new("agent-7", WS).cost(15)).expect("valid").is_allowed());
    for _ in 0..5 {
        let _ = limiter.check_request(Request::new(b"<\xff>\n", HTTP).counted()).expect("valid");
    }
    let _ = limiter.check_request(Request::new("\"quoted\"\u{2028}", HTTP).cost(2).counted()).expect("valid");
    let _ = limiter.check_request(Request::new("\"quoted\"\u{2028}", HTTP).counted()).expect("valid");
    assert!(limiter.check("agent-7", LaneId::new(9)).is_err());

    let mut document = read(&limiter.report());
    let written = document["written_at"].take();
    assert!(written.as_str().is_some_and(|text| text.len() == 20 && text.ends_with('Z')), "{written}");
    assert_eq!(document["version"], 1);
    assert_eq!(
        document["agents"],
        json!({
            "known": 3, "records": limiter.stats().records, "assigned": 2, "overridden": 0, "exempt": 1,
            "listed": 4, "not_listed": 0
        })
    );
    let snapshot = limiter.snapshot();
    assert_eq!(
        document["checks"],
        json!({
            "total": 8, "allowed": snapshot.allowed(), "warned": snapshot.warned(), "denied": 4, "errors": 1, "full": 0
        })
    );
    assert_eq!(
        document["lanes"][1],
        json!({
            "lane": "http", "allowed": snapshot.lanes[1].allowed, "warned": snapshot.lanes[1].warned, "denied": 4, "exempt": 0
        })
    );
    assert_eq!(
        document["violations"],
        json!({
            "total": 4, "last_hour": 4, "sustained_abuse": 0, "error_max": 0, "missed": 0
        })
    );
    assert_eq!(
        document["top_offenders"],
        json!([
            {"agent": {"base64": "PP8+Cg=="}, "violations": 3, "error": 0},
            {"agent": "\"quoted\"\u{2028}", "violations": 1, "error": 0}
        ])
    );
    assert_eq!(
        document["busiest"][2],
        json!({
            "agent": "agent-7", "plan": "pro", "exempt": false, "rate_limited": false, "violations": 0, "lane": "ws",
            "used_percent": 75.0, "remaining": 5, "capacity": 20, "full_in_ms": 45_000
        })
    );
    assert_eq!(document["busiest"][0]["agent"], "\"quoted\"\u{2028}");
    assert_eq!(document["busiest"][1]["rate_limited"], true);
    assert_eq!(document["clock"], json!({"source": "manual", "fallbacks": 0}));
    assert_eq!(document["evictions"], json!({"idle": 0, "lossy": 0}));
    assert_eq!((&document["unknown_actions"], &document["events_dropped"]), (&json!(0), &json!(0)));
}

#[test]
fn it_stays_short_however_many_agents_there_are() {
    let limiter = limiter(Observe::new().roster(1_000));
    for agent in 0..100 {
        for _ in 0..4 {
            let _ = limiter.check_request(Request::new(&format!("agent-{agent}"), HTTP).counted()).expect("valid");
        }
    }
    let document = read(&limiter.report());
    assert_eq!(document["busiest"].as_array().map(Vec::len), Some(20));
    assert_eq!(document["top_offenders"].as_array().map(Vec::len), Some(20));
    assert_eq!(document["violations"]["last_hour"], 200);
    // Without a roster no agent can be listed, and the report states that.
    let limiter = self::limiter(Observe::new());
    let _ = limiter.check("agent-7", WS).expect("valid");
    let document = read(&limiter.report());
    assert_eq!((&document["busiest"], &document["agents"]["not_listed"]), (&json!([]), &json!(1)));
}

#[test]
fn it_is_replaced_in_one_step_while_others_read_it() {
    let directory = Directory::new();
    let path = directory.path().join(REPORT_FILE);
    let limiter = limiter(Observe::new().roster(100));
    limiter.write_report(&path).expect("a new file");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50 {
                let _ = limiter.check_request(Request::new(&format!("agent-{round}"), HTTP).counted()).expect("valid");
                limiter.write_report(&path).expect("nobody else writes");
            }
            done.store(true, Ordering::Relaxed);
        });
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let document = read(&fs::read_to_string(&path).expect("always there"));
            let known = document["agents"]["known"].as_u64().expect("a number");
            assert!(known >= last, "{known} after {last}");
            last = known;
        }
    });
    assert_eq!(read(&fs::read_to_string(&path).expect("there"))["agents"]["known"], 50);
    let mut names: Vec<_> =
        fs::read_dir(directory.path()).expect("there").map(|entry| entry.expect("one").file_name()).collect();
    names.sort();
    assert_eq!(names, [REPORT_FILE, &format!("{REPORT_FILE}.lock")]);
}

#[test]
fn a_killed_writers_leftovers_do_no_harm_and_a_second_writer_gets_an_error() {
    let directory = Directory::new();
    let path = directory.path().join(REPORT_FILE);
    let limiter = limiter(Observe::new());
    fs::write(directory.path().join(format!("{REPORT_FILE}.tmp")), "{\"half").expect("a file");
    limiter.write_report(&path).expect("a new file");
    read(&fs::read_to_string(&path).expect("there"));

    let lock = fs::File::open(directory.path().join(format!("{REPORT_FILE}.lock"))).expect("there");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
    let before = fs::read_to_string(&path).expect("there");
    let error = limiter.write_report(&path).expect_err("somebody else is writing");
    assert!(matches!(error, PersistError::InUse { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("there"), before);
    drop(lock);
    limiter.write_report(&path).expect("free again");

    let nowhere = directory.path().join("none").join(REPORT_FILE);
    assert!(matches!(limiter.write_report(nowhere), Err(PersistError::System { .. })));
    assert!(matches!(limiter.write_report(directory.path()), Err(PersistError::NotAFile { .. })));
}
