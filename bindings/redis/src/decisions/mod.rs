//! What operators decide on one machine holds on all of them: what is written, and what is put in force. No clock, no
//! thread and no socket is in it: the thread that drives it carries [`StoreRequest`]s to the server, and so does a
//! simulator.
//!
//! - `field.rs`: what is decided about: an agent, or the policy
//! - `plain.rs`, `seal.rs`: a decision as bytes, and sealed
//! - `known.rs`: what a machine knows of the decisions in the store
//! - `wire.rs`: what is asked of the store, and what it answers
//! - `read.rs`: what the store has goes in force here
//! - `write.rs`: what was decided here goes to the store
//! - `status.rs`: what is shown of it
//!
//! # What the store has
//!
//! One decision for each agent that has, or lately had, an assignment, and one for the policy if an operator has
//! replaced it. A decision is the whole of what is assigned to an agent, so that each is good without the others. It
//! has a *stamp*, by which the later of two is known, and a *place* in the order in which machines read them. Both
//! come from one counter, which the script that accepts decisions moves on: past itself, and up to the server's clock.
//! Decisions that arrive in one call are accepted in one step, have one place, and are read together.
//!
//! # What is promised
//!
//! *Order.* Of two decisions about one agent the one counts that reached the store later, on every machine. So a
//! machine puts a decision in force only if its stamp is larger than that of the one it knows; and what an operator has
//! decided here, and the store does not know yet, is later than all that the store has.
//!
//! *Each is accepted once.* A call has the engine's name and a number that grows, and the store keeps the last number.
//! A call whose answer is lost is sent again as it was, before anything else is asked: it is accepted then, or was
//! before, and the answer says with which stamp. So no operator's decision comes back over a later one because a reply
//! was lost, and the machine knows what it has to put back if the store loses it.
//!
//! *None is lost* as long as one machine lives that knew it. Each machine keeps what it knows, sealed, with its stamp.
//! A store that has lost decisions is recognised: by its name, which the first one to write gives it; by a place that
//! is behind; or, if others have written since, by the sum of all stamps, which both sides compare whenever a machine
//! has read everything. Then the machine reads all that there is, and puts back what is missing or older, *with the
//! stamp it had*. The store takes that only over a smaller stamp. So whatever the order in which machines put back,
//! each field ends with the largest stamp that any of them knew, and a decision that is put back twice changes nothing:
//! stamps of a field only grow, so this ends.
//!
//! *What was removed stays removed.* That nothing is decided any more is a decision too. The store forgets those after
//! 30 days, or beyond 65,536 of them, the oldest first; the last stamp that it forgot is the *horizon*. A machine that
//! misses a decision in the store, and had read past the horizon before, knows that it was lost, and puts it back. One
//! that was away since before the horizon, in a store of the same name, takes it for removed.
//!
//! *A machine that starts* reads all before it writes. For an agent that the store knows the store wins, over a file of
//! this machine too, unless an operator has decided here since. What only this machine's file knows it then writes,
//! with a stamp that is smaller than any that the store gives: it may be old, and another machine may know better.
//!
//! *A policy* travels if it was put in force at run time: the file with which a machine starts is its own. A machine
//! that starts takes the store's policy, unless its own has a higher version, which it writes instead. One that cannot
//! be in force here, with other lanes say, is left alone as a whole, and named.
//!
//! # Where it may differ
//!
//! While a machine has refused a decision, of a plan that it does not have, say, its agents have what they had. It
//! tries again when its policy changes. What does not open, because it was altered or is of another version, is named,
//! and left alone.
//!
//! If the store loses its state between a call and its answer, it has lost the call's number too. The call is accepted
//! again, and then counts as later than what others had decided about its agents between the two.

mod field;
mod known;
mod plain;
mod read;
mod seal;
mod status;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub use field::Field;
pub use status::DecisionsStatus;
pub use wire::{DECISIONS_MAX, DecisionScripts, Head, Put, StoreReply, StoreRequest, Stored};

use known::{KnownDecisions, Sum};
use read::Reading;
use seal::Seal;
use status::Problems;
use std::collections::BTreeSet;
use std::time::Duration;
use tollgate::ControlError;
use tollgate::cluster::Operators;

/// How often the store is asked whether anything has changed.
const HEAD_EVERY: Duration = Duration::from_millis(200);

/// How long to wait after this machine could not put decisions in force: its disk is full, say.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// How often all is compared at the most, because the sums differ.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// What of a call is still to be answered: it is sent again until it is.
struct Call {
    request: StoreRequest,
    /// The digest of each decision in it.
    digests: Vec<Option<u128>>,
}

