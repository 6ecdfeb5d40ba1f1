//! The engine's real decisions, and the real limiters of several machines, against a model of the server, in virtual
//! time: answers are late, lost, or come after their time-out; machines pause and die; the server stops, and comes back
//! with or without what it knew.
//!
//! After each admission the bound of `Bound` is compared with what all machines have admitted to an agent, in every
//! window at once: a bucket that is as much larger as the bound says must never be empty.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic names the line that failed")]

#[allow(dead_code, reason = "budgets are for the scripts")]
#[path = "../script/oracle.rs"]
mod oracle;
#[path = "../../../../tests/common/random.rs"]
mod random;
mod world;

use std::time::{Duration, Instant};
use world::{Fault, Scenario, World};

/// Runs one seed, and returns what broke.
fn run(seed: u64, fault: Option<Fault>) -> Result<world::Report, String> {
    World::new(Scenario::of(seed), fault).run()
}

/// The seeds of `make test`; the long form has a million.
const SEEDS: u64 = 2_000;

fn runs(seeds: std::ops::Range<u64>) {
    let begin = Instant::now();
    let (mut virtual_time, mut report) = (Duration::ZERO, world::Report::default());
    for seed in seeds.clone() {
        match run(seed, None) {
            Ok(of_seed) => {
                virtual_time += of_seed.time;
                report.add(&of_seed);
            }
            Err(problem) => panic!("seed {seed}: {problem}"),
        }
    }
    let real = begin.elapsed();
    println!(
        "{} seeds, {:.0} s of virtual time in {:.1} s: {:.0} x real time; {report:?}",
        seeds.end - seeds.start,
        virtual_time.as_secs_f64(),
        real.as_secs_f64(),
        virtual_time.as_secs_f64() / real.as_secs_f64()
    );
    assert!(report.losses > 0 && report.admitted > 0 && report.denied > 0 && report.seeded > 0, "{report:?}");
}

#[test]
fn no_seed_breaks_a_bound() {
    runs(0..SEEDS);
}

#[test]
#[ignore = "a million seeds: make ignored"]
fn no_seed_of_a_million_breaks_a_bound() {
    runs(0..1_000_000);
}

/// The simulator has seen each of these break.
#[test]
fn planted_faults_are_found() {
    for fault in Fault::ALL {
        let found = (0..1_000).find_map(|seed| run(seed, Some(fault)).err().map(|problem| (seed, problem)));
        let (seed, problem) = found.unwrap_or_else(|| panic!("{fault:?} was not found in 1,000 seeds"));
        println!("{fault:?}: seed {seed}: {problem}");
    }
}
