//! The clients that people have: each makes the handshake that it makes, and calls.

use super::{TOKEN, TestServer, tools};
use std::process::Command;

/// The Rust crate, with a password.
#[test]
fn the_redis_crate() {
    let server = TestServer::new(|settings| settings.check_token = Some(TOKEN.to_owned()));
    for protocol in ["", "?protocol=resp3"] {
        let url = format!("redis://:{TOKEN}@{}/0{protocol}", server.address);
        let mut client = redis::Client::open(url).and_then(|client| client.get_connection()).expect("a connection");
        let call = |quantity: u64| {
            let mut call = redis::cmd("CL.THROTTLE");
            call.arg("user123").arg(15).arg(30).arg(60).arg(quantity);
            call
        };
        let reply: Vec<i64> = call(1).query(&mut client).expect("a reply");
        assert_eq!(reply, [0, 16, 15, -1, 2]);
        let many: Vec<Vec<i64>> =
            redis::pipe().add_command(call(1)).add_command(call(99)).query(&mut client).expect("replies");
        assert_eq!(many, [[0, 16, 14, -1, 4], [1, 16, 14, -1, 4]]);
        let deleted: i64 = redis::cmd("DEL").arg("user123").query(&mut client).expect("a reply");
        assert_eq!(deleted, 1);
        let refused = redis::cmd("GET").arg("user123").query::<String>(&mut client).expect_err("nothing is stored");
        assert!(refused.to_string().contains("tollgate limits rates"), "{refused}");
    }
}

/// The call in the documentation, as people type it.
#[test]
fn redis_cli() {
    if !tools::has("redis-cli", "redis-tools") {
        return;
    }
    let server = TestServer::new(|_| {});
    let port = server.address.port().to_string();
    let call = |words: &[&str]| {
        let run = Command::new("redis-cli").args(["-p", &port]).args(words).output().expect("redis-cli runs");
        String::from_utf8_lossy(&run.stdout).into_owned()
    };
    assert_eq!(call(&["CL.THROTTLE", "user123", "15", "30", "60", "1"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(call(&["-3", "CL.THROTTLE", "user123", "15", "30", "60"]), "0\n16\n14\n-1\n4\n");
    assert_eq!(call(&["PING"]), "PONG\n");
    assert!(call(&["SET", "a", "b"]).contains("unknown command 'set'"));
}
