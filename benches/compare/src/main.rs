//! Measures every bar in one run and prints one table; then the cost of each
//! layout that was tried for the lookup.
//!
//! ```text
//! compare [--only hot-allowed,thousand,layouts] [--rounds N] [--batch N] [--quick] [--out FILE.md] [--svg FILE.svg]
//! ```
//!
//! Progress goes to standard error. `--quick` runs three rounds (unless
//! `--rounds` overrides that) of a quarter of the checks and skips 10 million
//! agents. A run that is not a full one is marked as such above its table.

use compare::counting::Counting;
use compare::floor::Tsc;
use compare::peers::our_clock;
use compare::rows::{Effort, Session};
use compare::{plot, report};
use std::fmt::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const USAGE: &str = "usage: compare [--only hot-allowed,thousand,layouts] [--rounds N] [--batch N] [--quick] [--out FILE.md] [--svg FILE.svg]";
const ROUNDS_MIN: usize = 7;
const ROUNDS_DEFAULT: usize = 9;
const ROUNDS_QUICK: usize = 3;
const BATCH_DEFAULT: usize = 256;

struct Arguments {
    effort: Effort,
    out: Option<String>,
    svg: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let effort =
        Effort { rounds: ROUNDS_DEFAULT, divisor: 1, batch: BATCH_DEFAULT, ten_million: true, only: Vec::new() };
    let mut parsed = Arguments { effort, out: None, svg: None };
    let mut rounds = None;
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or(format!("{argument} needs a value\n{USAGE}"));
        let number = |text: String| text.parse::<usize>().map_err(|error| format!("{text}: {error}"));
        match argument.as_str() {
            "--only" => parsed.effort.only = value()?.split(',').map(|row| row.trim().to_lowercase()).collect(),
            "--rounds" => rounds = Some(number(value()?)?.max(1)),
            "--batch" => parsed.effort.batch = number(value()?)?.clamp(1, tollgate::bounds::BATCH_MAX),
            "--quick" => {
                parsed.effort = Effort { rounds: ROUNDS_QUICK, divisor: 4, ten_million: false, ..parsed.effort };
            }
            "--out" => parsed.out = Some(value()?),
            "--svg" => parsed.svg = Some(value()?),
            _ => return Err(format!("unknown argument {argument}\n{USAGE}")),
        }
    }
    parsed.effort.rounds = rounds.unwrap_or(parsed.effort.rounds);
    Ok(parsed)
}

/// The note above the table that says why a run is not for the record.
fn caveat(effort: &Effort) -> String {
    let rounds = format!("{} rounds", effort.rounds);
    let reasons = [
        (effort.divisor > 1, "a quick run, with a quarter of the checks and without 10 million agents"),
        (effort.rounds < ROUNDS_MIN, rounds.as_str()),
        (!effort.only.is_empty(), "some rows only"),
    ];
    let reasons: Vec<&str> = reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect();
    if reasons.is_empty() {
        return String::new();
    }
    format!("**Fine for a look, not for the record: {}.**\n\n", reasons.join("; "))
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::FAILURE;
        }
    };
    let tsc = Tsc::calibrate();
    let machine = report::machine(&tsc, &our_clock());

    let caveat = caveat(&arguments.effort);
    eprint!("{caveat}");
    let mut session = Session::new(arguments.effort, tsc);
    let rows = session.rows();
    let mut text = caveat;
    if !rows.is_empty() {
        let _ = write!(
            text,
            "{}\n## Ours on other clocks and in batches, ns\n\n{}\n## Ours with the other hash\n\n{}\n## The floor\n\n{}\n## The least check\n\n{}\n## Notes\n\n{}\n",
            report::table(&rows),
            report::forms(&rows),
            report::hashes(&rows),
            report::pieces(&rows),
            report::least(&rows),
            report::notes(&rows),
        );
    }
    if let Some(layouts) = session.layouts() {
        let _ = write!(text, "## What finds the record, ns\n\n{layouts}\n");
    }
    let _ = write!(text, "## The machine\n\n{machine}| our clock when it ended | {:?} |\n", our_clock());
    println!("{text}");
    let mut saved = true;
    if let Some(path) = arguments.out {
        saved &= save(&path, &text);
    }
    if let Some(path) = arguments.svg {
        saved &= save(&path, &plot::svg(&session.sweep()));
    }
    if saved { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn save(path: &str, text: &str) -> bool {
    std::fs::write(path, text).inspect_err(|error| eprintln!("{path}: {error}")).is_ok()
}
