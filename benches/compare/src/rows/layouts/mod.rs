//! Ways to find a record, and what each costs: the layouts that were tried, as
//! sketches. They have no bars; `--only layouts` measures only them.
//!
//! Every sketch finds the same agents by the same hash in 64-byte records, at
//! load 3/4 and within 96 records. Figures include the hash and the loop; there
//! are no limits, plans or error checks, and nothing is claimed or evicted
//! meanwhile.
//!
//! Each way is measured alone, where cache misses may overlap, and within the
//! rest of a check: a TSC read when the record is found (in one of the ways,
//! before it is touched), and the exchange of a lane. The baseline takes the
//! record in the favourite slot, whatever agent it belongs to: no search beats
//! it.

mod table;

use super::field::Stream;
use super::population::{MILLION, THOUSAND};
use super::{Session, progress};
use crate::floor::{Tsc, consume, exchange};
use crate::ids::{Id, Pattern, Random};
use crate::measure::{interleaved, one_thread};
use crate::misses::prefetch;
use crate::peers::{Contestant, Lane, Ours, limiter};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use table::{GROUP, Table};

const SIZES: [usize; 3] = [1, THOUSAND, MILLION];

/// A way to find a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Baseline,
    Tags,
    Group,
    Pair,
    Ahead,
    FavouriteTag,
    FavouriteSearch,
    FavouriteGroup,
}

const WAYS: [(Way, &str); 8] = [
    (Way::Baseline, "baseline: the favourite slot, whatever agent it belongs to"),
    (Way::Tags, "tags one by one from the favourite slot on (linear probing)"),
    (Way::Group, "fingerprints of the home group at once"),
    (Way::Pair, "fingerprints of the home group and the next at once"),
    (Way::Ahead, "the same, and both the favourite slot and the match prefetched before the TSC is read (chosen)"),
    (Way::FavouriteTag, "tag in the favourite slot, then a full search"),
    (Way::FavouriteSearch, "fingerprint of the favourite slot, then a full search"),
    (Way::FavouriteGroup, "fingerprint of the favourite slot, then of the home group"),
];

struct Sketch {
    table: Arc<Table>,
    way: Way,
    /// The clock, if a check surrounds the search.
    check: Option<Tsc>,
}

impl Contestant for Sketch {
    #[inline(never)]
    fn run(&self, ids: &[Id]) {
        match self.way {
            Way::Baseline => self.turns(ids, |table, hash| {
                consume(table.tag(table.favourite(hash)));
                Some(table.favourite(hash))
            }),
            Way::Tags => self.turns(ids, Table::probe),
            Way::Group => self.turns(ids, |table, hash| table.confirm(hash, table.first_at_home(hash))),
            Way::Pair => self.turns(ids, |table, hash| table.confirm(hash, table.first_of_pair(hash))),
            Way::Ahead => self.turns_ahead(ids),
            Way::FavouriteTag => self.turns(ids, |table, hash| table.confirm(hash, Some(table.favourite(hash)))),
            Way::FavouriteSearch => self.turns(ids, |table, hash| {
                table.confirm(hash, table.shows_favourite(hash).then(|| table.favourite(hash)))
            }),
            Way::FavouriteGroup => self.turns(ids, |table, hash| {
                let is_shown = table.shows_favourite(hash);
                table.confirm(hash, if is_shown { Some(table.favourite(hash)) } else { apart(table, hash) })
            }),
        }
    }
}

/// Out of line, so that the compiler emits a branch, not a conditional move.
#[inline(never)]
fn apart(table: &Table, hash: u64) -> Option<usize> {
    table.first_at_home(hash)
}

impl Sketch {
    /// The tag is read after the clock.
    #[inline(always)]
    fn turns_ahead(&self, ids: &[Id]) {
        let table = &*self.table;
        for hash in ids.iter().map(|id| table.hash(id)) {
            prefetch(table.lane(table.favourite(hash)));
            let found = table.first_of_pair(hash);
            found.iter().for_each(|position| prefetch(table.lane(*position)));
            let now = self.check.map(|tsc| tsc.now());
            let position = table.confirm(hash, found);
            match (position, now) {
                (Some(position), Some(now)) => {
                    let lane = table.lane(position);
                    exchange(lane, lane.load(Ordering::Acquire), now);
                }
                _ => consume(position.map_or(0, |position| position as u64)),
            }
        }
    }

    #[inline(always)]
    fn turns(&self, ids: &[Id], find: impl Fn(&Table, u64) -> Option<usize>) {
        let find = |id| find(&self.table, self.table.hash(id));
        let Some(tsc) = self.check else {
            return ids.iter().for_each(|id| consume(find(id).map_or(0, |position| position as u64)));
        };
        for position in ids.iter().filter_map(find) {
            let now = tsc.now();
            let lane = self.table.lane(position);
            exchange(lane, lane.load(Ordering::Acquire), now);
        }
    }
}

