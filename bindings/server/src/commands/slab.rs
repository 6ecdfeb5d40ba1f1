//! `tollgate slab`: who shares a slab, and how that goes.

use super::check_config::columns;
use super::print_line;
use crate::error::StartError;
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate::Limiter;
use tollgate::shared::{Process, Shared, Sharing};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The slab's path, as the processes name it; or its file
    path: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Look for faults, and fail if there are any; a call under way may look like one
    #[arg(long)]
    audit: bool,
}

/// What is printed about a slab.
struct Slab {
    sharing: Sharing,
    /// How much memory its file takes.
    bytes_taken: u64,
    policy_version: Option<u32>,
    agents: u64,
    records: u64,
    /// `None` if nobody asked.
    faults: Option<Vec<String>>,
}

impl Arguments {
    /// Joins the slab for the moment, which takes one of its seats.
    pub(super) fn run(self) -> Result<(), StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
        // It looks, so it may join whatever its user may.
        let place = Shared::at(named(&self.path)).mode(0o666);
        let limiter = Limiter::join(place).build().map_err(|error| failed(&error))?;
        let stats = limiter.stats();
        let slab = Slab {
            sharing: limiter.sharing().ok_or_else(|| failed(&"the limiter is not shared"))?,
            bytes_taken: taken(&limiter).map_err(|error| failed(&error))?,
            policy_version: limiter.policy().version(),
            agents: stats.agents,
            records: stats.records,
            faults: self.audit.then(|| limiter.audit()),
        };
        let now = SystemTime::now();
        print_line(&if self.json { slab.to_json().to_string() } else { slab.text(now) });
        match slab.faults.as_ref().map_or(0, Vec::len) {
            0 => Ok(()),
            1 => Err(failed(&"the audit found a fault")),
            faults => Err(failed(&format!("the audit found {faults} faults"))),
        }
    }
}

/// How much memory the slab's file takes: parts that nobody has used take none.
fn taken(limiter: &Limiter) -> std::io::Result<u64> {
    let file = limiter.shared_descriptor().map(|file| file.try_clone_to_owned()).transpose()?;
    // A block has 512 bytes, whatever the file system.
    Ok(file.map(|file| File::from(file).metadata()).transpose()?.map_or(0, |about| about.blocks() * 512))
}

/// The path by which processes name a slab, if this is its file: without the number of its layout.
fn named(path: &Path) -> PathBuf {
    let is_layout = |ending: &str| ending.strip_prefix('v').is_some_and(|number| number.parse::<u64>().is_ok());
    match path.extension().and_then(|ending| ending.to_str()) {
        Some(ending) if is_layout(ending) && path.exists() => path.with_extension(""),
        _ => path.to_owned(),
    }
}

impl Slab {
    /// The processes that use it, without this one.
    fn others(&self) -> impl Iterator<Item = &Process> {
        self.sharing.processes.iter().filter(|process| !process.is_this)
    }

    fn to_json(&self) -> Value {
        let process = |process: &Process| json!({"pid": process.pid, "joined": seconds(process.joined), "version": version(process)});
        let mut document = json!({
            "path": self.sharing.path.display().to_string(),
            "bytes": self.sharing.bytes,
            "bytes_taken": self.bytes_taken,
            "made": seconds(self.sharing.made),
            "policy_version": self.policy_version,
            "agents": self.agents,
            "records": self.records,
            "takeovers": self.sharing.takeovers,
            "busy": self.sharing.busy,
            "detached": self.sharing.is_detached,
            "processes": self.others().map(process).collect::<Vec<_>>(),
        });
        if let Some(faults) = &self.faults {
            document["faults"] = json!(faults);
        }
        document
    }

    fn text(&self, now: SystemTime) -> String {
        let Sharing { path, bytes, made, takeovers, busy, is_detached, .. } = &self.sharing;
        let used = (100 * self.agents).div_ceil(self.records.max(1));
        let policy_version = self.policy_version.map_or("none".to_owned(), |version| version.to_string());
        let facts = [
            ("path", path.display().to_string()),
            (
                "size",
                format!("{:.1} MB, of which {:.1} MB are taken", *bytes as f64 / 1e6, self.bytes_taken as f64 / 1e6),
            ),
            ("made", format!("{}, {} ago", utc(*made), age(*made, now))),
            ("policy version", policy_version),
            ("agents", format!("{}, in {} records: {used} %", self.agents, self.records)),
            ("takeovers", format!("{takeovers} (locks of processes that died with them)")),
            ("busy", format!("{busy} (calls that a stopped process stood in the way of)")),
            (
                "detached",
                if *is_detached { "yes: the path leads to another file by now, or to none" } else { "no" }.into(),
            ),
        ];
        let facts: Vec<_> = facts.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        let mut rows = vec![["pid", "joined", "ago", "version"].map(str::to_owned).to_vec()];
        rows.extend(self.others().map(|process| {
            vec![process.pid.to_string(), utc(process.joined), age(process.joined, now), version(process)]
        }));
        let processes = if rows.len() == 1 { "No process uses it.".to_owned() } else { columns(&rows) };
        let mut text = format!("{}\n\n{processes}", columns(&facts));
        match self.faults.as_deref() {
            None => {}
            Some([]) => text.push_str("\n\nThe audit found no fault."),
            Some(faults) => faults.iter().for_each(|fault| text.push_str(&format!("\n\nfault: {fault}"))),
        }
        text
    }
}

fn version(process: &Process) -> String {
    process.version.map(|number| number.to_string()).join(".")
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// How long ago something was.
fn age(at: SystemTime, now: SystemTime) -> String {
    span(now.duration_since(at).unwrap_or(Duration::ZERO))
}

/// A span in its two largest units.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// A time as `2026-11-18 14:30:00 UTC`.
fn utc(at: SystemTime) -> String {
    let seconds = seconds(at);
    // Days are counted from 1 March of the year 0, in eras of 400 years: leap days come last.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = (if month < 10 { month + 3 } else { month - 9 }, year + 400 * era);
    let year = year + u64::from(month <= 2);
    let [hour, minute, second] = [seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60];
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_dates_and_ages() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(at(seconds)), shown);
        }
        for (seconds, shown) in [(59, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min"), (90_000, "1 d 1 h")] {
            assert_eq!(age(at(1_000), at(1_000 + seconds)), shown);
        }
        assert_eq!(age(at(5), at(0)), "0 s", "the clock was set back");
    }
}
