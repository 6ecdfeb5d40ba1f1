//! One agent's state.

use crate::clock::Tick;
use crate::conduct::Conduct;
use crate::lane::LaneState;
use crate::policy::{LaneId, Limit};

/// One agent's state, as a card on a dashboard shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentView {
    /// When it was read.
    pub at: Tick,
    /// Whether it has a record. If not, nothing is known about it: all its
    /// lanes are full and it has no violations.
    pub is_known: bool,
    /// The plan that it is assigned to. `None` for an agent without one, which
    /// has the limits of `default`.
    pub plan: Option<String>,
    /// Whether it is never limited.
    pub is_exempt: bool,
    /// Its lanes, in the order of the policy.
    pub lanes: Vec<LaneView>,
    /// Its violations.
    pub conduct: Conduct,
}

/// One lane of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneView {
    /// The lane.
    pub lane: LaneId,
    /// Its name.
    pub name: String,
    /// The limit that applies to the agent; `None` if it is exempt.
    pub limit: Option<Limit>,
    /// Whether that limit is an override for this agent.
    pub is_override: bool,
    /// What is left, of what capacity, and when there is more.
    pub state: LaneState,
}

/// How near to its limit a lane is, in three steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum UsageLevel {
    /// Less than half of the lane is used.
    Green,
    /// 50 to 80 % of it is used.
    Yellow,
    /// More than 80 % of it is used.
    Red,
}

impl LaneView {
    /// How many whole tokens are used.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.state.capacity().saturating_sub(self.state.remaining())
    }

    /// How much of the lane is used, 0 to 100. A lane that denies everything is
    /// always used up, and an exempt agent uses nothing.
    #[must_use]
    pub fn used_percent(&self) -> f64 {
        match self.state.capacity() {
            0 => 100.0,
            capacity => self.used() as f64 * 100.0 / capacity as f64,
        }
    }

    /// How near to its limit the lane is.
    #[must_use]
    pub const fn level(&self) -> UsageLevel {
        let (used, capacity) = (self.used() as u128 * 100, self.state.capacity() as u128);
        if capacity == 0 || used > capacity * 80 {
            UsageLevel::Red
        } else if used >= capacity * 50 {
            UsageLevel::Yellow
        } else {
            UsageLevel::Green
        }
    }
}

impl AgentView {
    /// The lane nearest to its limit: among all that let anything pass, the one
    /// with the largest share used, and the first of equals. `None` if the
    /// agent is exempt, or every lane denies everything.
    #[must_use]
    pub fn dominant(&self) -> Option<&LaneView> {
        let lanes = self.lanes.iter().filter(|lane| lane.state.capacity() > 0 && !lane.state.is_exempt());
        lanes.reduce(|most, lane| {
            // Compares shares without rounding.
            let share = |lane: &LaneView, other: &LaneView| lane.used() as u128 * other.state.capacity() as u128;
            if share(lane, most) > share(most, lane) { lane } else { most }
        })
    }

    /// Whether it has violated a limit and has not been quiet since. An exempt
    /// agent never is.
    #[must_use]
    pub const fn is_rate_limited(&self) -> bool {
        self.conduct.is_rate_limited() && !self.is_exempt
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lane(remaining: u64, capacity: u64) -> LaneView {
        let status = LaneState { remaining, capacity, token_ns: 1, window_ns: capacity, next_in_ns: 0, full_in_ns: 0 };
        LaneView {
            lane: LaneId::new(0),
            name: format!("{remaining}/{capacity}"),
            limit: None,
            is_override: false,
            state: status,
        }
    }

    fn dominant(lanes: &[(u64, u64)]) -> Option<String> {
        let view = AgentView {
            at: Tick::ZERO,
            is_known: true,
            plan: None,
            is_exempt: false,
            lanes: lanes.iter().map(|(remaining, capacity)| lane(*remaining, *capacity)).collect(),
            conduct: Conduct::default(),
        };
        view.dominant().map(|lane| lane.name.clone())
    }

    #[test]
    fn levels_change_at_one_half_and_past_four_fifths() {
        let levels = [100, 51, 50, 20, 19, 0].map(|remaining| lane(remaining, 100).level());
        use UsageLevel::{Green, Red, Yellow};
        assert_eq!(levels, [Green, Green, Yellow, Yellow, Red, Red]);
        assert_eq!(lane(0, 0).level(), Red);
        assert_eq!(lane(u64::MAX, u64::MAX).level(), Green);
        assert_eq!(
            [lane(3, 4), lane(0, 4), lane(0, 0), lane(4, 4)].map(|lane| lane.used_percent()),
            [25.0, 100.0, 100.0, 0.0]
        );
    }

    #[test]
    fn the_dominant_lane_has_the_largest_share_used() {
        assert_eq!(dominant(&[(9, 10), (50, 60), (120, 120)]).as_deref(), Some("50/60"));
        assert_eq!(dominant(&[(5, 10), (50, 100), (1, 2)]).as_deref(), Some("5/10"), "the first of equals");
        assert_eq!(
            dominant(&[(0, 0), (10, 10)]).as_deref(),
            Some("10/10"),
            "one that denies everything does not count"
        );
        assert_eq!(dominant(&[(0, 0), (u64::MAX, u64::MAX)]), None);
        assert_eq!(dominant(&[]), None);
    }
}
