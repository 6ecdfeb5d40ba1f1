//! The log never delays a request, whatever happens to its lines.

use crate::{Directory, ServerProcess, error, tollgate};
use std::fs::OpenOptions;
use std::process::Stdio;

/// A server on which every check is denied, so that every new agent is logged.
fn server(directory: &Directory, log: impl Into<Stdio>) -> ServerProcess {
    let file = directory.file("tollgate.toml", "[lanes]\napi = \"deny\"\n");
    ServerProcess::logging_to(log, &mut tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]))
}

fn dropped(server: &ServerProcess) -> u64 {
    let page = server.send(&format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address));
    let sample = page.lines().find_map(|line| line.strip_prefix("tollgate_log_lines_dropped_total "));
    sample.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

/// The first denial of a new agent is logged, which used to panic the thread that
/// answered it: the client got an empty reply, and SIGTERM ended with status 101.
#[test]
fn a_log_on_a_full_disk_loses_no_response() {
    let directory = Directory::new("log-full");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let server = server(&directory, full);
    for agent in ["a", "b"] {
        let answer = server.post("/v1/check", &format!(r#"{{"agent": "{agent}"}}"#));
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    }
    // Lines are lost when they are written, not when they are queued.
    while dropped(&server) < 2 {
        std::thread::yield_now();
    }
    server.stop();
}

#[test]
fn a_log_that_nobody_can_read_loses_no_response() {
    let directory = Directory::new("log-closed");
    let mut server = server(&directory, Stdio::piped());
    drop(server.child.stderr.take());
    for agent in ["a", "b"] {
        let answer = server.post("/v1/check", &format!(r#"{{"agent": "{agent}"}}"#));
        assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    }
    server.stop();
}

/// A pipe holds 64 KiB. A server that waited for more room would answer no request.
#[test]
fn a_log_that_nobody_reads_delays_no_request() {
    let directory = Directory::new("log-unread");
    let mut server = server(&directory, Stdio::piped());
    let unread = server.child.stderr.take();
    // Long ids, so that few lines fill the pipe.
    let requests: Vec<_> = (0..4_000).map(|agent| format!(r#"{{"agent": "{agent:0>200}"}}"#)).collect();
    for _ in 0..2 {
        let answer = server.post("/v1/check/many", &format!(r#"{{"requests": [{}]}}"#, requests.join(",")));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.100}");
        assert_eq!(answer.matches("\"deny\"").count(), requests.len());
    }
    assert!(dropped(&server) > 0, "more lines than the pipe and the queue can hold");
    let answer = server.post("/v1/check", r#"{"agent": "one more"}"#);
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer:?}");
    server.stop();
    drop(unread);
}

/// If the error cannot be written, a failed start still has its exit status.
#[test]
fn a_failure_that_cannot_be_printed_does_not_panic() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let failed = tollgate(&["serve", "--config", "/nonexistent.toml"]).stderr(full).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
}

#[test]
fn an_unknown_log_level_is_refused_with_the_known_ones() {
    for level in ["loud", "info,hyper=debug"] {
        let refused = tollgate(&["--listen", "127.0.0.1:0"]).env("TOLLGATE_LOG", level).output().unwrap();
        let refused = error(&refused);
        assert!(refused.contains(&format!("TOLLGATE_LOG: there is no level {level:?}")), "{refused}");
        assert!(refused.contains("off, error, warn, info, debug, trace"), "{refused}");
    }
}

#[test]
fn the_level_decides_what_is_logged() {
    let directory = Directory::new("log-level");
    let file = directory.file("tollgate.toml", "[lanes]\napi = \"deny\"\n");
    for (level, lines) in [("warn", 0), ("INFO", 2)] {
        let mut command = tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]);
        let server = ServerProcess::start(command.env("TOLLGATE_LOG", level));
        server.post("/v1/check", r#"{"agent": "a"}"#);
        let log = server.stop();
        assert_eq!(log.lines().count(), lines, "{level}: {log}");
    }
}

/// The agent and the lane are fields of the line, so that nobody has to parse the message.
#[test]
fn the_first_denial_is_a_full_line() {
    let body = r#"{"agent": "agent 7\n", "lane": "http/heavy", "cost": 5}"#;
    let lines = |json: &[&str]| {
        let server = ServerProcess::start(&mut tollgate(&[&["--listen", "127.0.0.1:0"], json].concat()));
        for _ in 0..3 {
            server.post("/v1/check", body);
        }
        server.stop()
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
fn the_first_invalid_request_of_a_kind_is_logged() {
    let server = ServerProcess::start(&mut tollgate(&["--listen", "127.0.0.1:0"]));
    for body in ["{", "{", "[", r#"{"agent": "a", "lane": "no\u001b[31m lane"}"#, r#"{"agent": "a", "cost": -1}"#] {
        assert!(server.post("/v1/check", body).starts_with("HTTP/1.1 400 "), "{body}");
    }
    let log = server.stop();
    let lines: Vec<_> = log.lines().filter(|line| line.starts_with("[WARN] ")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].contains("status=400 reason=\"json\" peer=127.0.0.1:"), "{log}");
    assert!(lines[1].contains("reason=\"field\"") && lines[1].contains("there is no lane"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}
