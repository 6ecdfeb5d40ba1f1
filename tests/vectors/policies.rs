//! Builds the policy that a vector describes.

use crate::fields::{Fields, texts, whole_number};
use serde_json::Value;
use std::time::Duration;
use tollgate::{ConductRules, OnChange, Policy};

/// A policy, or why it cannot be built. The outer error is an invalid description.
pub(crate) fn read(fields: &Fields) -> Result<Result<Policy, String>, String> {
    if let Some(name) = fields.optional_text("preset")? {
        fields.all_used()?;
        return Ok(Policy::preset(name).map_err(|error| error.to_string()));
    }
    if let Some(text) = fields.optional_text("toml")? {
        fields.all_used()?;
        return policy_from_toml(text);
    }
    let mut builder = Policy::builder();
    for (lane, limit) in limits(fields.list("lanes")?)? {
        builder = builder.lane(lane, limit);
    }
    for plan in fields.optional_list("plans")? {
        let plan = Fields::of(plan);
        builder = builder.plan(plan.text("name")?, limits(plan.list("limits")?)?);
        plan.all_used()?;
    }
    builder = builder.outside_total(texts(fields.optional_list("outside_total")?)?);
    for tier in fields.optional_list("actions")? {
        let tier = Fields::of(tier);
        builder = builder.actions(tier.text("channel")?, tier.text("tier")?, texts(tier.list("names")?)?);
        tier.all_used()?;
    }
    if let Some(tier) = fields.optional_text("unknown_actions_to")? {
        builder = builder.unknown_actions_to(tier);
    }
    if let Some(percent) = fields.optional_number("warn_below_percent")? {
        builder = builder.warn_below_percent(u8::try_from(percent).map_err(|error| error.to_string())?);
    }
    match fields.optional_text("on_change")? {
        None => {}
        Some("keep") => builder = builder.on_change(OnChange::KeepDebt),
        Some("reset") => builder = builder.on_change(OnChange::Reset),
        Some(other) => return Err(format!("on_change is {other:?}; give keep or reset")),
    }
    if let Some(rules) = fields.optional_object("conduct")? {
        builder = builder.conduct(conduct_rules(&Fields::new(rules))?);
    }
    fields.all_used()?;
    Ok(builder.build().map_err(|error| error.to_string()))
}

#[cfg(feature = "config")]
fn policy_from_toml(text: &str) -> Result<Result<Policy, String>, String> {
    Ok(Policy::from_toml(text).map_err(|error| error.to_string()))
}

#[cfg(not(feature = "config"))]
fn policy_from_toml(_: &str) -> Result<Result<Policy, String>, String> {
    Err("a policy in TOML needs the feature config".into())
}

fn conduct_rules(fields: &Fields) -> Result<ConductRules, String> {
    let mut rules = ConductRules::default();
    let curve = fields.optional_list("curve_ms")?;
    if !curve.is_empty() {
        let steps = curve.iter().map(|step| whole_number(step).map(Duration::from_millis));
        rules = rules.with_curve(steps.collect::<Result<Vec<_>, _>>()?);
    }
    if let Some(quiet) = fields.optional_number("quiet_ms")? {
        rules = rules.with_quiet_period(Duration::from_millis(quiet));
    }
    if let Some(violations) = fields.optional_number("abuse_violations")? {
        let violations = u32::try_from(violations).map_err(|error| error.to_string())?;
        rules = rules.with_abuse_threshold(violations, Duration::from_millis(fields.number("abuse_within_ms")?));
    }
    let rules = rules.with_every_denial(fields.flag("every_denial")?).with_enforced_wait(fields.flag("enforce_wait")?);
    fields.all_used()?;
    Ok(rules)
}

/// Pairs of a lane and a limit's text.
fn limits(pairs: &[Value]) -> Result<Vec<(&str, &str)>, String> {
    let pairs = pairs.iter().map(|value| match value.as_array().map(Vec::as_slice) {
        Some([Value::String(lane), Value::String(limit)]) => Ok((lane.as_str(), limit.as_str())),
        _ => Err(format!("{value} is not a pair of a lane and a limit")),
    });
    pairs.collect()
}
