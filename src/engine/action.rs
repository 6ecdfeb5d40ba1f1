//! From an action to the lane that pays for it.

use super::Engine;
use crate::machine::process::unforked;
use crate::observe::{Note, UnknownActionsSnapshot};
use crate::policy::{Classification, LaneId};

/// The lane of an action, and whether the policy names the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionLane {
    lane: LaneId,
    known: bool,
    first: bool,
}

impl ActionLane {
    /// The lane that pays for the action.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.lane
    }

    /// Whether the policy names the action.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.known
    }

    /// Whether this unknown action was seen for the first time. Log it, so that
    /// an operator adds it to the policy.
    #[must_use]
    pub const fn is_first_seen(&self) -> bool {
        self.first
    }
}

impl Engine {
    /// The lane that pays for an action, by the policy in force. Counts and notes an unknown action.
    pub(crate) fn lane_for(&self, channel: &str, action: &str) -> Option<ActionLane> {
        Some(match self.policy().lane_for(channel, action)? {
            Classification::Known(lane) => ActionLane { lane, known: true, first: false },
            Classification::Unknown(lane) => {
                let first = unforked(|| self.unknown_actions.record(channel, action));
                if first {
                    self.note(|| Note::UnknownAction { channel, action });
                }
                ActionLane { lane, known: false, first }
            }
        })
    }

    pub(crate) fn unknown_actions(&self) -> UnknownActionsSnapshot {
        unforked(|| self.unknown_actions.snapshot())
    }
}
