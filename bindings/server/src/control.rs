//! Changes at run time, one at a time, and where they are kept.
//!
//! The state directory has three files. The limiter keeps `assignments.json`
//! (plans, overrides and exemptions) and `budgets.json` (used budgets) itself; see
//! `state.rs`. `defaults.json` has the lanes' limits that were changed through the
//! admin API. They take precedence over the policy file, and so survive its reload,
//! until they are deleted. Servers that share a slab take turns with it, and read it
//! again before each change: another one may have written it. Machines that share a store have the policy in common
//! that was put in force last, so there a limit is set on top of that.

use crate::defaults::{self, Defaults};
use crate::dry_run;
use crate::envoy::Envoy;
use crate::error::StartError;
use crate::meter::{Meter, SavedFile};
use crate::problem::Problem;
use crate::settings::{NamedToken, Settings};
use crate::source::Source;
use crate::state::StateFiles;
use http::StatusCode;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tollgate::cluster::ClusterError;
use tollgate::keep::PersistError;
use tollgate::observe::Observe;
use tollgate::shared::Shared;
use tollgate::{Assignment, BuildError, Clock, ControlError, Limit, Limiter, LimiterBuilder, Policy};

/// Changes policies and assignments, one change at a time.
pub struct Control {
    limiter: Arc<Limiter>,
    meter: Arc<Meter>,
    source: Source,
    /// The settings of the source at the start: later differences need a restart.
    settings: Settings,
    effective: Mutex<EffectivePolicy>,
    /// The rules for Envoy.
    envoy: Option<Arc<Envoy>>,
    /// The files of the state directory.
    files: Option<StateFiles>,
    is_shared: bool,
    /// Whether other machines put policies in force too.
    is_clustered: bool,
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
    /// The named tokens of the file.
    pub(crate) tokens: Vec<NamedToken>,
}

impl Control {
    pub(crate) fn start(
        source: Source,
        settings: &Settings,
        clock: Option<Clock>,
        meter: Arc<Meter>,
    ) -> Result<(Self, Arc<Limiter>), StartError> {
        let (base, mut source_settings) = source.read()?;
        without_rules(&mut source_settings);
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
        let mut builder = limiter(policy, settings)?.prefault(settings.prefault);
        if let Some(clock) = clock {
            builder = builder.clock(clock);
        }
        let limiter = Arc::new(builder.build().map_err(|error| failed(&error))?);
        if let Some(warning) = dry_run::too_large(settings.agents, limiter.memory()) {
            tracing::warn!("{warning}");
        }
        if limiter.sharing().is_some_and(|sharing| sharing.policy_differs) {
            tracing::warn!(
                "this server's policy differs from the one in force, which it adopts; raise its version to replace it"
            );
        }
        let keep = |directory: &PathBuf| StateFiles::start(&limiter, directory.clone());
        let files = settings.state.as_ref().map(keep).transpose()?;
        let envoy =
            settings.envoy.as_ref().map(|envoy| Envoy::new(envoy, &limiter.policy()).map(Arc::new)).transpose()?;
        let effective = Mutex::new(EffectivePolicy { base, defaults, file });
        let control = Self {
            limiter: Arc::clone(&limiter),
            meter,
            source,
            settings: source_settings,
            effective,
            envoy,
            files,
            is_shared: settings.slab.is_some(),
            is_clustered: settings.cluster.is_some(),
        };
        Ok((control, limiter))
    }

