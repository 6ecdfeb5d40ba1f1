//! What a start would come to, found out without one: for `check-config`.
//!
//! It changes nothing and waits for nobody, so it can run beside a server that
//! has the same port and state. What only that server can tell is left to the
//! start: whether the port is free, and what is in the files of its state.

use crate::auth::Keys;
use crate::control;
use crate::error::StartError;
use crate::settings::Settings;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use tollgate::Policy;

/// Tries everything that a start needs: what an operator should know, though it would start.
///
/// # Errors
///
/// Why it would not start.
pub(crate) fn rehearse(policy: &Policy, settings: &Settings) -> Result<Vec<String>, StartError> {
    Keys::new(settings)?;
    match TcpListener::bind(settings.listen) {
        // Perhaps by the server that is to be reloaded.
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            let listen = settings.listen;
            return Err(StartError::new(format!("cannot listen on {listen}: {error}; choose another address")));
        }
        _ => {}
    }
    if let Some(directory) = &settings.state {
        can_write(directory, "state directory")?;
    }
    if let Some(directory) = &settings.audit_directory {
        can_write(directory, "audit directory")?;
    }
    let bytes = control::rehearse(policy, settings)?;
    let free = memory("MemAvailable:").filter(|free| settings.commit_memory && bytes > *free);
    if let Some(free) = free {
        let problem =
            format!("commit_memory takes {} at the start, and {} are free", gigabytes(bytes), gigabytes(free));
        return Err(StartError::new(format!("{problem}; set agents in [server] lower")));
    }
    Ok(too_large(settings.agents, bytes).into_iter().collect())
}

/// What is to be said of a limiter that may take more memory than there is.
pub(crate) fn too_large(agents: u64, bytes: u64) -> Option<String> {
    let there_is = memory("MemTotal:").filter(|there_is| bytes > *there_is)?;
    let (bytes, there_is) = (gigabytes(bytes), gigabytes(there_is));
    Some(format!("{agents} agents take up to {bytes} of memory, and this machine has {there_is}; set agents lower"))
}

/// Whether files can be made in a directory, or in the one in which it would be made.
fn can_write(directory: &Path, what: &str) -> Result<(), StartError> {
    let cannot = |error: &dyn std::fmt::Display| {
        StartError::new(format!("cannot write to the {what} {}: {error}; name another", directory.display()))
    };
    let there = directory.ancestors().find(|path| path.as_os_str().is_empty() || path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let probe = there.join(format!(".tollgate-check-config-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&probe).map_err(|error| cannot(&error))?;
    std::fs::remove_file(&probe).map_err(|error| cannot(&error))
}

/// A line of what the system tells of its memory, in bytes.
fn memory(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1_024)
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
