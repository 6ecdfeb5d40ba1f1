//! The price of the boundary: checks through the C ABI, called from C, next to
//! the same checks in Rust.
//!
//! `make bench` builds the C loops (`bindings/c/bench/loops.c`) into a shared
//! object over `libtollgate.so` and names it in `TOLLGATE_LOOPS`. Both sides
//! take turns in this process. A figure is the median CPU time of one check
//! whose answer is written to memory and whose decision is read, with its share
//! of a loop that hides the id from the compiler; "left" also asks for the
//! remaining tokens, which in C takes another call. The difference is the
//! median of the differences of adjacent turns. Instructions are counted by
//! callgrind, loop included.

use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use tollgate::{Clock, Error, LaneId, Limit, Limiter, ManualClock, Policy, Request, Tick, Verdict};

const ALLOWED: u32 = 2;
const DENIED: u32 = 5;
const BATCH: usize = 256;

/// How often each side runs, in turns.
const ROUNDS: usize = 31;
/// Checks of a turn.
const CHECKS: u64 = 400_000;

/// What a check through C may cost beyond one in Rust: this many nanoseconds, or this share if that is more.
const CHECK_BAR: Bar = Bar { ns: 3.0, share: 0.15 };
const BATCH_BAR: Bar = Bar { ns: 0.0, share: 0.05 };

struct Bar {
    ns: f64,
    share: f64,
}

/// The C side: `loops.c` has the same functions.
struct CLoops {
    made: *mut c_void,
    library: *mut c_void,
}

type Loop = unsafe extern "C" fn(*mut c_void, u32, u64) -> u64;

impl CLoops {
    fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("a name without NUL");
        // SAFETY: an open library and a NUL-terminated string.
        let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!symbol.is_null(), "the loops have no {name:?}");
        symbol
    }

    fn new(path: &CString, source: i32) -> Self {
        // SAFETY: opens our own loops, which do nothing when they are loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be opened; `make bench` builds it");
        // SAFETY: the symbol is a function of this type.
        let new: unsafe extern "C" fn(i32) -> *mut c_void =
            unsafe { std::mem::transmute(Self::symbol(library, "loops_new")) };
        // SAFETY: takes any number.
        Self { made: unsafe { new(source) }, library }
    }

    fn run(&self, name: &str, lane: u32, count: u64) -> u64 {
        // SAFETY: all loops have this type.
        let run: Loop = unsafe { std::mem::transmute(Self::symbol(self.library, name)) };
        // SAFETY: made by `loops_new` and never freed.
        unsafe { run(self.made, lane, count) }
    }
}

/// The Rust side.
struct RustLoops {
    limiter: Limiter,
    ids: Vec<String>,
}

impl RustLoops {
    fn new(clock: Clock) -> Self {
        let plenty = Limit::per_second(1_000_000).burst(u64::from(u32::MAX));
        let policy = ["ws/light", "ws/heavy", "http/light", "http/heavy", "api/light"]
            .into_iter()
            .fold(Policy::builder(), |policy, lane| policy.lane(lane, plenty))
            .lane("api/heavy", Limit::per_day(1));
        let limiter = Limiter::builder(policy.build().expect("a valid policy")).agents(1_000).clock(clock);
        let limiter = limiter.build().expect("memory for the slab");
        let ids: Vec<String> = (0..BATCH).map(|agent| format!("agent-{agent:010}")).collect();
        for id in &ids {
            assert!(limiter.check(id, LaneId::new(DENIED)).expect("room for everybody").is_allowed());
        }
        Self { limiter, ids }
    }

    #[inline(never)]
    fn check_at<R>(&self, lane: u32, count: u64, read: impl Fn(&Verdict) -> R) -> u64 {
        let (mut now, mut allowed) = (self.limiter.now().as_nanos(), 0);
        for _ in 0..count {
            now += 20;
            let id = hide(self.ids[0].as_bytes());
            let verdict = self
                .limiter
                .check_request(Request::new(id, LaneId::new(lane)).at(Tick::from_nanos(now)))
                .expect("a lane");
            black_box(&read(&verdict));
            allowed += u64::from(verdict.is_allowed());
        }
        allowed
    }

