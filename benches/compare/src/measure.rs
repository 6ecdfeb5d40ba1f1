//! How things are measured: CPU time, interleaved rounds, medians.
//!
//! A figure is nanoseconds of CPU time per check (`CLOCK_THREAD_CPUTIME_ID`),
//! read twice per round of many thousand checks. Included, for every contestant
//! alike: reading the next 16-byte id from a stream in memory, the loop, and
//! writing the answer to memory that the optimizer must assume is read. Not
//! included: making the ids, first contacts (unless the row is about them), and
//! time in which other processes had the core.
//!
//! In each round every contestant runs once, in an order that rotates, so that
//! a change in the machine's speed affects all of them; figures are medians
//! over rounds.

use crate::floor::Tsc;
use crate::ids::Id;
use crate::peers::Contestant;
use std::arch::x86_64::_mm_lfence;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Nanoseconds of CPU time that this thread has used.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Reads one of the system's clocks.
#[must_use]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec.
    let status = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(status, 0, "clock {clock} cannot be read");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One contestant's figures, one per round.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

impl Samples {
    /// The median figure.
    #[must_use]
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
    }

    /// The least figure.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest figure.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// Runs each of `count` contestants once per round, in rotation.
pub fn interleaved(rounds: usize, count: usize, mut measure: impl FnMut(usize, usize) -> f64) -> Vec<Samples> {
    let mut samples = vec![Samples::default(); count];
    for round in 0..rounds {
        for turn in 0..count {
            let who = (round + turn) % count;
            samples[who].0.push(measure(who, round));
        }
    }
    samples
}

/// What one contestant is given in one round.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Run first and not timed: brings the contestant's memory to the state of steady use.
    pub warm: &'a [Id],
    /// Run `times` times, and timed.
    pub timed: &'a [Id],
    /// How often.
    pub times: usize,
}

/// Nanoseconds of CPU time per check on this thread.
pub fn one_thread(contestant: &dyn Contestant, work: Work<'_>) -> f64 {
    contestant.run(work.warm);
    let start = thread_cpu_ns();
    for _ in 0..work.times {
        contestant.run(work.timed);
    }
    (thread_cpu_ns() - start) as f64 / (work.times * work.timed.len()) as f64
}

/// Checks between two tests of whether the others are done.
const CHUNK: usize = 1024;

/// The result of several threads together.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// One over the sum of the threads' rates: what a check costs the group.
    pub ns: f64,
    /// The least share of the wall time, from the first thread's start to the
    /// last one's end, for which a thread had its core. Far below 1, the
    /// threads hardly overlapped, and the figure is too good.
    pub overlap: f64,
}

/// Threads run `contestant` at the same time, each on its own core and with
/// its own stream, until the first has done `checks`.
///
/// The rate of a thread is its checks per second of its own CPU time.
/// Included is one shared flag read per 1,024 checks.
pub fn together(contestant: &dyn Contestant, streams: &[&[Id]], checks: usize) -> Together {
    let ready = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let body = &|core: usize, stream: &[Id]| {
        pin(core);
        contestant.run(&stream[..CHUNK.min(stream.len())]);
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < streams.len() {
            std::hint::spin_loop();
        }
        let (wall, cpu) = (Instant::now(), thread_cpu_ns());
        let mut done = 0;
        for chunk in stream.chunks_exact(CHUNK.min(stream.len())).cycle() {
            contestant.run(chunk);
            done += chunk.len();
            if done >= checks {
                stop.store(true, Ordering::Relaxed);
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let cpu = (thread_cpu_ns() - cpu) as f64;
        Shift { begin: wall, end: Instant::now(), cpu, rate: done as f64 / cpu }
    };
    let shifts: Vec<Shift> = std::thread::scope(|scope| {
        let start = |(core, stream)| scope.spawn(move || body(core, stream));
        let threads: Vec<_> = streams.iter().copied().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a contestant panicked")).collect()
    });
    let begin = shifts.iter().map(|shift| shift.begin).min().expect("a thread");
    let end = shifts.iter().map(|shift| shift.end).max().expect("a thread");
    let wall = (end - begin).as_nanos() as f64;
    Together {
        ns: 1.0 / shifts.iter().map(|shift| shift.rate).sum::<f64>(),
        overlap: shifts.iter().map(|shift| shift.cpu / wall).fold(f64::INFINITY, f64::min),
    }
}

/// What one thread did.
struct Shift {
    begin: Instant,
    end: Instant,
    cpu: f64,
    rate: f64,
}

/// Binds this thread to the `nth` of the cores it may use, so that two never share one.
fn pin(nth: usize) {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed` is live, writable and of the stated size.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut allowed) };
    // SAFETY: every number is below the size of the set.
    let is_allowed = |core: &usize| unsafe { libc::CPU_ISSET(*core, &allowed) };
    let Some(core) = (0..libc::CPU_SETSIZE as usize).filter(is_allowed).nth(nth) else {
        return; // Fewer cores than threads: the overlap will show it.
    };
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core` is below the size of the set.
    unsafe { libc::CPU_SET(core, &mut one) };
    // SAFETY: `one` is live and of the stated size.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one) };
}

/// Times single calls, each between two fenced reads of the counter.
///
/// Included in every figure: the fences and one read of the counter (15 to 25
/// ns). A call that takes longer than `SLOW_NS` is charged its CPU time: the
/// time that the thread spent off the core since its CPU clock was last read is
/// subtracted, so that other processes do not count, while page faults and the
/// kernel's work for the caller do.
pub struct Stopwatch<'a> {
    tsc: &'a Tsc,
    laps: Vec<u32>,
    raw_max: u64,
    looked_wall: u64,
    looked_cpu: u64,
}

/// How often the machine interrupts a loop that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Interruptions {
    /// Interruptions of more than [`GAP_NS`] per second of CPU time.
    pub per_second: f64,
    /// Their median length, without time off the core.
    pub median_ns: f64,
}

