//! The report: what an operator needs to know, as a JSON document.
//!
//! Written by hand: it is a dozen numbers and three lists, and the default build
//! has no JSON writer.

use super::shown::json_string;
use super::{AgentPage, ListedAgent, Offender, Offenders, ShownId, Snapshot};
use crate::clock::ClockSource;
use std::fmt::{self, Display, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many agents the report lists as busiest, and as worst offenders.
pub(crate) const BUSIEST: usize = 20;
pub(crate) const OFFENDERS: usize = 20;

/// The usual name of the report, in the directory of the audit log.
pub const REPORT_FILE: &str = "monitor_status.json";

/// What the report is made of.
pub(crate) struct Report<'a> {
    pub(crate) written: SystemTime,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) offenders: &'a Offenders,
    pub(crate) busiest: &'a AgentPage,
}

impl Report<'_> {
    /// The document, ending in a line break.
    pub(crate) fn document(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let Self { written, snapshot, offenders, busiest } = self;
        let stats = &snapshot.stats;
        writeln!(out, "{{\n  \"version\": 1,\n  \"written_at\": \"{}\",", Utc(*written))?;
        writeln!(
            out,
            "  \"agents\": {{\"known\": {}, \"records\": {}, \"assigned\": {}, \"overridden\": {}, \"exempt\": {}, \
             \"listed\": {}, \"not_listed\": {}}},",
            stats.agents,
            stats.records,
            snapshot.assigned,
            snapshot.overridden,
            snapshot.exempt,
            busiest.listed,
            busiest.not_listed
        )?;
        writeln!(
            out,
            "  \"checks\": {{\"total\": {}, \"allowed\": {}, \"warned\": {}, \"denied\": {}, \"errors\": {}, \"full\": {}}},",
            snapshot.checks(),
            snapshot.allowed(),
            snapshot.warned(),
            snapshot.denied(),
            snapshot.errors,
            snapshot.full
        )?;
        list(out, "lanes", &snapshot.lanes, |out, lane| {
            out.write_str("{\"lane\": ")?;
            json_string(out, &lane.name)?;
            let (allowed, warned, denied, exempt) = (lane.allowed, lane.warned, lane.denied, lane.exempt);
            write!(out, ", \"allowed\": {allowed}, \"warned\": {warned}, \"denied\": {denied}, \"exempt\": {exempt}}}")
        })?;
        writeln!(
            out,
            "  \"violations\": {{\"total\": {}, \"last_hour\": {}, \"sustained_abuse\": {}, \"error_max\": {}, \"missed\": {}}},",
            snapshot.violations,
            snapshot.violations_last_hour,
            snapshot.sustained_abuse,
            offenders.error_max,
            offenders.missed
        )?;
        list(out, "top_offenders", &offenders.list, |out, Offender { agent, violations, error }| {
            let agent = ShownId::new(agent).json();
            write!(out, "{{\"agent\": {agent}, \"violations\": {violations}, \"error\": {error}}}")
        })?;
        list(out, "busiest", &busiest.agents, busy)?;
        writeln!(
            out,
            "  \"evictions\": {{\"idle\": {}, \"lossy\": {}}},\n  \"unknown_actions\": {},\n  \"events_dropped\": {},",
            stats.idle_evictions, stats.lossy_evictions, snapshot.unknown_actions, snapshot.events_dropped
        )?;
        let clock = match snapshot.clock {
            ClockSource::Tsc => "tsc",
            ClockSource::Os => "os",
            ClockSource::Coarse => "coarse",
            ClockSource::Boottime => "boottime",
            ClockSource::Manual => "manual",
        };
        writeln!(out, "  \"clock\": {{\"source\": \"{clock}\", \"fallbacks\": {}}}\n}}", snapshot.clock_fallbacks)
    }
}

/// One of the agents nearest to their limits.
fn busy(out: &mut String, ListedAgent { id, view }: &ListedAgent) -> fmt::Result {
    write!(out, "{{\"agent\": {}, \"plan\": ", ShownId::new(id).json())?;
    json_string(out, view.plan.as_deref().unwrap_or("default"))?;
    write!(out, ", \"exempt\": {}, \"rate_limited\": {}", view.is_exempt, view.is_rate_limited())?;
    write!(out, ", \"violations\": {}", view.conduct.violations())?;
    if let Some(lane) = view.dominant() {
        out.write_str(", \"lane\": ")?;
        json_string(out, &lane.name)?;
        let (remaining, capacity) = (lane.state.remaining(), lane.state.capacity());
        write!(out, ", \"used_percent\": {:.1}", lane.used_percent())?;
        write!(out, ", \"remaining\": {remaining}, \"capacity\": {capacity}")?;
        write!(out, ", \"full_in_ms\": {}", lane.state.full_in().as_nanos().div_ceil(1_000_000))?;
    }
    out.write_char('}')
}

/// A key with a list, one item per line.
fn list<T>(out: &mut String, key: &str, items: &[T], item: impl Fn(&mut String, &T) -> fmt::Result) -> fmt::Result {
    write!(out, "  \"{key}\": [")?;
    for (index, one) in items.iter().enumerate() {
        out.write_str(if index == 0 { "\n    " } else { ",\n    " })?;
        item(out, one)?;
    }
    out.write_str(if items.is_empty() { "],\n" } else { "\n  ],\n" })
}

/// An instant of the wall clock as RFC 3339 writes it, to the second.
struct Utc(SystemTime);

impl Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A clock before 1970 counts as 1970.
        let seconds = self.0.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years start in March, so that the leap day comes last: 400 of them have 146,097 days, and March 1 of year 0
        // was 719,468 days before 1970.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (year, month) = if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        // From `date --utc --date=@SECONDS +%FT%TZ`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Utc(UNIX_EPOCH + Duration::from_secs(seconds)).to_string(), text);
        }
        assert_eq!(Utc(UNIX_EPOCH - Duration::from_secs(1)).to_string(), "1970-01-01T00:00:00Z");
    }
}
