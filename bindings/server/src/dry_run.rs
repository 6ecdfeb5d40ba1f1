//! A dry run of a start, for `check-config`.
//!
//! It changes nothing and never waits, so it can run beside a server with the same
//! port and state. Two things only a real start shows: whether the port is free,
//! and whether the files of the state directory are valid.

use crate::address::Address;
use crate::auth::Keys;
use crate::control;
use crate::envoy::{self, Envoy};
use crate::error::StartError;
use crate::net::tls::Tls;
use crate::settings::Settings;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use tollgate::Policy;

/// Tries everything that a start needs, and returns warnings.
///
/// # Errors
///
/// Why it would not start.
pub(crate) fn start(policy: &Policy, settings: &Settings) -> Result<Vec<String>, StartError> {
    Keys::new(settings)?;
    settings.tls.as_ref().map(Tls::load).transpose()?;
    for address in settings.listen.addresses() {
        can_listen(address)?;
    }
    if let Some(for_envoy) = &settings.envoy {
        Envoy::new(for_envoy, policy)?;
        envoy::is_open(settings, &for_envoy.listen)?;
        can_listen(&for_envoy.listen)?;
    }
    if let Some(directory) = &settings.state {
        can_write(directory, "state directory")?;
    }
    if let Some(directory) = &settings.audit_directory {
        can_write(directory, "audit directory")?;
    }
    if let Some(slab) = &settings.slab {
        can_share(slab)?;
    }
    let bytes = control::memory_needed(policy, settings)?;
    let free = memory("MemAvailable:").filter(|free| settings.prefault && bytes > *free);
    if let Some(free) = free {
        let problem =
            format!("prefault takes {} at the start, and only {} are free", gigabytes(bytes), gigabytes(free));
        return Err(StartError::new(format!("{problem}; lower agents in [server]")));
    }
    Ok(too_large(settings.agents, bytes).into_iter().collect())
}

/// Checks that a server could listen there. Whoever listens now may be the server that is to be reloaded.
fn can_listen(address: &Address) -> Result<(), StartError> {
    match address {
        Address::Tcp(address) => match TcpListener::bind(address) {
            Err(error) if error.kind() != ErrorKind::AddrInUse => {
                Err(StartError::new(format!("cannot listen on {address}: {error}; choose another address")))
            }
            _ => Ok(()),
        },
        Address::Unix(path) => match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => Ok(()),
            Ok(_) => {
                let problem = "there is a file that is not a socket; choose another path";
                Err(StartError::new(format!("cannot listen on {address}: {problem}")))
            }
            Err(_) => can_write(parent(path), "directory of the socket"),
        },
    }
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks what can be known without a slab: that its directory exists.
fn can_share(slab: &Path) -> Result<(), StartError> {
    let directory = parent(slab);
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(StartError::new(format!("the slab's directory {directory} does not exist; create it first")));
    }
    can_write(directory, "slab's directory")
}

/// A warning about a limiter that may take more memory than the machine has.
pub(crate) fn too_large(agents: u64, bytes: u64) -> Option<String> {
    let total = memory("MemTotal:").filter(|total| bytes > *total)?;
    let (bytes, total) = (gigabytes(bytes), gigabytes(total));
    Some(format!("{agents} agents take up to {bytes} of memory, and this machine has {total}; lower agents"))
}

/// Checks that files can be created in a directory, or in the existing one in which it would be created.
fn can_write(directory: &Path, what: &str) -> Result<(), StartError> {
    let cannot = |error: &dyn std::fmt::Display| {
        StartError::new(format!("cannot write to the {what} {}: {error}; name another", directory.display()))
    };
    let existing = directory.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let existing = existing.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let probe = existing.join(format!(".tollgate-check-config-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&probe).map_err(|error| cannot(&error))?;
    std::fs::remove_file(&probe).map_err(|error| cannot(&error))
}

/// A line of /proc/meminfo, in bytes.
fn memory(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1_024)
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
