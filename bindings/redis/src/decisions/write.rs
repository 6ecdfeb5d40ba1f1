//! What was decided here goes to the store.

use super::known::Known;
use super::{Call, DECISIONS_MAX, Decisions, Field, Head, Put, StoreRequest, plain};
use std::collections::HashSet;
use tollgate::Policy;
use tollgate::cluster::Operators;

/// The longest text of a policy that follows.
const POLICY_BYTES_MAX: usize = 1 << 20;

/// Stamps of what comes from a file are up to this, in microseconds some days of 1970: the store gives none so small.
const RESTORED_STAMPS: u128 = 1 << 40;

impl Decisions {
    /// How many decisions of this machine are on their way.
    pub(super) fn under_way(&self) -> u64 {
        match &self.call {
            Some(Call { request: StoreRequest::Put { number: 1.., puts, .. }, .. }) => puts.len() as u64,
            _ => 0,
        }
    }

    /// Compares what is assigned here with what is known. If operators have changed more agents than they could name,
    /// whatever differs was decided here. Otherwise what the store does not know is of this machine's file.
    pub(super) fn compare_all(&mut self, operators: &Operators<'_>, is_changed: bool) {
        let mut here = HashSet::new();
        for (id, assignment) in operators.limiter().assignments() {
            let field = self.seal.field(&id);
            here.insert(field);
            let plain = || plain::of_agent(&id, &assignment).map(|plain| self.seal.digest(&plain));
            match self.known.get(field) {
                Some(known) if !is_changed || known.digest == plain() => continue,
                None if !is_changed => self.restored.insert(id.into()),
                _ => self.waiting.insert(id.into()),
            };
        }
        if is_changed {
            let is_gone = |(field, known): &(Field, &Known)| {
                known.is_live && known.is_in_force && *field != Field::Policy && !here.contains(field)
            };
            let gone = self.known.iter().filter(is_gone);
            let ids = gone.filter_map(|(field, known)| {
                plain::read_agent(&self.seal.open(field, &known.sealed)?).ok().map(|(id, _)| id)
            });
            self.waiting.extend(ids.collect::<Vec<_>>());
        }
    }

    /// A call for what was decided here.
    pub(super) fn call_to_decide(&mut self, operators: &Operators<'_>) -> Option<StoreRequest> {
        let (mut puts, mut digests) = (Vec::new(), Vec::new());
        if std::mem::take(&mut self.policy_waits) {
            self.put_policy(operators, &mut puts, &mut digests);
        }
        // Ends: each round takes one of them out.
        while puts.len() < DECISIONS_MAX {
            let Some(id) = self.waiting.pop_first() else { break };
            // An id that is invalid has no assignment.
            let Ok(assignment) = operators.limiter().assignment(&id) else { continue };
            let Some(plain) = plain::of_agent(&id, &assignment) else { continue };
            let (field, is_live) = (self.seal.field(&id), !assignment.is_empty());
            self.problems.settled(field);
            if !is_live && self.known.get(field).is_none() {
                continue; // Decided and taken back, and nobody has heard of it.
            }
            self.put(field, is_live, &plain, &mut puts, &mut digests);
        }
        if puts.is_empty() {
            return None;
        }
        self.number += 1;
        let request = StoreRequest::Put { born: self.new_born(), number: self.number, puts };
        self.call = Some(Call { request: request.clone(), digests });
        Some(request)
    }

    fn put_policy(&mut self, operators: &Operators<'_>, puts: &mut Vec<Put>, digests: &mut Vec<Option<u128>>) {
        let policy = operators.limiter().policy();
        let text = policy.to_toml();
        let reads_back = Policy::from_toml(&text).is_ok_and(|read| read.to_toml() == text);
        if text.len() > POLICY_BYTES_MAX || !reads_back {
            let problem = if reads_back { "is too long" } else { "does not read back from its text" };
            self.problems.unwritten(format!("the policy of this machine {problem}, and does not follow to the others"));
            return;
        }
        self.problems.settled(Field::Policy);
        self.put(Field::Policy, true, &plain::of_policy(&text), puts, digests);
    }

