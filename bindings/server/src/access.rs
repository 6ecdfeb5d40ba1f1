//! The access log: a line of JSON for every request, in a file.
//!
//! A serving thread puts a line into a bounded queue and continues; a thread of the log
//! writes it. A line that finds no room is dropped and counted. The file is opened again
//! when it was moved away or removed, so a program that rotates logs need not signal.

use crate::error::StartError;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How many lines can be queued: some tens of milliseconds of a busy server.
const QUEUE: usize = 4_096;

/// How many bytes are written at once.
const BATCH_BYTES: usize = 64 * 1024;

/// How long shutdown waits for queued lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A request that was answered.
pub(crate) struct Access<'a> {
    pub(crate) client: IpAddr,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) version: http::Version,
    pub(crate) status: u16,
    pub(crate) took: Duration,
}

/// The log.
pub(crate) struct AccessLog {
    queue: SyncSender<String>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    queued: AtomicU64,
    done: AtomicU64,
    dropped: AtomicU64,
    /// The last problem, logged once.
    problem: Mutex<String>,
}

impl AccessLog {
    /// Opens the file, and starts the thread.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn start(path: &Path) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::new(format!("cannot write {}: {error}", path.display()));
        let mut file = LogFile::open(path).map_err(failed)?;
        let (queue, lines) = sync_channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let of_thread = Arc::clone(&counts);
        let write = move || write_all(&mut file, &lines, &of_thread);
        std::thread::Builder::new().name("tollgate-access".to_owned()).spawn(write).map_err(failed)?;
        Ok(Self { queue, counts })
    }

    /// Queues a line about a request.
    pub(crate) fn record(&self, access: &Access<'_>) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let line = json!({
            "at": now.as_millis() as f64 / 1e3,
            "client": access.client.to_string(),
            "method": access.method,
            "path": access.path,
            "version": format!("{:?}", access.version),
            "status": access.status,
            "took_us": u64::try_from(access.took.as_micros()).unwrap_or(u64::MAX),
        });
        self.counts.queued.fetch_add(1, Relaxed);
        if self.queue.try_send(format!("{line}\n")).is_err() {
            self.counts.queued.fetch_sub(1, Relaxed);
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// How many lines were lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Relaxed)
    }

    /// Waits until all lines are written, for at most `FLUSH_TIMEOUT`. Blocks.
    pub(crate) fn flush(&self) {
        let begun = Instant::now();
        // Ends at the timeout.
        while self.counts.done.load(Relaxed) < self.counts.queued.load(Relaxed) && begun.elapsed() < FLUSH_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Writes lines as they come, several at once if they come fast. Ends with the server.
fn write_all(file: &mut LogFile, lines: &Receiver<String>, counts: &Counts) {
    while let Ok(mut batch) = lines.recv() {
        let mut count = 1;
        while batch.len() < BATCH_BYTES
            && let Ok(line) = lines.try_recv()
        {
            batch.push_str(&line);
            count += 1;
        }
        let problem = match file.append(batch.as_bytes()) {
            Ok(()) => String::new(),
            Err(error) => {
                counts.dropped.fetch_add(count, Relaxed);
                error.to_string()
            }
        };
        let mut known = counts.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != problem && !problem.is_empty() {
            tracing::error!(path = %file.path.display(), problem, "the access log is not written; lines are lost");
        }
        *known = problem;
        counts.done.fetch_add(count, Relaxed);
    }
}

/// A file to which lines are appended, wherever its name leads.
pub(crate) struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        // It has the addresses of clients.
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn append(&mut self, lines: &[u8]) -> std::io::Result<()> {
        let (ours, found) = (self.file.metadata()?, std::fs::metadata(&self.path));
        if !found.is_ok_and(|found| (found.dev(), found.ino()) == (ours.dev(), ours.ino())) {
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(lines)
    }

    /// Waits until all of it is on disk.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }
}