    /// Whether the policy comes from a file.
    pub(crate) const fn has_file(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    /// Takes over the files of the state directory, if the process that keeps them has ended; saves what
    /// other servers of the slab have changed, if this one keeps them.
    pub(crate) fn take_over_files(&self) {
        if let Some(files) = &self.files {
            files.take_over(&self.limiter);
            if let Err(error) = self.limiter.save_assignments() {
                self.meter.count_failed_save(SavedFile::Assignments);
                tracing::warn!(%error, "assignments that other servers changed were not saved");
            }
        }
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

    /// The rules for Envoy, if they are served.
    pub(crate) fn envoy(&self) -> Option<&Arc<Envoy>> {
        self.envoy.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, EffectivePolicy> {
        self.effective.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits that were set through the admin API.
    #[must_use]
    pub fn defaults(&self) -> Defaults {
        let mut effective = self.lock();
        // A file that cannot be read is reported by the next change.
        _ = self.read_again(&mut effective);
        if self.is_clustered { self.differing(&effective.base) } else { effective.defaults.clone() }
    }

    /// Limits in force that are not the policy's: whatever machine they were set on.
    fn differing(&self, base: &Policy) -> Defaults {
        let in_force = self.limiter.policy();
        let differing = base.lanes().filter_map(|(lane, name)| {
            let limit = in_force.limit(in_force.lane(name)?)?;
            (base.limit(lane) != Some(limit)).then(|| (name.to_owned(), limit))
        });
        differing.collect()
    }

    /// The limits that were set through this server's admin API, and that no other machine has changed since.
    fn own_defaults(&self, effective: &EffectivePolicy) -> Defaults {
        let in_force = self.limiter.policy();
        let is_in_force =
            |name: &str, limit: &Limit| in_force.lane(name).and_then(|lane| in_force.limit(lane)) == Some(*limit);
        let mut defaults = effective.defaults.clone();
        defaults.retain(|name, limit| !self.is_clustered || is_in_force(name, limit));
        defaults
    }

    /// Locks the defaults for a change, in all servers that share them.
    fn lock_for_change(&self) -> Result<(MutexGuard<'_, EffectivePolicy>, Option<File>), Problem> {
        let mut effective = self.lock();
        let file = effective.file.as_deref().filter(|_| self.is_shared);
        let turn = file.map(defaults::lock).transpose().map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Problem::busy("another server is changing the defaults; try again"),
            _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot lock the defaults: {error}")),
        })?;
        self.read_again(&mut effective)
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok((effective, turn))
    }

    /// Reads the defaults that another server may have set.
    fn read_again(&self, effective: &mut EffectivePolicy) -> Result<(), StartError> {
        if let Some(file) = effective.file.as_deref().filter(|_| self.is_shared) {
            effective.defaults = defaults::read(file)?;
        }
        Ok(())
    }

    /// Refuses to put an older policy in force, which another server has replaced.
    fn is_newest(&self, base: &Policy) -> Result<(), Problem> {
        let in_force = self.limiter.policy().version();
        if !self.is_shared || in_force <= base.version() {
            return Ok(());
        }
        let [newer, own] =
            [in_force, base.version()].map(|version| version.map_or("none".to_owned(), |v| v.to_string()));
        let detail = format!(
            "the policy in force has version {newer}, and this server's file version {own}; make the change through a \
             server that has the newer file, or reload this one's"
        );
        Err(Problem::new(StatusCode::CONFLICT, detail))
    }

    /// Sets limits of lanes; `None` deletes all of them.
    ///
    /// # Errors
    ///
    /// If a limit is invalid, or cannot be kept. Then nothing has changed.
    pub fn set_defaults(&self, more: Option<Defaults>) -> Result<(), Problem> {
        let (mut effective, _turn) = self.lock_for_change()?;
        self.is_newest(&effective.base)?;
        let mut defaults = self.own_defaults(&effective);
        match &more {
            Some(more) => defaults.extend(more.clone()),
            None => defaults.clear(),
        }
        let policy = if self.is_clustered {
            // On top of what other machines have put in force.
            let changed: Defaults = match &more {
                Some(more) => more.clone(),
                None => own_limits(&effective.base),
            };
            defaults::apply(&self.limiter.policy(), &changed)
        } else {
            defaults::apply(&effective.base, &defaults)
        };
        let policy = policy.map_err(|error| Problem::field("defaults", error.to_string()))?;
        if let Some(file) = &effective.file {
            defaults::write(file, &defaults).map_err(|error| self.cannot_keep(file, &error))?;
        }
        let replaced = self.limiter.replace_policy(policy);
        // One that has begun is completed by the next change, of whatever process.
        let has_begun = matches!(replaced, Ok(()) | Err(ControlError::Busy { has_begun: true, .. }));
        if has_begun {
            effective.defaults = defaults;
        }
        if let Err(error) = replaced {
            if let (false, Some(file)) = (has_begun, &effective.file) {
                defaults::write(file, &effective.defaults).map_err(|error| self.cannot_keep(file, &error))?;
            }
            return Err(error.into());
        }
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
        let (mut effective, _turn) =
            self.lock_for_change().map_err(|problem| not_reloaded(&problem, problem.detail().to_owned()))?;
        let (base, mut settings) = self.source.read()?;
        let rules = self.envoy.as_ref().map(|envoy| envoy.read_again(settings.envoy.as_ref(), &base)).transpose()?;
        without_rules(&mut settings);
        effective.defaults = self.own_defaults(&effective);
        let policy = defaults::apply(&base, &effective.defaults).map_err(|error| failed(&error))?;
        self.limiter.replace_policy(policy).map_err(|error| {
            let message = error.to_string();
            not_reloaded(&error.into(), message)
        })?;
        for (envoy, rules) in self.envoy.iter().zip(rules) {
            envoy.replace(rules);
        }
        let hides = |(name, limit): (&String, &Limit)| {
            let in_file = base.lane(name).and_then(|lane| base.limit(lane));
            (in_file != Some(*limit)).then(|| name.clone())
        };
        let hidden = effective.defaults.iter().filter_map(hides).collect();
        effective.base = base;
        if self.files.as_ref().is_some_and(StateFiles::has_assignments) {
            let problem = |error: &ControlError| {
                format!("the policy is in force, but the assignments were not read again: {error}")
            };
            self.limiter.reload_assignments().map_err(|error| {
                let message = problem(&error);
                not_reloaded(&error.into(), message)
            })?;
        }
        let tokens = settings.tokens.clone();
        // The tokens are in force after a reload.
        let settings = Settings { tokens: self.settings.tokens.clone(), ..settings };
        Ok(ReloadOutcome { needs_restart: settings != self.settings, hidden, tokens })
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
                    tracing::warn!(
                        "[server], [shared], [cluster], [envoy] or [gate] has changed; that takes effect at the next \
                         start"
                    );
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

/// Leaves out what a reload puts in force, so that it does not count as a change that needs a restart.
fn without_rules(settings: &mut Settings) {
    if let Some(envoy) = &mut settings.envoy {
        envoy.clear_rules();
    }
}

/// The limit of each lane, as the policy has it.
fn own_limits(policy: &Policy) -> Defaults {
    policy.lanes().filter_map(|(lane, name)| Some((name.to_owned(), policy.limit(lane)?))).collect()
}

/// Why a reload failed, and whether to try again.
fn not_reloaded(problem: &Problem, message: String) -> StartError {
    if problem.is_busy() { StartError::busy(message) } else { StartError::new(message) }
}

/// The limiter that the settings describe.
fn limiter(policy: Policy, settings: &Settings) -> Result<LimiterBuilder, StartError> {
    // The roster has room for every record; it never reserves more than that.
    let observe = Observe::new().roster(usize::MAX);
    let builder = Limiter::builder(policy).agents(settings.agents).on_full(settings.on_full).observe(observe);
    let mut builder = builder.reservations(settings.reservations);
    if let Some(slab) = &settings.slab {
        builder = builder.shared(Shared::at(slab).mode(settings.slab_mode));
    }
    if let Some(cluster) = &settings.cluster {
        builder = builder.cluster(cluster.cluster().map_err(StartError::new)?);
    }
    if let Some(most) = settings.reservations_per_agent {
        builder = builder.reservations_per_agent(most);
    }
    Ok(builder)
}

/// How many bytes the limiter that the settings describe would take, with the limits in the state directory.
///
/// # Errors
///
/// Why it could not be built.
pub(crate) fn memory_needed(base: &Policy, settings: &Settings) -> Result<u64, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::new(error.to_string());
    if settings.slab.is_some() && settings.cluster.is_some() {
        return Err(failed(&BuildError::from(ClusterError::Shared)));
    }
    let file = settings.state.as_ref().map(|directory| directory.join(defaults::FILE));
    let defaults = file.as_deref().map_or(Ok(Defaults::new()), defaults::read)?;
    let policy = defaults::apply(base, &defaults).map_err(|error| failed(&error))?;
    // In memory of its own: a dry run leaves no file.
    let private = Settings { slab: None, ..settings.clone() };
    let built = limiter(policy, &private)?.build().map_err(|error| failed(&error))?;
    Ok(built.memory())
}