/// Medians by way, alone and then in a check, ours last; and where the agents are.
fn measure(session: &Session, agents: usize) -> (Vec<f64>, String) {
    progress(&format!("layouts, {agents} agents"));
    let mut random = Random::new(agents as u64);
    let mut ids = Pattern::Random.ids(agents);
    random.shuffle(&mut ids);
    let (groups, linear) = (Arc::new(Table::new(&ids, true)), Arc::new(Table::new(&ids, false)));
    let mut field: Vec<Box<dyn Contestant>> = Vec::new();
    for check in [None, Some(session.tsc)] {
        for (way, _) in WAYS {
            let table = Arc::clone(if way == Way::Tags { &linear } else { &groups });
            field.push(Box::new(Sketch { table, way, check }));
        }
    }
    field.push(Box::new(Ours::new(Arc::new(limiter(agents)), Lane::Allowed)));
    field.iter().for_each(|contestant| contestant.run(&ids));
    let stream = Stream::new(&ids, session.effort.divisor, &mut random);
    let rounds = if agents < MILLION { session.effort.rounds * 3 } else { session.effort.rounds };
    let samples = interleaved(rounds, field.len(), |who, round| one_thread(&*field[who], stream.work(round)));
    (samples.iter().map(|samples| samples.median()).collect(), places(&groups, &linear, &ids))
}

/// Where the agents are, in words.
fn places(groups: &Table, linear: &Table, ids: &[Id]) -> String {
    let percent = |count: usize| 100.0 * count as f64 / ids.len() as f64;
    let count = |holds: &dyn Fn(u64) -> bool| percent(ids.iter().filter(|id| holds(groups.hash(id))).count());
    let hashes = ids.iter().map(|id| linear.hash(id));
    let probes: Vec<usize> = hashes.filter_map(|hash| Some(linear.probe(hash)? - linear.favourite(hash) + 1)).collect();
    format!(
        "In groups, {:.1} % of the agents are in their favourite slot, {:.1} % in their home group, {:.1} % in that or the \
         next, {:.1} % are the first there to show their fingerprint, and {:.4} % found no room. Tags one by one: {:.1} on average, and {:.4} % found no room.\n",
        count(&|hash| groups.search(hash) == Some(groups.favourite(hash))),
        count(&|hash| groups.search(hash).is_some_and(|position| position / GROUP == groups.home(hash))),
        count(&|hash| groups.search(hash).is_some_and(|position| position / GROUP <= groups.home(hash) + 1)),
        count(&|hash| groups.search(hash).is_some_and(|position| groups.first_of_pair(hash) == Some(position))),
        count(&|hash| groups.search(hash).is_none()),
        probes.iter().sum::<usize>() as f64 / probes.len() as f64,
        percent(ids.len() - probes.len()),
    )
}

/// The table, as markdown, and where 1 million agents are.
pub(super) fn report(session: &Session) -> String {
    let measured = SIZES.map(|agents| measure(session, agents));
    let mut text = String::from(
        "| search | hot agent | 1,000 agents | 1 M agents | in a check: hot agent | 1,000 agents | 1 M agents |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut line = |name: &str, columns: [Option<usize>; 2]| {
        let cells =
            columns.into_iter().flat_map(|column| measured.each_ref().map(|(medians, _)| Some(medians[column?])));
        let cells: Vec<_> = cells.map(|median| median.map_or(String::new(), |ns| format!("{ns:.1}"))).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    };
    for (index, (_, name)) in WAYS.iter().enumerate() {
        line(name, [Some(index), Some(WAYS.len() + index)]);
    }
    line("tollgate, a whole check", [None, Some(2 * WAYS.len())]);
    let [.., (_, places)] = &measured;
    format!("{text}\n{places}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sketch that misses agents, or takes another's record, would look fast.
    #[test]
    fn every_way_charges_the_agent_and_no_other() {
        let ids = Pattern::Random.ids(20_000);
        let tsc = Tsc::calibrate();
        for (way, name) in WAYS.into_iter().filter(|(way, _)| *way != Way::Baseline) {
            let table = Arc::new(Table::new(&ids, way != Way::Tags));
            let sketch = Sketch { table: Arc::clone(&table), way, check: Some(tsc) };
            let mut found = 0;
            for id in &ids {
                let hash = table.hash(id);
                let place = if way == Way::Tags { table.probe(hash) } else { table.search(hash) };
                let Some(position) = place else { continue };
                assert_eq!(table.tag(position), hash, "{name}");
                let charged = || table.lane(position).load(Ordering::Relaxed);
                assert_eq!(charged(), 0, "{name}: another agent was charged");
                sketch.run(std::slice::from_ref(id));
                assert_ne!(charged(), 0, "{name}: the agent was not found");
                found += 1;
            }
            assert!(found > ids.len() * 99 / 100, "{name}: {found} agents found room");
        }
    }
}
