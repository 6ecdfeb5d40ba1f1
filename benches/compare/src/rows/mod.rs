//! The rows: what each compares, and its bars.
//!
//! One file per way of measuring; each states what overhead is included.

mod chosen;
mod field;
mod instructions;
mod latency;
mod layouts;
mod memory;
mod population;
mod two_threads;

pub use memory::exercise;
pub use population::{PLOTTED, SIZES};

use crate::floor::Tsc;
use crate::measure::Samples;
use std::collections::BTreeMap;

/// Which contestant a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// Ours, with [`our_clock`](crate::peers::our_clock).
    Ours,
    /// Ours with the operating system's clock.
    OursOs,
    /// Ours with the caller's own `now`.
    OursNow,
    /// Ours in batches.
    OursBatch,
    /// Ours with SipHash-1-3.
    OursSip,
    /// Ours with SipHash-1-3, in batches.
    OursSipBatch,
    /// Ours with memory touched as it is used.
    OursAsUsed,
    /// Ours on one thread, where the row is about two.
    OursAlone,
    /// Counter, load and exchange.
    Floor,
    /// The counter, scaled.
    TscRead,
    /// One load.
    Load,
    /// One exchange.
    Exchange,
    /// The operating system's clock.
    OsClock,
    /// A cache miss that may overlap with others.
    Miss,
    /// A cache miss after a read of the counter.
    MissTsc,
    /// The [least check](crate::least).
    Least,
    /// Two threads exchanging one word.
    BareLoop,
    /// governor.
    Governor,
    /// The tuned DashMap with six lanes.
    DashMap,
    /// The tuned DashMap with one lane.
    DashMapOneLane,
}

impl Who {
    /// A peer's name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Governor => "governor",
            Self::DashMap => "DashMap, six lanes",
            Self::DashMapOneLane => "DashMap, one lane",
            _ => "ours",
        }
    }

    /// Whether it is a piece of the floor, which decides nothing.
    #[must_use]
    pub const fn is_floor(self) -> bool {
        matches!(
            self,
            Self::Floor
                | Self::TscRead
                | Self::Load
                | Self::Exchange
                | Self::OsClock
                | Self::BareLoop
                | Self::Miss
                | Self::MissTsc
        )
    }
}

/// Nanoseconds per check, by contestant.
pub type Figures = BTreeMap<Who, f64>;

/// A bar: a ratio and its bound.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What is compared, as in "x floor".
    pub what: String,
    /// What was measured.
    pub measured: f64,
    /// The bound.
    pub bound: Bound,
}

/// The kind of bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
}

impl Bar {
    fn at_most(bound: f64, what: &str, measured: f64) -> Self {
        Self { what: what.into(), measured, bound: Bound::AtMost(bound) }
    }

    fn at_least(bound: f64, what: &str, measured: f64) -> Self {
        Self { what: what.into(), measured, bound: Bound::AtLeast(bound) }
    }

    /// Whether it is met. A bar that could not be measured is not.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.measured <= bound,
            Bound::AtLeast(bound) => self.measured >= bound,
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// One word for `--only`.
    pub name: &'static str,
    /// What is measured.
    pub what: String,
    /// The unit of its figures.
    pub unit: &'static str,
    /// The figures of all contestants.
    pub figures: Figures,
    /// Its bars.
    pub bars: Vec<Bar>,
    /// Further observations.
    pub notes: Vec<String>,
    /// Why its figures may be misleading.
    pub doubts: Vec<String>,
}

impl Row {
    /// Met if every bar is.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.bars.iter().all(Bar::is_met), self.doubts.is_empty()) {
            (true, true) => "met",
            (true, false) => "met, in doubt",
            (false, true) => "**missed**",
            (false, false) => "**missed**, in doubt",
        }
    }
}

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Rounds; the median is taken over them.
    pub rounds: usize,
    /// Divides the checks per round.
    pub divisor: usize,
    /// Requests per batch.
    pub batch: usize,
    /// Whether to measure 10 million agents.
    pub ten_million: bool,
    /// The requested rows; all if empty.
    pub only: Vec<String>,
}

impl Effort {
    fn wants(&self, row: &str) -> bool {
        let skipped = row == "ten-million" && !self.ten_million;
        !skipped && (self.only.is_empty() || self.only.iter().any(|wanted| wanted == row))
    }
}

/// One run of the program: figures that several rows share are measured once.
pub struct Session {
    effort: Effort,
    tsc: Tsc,
    populations: BTreeMap<usize, Figures>,
    latencies: Option<latency::Latencies>,
}

impl Session {
    /// Nothing measured yet.
    #[must_use]
    pub fn new(effort: Effort, tsc: Tsc) -> Self {
        Self { effort, tsc, populations: BTreeMap::new(), latencies: None }
    }

    /// Measures every requested row.
    pub fn rows(&mut self) -> Vec<Row> {
        type Measure = fn(&mut Session) -> Row;
        let rows: [(&str, Measure); 15] = [
            ("hot-allowed", population::hot_allowed),
            ("hot-denied", population::hot_denied),
            ("hot-own-now", population::hot_own_now),
            ("thousand", population::thousand),
            ("million", population::million_single),
            ("million-batch", population::million_batch),
            ("ten-million", population::ten_million),
            ("two-denied", two_threads::denied),
            ("two-allowed", two_threads::allowed),
            ("two-million", two_threads::million),
            ("first-contact", latency::worst_first_contact),
            ("tails", latency::tails),
            ("memory", memory::per_agent),
            ("instructions", instructions::per_check),
            ("chosen-ids", chosen::ids),
        ];
        let wanted = rows.into_iter().filter(|(name, _)| self.effort.wants(name)).collect::<Vec<_>>();
        wanted.into_iter().map(|(_, measure)| measure(self)).collect()
    }

    /// What each way to find a record costs, if `layouts` was requested.
    #[must_use]
    pub fn layouts(&self) -> Option<String> {
        self.effort.wants("layouts").then(|| layouts::report(self))
    }

    /// Figures against number of agents, for the plot.
    pub fn sweep(&mut self) -> BTreeMap<usize, Figures> {
        let ten_million = self.effort.ten_million;
        for agents in SIZES.into_iter().filter(|agents| ten_million || *agents < population::TEN_MILLION) {
            population::figures(self, agents);
        }
        self.populations.clone()
    }
}

/// Prints progress to the terminal.
fn progress(text: &str) {
    eprintln!("[compare] {text}");
}

/// Medians by contestant, shown with their range.
fn medians(names: &[Who], samples: &[Samples]) -> Figures {
    names
        .iter()
        .zip(samples)
        .map(|(who, samples)| {
            let median = samples.median();
            progress(&format!("    {who:?}: {median:.2} ({:.2} to {:.2})", samples.least(), samples.largest()));
            (*who, median)
        })
        .collect()
}

/// How many times less `ours` takes than `theirs`.
fn times(figures: &Figures, theirs: Who, ours: Who) -> f64 {
    figures.get(&theirs).copied().unwrap_or(f64::NAN) / figures.get(&ours).copied().unwrap_or(f64::NAN)
}
