//! TLS: curl checks certificates, and shows its own.

use crate::certificates::Authority;
use crate::common::{ADMIN, TestServer};
use crate::curl::{curl, fetch};
use crate::directory::Directory;
use crate::tools;
use std::path::Path;
use std::time::Duration;
use tollgate::Policy;
use tollgate_server::{App, Settings, Source, TlsFiles};

const CHECK: &str = r#"{"agent": "a"}"#;

fn policy() -> Policy {
    Policy::builder().lane("api", "1000/min").build().expect("a policy")
}

async fn server(files: TlsFiles) -> TestServer {
    TestServer::with(policy(), |settings| settings.tls = Some(files)).await
}

fn url(server: &TestServer, path: &str) -> String {
    format!("https://localhost:{}{path}", server.address.port())
}

#[tokio::test]
async fn curl_checks_inside_tls_in_both_versions_of_http() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("tls");
    let authority = Authority::new("ca");
    let (certificate, key) = authority.sign(&directory, "server");
    let server = server(TlsFiles::new(certificate, key)).await;
    let ca = authority.file(&directory);
    for (options, version) in
        [(&["--http2"] as &[&str], "2"), (&["--http1.1"], "1.1"), (&["--http2", "--tls-max", "1.2"], "2")]
    {
        let answer = fetch(&[options, &["--cacert", &ca, "-d", CHECK, &url(&server, "/v1/check")]].concat()).await;
        assert_eq!((&*answer.0, &*answer.1), ("200", version), "{options:?}: {answer:?}");
        assert!(answer.2.contains("\"allowed\":true"), "{options:?}: {answer:?}");
    }
    let other = Authority::new("other").file(&directory);
    let (printed, is_success) = curl(&["--cacert", &other, &url(&server, "/healthz")]).await;
    assert!(!is_success && printed.contains("certificate"), "{printed}");
    assert_eq!(server.limiter().stats().claims, 1);
}

#[tokio::test]
async fn a_session_that_began_inside_tls_stays_there() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("tls-session");
    let authority = Authority::new("ca");
    let (certificate, key) = authority.sign(&directory, "server");
    let server = server(TlsFiles::new(certificate, key)).await;
    let (ca, token) = (authority.file(&directory), format!("{{\"token\": \"{ADMIN}\"}}"));
    let json = "content-type: application/json";
    for path in ["/login", "/logout"] {
        let (printed, _) = curl(&["-i", "--cacert", &ca, "-H", json, "-d", &token, &url(&server, path)]).await;
        assert!(printed.contains("HttpOnly") && printed.contains("; Secure"), "{path}: {printed}");
    }
}

#[tokio::test]
async fn with_a_client_ca_every_client_shows_a_certificate() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("mtls");
    let (authority, clients) = (Authority::new("ca"), Authority::new("clients"));
    let (certificate, key) = authority.sign(&directory, "server");
    let server = server(TlsFiles::new(certificate, key).client_ca(clients.file(&directory))).await;
    let (ca, url) = (authority.file(&directory), url(&server, "/v1/check"));
    let shown = |path: &Path| path.display().to_string();
    let (certificate, key) = clients.sign(&directory, "client");
    let (mine, key) = (shown(&certificate), shown(&key));
    let answer = fetch(&["--cacert", &ca, "--cert", &mine, "--key", &key, "-d", CHECK, &url]).await;
    assert_eq!(answer.0, "200", "{answer:?}");
    let (certificate, key) = authority.sign(&directory, "stranger");
    let (stranger, key) = (shown(&certificate), shown(&key));
    for arguments in [&[] as &[&str], &["--cert", &stranger, "--key", &key]] {
        let (printed, is_success) = curl(&[&["--cacert", &ca, "-d", CHECK, &url], arguments].concat()).await;
        assert!(!is_success, "{arguments:?}: {printed}");
    }
    assert_eq!(server.limiter().stats().claims, 1);
}

