//! A process that saves assignments is killed at random moments, again and
//! again. The file always loads, and holds the last change whose call
//! returned, or the one whose call had not returned yet.
//!
//! A killed process loses nothing that it gave to the system, so this shows
//! that the file is replaced in one step. That it also outlives a power
//! failure rests on the order of the syncs in `src/keep/replace.rs`.

#![cfg(feature = "persist")]

#[path = "common/child.rs"]
mod child;
#[path = "common/directory.rs"]
mod directory;
#[path = "common/random.rs"]
mod random;

use directory::Directory;
use random::Random;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tollgate::keep::AssignmentFile;
use tollgate::{Assignment, Limit};

const KILLS: u32 = 200;

/// Enough that writing them takes a while.
const AGENTS: u64 = 200;

/// About what a few saves take, so that a kill hits any part of one.
const MOMENT_MICROSECONDS: u64 = 8_000;

type Agents = BTreeMap<Vec<u8>, Assignment>;

/// Changes the agent whose turn it is. The number is in what it leaves behind.
fn change(agents: &mut Agents, number: u64) {
    let turn = number % AGENTS;
    let mut id = format!("agent-{turn}").into_bytes();
    if turn % 3 == 0 {
        id.push(0xff);
    }
    let agent = agents.entry(id).or_default();
    agent.set_override("ws/heavy", Limit::per_minute(number));
    agent.set_plan((number % 2 == 0).then(|| format!("plan-{number}")));
    agent.set_exempt(number % 5 == 0);
}

/// All agents after so many changes.
fn after(changes: u64) -> Agents {
    let mut agents = Agents::new();
    (1..=changes).for_each(|number| change(&mut agents, number));
    agents
}

/// How many changes are in the file: the highest number in it.
fn changes_in(agents: &Agents) -> u64 {
    let number = |agent: &Assignment| agent.override_of("ws/heavy").map(|limit| limit.capacity());
    agents.values().filter_map(number).max().unwrap_or(0)
}

fn load(path: &Path) -> (AssignmentFile, Agents) {
    let (file, agents) = AssignmentFile::open(path).expect("the file always loads");
    (file, agents.into_iter().collect())
}

fn save(file: &mut AssignmentFile, agents: &Agents) {
    file.save(agents.iter().map(|(id, agent)| (id.as_slice(), agent))).expect("there is room");
}

/// Goes on from what the file holds, and tells the number of each change whose
/// call has returned. Ends when it is killed.
fn write_until_killed(path: &Path) {
    let (mut file, mut agents) = load(path);
    for number in changes_in(&agents) + 1.. {
        change(&mut agents, number);
        save(&mut file, &agents);
        // In one write, so that no number is told by half.
        std::io::stderr().write_all(format!("{number}\n").as_bytes()).expect("a pipe");
    }
}

#[test]
fn a_killed_writer_leaves_the_last_change_that_returned() {
    if let Some(path) = child::argument() {
        return write_until_killed(&path);
    }
    let directory = Directory::new();
    let path = directory.path().join("assignments.json");
    let temporary = directory.path().join("assignments.json.tmp");
    let mut random = Random::new(7);
    let mut held = AGENTS;
    save(&mut load(&path).0, &after(held));
    let (mut killed_in_a_save, mut not_returned) = (0, 0);
    for round in 0..KILLS {
        let mut writer = child::command("a_killed_writer_leaves_the_last_change_that_returned", &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program, once more");
        let mut reports = BufReader::new(writer.stderr.take().expect("piped above"));
        let mut report = String::new();
        // Most writers are known to be at it; some are killed while they start.
        if round % 8 != 0 {
            reports.read_line(&mut report).expect("a pipe");
        }
        std::thread::sleep(Duration::from_micros(random.below(MOMENT_MICROSECONDS)));
        writer.kill().expect("a child that has not been waited for");
        assert_eq!(writer.wait().expect("a child").signal(), Some(libc::SIGKILL), "it ended by itself: {report}");
        // Ends with the pipe, whose other end is gone.
        while reports.read_line(&mut report).expect("a pipe") > 0 {}
        let returned: u64 = report.lines().next_back().map_or(held, |last| last.parse().expect(&report));

        killed_in_a_save += u32::from(temporary.exists());
        let (file, agents) = load(&path);
        drop(file);
        held = changes_in(&agents);
        assert!(held == returned || held == returned + 1, "round {round}: {returned} returned, the file has {held}");
        assert_eq!(agents, after(held), "round {round}");
        not_returned += u32::from(held > returned);
        assert!(!temporary.exists());
    }
    println!(
        "{KILLS} kills, {held} changes; {killed_in_a_save} left a temporary file, {not_returned} a change that had not returned"
    );
    assert!(killed_in_a_save + not_returned > 0, "no writer was killed in the midst of a save");
}
