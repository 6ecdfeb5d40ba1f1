//! What it costs to keep a million used budgets and a hundred thousand
//! assignments in files: bytes and time of a save, by how much changed; time to
//! start from the files, and to stop.
//!
//! ```sh
//! cargo bench --features persist --bench keep
//! ```
//!
//! The files are in the target directory, so that they are on a disk. Bytes are
//! those written to the system, as Linux counts them for this process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate::{Assignment, LaneId, Limiter, Policy, Request};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BUDGETS: usize = 1_000_000;
const ASSIGNMENTS: usize = 100_000;
const LLM: LaneId = LaneId::new(0);

fn limiter() -> Outcome<Limiter> {
    let policy = Policy::builder()
        .lane("llm/tokens", "budget 1_000_000/month")
        .plan("pro", [("llm/tokens", "budget 9_000_000/month")]);
    Ok(Limiter::builder(policy.build()?).agents(BUDGETS as u64 * 3 / 2).build()?)
}

fn agent(number: usize) -> String {
    format!("user:{number:07}")
}

/// Bytes that this process has written so far.
fn written() -> Outcome<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).ok_or("no count of written bytes")?;
    Ok(line.parse()?)
}

/// CPU time of this process.
fn worked() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(Duration::from_nanos(stat.split(' ').next().ok_or("no time")?.parse()?))
}

/// Runs it and prints what it took, per thing that changed.
fn measure<T>(what: &str, changed: usize, run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let (before, worked_before, start) = (written()?, worked()?, Instant::now());
    let outcome = run()?;
    let (time, worked, bytes) = (start.elapsed(), worked()? - worked_before, written()? - before);
    let each = bytes as f64 / changed.max(1) as f64;
    let [time, worked] = [time, worked].map(|time| time.as_secs_f64() * 1e3);
    println!("{what:<48} {time:>9.1} ms, {worked:>9.1} ms of work {bytes:>12} bytes {each:>14.1} each");
    Ok(outcome)
}

fn spend(limiter: &Limiter, agents: std::ops::Range<usize>) -> Outcome<()> {
    for number in agents {
        let _ = limiter.check_request(Request::new(&agent(number), LLM).cost(7))?;
    }
    Ok(())
}

fn budgets(path: &Path) -> Outcome<()> {
    let first = limiter()?;
    first.keep_budgets_in(path)?;
    spend(&first, 0..BUDGETS)?;
    measure("save, all of 1,000,000 budgets changed", BUDGETS, || Ok(first.save_budgets()?))?;
    measure("save, nothing changed", 0, || Ok(first.save_budgets()?))?;
    for changed in [1, 1_000, 100_000] {
        spend(&first, 0..changed)?;
        measure(&format!("save, {changed} changed"), changed, || Ok(first.save_budgets()?))?;
    }
    spend(&first, 7..8)?;
    measure("stop: the last save, and the end of the limiter", 1, || {
        first.save_budgets()?;
        drop(first);
        Ok(())
    })?;
    let second = limiter()?;
    let loaded = measure("start: load 1,000,000 budgets", 0, || Ok(second.keep_budgets_in(path)?))?;
    assert_eq!(loaded.loaded, BUDGETS as u64);
    measure("save after the start, nothing changed", 0, || Ok(second.save_budgets()?))?;
    spend(&second, 3..4)?;
    measure("save after the start, 1 changed", 1, || Ok(second.save_budgets()?))?;
    Ok(())
}

fn assignments(path: &Path) -> Outcome<()> {
    let limiter = limiter()?;
    let pro = limiter.plan("pro").ok_or("named above")?;
    let mut assigned = Assignment::default();
    assigned.set_plan(Some("pro".to_owned()));
    limiter.set_assignments((0..ASSIGNMENTS).map(|number| (agent(number), assigned.clone())))?;
    measure("keep 100,000 assignments, no file yet", ASSIGNMENTS, || Ok(limiter.keep_assignments_in(path)?))?;
    let mut times: Vec<Duration> = Vec::new();
    let before = written()?;
    for number in 0..100 {
        let start = Instant::now();
        limiter.assign(format!("more:{number}"), pro)?;
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "assign with 100,000 others: median {:?}, longest of 100 {:?}, {} bytes each",
        times[times.len() / 2],
        times[times.len() - 1],
        (written()? - before) / 100
    );
    drop(limiter);
    let second = self::limiter()?;
    measure("start: load 100,000 assignments", 0, || Ok(second.keep_assignments_in(path)?))
}

fn main() -> Outcome<()> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("keep-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let outcome =
        budgets(&directory.join("budgets.json")).and_then(|()| assignments(&directory.join("assignments.json")));
    std::fs::remove_dir_all(&directory)?;
    outcome
}
