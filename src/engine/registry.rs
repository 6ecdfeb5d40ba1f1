//! Which agents have an assignment: a plan, overrides, an exemption.
//!
//! It is read when a record is claimed, and for agents that have no record; a
//! check of a known agent finds its row of limits in the record. An entry changes
//! under two locks, that of the agent's neighbourhood in the slab and that of
//! its shard here, taken in this order. So the holder of either reads an entry
//! that is in force, and its row of overrides is not written for another agent
//! meanwhile.
//!
//! Exempt agents need no record, and their checks end here: they are found
//! without a lock, in [`exempt`](super::exempt).

use super::exempt::ExemptTable;
use crate::limits::Row;
use crate::machine::process::unforked;
use crate::policy::{LaneId, Limit, PlanId};
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Mutex, Ordering, lock, peek};
use std::collections::BTreeMap;

/// Enough shards that claims seldom wait for each other.
const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// One agent's assignment, in the numbers of the policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) plan: Option<PlanId>,
    /// In the order of the lanes.
    pub(crate) overrides: BTreeMap<LaneId, Limit>,
    pub(crate) exempt: bool,
    /// Exempt by the policy in force, whatever the assignment.
    pub(crate) by_policy: bool,
    /// Invariant: present if there are overrides, and no other agent has the row.
    pub(crate) override_row: Option<Row>,
}

impl Entry {
    /// Whether the two assign the same; the row does not matter.
    pub(crate) fn decides_as(&self, other: &Self) -> bool {
        (self.plan, self.exempt, &self.overrides) == (other.plan, other.exempt, &other.overrides)
    }

    /// Whether nothing is assigned.
    fn is_undecided(&self) -> bool {
        self.decides_as(&Self::default())
    }

    pub(crate) fn is_exempt(&self) -> bool {
        self.exempt || self.by_policy
    }

    /// The row that applies under the policy of this epoch.
    fn row(&self, epoch: u64) -> Row {
        match (self.is_exempt(), self.override_row, self.plan) {
            (true, ..) => Row::EXEMPT,
            (false, Some(row), _) => row,
            (false, None, Some(plan)) => Row::of_plan(plan, epoch),
            (false, None, None) => Row::unassigned(epoch),
        }
    }
}

/// An agent's id and its entry.
#[derive(Clone, Debug)]
pub(crate) struct RegisteredAgent {
    pub(crate) id: Box<[u8]>,
    pub(crate) entry: Entry,
}

/// How many agents have an entry of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Any assignment.
    pub(crate) assigned: u64,
    pub(crate) overridden: u64,
    pub(crate) exempt: u64,
}

type Shard = BTreeMap<AgentHash, RegisteredAgent>;

/// Every agent with an assignment.
pub(crate) struct Registry {
    shards: [Mutex<Shard>; SHARDS],
    /// How many entries there are. While it is 0, no reader takes a lock.
    entries: AtomicU64,
    /// The exempt ones. Written under the lock of the shard.
    exempt: ExemptTable,
}

impl Registry {
    /// If the system refuses the memory, the error is how many bytes were needed.
    pub(crate) fn new() -> Result<Self, u64> {
        let shards = std::array::from_fn(|_| Mutex::new(Shard::new()));
        Ok(Self { shards, entries: AtomicU64::new(0), exempt: ExemptTable::new()? })
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.exempt.reserved_bytes()
    }

    /// Touches the pages of its table now. If the system refuses, the error is how
    /// many bytes were needed.
    pub(crate) fn prefault(&self) -> Result<(), u64> {
        self.exempt.prefault()
    }

    /// Passes the agent's row to `read`; the row stays in force meanwhile.
    pub(crate) fn with_row<T>(&self, hash: AgentHash, epoch: u64, read: impl FnOnce(Row) -> T) -> T {
        // A hint is enough: a caller that must see the first entry holds the
        // neighbourhood's lock, under which it was made.
        if peek(&self.entries) == 0 {
            return read(Row::unassigned(epoch));
        }
        if self.exempt.has(hash) {
            return read(Row::EXEMPT); // This row is never written.
        }
        self.with_shard(hash, |shard| {
            read(shard.get(&hash).map_or(Row::unassigned(epoch), |registered| registered.entry.row(epoch)))
        })
    }

    /// Runs `act` under the lock of the agent's shard. A child that is forked
    /// meanwhile finds no shard locked or half changed.
    fn with_shard<T>(&self, hash: AgentHash, act: impl FnOnce(&mut Shard) -> T) -> T {
        unforked(|| act(&mut lock(&self.shards[hash.shard(SHARDS)])))
    }

    /// The entry of an agent; `None` if another agent with the same hash has one.
    pub(crate) fn get(&self, hash: AgentHash, id: &[u8]) -> Option<Entry> {
        self.with_shard(hash, |shard| match shard.get(&hash) {
            Some(registered) if *registered.id != *id => None,
            registered => Some(registered.map(|registered| registered.entry.clone()).unwrap_or_default()),
        })
    }

    /// Puts an agent's entry in force, or removes it if it is empty. The caller
    /// holds the lock of the agent's neighbourhood.
    pub(crate) fn set(&self, hash: AgentHash, id: &[u8], entry: Entry, epoch: u64) -> Row {
        let row = entry.row(epoch);
        self.with_shard(hash, |shard| {
            self.exempt.set(hash, entry.is_exempt());
            let before = shard.len();
            if entry.is_undecided() && !entry.by_policy {
                shard.remove(&hash);
            } else {
                shard.insert(hash, RegisteredAgent { id: id.into(), entry });
            }
            // Only control calls write this, and they take turns.
            let entries = peek(&self.entries) + shard.len() as u64 - before as u64;
            self.entries.store(entries, Ordering::Relaxed);
        });
        row
    }

    /// Counts the agents. Reads every entry, and copies none.
    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        if peek(&self.entries) == 0 {
            return tally;
        }
        for shard in &self.shards {
            unforked(|| {
                for RegisteredAgent { entry, .. } in lock(shard).values() {
                    tally.assigned += u64::from(!entry.is_undecided());
                    tally.exempt += u64::from(entry.is_exempt());
                    tally.overridden += u64::from(!entry.overrides.is_empty());
                }
            });
        }
        tally
    }

    /// Every exempt agent.
    pub(crate) fn exempt(&self) -> Vec<(AgentHash, Box<[u8]>)> {
        if peek(&self.entries) == 0 {
            return Vec::new();
        }
        let of = |shard: &Shard| {
            let exempt = shard.iter().filter(|(_, registered)| registered.entry.is_exempt());
            exempt.map(|(hash, registered)| (*hash, registered.id.clone())).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(|shard| unforked(|| of(&lock(shard)))).collect()
    }

    /// Every agent with an entry, sorted by id.
    pub(crate) fn list(&self) -> Vec<(AgentHash, RegisteredAgent)> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| {
                let copy = |shard: &Shard| shard.iter().map(|(hash, entry)| (*hash, entry.clone())).collect::<Vec<_>>();
                unforked(|| copy(&lock(shard)))
            })
            .collect();
        all.sort_unstable_by(|(_, a), (_, b)| a.id.cmp(&b.id));
        all
    }
}
