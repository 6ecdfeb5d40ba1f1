//! What survives, and what happens when it cannot be saved.

use crate::{Directory, ServerProcess, error, output, tollgate};
use std::process::Command;

const ADMIN: &str = "an-admin-token-of-mine";

fn admin(server: &ServerProcess, method: &str, path: &str, body: &str) -> String {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", server.address);
    let length = body.len();
    let head = format!("{head}authorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\n");
    server.send(&format!("{head}content-length: {length}\r\n\r\n{body}"))
}

fn serve(file: &str) -> ServerProcess {
    let mut command = tollgate(&["serve", "--config", file, "--listen", "127.0.0.1:0"]);
    ServerProcess::start(command.env("TOLLGATE_ADMIN_TOKEN", ADMIN))
}

/// A change that could not be saved used to be logged as made, and no metric counted it.
#[test]
fn a_change_that_cannot_be_saved_is_counted_and_not_logged_as_made() {
    let directory = Directory::new("not-saved");
    let file = directory.file("tollgate.toml", "[server]\nstate = \"state\"\n[lanes]\napi = \"5/min\"\n");
    let server = serve(&file);
    let allowlist = "/api/admin/rate-limits/allowlist";
    assert!(admin(&server, "POST", allowlist, r#"{"agent": "kept"}"#).starts_with("HTTP/1.1 200 "));
    std::fs::remove_dir_all(directory.path().join("state")).unwrap();
    assert!(admin(&server, "POST", allowlist, r#"{"agent": "refused"}"#).starts_with("HTTP/1.1 500 "));
    let defaults = admin(&server, "PUT", "/api/admin/rate-limits/defaults", r#"{"api": "6/min"}"#);
    assert!(defaults.starts_with("HTTP/1.1 500 "), "{defaults}");
    let metrics = admin(&server, "GET", "/metrics", "");
    for what in ["assignments", "defaults"] {
        assert!(metrics.contains(&format!("tollgate_save_failures_total{{what=\"{what}\"}} 1\n")), "{metrics}");
    }
    let log = server.stop();
    let of = |agent: &str| log.lines().filter(|line| line.contains(&format!("agent={agent} "))).count();
    assert_eq!((of("kept"), of("refused")), (1, 0), "{log}");
}

/// Changes are locked while the policy is read. A file that nobody ever writes to used
/// to block every change after it.
#[test]
fn a_policy_file_that_blocks_does_not_block_changes() {
    let directory = Directory::new("fifo");
    let file = directory.file("tollgate.toml", "[lanes]\napi = \"5/min\"\n");
    let server = serve(&file);
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let reload = admin(&server, "POST", "/api/admin/reload", "");
    assert!(reload.starts_with("HTTP/1.1 422 ") && reload.contains("not a regular file"), "{reload}");
    assert!(admin(&server, "GET", "/api/admin/rate-limits", "").starts_with("HTTP/1.1 200 "));
    server.stop();
    assert!(error(&output(&["serve", "--config", &file])).contains("it is not a regular file; name a file"));
    let device =
        directory.file("device.toml", "[server]\nadmin_token_file = \"/dev/zero\"\n[lanes]\napi = \"1/min\"\n");
    assert!(error(&output(&["check-config", &device])).contains("it is not a regular file"));
}
