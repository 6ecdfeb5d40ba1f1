//! One thread, from one hot agent to ten million random ones.
//!
//! Every contestant has seen every agent before. [`measure`](crate::measure)
//! states what a figure includes; ours in batches also includes building the
//! batch.

use super::field::{Field, Stream};
use super::{Bar, Figures, Row, Session, Who, medians, progress, times};
use crate::floor::Piece;
use crate::ids::{Pattern, Random};
use crate::misses::{Beside, Misses};
use crate::peers::Lane;

/// Numbers of agents in the plot.
pub const SIZES: [usize; 8] = [1, 10, 100, THOUSAND, 10_000, 100_000, MILLION, TEN_MILLION];

/// What the plot shows.
pub const PLOTTED: [(Who, &str); 4] = [
    (Who::Ours, "tollgate, single calls"),
    (Who::OursBatch, "tollgate, batches"),
    (Who::Governor, "governor, keyed"),
    (Who::DashMap, "DashMap, tuned"),
];

pub(super) const THOUSAND: usize = 1_000;
pub(super) const MILLION: usize = 1_000_000;
pub(super) const TEN_MILLION: usize = 10_000_000;

/// The figures of all contestants for this many agents, measured once per run.
pub(super) fn figures(session: &mut Session, agents: usize) -> Figures {
    if let Some(figures) = session.populations.get(&agents) {
        return figures.clone();
    }
    let figures = measure(session, agents, Lane::Allowed);
    session.populations.insert(agents, figures.clone());
    figures
}

fn measure(session: &Session, agents: usize, lane: Lane) -> Figures {
    progress(&format!("{agents} agents, {lane:?}, one thread"));
    let effort = &session.effort;
    let mut random = Random::new(agents as u64);
    let mut ids = Pattern::Random.ids(agents);
    random.shuffle(&mut ids);
    let stream = Stream::new(&ids, effort.divisor, &mut random);
    let mut field = Field::limiters(agents, lane, session.tsc, effort.batch)
        .floor(Piece::All, Who::Floor, session.tsc)
        .floor(Piece::Tsc, Who::TscRead, session.tsc);
    // A second slab for 10 million agents would show nothing that 1 million do not.
    if agents <= MILLION {
        field = field.siphash(agents, lane, effort.batch);
    }
    if agents == 1 {
        field = field
            .floor(Piece::Load, Who::Load, session.tsc)
            .floor(Piece::Exchange, Who::Exchange, session.tsc)
            .floor(Piece::OsClock, Who::OsClock, session.tsc);
    }
    if agents >= MILLION {
        field = field
            .with(Who::Miss, Misses::new(agents, Beside::Nothing, session.tsc))
            .with(Who::MissTsc, Misses::new(agents, Beside::Tsc, session.tsc));
    }
    field.meet(&ids);
    field.verify(&ids[0], lane);
    // Hot rounds take milliseconds, so there can be more of them.
    let rounds = if agents < 50_000 { effort.rounds * 3 } else { effort.rounds };
    let samples = field.one_thread(rounds, &stream);
    field.verify(&ids[0], lane);
    medians(&field.names, &samples)
}

fn row(name: &'static str, what: &str, figures: Figures, bars: Vec<Bar>) -> Row {
    Row { name, what: what.into(), unit: "ns", figures, bars, notes: Vec::new(), doubts: Vec::new() }
}

pub(super) fn hot_allowed(session: &mut Session) -> Row {
    let figures = figures(session, 1);
    let bars = vec![
        Bar::at_most(1.35, "x floor", times(&figures, Who::Ours, Who::Floor)),
        Bar::at_least(2.8, "x governor", times(&figures, Who::Governor, Who::Ours)),
        against_fastest(2.0, &figures, &[Who::DashMap, Who::DashMapOneLane]),
    ];
    row("hot-allowed", "hot agent, allowed", figures, bars)
}

