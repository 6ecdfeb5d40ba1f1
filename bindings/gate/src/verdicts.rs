//! The answer to a question, with a verdict for each of its lanes, and why it is a refusal.

use crate::gate::Question;
use crate::quota::Quota;
use crate::refusal::Reason;
use std::time::Duration;
use tollgate::{AllVerdict, Decision, LaneId, Verdict};

/// What the response to an admitted request reports.
#[derive(Clone, Debug)]
pub(crate) enum Limits {
    One(LaneId, Verdict),
    All(Box<[(LaneId, Verdict)]>),
}

/// The answer to a question: one verdict for each of its lanes.
pub(crate) enum Verdicts {
    One(Verdict),
    All(Box<AllVerdict>),
}

impl Verdicts {
    pub(crate) fn decision(&self) -> Decision {
        match self {
            Self::One(verdict) => verdict.decision(),
            Self::All(all) => all.decision(),
        }
    }

    pub(crate) fn limits(&self, question: &Question<'_>) -> Limits {
        match (self, question.lanes) {
            (Self::One(verdict), [lane]) => Limits::One(*lane, *verdict),
            (Self::One(_), _) => Limits::All(Box::default()),
            (Self::All(all), lanes) => Limits::All(lanes.iter().copied().zip(all.verdicts().iter().copied()).collect()),
        }
    }

    /// The lane that keeps the agent waiting longest, and its verdict.
    pub(crate) fn blocking(&self, question: &Question<'_>) -> (LaneId, &Verdict) {
        let all = match (self, question.lanes) {
            (Self::One(verdict), lanes) => return (lanes.first().copied().unwrap_or(LaneId::new(0)), verdict),
            (Self::All(all), _) => all,
        };
        let denied = all.blocking().map(|part| (question.lanes[part], &all.verdicts()[part]));
        // A wait that does not help is the longest.
        denied.max_by_key(|(_, verdict)| verdict.retry_after().unwrap_or(Duration::MAX)).expect("a denied part")
    }
}

/// Why a request that costs this was denied.
pub(crate) fn reason(verdict: &Verdict, quota: &Quota, cost: u64) -> Reason {
    // A wait longer than the lane's own is due to the agent's conduct.
    let is_conduct = quota.retry_after > verdict.lane_wait() || quota.remaining >= cost;
    match is_conduct {
        _ if is_pending(verdict) => Reason::Pending,
        true => Reason::Conduct,
        false => Reason::Quota,
    }
}

/// Whether the store that machines share the lane through is still being asked.
#[cfg(feature = "cluster")]
const fn is_pending(verdict: &Verdict) -> bool {
    verdict.is_provisional()
}

/// Machines share nothing.
#[cfg(not(feature = "cluster"))]
const fn is_pending(_: &Verdict) -> bool {
    false
}