/// Decides what is written to the store, and what of it goes in force.
pub struct Decisions {
    seal: Seal,
    name: u128,
    known: KnownDecisions,
    /// The store's name, and up to where it was read. `None` until all was read once.
    born: Option<Option<u128>>,
    place: u64,
    horizon: u64,
    /// By how much the store's sum is more than that of what it has: it counts what somebody has altered by hand.
    drift: Sum,
    reading: Option<Reading>,
    is_connected: bool,
    is_asked: bool,
    asked_at: Option<Duration>,
    compared_at: Option<Duration>,
    waits_until: Duration,
    /// Agents about whom an operator has decided here, and the store does not know it yet.
    waiting: BTreeSet<Box<[u8]>>,
    policy_waits: bool,
    /// Agents that only this machine's file knows.
    restored: BTreeSet<Box<[u8]>>,
    /// What the store has lost.
    put_back: BTreeSet<Field>,
    call: Option<Call>,
    number: u64,
    /// What to try again after another policy.
    again: BTreeSet<Field>,
    problems: Problems,
    counts: DecisionsStatus,
}

impl Decisions {
    /// For a limiter with this key, and an engine with this name: random, and new for each engine.
    #[must_use]
    pub fn new(key: [u8; 16], name: u128) -> Self {
        Self {
            seal: Seal::new(key, name),
            name,
            known: KnownDecisions::default(),
            born: None,
            place: 0,
            horizon: 0,
            drift: Sum::default(),
            reading: None,
            is_connected: false,
            is_asked: false,
            asked_at: None,
            compared_at: None,
            waits_until: Duration::ZERO,
            waiting: BTreeSet::new(),
            policy_waits: false,
            restored: BTreeSet::new(),
            put_back: BTreeSet::new(),
            call: None,
            number: 0,
            again: BTreeSet::new(),
            problems: Problems::default(),
            counts: DecisionsStatus::default(),
        }
    }

    /// What stands in the braces of the keys.
    #[must_use]
    pub fn tag(&self) -> String {
        crate::AgentKey::from_bits(self.seal.tag()).to_string()
    }

    /// The server answers.
    pub const fn connected(&mut self) {
        self.is_connected = true;
        (self.is_asked, self.asked_at) = (false, None);
    }

    /// It does not. What is under way stays without an answer.
    pub const fn lost(&mut self) {
        self.is_connected = false;
        self.is_asked = false;
    }

    /// Takes what operators have changed here.
    pub fn tend(&mut self, operators: &Operators<'_>) -> Result<(), ControlError> {
        let Some(changed) = operators.changed()? else { return Ok(()) };
        self.waiting.extend(changed.agents);
        if changed.is_more {
            self.compare_all(operators, true);
        }
        if changed.policy {
            self.policy_waits = true;
            self.problems.policy_changed();
            self.try_again();
        }
        if changed.is_restored {
            self.start_over();
        }
        Ok(())
    }

    /// What to ask next. `None` if there is nothing to ask now, or an answer is awaited.
    pub fn next(&mut self, operators: &Operators<'_>, now: Duration) -> Option<StoreRequest> {
        if !self.is_connected || self.is_asked || now < self.waits_until {
            return None;
        }
        let request = self.request(operators, now)?;
        self.is_asked = true;
        Some(request)
    }

    fn request(&mut self, operators: &Operators<'_>, now: Duration) -> Option<StoreRequest> {
        if let Some(call) = &self.call {
            return Some(call.request.clone());
        }
        if let Some(request) = self.call_to_put_back(operators) {
            return Some(request);
        }
        if self.reading.is_some() {
            return Some(StoreRequest::Since(self.place));
        }
        if self.asked_at.is_none_or(|asked| now.saturating_sub(asked) >= HEAD_EVERY) {
            self.asked_at = Some(now);
            return Some(StoreRequest::Head);
        }
        // Nobody writes who has not read.
        self.born?;
        if self.try_refused_again(operators) {
            self.waits_until = now + FAILED_FOR;
            return None;
        }
        self.call_to_decide(operators)
    }

    /// The answer to what was asked.
    pub fn answered(&mut self, operators: &Operators<'_>, now: Duration, reply: StoreReply) {
        self.is_asked = false;
        let outcome = match reply {
            StoreReply::Head(head) => {
                self.saw(head, now);
                Ok(())
            }
            StoreReply::Since(head, stored) => self.read(operators, head, &stored),
            StoreReply::Put { is_new, before, stamp, head } => {
                self.was_put(is_new, before, stamp, head);
                Ok(())
            }
        };
        if let Err(problem) = outcome {
            self.problems.failed(&problem);
            self.waits_until = now + FAILED_FOR;
        }
    }

    /// How it goes.
    #[must_use]
    pub fn status(&self) -> DecisionsStatus {
        DecisionsStatus {
            is_current: self.is_connected && self.born.is_some() && self.reading.is_none(),
            version: self.place,
            agents: self.known.live() - u64::from(self.known.get(Field::Policy).is_some_and(|known| known.is_live)),
            waiting: self.waiting.len() as u64 + u64::from(self.policy_waits) + self.under_way(),
            refused: self.problems.refused(),
            warnings: self.problems.all(),
            ..self.counts.clone()
        }
    }
}
