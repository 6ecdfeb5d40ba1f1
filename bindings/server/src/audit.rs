//! The audit log: who changed what, from what, to what, and when.
//!
//! The last changes are kept in memory, for the admin API. With a file in the settings
//! each is a line of JSON there, on disk before the change is answered. The file is opened
//! again when it was moved away.

use crate::access::LogFile;
use crate::error::StartError;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::MutexGuard as Turn;

/// How many changes are kept in memory.
const KEPT: usize = 1_000;

/// The log.
pub(crate) struct Audit {
    /// Taken for a change, so that what was before and what is after it are of one change.
    turn: tokio::sync::Mutex<()>,
    kept: Mutex<Kept>,
}

struct Kept {
    entries: VecDeque<Value>,
    file: Option<LogFile>,
}

/// A change that was made.
pub(crate) struct Entry {
    /// By what its client has shown who it is.
    pub(crate) who: &'static str,
    pub(crate) client: Option<String>,
    /// The method and the path, or the signal.
    pub(crate) what: String,
    pub(crate) agent: Option<Value>,
    pub(crate) from: Value,
    pub(crate) to: Value,
}

impl Audit {
    /// Opens the file, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn start(path: Option<&Path>) -> Result<Self, StartError> {
        let open = |path: &Path| {
            LogFile::open(path).map_err(|error| StartError::new(format!("cannot write {}: {error}", path.display())))
        };
        let file = path.map(open).transpose()?;
        Ok(Self { turn: tokio::sync::Mutex::default(), kept: Mutex::new(Kept { entries: VecDeque::new(), file }) })
    }

    /// Waits until no other change is under way.
    pub(crate) async fn turn(&self) -> Turn<'_, ()> {
        self.turn.lock().await
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change. Blocks until it is on disk; returns false if it cannot be written there.
    pub(crate) fn record(&self, entry: Entry) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut members = Map::new();
        members.insert("at".into(), (now.as_millis() as f64 / 1e3).into());
        members.insert("who".into(), entry.who.into());
        members.insert("client".into(), entry.client.into());
        members.insert("what".into(), entry.what.into());
        if let Some(agent) = entry.agent {
            members.insert("agent".into(), agent);
        }
        // A reset changes no limit.
        if entry.from != entry.to {
            members.insert("from".into(), entry.from);
            members.insert("to".into(), entry.to);
        }
        let entry = Value::Object(members);
        let mut kept = self.kept();
        let line = format!("{entry}\n");
        while kept.entries.len() >= KEPT {
            kept.entries.pop_front();
        }
        kept.entries.push_back(entry);
        let Some(file) = &mut kept.file else { return true };
        match file.append(line.as_bytes()).and_then(|()| file.sync()) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "a change is not in the audit log: {}", line.trim_end());
                false
            }
        }
    }

    /// The last changes, the newest first.
    pub(crate) fn entries(&self) -> Vec<Value> {
        self.kept().entries.iter().rev().cloned().collect()
    }
}
