//! The access log.

use crate::common::TestServer;
use crate::directory::Directory;
use serde_json::Value;
use std::path::Path;
use tollgate::Policy;
use tollgate_tower::address::Networks;

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be on its way.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

async fn until(path: &Path, count: usize) -> Vec<Value> {
    while lines(path).len() < count {
        tokio::task::yield_now().await;
    }
    lines(path)
}

#[tokio::test]
async fn every_request_is_a_line_and_the_file_may_be_moved_away() {
    let directory = Directory::new("access");
    let path = directory.path().join("access.log");
    let policy = Policy::builder().lane("api", "1/min").build().expect("a policy");
    let mut server = TestServer::with(policy, |settings| {
        settings.access_log = Some(path.clone());
        settings.trusted_proxies = Networks::parse(["127.0.0.1"]).expect("a network");
    })
    .await;
    let headers = [("x-forwarded-for", "6.6.6.6, 203.0.113.5")];
    let check = r#"{"agent": "secret-agent"}"#;
    for (method, path, body) in
        [("POST", "/v1/check", check), ("POST", "/v1/check", check), ("GET", "/v1/agents/-?agent=secret-agent", "")]
    {
        server.send(method, path, &headers, body).await;
    }
    server.send("GET", "/a", &[("host", "evil.example")], "").await;
    let all = until(&path, 4).await;
    let seen: Vec<_> = all.iter().map(|line| (line["path"].as_str(), line["status"].as_u64())).collect();
    let expected = [("/v1/check", 200), ("/v1/check", 429), ("/v1/agents/-", 200), ("/a", 421)]
        .map(|(path, status)| (Some(path), Some(status)));
    assert_eq!(seen, expected);
    assert_eq!((&all[0]["client"], &all[3]["client"]), (&"203.0.113.5".into(), &"127.0.0.1".into()));
    assert_eq!((&all[0]["method"], &all[0]["version"]), (&"POST".into(), &"HTTP/1.1".into()));
    assert!(all[0]["took_us"].is_u64() && all[0]["at"].as_f64().is_some_and(|at| at > 1.7e9), "{}", all[0]);
    assert!(!std::fs::read_to_string(&path).expect("a file").contains("secret-agent"));
    std::fs::rename(&path, directory.path().join("access.log.1")).expect("a file");
    server.send("GET", "/healthz", &[], "").await;
    assert_eq!(until(&path, 1).await[0]["path"], "/healthz");
    // At the end none is missing.
    for _ in 0..200 {
        server.send("GET", "/readyz", &[], "").await;
    }
    server.stop();
    server.stopped().await;
    assert_eq!(lines(&path).len(), 201);
    assert_eq!(lines(&directory.path().join("access.log.1")).len(), 4);
}