/// The certificate that a server shows, as curl prints its name.
async fn shown_by(server: &TestServer, ca: &str) -> Option<String> {
    let (printed, is_success) = curl(&["-v", "--cacert", ca, &url(server, "/healthz")]).await;
    let subject = printed.lines().find_map(|line| line.split("subject: CN=").nth(1)).map(str::to_owned);
    subject.filter(|_| is_success)
}

/// Waits until a line is in the metrics.
async fn until(server: &TestServer, ca: &str, wanted: &str) {
    // Ends: the server looks every two seconds; a failure is a test that takes a minute.
    for _ in 0..600 {
        let (.., metrics) = fetch(&["--cacert", ca, &url(server, "/metrics")]).await;
        if metrics.lines().any(|line| line == wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no {wanted} within a minute");
}

/// Certificates last for weeks, and servers for months.
#[tokio::test]
async fn a_certificate_that_changes_is_read_again() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("tls-reload");
    let authority = Authority::new("ca");
    let ca = authority.file(&directory);
    let (certificate, key) = authority.sign(&directory, "first");
    let server = server(TlsFiles::new(&certificate, &key)).await;
    assert_eq!(shown_by(&server, &ca).await.as_deref(), Some("first"));
    // Its key is still the old one: the old certificate stays in force.
    let (new_certificate, new_key) = authority.sign(&directory, "second");
    std::fs::rename(new_certificate, &certificate).expect("a file");
    until(&server, &ca, "tollgate_certificate_reloads_total{result=\"failure\"} 1").await;
    assert_eq!(shown_by(&server, &ca).await.as_deref(), Some("first"));
    std::fs::rename(new_key, &key).expect("a file");
    until(&server, &ca, "tollgate_certificate_reloads_total{result=\"success\"} 1").await;
    assert_eq!(shown_by(&server, &ca).await.as_deref(), Some("second"));
    // SIGHUP and the admin API read it at once.
    let (third, third_key) = authority.sign(&directory, "third");
    std::fs::rename(third_key, &key).expect("a file");
    std::fs::rename(third, &certificate).expect("a file");
    server.app.reload().expect("a policy");
    assert_eq!(shown_by(&server, &ca).await.as_deref(), Some("third"));
}

#[tokio::test]
async fn plain_http_at_a_tls_port_is_refused_with_advice() {
    if !tools::has("curl", "curl") {
        return;
    }
    let directory = Directory::new("tls-plain");
    let (certificate, key) = Authority::new("ca").sign(&directory, "server");
    let server = server(TlsFiles::new(certificate, key)).await;
    let answer = fetch(&[&format!("http://{}/healthz", server.address)]).await;
    assert_eq!((&*answer.0, answer.2.trim()), ("400", "this port speaks TLS; use https://"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = Directory::new("tls-wrong");
    let authority = Authority::new("ca");
    let (certificate, key) = authority.sign(&directory, "server");
    let (_, other_key) = authority.sign(&directory, "other");
    let (none, text) = (directory.path().join("none.pem"), directory.file("text.pem", "no PEM"));
    let refusal = |files: TlsFiles| {
        let mut settings = Settings::default();
        (settings.tls, settings.agents) = (Some(files), 100);
        App::new(settings, Source::Policy(Box::new(policy())), None).err().expect("a refusal").to_string()
    };
    for (files, problem) in [
        (TlsFiles::new(&none, &key), "cannot read"),
        (TlsFiles::new(&text, &key), "text.pem has no certificate; give one or more as PEM"),
        (TlsFiles::new(&certificate, &text), "text.pem has no private key"),
        (TlsFiles::new(&certificate, &other_key), "do they belong together?"),
        (TlsFiles::new(&certificate, &key).client_ca(&text), "text.pem has no certificate"),
    ] {
        let refused = refusal(files);
        assert!(refused.contains(problem), "{refused}");
    }
}
