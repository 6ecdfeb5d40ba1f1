//! Instructions per check, counted by callgrind.
//!
//! The program `instructions` runs a given number of checks. The figure is the
//! difference in instructions of two runs of different length, divided by the
//! difference in checks. So start-up and exit do not count; the loop around the
//! check (reading the id from a stream, keeping the answer) is counted
//! separately and subtracted. Line tables attribute each instruction to its
//! source file, inlined ones too: the hash's share is `slab/hash.rs` and, since
//! its wide sums are library code, `core`'s integers.
//!
//! valgrind emulates the processor: the system's clock is a system call there,
//! so with the OS clock the count is not what runs natively. The count at the
//! caller's own `now` is not affected.

use super::{Bar, Figures, Row, Session, Who, progress};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SHORT: u64 = 20_000;
const LONG: u64 = 120_000;

/// Instructions per check.
struct Count {
    total: f64,
    by_file: Vec<(String, f64)>,
}

impl Count {
    /// The share of source files whose names begin like this.
    fn of(&self, file: &str) -> f64 {
        self.by_file.iter().filter(|(name, _)| name.starts_with(file)).map(|(_, count)| count).sum()
    }

    /// The largest shares, as text.
    fn shares(&self) -> String {
        let shown = self.by_file.iter().filter(|(_, count)| *count >= 0.5);
        shown.map(|(file, count)| format!("{file} {count:.1}")).collect::<Vec<_>>().join(", ")
    }
}

/// The program that is counted, next to this one.
pub(super) fn program() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = here.with_file_name("instructions");
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("{} is not built; run `cargo build --release` first", program.display()))
    }
}

/// Instructions of one run, by source file.
fn run(program: &Path, mode: &str, checks: u64) -> Result<BTreeMap<String, u64>, String> {
    let out = std::env::temp_dir().join(format!("compare-callgrind-{}", std::process::id()));
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([mode, &checks.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = std::fs::read_to_string(&out).map_err(|error| format!("valgrind: {error}"))?;
    let _ = std::fs::remove_file(&out);
    if status.success() { Ok(by_file(&text)) } else { Err(format!("valgrind ended with {status}")) }
}

/// What our clock reads under valgrind, which may not be what it reads natively.
fn clock(program: &Path) -> String {
    let output = Command::new("valgrind").args(["--tool=none", "-q"]).arg(program).args(["clock", "0"]).output();
    output.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Adds up callgrind's output: cost lines belong to the file named last; the
/// line after `calls=` repeats the cost of the called function.
fn by_file(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let mut file = String::new();
    let mut is_call = false;
    for line in text.lines() {
        if let Some(name) = ["fl=", "fi=", "fe="].iter().find_map(|key| line.strip_prefix(key)) {
            file = name.to_string();
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split_ascii_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if !std::mem::take(&mut is_call) {
                *sums.entry(file.clone()).or_insert(0) += cost.unwrap_or(0);
            }
        }
    }
    sums
}

fn count(program: &Path, mode: &str) -> Result<Count, String> {
    let (short, long) = (run(program, mode, SHORT)?, run(program, mode, LONG)?);
    let per_check = |count: i64| count as f64 / (LONG - SHORT) as f64;
    let difference = |file: &String| {
        let before = short.get(file).copied().unwrap_or(0);
        per_check(long[file] as i64 - before as i64)
    };
    let mut by_file: Vec<_> = long.keys().map(|file| (shortened(file), difference(file))).collect();
    by_file.sort_by(|a, b| b.1.total_cmp(&a.1));
    let total = by_file.iter().map(|(_, count)| count).sum();
    progress(&format!("    {mode}: {total:.1}"));
    Ok(Count { total, by_file })
}

/// A path from the last `src` on, with the library's crates named.
fn shortened(file: &str) -> String {
    match file.rsplit_once("/src/") {
        Some((before, after)) if file.contains("/library/") => {
            format!("{}/{after}", before.rsplit('/').next().unwrap_or_default())
        }
        Some((_, after)) => after.to_string(),
        None => file.rsplit('/').next().unwrap_or(file).to_string(),
    }
}

pub(super) fn per_check(_: &mut Session) -> Row {
    progress("instructions per check");
    let what = "instructions per check, hot agent, allowed".to_string();
    let empty = Row {
        name: "instructions",
        what,
        unit: "",
        figures: Figures::new(),
        bars: Vec::new(),
        notes: Vec::new(),
        doubts: Vec::new(),
    };
    match measure(empty.clone()) {
        Ok(row) => row,
        Err(why) => Row { bars: bars([f64::NAN; 4]), notes: vec![why], ..empty },
    }
}

/// Without and with the clock, because the bar does not specify which.
fn bars([allowed_now, denied_now, allowed, denied]: [f64; 4]) -> Vec<Bar> {
    vec![
        Bar::at_most(120.0, "allowed, own `now`", allowed_now),
        Bar::at_most(110.0, "denied, own `now`", denied_now),
        Bar::at_most(120.0, "allowed, with the clock", allowed),
        Bar::at_most(110.0, "denied, with the clock", denied),
    ]
}

fn measure(mut row: Row) -> Result<Row, String> {
    let program = program()?;
    let bare = count(&program, "loop")?.total;
    let count = |program: &Path, mode: &str| {
        let Count { total, by_file } = count(program, mode)?;
        Ok::<_, String>(Count { total: total - bare, by_file })
    };
    let (allowed, denied) = (count(&program, "allowed")?, count(&program, "denied")?);
    let (allowed_now, denied_now) = (count(&program, "allowed-now")?, count(&program, "denied-now")?);
    let thousand = count(&program, "thousand-now")?;
    let (sip, sip_now) = (count(&program, "sip")?, count(&program, "sip-now")?);
    row.figures =
        Figures::from([(Who::Ours, allowed.total), (Who::OursNow, allowed_now.total), (Who::OursSip, sip.total)]);
    row.bars = bars([&allowed_now, &denied_now, &allowed, &denied].map(|count| count.total));
    row.notes = vec![
        format!("the loop alone: {bare:.1}, taken off; our clock under valgrind: {}", clock(&program)),
        format!("1,000 agents at the caller's own `now`: allowed {:.1}", thousand.total),
        format!(
            "the hash: {:.0} in slab/hash.rs, and at most {:.0} in the integers of core that it calls",
            allowed_now.of("slab/hash.rs"),
            allowed_now.of("core/num/")
        ),
        format!("SipHash-1-3 at the caller's own `now`: allowed {:.1}", sip_now.total),
        format!("allowed, by source file: {}", allowed.shares()),
        format!("denied, by source file: {}", denied.shares()),
        format!("own `now`, allowed, by source file: {}", allowed_now.shares()),
    ];
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_not_counted_twice() {
        let text = "positions: line\nevents: Ir\nfl=/a/src/x.rs\nfn=main\n10 5\nfi=/a/src/y.rs\n3 7\ncfn=f\ncalls=2 1\n4 900\n5 1\n";
        assert_eq!(by_file(text), BTreeMap::from([("/a/src/x.rs".into(), 5), ("/a/src/y.rs".into(), 8)]));
        assert_eq!(shortened("/rustc/abc/library/core/src/num/mod.rs"), "core/num/mod.rs");
    }
}
