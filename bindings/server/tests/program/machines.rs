//! Several servers on one Redis or Valkey: each stands for a machine, and they have one limit.

use crate::store::{Kind, Server as Store};
use crate::{Directory, ServerProcess, error, output, tollgate, tools};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const ADMIN: &str = "an-admin-token-of-mine";
const SECRET: &str = "0f6f4c0d9d1e7e4a";

/// Two lanes that do not refill during a test, one that machines cannot share, and the store.
pub(crate) fn config(store: &Store, more: &str) -> String {
    format!(
        "[lanes]\napi = \"100/day\"\nlogin = \"5/day\"\nws = \"held 3\"\n[server]\nagents = 1_000\ndrain = \"0s\"\n\
         [cluster]\nredis = \"{}\"\nsecret = \"env:TOLLGATE_CLUSTER_SECRET\"\nnodes = 2\n{more}\n",
        store.url()
    )
}

pub(crate) fn serve(file: &str) -> ServerProcess {
    let mut command = tollgate(&["serve", "--config", file, "--listen", "127.0.0.1:0"]);
    ServerProcess::start(command.env("TOLLGATE_ADMIN_TOKEN", ADMIN).env("TOLLGATE_CLUSTER_SECRET", SECRET))
}

pub(crate) fn get(server: &ServerProcess, path: &str) -> String {
    server.send(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address))
}

pub(crate) fn body_of(answer: &str) -> Value {
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

pub(crate) fn engine(server: &ServerProcess) -> Value {
    body_of(&get(server, "/v1/engine"))
}

/// Whether a check is allowed, and where its answer came from.
fn check(server: &ServerProcess, agent: &str, lane: &str) -> (bool, String) {
    let answer = server.post("/v1/check", &json!({"agent": agent, "lane": lane}).to_string());
    let is_allowed = answer.starts_with("HTTP/1.1 200 ");
    assert!(is_allowed || answer.starts_with("HTTP/1.1 429 "), "{answer}");
    (is_allowed, body_of(&answer)["from"].as_str().unwrap_or_default().to_owned())
}

/// How many checks are allowed, sent to one server after the other until all of them know that nothing is left.
fn allowed(servers: &[&ServerProcess], agent: &str, lane: &str) -> usize {
    let (mut allowed, mut denied_in_a_row) = (0, 0);
    for server in servers.iter().cycle().take(2_000) {
        let (is_allowed, from) = check(server, agent, lane);
        allowed += usize::from(is_allowed);
        denied_in_a_row = if from == "view" || from == "share" && !is_allowed { denied_in_a_row + 1 } else { 0 };
        if denied_in_a_row == 10 * servers.len() {
            return allowed;
        }
    }
    panic!("{allowed} allowed, and no end")
}

/// Waits until something is so, and no longer than a minute.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn two_servers_admit_one_limit_and_without_the_store_each_its_share() {
    for kind in Kind::ALL {
        let Some(mut store) = Store::start(kind, &[]) else { continue };
        let directory = Directory::new(&format!("machines-{kind:?}"));
        let file = directory.file("tollgate.toml", &config(&store, ""));
        let [first, second] = [(); 2].map(|()| serve(&file));
        let line = second.greeting.lines().nth(1).unwrap();
        let expected =
            format!("Limiter:    shared by machines: 2 of 3 lanes through {}, connected, 2 machines", store.url());
        assert_eq!(line, expected);
        assert_eq!(second.greeting.lines().nth(2), Some("            of this machine alone: ws"));
        let both = [&first, &second];
        until("both are connected", || both.iter().all(|server| engine(server)["state"] == "connected"));
        // Of each machine two tokens of credit, and two in advance.
        let bound = engine(&first)["lanes"][0]["bound"].as_u64().unwrap() as usize;
        assert_eq!(bound, 2 * (2 + 2));
        let spent = allowed(&both, "a", "api");
        assert!((100..=100 + bound).contains(&spent), "{spent} of 100");

        store.kill();
        until("both have lost it", || both.iter().all(|server| engine(server)["state"] == "lost"));
        for server in both {
            assert_eq!(allowed(&[server], "b", "api"), 50, "half of the limit");
            assert!(get(server, "/healthz").starts_with("HTTP/1.1 200 "));
            assert!(get(server, "/readyz").starts_with("HTTP/1.1 200 "), "limits go on");
        }
        let lost = engine(&first);
        assert_eq!((&lost["without_store"], &lost["nodes"]), (&json!("every machine allows half"), &json!(2)));
        store.restart_empty();
        until("both are connected again", || both.iter().all(|server| engine(server)["state"] == "connected"));
        // It was told what was spent meanwhile.
        let more = allowed(&both, "b", "api");
        assert!(more <= bound, "{more} more");
        let metrics = get(&first, "/metrics");
        for line in [
            "tollgate_engine_state 2",
            "tollgate_engine_nodes 2",
            "tollgate_bound_tokens{lane=\"api\"} 8",
            "tollgate_answers_total{lane=\"login\",from=\"credit\"} 0",
        ] {
            assert!(metrics.lines().any(|metric| metric == line), "{line}\n{metrics}");
        }
        let losses = metrics.lines().filter(|line| line.starts_with("tollgate_engine_losses_total{"));
        let losses: u64 = losses.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(losses, 1, "{metrics}");
        second.stop();
        first.stop();
    }
}

