//! Which lane an action is charged to.

use super::builder::is_name;
use super::error::PolicyError;
use super::lane_id::LaneId;
use crate::bounds::ACTIONS_MAX;

/// The tier that takes unknown actions unless the policy names another.
const UNKNOWN_TIER: &str = "normal";

/// The lane that an action is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classification {
    /// The policy names the action for this lane.
    Known(LaneId),
    /// The policy does not name the action, so its channel's lane for unknown
    /// actions takes it.
    Unknown(LaneId),
}

impl Classification {
    /// The lane to charge, in either case.
    #[must_use]
    pub const fn lane(self) -> LaneId {
        match self {
            Classification::Known(lane) | Classification::Unknown(lane) => lane,
        }
    }
}

/// The actions as given, not checked yet.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionsDraft {
    pub(super) tiers: Vec<TierDraft>,
    pub(super) unknown_tier: Option<String>,
}

/// The actions that one call names for one lane.
#[derive(Clone, Debug)]
pub(super) struct TierDraft {
    pub(super) channel: String,
    pub(super) tier: String,
    pub(super) actions: Vec<String>,
}

/// The table that a lookup reads. A policy that names no actions and no tier
/// for unknown ones has an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Actions {
    unknown_tier: Option<String>,
    /// In the order of their first lanes.
    channels: Vec<Channel>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Channel {
    name: String,
    unknown: Option<LaneId>,
    /// Invariant: in the order of [`rank`], no name twice.
    known: Vec<(String, LaneId)>,
}

/// Shorter names come first, so that most steps of a search compare two lengths.
fn rank(action: &str) -> (usize, &str) {
    (action.len(), action)
}

impl Actions {
    pub(super) fn lane_for(&self, channel: &str, action: &str) -> Option<Classification> {
        let channel = self.channels.iter().find(|known| known.name == channel)?;
        match channel.known.binary_search_by(|(known, _)| rank(known).cmp(&rank(action))) {
            Ok(index) => Some(Classification::Known(channel.known[index].1)),
            Err(_) => channel.unknown.map(Classification::Unknown),
        }
    }

    pub(super) fn unknown_tier(&self) -> Option<&str> {
        self.unknown_tier.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, LaneId)> {
        self.channels.iter().flat_map(|channel| {
            channel.known.iter().map(|(action, lane)| (channel.name.as_str(), action.as_str(), *lane))
        })
    }

    pub(super) fn build(draft: ActionsDraft, lanes: &[String]) -> Result<Self, PolicyError> {
        let ActionsDraft { tiers, unknown_tier } = draft;
        if tiers.is_empty() && unknown_tier.is_none() {
            return Ok(Self::default());
        }
        let actions = tiers.iter().map(|tier| tier.actions.len()).sum();
        if actions > ACTIONS_MAX {
            return Err(PolicyError::Actions { actions });
        }
        let unknown_tier = unknown_tier.unwrap_or_else(|| UNKNOWN_TIER.to_owned());
        let mut channels: Vec<Channel> = Vec::new();
        for channel in lanes.iter().filter_map(|lane| lane.rsplit_once('/')).map(|(channel, _)| channel) {
            if !channels.iter().any(|known| known.name == channel) {
                let unknown = lane_of(lanes, channel, &unknown_tier);
                channels.push(Channel { name: channel.to_owned(), unknown, known: Vec::new() });
            }
        }
        for TierDraft { channel: name, tier, actions } in tiers {
            let lane = lane_of(lanes, &name, &tier);
            let channel = channels.iter_mut().find(|known| known.name == name);
            let (Some(lane), Some(channel)) = (lane, channel) else {
                return Err(PolicyError::ActionLane { channel: name, tier });
            };
            if channel.unknown.is_none() {
                return Err(PolicyError::UnknownTier { channel: Some(name), tier: unknown_tier });
            }
            for action in actions {
                if !is_name(&action) {
                    return Err(PolicyError::ActionName { channel: name, action });
                }
                match channel.known.binary_search_by(|(known, _)| rank(known).cmp(&rank(&action))) {
                    Ok(_) => return Err(PolicyError::ActionTwice { channel: name, action }),
                    Err(index) => channel.known.insert(index, (action, lane)),
                }
            }
        }
        if channels.iter().all(|channel| channel.unknown.is_none()) {
            return Err(PolicyError::UnknownTier { channel: None, tier: unknown_tier });
        }
        Ok(Self { unknown_tier: Some(unknown_tier), channels })
    }
}

