//! Where in the file is the mistake that the builder found, and what was meant.

use super::read::{File, Key, Value, in_order};
use crate::lane::text;
use crate::policy::ConductError;
use crate::policy::error::PolicyError;
use crate::policy::nearest::did_you_mean;
use std::ops::Range;
use toml::Spanned;

impl<'t> File<'t> {
    /// Where in the file an error of the builder comes from.
    pub(super) fn place_of(&self, error: &PolicyError) -> Option<Range<usize>> {
        match error {
            PolicyError::Lanes { .. } | PolicyError::Words { .. } => self.key(&["lanes"]),
            PolicyError::LaneName { lane } | PolicyError::LaneTwice { lane } => self.key(&["lanes", lane]),
            PolicyError::Limit { lane, .. } => self.value(&["lanes", lane]),
            PolicyError::Plans { .. } => self.key(&["plans"]),
            PolicyError::PlanName { plan } | PolicyError::PlanTwice { plan } => self.key(&["plans", plan]),
            PolicyError::PlanLane { plan, lane } | PolicyError::PlanLaneTwice { plan, lane } => {
                self.key(&["plans", plan, lane])
            }
            PolicyError::PlanLimit { plan, lane, .. } => self.value(&["plans", plan, lane]),
            PolicyError::OutsideTotal { lane } => self.place_in(&["outside_total"], lane),
            PolicyError::Actions { .. } => self.key(&["actions"]),
            PolicyError::ActionLane { channel, tier } => self.key(&["actions", channel, tier]),
            PolicyError::ActionName { channel, action } => self.places_of_action(channel, action).first().cloned(),
            PolicyError::ActionTwice { channel, action } => self.places_of_action(channel, action).get(1).cloned(),
            PolicyError::UnknownTier { channel, .. } => self
                .value(&["unknown_actions_to"])
                .or_else(|| self.key(&["actions", channel.as_deref()?]))
                .or_else(|| self.key(&["actions"])),
            PolicyError::Conduct(problem) => self.place_of_conduct(problem),
            PolicyError::Exempt { .. } => self.value(&["exempt"]),
            PolicyError::WarnPercent { .. } => self.value(&["warn_below_percent"]),
            PolicyError::WarnAgainPercent { .. } => self.value(&["warn_again_percent"]),
        }
    }

    fn place_of_conduct(&self, problem: &ConductError) -> Option<Range<usize>> {
        match problem {
            ConductError::Steps { .. } => self.value(&["conduct", "curve"]),
            ConductError::Step { step } => {
                let steps = self.find(&["conduct", "curve"])?.1.get_ref().as_array()?;
                let is_it = |value: &&Value<'t>| value.get_ref().as_str().and_then(text::length) == Some(*step);
                steps.iter().find(is_it).map(Spanned::span)
            }
            ConductError::Quiet { .. } => self.value(&["conduct", "quiet"]),
            ConductError::Violations { .. } => self.value(&["conduct", "abuse", "violations"]),
            ConductError::Window { .. } => self.value(&["conduct", "abuse", "within"]),
        }
    }

    /// Where an action is named in the tables of a channel.
    fn places_of_action(&self, channel: &str, action: &str) -> Vec<Range<usize>> {
        let tiers = self.find(&["actions", channel]).and_then(|(_, value)| value.get_ref().as_table());
        let lists = tiers.into_iter().flat_map(in_order).filter_map(|(_, list)| list.get_ref().as_array());
        let actions = lists.flat_map(|list| list.iter()).filter(|value| value.get_ref().as_str() == Some(action));
        actions.map(Spanned::span).collect()
    }

    /// Where a list has this name.
    fn place_in(&self, path: &[&str], name: &str) -> Option<Range<usize>> {
        let list = self.find(path)?.1.get_ref().as_array()?;
        list.iter().find(|value| value.get_ref().as_str() == Some(name)).map(Spanned::span)
    }

    fn key(&self, path: &[&str]) -> Option<Range<usize>> {
        self.find(path).map(|(key, _)| key.span())
    }

    fn value(&self, path: &[&str]) -> Option<Range<usize>> {
        self.find(path).map(|(_, value)| value.span())
    }

    fn find(&self, path: &[&str]) -> Option<(&Key<'t>, &Value<'t>)> {
        let (last, parents) = path.split_last()?;
        let table = parents.iter().try_fold(&self.table, |table, key| table.get(*key)?.get_ref().as_table());
        table?.get_key_value(*last)
    }
}

/// The end of the sentence: which name was probably meant.
pub(super) fn hint(error: &PolicyError, lanes: &[String]) -> String {
    let lanes = lanes.iter().map(String::as_str);
    match error {
        PolicyError::Lanes { lanes: 0 } => "; name them under [lanes], or start with preset = \"standard\"".to_owned(),
        PolicyError::PlanLane { lane, .. } | PolicyError::OutsideTotal { lane } => did_you_mean(lane, lanes),
        PolicyError::ActionLane { channel, tier } => did_you_mean(&format!("{channel}/{tier}"), lanes),
        PolicyError::UnknownTier { tier, .. } => {
            did_you_mean(tier, lanes.filter_map(|lane| lane.rsplit_once('/')).map(|(_, tier)| tier))
        }
        _ => String::new(),
    }
}
