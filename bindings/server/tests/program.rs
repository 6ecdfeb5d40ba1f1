//! The program as an operator sees it: what it prints, and how it stops.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic names the line that failed")]

#[path = "program/decisions.rs"]
mod decisions;
#[path = "program/deploy.rs"]
mod deploy;
#[path = "common/directory.rs"]
mod directory;
#[path = "program/envoy.rs"]
mod envoy;
#[path = "program/gateways.rs"]
mod gateways;
#[path = "program/log.rs"]
mod log;
#[path = "program/machines.rs"]
mod machines;
#[path = "program/manual.rs"]
mod manual;
#[path = "program/printed.rs"]
mod printed;
#[path = "program/schema.rs"]
mod schema;
#[cfg(target_os = "linux")]
#[path = "program/shared.rs"]
mod shared;
#[path = "program/state.rs"]
mod state;
#[path = "program/stop.rs"]
mod stop;
#[path = "../../redis/tests/server/mod.rs"]
mod store;
#[path = "../../../tests/common/tools.rs"]
mod tools;

use directory::Directory;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The program, without the variables of our environment that it reads.
fn tollgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).stdin(Stdio::null());
    for name in [
        "TOLLGATE_ADMIN_TOKEN",
        "TOLLGATE_CHECK_TOKEN",
        "TOLLGATE_CLUSTER_SECRET",
        "TOLLGATE_LOG",
        "CARGO_MANIFEST_DIR",
    ] {
        command.env_remove(name);
    }
    command
}

fn output(arguments: &[&str]) -> Output {
    tollgate(arguments).output().unwrap()
}

/// The one line of an error; there is no other output.
fn error(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("tollgate: ") && output.stdout.is_empty(), "{text}");
    text
}

/// A running server, with what it has printed.
struct ServerProcess {
    child: Child,
    greeting: String,
    address: SocketAddr,
}

impl ServerProcess {
    fn start(command: &mut Command) -> Self {
        Self::logging_to(Stdio::piped(), command)
    }