    /// Adds a decision to a call, unless the store has it.
    fn put(&mut self, field: Field, is_live: bool, plain: &[u8], puts: &mut Vec<Put>, digests: &mut Vec<Option<u128>>) {
        let digest = Some(self.seal.digest(plain));
        if self.known.get(field).is_some_and(|known| known.digest == digest) {
            self.known.set_in_force(field, true);
            return;
        }
        if let Some(sealed) = self.seal.seal(field, plain) {
            puts.push(Put { field, stamp: 0, is_live, sealed });
            digests.push(digest);
        }
    }

    /// Adds what only this machine has, from its file. Of when it is nobody knows, so it is older than whatever any
    /// machine knows with a stamp. Different decisions have different stamps here too.
    fn put_restored(&mut self, operators: &Operators<'_>, puts: &mut Vec<Put>, digests: &mut Vec<Option<u128>>) {
        // Ends: each round takes one of them out.
        while puts.len() < DECISIONS_MAX {
            let Some(id) = self.restored.pop_first() else { break };
            let field = self.seal.field(&id);
            if self.waiting.contains(&id) || self.known.get(field).is_some() {
                continue;
            }
            let Ok(assignment) = operators.limiter().assignment(&id) else { continue };
            let Some(plain) = plain::of_agent(&id, &assignment).filter(|_| !assignment.is_empty()) else { continue };
            let digest = self.seal.digest(&plain);
            if let Some(sealed) = self.seal.seal(field, &plain) {
                // Not 0, which is for new ones. Lossless: less than 2^40.
                let stamp = 1 + (digest % RESTORED_STAMPS) as u64;
                puts.push(Put { field, stamp, is_live: true, sealed });
                digests.push(Some(digest));
            }
        }
    }

    /// A call for what the store has lost, or never had.
    pub(super) fn call_to_put_back(&mut self, operators: &Operators<'_>) -> Option<StoreRequest> {
        let (mut puts, mut digests) = (Vec::new(), Vec::new());
        // Ends: each round takes one of them out.
        while puts.len() < DECISIONS_MAX {
            let Some(field) = self.put_back.pop_first() else { break };
            let Some(known) = self.known.get(field) else { continue };
            puts.push(Put { field, stamp: known.stamp, is_live: known.is_live, sealed: known.sealed.clone() });
            digests.push(known.digest);
        }
        self.put_restored(operators, &mut puts, &mut digests);
        if puts.is_empty() {
            return None;
        }
        let request = StoreRequest::Put { born: self.new_born(), number: 0, puts };
        self.call = Some(Call { request: request.clone(), digests });
        Some(request)
    }

    /// A name that no store has had.
    const fn new_born(&mut self) -> u128 {
        self.name = self.name.wrapping_add(1);
        self.name
    }

    /// The store has accepted a call: now, or when its answer was lost.
    pub(super) fn was_put(&mut self, is_new: bool, before: u64, stamp: u64, head: Head) {
        let Some(Call { request: StoreRequest::Put { number, puts, .. }, digests }) = self.call.take() else { return };
        if self.born == Some(None) {
            // It was read when nobody had written to it; now it has a name, and is the same.
            self.born = Some(head.born);
        }
        let count = if number == 0 { &mut self.counts.put_back } else { &mut self.counts.written };
        *count += puts.len() as u64;
        // What the store has accepted later, or had before, is read as any other.
        for (Put { field, stamp: own, is_live, sealed }, digest) in puts.into_iter().zip(digests) {
            let stamp = if own > 0 { own } else { stamp };
            if stamp > self.known.stamp(field) {
                self.known.insert(field, Known { stamp, is_live, digest, is_in_force: true, sealed });
            }
        }
        // Nobody else has written in between: what is behind is known. What is put back is read.
        let is_next = self.reading.is_none() && before == self.place && self.born == Some(head.born);
        if is_next && is_new && number > 0 {
            self.place = head.place;
        }
    }
}
