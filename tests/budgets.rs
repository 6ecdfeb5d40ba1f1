//! Used budgets across restarts: what is kept, what can be lost, what is refused.

#![cfg(feature = "persist")]

#[path = "common/child.rs"]
mod child;
#[path = "common/directory.rs"]
mod directory;

use directory::Directory;
use proptest::prelude::*;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tollgate::{
    BudgetsLoaded, LaneId, Limiter, LimiterBuilder, ManualClock, ManualWallClock, PersistError, Policy, Request, Sight,
};

const LLM: LaneId = LaneId::new(0);
/// 15 January 2027, 08:00 UTC.
const MORNING: Duration = Duration::from_secs(1_800_000_000);
const ONE_DAY: Duration = Duration::from_secs(86_400);

fn place() -> (Directory, PathBuf) {
    let directory = Directory::new();
    let path = directory.path().join("budgets.json");
    (directory, path)
}

fn builder(text: &[(&str, &str)]) -> LimiterBuilder {
    let policy = text.iter().fold(Policy::builder(), |policy, (lane, limit)| policy.lane(*lane, *limit));
    Limiter::builder(policy.build().expect("limits of the allowed range")).agents(100).clock(ManualClock::new())
}

/// A process's limiter: its clock starts anew, the wall clock goes on.
fn start(path: &Path, wall: Duration) -> (Limiter, BudgetsLoaded) {
    let lanes = [("llm", "budget 1_000/day"), ("images", "budget 50/month"), ("http", "10/min")];
    let limiter = builder(&lanes).wall_clock(ManualWallClock::new(wall)).build().expect("a small slab");
    let loaded = limiter.keep_budgets_in(path).expect("a file that makes sense");
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

/// A message, with the directory's path as `DIR`.
fn message(error: impl ToString, directory: &Directory) -> String {
    error.to_string().replace(directory.path().to_str().expect("a path of UTF-8"), "DIR")
}

/// A total that is a budget is kept like any other, though nobody charges it by its name.
#[test]
fn a_total_survives_a_restart() {
    let (_directory, path) = place();
    let start = |path: &Path| {
        let lanes = [("http", "100/min"), ("search", "100/min"), ("total", "budget 50/day")];
        let limiter = builder(&lanes).wall_clock(ManualWallClock::new(MORNING)).build().expect("a small slab");
        limiter.keep_budgets_in(path).expect("a file that makes sense");
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
    let (directory, path) = place();
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
    // Nobody is left to settle a reservation: it stays charged, as one whose time has passed.
    assert_eq!(used(&limiter, "reserved", LLM), 100);
    assert_eq!(used(&limiter, "only a bucket", LaneId::new(2)), 0);
    // No more than the rest, and it counts on.
    assert!(!limiter.check_request(Request::new("a", LLM).cost(301)).unwrap().is_allowed());
    spend(&limiter, "a", LLM, 300);
    limiter.save_budgets().unwrap();
    drop(limiter);
    let (limiter, _) = start(&path, MORNING + Duration::from_secs(7_200));
    assert_eq!(used(&limiter, "a", LLM), 1_000);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "the file and its lock");
}

#[test]
fn a_window_that_is_over_is_not_opened_again() {
    let (_directory, path) = place();
    let (limiter, _) = start(&path, MORNING);
    spend(&limiter, "a", LLM, 700);
    spend(&limiter, "a", LaneId::new(1), 3);
    limiter.save_budgets().unwrap();
    drop(limiter);
    let (limiter, loaded) = start(&path, MORNING + ONE_DAY);
    assert_eq!((loaded.loaded, loaded.ended), (1, 1));
    assert_eq!((used(&limiter, "a", LLM), used(&limiter, "a", LaneId::new(1))), (0, 3));
    limiter.save_budgets().unwrap();
    assert!(!fs::read_to_string(&path).unwrap().contains("llm"), "what is over is saved no more");
}

/// The second day began, and then the clock was put back to the first, while
/// nobody ran: neither what "a" used on the second day nor what "b" used on
/// the first may be had again.
#[test]
fn a_wall_clock_put_back_between_two_runs_opens_no_window_again() {
    let (_directory, path) = place();
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
    // The calendar is that of the second day: its windows end when that ends.
    spend(&limiter, "b", LLM, 1);
    let until_midnight = Duration::from_secs(16 * 3_600);
    assert_eq!(limiter.peek(Request::new("b", LLM)).unwrap().full_in(), until_midnight);
}

/// Without a wall clock the limiter's own counts from 1970, and starts there again.
#[test]
fn a_clock_that_starts_anew_goes_on_from_the_file() {
    let (_directory, path) = place();
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

#[test]
fn what_cannot_be_loaded_or_saved_is_counted() {
    let (_directory, path) = place();
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

    // Too small, and one lane has another window now, and the other another name.
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
    // A smaller limit than what was used is none left.
    assert_eq!(load(4_000, "llm", "budget 1/day"), (1_000, 0, 1, 0));
}

#[test]
fn a_file_that_makes_no_sense_is_refused_and_left_alone() {
    let (directory, path) = place();
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
fn a_file_has_one_keeper_and_no_edit_is_overwritten() {
    let (directory, path) = place();
    let (limiter, _) = start(&path, MORNING);
    let other = builder(&[("llm", "budget 1_000/day")]).build().unwrap();
    let error = other.keep_budgets_in(&path).unwrap_err();
    assert!(matches!(error, PersistError::InUse { .. }), "{error}");
    assert!(matches!(limiter.keep_budgets_in(&path), Err(PersistError::InUse { .. })), "nor twice");
    assert!(other.keep_budgets_in(directory.path().join("no/budgets.json")).is_err());

    spend(&limiter, "a", LLM, 700);
    limiter.save_budgets().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    // Nothing was charged since: the file is left as it is, and one that is gone is written again.
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

/// An agent whose budget is used keeps its record and its id, whoever comes
/// and goes beside it; one that is forgotten is saved no more.
#[test]
fn ids_follow_their_records() {
    // A roster of some agents, or of all.
    follow_records(10);
    follow_records(1_000);
}

fn follow_records(roster: usize) {
    let (_directory, path) = place();
    let clock = ManualClock::new();
    let lanes = [("llm", "budget 1_000/day"), ("http", "10/min")];
    let limiter = builder(&lanes)
        .agents(1)
        .clock(clock.clone())
        .sight(Sight::new().roster(roster))
        .build()
        .expect("no mistake in it");
    let before = limiter.memory();
    limiter.keep_budgets_in(&path).expect("no mistake in it");
    // Unless there is room for all of them already, 272 bytes for each record and a bit; and what the file says.
    let more = if (roster as u64) < limiter.stats().records { 96 * 272 + 2 * 8 } else { 0 };
    assert_eq!(limiter.memory() - before, more + 96 * 24);
    for agent in 0..40 {
        spend(&limiter, format!("keeps-{agent}"), LLM, agent + 1);
    }
    // More than there are records, each idle after a minute.
    for agent in 0..500 {
        spend(&limiter, format!("passes-{agent}"), LaneId::new(1), 1);
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(limiter.forget("keeps-0"), Ok(true));
    assert_eq!(limiter.save_budgets().expect("no mistake in it").saved, 39);
    drop(limiter);
    let limiter = builder(&lanes).build().expect("no mistake in it");
    assert_eq!(limiter.keep_budgets_in(&path).expect("no mistake in it").loaded, 39);
    for agent in 0..40 {
        assert_eq!(used(&limiter, format!("keeps-{agent}"), LLM), if agent == 0 { 0 } else { agent + 1 });
    }
}

/// A limiter whose file is large: lines are added to it. Ids are long, so that few agents are many bytes.
fn start_large(path: &Path) -> (Limiter, BudgetsLoaded) {
    let lanes = [("llm", "budget 1_000/day"), ("images", "budget 1_000/month"), ("http", "10/min")];
    let wall = ManualWallClock::new(MORNING);
    let limiter = builder(&lanes).agents(500).wall_clock(wall).build().expect("a small slab");
    let loaded = limiter.keep_budgets_in(path).expect("a file that makes sense");
    (limiter, loaded)
}

fn long_id(number: u64) -> String {
    format!("{number:0256}")
}

/// Makes the file large.
fn fill(limiter: &Limiter) {
    (0..LARGE).for_each(|number| spend(limiter, long_id(number), LLM, 1));
    limiter.save_budgets().expect("there is room");
}

const LARGE: u64 = 250;

/// Every save wrote every budget: 111 MB for one check among a million agents.
#[test]
fn a_save_writes_what_has_changed() {
    let (_directory, path) = place();
    let (limiter, _) = start_large(&path);
    fill(&limiter);
    let look = || fs::metadata(&path).map(|file| (file.ino(), file.len())).unwrap();
    let (inode, bytes) = look();
    spend(&limiter, "a", LLM, 7);
    spend(&limiter, long_id(3), LaneId::new(1), 2);
    assert_eq!(limiter.save_budgets().unwrap().saved, LARGE + 2);
    let (same, more) = look();
    assert_eq!(same, inode, "not replaced");
    assert!((100..800).contains(&(more - bytes)), "{bytes} and then {more}");
    // What is said already is not said again.
    assert_eq!(limiter.save_budgets().unwrap().saved, LARGE + 2);
    assert_eq!(look(), (inode, more));
    limiter.refund(Request::new("a", LLM).cost(7)).unwrap();
    assert_eq!(limiter.save_budgets().unwrap().saved, LARGE + 1);
    drop(limiter);
    let (limiter, loaded) = start_large(&path);
    assert_eq!((loaded.loaded, loaded.ended, loaded.unknown, loaded.full), (LARGE + 1, 0, 0, 0));
    assert_eq!((used(&limiter, "a", LLM), used(&limiter, long_id(3), LaneId::new(1))), (0, 2));
    // The file does not grow without end.
    for round in 0..2_000 {
        spend(&limiter, "a", LaneId::new(1), 1);
        if round % 500 == 499 {
            limiter.reset("a").unwrap();
        }
        limiter.save_budgets().unwrap();
        assert!(look().1 <= 2 * bytes + 1_000, "{round}");
    }
    assert_ne!(look().0, inode);
}

/// An agent that is forgotten, and whose record another agent has since, has
/// no id there any more. It must not be found in the file again all the same.
#[test]
fn who_lost_a_record_between_two_saves_is_saved_as_it_is() {
    let (_directory, path) = place();
    let (limiter, _) = start_large(&path);
    fill(&limiter);
    let inode = fs::metadata(&path).unwrap().ino();
    (0..LARGE)
        .filter(|number| number % 3 == 0)
        .for_each(|number| assert_eq!(limiter.forget(&long_id(number)), Ok(true)));
    // Every record there is goes to somebody else.
    for other in 0..2_000 {
        let _ = limiter.check(format!("other-{other}"), LaneId::new(2)).unwrap();
    }
    // Some are back, elsewhere perhaps.
    (0..LARGE).filter(|number| number % 15 == 0).for_each(|number| spend(&limiter, long_id(number), LLM, 5));
    limiter.save_budgets().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "not replaced");
    drop(limiter);
    let (limiter, _) = start_large(&path);
    for number in 0..LARGE {
        let expected =
            [(15, 5), (3, 0), (1, 1)].into_iter().find(|(every, _)| number % every == 0).map(|(_, used)| used);
        assert_eq!(Some(used(&limiter, long_id(number), LLM)), expected, "{number}");
    }
}

/// The machine stopped in the midst of a save: what was saved before is there.
#[test]
fn a_line_that_was_cut_short_is_left_out() {
    let (_directory, path) = place();
    let (limiter, _) = start_large(&path);
    fill(&limiter);
    spend(&limiter, "a", LLM, 7);
    limiter.save_budgets().unwrap();
    let before = fs::read(&path).unwrap().len();
    spend(&limiter, "a", LLM, 10);
    limiter.save_budgets().unwrap();
    let text = fs::read(&path).unwrap();
    drop(limiter);
    for cut in (before..text.len()).step_by(7).chain([text.len() - 1]) {
        fs::write(&path, &text[..cut]).unwrap();
        let (limiter, _) = start_large(&path);
        let kept = used(&limiter, "a", LLM);
        assert!(kept == 7 || (kept == 17 && cut + 1 == text.len()), "{kept} of the first {cut} bytes");
        // And the next save is none that is cut short.
        spend(&limiter, "b", LLM, 1);
        limiter.save_budgets().unwrap();
        drop(limiter);
        assert_eq!(used(&start_large(&path).0, "b", LLM), 1);
    }
    let edited = String::from_utf8(text).unwrap().replace("\"used\": 7}", "\"used\": 6}");
    fs::write(&path, edited).unwrap();
    let limiter = builder(&[("llm", "budget 1_000/day")]).build().unwrap();
    let error = limiter.keep_budgets_in(&path).unwrap_err();
    let expected = "the line is not as it was written; if somebody edited it, take its \"sum\" away";
    assert!(error.to_string().contains(expected), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Any charges, saves and restarts: what is used is what a ledger says that
    /// goes back to the last save at each restart without one.
    #[test]
    fn a_restart_goes_back_to_the_last_save(
        acts in prop::collection::vec((0..4_usize, 1..400_u64, 0..12_u8), 1..60),
        is_large: bool,
    ) {
        let (_directory, path) = place();
        let start = |path| if is_large { start_large(path) } else { start(path, MORNING) };
        let (mut limiter, _) = start(&path);
        if is_large {
            fill(&limiter);
        }
        let (mut ledger, mut saved) = ([0; 4], [0; 4]);
        for (agent, cost, act) in acts {
            match act {
                0 => {
                    limiter.save_budgets().unwrap();
                    saved = ledger;
                }
                1 => {
                    drop(limiter);
                    limiter = start(&path).0;
                    ledger = saved;
                }
                3 => {
                    limiter.forget(&format!("{agent}")).unwrap();
                    ledger[agent] = 0;
                }
                2 => {
                    limiter.refund(Request::new(&format!("{agent}"), LLM).cost(cost)).unwrap();
                    ledger[agent] -= cost.min(ledger[agent]);
                }
                _ => {
                    let fits = ledger[agent] + cost <= 1_000;
                    prop_assert_eq!(limiter.check_request(Request::new(&format!("{agent}"), LLM).cost(cost)).unwrap().is_allowed(), fits);
                    ledger[agent] += if fits { cost } else { 0 };
                }
            }
            for (agent, expected) in ledger.iter().enumerate() {
                prop_assert_eq!(used(&limiter, format!("{agent}"), LLM), *expected);
            }
        }
    }
}

/// Charges one at a time, saves after every tenth, and tells how many were
/// saved before each save and after it. Ends when it is killed.
fn charge_until_killed(path: &Path) {
    let (limiter, _) = start_of_many(path);
    for number in used(&limiter, "a", LLM) + 1.. {
        spend(&limiter, "a", LLM, 1);
        if number % 10 == 0 {
            let tell = |what| std::io::stderr().write_all(format!("{what} {number}\n").as_bytes()).expect("a pipe");
            tell("saving");
            limiter.save_budgets().expect("there is room");
            tell("saved");
        }
    }
}

fn start_of_many(path: &Path) -> (Limiter, BudgetsLoaded) {
    let wall = ManualWallClock::new(MORNING);
    let limiter = builder(&[("llm", "budget 1_000_000_000/day")]).wall_clock(wall).build().expect("a small slab");
    let loaded = limiter.keep_budgets_in(path).expect("the file always loads");
    (limiter, loaded)
}

/// What a killed process loses is what it charged since the last save that
/// returned: at most the nine charges before the next and the ten during it.
#[test]
fn a_killed_process_loses_at_most_what_it_charged_since_its_last_save() {
    if let Some(path) = child::argument() {
        return charge_until_killed(&path);
    }
    let (_directory, path) = place();
    let mut total = 0;
    for round in 0..20_u64 {
        let mut writer = child::command("a_killed_process_loses_at_most_what_it_charged_since_its_last_save", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program, once more");
        let mut reports = BufReader::new(writer.stderr.take().expect("piped above"));
        let mut report = String::new();
        // Some saves, then killed at whichever moment it is at.
        for _ in 0..=2 * (round % 5) {
            reports.read_line(&mut report).expect("a pipe");
        }
        writer.kill().expect("a child that has not been waited for");
        assert_eq!(writer.wait().expect("a child").signal(), Some(libc::SIGKILL), "it ended by itself: {report}");
        // Ends with the pipe, whose other end is gone.
        while reports.read_line(&mut report).expect("a pipe") > 0 {}
        let last = |what: &str| {
            let numbers = report.lines().filter_map(|line| line.strip_prefix(what)?.trim().parse::<u64>().ok());
            numbers.max().unwrap_or(total)
        };
        let (returned, begun) = (last("saved "), last("saving "));
        let kept = used(&start_of_many(&path).0, "a", LLM);
        assert!((returned..=begun).contains(&kept), "round {round}: {kept} kept of {report}");
        total = kept;
    }
    assert!(total > 0, "no save was ever made");
}

/// A request that was faster than the file: both count.
#[test]
fn what_was_charged_before_the_file_was_loaded_counts_beside_it() {
    let (_directory, path) = place();
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
