//! Envoy's rate limit service, version 3: the server that Envoy's `ratelimit` filters ask, over gRPC.
//!
//! - `listener.rs`: connections over HTTP/2, on threads of their own; `service.rs`: the methods; `frame.rs`: gRPC's
//!   frames and statuses; `wire.rs`: the messages
//! - `call.rs`: a request is decided, all of it or none; `parts.rs`: what it asks of the limiter; `answer.rs`:
//!   statuses, headers and body
//! - `rules.rs`: which rule is for a descriptor; `agent.rs`: which agent it is; `counters.rs`: what is counted
//! - `written.rs`: rules as they are written, in a policy file (`settings/envoy.rs`) or by `upstream.rs`, which reads
//!   the configuration of envoyproxy/ratelimit, with `yaml.rs`; `export.rs`: the same as a policy file

mod agent;
mod answer;
mod call;
mod counters;
mod export;
mod frame;
mod listener;
mod parts;
mod rules;
mod service;
mod upstream;
mod wire;
pub(crate) mod written;
mod yaml;

pub(crate) use counters::Counters as EnvoyCounters;
pub(crate) use export::to_toml;
pub(crate) use listener::{EnvoyListener, is_open};
pub(crate) use rules::STEPS_MAX;

use crate::error::StartError;
use crate::settings::EnvoySettings;
use crate::source;
use rules::{AllCounters, Rules};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use tollgate::{ConfigError, Policy};

/// How many files a directory of configuration may have.
const FILES_MAX: usize = 10_000;

/// The service: its rules, and what it has counted.
pub(crate) struct Envoy {
    settings: EnvoySettings,
    in_force: RwLock<Arc<InForce>>,
    ignored_limits: AtomicU64,
}

/// Rules, and their counters.
#[derive(Default)]
struct InForce {
    rules: Rules,
    counters: AllCounters,
}

impl Envoy {
    /// The service with the rules of the settings and of the files that they name.
    ///
    /// # Errors
    ///
    /// The first mistake in a rule, with its file and location.
    pub(crate) fn new(settings: &EnvoySettings, policy: &Policy) -> Result<Self, StartError> {
        let in_force = InForce::read(settings, policy, &AllCounters::new())?;
        if in_force.rules.is_empty() {
            tracing::warn!("[envoy] has no rules: every request of Envoy passes");
        }
        let mut settings = settings.clone();
        settings.clear_rules();
        Ok(Self { settings, in_force: RwLock::new(Arc::new(in_force)), ignored_limits: AtomicU64::new(0) })
    }

    /// Where it listens, and how.
    pub(crate) fn settings(&self) -> &EnvoySettings {
        &self.settings
    }

    /// Reads the rules again, those of a policy file that was read again among them. They take effect with
    /// [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// As in [`new`](Self::new).
    pub(crate) fn read_again(&self, file: Option<&EnvoySettings>, policy: &Policy) -> Result<NewRules, StartError> {
        // What the command line says stays in force.
        let settings = EnvoySettings {
            listen: self.settings.listen.clone(),
            config: self.settings.config.clone().or_else(|| file.and_then(|file| file.config.clone())),
            ..file.cloned().unwrap_or_default()
        };
        InForce::read(&settings, policy, &self.in_force().counters).map(NewRules)
    }

    /// Puts rules in force.
    pub(crate) fn replace(&self, rules: NewRules) {
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules.0);
    }

    /// What was counted, by domain and rule, in order.
    pub(crate) fn counters(&self) -> Vec<(String, String, [u64; 5])> {
        let in_force = self.in_force();
        let counters = in_force.counters.iter();
        let mut all: Vec<_> =
            counters.map(|((domain, rule), counters)| (domain.clone(), rule.clone(), counters.values())).collect();
        all.sort_unstable();
        all
    }

    /// How many limits of requests were ignored, because there is no dynamic lane.
    pub(crate) fn ignored_limits(&self) -> u64 {
        self.ignored_limits.load(Relaxed)
    }

    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn ignore_limit(&self) {
        if self.ignored_limits.fetch_add(1, Relaxed) == 0 {
            let lane = &self.settings.lane;
            tracing::warn!(lane, "a request of Envoy brought a limit along, and there is no dynamic lane for it");
        }
    }
}

/// Rules that were read, and are not in force yet.
pub(crate) struct NewRules(InForce);

/// The rules of a policy file, of which nothing is read but the file itself.
///
/// # Errors
///
/// The first mistake.
pub(crate) fn check(settings: &EnvoySettings, policy: &Policy) -> Result<(), ConfigError> {
    match Rules::new(&settings.rules, policy, &settings.lane, &AllCounters::new()) {
        Ok(_) => Ok(()),
        Err((index, at, problem)) => {
            let at = at.or_else(|| settings.rules.get(index).map(|rule| rule.at.clone())).unwrap_or_default();
            Err(ConfigError::new(&settings.text.0, at, problem))
        }
    }
}

impl InForce {
    fn read(settings: &EnvoySettings, policy: &Policy, before: &AllCounters) -> Result<Self, StartError> {
        check(settings, policy).map_err(|error| StartError::new(error.to_string()))?;
        let mut written = settings.rules.clone();
        let mut files = Vec::new();
        for path in settings.config.iter().map(|path| config_files(path)).collect::<Result<Vec<_>, _>>()?.concat() {
            let text = read_config(&path)?;
            let file = upstream::read(&text).map_err(|error| in_file(&path, &error))?;
            files.push((written.len(), path, text));
            written.extend(file.rules);
        }
        let built = Rules::new(&written, policy, &settings.lane, before).map_err(|(index, at, problem)| {
            let at = at.or_else(|| written.get(index).map(|rule| rule.at.clone())).unwrap_or_default();
            match files.iter().rev().find(|(first, ..)| *first <= index) {
                Some((_, path, text)) => in_file(path, &ConfigError::new(text, at, problem)),
                None => StartError::new(ConfigError::new(&settings.text.0, at, problem).to_string()),
            }
        });
        let (mut rules, counters) = built?;
        rules.is_shadow = settings.shadow;
        Ok(Self { rules, counters })
    }
}

/// The file, or the files of the directory, in the order of their names.
pub(crate) fn config_files(path: &Path) -> Result<Vec<PathBuf>, StartError> {
    let wrong = |error: std::io::Error| {
        StartError::new(format!("cannot read {}: {error}; name a file or a directory of .yaml files", path.display()))
    };
    if !std::fs::metadata(path).map_err(wrong)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(wrong)? {
        let file = entry.map_err(wrong)?.path();
        // Kubernetes keeps what it mounts in directories whose names begin with dots.
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml && !is_hidden && files.len() < FILES_MAX {
            files.push(file);
        }
    }
    if files.is_empty() {
        let path = path.display();
        return Err(StartError::new(format!("{path} has no .yaml file; name the directory that has some")));
    }
    files.sort_unstable();
    Ok(files)
}

/// The text of a file of configuration.
pub(crate) fn read_config(path: &Path) -> Result<String, StartError> {
    source::read_text(path).map_err(|error| StartError::new(format!("cannot read {}: {error}", path.display())))
}

pub(crate) fn in_file(path: &Path, error: &ConfigError) -> StartError {
    StartError::new(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
