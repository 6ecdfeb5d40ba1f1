//! Used budgets across restarts.

#![cfg(feature = "persist")]

#[path = "../common/child.rs"]
mod child;
#[path = "../common/killed.rs"]
mod child_killed;
#[path = "../common/directory.rs"]
mod directory;
mod growing;
mod killed;
mod refused;

use directory::Directory;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate::clock::ManualWallClock;
use tollgate::keep::BudgetsLoaded;
use tollgate::observe::Observe;
use tollgate::{LaneId, Limiter, LimiterBuilder, ManualClock, Policy, Request};

const LLM: LaneId = LaneId::new(0);
/// 15 January 2027, 08:00 UTC.
const MORNING: Duration = Duration::from_secs(1_800_000_000);
const ONE_DAY: Duration = Duration::from_secs(86_400);

/// The path of a file of budgets, in a directory for this test.
fn file() -> (Directory, PathBuf) {
    let directory = Directory::new();
    let path = directory.path().join("budgets.json");
    (directory, path)
}

fn builder(text: &[(&str, &str)]) -> LimiterBuilder {
    let policy = text.iter().fold(Policy::builder(), |policy, (lane, limit)| policy.lane(*lane, *limit));
    Limiter::builder(policy.build().expect("limits of the allowed range")).agents(100).clock(ManualClock::new())
}

/// The limiter of a new process: its clock starts at the origin, the wall clock continues.
fn start(path: &Path, wall: Duration) -> (Limiter, BudgetsLoaded) {
    let lanes = [("llm", "budget 1_000/day"), ("images", "budget 50/month"), ("http", "10/min")];
    let limiter = builder(&lanes).wall_clock(ManualWallClock::new(wall)).build().expect("a small slab");
    let loaded = limiter.keep_budgets_in(path).expect("a valid file");
    (limiter, loaded)
}

fn used(limiter: &Limiter, agent: impl AsRef<[u8]>, lane: LaneId) -> u64 {
    let status = limiter.peek(Request::new(&agent, lane)).expect("a lane of the policy");
    status.capacity() - status.remaining()
}

fn spend(limiter: &Limiter, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64) {
    assert!(
        limiter.check_request(Request::new(&agent, lane).cost(cost)).expect("a cost within the limit").is_allowed()
    );
}

/// A total that is a budget is kept like any other, though no request names it.
#[test]
fn a_total_survives_a_restart() {
    let (_directory, path) = file();
    let start = |path: &Path| {
        let lanes = [("http", "100/min"), ("search", "100/min"), ("total", "budget 50/day")];
        let limiter = builder(&lanes).wall_clock(ManualWallClock::new(MORNING)).build().expect("a small slab");
        limiter.keep_budgets_in(path).expect("a valid file");
        limiter
    };
    let [http, search, total] = [0, 1, 2].map(LaneId::new);
    let limiter = start(&path);
    spend(&limiter, "a", http, 20);
    spend(&limiter, "a", search, 15);
    limiter.save_budgets().expect("a file that can be written");
    drop(limiter);
    let limiter = start(&path);
    assert_eq!(used(&limiter, "a", total), 35);
    assert!(!limiter.check_request(Request::new("a", http).cost(16)).expect("a cost within the limit").is_allowed());
    spend(&limiter, "a", search, 15);
}

#[test]
fn a_restart_after_a_save_loses_nothing() {
    let (directory, path) = file();
    let images = LaneId::new(1);
    let (limiter, loaded) = start(&path, MORNING);
    assert_eq!(loaded, BudgetsLoaded::default());
    spend(&limiter, "a", LLM, 700);
    spend(&limiter, "a", images, 3);
    spend(&limiter, b"\xff\n", LLM, 1);
    spend(&limiter, "only a bucket", LaneId::new(2), 5);
    spend(&limiter, "refunded", LLM, 5);
    limiter.refund(Request::new("refunded", LLM).cost(5)).unwrap();
    let reserved = limiter.reserve(Request::new("reserved", LLM).cost(100), Duration::from_secs(60)).unwrap();
    assert!(reserved.id().is_some());
    let saved = limiter.save_budgets().unwrap();
    assert_eq!((saved.saved, saved.unsaved), (4, 0));
    drop(limiter);

    let (limiter, loaded) = start(&path, MORNING + Duration::from_secs(3_600));
    assert_eq!((loaded.loaded, loaded.ended, loaded.unknown, loaded.full), (4, 0, 0, 0));
    assert_eq!(loaded.ahead, Duration::ZERO);
    assert_eq!((used(&limiter, "a", LLM), used(&limiter, "a", images)), (700, 3));
    assert_eq!((used(&limiter, b"\xff\n", LLM), used(&limiter, "refunded", LLM)), (1, 0));
    // Nobody is left to settle a reservation: it stays charged, as if it had expired.
    assert_eq!(used(&limiter, "reserved", LLM), 100);
    assert_eq!(used(&limiter, "only a bucket", LaneId::new(2)), 0);
    // Only the rest can be spent, and it keeps counting.
    assert!(!limiter.check_request(Request::new("a", LLM).cost(301)).unwrap().is_allowed());
    spend(&limiter, "a", LLM, 300);
    limiter.save_budgets().unwrap();
    drop(limiter);
    let (limiter, _) = start(&path, MORNING + Duration::from_secs(7_200));
    assert_eq!(used(&limiter, "a", LLM), 1_000);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "the file and its lock");
}

