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
//!
//! - `private.rs`: the entries of a private limiter, in shards
//! - `table.rs`: those of a shared one, in a table without locks; `decision.rs`: its words

pub(crate) mod decision;
mod private;
pub(crate) mod table;

use super::exempt::ExemptTable;
use crate::limits::Row;
use crate::policy::{LaneId, Limit, PlanId};
use crate::shared::Memory;
use crate::slab::hash::AgentHash;
use private::Shards;
use std::collections::BTreeMap;
use table::AssignmentTable;

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
    /// Whether there is nothing to remember of it.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_undecided() && !self.by_policy
    }

    /// Whether the two assign the same; the row does not matter.
    pub(crate) fn decides_as(&self, other: &Self) -> bool {
        (self.plan, self.exempt, &self.overrides) == (other.plan, other.exempt, &other.overrides)
    }

    /// Whether nothing is assigned.
    pub(super) fn is_undecided(&self) -> bool {
        self.decides_as(&Self::default())
    }

    pub(crate) fn is_exempt(&self) -> bool {
        self.exempt || self.by_policy
    }

    /// The row that applies under the policy of this epoch.
    pub(super) fn row(&self, epoch: u64) -> Row {
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

impl Tally {
    fn add(&mut self, entry: &Entry) {
        self.assigned += u64::from(!entry.is_undecided());
        self.exempt += u64::from(entry.is_exempt());
        self.overridden += u64::from(!entry.overrides.is_empty());
    }
}

/// Every agent with an assignment.
pub(crate) struct Registry {
    entries: Entries,
    /// The exempt ones. Written with their entries.
    exempt: ExemptTable,
}

enum Entries {
    Private(Box<Shards>),
    Shared(Box<AssignmentTable>),
}

impl Registry {
    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn within(memory: &Memory, agents: u64, lanes: usize) -> Result<Self, u64> {
        let entries = match memory {
            Memory::Private => Entries::Private(Box::default()),
            Memory::Shared(_) => Entries::Shared(Box::new(AssignmentTable::within(memory, agents, lanes)?)),
        };
        Ok(Self { entries, exempt: ExemptTable::within(memory)? })
    }

    /// The table, if processes share it.
    pub(crate) fn shared(&self) -> Option<&AssignmentTable> {
        match &self.entries {
            Entries::Private(_) => None,
            Entries::Shared(table) => Some(table),
        }
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.exempt.reserved_bytes()
    }

    /// Touches the pages of its table now. If the system refuses, the error is how
    /// many bytes were needed.
    pub(crate) fn prefault(&self) -> Result<(), u64> {
        self.exempt.prefault()
    }

    fn is_empty(&self) -> bool {
        match &self.entries {
            Entries::Private(shards) => shards.is_empty(),
            Entries::Shared(table) => table.is_empty(),
        }
    }

    /// Passes the agent's row to `read`; the row stays in force meanwhile, or `read` is called again.
    pub(crate) fn with_row<T>(&self, hash: AgentHash, epoch: u64, read: impl Fn(Row) -> T) -> T {
        // A hint is enough: a caller that must see the first entry holds the
        // neighbourhood's lock, under which it was made.
        if self.is_empty() {
            return read(Row::unassigned(epoch));
        }
        if self.exempt.has(hash) {
            return read(Row::EXEMPT); // This row is never written.
        }
        match &self.entries {
            Entries::Private(shards) => shards.with_row(hash, epoch, read),
            Entries::Shared(table) => table.with_row(hash, epoch, read),
        }
    }

    /// The entry of an agent; `None` if another agent with the same hash has one.
    pub(crate) fn get(&self, hash: AgentHash, id: &[u8]) -> Option<Entry> {
        match &self.entries {
            Entries::Private(shards) => shards.get(hash, id),
            Entries::Shared(table) => table.get(hash, id),
        }
    }

    /// Puts an agent's entry in force, or removes it if it is empty. The caller
    /// holds the lock of the agent's neighbourhood. In a shared table the entry
    /// has been [staged](AssignmentTable::stage).
    pub(crate) fn set(&self, hash: AgentHash, id: &[u8], entry: Entry, epoch: u64) -> Row {
        let row = entry.row(epoch);
        self.exempt.set(hash, entry.is_exempt());
        match &self.entries {
            Entries::Private(shards) => shards.set(hash, id, entry),
            Entries::Shared(table) => table.put(hash),
        }
        row
    }

    /// Counts the agents. Reads every entry, and copies none.
    pub(crate) fn tally(&self) -> Tally {
        if self.is_empty() {
            return Tally::default();
        }
        match &self.entries {
            Entries::Private(shards) => shards.tally(),
            Entries::Shared(table) => table.tally(),
        }
    }

    /// Every exempt agent.
    pub(crate) fn exempt(&self) -> Vec<(AgentHash, Box<[u8]>)> {
        if self.is_empty() {
            return Vec::new();
        }
        match &self.entries {
            Entries::Private(shards) => shards.exempt(),
            Entries::Shared(table) => table.exempt(),
        }
    }

    /// Every agent with an entry, sorted by id.
    pub(crate) fn list(&self) -> Vec<(AgentHash, RegisteredAgent)> {
        let mut all = match &self.entries {
            Entries::Private(shards) => shards.list(),
            Entries::Shared(table) => table.list(),
        };
        all.sort_unstable_by(|(_, a), (_, b)| a.id.cmp(&b.id));
        all
    }
}
