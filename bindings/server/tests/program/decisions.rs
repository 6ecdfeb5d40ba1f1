//! What operators decide on one server, over HTTP, and what it is on another one with the same store.

use crate::machines::{ADMIN, body_of, config, engine, get, serve, until};
use crate::store::{Kind, Server as Store};
use crate::{Directory, ServerProcess};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A request of an admin; the body of its answer.
fn admin(server: &ServerProcess, method: &str, path: &str, body: &str) -> Value {
    let answer = server.send(&format!(
        "{method} /api/admin/{path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {ADMIN}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    ));
    assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default()).unwrap_or_default()
}

fn is_current(server: &ServerProcess) -> bool {
    let decisions = &engine(server)["decisions"];
    decisions["current"] == true && decisions["waiting"] == 0
}

fn capacity(server: &ServerProcess, agent: &str) -> Value {
    let answer = server.post("/v1/check", &json!({"agent": agent, "lane": "api"}).to_string());
    body_of(&answer)["limit"].clone()
}

#[test]
fn what_is_decided_on_one_server_holds_on_the_other_and_outlives_both() {
    for kind in Kind::ALL {
        let Some(mut store) = Store::start(kind, &[]) else { continue };
        let directory = Directory::new(&format!("decisions-{kind:?}"));
        let file = directory.file("tollgate.toml", &config(&store, ""));
        let [first, second] = [(); 2].map(|()| serve(&file));
        let overrides = "rate-limits/agent-7";
        admin(&first, "PUT", overrides, r#"{"overrides": {"api": "7/day"}}"#);
        until("the override", || capacity(&second, "agent-7") == 7);
        admin(&second, "POST", "rate-limits/allowlist", r#"{"agent": "probe"}"#);
        until("the exemption", || admin(&first, "GET", "rate-limits/allowlist", "")["agents"] == json!(["probe"]));
        // Defaults are set on top of each other, on whatever server.
        admin(&first, "PUT", "rate-limits/defaults", r#"{"api": "70/day"}"#);
        until("the default", || capacity(&second, "a") == 70);
        admin(&second, "PUT", "rate-limits/defaults", r#"{"login": "9/day"}"#);
        let both = json!({"api": "70/day", "login": "9/day"});
        for server in [&first, &second] {
            until("both defaults", || admin(server, "GET", "rate-limits/defaults", "")["defaults_changed"] == both);
        }
        until("all is written", || is_current(&first) && is_current(&second));
        assert!(get(&first, "/metrics").lines().any(|line| line == "tollgate_engine_decisions_current 1"));
        first.stop();
        second.stop();
        // With the file's policy at first; then what the store has.
        let [first, second] = [(); 2].map(|()| serve(&file));
        for server in [&first, &second] {
            until("current", || is_current(server));
            assert_eq!((capacity(server, "agent-7"), capacity(server, "b")), (json!(7), json!(70)));
        }
        // The store forgets everything, and another server starts.
        store.restart_empty();
        let third = serve(&file);
        until("from the other servers", || capacity(&third, "agent-7") == 7 && capacity(&third, "c") == 70);
        // A reload is a decision too, and a removal.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("100/day", "50/day")).unwrap();
        second.signal(Signal::HUP);
        admin(&third, "DELETE", overrides, "");
        for server in [&first, &second, &third] {
            until("the file's", || capacity(server, "agent-7") == 50 && capacity(server, "d") == 50);
        }
        for server in [first, second, third] {
            let log = server.stop();
            assert!(!log.contains("panicked"), "{log}");
        }
    }
}
