//! Rate-limits the log lines about denials.

use super::ShownId;
use crate::bounds::THROTTLED_AGENTS_MAX;
use crate::clock::Tick;
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

/// After a line about an agent, no other line about it for this long.
const QUIET: Duration = Duration::from_secs(60);

/// How often a summary is logged.
const SUMMARY: Duration = Duration::from_secs(300);

/// How many agents a summary names.
const SOURCES: usize = 5;

/// Turns denials into a few log lines.
///
/// The first denial of an agent is logged. Those that follow within a minute
/// are counted; when the minute is over, one line reports how many there were.
/// So an agent gets at most one line a minute. Every five minutes a summary
/// reports how many lines were suppressed in all, and for which agents.
///
/// It tracks up to [`THROTTLED_AGENTS_MAX`] agents, and forgets one a minute
/// after its last line. Denials of further agents are suppressed and counted
/// together: a flood of made-up ids takes no more than that many lines a
/// minute, and no more memory.
///
/// Report denials with [`denied`](Self::denied), and call [`due`](Self::due)
/// every few seconds. The caller supplies all times.
///
/// ```
/// use std::time::Duration;
/// use tollgate::observe::LogThrottle;
/// use tollgate::Tick;
///
/// let log = LogThrottle::new();
/// let start = Tick::ZERO;
/// let first = log.denied("agent-7", start).expect("the first is a line");
/// assert_eq!(first.to_string(), "Rate limit hit by agent agent-7");
/// for _ in 0..47 {
///     assert_eq!(log.denied("agent-7", start), None);
/// }
/// let minute = start.saturating_add(Duration::from_secs(60));
/// let lines: Vec<_> = log.due(minute).iter().map(ToString::to_string).collect();
/// assert_eq!(lines, ["Suppressed 47 similar messages from agent-7 in last minute"]);
///
/// let five = start.saturating_add(Duration::from_secs(300));
/// let lines: Vec<_> = log.due(five).iter().map(ToString::to_string).collect();
/// assert_eq!(lines, ["LOG THROTTLE: Suppressed 47 messages | Top sources: agent-7: 47"]);
/// ```
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<Throttle>);

/// A line for the log. Its text is what `Display` writes; ids in it are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogLine {
    /// `Rate limit hit by agent X`.
    Hit {
        /// The agent.
        agent: Vec<u8>,
    },
    /// `Suppressed 47 similar messages from X in last minute`.
    Throttled {
        /// The agent; `None` for all untracked agents together.
        agent: Option<Vec<u8>>,
        /// How many denials were not logged.
        suppressed: u64,
    },
    /// `LOG THROTTLE: Suppressed 523 messages | Top sources: a: 347, b: 176`.
    Summary {
        /// How many denials were not logged since the last summary.
        suppressed: u64,
        /// The agents with the most of them, up to five, the most first; `None`
        /// for all untracked agents together.
        sources: Vec<(Option<Vec<u8>>, u64)>,
    },
}

impl LogLine {
    /// `INFO`, `THROTTLE` or `SUMMARY`.
    #[must_use]
    pub const fn level(&self) -> &'static str {
        match self {
            LogLine::Hit { .. } => "INFO",
            LogLine::Throttled { .. } => "THROTTLE",
            LogLine::Summary { .. } => "SUMMARY",
        }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogLine::Hit { agent } => write!(f, "Rate limit hit by agent {}", ShownId::new(agent)),
            LogLine::Throttled { agent, suppressed } => {
                write!(f, "Suppressed {suppressed} similar messages from {} in last minute", Source(agent.as_deref()))
            }
            LogLine::Summary { suppressed, sources } => {
                write!(f, "LOG THROTTLE: Suppressed {suppressed} messages")?;
                for (index, (agent, count)) in sources.iter().enumerate() {
                    let before = if index == 0 { " | Top sources: " } else { ", " };
                    write!(f, "{before}{}: {count}", Source(agent.as_deref()))?;
                }
                Ok(())
            }
        }
    }
}