#[test]
fn a_check_of_an_exact_lane_waits_for_the_store_and_no_other_does() {
    let Some(store) = Store::start(Kind::Redis, &[]) else { return };
    let directory = Directory::new("exact");
    let exact = |wait: &str| config(&store, &format!("[cluster.lane.login]\nexact = true\nwait = \"{wait}\""));
    let patient = serve(&directory.file("patient.toml", &exact("1s")));
    let hasty = serve(&directory.file("hasty.toml", &exact("0ms")));
    until("both are connected", || [&patient, &hasty].iter().all(|server| engine(server)["state"] == "connected"));
    // The first check of an agent has neither credit nor an advance.
    assert_eq!(check(&patient, "a", "login"), (true, "credit".to_owned()));
    let answer = hasty.post("/v1/check", r#"{"agent": "b", "lane": "login"}"#);
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    let refusal = body_of(&answer);
    assert_eq!(refusal["from"], "pending", "{refusal}");
    let detail = "login is shared by machines, and their store has not answered yet. Retry after 1 second.";
    assert_eq!(refusal["detail"], detail);
    // Answered by now, or soon.
    until("credit has come", || check(&hasty, "b", "login") == (true, "credit".to_owned()));
    assert_eq!(allowed(&[&patient, &hasty], "c", "login"), 5, "exactly");
    // A lane that is not exact spends in advance.
    assert_eq!(check(&hasty, "d", "api"), (true, "advance".to_owned()));
    // Lost: as the lane's rule says, and at once.
    store.pause();
    until("it is lost", || engine(&patient)["state"] == "lost");
    assert_eq!(check(&patient, "e", "login"), (true, "share".to_owned()));
    store.resume();
    patient.stop();
    hasty.stop();
}

#[test]
fn the_command_cluster_prints_what_the_server_knows() {
    let Some(store) = Store::start(Kind::Redis, &[]) else { return };
    let directory = Directory::new("command-cluster");
    let file = directory.file("tollgate.toml", &config(&store, "lanes = [\"api\"]\nslack = \"20%\"\n"));
    let server = serve(&file);
    check(&server, "a", "api");
    let address = server.address.to_string();
    let print = |arguments: &[&str]| {
        let mut command = tollgate(&[&["cluster"], arguments].concat());
        let output = command.env("TOLLGATE_CLUSTER_SECRET", SECRET).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = print(&["--server", &address]);
    for line in [
        format!("store       {}", store.url()),
        "machines    1 of 2 seen".to_owned(),
        "each machine has its own: login, ws".to_owned(),
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}\n{text}");
    }
    assert!(text.contains("\nstate       connected, for "), "{text}");
    let lane: Vec<_> = text.lines().filter(|line| line.starts_with("api ")).flat_map(str::split_whitespace).collect();
    assert_eq!((&lane[..6], lane[8]), (&["api", "100/day", "no", "20", "%", "share"][..], "20"), "{text}");
    let document: Value = serde_json::from_str(&print(&["--server", &address, "--json"])).unwrap();
    assert_eq!(document["lanes"][0]["answers"]["advance"], 1, "{document}");
    // By the file's address.
    let listen = format!("[server]\nlisten = \"{address}\"\n");
    let there = directory.file("there.toml", &config(&store, "").replace("[server]\n", &listen));
    assert!(print(&["--config", &there]).contains("machines    1 of 2 seen"));
    let key = print(&["key", "agent-7"]);
    let key = key.trim().strip_suffix(":*").unwrap();
    assert!(key.starts_with("tollgate:{") && key.len() == "tollgate:{}".len() + 22, "{key}");
    assert_eq!(print(&["key", "agent-7", "--config", &file]), format!("{key}:api\n"));
    let check = tollgate(&["check-config", &file]).env("TOLLGATE_CLUSTER_SECRET", SECRET).output().unwrap();
    let checked = String::from_utf8(check.stdout).unwrap();
    for line in ["api                 no     20 %   share", "Each machine has its own login."] {
        assert!(checked.lines().any(|printed| printed == line), "{line}\n{checked}");
    }
    let explained = String::from_utf8(output(&["explain", "a", "--server", &address]).stdout).unwrap();
    assert!(explained.contains("100/day (shared)") && explained.contains("shared: by machines through"), "{explained}");
    server.stop();
    let private = ServerProcess::start(&mut tollgate(&["--listen", "127.0.0.1:0"]));
    assert!(print(&["--server", &private.address.to_string()]).contains("Its limiter is private"));
    assert_eq!(engine(&private), json!({"shared_by": "nobody"}));
    private.stop();
}

#[test]
fn limits_change_with_a_reload_and_the_store_with_a_restart() {
    let Some(store) = Store::start(Kind::Redis, &[]) else { return };
    let directory = Directory::new("machines-reload");
    let file = directory.file("tollgate.toml", &config(&store, ""));
    let server = serve(&file);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("100/day", "200/day").replace("nodes = 2", "nodes = 3")).unwrap();
    server.signal(Signal::HUP);
    until("the new limit is in force", || engine(&server)["lanes"][0]["capacity"] == 200);
    assert_eq!(engine(&server)["nodes_at_least"], 2);
    let log = server.stop();
    assert!(
        log.contains(
            "[server], [shared], [cluster], [envoy] or [gate] has changed; that takes effect at the next start"
        ),
        "{log}"
    );
}

