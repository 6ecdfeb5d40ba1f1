//! From what an agent does to the lane that pays for it.

use super::Limiter;
use crate::machine::process::unforked;
use crate::observe::Note;
use crate::policy::{Classified, LaneId, UnknownActionsSnapshot};

/// The lane of an action, and whether somebody has classified it.
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

    /// Whether it is the first time that this unknown action is met: a line
    /// in the log, so that somebody classifies it.
    #[must_use]
    pub const fn is_first_seen(&self) -> bool {
        self.first
    }
}

impl Limiter {
    /// The lane that pays for an action of a channel, by the policy in force.
    /// An action that the policy does not name goes to the channel's `normal`
    /// lane, is counted, and is told of once by name.
    ///
    /// `None` if the channel has no lane for it.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder(Policy::preset("hub")?).agents(1_000).build()?;
    /// let ping = limiter.lane_for("ws", "ping").expect("a channel of the hub");
    /// assert_eq!(Some(ping.lane()), limiter.lane("ws/light"));
    ///
    /// let dance = limiter.lane_for("ws", "dance").expect("a channel of the hub");
    /// assert_eq!(Some(dance.lane()), limiter.lane("ws/normal"));
    /// assert!(dance.is_first_seen());
    /// assert!(!limiter.lane_for("ws", "dance").expect("a channel of the hub").is_first_seen());
    /// assert_eq!(limiter.unknown_actions().total, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn lane_for(&self, channel: &str, action: &str) -> Option<ActionLane> {
        Some(match self.policy().lane_for(channel, action)? {
            Classified::Known(lane) => ActionLane { lane, known: true, first: false },
            Classified::Unknown(lane) => {
                let first = unforked(|| self.unknown_actions.record(channel, action));
                if first {
                    self.note(|| Note::UnknownAction { channel, action });
                }
                ActionLane { lane, known: false, first }
            }
        })
    }

    /// The unknown actions that were met so far.
    #[must_use]
    pub fn unknown_actions(&self) -> UnknownActionsSnapshot {
        unforked(|| self.unknown_actions.snapshot())
    }
}
