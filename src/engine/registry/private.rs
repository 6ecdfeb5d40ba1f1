//! The entries of a private limiter, in shards with a lock each.

use super::{Entry, RegisteredAgent, Tally};
use crate::limits::Row;
use crate::machine::process::unforked;
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Mutex, Ordering, lock, peek};
use std::collections::BTreeMap;

/// Enough shards that claims seldom wait for each other.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

type Shard = BTreeMap<AgentHash, RegisteredAgent>;

pub(super) struct Shards {
    shards: [Mutex<Shard>; SHARDS],
    /// How many entries there are. While it is 0, no reader takes a lock.
    entries: AtomicU64,
}

impl Default for Shards {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::new(Shard::new())), entries: AtomicU64::new(0) }
    }
}

impl Shards {
    pub(super) fn is_empty(&self) -> bool {
        peek(&self.entries) == 0
    }

    pub(super) fn with_row<T>(&self, hash: AgentHash, epoch: u64, read: impl Fn(Row) -> T) -> T {
        self.with_shard(hash, |shard| {
            read(shard.get(&hash).map_or(Row::unassigned(epoch), |registered| registered.entry.row(epoch)))
        })
    }

    /// Runs `act` under the lock of the agent's shard. A child that is forked
    /// meanwhile finds no shard locked or half changed.
    fn with_shard<T>(&self, hash: AgentHash, act: impl FnOnce(&mut Shard) -> T) -> T {
        unforked(|| act(&mut lock(&self.shards[hash.shard(SHARDS)])))
    }

    pub(super) fn get(&self, hash: AgentHash, id: &[u8]) -> Option<Entry> {
        self.with_shard(hash, |shard| match shard.get(&hash) {
            Some(registered) if *registered.id != *id => None,
            registered => Some(registered.map(|registered| registered.entry.clone()).unwrap_or_default()),
        })
    }

    pub(super) fn set(&self, hash: AgentHash, id: &[u8], entry: Entry) {
        self.with_shard(hash, |shard| {
            let before = shard.len();
            if entry.is_nothing() {
                shard.remove(&hash);
            } else {
                shard.insert(hash, RegisteredAgent { id: id.into(), entry });
            }
            // Only control calls write this, and they take turns.
            let entries = peek(&self.entries) + shard.len() as u64 - before as u64;
            self.entries.store(entries, Ordering::Relaxed);
        });
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for shard in &self.shards {
            unforked(|| lock(shard).values().for_each(|registered| tally.add(&registered.entry)));
        }
        tally
    }

    pub(super) fn exempt(&self) -> Vec<(AgentHash, Box<[u8]>)> {
        let of = |shard: &Shard| {
            let exempt = shard.iter().filter(|(_, registered)| registered.entry.is_exempt());
            exempt.map(|(hash, registered)| (*hash, registered.id.clone())).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| unforked(|| of(&lock(shard)))).collect()
    }

    pub(super) fn list(&self) -> Vec<(AgentHash, RegisteredAgent)> {
        let copy = |shard: &Shard| shard.iter().map(|(hash, entry)| (*hash, entry.clone())).collect::<Vec<_>>();
        self.shards.iter().flat_map(|shard| unforked(|| copy(&lock(shard)))).collect()
    }
}
