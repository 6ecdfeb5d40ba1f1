//! A process that is killed while it saves.

use super::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

/// Charges one at a time, saves after every tenth, and reports the number of
/// charges before and after each save. Runs until it is killed.
fn charge_until_killed(path: &Path) {
    let (limiter, _) = start_of_many(path);
    for number in used(&limiter, "a", LLM) + 1.. {
        spend(&limiter, "a", LLM, 1);
        if number % 10 == 0 {
            let report = |what| std::io::stderr().write_all(format!("{what} {number}\n").as_bytes()).expect("a pipe");
            report("saving");
            limiter.save_budgets().expect("there is room");
            report("saved");
        }
    }
}

fn start_of_many(path: &Path) -> (Limiter, BudgetsLoaded) {
    let wall = ManualWallClock::new(MORNING);
    let limiter = builder(&[("llm", "budget 1_000_000_000/day")]).wall_clock(wall).build().expect("a small slab");
    let loaded = limiter.keep_budgets_in(path).expect("the file always loads");
    (limiter, loaded)
}

/// A killed process loses what it charged since the last save that returned: at
/// most the nine charges before the next one and the ten during it.
#[test]
fn a_killed_process_loses_at_most_what_it_charged_since_its_last_save() {
    if let Some(path) = child::argument() {
        return charge_until_killed(&path);
    }
    let (_directory, path) = file();
    let mut total = 0;
    for round in 0..20_u64 {
        let mut writer =
            child::command("killed::a_killed_process_loses_at_most_what_it_charged_since_its_last_save", &path)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("this program again");
        let mut reports = BufReader::new(writer.stderr.take().expect("piped above"));
        let mut report = String::new();
        // Some saves, then a kill at a random moment.
        for _ in 0..=2 * (round % 5) {
            reports.read_line(&mut report).expect("a pipe");
        }
        writer.kill().expect("a child that has not been waited for");
        assert_eq!(writer.wait().expect("a child").signal(), Some(libc::SIGKILL), "it ended on its own: {report}");
        // Ends with the pipe, whose other end is closed.
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