/// The lane of a tier of a channel.
fn lane_of(lanes: &[String], channel: &str, tier: &str) -> Option<LaneId> {
    let index = lanes.iter().position(|lane| lane.rsplit_once('/') == Some((channel, tier)))?;
    // Lossless: `build` admits at most `LANES_MAX` lanes.
    Some(LaneId::new(index as u32))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::{Policy, PolicyBuilder};

    fn hub() -> PolicyBuilder {
        ["ws/light", "ws/normal", "http/normal", "http/heavy", "alone", "bare/x"]
            .into_iter()
            .fold(Policy::builder(), |policy, lane| policy.lane(lane, "1/s"))
            .actions("ws", "light", ["ping", "status"])
            .actions("ws", "normal", ["message"])
            .actions("http", "heavy", ["ping"])
    }

    #[test]
    fn an_action_goes_to_its_lane_and_an_unknown_one_to_the_channels_normal() {
        let policy = hub().build().unwrap();
        let lane = |name| policy.lane(name).unwrap();
        for (channel, action, expected) in [
            ("ws", "ping", Some(Classification::Known(lane("ws/light")))),
            ("ws", "status", Some(Classification::Known(lane("ws/light")))),
            ("ws", "message", Some(Classification::Known(lane("ws/normal")))),
            ("http", "ping", Some(Classification::Known(lane("http/heavy")))),
            ("http", "status", Some(Classification::Unknown(lane("http/normal")))),
            ("ws", "", Some(Classification::Unknown(lane("ws/normal")))),
            ("ws", "PING", Some(Classification::Unknown(lane("ws/normal")))),
            ("bare", "ping", None),
            ("alone", "ping", None),
            ("grpc", "ping", None),
            ("", "ping", None),
        ] {
            assert_eq!(policy.lane_for(channel, action), expected, "{channel} {action}");
        }
        assert_eq!(Classification::Known(lane("ws/light")).lane(), lane("ws/light"));
        assert_eq!(Classification::Unknown(lane("ws/light")).lane(), lane("ws/light"));
        assert_eq!(policy.unknown_actions_tier(), Some("normal"));
        assert_eq!(policy.actions().count(), 4);
        assert!(policy.actions().any(|action| action == ("http", "ping", lane("http/heavy"))));
    }

    #[test]
    fn every_name_of_a_large_table_is_found() {
        let names: Vec<String> = (0..1_000).map(|i: u32| format!("{:x}", i.wrapping_mul(2_654_435_761))).collect();
        let policy = Policy::builder().lane("a/x", "1/s").lane("a/y", "1/s").unknown_actions_to("y");
        let policy = policy.actions("a", "x", &names).build().unwrap();
        for name in &names {
            assert_eq!(policy.lane_for("a", name), Some(Classification::Known(LaneId::new(0))), "{name}");
            let longer = format!("{name}-");
            assert_eq!(policy.lane_for("a", &longer), Some(Classification::Unknown(LaneId::new(1))), "{longer}");
        }
    }

    #[test]
    fn a_policy_without_actions_classifies_nothing() {
        let policy = Policy::builder().lane("ws/normal", "1/s").build().unwrap();
        assert_eq!(policy.lane_for("ws", "ping"), None);
        assert_eq!(policy.unknown_actions_tier(), None);
        let policy = Policy::builder().lane("ws/low", "1/s").unknown_actions_to("low").build().unwrap();
        assert_eq!(policy.lane_for("ws", "ping"), Some(Classification::Unknown(LaneId::new(0))));
    }

    #[test]
    fn the_order_in_which_actions_are_named_does_not_matter() {
        let one = hub().actions("ws", "light", ["a", "bb"]).build();
        let other = hub().actions("ws", "light", ["bb"]).actions("ws", "light", ["a"]).build();
        assert_eq!(one, other);
    }

    #[test]
    fn invalid_actions_are_refused() {
        let error = |policy: PolicyBuilder| policy.build().expect_err("must be refused").to_string();
        assert_eq!(
            error(hub().actions("ws", "lihgt", ["x"])),
            "actions of \"ws/lihgt\": there is no such lane; name it with a limit first"
        );
        assert!(error(hub().actions("grpc", "light", ["x"])).starts_with("actions of \"grpc/light\""));
        assert_eq!(
            error(hub().actions("ws", "normal", ["status"])),
            "channel \"ws\": action \"status\" is named twice; name it once"
        );
        for name in [String::new(), "a b".into(), "a\n".into(), "x".repeat(65)] {
            let error = error(hub().actions("ws", "light", [name.clone()]));
            assert!(
                error.starts_with(&format!("channel \"ws\": action name {name:?}; allowed: 1 to 64 bytes")),
                "{error}"
            );
        }
        assert_eq!(
            error(hub().actions("bare", "x", ["a"])),
            "channel \"bare\": unknown actions go to \"bare/normal\", which is not a lane; add it, or name another tier"
        );
        assert!(error(hub().unknown_actions_to("low")).contains("\"ws/low\""));
        assert_eq!(
            error(Policy::builder().lane("ws/light", "1/s").unknown_actions_to("low")),
            "unknown actions go to the tier \"low\", which no channel has; add such a lane, or name another tier"
        );
        let many = |count: usize| hub().actions("ws", "light", (0..count).map(|i| format!("a{i}")));
        assert!(many(ACTIONS_MAX - 4).build().is_ok());
        assert_eq!(error(many(ACTIONS_MAX - 3)), "a policy of 4097 actions; allowed: up to 4096");
    }
}