/// Shorter gaps are not counted.
pub const GAP_NS: u64 = 3_000;
const WATCH_NS: u64 = 1_000_000_000;

/// Watches an empty loop for a second of CPU time.
#[must_use]
pub fn interruptions(tsc: &Tsc) -> Interruptions {
    let begin = thread_cpu_ns();
    let (mut wall, mut cpu) = (tsc.now(), begin);
    let mut last = wall;
    let mut gaps = Samples::default();
    while cpu - begin < WATCH_NS {
        let now = tsc.now();
        if now - last <= GAP_NS && now - wall < WATCH_NS / 100 {
            last = now;
            continue;
        }
        let (wall_now, cpu_now) = (tsc.now(), thread_cpu_ns());
        if now - last > GAP_NS {
            let off_core = (wall_now - wall).saturating_sub(cpu_now - cpu);
            gaps.0.push((now - last).saturating_sub(off_core) as f64);
        }
        (wall, cpu, last) = (wall_now, cpu_now, tsc.now());
    }
    let median_ns = if gaps.0.is_empty() { 0.0 } else { gaps.median() };
    Interruptions { per_second: gaps.0.len() as f64 * 1e9 / WATCH_NS as f64, median_ns }
}

/// Calls longer than this are corrected for time off the core.
const SLOW_NS: u64 = 10_000;
const LOOK_EVERY: usize = 4096;

impl<'a> Stopwatch<'a> {
    /// Reserves room for `calls` laps, and touches it.
    #[must_use]
    pub fn new(tsc: &'a Tsc, calls: usize) -> Self {
        let mut laps = vec![1; calls];
        laps.clear();
        Self { tsc, laps, raw_max: 0, looked_wall: tsc.now(), looked_cpu: thread_cpu_ns() }
    }

    /// Times one call.
    #[inline]
    pub fn lap(&mut self, call: impl FnOnce()) {
        let start = fenced(self.tsc);
        call();
        let end = fenced(self.tsc);
        let mut ns = end.saturating_sub(start);
        self.raw_max = self.raw_max.max(ns);
        if ns > SLOW_NS || self.laps.len().is_multiple_of(LOOK_EVERY) {
            ns = self.on_core(ns);
        }
        self.laps.push(u32::try_from(ns).unwrap_or(u32::MAX));
    }

    #[cold]
    fn on_core(&mut self, ns: u64) -> u64 {
        let (wall, cpu) = (self.tsc.now(), thread_cpu_ns());
        let off_core = (wall - self.looked_wall).saturating_sub(cpu - self.looked_cpu);
        (self.looked_wall, self.looked_cpu) = (wall, cpu);
        if ns > SLOW_NS { ns.saturating_sub(off_core).max(1) } else { ns }
    }

    /// All laps.
    #[must_use]
    pub fn finish(mut self) -> Laps {
        self.laps.sort_unstable();
        Laps { sorted: self.laps, raw_max: self.raw_max }
    }
}

/// The counter, read after everything before it is done and before anything after it begins.
#[inline]
fn fenced(tsc: &Tsc) -> u64 {
    fence();
    let now = tsc.now();
    fence();
    now
}

#[inline]
fn fence() {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { _mm_lfence() };
}

/// Times of single calls.
pub struct Laps {
    sorted: Vec<u32>,
    /// The longest call by the wall clock, other processes included.
    pub raw_max: u64,
}

impl Laps {
    /// The longest call.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted.last().copied().map_or(0.0, f64::from)
    }

    /// The time of all calls together.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sorted.iter().copied().map(f64::from).sum()
    }

    /// The time within which this share of the calls was done.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = ((self.sorted.len() as f64 * share).ceil() as usize).clamp(1, self.sorted.len());
        f64::from(self.sorted[rank - 1])
    }
}