#[test]
fn a_redis_may_be_named_on_the_command_line_and_its_secret_may_not() {
    let Some(store) = Store::start(Kind::Redis, &[]) else { return };
    let url = store.url();
    let mut command = tollgate(&["--listen", "0", "--redis", &url]);
    let server = ServerProcess::start(command.env("TOLLGATE_CLUSTER_SECRET", SECRET));
    let line = server.greeting.lines().nth(1).unwrap();
    assert_eq!(line, format!("Limiter:    shared by machines: 5 lanes through {url}, connected, 1 machine"));
    server.stop();
    let without = error(&output(&["--listen", "0", "--redis", &url]));
    assert!(without.contains("--redis: set TOLLGATE_CLUSTER_SECRET to 16 random characters"), "{without}");
    let mut short = tollgate(&["--listen", "0", "--redis", &url]);
    let short = error(&short.env("TOLLGATE_CLUSTER_SECRET", "short").output().unwrap());
    assert!(short.contains("--redis: the cluster's secret has 5 bytes"), "{short}");
    let shown = error(&output(&["--listen", "0", "--redis", "redis://me:hunter2@10.0.0.5"]));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_server_starts_without_its_store_and_says_so() {
    let directory = Directory::new("no-store");
    let nobody = format!("redis+unix://{}", directory.path().join("none").display());
    let mut command = tollgate(&["--listen", "127.0.0.1:0", "--redis", &nobody]);
    let server = ServerProcess::start(command.env("TOLLGATE_CLUSTER_SECRET", SECRET));
    let line = server.greeting.lines().nth(1).unwrap();
    assert!(
        line.contains(", not connected: ") && line.ends_with("; until then every machine allows the whole limit"),
        "{line}"
    );
    assert_eq!(check(&server, "a", "http/heavy"), (true, "share".to_owned()));
    server.stop();
}

#[cfg(target_os = "linux")]
#[test]
fn a_limiter_is_shared_by_processes_or_by_machines() {
    let (directory, memory) = (Directory::new("both"), Directory::in_memory("both"));
    let text = format!(
        "[lanes]\napi = \"1/s\"\n[shared]\nslab = \"{}\"\n[cluster]\nredis = \"redis://127.0.0.1\"\nsecret = \"file:secret\"\n",
        memory.slab()
    );
    directory.file("secret", SECRET);
    let file = directory.file("tollgate.toml", &text);
    for command in [&["check-config", &file][..], &["serve", "--config", &file, "--listen", "0"]] {
        let error = error(&output(command));
        assert!(error.contains("processes share cannot be shared by machines too"), "{error}");
    }
}

/// How many of the calls that a shell prints the statuses of were allowed, and how many there were.
fn counted(printed: &str) -> (usize, usize) {
    let statuses: Vec<_> = printed.split_whitespace().collect();
    assert!(statuses.iter().all(|status| ["200", "429"].contains(status)), "{printed}");
    (statuses.iter().filter(|status| **status == "200").count(), statuses.len())
}

#[test]
fn the_demo_shows_one_limit_over_three_servers_and_leaves_nothing() {
    if !tools::has("redis-server", "redis-server") || !tools::has("curl", "curl") {
        return;
    }
    let mut demo = tollgate(&["demo", "--cluster", "--listen", "127.0.0.1:0"]);
    let mut demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(demo.stdout.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("kill -CONT ") {
        assert_ne!(out.read_line(&mut printed).unwrap(), 0, "it stopped: {printed}");
    }
    let pids: Vec<_> = printed.lines().filter_map(|line| line.split("pid ").nth(1)).collect();
    assert_eq!(pids.len(), 4, "{printed}");
    let is_there = |pid: &str| std::path::Path::new(&format!("/proc/{pid}")).exists();
    assert!(pids.iter().copied().all(is_there), "{printed}");
    let command = printed.lines().find(|line| line.starts_with("  for call")).unwrap();
    let shell = Command::new("sh").args(["-c", command]).output().unwrap();
    let (allowed, calls) = counted(&String::from_utf8(shell.stdout).unwrap());
    assert!(calls == 15 && (5..=8).contains(&allowed), "{allowed} of {calls}: {printed}");
    let command = printed.lines().find_map(|line| line.trim().split_once(" cluster --server ")).unwrap();
    // They show themselves once a second.
    until("three machines", || {
        let shown = output(&["cluster", "--server", command.1]);
        String::from_utf8(shown.stdout).unwrap().contains("machines    3 of 3 seen")
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&demo), Signal::TERM).unwrap();
    assert!(demo.wait().unwrap().success());
    assert!(!pids.iter().copied().any(is_there), "its processes have ended");
}

/// The three commands under "Try it", with a store, ports and a program of the test's own.
#[test]
fn the_three_commands_of_the_page_show_one_limit() {
    if !tools::has("curl", "curl") || !tools::has("openssl", "openssl") {
        return;
    }
    let Some(store) = Store::start(Kind::Redis, &[]) else { return };
    let page = include_str!("../../../../docs/machines.md");
    let block = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let [secret, servers, calls] = block.lines().collect::<Vec<_>>().try_into().expect("three commands");
    let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = free.map(|listener| listener.local_addr().unwrap().port().to_string());
    let mut script = format!(
        "{secret}\n{servers} >/dev/null\nfor port in 8787 8788 8789; do until curl -sf -o /dev/null \
         http://127.0.0.1:$port/healthz; do sleep 0.05; done; done\n{calls}\nkill $(jobs -p); wait"
    );
    // The servers' output goes nowhere: the loop over them is one command.
    script = script.replace("& done >/dev/null", ">/dev/null 2>&1 & done");
    script = script.replace("tollgate --redis redis://127.0.0.1", &format!("$TOLLGATE --redis {}", store.url()));
    for (shown, free) in ["8787", "8788", "8789"].iter().zip(&ports) {
        script = script.replace(shown, free);
    }
    let mut shell = Command::new("bash");
    let shell = shell.args(["-c", &script]).env("TOLLGATE", env!("CARGO_BIN_EXE_tollgate")).output().unwrap();
    let (allowed, calls) = counted(&String::from_utf8(shell.stdout).unwrap());
    assert!(calls == 15 && (5..=8).contains(&allowed), "{allowed} of {calls}\n{script}");
}

#[test]
fn the_page_has_the_access_list_of_the_redis_layer() {
    let [page, readme] = [include_str!("../../../../docs/machines.md"), include_str!("../../../redis/README.md")];
    let line = readme.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
    assert!(page.lines().any(|shown| shown == line), "put this into docs/machines.md:\n{line}");
}
