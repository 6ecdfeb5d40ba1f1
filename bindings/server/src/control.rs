//! Changes at run time, one at a time, and where they are kept.
//!
//! The state directory has three files. The limiter keeps `assignments.json`
//! (plans, overrides and exemptions) and `budgets.json` (used budgets) itself.
//! `defaults.json` has the lanes' limits that were changed through the admin API.
//! They take precedence over the policy file, and so survive its reload, until
//! they are deleted.

use crate::defaults::{self, Defaults};
use crate::dry_run;
use crate::error::StartError;
use crate::meter::{Meter, SavedFile};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::source::Source;
use http::StatusCode;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tollgate::keep::{BudgetsLoaded, PersistError};
use tollgate::observe::Observe;
use tollgate::{Assignment, Clock, ControlError, Limit, Limiter, LimiterBuilder, Policy};

/// Changes policies and assignments, one change at a time.
pub struct Control {
    limiter: Arc<Limiter>,
    meter: Arc<Meter>,
    source: Source,
    /// The settings of the source at the start: later differences need a restart.
    settings: Settings,
    effective: Mutex<EffectivePolicy>,
}

/// What the policy in force is made of.
struct EffectivePolicy {
    /// The policy of the source.
    base: Policy,
    /// The limits set on top of it.
    defaults: Defaults,
    /// The file of `defaults`.
    file: Option<PathBuf>,
}

/// What to know after a successful reload.
#[derive(Debug)]
pub struct ReloadOutcome {
    /// Whether settings have changed, which takes effect at the next start.
    pub needs_restart: bool,
    /// Lanes whose limit in the file is overridden by one set through the admin API.
    pub hidden: Vec<String>,
}

impl Control {
    pub(crate) fn start(
        source: Source,
        settings: &Settings,
        clock: Option<Clock>,
        meter: Arc<Meter>,
    ) -> Result<(Self, Arc<Limiter>), StartError> {
        let (base, source_settings) = source.read()?;
        let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
        let file = match &settings.state {
            None => None,
            Some(directory) => {
                std::fs::create_dir_all(directory).map_err(|error| {
                    let directory = directory.display();
                    StartError::new(format!(
                        "cannot create the state directory {directory}: {error}; name another with --state"
                    ))
                })?;
                Some(directory.join(defaults::FILE))
            }
        };
        let defaults = file.as_deref().map_or(Ok(Defaults::new()), defaults::read)?;
        let policy = defaults::apply(&base, &defaults).map_err(|error| failed(&error))?;
        let mut builder = limiter(policy, settings).prefault(settings.prefault);
        if let Some(clock) = clock {
            builder = builder.clock(clock);
        }
        let limiter = Arc::new(builder.build().map_err(|error| failed(&error))?);
        if let Some(warning) = dry_run::too_large(settings.agents, limiter.memory()) {
            tracing::warn!("{warning}");
        }
        if let Some(directory) = &settings.state {
            limiter.keep_assignments_in(directory.join("assignments.json")).map_err(|error| failed(&error))?;
            let budgets = limiter.keep_budgets_in(directory.join("budgets.json")).map_err(|error| failed(&error))?;
            warn_about(&budgets);
        }
        let effective = Mutex::new(EffectivePolicy { base, defaults, file });
        let control = Self { limiter: Arc::clone(&limiter), meter, source, settings: source_settings, effective };
        Ok((control, limiter))
    }

