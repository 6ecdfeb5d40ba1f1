//! What an operator changes at run time, one change at a time, and where it is kept.
//!
//! The state directory has three files: `assignments.json`, plans, overrides
//! and exemptions, and `budgets.json`, what is used of budgets, which the
//! limiter itself keeps; and `defaults.json`, the lanes' own limits that were
//! changed through the admin API. These stand over the policy file, and so
//! survive its reload, until they are taken back.

use crate::error::StartError;
use crate::meter::{Kept, Meter};
use crate::problem::Problem;
use crate::rehearsal;
use crate::settings::Settings;
use crate::source::Source;
use http::StatusCode;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tollgate::keep::{BudgetsLoaded, PersistError};
use tollgate::observe::Observe;
use tollgate::{Assignment, Clock, ControlError, Limit, Limiter, LimiterBuilder, Policy, PolicyError};

/// Limits by lane that stand over those of the policy.
pub type Defaults = BTreeMap<String, Limit>;

/// The right to change things, and what was changed.
pub struct Control {
    limiter: Arc<Limiter>,
    meter: Arc<Meter>,
    source: Source,
    /// The source's settings as they were at the start: what differs later waits for a restart.
    settings: Settings,
    changed: Mutex<Changed>,
}

struct Changed {
    /// The policy as its source has it.
    base: Policy,
    defaults: Defaults,
    /// Where `defaults` are kept.
    file: Option<PathBuf>,
}

/// What a reload did.
#[derive(Debug)]
pub struct Reloaded {
    /// Settings that differ now and take effect at the next start.
    pub needs_restart: bool,
    /// Lanes whose limit in the file is hidden by one set through the admin API.
    pub hidden: Vec<String>,
}

impl Control {
    pub(crate) fn start(
        source: Source,
        settings: &Settings,
        clock: Option<Clock>,
        meter: Arc<Meter>,
    ) -> Result<(Self, Arc<Limiter>), StartError> {
        let (base, of_source) = source.read()?;
        let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
        let file = match &settings.state {
            None => None,
            Some(directory) => {
                std::fs::create_dir_all(directory).map_err(|error| {
                    let directory = directory.display();
                    StartError::new(format!(
                        "cannot make the state directory {directory}: {error}; name another with --state"
                    ))
                })?;
                Some(directory.join("defaults.json"))
            }
        };
        let defaults = file.as_deref().map_or(Ok(Defaults::new()), read_defaults)?;
        let policy = with_defaults(&base, &defaults).map_err(|error| failed(&error))?;
        let mut builder = limiter(policy, settings).prefault(settings.commit_memory);
        if let Some(clock) = clock {
            builder = builder.clock(clock);
        }
        let limiter = Arc::new(builder.build().map_err(|error| failed(&error))?);
        if let Some(warning) = rehearsal::too_large(settings.agents, limiter.memory()) {
            tracing::warn!("{warning}");
        }
        if let Some(directory) = &settings.state {
            limiter.keep_assignments_in(directory.join("assignments.json")).map_err(|error| failed(&error))?;
            let budgets = limiter.keep_budgets_in(directory.join("budgets.json")).map_err(|error| failed(&error))?;
            tell_of(&budgets);
        }
        let changed = Mutex::new(Changed { base, defaults, file });
        let control = Self { limiter: Arc::clone(&limiter), meter, source, settings: of_source, changed };
        Ok((control, limiter))
    }

    /// Writes what is used of budgets into the state directory, if there is one.
    pub(crate) fn save_budgets(&self) {
        match self.limiter.save_budgets() {
            Ok(saved) if saved.unsaved > 0 => {
                tracing::warn!(unsaved = saved.unsaved, "used budgets of agents whose id is not known were not saved");
            }
            Ok(_) | Err(PersistError::NotKept) => {}
            Err(error) => {
                self.meter.save_failed(Kept::Budgets);
                tracing::warn!(%error, "used budgets were not saved");
            }
        }
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits that were set through the admin API.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.changed().defaults.clone()
    }

