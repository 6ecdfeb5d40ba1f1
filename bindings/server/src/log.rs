//! The log: lines on standard error, written by their own thread.
//!
//! A serving thread puts a line into a bounded queue and continues. It never waits
//! for the disk or for the reader of a pipe. A line that cannot be written is
//! dropped and counted, and never causes a panic.
//!
//! A line begins with its tag: `[INFO] 2026-01-31T12:00:00.000000Z the message agent=a lane="http/read"`.

use crate::error::StartError;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// How many lines can be queued.
const QUEUE: usize = 512;

/// How many bytes of a line are kept: 2 MiB in all with a full queue.
const LINE_BYTES_MAX: usize = 4_096;

/// How long shutdown waits for queued lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The name of the field that replaces the level in the tag of a line.
pub(crate) const TAG: &str = "kind";

/// Lines that were queued, that were taken from the queue, and that were lost.
static QUEUED: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines were lost: the queue was full, or the write failed.
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Relaxed)
}

/// The log of the process.
pub(crate) struct Log(());

impl Log {
    /// Starts logging at the level in the variable `TOLLGATE_LOG`.
    ///
    /// # Errors
    ///
    /// If there is no such level, or no thread can be started.
    pub(crate) fn start(is_json: bool) -> Result<Self, StartError> {
        let level = level(std::env::var_os("TOLLGATE_LOG"))?;
        let (queue, lines) = sync_channel(QUEUE);
        let write = std::thread::Builder::new().name("tollgate-log".to_owned()).spawn(move || write_all(&lines));
        write.map_err(|error| StartError::new(format!("cannot start the log's thread: {error}")))?;
        let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(Queue(queue)).with_ansi(false);
        // If there is a subscriber already, it stays.
        _ = if is_json { builder.json().with_target(false).try_init() } else { builder.event_format(Text).try_init() };
        Ok(Self(()))
    }

    /// Waits until all lines are written, for at most `FLUSH_TIMEOUT`.
    pub(crate) fn end(self) {
        let begun = Instant::now();
        // Ends at the timeout.
        while WRITTEN.load(Relaxed) < QUEUED.load(Relaxed) && begun.elapsed() < FLUSH_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn level(wanted: Option<std::ffi::OsString>) -> Result<LevelFilter, StartError> {
    const LEVELS: [(&str, LevelFilter); 6] = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else { return Ok(LevelFilter::INFO) };
    let found = LEVELS.iter().find(|(name, _)| wanted.eq_ignore_ascii_case(name));
    found.map(|(_, level)| *level).ok_or_else(|| {
        let names = LEVELS.map(|(name, _)| name).join(", ");
        StartError::new(format!("TOLLGATE_LOG: there is no level {wanted:?}; there are {names}"))
    })
}

/// Writes lines as they come. Ends when nothing can log any more.
fn write_all(lines: &Receiver<Vec<u8>>) {
    let mut reported = 0;
    for line in lines {
        let written = io::stderr().write_all(&line);
        WRITTEN.fetch_add(1, Relaxed);
        match written {
            Err(_) => _ = DROPPED.fetch_add(1, Relaxed),
            // Only after a line was written, so that a broken log is not fed with lines about itself.
            Ok(()) => {
                let lost = dropped() - reported;
                if lost > 0 {
                    reported += lost;
                    tracing::warn!(lost, "lines of this log were lost: they came faster than they could be written");
                }
            }
        }
    }
}

/// The sending end of the queue.
struct Queue(SyncSender<Vec<u8>>);

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// Queues a whole line at once, which is how the subscriber writes.
struct Line<'a>(&'a SyncSender<Vec<u8>>);

impl io::Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut kept = line.get(..LINE_BYTES_MAX).unwrap_or(line).to_vec();
        if kept.len() < line.len() {
            kept.push(b'\n');
        }
        QUEUED.fetch_add(1, Relaxed);
        if self.0.try_send(kept).is_err() {
            QUEUED.fetch_sub(1, Relaxed);
            DROPPED.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The format for people.
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut tag = Tag(None);
        event.record(&mut tag);
        match tag.0 {
            Some(tag) => write!(writer, "[{tag}] ")?,
            None => write!(writer, "[{}] ", event.metadata().level())?,
        }
        SystemTime.format_time(&mut writer)?;
        let mut fields = Fields { writer, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        writeln!(fields.writer)
    }
}

struct Tag(Option<String>);

impl Visit for Tag {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == TAG {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Writes the message and the fields after it, all on one line.
struct Fields<'w> {
    writer: Writer<'w>,
    result: fmt::Result,
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut escaped = Escaped(&mut self.writer);
        let written = match field.name() {
            TAG => Ok(()),
            "message" => write!(escaped, " {value:?}"),
            name => write!(escaped, " {name}={value:?}"),
        };
        self.result = self.result.and(written);
    }
}

/// Escapes everything that ends a line or controls a terminal.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(char::is_control) {
            match piece.chars().next_back().filter(|last| last.is_control()) {
                None => self.0.write_str(piece)?,
                Some(last) => {
                    self.0.write_str(piece.strip_suffix(last).unwrap_or(piece))?;
                    write!(self.0, "{}", last.escape_default())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_levels_are_refused_with_the_known_ones() {
        let read = |text: &str| level(Some(text.into())).map_err(|error| error.to_string());
        assert_eq!(
            (read("warn"), read("DEBUG"), read("")),
            (Ok(LevelFilter::WARN), Ok(LevelFilter::DEBUG), Ok(LevelFilter::INFO))
        );
        let error = "TOLLGATE_LOG: there is no level \"loud\"; there are off, error, warn, info, debug, trace";
        assert_eq!(read("loud"), Err(error.to_owned()));
        assert!(read("info,hyper=debug").is_err());
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut text = String::new();
        let mut writer = Writer::new(&mut text);
        write!(Escaped(&mut writer), "a\nb\u{1b}[31m\u{85}é\t").unwrap();
        assert_eq!(text, "a\\nb\\u{1b}[31m\\u{85}é\\t");
    }
}
