//! Looks for what cannot be: records and regions that contradict each other.

use super::Slab;
use super::fingerprints::{Fingerprint, GROUP, Group};
use crate::bounds::CONTROL_WITHIN;
use crate::lane::held;
use crate::limits::Row;
use crate::policy::Kind;
use crate::record::Record;
use std::collections::BTreeMap;

impl Slab {
    /// How many slots all records count.
    pub(crate) fn held(&self, kinds: &[Kind]) -> u64 {
        let records = (0..self.geometry.records).map(|position| self.record(position));
        let of = |record: Record<'_>| {
            let lanes = record.lane_words().zip(kinds).filter(|(_, kind)| **kind == Kind::Held);
            lanes.map(|(word, _)| held::count(word)).sum::<u64>()
        };
        records.filter(|record| record.tag().tenant().is_some()).map(of).sum()
    }

    /// What is wrong with the records, as sentences. `is_row` says whether a record may name a row.
    ///
    /// Takes one region's lock at a time, so an agent that moves meanwhile may seem to have two records.
    pub(crate) fn faults(&self, is_row: impl Fn(Row) -> bool) -> Vec<String> {
        let mut faults = Vec::new();
        let mut tenants = BTreeMap::new();
        for region in 0..self.regions() {
            // A lock that a dead process left is taken over here, as by a newcomer.
            let Ok(_guard) = self.lock_region(region, &mut { CONTROL_WITHIN }) else {
                faults.push(format!("region {region} is locked by a process that does not go on"));
                continue;
            };
            let mut occupied = 0;
            for position in self.positions_of(region) {
                let tag = self.record(position).tag();
                let shown = Group::load(self.group_word(position / GROUP));
                if !shown.shows(position % GROUP, Fingerprint::of_word(tag)) {
                    faults.push(format!("record {position} shows another fingerprint than that of {tag:?}"));
                }
                if tag.is_closed() {
                    faults.push(format!("record {position} is closed: {tag:?}"));
                }
                let Some(tenant) = tag.tenant() else { continue };
                occupied += 1;
                if !is_row(tag.row()) {
                    faults.push(format!("record {position} names row {}, which is not in use", tag.row().number()));
                }
                if let Some(other) = tenants.insert(tenant.number(), position) {
                    // Agents farther apart may have the same tag.
                    if position - other <= self.geometry.window * GROUP {
                        faults.push(format!("records {other} and {position} are both {tag:?}"));
                    }
                }
            }
            let counted = self.region(region).counts().occupied;
            if occupied != counted {
                faults.push(format!("region {region} has {occupied} records in use, and counts {counted}"));
            }
        }
        faults
    }
}
