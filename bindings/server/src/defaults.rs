//! Limits of lanes that were set through the admin API: applied on top of a policy, and kept in a file.

use crate::error::StartError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;
use tollgate::{Limit, Policy, PolicyError};

/// Limits by lane that take precedence over those of the policy.
pub type Defaults = BTreeMap<String, Limit>;

/// The name of the file in the state directory.
pub(crate) const FILE: &str = "defaults.json";

/// The policy with these limits for some lanes. A plan that had a lane's own limit
/// gets its new one.
pub(crate) fn apply(base: &Policy, defaults: &Defaults) -> Result<Policy, PolicyError> {
    let mut builder = Policy::builder()
        .warn_below_percent(base.warn_below_percent())
        .on_change(base.on_change())
        .exempt(base.exempt())
        .conduct(base.conduct().clone());
    if let Some(percent) = base.warn_again_percent() {
        builder = builder.warn_again_percent(percent);
    }
    if let Some(version) = base.version() {
        builder = builder.version(version);
    }
    let outside = base.lanes().filter(|(lane, _)| base.outside_total().any(|outside| outside == *lane));
    builder = builder.outside_total(outside.map(|(_, name)| name));
    let own = |name: &str| defaults.get(name).copied();
    for (lane, name) in base.lanes() {
        builder = builder.lane(name, own(name).or(base.limit(lane)).unwrap_or(Limit::deny_all()));
    }
    if let Some(unknown) = defaults.keys().find(|name| base.lane(name).is_none()) {
        return Err(PolicyError::PlanLane { plan: "default".to_owned(), lane: unknown.clone() });
    }
    for (plan, name) in base.plans().skip(1) {
        let limits = base.lanes().filter_map(|(lane, name)| Some((name, lane, base.plan_limit(plan, lane)?)));
        let differing = limits.filter(|(_, lane, limit)| base.limit(*lane) != Some(*limit));
        builder = builder.plan(name, differing.map(|(name, _, limit)| (name, limit)).collect::<Vec<_>>());
    }
    let mut tiers: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (channel, action, lane) in base.actions() {
        let name = base.lanes().find(|(known, _)| *known == lane).map_or("", |(_, name)| name);
        let tier = name.rsplit_once('/').map_or(name, |(_, tier)| tier);
        tiers.entry((channel, tier)).or_default().push(action);
    }
    for ((channel, tier), actions) in tiers {
        builder = builder.actions(channel, tier, actions);
    }
    if let Some(tier) = base.unknown_actions_tier() {
        builder = builder.unknown_actions_to(tier);
    }
    builder.build()
}

/// Reads the file; without one there are no limits.
pub(crate) fn read(path: &Path) -> Result<Defaults, StartError> {
    let wrong = |problem: &dyn std::fmt::Display| {
        let path = path.display();
        StartError::new(format!(
            "{path}: {problem}; correct the file, or move it away to start with the policy's limits"
        ))
    };
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Defaults::new()),
        Err(error) => return Err(wrong(&error)),
    };
    let texts: BTreeMap<String, String> = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let limit = |(lane, text): (String, String)| match text.parse() {
        Ok(limit) => Ok((lane, limit)),
        Err(problem) => Err(wrong(&format!("lane {lane:?}: {problem}"))),
    };
    texts.into_iter().map(limit).collect()
}

/// Locks the file against changes by other processes, until the lock is dropped.
///
/// # Errors
///
/// `WouldBlock` if another process keeps the lock; otherwise what the system refused.
pub(crate) fn lock(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.with_extension("json.lock"))?;
    for _ in 0..LOCK_TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            locked => return locked.map(|()| file).map_err(Into::into),
        }
    }
    Err(std::io::ErrorKind::WouldBlock.into())
}

/// A change takes some milliseconds, and up to two seconds if a control call of another process is under way.
const LOCK_TRIES: u32 = 300;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Replaces the file in one step: a process that is killed meanwhile leaves the old or the new one.
pub(crate) fn write(path: &Path, defaults: &Defaults) -> std::io::Result<()> {
    let texts: BTreeMap<_, _> = defaults.iter().map(|(lane, limit)| (lane, limit.to_string())).collect();
    let mut text = serde_json::to_vec_pretty(&texts)?;
    text.push(b'\n');
    let temporary = path.with_extension("json.tmp");
    // One that a killed server has left may have other permissions.
    let _ = std::fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_changes_stays_the_same() {
        for name in Policy::PRESETS {
            let policy = Policy::preset(name).unwrap();
            assert_eq!(apply(&policy, &Defaults::new()).unwrap(), policy, "{name}");
        }
        let policy = Policy::builder().lane("a", "1/s").version(7).build().unwrap();
        assert_eq!(apply(&policy, &Defaults::new()).unwrap().version(), Some(7));
    }

    #[test]
    fn plans_follow_the_lanes_that_they_do_not_change() {
        let base = Policy::builder().lane("a", "1/s").lane("b", "1/s").plan("pro", [("a", "9/s")]).build().unwrap();
        let defaults = Defaults::from([("a".to_owned(), Limit::per_second(2)), ("b".to_owned(), Limit::per_second(3))]);
        let policy = apply(&base, &defaults).unwrap();
        let limit = |plan: &str, lane: &str| policy.plan_limit(policy.plan(plan).unwrap(), policy.lane(lane).unwrap());
        assert_eq!(limit("default", "a"), Some(Limit::per_second(2)));
        assert_eq!(limit("pro", "a"), Some(Limit::per_second(9)));
        assert_eq!(limit("pro", "b"), Some(Limit::per_second(3)));
        let unknown = Defaults::from([("c".to_owned(), Limit::per_second(2))]);
        assert!(apply(&base, &unknown).unwrap_err().to_string().contains("there is no lane \"c\""));
    }
}
