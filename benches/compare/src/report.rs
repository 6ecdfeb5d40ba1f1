//! The tables: ours next to the peers, with bar and verdict per row; the same
//! on other clocks; the floor; the machine. Nothing is measured here.

use crate::floor::Tsc;
use crate::rows::{Bar, Bound, Row, Who};
use std::fmt::Write;
use std::process::Command;
use tollgate::Clock;

/// Everything the run found, as markdown.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| row | what | unit | ours | x floor | governor | DashMap | bars: measured | verdict |\n\
         |---|---|---|---:|---:|---:|---:|---|---|\n",
    );
    for row in rows {
        let line = [
            row.name.to_string(),
            row.what.clone(),
            row.unit.to_string(),
            figure(row, Who::Ours),
            ratio(row, Who::Floor),
            against(row, Who::Governor),
            against(row, Who::DashMap),
            row.bars.iter().map(bar).collect::<Vec<_>>().join("<br>"),
            row.verdict().to_string(),
        ];
        let _ = writeln!(text, "| {} |", line.join(" | "));
    }
    text
}

/// Ours in every form: other clocks, batches.
#[must_use]
pub fn forms(rows: &[Row]) -> String {
    let columns = [
        (Who::Ours, "ours"),
        (Who::OursOs, "OS clock"),
        (Who::OursNow, "own `now`"),
        (Who::OursBatch, "batch"),
        (Who::DashMapOneLane, "DashMap, one lane"),
    ];
    let mut text = format!("| row | {} |\n|---|", columns.map(|(_, name)| name).join(" | "));
    text.push_str(&"---:|".repeat(columns.len()));
    text.push('\n');
    for row in rows.iter().filter(|row| row.figures.contains_key(&Who::OursOs)) {
        let cells = columns.map(|(who, _)| figure(row, who));
        let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
    }
    text
}

/// The hashes side by side: the default, multilinear, and SipHash-1-3.
#[must_use]
pub fn hashes(rows: &[Row]) -> String {
    let mut text =
        String::from("| row | what | unit | multilinear | SipHash-1-3 | more |\n|---|---|---|---:|---:|---:|\n");
    for row in rows {
        if let (Some(ours), Some(sip)) = (row.figures.get(&Who::Ours), row.figures.get(&Who::OursSip)) {
            let cells = [*ours, *sip, sip - ours].map(number);
            let _ = writeln!(text, "| {} | {} | {} | {} |", row.name, row.what, row.unit, cells.join(" | "));
        }
    }
    text
}

/// The pieces of the floor, from the row of the hot agent.
#[must_use]
pub fn pieces(rows: &[Row]) -> String {
    let Some(row) = rows.iter().find(|row| row.figures.contains_key(&Who::Exchange)) else {
        return String::new();
    };
    let names = [
        (Who::Floor, "floor: TSC scaled + load + CAS in one loop"),
        (Who::TscRead, "one TSC read, scaled"),
        (Who::Load, "one load"),
        (Who::Exchange, "one uncontended CAS"),
        (Who::OsClock, "one read of the OS clock"),
    ];
    let mut text = String::from("| piece | ns |\n|---|---:|\n");
    for (who, name) in names {
        let _ = writeln!(text, "| {name} | {} |", figure(row, who));
    }
    text
}

/// The least that any limiter takes in a row: see [`least`](crate::least).
#[must_use]
pub fn least(rows: &[Row]) -> String {
    let mut text = String::from(
        "| row | the least check, ns | ours, of that | governor, of that | DashMap, of that |\n|---|---:|---:|---:|---:|\n",
    );
    let single =
        |row: &&Row| row.figures.contains_key(&Who::Least) && !matches!(row.name, "hot-own-now" | "million-batch");
    for row in rows.iter().filter(single) {
        let least = row.figures[&Who::Least];
        let times = [Who::Ours, Who::Governor, Who::DashMap]
            .map(|who| row.figures.get(&who).map_or(String::new(), |figure| format!("{:.2}", figure / least)));
        let _ = writeln!(text, "| {} | {} | {} |", row.name, number(least), times.join(" | "));
    }
    text
}

/// The notes and doubts of the rows.
#[must_use]
pub fn notes(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        for note in &row.notes {
            let _ = writeln!(text, "- {}: {note}", row.name);
        }
        for doubt in &row.doubts {
            let _ = writeln!(text, "- {}, in doubt: {doubt}", row.name);
        }
    }
    text
}

/// The machine and the build.
#[must_use]
pub fn machine(tsc: &Tsc, clock: &Clock) -> String {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = file("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    let rustc = Command::new("rustc").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let lines = [
        ("processor", model.trim_start_matches([' ', '\t', ':']).to_string()),
        ("cores", cores.to_string()),
        ("kernel", file("/proc/sys/kernel/osrelease")),
        ("kernel's clock source", file("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("TSC", format!("{:.3} GHz", tsc.gigahertz())),
        ("huge pages", file("/sys/kernel/mm/transparent_hugepage/enabled")),
        ("load when it began", file("/proc/loadavg")),
        ("rustc", String::from_utf8_lossy(&rustc).into_owned()),
        ("build", "release, thin LTO, one codegen unit, target-cpu default".to_string()),
        ("our clock when it began", format!("{clock:?}")),
    ];
    let mut text = String::from("| machine | |\n|---|---|\n");
    for (name, value) in lines {
        let _ = writeln!(text, "| {name} | {} |", value.trim());
    }
    text
}

fn figure(row: &Row, who: Who) -> String {
    row.figures.get(&who).map_or(String::new(), |value| number(*value))
}

/// Ours in multiples of theirs.
fn ratio(row: &Row, who: Who) -> String {
    match (row.figures.get(&Who::Ours), row.figures.get(&who)) {
        (Some(ours), Some(theirs)) => format!("{:.2}", ours / theirs),
        _ => String::new(),
    }
}

/// Theirs, and how many times ours that is.
fn against(row: &Row, who: Who) -> String {
    match (row.figures.get(&Who::Ours), row.figures.get(&who)) {
        (Some(ours), Some(theirs)) => format!("{} ({:.1} x)", number(*theirs), theirs / ours),
        _ => String::new(),
    }
}

fn bar(bar: &Bar) -> String {
    let (sign, bound) = match bar.bound {
        Bound::AtMost(bound) => ("<=", bound),
        Bound::AtLeast(bound) => (">=", bound),
    };
    let mark = if bar.is_met() { "" } else { " **missed**" };
    format!("{sign} {bound} {}: {}{mark}", bar.what, number(bar.measured))
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "not measured".into(),
        0.0 => "0".into(),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 1_000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