pub(super) fn hot_denied(session: &mut Session) -> Row {
    let figures = measure(session, 1, Lane::Denied);
    let bars = vec![Bar::at_most(1.3, "x one TSC read", times(&figures, Who::Ours, Who::TscRead))];
    row("hot-denied", "hot agent, denied", figures, bars)
}

pub(super) fn hot_own_now(session: &mut Session) -> Row {
    let mut figures = figures(session, 1);
    let own = figures[&Who::OursNow];
    let bars = vec![Bar::at_most(0.8, "x floor", own / figures[&Who::Floor])];
    figures.insert(Who::Ours, own);
    // The least check was measured with our clock, so it is not comparable here.
    figures.remove(&Who::OursSip);
    row("hot-own-now", "hot agent, caller's own `now`", figures, bars)
}

pub(super) fn thousand(session: &mut Session) -> Row {
    let figures = figures(session, THOUSAND);
    let bars = vec![
        Bar::at_most(1.7, "x floor", times(&figures, Who::Ours, Who::Floor)),
        Bar::at_least(2.5, "x governor", times(&figures, Who::Governor, Who::Ours)),
    ];
    row("thousand", "1,000 random agents", figures, bars)
}

pub(super) fn million_single(session: &mut Session) -> Row {
    let figures = figures(session, MILLION);
    let bars = vec![
        Bar::at_least(5.0, "x governor", times(&figures, Who::Governor, Who::Ours)),
        against_fastest(4.0, &figures, &[Who::Governor, Who::DashMap, Who::DashMapOneLane]),
    ];
    let note = misses(&figures);
    let mut row = row("million", "1 M random agents, single calls", figures, bars);
    row.notes.push(note);
    row
}

pub(super) fn million_batch(session: &mut Session) -> Row {
    let figures = figures(session, MILLION);
    let bars = vec![
        Bar::at_least(10.0, "x governor", times(&figures, Who::Governor, Who::OursBatch)),
        Bar::at_least(1.7, "x own single calls", times(&figures, Who::Ours, Who::OursBatch)),
    ];
    batch_row("million-batch", "1 M random agents, batch", figures, bars, session.effort.batch)
}

pub(super) fn ten_million(session: &mut Session) -> Row {
    let million = figures(session, MILLION);
    let figures = figures(session, TEN_MILLION);
    let bars = vec![
        Bar::at_least(5.5, "x governor, single", times(&figures, Who::Governor, Who::Ours)),
        Bar::at_least(10.0, "x governor, batch", times(&figures, Who::Governor, Who::OursBatch)),
        Bar::at_most(1.6, "x batch at 1 M", figures[&Who::OursBatch] / million[&Who::OursBatch]),
    ];
    let note = misses(&figures);
    let mut row = row("ten-million", "10 M random agents, single calls (batch: second table)", figures, bars);
    row.notes.push(note);
    row
}

/// What a cache miss costs in a table of this size, in words.
fn misses(figures: &Figures) -> String {
    format!(
        "a cache miss costs {:.0} ns where misses overlap, {:.0} ns behind a TSC read",
        figures[&Who::Miss],
        figures[&Who::MissTsc],
    )
}

/// A bar against the fastest of these peers, in this run.
fn against_fastest(bound: f64, figures: &Figures, peers: &[Who]) -> Bar {
    let ratio = |peer: &Who| times(figures, *peer, Who::Ours);
    let fastest = peers.iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b))).expect("some peers");
    Bar::at_least(bound, &format!("x fastest exact peer ({})", fastest.name()), ratio(fastest))
}

/// A row whose column "ours" is the batch, with either hash.
fn batch_row(name: &'static str, what: &str, mut figures: Figures, bars: Vec<Bar>, size: usize) -> Row {
    figures.insert(Who::Ours, figures[&Who::OursBatch]);
    figures.insert(Who::OursSip, figures[&Who::OursSipBatch]);
    let mut row = row(name, what, figures, bars);
    row.notes.push(format!("batches of {size}"));
    row
}
