//! The heads of requests and responses: hosts, types, tags, and who closes the connection.

use crate::common::{ADMIN, TestServer, assert_problem, header, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn server() -> TestServer {
    TestServer::lanes(&[("api", "10/min")]).await
}

/// The server's response to this text, up to the end of the connection.
async fn raw(server: &TestServer, text: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    stream.write_all(text.as_bytes()).await.expect("an open connection");
    let mut answer = Vec::new();
    // A reset ends it too.
    _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// A proxy in front may check the first of two hosts, and we the last.
#[tokio::test]
async fn a_request_names_one_host_and_the_host_is_ours() {
    let server = server().await;
    for (hosts, status) in [
        ("host: 127.0.0.1\r\n", 200),
        ("host: localhost:1\r\n", 200),
        ("host: 127.0.0.1\r\nhost: 127.0.0.1\r\n", 400),
        ("host: 127.0.0.1\r\nhost: evil.example\r\n", 400),
        ("host: localhost:1@evil.example:80\r\n", 421),
        ("host: 127.0.0.1:1@evil:2\r\n", 421),
        ("host: localhost:x\r\n", 421),
    ] {
        let answer = raw(&server, &format!("GET /healthz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{hosts}: {answer}");
    }
    // A host in the target takes precedence over the header.
    for (target, status) in [("http://127.0.0.1/healthz", 200), ("http://evil.example/healthz", 421)] {
        let head = format!("GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
        let answer = raw(&server, &head).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
    }
}

#[tokio::test]
async fn no_response_may_be_sniffed() {
    let server = server().await;
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    for (method, path, body) in [
        ("POST", "/v1/check", r#"{"agent": "<script>"}"#),
        ("POST", "/v1/check", "{"),
        ("POST", "/v1/check/many", r#"{"requests": []}"#),
        ("GET", "/v1/agents/a", ""),
        ("GET", "/api/admin/rate-limits", ""),
        ("GET", "/api/dashboard/agents", ""),
        ("GET", "/metrics", ""),
        ("GET", "/nowhere", ""),
        ("GET", "/", ""),
    ] {
        let answer = server.send(method, path, &headers, body).await;
        let values: Vec<_> = answer.headers.get_all("x-content-type-options").iter().collect();
        assert_eq!(values, ["nosniff"], "{method} {path}");
    }
}

/// The page loads its files on every visit, and they hardly ever change.
#[tokio::test]
async fn a_file_of_the_page_is_sent_once() {
    let server = server().await;
    for path in ["/", "/assets/main.js", "/assets/uplot.js"] {
        let first = server.send("GET", path, &[], "").await;
        let tag = header(&first, "etag").expect("a tag").to_owned();
        assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 16, "{tag}");
        assert!(!first.body.is_empty());
        for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let again = server.send("GET", path, &[("if-none-match", &known)], "").await;
            assert_eq!((again.status.as_u16(), again.body.len()), (304, 0), "{path} with {known}");
            assert_eq!(header(&again, "etag"), Some(tag.as_str()));
            assert_eq!(header(&again, "cache-control"), header(&first, "cache-control"));
        }
        let other = server.send("GET", path, &[("if-none-match", "\"other\"")], "").await;
        assert_eq!((other.status.as_u16(), other.body), (200, first.body), "{path}");
    }
    let tags = ["/assets/main.js", "/assets/dom.js"];
    let tags = [server.send("GET", tags[0], &[], "").await, server.send("GET", tags[1], &[], "").await];
    assert_ne!(header(&tags[0], "etag"), header(&tags[1], "etag"));
}

/// Otherwise a client that keeps connections would send its next request into a closed one.
#[tokio::test]
async fn a_response_that_ends_the_connection_announces_it() {
    let server = server().await;
    let long = format!("POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9999\r\n\r\n{}", " ".repeat(99));
    let unread = "content-length: 99999\r\n\r\n{}";
    let admin = "PUT /api/admin/rate-limits/allowlist HTTP/1.1\r\nhost: 127.0.0.1\r\n";
    let json = format!("{admin}content-type: application/json\r\n");
    for (status, request) in [
        (401, format!("{json}{unread}")),
        (401, format!("{json}authorization: Bearer wrong\r\n{unread}")),
        (403, format!("{json}origin: http://evil.example\r\n{unread}")),
        (404, format!("POST /nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\n{unread}")),
        (413, long),
        (415, format!("{admin}authorization: Bearer {ADMIN}\r\n{unread}")),
    ] {
        let answer = raw(&server, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(answer.to_lowercase().contains("\r\nconnection: close\r\n"), "{request}: {answer}");
    }
    // A client that has sent its whole request may continue.
    let mut client = server.client().await;
    for status in [401, 404, 400] {
        let (path, body) = match status {
            401 => ("/api/admin/rate-limits", ""),
            404 => ("/nowhere", ""),
            _ => ("/v1/check", "{"),
        };
        let method = if body.is_empty() { "GET" } else { "POST" };
        let answer = client.send(method, path, &[], body).await.expect("the connection is open");
        assert_eq!((answer.status.as_u16(), header(&answer, "connection")), (status, None), "{path}");
    }
}

/// Browsers and proxies read `%2E` as a directory too.
#[tokio::test]
async fn agents_that_cannot_be_in_a_path_are_in_the_query() {
    let server = server().await;
    let bearer = format!("Bearer {ADMIN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let get = async |path: &str| json(&server.send("GET", path, &headers, "").await);
    for (query, agent) in [(".", "."), ("%2E%2E", ".."), ("..", ".."), ("a%2Fb%26c", "a/b&c")] {
        assert_eq!(get(&format!("/v1/agents/-?agent={query}")).await["agent"], agent);
        assert_eq!(get(&format!("/api/dashboard/agents/-?agent={query}")).await["id"], agent);
    }
    let change = r#"{"overrides": {"api": "3/min"}}"#;
    let path = "/api/admin/rate-limits/agents/-?agent=..";
    assert_eq!(server.send("PUT", path, &headers, change).await.status, 200);
    assert_eq!(
        server
            .limiter()
            .peek(tollgate::Request::new("..", server.limiter().lane("api").expect("a lane")))
            .map(|state| state.capacity()),
        Ok(3)
    );
    assert_eq!(server.send("POST", "/api/admin/rate-limits/agents/-/reset?agent=..", &headers, "").await.status, 200);
    // Without the query, `-` is an id like others; with another segment, the query is ignored.
    assert_eq!(get("/v1/agents/-").await["agent"], "-");
    assert_eq!(get("/v1/agents/a?agent=b").await["agent"], "a");
    assert_problem(&server.send("GET", "/v1/agents/-?agent=", &headers, "").await, 400, Some("agent"), "empty");
    assert_problem(
        &server.send("GET", "/v1/agents/-?agent=%zz", &headers, "").await,
        400,
        Some("agent"),
        "hexadecimal",
    );
}
