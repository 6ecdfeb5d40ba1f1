//! A policy as TOML text.

use crate::lane::text;
use crate::policy::{LaneId, OnChange, PlanId, Policy};
use std::fmt;
use std::time::Duration;

/// Prints a policy as the file that [`Policy::from_toml`] reads.
pub(super) struct Toml<'a>(pub(super) &'a Policy);

impl fmt::Display for Toml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = self.0;
        if let Some(version) = policy.version() {
            writeln!(f, "version = {version}")?;
        }
        writeln!(f, "warn_below_percent = {}", policy.warn_below_percent())?;
        if let Some(percent) = policy.warn_again_percent() {
            writeln!(f, "warn_again_percent = {percent}")?;
        }
        let on_change = match policy.on_change() {
            OnChange::KeepDebt => "keep",
            OnChange::Reset => "reset",
        };
        writeln!(f, "on_change = {}", quoted(on_change))?;
        if let Some(tier) = policy.unknown_actions_tier() {
            writeln!(f, "unknown_actions_to = {}", quoted(tier))?;
        }
        if policy.exempt().len() > 0 {
            let agents: Vec<_> = policy.exempt().map(quoted).collect();
            writeln!(f, "exempt = [{}]", agents.join(", "))?;
        }
        if policy.outside_total().next().is_some() {
            let lanes = policy.lanes().filter(|(lane, _)| policy.outside_total().any(|outside| outside == *lane));
            let lanes: Vec<_> = lanes.map(|(_, name)| quoted(name)).collect();
            writeln!(f, "outside_total = [{}]", lanes.join(", "))?;
        }
        writeln!(f, "\n[lanes]")?;
        write_limits(f, policy, PlanId::DEFAULT, |_| true)?;
        for (plan, name) in policy.plans().skip(1) {
            writeln!(f, "\n[plans.{}]", key(name))?;
            write_limits(f, policy, plan, |lane| policy.plan_limit(plan, lane) != policy.limit(lane))?;
        }
        write_actions(f, policy)?;
        write_conduct(f, policy)
    }
}

fn write_limits(
    f: &mut fmt::Formatter<'_>,
    policy: &Policy,
    plan: PlanId,
    wanted: impl Fn(LaneId) -> bool,
) -> fmt::Result {
    for (lane, name) in policy.lanes().filter(|(lane, _)| wanted(*lane)) {
        if let Some(limit) = policy.plan_limit(plan, lane) {
            writeln!(f, "{} = {}", key(name), quoted(&limit.to_string()))?;
        }
    }
    Ok(())
}

/// A table per channel and a list per tier, each list in alphabetical order.
fn write_actions(f: &mut fmt::Formatter<'_>, policy: &Policy) -> fmt::Result {
    let mut actions: Vec<_> = policy.actions().map(|(channel, action, lane)| (lane, channel, action)).collect();
    actions.sort_unstable();
    // Lanes of one channel need not be adjacent in the policy.
    let mut channels: Vec<&str> = Vec::new();
    for (_, channel, _) in &actions {
        if !channels.contains(channel) {
            channels.push(channel);
        }
    }
    for channel in channels {
        writeln!(f, "\n[actions.{}]", key(channel))?;
        for (lane, name) in policy.lanes() {
            let names: Vec<_> = actions.iter().filter(|known| known.0 == lane).map(|known| quoted(known.2)).collect();
            if let (Some((of, tier)), false) = (name.rsplit_once('/'), names.is_empty()) {
                if of == channel {
                    writeln!(f, "{} = [{}]", key(tier), names.join(", "))?;
                }
            }
        }
    }
    Ok(())
}

fn write_conduct(f: &mut fmt::Formatter<'_>, policy: &Policy) -> fmt::Result {
    let rules = policy.conduct();
    let (violations, within) = rules.abuse_threshold();
    let curve: Vec<_> = rules.curve().map(length).collect();
    writeln!(f, "\n[conduct]")?;
    writeln!(f, "curve = [{}]", curve.join(", "))?;
    writeln!(f, "quiet = {}", length(rules.quiet_period()))?;
    writeln!(f, "abuse = {{ violations = {violations}, within = {} }}", length(within))?;
    writeln!(f, "every_denial = {}", rules.counts_every_denial())?;
    writeln!(f, "enforce_wait = {}", rules.enforces_wait())
}

fn length(length: Duration) -> String {
    let (count, unit) = text::unit_of(length);
    quoted(&format!("{count}{}", unit.short()))
}

/// A name as a key: quoted unless it is made of plain letters.
fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

/// A text in quotes. Names have no control characters, but the ids of exempt agents may: TOML wants them escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Each of them has at most four digits.
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An exempt id may have any character, and one with a newline made a text that nobody could read: no process
    /// could join a shared slab with it.
    #[test]
    fn ids_with_any_character_are_read_back() {
        let control = (0..0x20).chain([0x7f, 0x80, 0x85, 0x9f, 0x2028]).filter_map(char::from_u32);
        let ids = control.map(|c| format!("a{c}b")).chain(["\"".into(), "\\u0001\\".into(), "'".into(), "\r\n".into()]);
        let policy = Policy::builder().lane("api", "1/s").exempt(ids.collect::<Vec<_>>()).build().unwrap();
        assert_eq!(Policy::from_toml(&policy.to_toml()).unwrap(), policy);
    }
}