    /// Sets limits of lanes, or with `None` takes all of them back.
    ///
    /// # Errors
    ///
    /// The limits make no sense, or cannot be kept. Then nothing has changed.
    pub fn set_defaults(&self, more: Option<Defaults>) -> Result<(), Problem> {
        let mut changed = self.changed();
        let mut defaults = changed.defaults.clone();
        match more {
            Some(more) => defaults.extend(more),
            None => defaults.clear(),
        }
        let policy =
            with_defaults(&changed.base, &defaults).map_err(|error| Problem::field("defaults", error.to_string()))?;
        if let Some(file) = &changed.file {
            write_defaults(file, &defaults).map_err(|error| self.cannot_keep(file, &error))?;
        }
        if let Err(error) = self.limiter.replace_policy(policy) {
            if let Some(file) = &changed.file {
                write_defaults(file, &changed.defaults).map_err(|error| self.cannot_keep(file, &error))?;
            }
            return Err(error.into());
        }
        changed.defaults = defaults;
        Ok(())
    }

    fn cannot_keep(&self, file: &Path, error: &std::io::Error) -> Problem {
        self.meter.save_failed(Kept::Defaults);
        tracing::error!(file = %file.display(), %error, "cannot keep the defaults");
        let detail = format!("the change could not be kept and was not made: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// Decides about agents: `decide` sees what is decided now and returns
    /// what is to be. No other change comes between.
    ///
    /// # Errors
    ///
    /// Those of `decide` and of the limiter. Then nothing has changed.
    pub fn decide(
        &self,
        decide: impl FnOnce(&Limiter) -> Result<Vec<(Vec<u8>, Assignment)>, Problem>,
    ) -> Result<(), Problem> {
        let _turn = self.changed();
        let assignments = decide(&self.limiter)?;
        let is_one = assignments.len() == 1;
        self.limiter
            .set_assignments(assignments)
            .inspect_err(|error| {
                if let ControlError::File(error) = error {
                    self.meter.save_failed(Kept::Assignments);
                    tracing::error!(%error, "cannot keep what was decided about agents");
                }
            })
            .map_err(|error| match error {
                // Who it is about, the caller knows.
                ControlError::Of { problem, .. } if is_one => (*problem).into(),
                error => error.into(),
            })
    }

    /// Reads the policy and the assignments again, and puts them in force.
    ///
    /// # Errors
    ///
    /// What is wrong with the policy; then everything stays as it was. Or what
    /// is wrong with the file of assignments, if somebody has edited it: then
    /// the policy is in force, and assignments stay as they were.
    pub fn reload(&self) -> Result<Reloaded, StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
        let mut changed = self.changed();
        let (base, settings) = self.source.read()?;
        let policy = with_defaults(&base, &changed.defaults).map_err(|error| failed(&error))?;
        self.limiter.replace_policy(policy).map_err(|error| failed(&error))?;
        let hides = |(name, limit): (&String, &Limit)| {
            let in_file = base.lane(name).and_then(|lane| base.limit(lane));
            (in_file != Some(*limit)).then(|| name.clone())
        };
        let hidden = changed.defaults.iter().filter_map(hides).collect();
        changed.base = base;
        if changed.file.is_some() {
            let told = |error| format!("the policy is in force, but the assignments were not read again: {error}");
            self.limiter.reload_assignments().map_err(|error| StartError::new(told(error)))?;
        }
        Ok(Reloaded { needs_restart: settings != self.settings, hidden })
    }
}

impl Control {
    /// As [`reload`](Self::reload), and the log says what came of it.
    ///
    /// # Errors
    ///
    /// As [`reload`](Self::reload).
    pub fn reload_and_log(&self) -> Result<Reloaded, StartError> {
        let reloaded = self.reload();
        self.meter.reloaded(reloaded.is_ok());
        match &reloaded {
            Ok(reloaded) => {
                tracing::info!("the policy was read again and is in force");
                if reloaded.needs_restart {
                    tracing::warn!("[server] has changed; that takes effect at the next start");
                }
                for lane in &reloaded.hidden {
                    tracing::warn!(lane, "the limit set through the admin API stands over the one of the file");
                }
            }
            Err(error) => tracing::error!(%error, "the policy was not read again; the old one stays in force"),
        }
        reloaded
    }
}

/// The limiter that the settings describe.
fn limiter(policy: Policy, settings: &Settings) -> LimiterBuilder {
    // Room for every record: no more are reserved than there are.
    let observe = Observe::new().roster(usize::MAX);
    let builder = Limiter::builder(policy).agents(settings.agents).on_full(settings.on_full).observe(observe);
    let builder = builder.reservations(settings.reservations);
    match settings.reservations_per_agent {
        Some(most) => builder.reservations_per_agent(most),
        None => builder,
    }
}

/// How many bytes a limiter would take in all, with the defaults that are kept.
///
/// # Errors
///
/// Why it could not be built.
pub(crate) fn rehearse(base: &Policy, settings: &Settings) -> Result<u64, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
    let file = settings.state.as_ref().map(|directory| directory.join("defaults.json"));
    let defaults = file.as_deref().map_or(Ok(Defaults::new()), read_defaults)?;
    let policy = with_defaults(base, &defaults).map_err(|error| failed(&error))?;
    let built = limiter(policy, settings).build().map_err(|error| failed(&error))?;
    Ok(built.memory())
}

