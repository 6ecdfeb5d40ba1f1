//! The audit log: who changed what.

use crate::common::{ADMIN, CHECK, TestServer, json};
use crate::directory::Directory;
use serde_json::{Value, json};
use tollgate::Policy;

async fn send(server: &TestServer, token: &str, method: &str, path: &str, body: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send(method, path, &headers, body).await.status.as_u16()
}

#[tokio::test]
async fn every_change_is_a_line_with_what_was_before_and_after() {
    let directory = Directory::new("audit-log");
    let path = directory.path().join("audit.log");
    let policy = Policy::builder().lane("api", "10/min").plan("pro", [("api", "20/min")]).build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.audit_log = Some(path.clone());
        settings.check_token = Some(CHECK.to_owned());
    })
    .await;
    let base = "/api/admin/rate-limits";
    let changes = [
        ("PUT", "/agent-7", r#"{"plan": "pro"}"#),
        ("PUT", "/defaults", r#"{"api": "5/minute"}"#),
        ("POST", "/allowlist", r#"{"agent": "boss"}"#),
        ("POST", "/agents/agent-7/reset", ""),
    ];
    for (method, at, body) in changes {
        assert_eq!(send(&server, ADMIN, method, &format!("{base}{at}"), body).await, 200, "{method} {at}");
    }
    // What is refused, and what only reads, changes nothing.
    for (token, method, at, body, expected) in [
        (CHECK, "PUT", "/agent-7", r#"{"plan": null}"#, 403),
        ("a-guess", "PUT", "/agent-7", r#"{"plan": null}"#, 401),
        (ADMIN, "PUT", "/agent-7", r#"{"plan": "gold"}"#, 400),
        (ADMIN, "GET", "/agent-7", "", 200),
    ] {
        assert_eq!(send(&server, token, method, &format!("{base}{at}"), body).await, expected, "{method} {at} {body}");
    }
    let text = std::fs::read_to_string(&path).expect("a file");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), changes.len(), "{text}");
    for line in &lines {
        assert_eq!((&line["who"], &line["client"]), (&json!("admin token"), &json!("127.0.0.1")));
        assert!(line["at"].as_f64().is_some_and(|at| at > 1.7e9), "{line}");
    }
    let seen: Vec<_> =
        lines.iter().map(|line| json!([line["what"], line["agent"], line["from"], line["to"]])).collect();
    let none = json!({"plan": null, "overrides": {}});
    assert_eq!(
        seen,
        [
            json!(["PUT /api/admin/rate-limits/{agent}", "agent-7", none, {"plan": "pro", "overrides": {}}]),
            json!(["PUT /api/admin/rate-limits/defaults", null, {"api": "10/minute"}, {"api": "5/minute"}]),
            json!(["POST /api/admin/rate-limits/allowlist", null, [], ["boss"]]),
            json!(["POST /api/admin/rate-limits/agents/{agent}/reset", "agent-7", null, null]),
        ]
    );
    // The API has the newest first, for admins alone.
    let bearer = format!("Bearer {ADMIN}");
    let answer = server.send("GET", "/api/admin/audit", &[("authorization", &bearer)], "").await;
    let document = json(&answer);
    let newest_first: Vec<_> = lines.iter().rev().cloned().collect();
    assert_eq!(
        (&document["changes"], &document["kept_in"]),
        (&json!(newest_first), &json!(path.display().to_string()))
    );
    assert_eq!(send(&server, CHECK, "GET", "/api/admin/audit", "").await, 403);
    // A file that was moved away is opened again.
    std::fs::rename(&path, directory.path().join("audit.log.1")).expect("a file");
    assert_eq!(send(&server, ADMIN, "DELETE", &format!("{base}/agent-7"), "").await, 200);
    assert_eq!(std::fs::read_to_string(&path).expect("a new file").lines().count(), 1);
}
