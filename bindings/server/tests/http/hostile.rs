//! Clients that are slow, or take everything.

use crate::common::TestServer;
use std::io::ErrorKind::WouldBlock;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate::Policy;

const CHECK: &str = r#"{"agent": "a"}"#;

async fn server(change: impl FnOnce(&mut tollgate_server::Settings)) -> TestServer {
    let policy = Policy::builder().lane("api", "1000000/s").build().expect("a policy");
    TestServer::with(policy, change).await
}

async fn raw(server: &TestServer, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    stream.write_all(text.as_bytes()).await.expect("an open connection");
    stream
}

/// What the server sends until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset ends it too.
    _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_head_that_does_not_end_is_cut_off_and_delays_no_other_client() {
    let server = server(|settings| settings.head_timeout = Duration::from_secs(1)).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        slow.push(raw(&server, "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ").await);
    }
    assert_eq!(server.check(CHECK).await.status, 200);
    for stream in &mut slow {
        assert_eq!(rest(stream).await, "", "cut off without an answer");
    }
    assert_eq!(server.check(CHECK).await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_end_is_answered_408_and_delays_no_other_client() {
    let server = server(|settings| settings.body_timeout = Duration::from_secs(1)).await;
    let head = "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 14\r\n\r\n{\"agent\"";
    let mut slow = Vec::new();
    for _ in 0..50 {
        slow.push(raw(&server, head).await);
    }
    assert_eq!(server.check(CHECK).await.status, 200);
    for stream in &mut slow {
        let answer = rest(stream).await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not arrive"), "{answer}");
    }
    assert_eq!(server.limiter().stats().claims, 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_timeout() {
    let server = server(|settings| settings.idle_timeout = Duration::from_secs(1)).await;
    let request = "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let mut kept = raw(&server, request).await;
    let mut silent = TcpStream::connect(server.address).await.expect("a connection");
    assert!(rest(&mut kept).await.starts_with("HTTP/1.1 200 "), "a response, then the end");
    assert_eq!(rest(&mut silent).await, "");
}

#[tokio::test]
async fn requests_that_are_too_large_are_refused() {
    const GET: &str = "GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n";
    let server = server(|_| {}).await;
    let mut huge = raw(&server, &format!("{GET}x: {}\r\n\r\n", "a".repeat(33_000))).await;
    assert!(rest(&mut huge).await.starts_with("HTTP/1.1 431 "));
    let many: String = (0..100).map(|number| format!("x-{number}: 1\r\n")).collect();
    let mut many = raw(&server, &format!("{GET}{many}\r\n")).await;
    assert!(rest(&mut many).await.starts_with("HTTP/1.1 431 "));
    // Refused by its announced length, before a byte of it is read; without one, by what arrives.
    let announced = "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10000000\r\n\r\n";
    assert!(rest(&mut raw(&server, announced).await).await.starts_with("HTTP/1.1 413 "));
    let chunk = format!("{:x}\r\n{}\r\n", 5_000, " ".repeat(5_000));
    let chunked = format!("POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
    assert!(rest(&mut raw(&server, &chunked).await).await.starts_with("HTTP/1.1 413 "));
    let no_http = rest(&mut raw(&server, "\x16\x03\x01 no HTTP\r\n\r\n").await).await;
    assert!(no_http.starts_with("HTTP/1.1 400 "), "{no_http}");
    assert_eq!(server.check(CHECK).await.status, 200);
}

/// Most clients read no response before they have sent everything. If the server
/// closed the connection at once, they would see a reset instead.
#[tokio::test]
async fn an_early_response_is_not_lost_while_the_body_is_sent() {
    let server = server(|settings| settings.head_timeout = Duration::from_secs(60)).await;
    let body = " ".repeat(16 << 20);
    for (path, status) in [("/v1/check", 413), ("/nowhere", 404), ("/api/admin/rate-limits/allowlist", 401)] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n", body.len());
        let answer = rest(&mut raw(&server, &(head + &body)).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
}

/// A client that never closes gets no more time than a head.
#[tokio::test]
async fn a_client_that_does_not_close_is_cut_off() {
    let server = server(|settings| settings.head_timeout = Duration::from_secs(1)).await;
    let announced = "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10000000\r\n\r\n";
    let mut endless = raw(&server, announced).await;
    assert!(rest(&mut endless).await.starts_with("HTTP/1.1 413 "));
    let cut_off = async {
        while endless.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), cut_off).await.expect("the server has stopped reading");
    assert_eq!(server.check(CHECK).await.status, 200);
}

/// And it is not read for ever, however fast it writes.
#[tokio::test]
async fn a_client_that_floods_is_cut_off() {
    let server = server(|settings| settings.head_timeout = Duration::from_secs(600)).await;
    let announced = "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10000000000\r\n\r\n";
    let mut flood = raw(&server, announced).await;
    let chunk = vec![b' '; 1 << 20];
    let mut written = 0;
    while written < 1_000 && flood.write_all(&chunk).await.is_ok() {
        written += 1;
    }
    assert!((64..1_000).contains(&written), "{written} MB");
    assert_eq!(server.check(CHECK).await.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_close_does_not_delay_shutdown() {
    let mut server = server(|settings| {
        settings.head_timeout = Duration::from_secs(600);
        settings.grace = Duration::from_secs(600);
    })
    .await;
    let mut open = raw(&server, "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await;
    assert!(rest(&mut open).await.starts_with("HTTP/1.1 200 "));
    server.stop();
    tokio::time::timeout(Duration::from_secs(30), server.stopped()).await.expect("it stops");
}

#[tokio::test]
async fn beyond_the_bound_the_idlest_make_room() {
    let server = server(|settings| settings.max_connections = 20).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(TcpStream::connect(server.address).await.expect("a connection"));
    }
    for _ in 0..5 {
        assert_eq!(server.check(CHECK).await.status, 200);
    }
    assert_eq!(rest(&mut idle[0]).await, "", "it was ended for a new one");
}

/// Nothing accepts them, and still each has room in the queue. With room for 128,
/// the default of many systems, 384 of them waited a second and longer.
#[tokio::test]
async fn five_hundred_connections_can_arrive_at_once() {
    let policy = Policy::builder().lane("api", "10/min").build().expect("a policy");
    let mut settings = tollgate_server::Settings::default();
    settings.listen = "127.0.0.1:0".parse().expect("an address");
    let source = tollgate_server::Source::Policy(Box::new(policy));
    let app = tollgate_server::App::new(settings, source, None).expect("an app");
    let server = tollgate_server::Server::bind(std::sync::Arc::new(app)).await.expect("a free port");
    let all = async {
        let mut streams = Vec::new();
        for _ in 0..512 {
            streams.push(TcpStream::connect(server.address()).await.expect("a connection"));
        }
        streams.len()
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), all).await, Ok(512));
}

/// Half a body keeps a connection busy for as long as a whole one may take. When
/// connections ran out, idle ones made room, and these never did.
#[tokio::test]
async fn half_sent_bodies_make_room_too() {
    let server = server(|settings| {
        settings.max_connections = 20;
        settings.body_timeout = Duration::from_secs(600);
    })
    .await;
    let half = "POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 14\r\n\r\n{\"agent\"";
    let mut slow = Vec::new();
    for _ in 0..20 {
        slow.push(raw(&server, half).await);
    }
    let newcomers = async {
        for _ in 0..5 {
            assert_eq!(server.check(CHECK).await.status, 200);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), newcomers).await.expect("room for newcomers");
    // One was ended for each newcomer; which one depends on whose half was read first.
    let ended = async {
        while !slow.iter().any(|stream| !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == WouldBlock))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("one is ended");
}

async fn from(address: [u8; 4], server: &TestServer) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind((std::net::Ipv4Addr::from(address), 0).into()).expect("an address of loopback");
    socket.connect(server.address).await.expect("a connection")
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let server = server(|settings| {
        settings.max_connections_per_address = Some(5);
        settings.body_timeout = Duration::from_secs(600);
    })
    .await;
    let half = b"POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 14\r\n\r\n{\"agent\"";
    let mut many = Vec::new();
    for _ in 0..50 {
        let mut stream = from([127, 0, 0, 2], &server).await;
        // It may have been closed already.
        _ = stream.write_all(half).await;
        many.push(stream);
    }
    // Other addresses are not affected.
    for _ in 0..5 {
        assert_eq!(server.check(CHECK).await.status, 200);
    }
    // Half a request gets no response; only beyond the bound is a connection closed.
    let mut closed = 0;
    for stream in &mut many {
        let mut byte = [0];
        if tokio::time::timeout(Duration::from_millis(20), stream.read(&mut byte)).await.is_ok() {
            closed += 1;
        }
    }
    assert!((45..50).contains(&closed), "{closed}");
}

#[tokio::test]
async fn many_requests_at_once_on_one_connection_are_answered_in_order() {
    let server = server(|_| {}).await;
    let request =
        format!("POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n{CHECK}", CHECK.len());
    let last = "GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    let answers = rest(&mut raw(&server, &(request.repeat(100) + last)).await).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 101);
    assert!(answers.ends_with("ok\n"));
}

/// Each unread response to a large batch took 2.4 MB, and nothing bounded their
/// number: 600 connections took 1.45 GB.
#[tokio::test]
async fn unread_responses_take_a_bounded_amount_of_memory() {
    let server = server(|settings| {
        settings.max_in_flight_mib = 8;
        settings.body_timeout = Duration::from_secs(600);
        settings.idle_timeout = Duration::from_secs(600);
    })
    .await;
    let requests = vec![CHECK; 9_000].join(",");
    let batch = format!(r#"{{"requests": [{requests}]}}"#);
    let length = batch.len();
    let request = format!(
        "POST /v1/check/many HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{batch}"
    );
    // Only the first bytes of each response are read, so that it exists.
    let (mut served, mut refused) = (Vec::new(), 0);
    for _ in 0..12 {
        let mut stream = raw(&server, &request).await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        match &answer {
            b"HTTP/1.1 200" => served.push(stream),
            b"HTTP/1.1 503" => {
                refused += 1;
                let answer = rest(&mut stream).await;
                assert!(answer.contains("retry-after: 1") && answer.contains("in flight"), "{answer}");
            }
            other => panic!("{}", other.escape_ascii()),
        }
        // Small requests are not affected.
        assert_eq!(server.check(CHECK).await.status, 200);
    }
    assert!(!served.is_empty() && refused > 0, "{} served, {refused} refused", served.len());
    // Clients that do not read make room.
    let again = async {
        loop {
            let answer = server.send("POST", "/v1/check/many", &[], &batch).await;
            if answer.status == 200 {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), again).await.expect("room");
    assert_eq!(crate::common::json(&answer)["verdicts"].as_array().map(Vec::len), Some(9_000));
}