/// Tells of used budgets that could not be loaded as they were.
fn tell_of(budgets: &BudgetsLoaded) {
    let BudgetsLoaded { unknown, full, ahead, .. } = *budgets;
    if unknown > 0 || full > 0 {
        tracing::warn!(
            unknown,
            full,
            "used budgets are lost: of lanes that are gone or have another window, or of agents for whom there is no room"
        );
    }
    if !ahead.is_zero() {
        tracing::warn!(
            ?ahead,
            "the wall clock is behind what it was when budgets were saved: their windows end so much later"
        );
    }
}

/// The same policy with other limits for some lanes. A plan that had a lane's
/// own limit has its new one.
fn with_defaults(base: &Policy, defaults: &Defaults) -> Result<Policy, PolicyError> {
    let mut builder = Policy::builder()
        .warn_below_percent(base.warn_below_percent())
        .on_change(base.on_change())
        .exempt(base.exempt())
        .conduct(base.conduct().clone());
    if let Some(percent) = base.warn_again_percent() {
        builder = builder.warn_again_percent(percent);
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

fn read_defaults(path: &Path) -> Result<Defaults, StartError> {
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

/// Replaces the file in one step: whoever is killed meanwhile leaves the old one or the new one.
fn write_defaults(path: &Path, defaults: &Defaults) -> std::io::Result<()> {
    let texts: BTreeMap<_, _> = defaults.iter().map(|(lane, limit)| (lane, limit.to_string())).collect();
    let mut text = serde_json::to_vec_pretty(&texts)?;
    text.push(b'\n');
    let temporary = path.with_extension("json.tmp");
    // What a server that was killed has left may have other permissions.
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
    fn a_policy_without_changes_is_itself() {
        for name in Policy::PRESETS {
            let policy = Policy::preset(name).unwrap();
            assert_eq!(with_defaults(&policy, &Defaults::new()).unwrap(), policy, "{name}");
        }
    }

    #[test]
    fn plans_follow_the_lanes_that_they_do_not_change() {
        let base = Policy::builder().lane("a", "1/s").lane("b", "1/s").plan("pro", [("a", "9/s")]).build().unwrap();
        let defaults = Defaults::from([("a".to_owned(), Limit::per_second(2)), ("b".to_owned(), Limit::per_second(3))]);
        let policy = with_defaults(&base, &defaults).unwrap();
        let limit = |plan: &str, lane: &str| policy.plan_limit(policy.plan(plan).unwrap(), policy.lane(lane).unwrap());
        assert_eq!(limit("default", "a"), Some(Limit::per_second(2)));
        assert_eq!(limit("pro", "a"), Some(Limit::per_second(9)));
        assert_eq!(limit("pro", "b"), Some(Limit::per_second(3)));
        let unknown = Defaults::from([("c".to_owned(), Limit::per_second(2))]);
        assert!(with_defaults(&base, &unknown).unwrap_err().to_string().contains("there is no lane \"c\""));
    }
}
