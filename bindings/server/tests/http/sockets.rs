//! Unix sockets, and several listeners at once.

use crate::common::{ADMIN, TestServer, assert_problem, header};
use crate::directory::Directory;
use crate::tools;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tollgate::Policy;
use tollgate_server::client::Client;
use tollgate_server::{Address, App, Listen, Server, Settings, Source};
use tollgate_tower::address::Networks;

fn policy() -> Policy {
    Policy::builder().lane("api", "2/min").build().expect("a policy")
}

fn unix(path: &Path) -> Listen {
    Listen::new(Address::Unix(path.to_owned()), [])
}

/// What a server says that is to listen on a socket.
async fn refusal(path: &Path) -> String {
    let mut settings = Settings::default();
    (settings.listen, settings.agents) = (unix(path), 100);
    let app = App::new(settings, Source::Policy(Box::new(policy())), None).expect("an app");
    Server::bind(Arc::new(app)).await.err().expect("a refusal").to_string()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

async fn check(address: impl Into<Address>) -> u16 {
    let mut client = Client::connect(address).await.expect("a connection");
    client.send("POST", "/v1/check", &[], r#"{"agent": "a"}"#).await.expect("an answer").status.as_u16()
}

#[tokio::test]
async fn curl_checks_over_a_socket_and_over_a_port_at_the_same_limiter() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("socket");
    let path = directory.path().join("tollgate.sock");
    let both = Listen::new("127.0.0.1:0".parse::<Address>().expect("an address"), [Address::Unix(path.clone())]);
    let mut server = TestServer::with(policy(), |settings| settings.listen = both).await;
    assert_eq!(mode(&path), 0o660, "of its user and its group");
    let mut curl = Command::new("curl");
    curl.args(["-s", "-w", " %{http_code}", "-d", r#"{"agent": "a"}"#, "--unix-socket"]).arg(&path);
    curl.arg("http://localhost/v1/check");
    let answer = tokio::task::spawn_blocking(move || curl.output()).await.expect("no panic").expect("curl runs");
    let answer = String::from_utf8(answer.stdout).expect("a text");
    assert!(answer.ends_with(" 200") && answer.contains("\"remaining\":1"), "{answer}");
    assert_eq!((check(server.address).await, check(Address::Unix(path.clone())).await), (200, 429));
    server.stop();
    server.stopped().await;
    assert!(!path.exists(), "a server removes its socket");
}

#[tokio::test]
async fn a_socket_has_the_mode_of_the_settings() {
    let directory = Directory::new("socket-mode");
    let path = directory.path().join("tollgate.sock");
    let change = |settings: &mut Settings| (settings.listen, settings.listen_mode) = (unix(&path), 0o600);
    let _server = TestServer::with(policy(), change).await;
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn the_socket_of_a_killed_server_is_replaced() {
    let directory = Directory::new("socket-stale");
    let path = directory.path().join("tollgate.sock");
    // Its file stays when a listener is dropped.
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists() && UnixStream::connect(&path).is_err());
    let _server = TestServer::with(policy(), |settings| settings.listen = unix(&path)).await;
    assert_eq!(check(Address::Unix(path)).await, 200);
}

#[tokio::test]
async fn a_socket_in_use_and_other_files_are_left_alone() {
    let directory = Directory::new("socket-used");
    let path = directory.path().join("tollgate.sock");
    let _server = TestServer::with(policy(), |settings| settings.listen = unix(&path)).await;
    let refused = refusal(&path).await;
    assert!(refused.contains("another program listens there; stop that one"), "{refused}");
    assert_eq!(check(Address::Unix(path)).await, 200);
    let file = PathBuf::from(directory.file("notes.txt", "mine"));
    let refused = refusal(&file).await;
    assert!(refused.contains("not a socket") && refused.contains("choose another path"), "{refused}");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "mine");
    let refused = refusal(&directory.path().join("none/tollgate.sock")).await;
    assert!(refused.contains("create its directory first"), "{refused}");
}

/// The later one has replaced it, and must stay reachable when the first one ends.
#[tokio::test]
async fn a_server_removes_no_socket_but_its_own() {
    let directory = Directory::new("socket-own");
    let path = directory.path().join("tollgate.sock");
    let mut first = TestServer::with(policy(), |settings| settings.listen = unix(&path)).await;
    std::fs::remove_file(&path).expect("a file");
    let _second = TestServer::with(policy(), |settings| settings.listen = unix(&path)).await;
    first.stop();
    first.stopped().await;
    assert_eq!(check(Address::Unix(path)).await, 200);
}

/// A client on a socket is on this machine: it is 127.0.0.1 wherever an address counts.
#[tokio::test]
async fn a_proxy_on_a_socket_is_trusted_like_one_on_loopback() {
    let directory = Directory::new("socket-proxy");
    for (number, trusted) in [&["127.0.0.1"] as &[&str], &[]].into_iter().enumerate() {
        let path = directory.path().join(format!("{number}.sock"));
        let change = |settings: &mut Settings| {
            settings.listen = unix(&path);
            settings.trusted_proxies = Networks::parse(trusted).expect("networks");
        };
        let server = TestServer::with(policy(), change).await;
        let mut client = Client::connect(Address::Unix(path.clone())).await.expect("a connection");
        let mut refused_of = Vec::new();
        for client_of_proxy in ["203.0.113.5", "203.0.113.6"] {
            let headers = [("authorization", "Bearer a-guess"), ("x-forwarded-for", client_of_proxy)];
            let mut refused = 0;
            for _ in 0..250 {
                let answer = client.send("GET", "/api/admin/rate-limits", &headers, "").await.expect("an answer");
                refused += u32::from(answer.status == 429);
            }
            refused_of.push(refused);
        }
        // Behind a trusted proxy the second client starts with guesses of its own.
        assert_eq!(refused_of[1] > 150, trusted.is_empty(), "{trusted:?}: {refused_of:?}");
        let bearer = format!("Bearer {ADMIN}");
        let answer = client.send("GET", "/api/admin/rate-limits", &[("authorization", &bearer)], "").await;
        assert_eq!(answer.expect("an answer").status, 200);
        drop(server);
    }
}

/// Many clients come through one proxy, and nobody else may use the file.
#[tokio::test]
async fn a_socket_has_no_bound_for_each_address() {
    let directory = Directory::new("socket-bound");
    let path = directory.path().join("tollgate.sock");
    let both = Listen::new(Address::Unix(path.clone()), ["127.0.0.1:0".parse().expect("an address")]);
    let change = |settings: &mut Settings| {
        (settings.listen, settings.max_connections_per_address) = (both, Some(2));
    };
    let server = TestServer::with(policy(), change).await;
    let mut kept = Vec::new();
    for _ in 0..20 {
        kept.push(Client::connect(Address::Unix(path.clone())).await.expect("a connection"));
    }
    for client in &mut kept {
        let answer = client.send("GET", "/healthz", &[], "").await.expect("an answer");
        assert_eq!((answer.status.as_u16(), header(&answer, "connection")), (200, None));
    }
    let missing = kept[0].send("GET", "/nowhere", &[], "").await.expect("an answer");
    assert_problem(&missing, 404, None, "nothing at this path");
    assert_eq!(server.send("GET", "/healthz", &[], "").await.status, 200);
}
