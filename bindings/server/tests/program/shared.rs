//! Several servers on one slab: one limiter.

use crate::{Directory, ServerProcess, error, output, tollgate};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ADMIN: &str = "an-admin-token-of-mine";

fn serve(file: &str, slab: &str) -> ServerProcess {
    let mut command = tollgate(&["serve", "--config", file, "--listen", "127.0.0.1:0", "--shared", slab]);
    ServerProcess::start(command.env("TOLLGATE_ADMIN_TOKEN", ADMIN))
}

fn admin(server: &ServerProcess, method: &str, path: &str, body: &str) -> String {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", server.address);
    let length = body.len();
    let head = format!("{head}authorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\n");
    server.send(&format!("{head}content-length: {length}\r\n\r\n{body}"))
}

/// The body of a successful answer.
fn json_of(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

/// How many of these checks are allowed, sent to one server after the other.
fn allowed(servers: &[&ServerProcess], agent: &str, lane: &str, checks: usize) -> usize {
    let body = json!({"agent": agent, "lane": lane}).to_string();
    let answers = servers.iter().cycle().take(checks).map(|server| server.post("/v1/check", &body));
    let is_allowed = |answer: &String| {
        let (yes, no) = (answer.starts_with("HTTP/1.1 200 "), answer.starts_with("HTTP/1.1 429 "));
        assert!(yes || no, "{answer}");
        yes
    };
    answers.filter(is_allowed).count()
}

/// Waits until something is so, and no longer than a minute.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A file whose one lane does not refill during a test.
const SLOW: &str = "[lanes]\napi = \"100/day\"\n[server]\nagents = 1_000\ndrain = \"0s\"\n";

#[test]
fn three_servers_are_one_limiter_and_one_may_be_killed() {
    let (directory, memory) = (Directory::new("three"), Directory::in_memory("three"));
    let (file, slab) = (directory.file("tollgate.toml", SLOW), memory.slab());
    let [first, second, third] = [(); 3].map(|()| serve(&file, &slab));
    let limiter = |server: &ServerProcess| server.greeting.lines().nth(1).unwrap().to_owned();
    assert_eq!(limiter(&first), format!("Limiter:    shared by processes: {slab}.v1, 1 has joined"));
    assert_eq!(limiter(&third), format!("Limiter:    shared by processes: {slab}.v1, 3 have joined"));
    let all = [&first, &second, &third];
    assert_eq!(allowed(&all, "a", "api", 300), 100);
    // An override that is set through one holds for the next check on every other.
    let path = "/api/admin/rate-limits/b";
    json_of(&admin(&second, "PUT", path, r#"{"overrides": {"api": "5/day"}}"#));
    assert_eq!(allowed(&all, "b", "api", 15), 5);
    assert_eq!(json_of(&admin(&third, "GET", path, ""))["overrides"], json!({"api": "5/day"}));
    second.signal(Signal::KILL);
    let others = [&first, &third];
    assert_eq!(allowed(&others, "c", "api", 120), 100);
    assert_eq!(allowed(&others, "a", "api", 4), 0, "what it had counted still counts");
    json_of(&admin(&third, "DELETE", path, ""));
    // The kernel tells when it is gone.
    until("two processes", || {
        admin(&first, "GET", "/metrics", "").lines().any(|line| line == "tollgate_shared_processes 2")
    });
    third.stop();
    first.stop();
}

/// What the command prints about a slab, as JSON.
fn slab_json(slab: &str) -> Value {
    let output = output(&["slab", slab, "--json", "--audit"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_command_slab_prints_who_shares_it() {
    let (directory, memory) = (Directory::new("slab"), Directory::in_memory("slab"));
    let (file, slab) = (directory.file("tollgate.toml", &format!("version = 3\n{SLOW}")), memory.slab());
    let missing = error(&output(&["slab", &slab]));
    assert!(missing.contains(&format!("there is no slab at {slab}.v1; start a process that makes one")), "{missing}");
    let server = serve(&file, &slab);
    assert_eq!(allowed(&[&server], "a", "api", 2), 2);
    let printed = slab_json(&slab);
    let pid = server.child.id();
    for (key, value) in [
        ("path", json!(format!("{slab}.v1"))),
        ("policy_version", json!(3)),
        ("agents", json!(1)),
        ("takeovers", json!(0)),
        ("busy", json!(0)),
        ("detached", json!(false)),
        ("faults", json!([])),
    ] {
        assert_eq!(printed[key], value, "{printed}");
    }
    assert!(
        printed["records"].as_u64() >= Some(1_000) && printed["bytes"].as_u64() > printed["bytes_taken"].as_u64(),
        "{printed}"
    );
    assert_eq!(printed["processes"].as_array().unwrap().len(), 1, "it does not list itself: {printed}");
    assert_eq!(printed["processes"][0]["pid"], pid, "{printed}");
    assert_eq!(printed["processes"][0]["version"], env!("CARGO_PKG_VERSION"), "{printed}");
    // Named by its file, and as text.
    let text = String::from_utf8(output(&["slab", &format!("{slab}.v1"), "--audit"]).stdout).unwrap();
    for line in ["policy version  3", "agents          1, in ", "detached        no", "The audit found no fault."] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.lines().any(|line| line.starts_with(&format!("{pid} ")) && line.contains(" UTC  ")), "{text}");
    server.stop();
    assert_eq!(slab_json(&slab)["processes"], json!([]));
    let text = String::from_utf8(output(&["slab", &slab]).stdout).unwrap();
    assert!(text.ends_with("No process uses it.\n"), "{text}");
    let foreign = memory.path().join("other.v1");
    std::fs::write(&foreign, "not a slab").unwrap();
    let foreign = error(&output(&["slab", memory.path().join("other").to_str().unwrap()]));
    assert!(foreign.contains("is not a slab; use another path"), "{foreign}");
}

#[test]
fn what_cannot_be_shared_is_said_at_the_start() {
    let (directory, memory) = (Directory::new("not-shared"), Directory::in_memory("not-shared"));
    let config = format!("[lanes]\napi = \"1/s\"\n[shared]\nslab = \"{}/none/slab\"\n", memory.path().display());
    let file = directory.file("tollgate.toml", &config);
    let checked = error(&output(&["check-config", &file]));
    assert!(checked.contains("none does not exist; create it first"), "{checked}");
    assert_eq!(output(&["serve", "--config", &file, "--listen", "0"]).status.code(), Some(1));
    let config = format!("[lanes]\napi = \"1/s\"\n[shared]\nslab = \"{}\"\nmode = \"0660\"\n", memory.slab());
    let file = directory.file("tollgate.toml", &config);
    assert!(output(&["check-config", &file]).status.success());
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0, "it makes no slab");
}

fn with_state(name: &str, lanes: &str) -> (Directory, String) {
    let directory = Directory::new(name);
    let text = format!("{lanes}[server]\nagents = 1_000\ndrain = \"0s\"\nstate = \"state\"\n");
    let file = directory.file("tollgate.toml", &text);
    (directory, file)
}

#[test]
fn when_the_server_that_keeps_the_files_ends_another_takes_over() {
    let memory = Directory::in_memory("take-over");
    let (directory, file) = with_state("take-over", "[lanes]\napi = \"100/day\"\n");
    let assignments = directory.path().join("state/assignments.json");
    let saved = || std::fs::read_to_string(&assignments).unwrap_or_default();
    let first = serve(&file, &memory.slab());
    let second = serve(&file, &memory.slab());
    json_of(&admin(&first, "PUT", "/api/admin/rate-limits/a", r#"{"overrides": {"api": "1/day"}}"#));
    assert!(saved().contains("1/day"), "{}", saved());
    // In force for both at once, though the second does not keep the file.
    json_of(&admin(&second, "PUT", "/api/admin/rate-limits/a", r#"{"overrides": {"api": "7/day"}}"#));
    json_of(&admin(&second, "POST", "/api/admin/reload", ""));
    assert_eq!(allowed(&[&first, &second], "a", "api", 20), 7);
    first.signal(Signal::KILL);
    until("the second keeps the file", || saved().contains("7/day"));
    // A change that is answered is on the disk again.
    until("changes are saved", || {
        json_of(&admin(&second, "PUT", "/api/admin/rate-limits/b", r#"{"overrides": {"api": "9/day"}}"#));
        saved().contains("9/day")
    });
    assert_eq!(json_of(&admin(&second, "GET", "/api/admin/rate-limits/a", ""))["overrides"], json!({"api": "7/day"}));
    let log = second.stop();
    for line in [
        "another process keeps the files of the state directory",
        "this process keeps the files of the state directory now",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
}

#[test]
fn defaults_and_reloads_hold_for_all_servers() {
    let memory = Directory::in_memory("defaults");
    let (directory, file) = with_state("defaults", "[lanes]\napi = \"100/day\"\nother = \"9/day\"\n");
    let servers = [(); 2].map(|()| serve(&file, &memory.slab()));
    let limits = |server: &ServerProcess| json_of(&admin(server, "GET", "/api/admin/rate-limits/defaults", ""));
    json_of(&admin(&servers[0], "PUT", "/api/admin/rate-limits/defaults", r#"{"api": "5/day"}"#));
    json_of(&admin(&servers[1], "PUT", "/api/admin/rate-limits/defaults", r#"{"other": "4/day"}"#));
    let both = json!({"api": "5/day", "other": "4/day"});
    for server in &servers {
        assert_eq!((&limits(server)["defaults"], &limits(server)["defaults_changed"]), (&both, &both));
    }
    // Each reads the same file again, one after the other.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("9/day", "8/day")).unwrap();
    json_of(&admin(&servers[1], "DELETE", "/api/admin/rate-limits/defaults", ""));
    for server in &servers {
        json_of(&admin(server, "POST", "/api/admin/reload", ""));
        assert_eq!(limits(server)["defaults"], json!({"api": "100/day", "other": "8/day"}));
    }
    // A newer policy is replaced through a server that has it, and through no other.
    let newer = text.replace("9/day", "7/day");
    let newer = serve(&directory.file("newer.toml", &format!("version = 2\n{newer}")), &memory.slab());
    assert_eq!(limits(&servers[0])["defaults"]["other"], "7/day");
    let refused = admin(&servers[0], "PUT", "/api/admin/rate-limits/defaults", r#"{"api": "1/day"}"#);
    assert!(refused.starts_with("HTTP/1.1 409 ") && refused.contains("version 2"), "{refused}");
    json_of(&admin(&newer, "PUT", "/api/admin/rate-limits/defaults", r#"{"api": "1/day"}"#));
    assert_eq!(limits(&servers[1])["defaults"], json!({"api": "1/day", "other": "7/day"}));
}

/// A server that is stopped while it changes the defaults keeps the others from it.
#[test]
fn what_another_process_locks_is_answered_503_after_a_while() {
    let memory = Directory::in_memory("locked");
    let (directory, file) = with_state("locked", "[lanes]\napi = \"100/day\"\n");
    let server = serve(&file, &memory.slab());
    let lock = std::fs::File::create(directory.path().join("state/defaults.json.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (path, body) = ("/api/admin/rate-limits/defaults", r#"{"api": "1/day"}"#);
    for answer in [admin(&server, "PUT", path, body), admin(&server, "POST", "/api/admin/reload", "")] {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nretry-after: 1"), "{answer}");
        assert!(head.contains("\r\ncontent-type: application/problem+json"), "{answer}");
        assert!(body.contains("another server is changing the defaults; try again"), "{answer}");
    }
    assert_eq!(allowed(&[&server], "a", "api", 3), 3, "checks do not wait");
    let metrics = admin(&server, "GET", "/metrics", "");
    assert!(metrics.contains("tollgate_responses_total{status=\"503\",reason=\"busy\"} 2\n"), "{metrics}");
    drop(lock);
    json_of(&admin(&server, "PUT", path, body));
    server.stop();
}

/// Sends batches of new agents until it is stopped. The server may be stopped too, or killed.
fn flood(address: SocketAddr, is_over: &AtomicBool) {
    for batch in 0.. {
        if is_over.load(Relaxed) {
            break;
        }
        let Ok(mut stream) = TcpStream::connect(address) else { break };
        let agents = (0..5_000).map(|number| json!({"agent": format!("flood-{batch}-{number}"), "lane": "api"}));
        let body = json!({"requests": agents.collect::<Vec<_>>()}).to_string();
        let head = format!("POST /v1/check/many HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        let sent = stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        _ = sent.and_then(|()| stream.read_to_end(&mut Vec::new()));
    }
}

/// A server is stopped while it gives a new agent a record, which takes a few tries.
#[test]
fn new_agents_are_answered_503_while_a_process_is_stopped_and_others_are_not() {
    let (directory, memory) = (Directory::new("stopped"), Directory::in_memory("stopped"));
    let (file, slab) = (directory.file("tollgate.toml", SLOW), memory.slab());
    let [stopped, server] = [(); 2].map(|()| serve(&file, &slab));
    // It has used most, so no newcomer is given its record.
    assert_eq!(allowed(&[&server], "known", "api", 50), 50);
    let is_over = Arc::new(AtomicBool::new(false));
    let (address, until_over) = (stopped.address, Arc::clone(&is_over));
    // Ends when the server is killed, if not before.
    std::thread::spawn(move || flood(address, &until_over));
    // The first that is answered so, by a new id and its try.
    let busy = (0..1_000).find_map(|turn| {
        let agents: Vec<_> = (0..100).map(|number| format!("new-{turn}-{number}")).collect();
        let requests: Vec<_> = agents.iter().map(|agent| json!({"agent": agent, "lane": "api"})).collect();
        stopped.signal(Signal::STOP);
        let answer = json_of(&server.post("/v1/check/many", &json!({"requests": requests}).to_string()));
        let found = answer["verdicts"].as_array().unwrap().iter().position(|one| one["verdict"] == "error");
        if let Some(found) = found {
            let verdict = &answer["verdicts"][found];
            assert!(verdict["error"].as_str().unwrap().contains("try again") && verdict["allowed"] == false);
            return Some(agents[found].clone());
        }
        stopped.signal(Signal::CONT);
        None
    });
    let agent = busy.expect("a lock that a stopped process holds");
    let check = json!({"agent": agent, "lane": "api"});
    for (path, body) in [
        ("/v1/check", check.clone()),
        ("/v1/check/all", json!({"requests": [check]})),
        ("/v1/reserve", json!({"agent": agent, "lane": "api", "estimate": 2})),
    ] {
        let answer = server.post(path, &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{path}: {answer}");
    }
    assert_eq!(allowed(&[&server], "known", "api", 10), 10, "it has a record");
    let of_agent = format!("/api/admin/rate-limits/{agent}");
    let change = admin(&server, "PUT", &of_agent, r#"{"overrides": {"api": "1/day"}}"#);
    assert!(change.starts_with("HTTP/1.1 503 ") && change.contains("\r\nretry-after: 1\r\n"), "{change}");
    let audit = output(&["slab", &slab, "--audit"]);
    let printed = String::from_utf8(audit.stdout).unwrap();
    assert_eq!(audit.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("fault: ") && printed.contains(" is locked by a process that does not go on"),
        "{printed}"
    );
    let metrics = admin(&server, "GET", "/metrics", "");
    assert!(
        metrics.lines().any(|line| line == "tollgate_responses_total{status=\"503\",reason=\"busy\"} 4"),
        "{metrics}"
    );
    // Killed, it stands in nobody's way, and what the change had begun is completed.
    is_over.store(true, Relaxed);
    stopped.signal(Signal::KILL);
    until("its lock is taken over", || server.post("/v1/check", &check.to_string()).starts_with("HTTP/1.1 200 "));
    json_of(&admin(&server, "PUT", &of_agent, r#"{"overrides": {"api": "1/day"}}"#));
    assert!(slab_json(&slab)["takeovers"].as_u64() >= Some(1));
    server.stop();
}

/// What a slab had counted was charged again when a server loaded the file of used budgets.
#[test]
fn budgets_are_charged_once_though_a_slab_outlives_its_servers() {
    let memory = Directory::in_memory("budgets");
    let (_directory, file) = with_state("budgets", "[lanes]\nllm = \"budget 100/month\"\n");
    let left = |server: &ServerProcess| {
        let answer =
            server.send(&format!("GET /v1/agents/a HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address));
        json_of(&answer)["lanes"][0]["remaining"].clone()
    };
    let first = serve(&file, &memory.slab());
    assert_eq!(allowed(&[&first], "a", "llm", 10), 10);
    assert_eq!(left(&first), 90);
    first.stop();
    let second = serve(&file, &memory.slab());
    assert_eq!(left(&second), 90);
}
