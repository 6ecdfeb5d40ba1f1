//! A process that is killed while it saves.

use super::*;
use std::io::Write as _;

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
        // Some saves, then a kill at a random moment.
        let test = "killed::a_killed_process_loses_at_most_what_it_charged_since_its_last_save";
        let report = child_killed::reports(test, &path, 1 + 2 * (round % 5), Duration::ZERO);
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
