//! Memory: resident bytes per agent, and requests to the system after creation.
//!
//! Resident memory is `Rss` of `/proc/self/smaps_rollup` (exact, unlike
//! `VmRSS`) before the limiter is built and after the first checks of a million
//! agents. Between building and the end of two million single checks, a million
//! in batches and a million denied ones, the global allocator counts its calls,
//! and `/proc/self/maps` must not change: that detects mmap, munmap and brk by
//! their effect. Where strace is installed, the memory calls of the same work
//! (at 100,000 agents) in the program `instructions` are counted too.

use super::population::MILLION;
use super::{Bar, Figures, Row, Session, Who, progress};
use crate::counting;
use crate::ids::{Id, Pattern, Random, draws};
use crate::peers::{Lane, limiter, slice};
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::process::{Command, Stdio};
use tollgate::{Error, Limiter, Request};

const BATCH: usize = 256;

/// Everything a caller does to a limiter, without allocating anything itself.
pub fn exercise(limiter: &Limiter, ids: &[Id], checks: &[Id]) {
    let (allowed, denied) = (Lane::Allowed.of_ours(), Lane::Denied.of_ours());
    for id in ids.iter().chain(checks) {
        let _ = black_box(limiter.check(slice(id), allowed));
    }
    for batch in checks.chunks_exact(BATCH) {
        let requests: [_; BATCH] = std::array::from_fn(|i| Request::new(slice(&batch[i]), allowed));
        let mut answers = [Err(Error::EmptyId); BATCH];
        let _ = black_box(limiter.check_many(&requests, &mut answers));
    }
    for id in checks {
        let _ = black_box(limiter.check(slice(id), denied));
    }
}

/// Resident bytes of this process.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Reads the process's mappings into memory that is already allocated.
fn mappings(into: &mut Vec<u8>) -> usize {
    into.clear();
    let room = into.capacity() as u64;
    File::open("/proc/self/maps").and_then(|file| file.take(room).read_to_end(into)).expect("Linux has /proc")
}

pub(super) fn per_agent(_: &mut Session) -> Row {
    progress("memory of 1 M agents");
    let mut random = Random::new(13);
    let mut ids = Pattern::Random.ids(MILLION);
    random.shuffle(&mut ids);
    let checks = draws(&ids, MILLION, &mut random);
    let (mut maps_before, mut maps_after) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
    // Touched once, so that the pages of these buffers do not count towards the limiter.
    mappings(&mut maps_before);
    mappings(&mut maps_after);

    let resident_before = resident();
    let limiter = limiter(MILLION);
    mappings(&mut maps_before);
    let calls_before = counting::calls();
    exercise(&limiter, &ids, &checks);
    let calls = counting::calls() - calls_before;
    mappings(&mut maps_after);
    let resident_after = resident();

    let per_agent = match (resident_before, resident_after) {
        (Some(before), Some(after)) => after.saturating_sub(before) as f64 / MILLION as f64,
        _ => f64::NAN,
    };
    let moved = f64::from(u8::from(maps_before != maps_after));
    let mut bars = vec![
        Bar::at_most(90.0, "bytes per agent, resident", per_agent),
        Bar::at_most(0.0, "calls to the allocator after creation", calls as f64),
        Bar::at_most(0.0, "changes of /proc/self/maps after creation", moved),
    ];
    let mut notes = vec![format!("agents held: {}; reserved: {} bytes", limiter.stats().agents, limiter.memory())];
    match memory_calls() {
        Ok(calls) => bars.push(Bar::at_most(0.0, "memory system calls after creation (strace)", calls as f64)),
        Err(why) => notes.push(format!("strace: {why}")),
    }
    let figures = Figures::from([(Who::Ours, per_agent)]);
    Row {
        name: "memory",
        what: "memory for 1 M agents, six lanes".into(),
        unit: "bytes",
        figures,
        bars,
        notes,
        doubts: Vec::new(),
    }
}

/// Memory system calls between the marks that `instructions syscalls` writes.
fn memory_calls() -> Result<usize, String> {
    let program = super::instructions::program()?;
    let log = std::env::temp_dir().join(format!("compare-strace-{}", std::process::id()));
    let status = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=%memory,write", "-o"])
        .arg(&log)
        .arg(program)
        .args(["syscalls", "100000"])
        .stderr(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    let text = std::fs::read_to_string(&log).map_err(|error| error.to_string())?;
    let _ = std::fs::remove_file(&log);
    if !status.success() {
        return Err(format!("ended with {status}"));
    }
    let between: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("tollgate: created"))
        .skip(1)
        .take_while(|line| !line.contains("tollgate: done"))
        .collect();
    if !text.contains("tollgate: done") {
        return Err("the marks are missing".into());
    }
    Ok(between.len())
}