    fn logging_to(log: impl Into<Stdio>, command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("serve --config tollgate.toml") {
            assert_ne!(out.read_line(&mut greeting).unwrap(), 0, "it stopped: {greeting}");
        }
        let address = greeting.split("http://").nth(1).unwrap().split(": ").next().unwrap().parse().unwrap();
        // Nothing reads what is printed later.
        child.stdout = Some(out.into_inner());
        Self { child, greeting, address }
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // A server that hangs is a failure, not a test that runs for ever.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        self.send(&format!("{head}content-length: {length}\r\n\r\n{body}"))
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it like a service manager does, and returns its log if it succeeded.
    fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It is still there only after a failure.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn without_arguments_it_prints_a_command_that_gets_a_429() {
    let server = ServerProcess::start(&mut tollgate(&["--listen", "127.0.0.1:0"]));
    let greeting = &server.greeting;
    let base = format!("http://{}", server.address);
    assert!(greeting.contains("the preset \"standard\""), "{greeting}");
    let token = greeting.split("#token=").nth(1).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(token.len(), 32, "{greeting}");
    let line = greeting.lines().find(|line| line.contains("curl -i")).unwrap();
    assert!(line.ends_with(&format!("{base}/v1/check")), "{line}");
    let body = line.split('\'').nth(1).unwrap();
    let calls: usize = greeting.split("Call it ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let answers: Vec<_> = (0..calls).map(|_| server.post("/v1/check", body)).collect();
    assert!(answers[..calls - 1].iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{answers:?}");
    assert!(answers[calls - 1].starts_with("HTTP/1.1 429 "), "{answers:?}");
    let get = |header: &str| {
        server.send(&format!(
            "GET /v1/agents/me HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{header}\r\n",
            server.address
        ))
    };
    assert!(get(&format!("authorization: Bearer {token}\r\n")).contains("\"violations\""));
    assert!(!get("").contains("\"violations\""));
    let log = server.stop();
    assert!(!log.contains(&token), "the token is printed once, and not in the log");
}

/// Ten thousand idle connections, half of them after a first request. Each process
/// has one end of each.
#[test]
fn ten_thousand_idle_connections_delay_no_other_client() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const IDLE: usize = 10_000;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    assert!(maximum.is_none_or(|files| files > 10_500), "raise the limit on open files: ulimit -Hn 20000");
    let directory = Directory::new("idle");
    let file = directory.file("tollgate.toml", "preset = \"standard\"\n[server]\nmax_connections = 10_200\n");
    let server = ServerProcess::start(&mut tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]));
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        if number.is_multiple_of(2) {
            stream.write_all(request.as_bytes()).unwrap();
        }
        stream
    };
    let mut idle: Vec<_> = (0..IDLE).map(connect).collect();
    for _ in 0..5 {
        assert!(server.post("/v1/check", r#"{"agent": "a", "lane": "http/heavy"}"#).starts_with("HTTP/1.1 200 "));
    }
    // All of them are still there.
    for stream in idle.iter_mut().step_by(IDLE / 20) {
        stream.write_all(request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
    }
    server.stop();
}

/// The first denial of an agent is logged, and those that follow are counted.
#[test]
fn a_flood_of_denials_does_not_flood_the_log() {
    let directory = Directory::new("flood");
    let file = directory.file("tollgate.toml", "preset = \"hub\"\n");
    let server = ServerProcess::start(&mut tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]));
    for agent in ["one", "two\\u001b[31m"] {
        for _ in 0..40 {
            server.post("/v1/check", &format!(r#"{{"agent": "{agent}", "lane": "http/heavy"}}"#));
        }
    }
    let log = server.stop();
    let hits: Vec<_> = log.lines().filter(|line| line.contains("Rate limit hit by agent")).collect();
    assert_eq!(hits.len(), 2, "{log}");
    assert!(hits[0].contains("Rate limit hit by agent one"), "{log}");
    assert!(!log.contains('\u{1b}'), "an id cannot write to a terminal: {log}");
    assert_eq!(log.lines().filter(|line| line.contains("sustained abuse")).count(), 2, "{log}");
    assert!(log.lines().count() <= 8, "{log}");
}

#[test]
fn two_programs_cannot_share_a_port() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = error(&output(&["--listen", &address]));
    assert!(error.contains(&format!("cannot listen on {address}")) && error.contains("--listen"), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn a_failure_to_start_is_one_line_and_a_status() {
    let directory = Directory::new("failures");
    let no_file = directory.path().join("none.toml");
    let is_a_file = directory.file("a-file", "");
    let broken = directory.file("broken.toml", "preset = \"hub\"\n[lanes]\n\"ws/lihgt\" = \"600/min\"\n");
    let broken_server = directory.file("server.toml", "preset = \"hub\"\n[server]\nlisten = 80\n");
    let short = directory.file("short.toml", "preset = \"hub\"\n[server]\nadmin_token = \"short\"\n");
    for (arguments, text) in [
        (vec!["serve", "--config", no_file.to_str().unwrap()], "tollgate init"),
        (vec!["serve", "--config", &broken], "did you mean \"ws/light\"?"),
        (vec!["serve", "--config", &broken_server], "line 3, column 10: server.listen"),
        (vec!["serve", "--config", &short], "a token of 5 bytes"),
        (vec!["--preset", "hubs"], "did you mean \"hub\"?"),
        (vec!["--listen", "0.0.0.0:0"], "TOLLGATE_ADMIN_TOKEN"),
        // A file instead of a directory, which not even root can use.
        (vec!["--listen", "127.0.0.1:0", "--state", &is_a_file], "cannot create the state directory"),
        (vec!["check-config", &broken], "line 3, column 1"),
        (vec!["init", &is_a_file], "it was not changed"),
    ] {
        let error = error(&output(&arguments));
        assert!(error.contains(text), "{arguments:?}: {error}");
    }
    let bad_token = tollgate(&["--listen", "127.0.0.1:0"]).env("TOLLGATE_ADMIN_TOKEN", "short").output().unwrap();
    assert!(error(&bad_token).contains("TOLLGATE_ADMIN_TOKEN: a token of 5 bytes"));
    let usage = output(&["--port", "80"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8(usage.stderr).unwrap().contains("Usage: tollgate"));
}

#[test]
fn init_writes_a_file_that_can_be_served_and_reloaded() {
    let directory = Directory::new("init");
    let file = directory.path().join("tollgate.toml");
    let path = file.to_str().unwrap();
    let written = output(&["init", path]);
    assert!(written.status.success() && String::from_utf8(written.stdout).unwrap().contains("check-config"));
    let checked = output(&["check-config", path]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(
        checked.status.success()
            && text.contains("is valid, and can be served")
            && text.contains("http/heavy  10/minute burst 5"),
        "{text}"
    );

    let mut server = ServerProcess::start(&mut tollgate(&["serve", "--config", path, "--listen", "127.0.0.1:0"]));
    let body = r#"{"agent": "a", "lane": "http/heavy"}"#;
    assert!(server.post("/v1/check", body).contains("\"limit\":5"));
    // An invalid policy is logged, and the old one stays in force.
    let mut log = BufReader::new(server.child.stderr.take().unwrap());
    let mut until = |text: &str| {
        let mut lines = String::new();
        while !lines.contains(text) {
            assert_ne!(log.read_line(&mut lines).unwrap(), 0, "no {text:?} in {lines}");
        }
        lines
    };
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replace("[lanes]", "[lanes]\n\"http/heavy\" = \"0/min\"")).unwrap();
    server.signal(rustix::process::Signal::HUP);
    let lines = until("old one stays in force");
    assert!(lines.contains("a rate or burst of 0"), "{lines}");
    assert!(server.post("/v1/check", body).contains("\"limit\":5"));
    std::fs::write(&file, good.replace("[lanes]", "[lanes]\n\"http/heavy\" = \"7/min\"")).unwrap();
    server.signal(rustix::process::Signal::HUP);
    until("in force");
    assert!(server.post("/v1/check", body).contains("\"limit\":7"));
    server.child.stderr = Some(log.into_inner());
    server.stop();
    assert!(directory.path().join("tollgate-state/assignments.json.lock").exists(), "the state is beside the file");
}

/// The resident memory of a running server: `VmRSS` now, `VmHWM` at its peak.
#[cfg(target_os = "linux")]
fn resident_bytes(server: &ServerProcess, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(":")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// An invalid body of a megabyte used to become a value of up to 90 MB, only to find
/// out what was wrong with it.
#[cfg(target_os = "linux")]
#[test]
fn a_large_body_with_a_mistake_takes_little_memory() {
    const BYTES: usize = 1_000_000;
    let directory = Directory::new("mistake");
    let path = directory.file("tollgate.toml", "[lanes]\napi = \"1/min\"\n");
    let server = ServerProcess::start(&mut tollgate(&["serve", "--config", &path, "--listen", "127.0.0.1:0"]));
    let before = resident_bytes(&server, "VmHWM");
    let fill = |start: &str, unit: &str, end: &str| format!("{start}{}{end}", unit.repeat(BYTES / unit.len()));
    for (body, text) in [
        (
            fill(r#"{"requests": [{"agent": "a", "lane": "api"}, {"agent": "a", "lane": ["#, "0,", "0]}]}"),
            "requests[1].lane",
        ),
        (
            fill(r#"{"requests": [{"agent": "a", "lane": {"a": {"a": 0"#, r#","a":{"a":{}}"#, "}}}]}"),
            "requests[0].lane",
        ),
        (fill(r#"{"requests": [{"agent": {"a": 0"#, r#","a":0"#, "}}]}"), "requests[0].agent"),
        (fill(r#"{"requests": [{"agent": "a", "more": ["#, "[],", "0]}]}"), "requests[0].more"),
        (fill(r#"{"requests": ["#, "0,", "0]}"), "requests[0]"),
        (fill(r#"{"requests": [{"agent": "a", "lane": "api"}], "requests": ["#, "{},", "{}]}"), "twice"),
    ] {
        let answer = server.post("/v1/check/many", &body);
        assert!(answer.contains(text), "{text}: {answer}");
        let grown = resident_bytes(&server, "VmHWM") - before;
        assert!(grown < 15_000_000, "{text}: {grown} bytes for a body of {BYTES}");
    }
    server.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_committed_at_the_start_if_the_file_requests_it() {
    let directory = Directory::new("memory");
    let resident = [false, true].map(|commit| {
        let text = format!("[server]\nprefault = {commit}\n[lanes]\napi = \"1/min\"\n");
        let path = directory.file("tollgate.toml", &text);
        let server = ServerProcess::start(&mut tollgate(&["serve", "--config", &path, "--listen", "127.0.0.1:0"]));
        let resident = resident_bytes(&server, "VmRSS");
        let answer = server.post("/v1/check", r#"{"agent": "a", "lane": "api"}"#);
        assert!(answer.contains("\"remaining\":0"), "{answer}");
        server.stop();
        resident
    });
    // A record of one lane has 32 bytes, and there are more than a million records.
    assert!(resident[1] > resident[0] + 32_000_000, "{resident:?} bytes, without and with it");
}

#[test]
fn used_budgets_survive_a_restart() {
    let directory = Directory::new("budgets");
    // A month, so that midnight does not pass between the two runs.
    let path =
        directory.file("tollgate.toml", "[server]\nstate = \"tollgate-state\"\n[lanes]\nllm = \"budget 1000/month\"\n");
    let body = r#"{"agent": "a", "lane": "llm", "cost": 300}"#;
    for remaining in [700, 400] {
        let server = ServerProcess::start(&mut tollgate(&["serve", "--config", &path, "--listen", "127.0.0.1:0"]));
        let answer = server.post("/v1/check", body);
        assert!(answer.contains(&format!("\"remaining\":{remaining}")), "{answer}");
        server.stop();
    }
    // An invalid file is reported, and not overwritten.
    let file = directory.path().join("tollgate-state/budgets.json");
    std::fs::write(&file, "{").unwrap();
    let refused = error(&output(&["serve", "--config", &path, "--listen", "127.0.0.1:0"]));
    assert!(refused.contains("budgets.json:1:1: the file is cut off"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{");
}

#[test]
fn explain_reads_from_the_running_server() {
    let token = "an-admin-token-of-mine";
    let mut command = tollgate(&["--listen", "127.0.0.1:0"]);
    let server = ServerProcess::start(command.env("TOLLGATE_ADMIN_TOKEN", token));
    assert!(!server.greeting.contains(token), "a configured token is not printed");
    server.post("/v1/check", r#"{"agent": "a b", "lane": "http/heavy", "cost": 2}"#);
    let address = server.address.to_string();
    let explained =
        tollgate(&["explain", "a b", "--server", &address]).env("TOLLGATE_ADMIN_TOKEN", token).output().unwrap();
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(text.contains("http/heavy  10/minute burst 5    3 of 5"), "{text}");
    assert!(text.contains("plan: default") && text.contains("not rate limited"), "{text}");
    let open = String::from_utf8(output(&["explain", "a b", "--server", &address]).stdout).unwrap();
    assert!(open.contains("3 of 5") && open.contains("Set TOLLGATE_ADMIN_TOKEN"), "{open}");
    server.stop();
    assert!(error(&output(&["explain", "a", "--server", &address])).contains("is it running?"));
}

#[test]
fn the_demo_has_one_abusive_agent() {
    let demo = output(&["demo", "--listen", "127.0.0.1:0", "--preset", "hub", "--agents", "2", "--seconds", "4"]);
    let text = String::from_utf8(demo.stdout).unwrap();
    assert!(demo.status.success(), "{text}");
    let denied = |agent: &str| -> u64 {
        let line = text.lines().rfind(|line| line.split_whitespace().next() == Some(agent)).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    assert_eq!((denied("agent-1"), denied("agent-2")), (0, 0), "{text}");
    assert!(denied("abusive") > 0, "{text}");
}

#[test]
fn help_is_a_manual() {
    let help = String::from_utf8(output(&["--help"]).stdout).unwrap();
    for text in
        ["tollgate init", "TOLLGATE_ADMIN_TOKEN", "SIGHUP", "serve", "check-config", "explain", "demo", "--listen"]
    {
        assert!(help.contains(text), "{text}: {help}");
    }
    assert!(String::from_utf8(output(&["--version"]).stdout).unwrap().starts_with("tollgate 0."));
}
