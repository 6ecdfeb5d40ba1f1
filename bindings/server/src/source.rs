//! Where the policy and the settings come from.

use crate::error::StartError;
use crate::settings::Settings;
use std::path::{Path, PathBuf};
use tollgate::Policy;

/// Where the policy comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A preset, by name.
    Preset(String),
    /// A policy file, read again at every reload.
    File(PathBuf),
    /// A policy that was built elsewhere; a reload puts it in force again.
    Policy(Box<Policy>),
}

impl Source {
    /// Reads the policy, and the settings that stand beside it.
    ///
    /// # Errors
    ///
    /// The file cannot be read or makes no sense; with its name and the place.
    pub fn read(&self) -> Result<(Policy, Settings), StartError> {
        match self {
            Self::Preset(name) => {
                let policy = Policy::preset(name).map_err(|error| StartError::new(error.to_string()))?;
                Ok((policy, Settings::default()))
            }
            Self::File(path) => read_file(path),
            Self::Policy(policy) => Ok((Policy::clone(policy), Settings::default())),
        }
    }
}

fn read_file(path: &Path) -> Result<(Policy, Settings), StartError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "name another file, or write one with: tollgate init",
            std::io::ErrorKind::InvalidData => "it is no text in UTF-8",
            _ => "let this process read it",
        };
        StartError::new(format!("cannot read {}: {error}; {advice}", path.display()))
    })?;
    let wrong = |error: tollgate::ConfigError| StartError::new(format!("{}: {error}", path.display()));
    let policy = Policy::from_toml(&text).map_err(wrong)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let settings = Settings::from_toml(&text, directory).map_err(wrong)?;
    Ok((policy, settings))
}
