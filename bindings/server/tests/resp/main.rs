//! The server as clients of Redis see it, on sockets: their bytes, their
//! libraries, their programs.

mod clients;
#[path = "../../../../tests/common/tools.rs"]
mod tools;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tollgate::{ManualClock, Policy};
use tollgate_server::{App, RespSettings, Server, Settings, Source, StartError};

const TOKEN: &str = "check-token-0123456789";

/// A server for clients of Redis, on a manual clock.
struct TestServer {
    address: SocketAddr,
    app: Arc<App>,
    clock: ManualClock,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn policy(lanes: &[(&str, &str)]) -> Policy {
    let policy = lanes.iter().fold(Policy::builder(), |policy, (name, limit)| policy.lane(*name, *limit));
    policy.build().expect("valid lanes")
}

fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    settings.listen = "127.0.0.1:0".parse().expect("an address");
    settings.admin_token = Some("admin-token-0123456789".to_owned());
    settings.agents = 10_000;
    (settings.notice, settings.drain) = (Duration::ZERO, Duration::ZERO);
    settings.resp = Some(RespSettings::new("127.0.0.1:0".parse().expect("an address")));
    change(&mut settings);
    settings
}

impl TestServer {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        Self::of(&[("any", "dynamic")], change).expect("a server")
    }

    fn of(lanes: &[(&str, &str)], change: impl FnOnce(&mut Settings)) -> Result<Self, StartError> {
        let clock = ManualClock::new();
        let source = Source::Policy(Box::new(policy(lanes)));
        let app = Arc::new(App::new(settings(change), source, Some(clock.clone().into()))?);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let server = runtime.block_on(Server::bind(Arc::clone(&app)))?;
        let address = server.resp_address().expect("it listens");
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            // A dropped sender stops it too.
            runtime.block_on(server.run(async { _ = stopped.await }));
        };
        let thread = std::thread::spawn(serve);
        Ok(Self { address, app, clock, stop: Some(stop), thread: Some(thread) })
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        // A test that fails does not hang.
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    /// What a client that sends this and nothing more is sent.
    fn talk(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("room");
        stream.write_all(b"QUIT\r\n").expect("room");
        let mut replies = String::new();
        stream.read_to_string(&mut replies).expect("replies, and the end");
        replies
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

fn read_exactly(stream: &mut TcpStream, expected: &str) {
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).expect("replies");
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

#[test]
fn a_call_is_decided_over_a_socket() {
    let server = TestServer::new(|_| {});
    assert_eq!(server.talk(b"CL.THROTTLE user123 15 30 60 1\r\n"), "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n+OK\r\n");
    server.clock.advance(Duration::from_secs(1));
    assert_eq!(server.talk(b"CL.THROTTLE user123 15 30 60 0\r\n"), "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:1\r\n+OK\r\n");
    assert_eq!(server.app.limiter().stats().agents, 1);
}

/// A hundred commands at once, and a command byte by byte.
#[test]
fn commands_may_come_together_or_in_pieces() {
    let server = TestServer::new(|_| {});
    let replies = server.talk(&b"CL.THROTTLE user 59 60 60\r\n".repeat(100));
    assert_eq!(replies.matches("*5\r\n:0\r\n").count(), 60);
    assert_eq!(replies.matches("*5\r\n:1\r\n").count(), 40);
    let mut stream = server.connect();
    stream.set_nodelay(true).expect("a socket");
    for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n" {
        stream.write_all(&[*byte]).expect("room");
    }
    read_exactly(&mut stream, "$2\r\nhi\r\n");
    // Larger than what is read at once, and its replies larger than what is kept.
    let echo = [b"*2\r\n$4\r\nECHO\r\n$60000\r\n".as_slice(), &[b'x'; 60_000], b"\r\n"].concat();
    let mut writer = stream.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || writer.write_all(&echo.repeat(40)));
    let expected = format!("$60000\r\n{}\r\n", "x".repeat(60_000));
    for _ in 0..40 {
        read_exactly(&mut stream, &expected);
    }
    sender.join().expect("no panic").expect("room");
}