    #[inline(never)]
    fn check<R>(&self, lane: u32, count: u64, read: impl Fn(&Verdict) -> R) -> u64 {
        let mut allowed = 0;
        for _ in 0..count {
            let verdict = self.limiter.check(hide(self.ids[0].as_bytes()), LaneId::new(lane)).expect("a lane");
            black_box(&read(&verdict));
            allowed += u64::from(verdict.is_allowed());
        }
        allowed
    }

    #[inline(never)]
    fn check_many(&self, lane: u32, count: u64) -> u64 {
        let (mut now, mut allowed) = (self.limiter.now().as_nanos(), 0);
        let mut requests = Vec::with_capacity(BATCH);
        let mut answers = vec![Err(Error::EmptyId); BATCH];
        for _ in (0..count).step_by(BATCH) {
            requests.clear();
            let lane = LaneId::new(lane);
            now += 20;
            let now = Tick::from_nanos(now);
            requests.extend(self.ids.iter().map(|id| Request::new(id, lane).at(now)));
            self.limiter.check_many(&requests, &mut answers).expect("a small batch");
            black_box(&answers);
            allowed += answers.iter().flatten().filter(|verdict| verdict.is_allowed()).count() as u64;
        }
        allowed
    }
}

/// Hides an id from the compiler without a round trip through memory.
#[inline(always)]
fn hide(id: &[u8]) -> &[u8] {
    let (mut start, mut len) = (id.as_ptr(), id.len());
    // SAFETY: does nothing; the two registers are declared as changed but are not.
    unsafe {
        std::arch::asm!("/* {} {} */", inout(reg) start, inout(reg) len, options(readonly, nostack, preserves_flags))
    };
    // SAFETY: the same slice.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// The verdict, unchanged.
#[inline(always)]
fn whole(verdict: &Verdict) -> Verdict {
    *verdict
}

/// The verdict, and what is left.
#[inline(always)]
fn left(verdict: &Verdict) -> (Verdict, u64) {
    (*verdict, verdict.remaining())
}

/// CPU time of this thread.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec of ours that is valid for writes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// What is measured on both sides.
struct Row {
    name: &'static str,
    lane: u32,
    /// On the default clock; otherwise the caller passes its own time.
    clock: bool,
    rust: fn(&RustLoops, u32, u64) -> u64,
    c: &'static str,
    bar: Option<Bar>,
}

static ROWS: [Row; 8] = {
    const fn row(
        (name, lane): (&'static str, u32),
        clock: bool,
        rust: fn(&RustLoops, u32, u64) -> u64,
        c: &'static str,
        bar: Option<Bar>,
    ) -> Row {
        Row { name, lane, clock, rust, c, bar }
    }
    let check: fn(&RustLoops, u32, u64) -> u64 = |loops, lane, count| loops.check(lane, count, whole);
    let check_at: fn(&RustLoops, u32, u64) -> u64 = |loops, lane, count| loops.check_at(lane, count, whole);
    let check_left: fn(&RustLoops, u32, u64) -> u64 = |loops, lane, count| loops.check_at(lane, count, left);
    let many: fn(&RustLoops, u32, u64) -> u64 = |loops, lane, count| loops.check_many(lane, count);
    [
        row(("allowed, own now", ALLOWED), false, check_at, "loops_check_at", Some(CHECK_BAR)),
        row(("denied, own now", DENIED), false, check_at, "loops_check_at", Some(CHECK_BAR)),
        row(("allowed, clock", ALLOWED), true, check, "loops_check", Some(CHECK_BAR)),
        row(("denied, clock", DENIED), true, check, "loops_check", Some(CHECK_BAR)),
        row(("allowed, batch of 256", ALLOWED), false, many, "loops_check_many", Some(BATCH_BAR)),
        row(("denied, batch of 256", DENIED), false, many, "loops_check_many", Some(BATCH_BAR)),
        row(("allowed, own now, left", ALLOWED), false, check_left, "loops_check_at_left", None),
        row(("denied, own now, left", DENIED), false, check_left, "loops_check_at_left", None),
    ]
};

/// The sides of a row.
const SIDES: [&str; 2] = ["rust", "c"];

impl Row {
    /// The loop of one side, ready to run.
    fn side(&'static self, side: &str, path: &CString) -> Box<dyn Fn(u64) -> u64> {
        // The numbers of tollgate_clock_source.
        const AUTO: i32 = 0;
        const MANUAL: i32 = 5;
        if side == "c" {
            let loops = CLoops::new(path, if self.clock { AUTO } else { MANUAL });
            return Box::new(move |count| loops.run(self.c, self.lane, count));
        }
        let loops = RustLoops::new(if self.clock { Clock::auto() } else { ManualClock::new().into() });
        Box::new(move |count| (self.rust)(&loops, self.lane, count))
    }

    /// Both sides in turns.
    fn measure(&'static self, path: &CString) {
        let sides = SIDES.map(|side| self.side(side, path));
        let mut turns = [[0.0; 2]; ROUNDS];
        for turn in &mut turns {
            for (side, time) in sides.iter().zip(turn) {
                let started = cpu_ns();
                let allowed = side(CHECKS);
                *time = (cpu_ns() - started) / CHECKS as f64;
                assert_eq!(allowed > 0, self.lane == ALLOWED, "{}: the verdicts do not match the row", self.name);
            }
        }
        let median = |of: &dyn Fn(&[f64; 2]) -> f64| {
            let mut times: Vec<f64> = turns.iter().map(of).collect();
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        };
        let (rust, c, more) = (median(&|turn| turn[0]), median(&|turn| turn[1]), median(&|turn| turn[1] - turn[0]));
        let judged = self.bar.as_ref().map_or(String::new(), |bar| {
            let most = bar.ns.max(rust * bar.share);
            format!("{most:.1}, {}", if more <= most { "met" } else { "missed" })
        });
        let [rust_count, c_count] = SIDES.map(|side| match self.instructions(side) {
            Some(count) => format!("{count:.0}"),
            None => "?".to_owned(),
        });
        println!(
            "| {} | {rust:.1} | {c:.1} | {more:+.1} | {:+.0} % | {judged} | {rust_count} | {c_count} |",
            self.name,
            more / rust * 100.0
        );
    }

    /// Instructions per check: the difference of two runs under callgrind, so
    /// that start-up and exit cancel out.
    fn instructions(&self, side: &str) -> Option<f64> {
        const SHORT: u64 = 20_480;
        const LONG: u64 = 122_880;
        let [short, long] = [SHORT, LONG].map(|count| {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe().ok()?);
            let run = valgrind.args([COUNT, side, self.name, &count.to_string()]).output().ok()?;
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<f64>().ok())
        });
        Some((long? - short?) / (LONG - SHORT) as f64)
    }
}

/// Runs one loop alone, for callgrind.
const COUNT: &str = "--count";

fn main() {
    let Some(path) = std::env::var_os("TOLLGATE_LOOPS") else {
        println!("ffi: TOLLGATE_LOOPS is not set, so there is nothing to compare with; run `make bench`");
        return;
    };
    let path = CString::new(path.as_bytes()).expect("a path without NUL");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [COUNT, side, name, count] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        let row = ROWS.iter().find(|row| row.name == name).expect("a row of this name");
        black_box(row.side(side, &path)(count.parse().expect("a number")));
        return;
    }
    println!("CPU ns per check, medians of {ROUNDS} turns of {CHECKS}; instructions per check");
    println!("| | Rust | C | more | | at most | instructions, Rust | instructions, C |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    ROWS.iter().for_each(|row| row.measure(&path));
}
