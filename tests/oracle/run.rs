//! A round: a limiter, threads that call it, and the log they keep.

use super::judge::{Charge, Cut, Refund};
use super::random::Random;
use super::worker::Worker;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tollgate::clock::ManualWallClock;
use tollgate::{Limiter, ManualClock, OnFull, Policy};

pub(crate) const BUCKET: u32 = 0;
pub(crate) const WINDOW: u32 = 1;
pub(crate) const EXACT: u32 = 2;
pub(crate) const BUDGET: u32 = 3;
pub(crate) const HELD: u32 = 4;
/// A bucket that takes a cost above its capacity on credit.
pub(crate) const DEBT: u32 = 5;
/// Of all lanes but the held one, if there is a total.
pub(crate) const TOTAL: u32 = 6;

const THREADS: usize = 3;
pub(super) const AGENTS: usize = 2;

/// What a policy says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) capacity: u64,
    /// Nanoseconds a token.
    pub(crate) token: u64,
    pub(crate) window: u64,
    pub(crate) exact: u64,
    /// Of both windows, in nanoseconds.
    pub(crate) length: u64,
    pub(crate) budget: u64,
    pub(crate) held: u64,
    pub(crate) total: u64,
    /// Nanoseconds a token of the total.
    pub(crate) total_token: u64,
}

pub(super) const PLAIN: Numbers = Numbers {
    capacity: 40,
    token: 10_000,
    window: 20,
    exact: 5,
    length: 1_000_000,
    budget: 200,
    held: 3,
    total: 45,
    total_token: 15_000,
};
/// A plan of other numbers, whose tokens are dearer.
pub(super) const OTHER: Numbers = Numbers {
    capacity: 30,
    token: 200_000,
    window: 12,
    exact: 3,
    budget: 150,
    total: 36,
    total_token: 40_000,
    ..PLAIN
};

/// What threads do beside checks and batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Calls with an instant of the past.
    pub(crate) stale: bool,
    pub(crate) all: bool,
    pub(crate) settle: bool,
    pub(crate) refund: bool,
    pub(crate) hold: bool,
    /// Resets, forgets, plans, overrides.
    pub(crate) control: bool,
    /// Newcomers in a tiny slab, and sweeps.
    pub(crate) crowd: bool,
    /// One limit over all lanes.
    pub(crate) total: Total,
}

/// Whether plans have a total, and of which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    None,
    Bucket,
    Window,
}

/// What passed in a round, and what else happened to it.
pub(crate) struct Log {
    pub(crate) agents: usize,
    pub(crate) total: Total,
    /// The numbers at first.
    pub(crate) numbers: Numbers,
    pub(crate) charges: Vec<Charge>,
    pub(crate) refunds: Vec<Refund>,
    pub(crate) cuts: Vec<Cut>,
    /// The most slots that an agent held at once.
    pub(crate) held_most: Vec<u64>,
}

/// What the threads of a round share.
pub(super) struct Round {
    pub(super) limiter: Limiter,
    pub(super) clock: ManualClock,
    pub(super) calls: AtomicU64,
    pub(super) held: [AtomicU64; AGENTS],
    pub(super) held_most: [AtomicU64; AGENTS],
    /// Control calls of an agent take turns here, so that cuts do not overlap.
    pub(super) numbers: [Mutex<Numbers>; AGENTS],
}

pub(crate) fn run(mix: Mix, seed: u64) -> Log {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(10));
    let limiter = Limiter::builder(policy(mix.total))
        .agents(if mix.crowd { 8 } else { 1_000 })
        .on_full(OnFull::Deny)
        .clock(clock.clone())
        .wall_clock(ManualWallClock::new(Duration::from_secs(1_800_000_000)))
        .build()
        .expect("a small slab");
    let round = Round {
        limiter,
        clock,
        calls: AtomicU64::new(1),
        held: Default::default(),
        held_most: Default::default(),
        numbers: std::array::from_fn(|_| Mutex::new(PLAIN)),
    };
    let workers: Vec<_> = thread::scope(|scope| {
        let spawn = |thread: usize| {
            let random = Random::new(seed * THREADS as u64 + thread as u64);
            let worker = Worker {
                round: &round,
                mix,
                random,
                step: 5_000 << (seed % 8),
                keeps_no_record: mix.crowd && seed % 16 < 8,
                charges: Vec::new(),
                refunds: Vec::new(),
                cuts: Vec::new(),
                reserved: Vec::new(),
                slots: Vec::new(),
            };
            scope.spawn(move || worker.work())
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("no call panics")).collect()
    });
    let mut log = Log {
        agents: AGENTS,
        total: mix.total,
        numbers: PLAIN,
        charges: Vec::new(),
        refunds: Vec::new(),
        cuts: Vec::new(),
        held_most: round.held_most.iter().map(|most| most.load(Ordering::Relaxed)).collect(),
    };
    for (charges, refunds, cuts) in workers {
        log.charges.extend(charges);
        log.refunds.extend(refunds);
        log.cuts.extend(cuts);
    }
    log
}

fn policy(total_kind: Total) -> Policy {
    let limits = |numbers: Numbers| {
        let Numbers { capacity, token, window, exact, length, budget, held, total, total_token } = numbers;
        let total = match total_kind {
            Total::None => None,
            Total::Bucket => Some(format!("1/{total_token}ns burst {total}")),
            Total::Window => Some(format!("window {total}/{length}ns")),
        };
        let lanes = [
            ("bucket", format!("1/{token}ns burst {capacity}")),
            ("window", format!("window {window}/{length}ns")),
            ("exact", format!("exact {exact}/{length}ns")),
            ("budget", format!("budget {budget}/day")),
            ("held", format!("held {held}")),
            ("debt", format!("1/{token}ns burst {capacity} oversize debt")),
        ];
        lanes.into_iter().chain(total.map(|total| ("total", total))).collect::<Vec<_>>()
    };
    let builder =
        limits(PLAIN).iter().fold(Policy::builder(), |builder, (lane, limit)| builder.lane(*lane, limit.as_str()));
    let other = limits(OTHER);
    let builder = builder.plan("other", other.iter().map(|(lane, limit)| (*lane, limit.as_str())));
    builder.build().expect("a valid policy")
}
