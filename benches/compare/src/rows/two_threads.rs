//! Two threads at once, each on its own core.
//!
//! A figure is one over the sum of the threads' rates, each by its own CPU
//! time: half of what one thread takes if they do not slow each other down. It
//! includes what one thread includes, plus one shared flag read per 1,024
//! checks. Rounds are short, a few milliseconds, and those in which the threads
//! were not on their cores for nine tenths of the time are repeated, so that
//! they really overlap even while other programs run.

use super::field::{Field, Stream};
use super::population::MILLION;
use super::{Bar, Figures, Row, Session, Who, medians, progress, times};
use crate::floor::Piece;
use crate::ids::{Id, Pattern, Random};
use crate::measure::{Samples, Together, interleaved, together};
use crate::peers::{Lane, Ours, limiter};
use std::sync::Arc;

const THREADS: usize = 2;

/// "Best of 7 rounds".
const BEST_OF: usize = 7;

/// A round counts if every thread had its core for this share of the wall time.
const OVERLAP_MIN: f64 = 0.9;

/// Attempts per contestant and round.
const TRIES: usize = 10;

/// Checks per thread and round: a millisecond or two, less than the time for
/// which a scheduler leaves a thread alone.
const HOT_CHECKS: usize = 1 << 14;
const RANDOM_CHECKS: usize = 1 << 13;

/// With fewer valid rounds than this, the figure is in doubt.
const ROUNDS_MIN: usize = 5;

struct Measured {
    field: Field,
    samples: Vec<Samples>,
    doubts: Vec<String>,
}

impl Measured {
    fn medians(&self) -> Figures {
        medians(&self.field.names, &self.samples)
    }

    fn best(&self) -> Figures {
        self.medians();
        self.field.names.iter().zip(&self.samples).map(|(who, samples)| (*who, samples.least())).collect()
    }
}

fn measure(field: Field, rounds: usize, stream: &[Id], checks: usize) -> Measured {
    let (first, second) = stream.split_at(stream.len() / THREADS);
    let mut seen: Vec<Vec<Together>> = vec![Vec::new(); field.names.len()];
    interleaved(rounds, field.names.len(), |who, _| {
        let streams: &[&[Id]] = if field.names[who] == Who::OursAlone { &[first] } else { &[first, second] };
        let tries = (0..TRIES).map(|_| together(field.get(who), streams, checks));
        let mut last = f64::NAN;
        for tried in tries {
            seen[who].push(tried);
            last = tried.ns;
            if tried.overlap >= OVERLAP_MIN {
                break;
            }
        }
        last
    });
    let met =
        |seen: &[Together]| seen.iter().filter(|round| round.overlap >= OVERLAP_MIN).map(|round| round.ns).collect();
    let mut apart = Vec::new();
    let samples = field.names.iter().zip(&seen).map(|(who, seen)| {
        let counted: Samples = met(seen);
        if counted.count() >= ROUNDS_MIN.min(rounds) {
            return counted;
        }
        // A doubt about a contestant in no bar and no other table does not put the row in doubt.
        if matches!(who, Who::Ours | Who::OursBatch | Who::OursAlone | Who::Governor | Who::BareLoop | Who::Least) {
            apart.push(format!("{who:?} {} of {}", counted.count(), seen.len()));
        }
        seen.iter().map(|round| round.ns).collect()
    });
    let samples = samples.collect();
    let doubts = if apart.is_empty() {
        Vec::new()
    } else {
        vec![format!(
            "other programs kept the threads apart, which favours contestants that suffer from contention; rounds in which they overlapped: {}",
            apart.join(", ")
        )]
    };
    Measured { field, samples, doubts }
}

fn hot(lane: Lane, field: Field, rounds: usize) -> Measured {
    let ids = Pattern::Random.ids(1);
    let stream = Stream::new(&ids, 1, &mut Random::new(2));
    field.meet(&ids);
    field.verify(&ids[0], lane);
    let measured = measure(field, rounds, &stream.ids, HOT_CHECKS);
    measured.field.verify(&ids[0], lane);
    measured
}

pub(super) fn denied(session: &mut Session) -> Row {
    progress("one denied hot agent, two threads");
    let alone = Ours::new(Arc::new(limiter(1)), Lane::Denied);
    let field = Field::limiters(1, Lane::Denied, session.tsc, session.effort.batch).with(Who::OursAlone, alone);
    let measured = hot(Lane::Denied, field, session.effort.rounds.max(BEST_OF));
    let figures = measured.best();
    let bars = vec![
        Bar::at_least(1.8, "x one thread", times(&figures, Who::OursAlone, Who::Ours)),
        Bar::at_least(6.0, "x governor", times(&figures, Who::Governor, Who::Ours)),
    ];
    let alone = format!("one thread: {:.2} ns; best rounds, not medians", figures[&Who::OursAlone]);
    let what = "2 threads, one denied hot agent".into();
    Row { name: "two-denied", what, unit: "ns", figures, bars, notes: vec![alone], doubts: measured.doubts }
}

pub(super) fn allowed(session: &mut Session) -> Row {
    progress("one allowed hot agent, two threads");
    let field = Field::limiters(1, Lane::Allowed, session.tsc, session.effort.batch).floor(
        Piece::ExchangeLoop,
        Who::BareLoop,
        session.tsc,
    );
    let measured = hot(Lane::Allowed, field, session.effort.rounds * 3);
    let figures = measured.medians();
    let bars = vec![
        Bar::at_least(0.7, "x bare CAS loop", times(&figures, Who::BareLoop, Who::Ours)),
        Bar::at_least(2.3, "x governor", times(&figures, Who::Governor, Who::Ours)),
    ];
    let bare = format!("bare two-thread CAS loop: {:.2} ns", figures[&Who::BareLoop]);
    let what = "2 threads, one allowed hot agent".into();
    Row { name: "two-allowed", what, unit: "ns", figures, bars, notes: vec![bare], doubts: measured.doubts }
}

pub(super) fn million(session: &mut Session) -> Row {
    progress("1 M agents, two threads");
    let mut random = Random::new(3);
    let mut ids = Pattern::Random.ids(MILLION);
    random.shuffle(&mut ids);
    let stream = Stream::new(&ids, 1, &mut random);
    let field = Field::limiters(MILLION, Lane::Allowed, session.tsc, session.effort.batch);
    field.meet(&ids);
    field.verify(&ids[0], Lane::Allowed);
    let measured = measure(field, session.effort.rounds * 3, &stream.ids, RANDOM_CHECKS);
    let figures = measured.medians();
    let bars = vec![
        Bar::at_least(4.5, "x governor", times(&figures, Who::Governor, Who::Ours)),
        Bar::at_least(9.0, "x governor, batch", times(&figures, Who::Governor, Who::OursBatch)),
    ];
    let what = "2 threads, 1 M agents, single calls (batch: second table)".into();
    Row { name: "two-million", what, unit: "ns", figures, bars, notes: Vec::new(), doubts: measured.doubts }
}
