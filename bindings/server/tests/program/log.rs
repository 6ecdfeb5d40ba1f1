//! The log never stands in the way, whatever becomes of what is written to it.

use crate::{Directory, Running, error, tollgate};
use std::fs::OpenOptions;
use std::process::Stdio;

/// A server on which every check is denied, so that every new agent is a line.
fn server(directory: &Directory, log: impl Into<Stdio>) -> Running {
    let file = directory.file("tollgate.toml", "[lanes]\napi = \"deny\"\n");
    Running::logging_to(log, &mut tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]))
}

fn dropped(server: &Running) -> u64 {
    let page = server.send(&format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address));
    let sample = page.lines().find_map(|line| line.strip_prefix("tollgate_log_lines_dropped_total "));
    sample.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

/// The first denial of a new agent is logged, which used to panic the thread
/// that answered it: the client got an empty reply, and SIGTERM ended in 101.
#[test]
fn a_log_on_a_full_disk_loses_no_answer() {
    let directory = Directory::new("log-full");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let server = server(&directory, full);
    for agent in ["a", "b"] {
        let answer = server.post("/v1/check", &format!(r#"{{"agent": "{agent}"}}"#));
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    }
    // The lines are lost when their turn comes, not when they are logged.
    while dropped(&server) < 2 {
        std::thread::yield_now();
    }
    server.end();
}

#[test]
fn a_log_that_nobody_can_read_loses_no_answer() {
    let directory = Directory::new("log-closed");
    let mut server = server(&directory, Stdio::piped());
    drop(server.child.stderr.take());
    for agent in ["a", "b"] {
        let answer = server.post("/v1/check", &format!(r#"{{"agent": "{agent}"}}"#));
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    }
    server.end();
}

/// A pipe holds 64 KiB. A server that waited for more room would answer nobody.
#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let directory = Directory::new("log-unread");
    let mut server = server(&directory, Stdio::piped());
    let unread = server.child.stderr.take();
    // Long ids, so that few lines fill the pipe.
    let asks: Vec<_> = (0..4_000).map(|agent| format!(r#"{{"agent": "{agent:0>200}"}}"#)).collect();
    for _ in 0..2 {
        let answer = server.post("/v1/check/many", &format!(r#"{{"requests": [{}]}}"#, asks.join(",")));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.100}");
        assert_eq!(answer.matches("\"deny\"").count(), asks.len());
    }
    assert!(dropped(&server) > 0, "more lines than the pipe and the queue hold");
    let answer = server.post("/v1/check", r#"{"agent": "one more"}"#);
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    server.end();
    drop(unread);
}

/// A start that fails says so by its status alone, if it cannot say it in words.
#[test]
fn a_failure_that_cannot_be_told_is_no_panic() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let failed = tollgate(&["serve", "--config", "/nonexistent.toml"]).stderr(full).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn a_level_that_there_is_none_of_is_refused_by_name() {
    for level in ["loud", "info,hyper=debug"] {
        let refused = tollgate(&["--listen", "127.0.0.1:0"]).env("TOLLGATE_LOG", level).output().unwrap();
        let told = error(&refused);
        assert!(told.contains(&format!("TOLLGATE_LOG: there is no level {level:?}")), "{told}");
        assert!(told.contains("off, error, warn, info, debug, trace"), "{told}");
    }
}

#[test]
fn a_level_says_what_is_logged() {
    let directory = Directory::new("log-level");
    let file = directory.file("tollgate.toml", "[lanes]\napi = \"deny\"\n");
    for (level, lines) in [("warn", 0), ("INFO", 2)] {
        let mut command = tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]);
        let server = Running::start(command.env("TOLLGATE_LOG", level));
        server.post("/v1/check", r#"{"agent": "a"}"#);
        let log = server.end();
        assert_eq!(log.lines().count(), lines, "{level}: {log}");
    }
}

/// Whoever reads the log finds the agent and the lane without taking the message apart.
#[test]
fn the_first_denial_is_a_full_line() {
    let body = r#"{"agent": "agent 7\n", "lane": "http/heavy", "cost": 5}"#;
    let lines = |json: &[&str]| {
        let server = Running::start(&mut tollgate(&[&["--listen", "127.0.0.1:0"], json].concat()));
        for _ in 0..3 {
            server.post("/v1/check", body);
        }
        server.end()
    };
    let log = lines(&[]);
    let line = log.lines().find(|line| line.contains("Rate limit hit by agent agent 7\\n")).unwrap();
    assert!(line.starts_with("[INFO] 20"), "{line}");
    let fields = r#" agent=agent 7\n lane="http/heavy" limit="10/minute burst 5" wait_ms="#;
    assert!(line.contains(fields), "{line}");
    assert!(log.lines().all(|line| line.starts_with("[INFO] ")), "{log}");

    let log = lines(&["--log-json"]);
    let line = log.lines().find(|line| line.contains("Rate limit hit")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = &line["fields"];
    assert_eq!(fields["lane"], "http/heavy", "{line}");
    assert_eq!((&fields["kind"], &fields["limit"]), (&"INFO".into(), &"10/minute burst 5".into()), "{line}");
    assert!(fields["wait_ms"].as_u64().unwrap() > 20_000, "{line}");
}

#[test]
fn the_first_bad_request_of_a_kind_is_a_line() {
    let server = Running::start(&mut tollgate(&["--listen", "127.0.0.1:0"]));
    for body in ["{", "{", "[", r#"{"agent": "a", "lane": "no\u001b[31m lane"}"#, r#"{"agent": "a", "cost": -1}"#] {
        assert!(server.post("/v1/check", body).starts_with("HTTP/1.1 400 "), "{body}");
    }
    let log = server.end();
    let lines: Vec<_> = log.lines().filter(|line| line.starts_with("[WARN] ")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("status=400 reason=\"json\" peer=127.0.0.1:"), "{log}");
    assert!(lines[1].contains("reason=\"field\"") && lines[1].contains("there is no lane"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}