#[test]
fn a_window_that_is_over_is_not_reopened() {
    let (_directory, path) = file();
    let (limiter, _) = start(&path, MORNING);
    spend(&limiter, "a", LLM, 700);
    spend(&limiter, "a", LaneId::new(1), 3);
    limiter.save_budgets().unwrap();
    drop(limiter);
    let (limiter, loaded) = start(&path, MORNING + ONE_DAY);
    assert_eq!((loaded.loaded, loaded.ended), (1, 1));
    assert_eq!((used(&limiter, "a", LLM), used(&limiter, "a", LaneId::new(1))), (0, 3));
    limiter.save_budgets().unwrap();
    assert!(!fs::read_to_string(&path).unwrap().contains("llm"), "a window that is over is not saved");
}

/// The second day began, then the clock was set back to the first between two
/// runs. Neither what "a" used on the second day nor what "b" used on the first
/// can be spent again.
#[test]
fn a_wall_clock_set_back_between_two_runs_reopens_no_window() {
    let (_directory, path) = file();
    let wall = ManualWallClock::new(MORNING);
    let limiter = builder(&[("llm", "budget 1_000/day")]).wall_clock(wall.clone()).build().unwrap();
    limiter.keep_budgets_in(&path).unwrap();
    spend(&limiter, "b", LLM, 1_000);
    wall.set(MORNING + ONE_DAY);
    spend(&limiter, "a", LLM, 700);
    limiter.save_budgets().unwrap();
    drop(limiter);

    let (limiter, loaded) = start(&path, MORNING);
    assert_eq!((loaded.loaded, loaded.ahead), (1, ONE_DAY));
    assert_eq!(used(&limiter, "a", LLM), 700);
    // The calendar stays in the second day: its windows end with that day.
    spend(&limiter, "b", LLM, 1);
    let until_midnight = Duration::from_secs(16 * 3_600);
    assert_eq!(limiter.peek(Request::new("b", LLM)).unwrap().full_in(), until_midnight);
}

/// Without a wall clock, the limiter's own clock counts from 1970, and restarts there.
#[test]
fn a_clock_that_restarts_continues_from_the_file() {
    let (_directory, path) = file();
    let clock = ManualClock::new();
    let lanes = [("llm", "budget 1_000/day")];
    let limiter = builder(&lanes).clock(clock.clone()).build().unwrap();
    limiter.keep_budgets_in(&path).unwrap();
    clock.advance(5 * ONE_DAY);
    spend(&limiter, "a", LLM, 700);
    limiter.save_budgets().unwrap();
    drop(limiter);
    let limiter = builder(&lanes).build().unwrap();
    assert_eq!(limiter.keep_budgets_in(&path).unwrap().ahead, 5 * ONE_DAY);
    assert_eq!(used(&limiter, "a", LLM), 700);
}

/// An agent with a used budget keeps its record and its id, whatever other
/// agents come and go; one that is forgotten is no longer saved.
#[test]
fn ids_follow_their_records() {
    // A roster for some agents, or for all.
    follow_records(10);
    follow_records(1_000);
}

fn follow_records(roster: usize) {
    let (_directory, path) = file();
    let clock = ManualClock::new();
    let lanes = [("llm", "budget 1_000/day"), ("http", "10/min")];
    let limiter =
        builder(&lanes).agents(1).clock(clock.clone()).observe(Observe::new().roster(roster)).build().expect("valid");
    let before = limiter.memory();
    limiter.keep_budgets_in(&path).expect("valid");
    // Unless there is room for all of them already: 272 bytes and a bit for each record, plus what the file contains.
    let more = if (roster as u64) < limiter.stats().records { 96 * 272 + 2 * 8 } else { 0 };
    assert_eq!(limiter.memory() - before, more + 96 * 24);
    for agent in 0..40 {
        spend(&limiter, format!("keeps-{agent}"), LLM, agent + 1);
    }
    // More agents than records, each idle after a minute.
    for agent in 0..500 {
        spend(&limiter, format!("passes-{agent}"), LaneId::new(1), 1);
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(limiter.forget("keeps-0"), Ok(true));
    assert_eq!(limiter.save_budgets().expect("valid").saved, 39);
    drop(limiter);
    let limiter = builder(&lanes).build().expect("valid");
    assert_eq!(limiter.keep_budgets_in(&path).expect("valid").loaded, 39);
    for agent in 0..40 {
        assert_eq!(used(&limiter, format!("keeps-{agent}"), LLM), if agent == 0 { 0 } else { agent + 1 });
    }
}

/// A request arrived before the file was loaded: both count.
#[test]
fn what_was_charged_before_the_file_was_loaded_is_added_to_it() {
    let (_directory, path) = file();
    let limiter = || builder(&[("llm", "budget 1_000/day")]).build().expect("a small slab");
    let first = limiter();
    first.keep_budgets_in(&path).unwrap();
    spend(&first, "a", LLM, 700);
    first.save_budgets().unwrap();
    drop(first);
    let second = limiter();
    spend(&second, "a", LLM, 200);
    assert_eq!(second.keep_budgets_in(&path).unwrap().loaded, 1);
    assert_eq!(used(&second, "a", LLM), 900);
}
