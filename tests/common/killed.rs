//! A child that reports until it is killed.

use super::child;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Runs the test of this name as a child, kills it `delay` after it has
/// reported `lines` lines, and returns all that it reported.
pub(crate) fn reports(test: &str, path: &Path, lines: u64, delay: Duration) -> String {
    let mut command = child::command(test, path);
    let mut writer = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("this program again");
    let mut pipe = BufReader::new(writer.stderr.take().expect("piped above"));
    let mut report = String::new();
    for _ in 0..lines {
        pipe.read_line(&mut report).expect("a pipe");
    }
    std::thread::sleep(delay);
    writer.kill().expect("a child that has not been waited for");
    assert_eq!(writer.wait().expect("a child").signal(), Some(libc::SIGKILL), "it ended on its own: {report}");
    // Ends with the pipe, whose other end is closed.
    while pipe.read_line(&mut report).expect("a pipe") > 0 {}
    report
}
