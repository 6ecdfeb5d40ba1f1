//! Servers that speak TLS alone, and ask for a certificate.

use super::node::{Node, PATIENCE, limiter};
use super::server::{Kind, Server, free_port};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use tollgate_redis::{EngineBuilder, Tls};

/// Certificates for 127.0.0.1, valid for a hundred years, of an authority whose key was thrown away.
fn path(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/engine/tls").join(name).display().to_string()
}

fn pem(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// A server with TLS on this port. Valkey from PyPI is built without.
fn start(port: u16) -> Option<Server> {
    let (port, certificate, key, ca) = (port.to_string(), path("server.pem"), path("server.key"), path("ca.pem"));
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let options: Vec<_> = ["--tls-port", &port, "--tls-auth-clients", "yes"].into_iter().chain(files).collect();
    Server::start(Kind::Redis, &options)
}

#[test]
fn an_engine_believes_its_ca_and_shows_its_certificate() {
    let port = free_port();
    let Some(_server) = start(port) else { return };
    let builder = || EngineBuilder::new(&format!("rediss://127.0.0.1:{port}")).unwrap();
    let known = || Tls::new().ca(pem("ca.pem"));
    let node = Node::with(builder().tls(known().client(pem("client.pem"), pem("client.key"))));
    node.allows_soon("agent-1", "slow");
    for (tls, why) in [(None, "UnknownIssuer"), (Some(known()), "CertificateRequired")] {
        let builder = tls.into_iter().fold(builder(), EngineBuilder::tls);
        let engine = builder.attach(limiter()).unwrap();
        let begin = Instant::now();
        while !engine.status().last_problem.is_some_and(|problem| problem.contains(why)) {
            assert!(begin.elapsed() < PATIENCE, "{why}: {:?}", engine.status());
            thread::sleep(Duration::from_millis(2));
        }
    }
}
