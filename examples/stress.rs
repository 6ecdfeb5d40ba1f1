//! The stress tests as a plain program, for ThreadSanitizer, which reports
//! false races in the test harness.
//!
//! `cargo run --profile stress --example stress -- 1000000` makes that many
//! calls of each form. With far fewer than 300,000 there may be too little
//! contention for the run to count.

#[path = "../tests/common/changes.rs"]
mod changes;
#[path = "../tests/common/duel.rs"]
mod duel;
#[path = "../tests/common/random.rs"]
mod random;
#[path = "../tests/common/real_time.rs"]
mod real_time;
#[path = "../tests/common/rounds.rs"]
mod rounds;

use rounds::{Form, Run};
use std::time::Duration;
use tollgate::OnFull;

fn main() {
    let calls = std::env::args().nth(1).map_or(1_000_000, |calls| calls.parse().expect("a number of calls"));
    let forms = [
        (Form::Roomy, OnFull::Deny),
        (Form::Crowded, OnFull::Deny),
        (Form::Stale, OnFull::Deny),
        (Form::Crowded, OnFull::Evict),
    ];
    for (form, on_full) in forms {
        let report = rounds::stress(Run { form, on_full, calls, seed: calls });
        println!("{form:?}, {on_full:?}: {report:?}");
        report.assert_contended();
    }
    println!("duel: {:?}", duel::duel(calls));
    let report = changes::stress(calls);
    println!("changes: {report:?}");
    assert!(report.retries > 0);
    let report = real_time::stress(Duration::from_millis(200));
    println!("real time: {report:?}");
    assert!(report.admitted <= report.entitled && report.stats.idle_evictions > 0);
}
