//! curl, a client that nobody here wrote.

use std::process::Command;

/// Runs curl quietly. Returns what it printed, and whether it succeeded.
pub(crate) async fn curl(arguments: &[&str]) -> (String, bool) {
    let mut command = Command::new("curl");
    command.args(["-s", "-S", "--max-time", "60"]).args(arguments);
    // The server's listener runs on this thread.
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("curl runs");
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&printed).into_owned(), output.status.success())
}

/// Status, version of HTTP and body.
pub(crate) async fn fetch(arguments: &[&str]) -> (String, String, String) {
    let (printed, is_success) = curl(&[&["-w", "\n%{http_code} %{http_version}"], arguments].concat()).await;
    assert!(is_success, "{arguments:?}: {printed}");
    let (body, last) = printed.rsplit_once('\n').expect("a last line");
    let (status, version) = last.split_once(' ').expect("two words");
    (status.to_owned(), version.to_owned(), body.to_owned())
}