    /// Writes used budgets into the state directory, if there is one.
    pub(crate) fn save_budgets(&self) {
        match self.limiter.save_budgets() {
            Ok(saved) if saved.unsaved > 0 => {
                tracing::warn!(unsaved = saved.unsaved, "used budgets of agents whose id is unknown were not saved");
            }
            Ok(_) | Err(PersistError::NotKept) => {}
            Err(error) => {
                self.meter.count_failed_save(SavedFile::Budgets);
                tracing::warn!(%error, "used budgets were not saved");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, EffectivePolicy> {
        self.effective.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits that were set through the admin API.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        self.lock().defaults.clone()
    }

    /// Sets limits of lanes; `None` deletes all of them.
    ///
    /// # Errors
    ///
    /// If a limit is invalid, or cannot be kept. Then nothing has changed.
    pub fn set_defaults(&self, more: Option<Defaults>) -> Result<(), Problem> {
        let mut effective = self.lock();
        let mut defaults = effective.defaults.clone();
        match more {
            Some(more) => defaults.extend(more),
            None => defaults.clear(),
        }
        let policy = defaults::apply(&effective.base, &defaults)
            .map_err(|error| Problem::field("defaults", error.to_string()))?;
        if let Some(file) = &effective.file {
            defaults::write(file, &defaults).map_err(|error| self.cannot_keep(file, &error))?;
        }
        if let Err(error) = self.limiter.replace_policy(policy) {
            if let Some(file) = &effective.file {
                defaults::write(file, &effective.defaults).map_err(|error| self.cannot_keep(file, &error))?;
            }
            return Err(error.into());
        }
        effective.defaults = defaults;
        Ok(())
    }

    fn cannot_keep(&self, file: &Path, error: &std::io::Error) -> Problem {
        self.meter.count_failed_save(SavedFile::Defaults);
        tracing::error!(file = %file.display(), %error, "cannot save the defaults");
        let detail = format!("the change could not be saved and was not made: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// Changes assignments: `decide` sees the present ones and returns the new ones.
    /// No other change comes between.
    ///
    /// # Errors
    ///
    /// Those of `decide` and of the limiter. Then nothing has changed.
    pub fn decide(
        &self,
        decide: impl FnOnce(&Limiter) -> Result<Vec<(Vec<u8>, Assignment)>, Problem>,
    ) -> Result<(), Problem> {
        let _lock = self.lock();
        let assignments = decide(&self.limiter)?;
        let is_one = assignments.len() == 1;
        self.limiter
            .set_assignments(assignments)
            .inspect_err(|error| {
                if let ControlError::File(error) = error {
                    self.meter.count_failed_save(SavedFile::Assignments);
                    tracing::error!(%error, "cannot save the assignments");
                }
            })
            .map_err(|error| match error {
                // The caller knows which agent it is about.
                ControlError::Of { problem, .. } if is_one => (*problem).into(),
                error => error.into(),
            })
    }

    /// Reads the policy and the assignments again, and puts them in force.
    ///
    /// # Errors
    ///
    /// If the policy is invalid; then nothing has changed. Or if the file of
    /// assignments was edited and is invalid: then the new policy is in force, with
    /// the old assignments.
    pub fn reload(&self) -> Result<ReloadOutcome, StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
        let mut effective = self.lock();
        let (base, settings) = self.source.read()?;
        let policy = defaults::apply(&base, &effective.defaults).map_err(|error| failed(&error))?;
        self.limiter.replace_policy(policy).map_err(|error| failed(&error))?;
        let hides = |(name, limit): (&String, &Limit)| {
            let in_file = base.lane(name).and_then(|lane| base.limit(lane));
            (in_file != Some(*limit)).then(|| name.clone())
        };
        let hidden = effective.defaults.iter().filter_map(hides).collect();
        effective.base = base;
        if effective.file.is_some() {
            let problem = |error| format!("the policy is in force, but the assignments were not read again: {error}");
            self.limiter.reload_assignments().map_err(|error| StartError::new(problem(error)))?;
        }
        Ok(ReloadOutcome { needs_restart: settings != self.settings, hidden })
    }

    /// Reloads like [`reload`](Self::reload), and logs the outcome.
    ///
    /// # Errors
    ///
    /// Those of [`reload`](Self::reload).
    pub fn reload_and_log(&self) -> Result<ReloadOutcome, StartError> {
        let outcome = self.reload();
        self.meter.count_reload(outcome.is_ok());
        match &outcome {
            Ok(outcome) => {
                tracing::info!("the policy was read again and is in force");
                if outcome.needs_restart {
                    tracing::warn!("[server] has changed; that takes effect at the next start");
                }
                for lane in &outcome.hidden {
                    tracing::warn!(lane, "a limit set through the admin API overrides the one in the file");
                }
            }
            Err(error) => tracing::error!(%error, "the policy was not read again; the old one stays in force"),
        }
        outcome
    }
}

/// The limiter that the settings describe.
fn limiter(policy: Policy, settings: &Settings) -> LimiterBuilder {
    // The roster has room for every record; it never reserves more than that.
    let observe = Observe::new().roster(usize::MAX);
    let builder = Limiter::builder(policy).agents(settings.agents).on_full(settings.on_full).observe(observe);
    let builder = builder.reservations(settings.reservations);
    match settings.reservations_per_agent {
        Some(most) => builder.reservations_per_agent(most),
        None => builder,
    }
}

/// How many bytes the limiter that the settings describe would take, with the limits in the state directory.
///
/// # Errors
///
/// Why it could not be built.
pub(crate) fn memory_needed(base: &Policy, settings: &Settings) -> Result<u64, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
    let file = settings.state.as_ref().map(|directory| directory.join(defaults::FILE));
    let defaults = file.as_deref().map_or(Ok(Defaults::new()), defaults::read)?;
    let policy = defaults::apply(base, &defaults).map_err(|error| failed(&error))?;
    let built = limiter(policy, settings).build().map_err(|error| failed(&error))?;
    Ok(built.memory())
}

/// Warns about used budgets that could not be loaded as they were.
fn warn_about(budgets: &BudgetsLoaded) {
    let BudgetsLoaded { unknown, full, ahead, .. } = *budgets;
    if unknown > 0 || full > 0 {
        tracing::warn!(
            unknown,
            full,
            "used budgets are lost: their lane is gone or has another window, or there is no room for their agent"
        );
    }
    if !ahead.is_zero() {
        tracing::warn!(
            ?ahead,
            "the wall clock is behind the time at which budgets were saved: their windows end that much later"
        );
    }
}
