//! Ids chosen without knowledge of the key, against random ones.
//!
//! Ours only, single calls, each set of ids in a separate slab and checked in random order; figures include what
//! `thousand` and `million` include. Claims that found no vacant record near their home are counted too: chosen ids
//! that cluster would show up there first.

use super::field::{Field, Stream};
use super::population::{MILLION, THOUSAND};
use super::{Bar, Figures, Row, Session, Who, progress};
use crate::ids::{Id, Pattern, Random};
use crate::measure::{interleaved, one_thread};
use crate::peers::{Contestant, Lane, Ours, limiter};
use std::sync::Arc;

const PATTERNS: [Pattern; 7] = {
    let [a, b, c, d, e, f] = Pattern::CHOSEN;
    [Pattern::Random, a, b, c, d, e, f]
};

/// Nanoseconds per check by pattern, random first, and evictions.
fn measure(session: &Session, agents: usize) -> Vec<(Pattern, f64, u64)> {
    let mut field = Field::default();
    let mut streams = Vec::new();
    let mut limiters = Vec::new();
    for pattern in PATTERNS {
        let mut random = Random::new(15);
        let mut ids: Vec<Id> = pattern.ids(agents);
        random.shuffle(&mut ids);
        let limiter = Arc::new(limiter(agents));
        let ours = Ours::new(Arc::clone(&limiter), Lane::Allowed);
        ours.run(&ids);
        field = field.with(Who::Ours, ours);
        limiters.push(limiter);
        streams.push(Stream::new(&ids, session.effort.divisor, &mut random));
    }
    let rounds = if agents < MILLION { session.effort.rounds * 3 } else { session.effort.rounds };
    let samples =
        interleaved(rounds, PATTERNS.len(), |who, round| one_thread(field.get(who), streams[who].work(round)));
    PATTERNS
        .into_iter()
        .zip(samples)
        .zip(limiters)
        .map(|((pattern, samples), limiter)| {
            let stats = limiter.stats();
            let evictions = stats.idle_evictions + stats.lossy_evictions;
            let median = samples.median();
            progress(&format!("    {agents} {}: {median:.2} ns, {evictions} evictions", pattern.name()));
            (pattern, median, evictions)
        })
        .collect()
}

pub(super) fn ids(session: &mut Session) -> Row {
    progress("chosen ids");
    let mut bars = Vec::new();
    let mut notes = Vec::new();
    let mut figures = Figures::new();
    for (agents, name) in [(THOUSAND, "1,000"), (MILLION, "1 M")] {
        let seen = measure(session, agents);
        let random = seen[0].1;
        let (worst, ns, _) = seen[1..].iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("some patterns");
        bars.push(Bar::at_most(1.2, &format!("x random at {name} ({})", worst.name()), ns / random));
        figures.insert(Who::Ours, *ns);
        let all: Vec<_> =
            seen.iter().map(|(pattern, ns, evictions)| format!("{} {ns:.1} ({evictions})", pattern.name())).collect();
        notes.push(format!("{name} agents, ns (evictions): {}", all.join(", ")));
    }
    Row {
        name: "chosen-ids",
        what: "chosen ids, the worst set at 1 M".into(),
        unit: "ns",
        figures,
        bars,
        notes,
        doubts: Vec::new(),
    }
}
