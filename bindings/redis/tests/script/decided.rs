//! The store of decisions as it should be, in a few lines: the scripts, and what machines make of them, are compared
//! with it.

use std::collections::{BTreeMap, HashMap};
use tollgate_redis::{DECISIONS_MAX, Field, Head, Put, StoreReply, StoreRequest, Stored};

const MODULUS: u64 = 1 << 52;

/// A decision: its place, its stamp, whether anything is decided, and what.
type Decision = (u64, u64, bool, Box<[u8]>);

#[derive(Clone, Debug)]
pub(crate) struct DecidedStore {
    born: Option<u128>,
    place: u64,
    horizon: u64,
    decisions: BTreeMap<Field, Decision>,
    /// The number of the last call of each engine, and the stamp that it got.
    numbers: HashMap<String, (u64, u64)>,
    lives_us: u64,
    removals_max: usize,
}

impl DecidedStore {
    pub(crate) fn new(lives_us: u64, removals_max: usize) -> Self {
        Self {
            born: None,
            place: 0,
            horizon: 0,
            decisions: BTreeMap::new(),
            numbers: HashMap::new(),
            lives_us,
            removals_max,
        }
    }

    pub(crate) fn head(&self) -> Head {
        let live = || self.decisions.values().filter(|(_, _, is_live, _)| *is_live).map(|(_, stamp, ..)| *stamp);
        let sum = live().fold(0, |sum, stamp| (sum + stamp) % MODULUS);
        Head { born: self.born, place: self.place, sum, live: live().count() as u64, horizon: self.horizon }
    }

    /// The stamp of what is decided, or was removed, and which of the two.
    pub(crate) fn decision(&self, field: Field) -> Option<(u64, bool)> {
        self.decisions.get(&field).map(|(_, stamp, is_live, _)| (*stamp, *is_live))
    }

    /// What it does at this instant with a request of this engine.
    pub(crate) fn answer(&mut self, now_us: u64, name: &str, request: &StoreRequest) -> StoreReply {
        match request {
            StoreRequest::Head => StoreReply::Head(self.head()),
            StoreRequest::Since(place) => StoreReply::Since(self.head(), self.since(*place)),
            StoreRequest::Put { born, number, puts } => self.put(now_us, name, *born, *number, puts),
        }
    }

    fn since(&self, place: u64) -> Vec<Stored> {
        let behind = self.decisions.iter().filter(|(_, decision)| decision.0 > place);
        let mut behind: Vec<_> = behind.map(|(field, decision)| (decision.0, field.to_string(), *field)).collect();
        behind.sort();
        // Those of the last place that fits are there, and none of the next.
        let end = behind.get(DECISIONS_MAX - 1).map_or(
            u64::MAX,
            |(last, ..)| {
                if behind[0].0 == *last { *last } else { *last - 1 }
            },
        );
        let shown = behind.into_iter().take_while(|(place, ..)| *place <= end);
        let stored = |(place, _, field): (u64, String, Field)| {
            let (_, stamp, is_live, sealed) = &self.decisions[&field];
            Stored { field: Some(field), place, value: Some((*stamp, *is_live, sealed.clone())) }
        };
        shown.map(stored).collect()
    }

    fn put(&mut self, now_us: u64, name: &str, born: u128, number: u64, puts: &[Put]) -> StoreReply {
        let before = self.place;
        if let Some((_, stamp)) = self.numbers.get(name).copied().filter(|(last, _)| number > 0 && *last >= number) {
            return StoreReply::Put { is_new: false, before, stamp, head: self.head() };
        }
        let now = if now_us < MODULUS { now_us } else { 0 };
        let stamps = puts.iter().map(|put| put.stamp).max().unwrap_or(0);
        let place = (before + 1).max(now).max(stamps);
        let mut is_written = false;
        for Put { field, stamp, is_live, sealed } in puts {
            let known = self.decisions.get(field).map_or(0, |(_, stamp, ..)| *stamp);
            let is_later = *stamp > known && (*is_live || *stamp > self.horizon);
            if *stamp == 0 || is_later {
                let stamp = if *stamp == 0 { place } else { *stamp };
                self.decisions.insert(*field, (place, stamp, *is_live, sealed.clone()));
                is_written = true;
            }
        }
        self.place = if is_written { place } else { before };
        self.forget(now_us);
        self.born = self.born.or(Some(born));
        if number > 0 {
            self.numbers.insert(name.to_owned(), (number, self.place));
        }
        StoreReply::Put { is_new: true, before, stamp: self.place, head: self.head() }
    }

    /// Forgets removals that are old, or too many.
    fn forget(&mut self, now_us: u64) {
        let removals = self.decisions.iter().filter(|(_, (_, _, is_live, _))| !is_live);
        let mut removals: Vec<_> = removals.map(|(field, decision)| (decision.1, field.to_string(), *field)).collect();
        removals.sort();
        let is_old = |removal: &&(u64, String, Field)| removal.0.saturating_add(self.lives_us) <= now_us;
        let mut count = removals.iter().filter(is_old).count().min(64);
        if count == 0 {
            count = removals.len().saturating_sub(self.removals_max).min(512);
        }
        for (stamp, _, field) in removals.into_iter().take(count) {
            self.decisions.remove(&field);
            self.horizon = self.horizon.max(stamp);
        }
    }
}
