//! What passes, judged from outside: threads call everything at once on a
//! moving clock, with stale instants, and then a judge that knows only what is
//! promised reads their logs.
//!
//! - Over every pair of instants, a bucket admits at most its capacity plus the refill.
//! - One that admits larger costs on credit admits the excess of one request on top.
//! - An exact window admits at most its count in any trailing window; a window
//!   at most what its documentation states.
//! - A budget admits at most its count per day.
//! - A held lane never has more slots in use than its limit.
//! - A total admits over all lanes together what it would admit on one.
//!
//! Nothing here knows how the engine works. Threads make every run different;
//! the seed that a failure prints repeats the calls, not their order.
//!
//! `cargo test --profile stress --test oracle -- --ignored` runs the long form.

mod judge;
#[path = "../common/random.rs"]
mod random;
mod run;
mod worker;

use judge::judge;
use run::{Mix, Total, run};

/// Rounds of a short run, each with a new limiter.
const SHORT: u64 = 300;
const LONG: u64 = 20_000;

fn rounds(name: &str, mix: Mix, rounds: u64) {
    let mut admitted = 0;
    for seed in 0..rounds {
        let log = run(mix, seed);
        admitted += log.charges.len();
        assert_eq!(judge(&log), Ok(()), "{name}, seed {seed}");
    }
    assert!(admitted as u64 > rounds * 20, "{name}: hardly anything passed: {admitted}");
}

macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident, $long:ident: $mix:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            rounds(stringify!($name), $mix, SHORT);
        }

        #[test]
        #[ignore = "the long form, run by `make long`"]
        fn $long() {
            rounds(stringify!($name), $mix, LONG);
        }
    )*};
}

const QUIET: Mix = Mix {
    stale: false,
    all: false,
    settle: false,
    refund: false,
    hold: false,
    control: false,
    crowd: false,
    total: Total::None,
};

const EVERYTHING: Mix = Mix {
    stale: true,
    all: true,
    settle: true,
    refund: true,
    hold: true,
    control: true,
    crowd: true,
    total: Total::None,
};

scenarios! {
    /// Checks and batches only: the basis of all the others.
    checks, checks_long: QUIET;
    /// A denied call that had charged some of its parts gave back more than it had taken.
    all_or_none, all_or_none_long: Mix { all: true, ..QUIET };
    all_or_none_with_stale_instants, all_or_none_with_stale_instants_long: Mix { all: true, stale: true, ..QUIET };
    settlements, settlements_long: Mix { settle: true, ..QUIET };
    /// A cancel at an old instant gave back what had already refilled.
    settlements_with_stale_instants, settlements_with_stale_instants_long: Mix { settle: true, stale: true, ..QUIET };
    /// Tokens that a reset had forgiven came back again with the reservation.
    settlements_after_changes, settlements_after_changes_long: Mix { settle: true, control: true, ..QUIET };
    /// A denied call took back what a reset had forgiven, and others had spent since.
    all_or_none_through_changes, all_or_none_through_changes_long: Mix { all: true, control: true, ..QUIET };
    /// A slot was granted again after its agent was forgotten, though its holder was still there.
    held_slots_through_changes, held_slots_through_changes_long: Mix { hold: true, control: true, ..QUIET };
    /// A call at an old instant was denied before a sweep and allowed after it.
    stale_instants_in_a_crowd, stale_instants_in_a_crowd_long: Mix { stale: true, crowd: true, ..QUIET };
    everything, everything_long: EVERYTHING;
    /// An agent got everything that each of its lanes had, whatever its plan's total allowed.
    a_total, a_total_long: Mix { total: Total::Bucket, ..QUIET };
    a_total_of_several_parts, a_total_of_several_parts_long:
        Mix { total: Total::Bucket, all: true, stale: true, ..QUIET };
    a_total_of_settlements, a_total_of_settlements_long:
        Mix { total: Total::Bucket, settle: true, control: true, ..QUIET };
    a_total_that_is_a_window, a_total_that_is_a_window_long: Mix { total: Total::Window, all: true, ..QUIET };
    everything_in_a_total, everything_in_a_total_long: Mix { total: Total::Bucket, ..EVERYTHING };
}