#[test]
fn the_tokens_of_the_server_are_passwords() {
    let server = TestServer::new(|settings| settings.check_token = Some(TOKEN.to_owned()));
    assert!(server.talk(b"CL.THROTTLE user 15 30 60\r\n").starts_with("-NOAUTH"));
    let replies = server.talk(format!("AUTH wrong\r\nAUTH {TOKEN}\r\nCL.THROTTLE user 15 30 60\r\n").as_bytes());
    assert!(replies.starts_with("-WRONGPASS") && replies.contains("+OK\r\n*5\r\n:0\r\n"), "{replies}");
    assert!(server.talk(b"AUTH admin-token-0123456789\r\n").starts_with("+OK\r\n"));
}

#[test]
fn more_clients_than_may_be_are_refused_by_name() {
    let change = |settings: &mut Settings| settings.resp.as_mut().into_iter().for_each(|resp| resp.max_connections = 2);
    let server = TestServer::new(change);
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.write_all(b"PING\r\n").expect("room");
        read_exactly(client, "+PONG\r\n");
    }
    let mut refused = String::new();
    server.connect().read_to_string(&mut refused).expect("a reply");
    assert_eq!(refused, "-ERR max number of clients reached\r\n");
    drop(clients);
    // Places come back once the server has seen the clients leave.
    let mut replies = String::new();
    for _ in 0..2_000 {
        replies.clear();
        let mut client = server.connect();
        if client.write_all(b"QUIT\r\n").and_then(|()| client.read_to_string(&mut replies)).is_ok()
            && replies == "+OK\r\n"
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    unreachable!("no place came back: {replies}");
}

/// What was sent before the end is answered, and a client that is idle sees the end.
#[test]
fn the_end_of_the_server_cuts_no_reply_off() {
    let mut server = TestServer::new(|_| {});
    let (mut idle, mut busy) = (server.connect(), server.connect());
    for client in [&mut idle, &mut busy] {
        client.write_all(b"PING\r\n").expect("room");
        read_exactly(client, "+PONG\r\n");
    }
    busy.write_all(&b"CL.THROTTLE user 15 30 60\r\n".repeat(16)).expect("room");
    drop(server.stop.take());
    let mut replies = String::new();
    busy.read_to_string(&mut replies).expect("the end, and no reset");
    assert_eq!(replies.matches("*5\r\n:0\r\n").count(), 16);
    assert_eq!(idle.read(&mut [0; 8]).expect("the end, and no reset"), 0);
    server.thread.take().expect("once").join().expect("no panic");
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_policy_needs_a_dynamic_lane() {
    let problem = |lanes: &[(&str, &str)], lane: Option<&str>| {
        let started = match lane {
            Some(lane) => TestServer::of(lanes, |settings| {
                settings.resp.as_mut().into_iter().for_each(|resp| resp.lane = Some(lane.to_owned()));
            }),
            None => TestServer::of(lanes, |_| {}),
        };
        started.err().map(|error| error.to_string())
    };
    let lanes = [("a", "10/s"), ("b", "dynamic"), ("c", "dynamic 5/s")];
    assert!(problem(&lanes[..1], None).is_some_and(|problem| problem.contains("needs a dynamic lane")));
    assert!(problem(&lanes, None).is_some_and(|problem| problem.contains("several dynamic lanes")));
    assert!(problem(&lanes, Some("a")).is_some_and(|problem| problem.contains("\"a\" is not dynamic")));
    assert!(problem(&lanes, Some("d")).is_some_and(|problem| problem.contains("\"d\" is not in the policy")));
    assert_eq!(problem(&lanes[..2], None), None);
    assert_eq!(problem(&lanes, Some("c")), None);
}