/// Whose denials were suppressed.
struct Source<'a>(Option<&'a [u8]>);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(agent) => ShownId::new(agent).fmt(f),
            None => f.write_str("other agents"),
        }
    }
}

impl LogThrottle {
    /// A throttle without any denials yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that an agent was denied at `now`. Returns the line to log, if any.
    #[must_use = "log the line"]
    pub fn denied(&self, agent: impl AsRef<[u8]>, now: Tick) -> Option<LogLine> {
        self.with(|throttle| throttle.denied(agent.as_ref(), now))
    }

    /// The lines that are due at `now`: for minutes that are over, and the summary.
    #[must_use = "log the lines"]
    pub fn due(&self, now: Tick) -> Vec<LogLine> {
        self.with(|throttle| throttle.due(now))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Throttle) -> T) -> T {
        // Usable after a panic elsewhere: every change is complete or not made.
        act(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
struct Throttle {
    /// Never more than [`THROTTLED_AGENTS_MAX`].
    agents: HashMap<Box<[u8]>, Heard>,
    others: Heard,
    /// When the period of the next summary began; `None` before the first denial.
    since: Option<Tick>,
    /// Suppressed since then.
    suppressed: u64,
    /// How many of those belong to agents that are forgotten by now.
    forgotten: u64,
}

/// What is known about an agent's denials.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// When its last line was logged, or its first denial was suppressed.
    line: Tick,
    /// Suppressed since then.
    suppressed: u64,
    /// Suppressed since the last summary.
    in_summary: u64,
}

impl Heard {
    fn suppress(&mut self) {
        self.suppressed += 1;
        self.in_summary += 1;
    }

    fn is_over(&self, now: Tick) -> bool {
        now.saturating_since(self.line) >= QUIET
    }

    /// The line that reports what was suppressed, if its minute is over.
    fn throttled(&mut self, agent: Option<&[u8]>, now: Tick) -> Option<LogLine> {
        let suppressed = self.suppressed;
        (self.is_over(now) && suppressed > 0).then(|| {
            (self.line, self.suppressed) = (now, 0);
            LogLine::Throttled { agent: agent.map(<[u8]>::to_vec), suppressed }
        })
    }
}

impl Throttle {
    fn denied(&mut self, agent: &[u8], now: Tick) -> Option<LogLine> {
        self.since.get_or_insert(now);
        let Some(heard) = self.agents.get_mut(agent) else {
            return self.first(agent, now);
        };
        if heard.is_over(now) && heard.suppressed == 0 {
            heard.line = now;
            return Some(LogLine::Hit { agent: agent.to_vec() });
        }
        heard.suppress();
        self.suppressed += 1;
        heard.throttled(Some(agent), now)
    }

    /// The denial of an agent that is not tracked yet.
    fn first(&mut self, agent: &[u8], now: Tick) -> Option<LogLine> {
        if self.agents.len() >= THROTTLED_AGENTS_MAX {
            self.forget(now);
        }
        if self.agents.len() < THROTTLED_AGENTS_MAX {
            self.agents.insert(agent.into(), Heard { line: now, ..Heard::default() });
            return Some(LogLine::Hit { agent: agent.to_vec() });
        }
        if self.others.suppressed == 0 {
            self.others.line = now;
        }
        self.others.suppress();
        self.suppressed += 1;
        self.others.throttled(None, now)
    }

    /// Forgets agents with nothing left to report.
    fn forget(&mut self, now: Tick) {
        self.agents.retain(|_, heard| {
            let stays = !heard.is_over(now) || heard.suppressed > 0;
            self.forgotten += if stays { 0 } else { heard.in_summary };
            stays
        });
    }

    fn due(&mut self, now: Tick) -> Vec<LogLine> {
        let agents = self.agents.iter_mut();
        let mut lines: Vec<_> = agents.filter_map(|(agent, heard)| heard.throttled(Some(agent), now)).collect();
        lines.extend(self.others.throttled(None, now));
        lines.sort_unstable_by_key(|line| std::cmp::Reverse(suppressed(line)));
        if self.since.is_some_and(|since| now.saturating_since(since) >= SUMMARY) {
            lines.extend(self.summary(now));
        }
        lines
    }

    /// What was suppressed since the last summary; `None` if nothing was.
    fn summary(&mut self, now: Tick) -> Option<LogLine> {
        let known = self.agents.iter().map(|(agent, heard)| (Some(agent.to_vec()), heard.in_summary));
        let unknown = (None, self.others.in_summary + self.forgotten);
        let mut sources: Vec<_> = known.chain([unknown]).filter(|(_, count)| *count > 0).collect();
        sources.sort_unstable_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
        sources.truncate(SOURCES);
        let suppressed = std::mem::take(&mut self.suppressed);
        self.since = Some(now);
        self.forgotten = 0;
        self.others.in_summary = 0;
        self.agents.values_mut().for_each(|heard| heard.in_summary = 0);
        self.forget(now);
        self.forgotten = 0; // This summary includes what was forgotten.
        (suppressed > 0).then_some(LogLine::Summary { suppressed, sources })
    }
}

fn suppressed(line: &LogLine) -> u64 {
    match line {
        LogLine::Hit { .. } => 0,
        LogLine::Throttled { suppressed, .. } | LogLine::Summary { suppressed, .. } => *suppressed,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Tick {
        Tick::ZERO.saturating_add(Duration::from_secs_f64(seconds))
    }

    fn texts(lines: &[LogLine]) -> Vec<String> {
        lines.iter().map(|line| format!("{} {line}", line.level())).collect()
    }

    #[test]
    fn six_hundred_denials_in_a_minute_are_one_full_line_and_one_about_the_rest() {
        let log = LogThrottle::new();
        let mut lines = Vec::new();
        for tenth in 0..600 {
            lines.extend(log.denied("X", at(f64::from(tenth) / 10.0)));
            lines.extend(log.due(at(f64::from(tenth) / 10.0)));
        }
        assert_eq!(texts(&lines), ["INFO Rate limit hit by agent X"]);
        assert_eq!(texts(&log.due(at(60.0))), ["THROTTLE Suppressed 599 similar messages from X in last minute"]);
        assert_eq!(log.due(at(299.9)), []);
        let summary = "SUMMARY LOG THROTTLE: Suppressed 599 messages | Top sources: X: 599";
        assert_eq!(texts(&log.due(at(300.0))), [summary]);
        assert_eq!(log.due(at(900.0)), [], "nothing was suppressed since");
    }

    #[test]
    fn a_summary_names_the_top_sources() {
        let log = LogThrottle::new();
        for (agent, denials) in [("b", 177), ("a", 348), ("quiet", 1)] {
            let lines: Vec<_> = (0..denials).filter_map(|_| log.denied(agent, at(1.0))).collect();
            assert_eq!(texts(&lines), [format!("INFO Rate limit hit by agent {agent}")]);
        }
        let throttled = ["a in last minute", "b in last minute"];
        let lines = texts(&log.due(at(61.0)));
        assert!(lines.len() == 2 && lines.iter().zip(throttled).all(|(line, end)| line.ends_with(end)), "{lines:?}");
        let summary = "SUMMARY LOG THROTTLE: Suppressed 523 messages | Top sources: a: 347, b: 176";
        assert_eq!(texts(&log.due(at(301.0))), [summary]);
    }

    #[test]
    fn an_agent_that_keeps_being_denied_gets_one_line_a_minute() {
        let log = LogThrottle::new();
        let lines: Vec<_> = (0..3_000).filter_map(|tenth| log.denied("X", at(f64::from(tenth) / 10.0))).collect();
        let minute = "THROTTLE Suppressed 600 similar messages from X in last minute";
        assert_eq!(texts(&lines), ["INFO Rate limit hit by agent X", minute, minute, minute, minute]);
    }

    #[test]
    fn a_denial_long_after_the_last_is_a_full_line_again() {
        let log = LogThrottle::new();
        for second in [0.0, 120.0, 3_600.0] {
            assert!(matches!(log.denied("X", at(second)), Some(LogLine::Hit { .. })), "{second}");
            assert_eq!(log.denied("X", at(second + 59.0)), None);
            assert_eq!(log.due(at(second + 60.0))[0], LogLine::Throttled { agent: Some(b"X".to_vec()), suppressed: 1 });
        }
    }

    #[test]
    fn an_older_instant_logs_no_line() {
        let log = LogThrottle::new();
        assert!(log.denied("X", at(100.0)).is_some());
        assert_eq!(log.denied("X", at(0.0)), None);
        assert_eq!(log.due(at(0.0)), []);
    }

    #[test]
    fn a_flood_of_ids_takes_a_bounded_number_of_lines_and_entries() {
        let log = LogThrottle::new();
        let flood = |second: f64| {
            let denied = |id: u32| log.denied(format!("{second}-{id}"), at(second));
            (0..50_000).filter_map(denied).collect::<Vec<_>>()
        };
        let lines = flood(0.0);
        assert_eq!(lines.len(), THROTTLED_AGENTS_MAX);
        assert!(lines.iter().all(|line| matches!(line, LogLine::Hit { .. })));
        assert_eq!(log.with(|throttle| throttle.agents.len()), THROTTLED_AGENTS_MAX);
        assert_eq!(
            texts(&log.due(at(60.0))),
            ["THROTTLE Suppressed 48976 similar messages from other agents in last minute"]
        );
        // The agents of a minute ago are forgotten to make room.
        assert_eq!(flood(61.0).len(), THROTTLED_AGENTS_MAX);
        assert_eq!(log.with(|throttle| throttle.agents.len()), THROTTLED_AGENTS_MAX);
        let lines = texts(&log.due(at(300.0)));
        assert_eq!(lines[1], "SUMMARY LOG THROTTLE: Suppressed 97952 messages | Top sources: other agents: 97952");
    }

    #[test]
    fn ids_are_escaped() {
        let line = LogThrottle::new().denied(b"a\nINFO b\xff", Tick::ZERO).unwrap();
        assert_eq!(line.to_string(), r"Rate limit hit by agent a\nINFO b\xff");
    }

    proptest! {
        /// Every denial has its own line, or is counted in one suppression line and in one summary.
        #[test]
        fn no_denial_is_lost_or_reported_twice(
            calls in proptest::collection::vec((0..6_u8, 0..90_u64, any::<bool>()), 1..400),
        ) {
            let log = LogThrottle::new();
            let (mut now, mut lines) = (Tick::ZERO, Vec::new());
            let mut last = [None; 6];
            for (agent, seconds, asks) in &calls {
                now = now.saturating_add(Duration::from_secs(seconds * seconds / 50));
                if let Some(line) = log.denied([b'a' + agent], now) {
                    let before = last[usize::from(*agent)].replace(now);
                    prop_assert!(before.is_none_or(|before: Tick| now.saturating_since(before) >= QUIET), "{}", line);
                    lines.push(line);
                }
                if *asks {
                    lines.extend(log.due(now));
                }
            }
            lines.extend(log.due(now.saturating_add(QUIET)));
            lines.extend(log.due(now.saturating_add(SUMMARY + QUIET)));
            let [mut full, mut throttled, mut summed] = [0_u64; 3];
            for line in &lines {
                match line {
                    LogLine::Hit { .. } => full += 1,
                    LogLine::Throttled { suppressed, .. } => throttled += suppressed,
                    LogLine::Summary { suppressed, sources } => {
                        summed += suppressed;
                        prop_assert!(sources.iter().map(|(_, count)| count).sum::<u64>() <= *suppressed);
                    }
                }
            }
            prop_assert_eq!(full + throttled, calls.len() as u64);
            prop_assert_eq!(summed, throttled);
        }
    }
}
