//! What the settler has sent, what comes back, and what it counts.

use crate::{AgentKey, BudgetSettled, BudgetSettlement, LaneKey, Settled, Settlement};
use tollgate::LaneId;

/// What is done with a key on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Settle with its bucket.
    Settle(Settlement),
    /// Settle with its budget in the calendar window of this number.
    SettleBudget(u64, BudgetSettlement),
    /// Forget it, in the window of this number if it is a budget: the agent was reset.
    Forget(Option<u64>),
}

/// A step, and the key that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStep {
    /// The agent.
    pub agent: AgentKey,
    /// The lane.
    pub lane: LaneId,
    /// What is done.
    pub step: Step,
}

impl KeyStep {
    /// The key on the server.
    #[must_use]
    pub fn key(&self, lane: &LaneKey) -> String {
        match self.step {
            Step::SettleBudget(window, _) | Step::Forget(Some(window)) => self.agent.budget(lane, window),
            Step::Settle(_) | Step::Forget(None) => self.agent.bucket(lane),
        }
    }
}

/// Steps to be sent at once. Their order matters if two are for one key.
#[derive(Debug)]
pub struct Batch {
    /// The number by which the answer is known.
    pub number: u64,
    /// The steps.
    pub steps: Vec<KeyStep>,
}

/// What came back for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepReply {
    /// A settlement with a bucket came to this.
    Done(Settled),
    /// A settlement with a budget came to this.
    DoneBudget(BudgetSettled),
    /// A key that was to be forgotten is.
    Forgotten,
    /// The server refused it, and nothing has changed.
    Refused,
}

/// Whether the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not.
    Lost,
    /// It does again, and is being told what was spent meanwhile.
    Seeding,
    /// It does.
    Connected,
}

/// What the settler counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps that were sent.
    pub sent: u64,
    /// Steps that the server refused, and limits that it cannot count.
    pub refused: u64,
    /// Batches without an answer.
    pub unanswered: u64,
    /// How often the server was lost.
    pub losses: u64,
    /// Tokens that were granted.
    pub granted: u64,
    /// Tokens that were given back.
    pub given: u64,
    /// Tokens that were spent in advance, and paid.
    pub paid: u64,
    /// Lanes of which the server was told what was spent while it was lost.
    pub seeded: u64,
    /// Questions about lanes beyond the most that are followed, and refunds and resets beyond the most that wait.
    pub dropped: u64,
}
