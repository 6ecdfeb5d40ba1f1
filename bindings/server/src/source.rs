//! Where the policy and the settings come from.

use crate::error::StartError;
use crate::settings::Settings;
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tollgate::Policy;

/// Where the policy comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A preset, by name.
    Preset(String),
    /// A preset with a dynamic lane, `envoy`, for the limits of Envoy's rules.
    PresetForEnvoy(String),
    /// A policy file, read again at every reload.
    File(PathBuf),
    /// A policy that was built elsewhere; a reload puts it in force again.
    Policy(Box<Policy>),
}

impl Source {
    /// Reads the policy and its settings.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid; with its name and the location.
    pub fn read(&self) -> Result<(Policy, Settings), StartError> {
        match self {
            Self::Preset(name) => {
                let policy = Policy::preset(name).map_err(|error| StartError::new(error.to_string()))?;
                Ok((policy, Settings::default()))
            }
            Self::PresetForEnvoy(name) => {
                let text = format!("preset = {name:?}\noutside_total = [\"envoy\"]\n[lanes]\nenvoy = \"dynamic\"\n");
                // Its one mistake can be the name.
                let unknown = |_| Policy::preset(name).err().map_or(String::new(), |error| error.to_string());
                let policy = Policy::from_toml(&text).map_err(|error| StartError::new(unknown(error)))?;
                Ok((policy, Settings::default()))
            }
            Self::File(path) => read_file(path),
            Self::Policy(policy) => Ok((Policy::clone(policy), Settings::default())),
        }
    }
}

/// The text of a regular file. Opening anything else, a FIFO say, may block for ever, and the lock on changes is held
/// while the policy is read.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    let wrong = |problem: &'static str| std::io::Error::new(std::io::ErrorKind::InvalidInput, problem);
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(wrong("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("it is larger than 16 MiB"));
    }
    Ok(text)
}

/// How many bytes a policy file may have: far more than one with every lane and plan.
const FILE_BYTES_MAX: u64 = 16 << 20;

fn read_file(path: &Path) -> Result<(Policy, Settings), StartError> {
    let text = read_text(path).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::InvalidInput => "name a file that can be read again at every reload",
            std::io::ErrorKind::NotFound => "name another file, or write one with: tollgate init",
            std::io::ErrorKind::InvalidData => "it is not UTF-8 text",
            _ => "let this process read it",
        };
        StartError::new(format!("cannot read {}: {error}; {advice}", path.display()))
    })?;
    let wrong = |error: tollgate::ConfigError| StartError::new(format!("{}: {error}", path.display()));
    let policy = Policy::from_toml(&text).map_err(wrong)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let settings = Settings::from_toml(&text, directory).map_err(wrong)?;
    settings.envoy.iter().try_for_each(|envoy| crate::envoy::check(envoy, &policy)).map_err(wrong)?;
    Ok((policy, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_gets_a_lane_for_envoy_that_no_total_counts() {
        for name in Policy::PRESETS {
            let (policy, _) = Source::PresetForEnvoy(name.to_owned()).read().unwrap();
            let lane = policy.lane("envoy").unwrap();
            assert!(policy.limit(lane).unwrap().is_dynamic() && !policy.is_in_total(lane), "{name}");
            assert_eq!(policy.lanes().len(), Policy::preset(name).unwrap().lanes().len() + 1, "{name}");
        }
        let problem = Source::PresetForEnvoy("hubs".to_owned()).read().unwrap_err().to_string();
        assert_eq!(problem, Source::Preset("hubs".to_owned()).read().unwrap_err().to_string());
    }
}
