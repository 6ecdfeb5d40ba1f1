//! The admin API: who may use it, what it changes, and that changes survive a restart.

use crate::common::{ADMIN, CHECK, TestServer, assert_problem, header, json};
use crate::directory::Directory;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate::Policy;
use tollgate_server::Source;
use tollgate_server::client::Answer;

const BASE: &str = "/api/admin/rate-limits";

fn policy() -> Policy {
    super::common::counting()
        .lane("ws/heavy", "10/min")
        .lane("http/heavy", "10/min")
        .lane("http/read", "100/min")
        .plan("pro", [("http/read", "500/min")])
        .build()
        .expect("a policy")
}

async fn server() -> TestServer {
    TestServer::with(policy(), |_| {}).await
}

impl TestServer {
    /// A request with the admin token.
    async fn admin(&self, method: &str, path: &str, body: Value) -> Answer {
        let bearer = format!("Bearer {ADMIN}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.send(method, path, &headers, &body).await
    }

    async fn admin_json(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.admin(method, path, body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        json(&answer)
    }

    /// The limit that the agent's next check meets.
    async fn limit(&self, agent: &str, lane: &str) -> Value {
        json(&self.check(&json!({"agent": agent, "lane": lane}).to_string()).await)["limit"].clone()
    }
}

#[tokio::test]
async fn it_needs_the_admin_token() {
    let server = TestServer::with(policy(), |settings| settings.check_token = Some(CHECK.to_owned())).await;
    for (method, path) in [
        ("GET", ""),
        ("GET", "/defaults"),
        ("PUT", "/defaults"),
        ("DELETE", "/defaults"),
        ("GET", "/allowlist"),
        ("PUT", "/allowlist"),
        ("POST", "/whitelist"),
        ("DELETE", "/whitelist/a"),
        ("GET", "/a"),
        ("PUT", "/a"),
        ("DELETE", "/agents/a"),
        ("POST", "/a/reset_violations"),
        ("POST", "/a/reset"),
        ("POST", "/a/forget"),
        ("POST", "/../reload"),
    ] {
        let path = if path == "/../reload" { "/api/admin/reload".to_owned() } else { format!("{BASE}{path}") };
        let kind = ("content-type", "application/json");
        let check = format!("Bearer {CHECK}");
        let answer = server.send(method, &path, &[kind], "{}").await;
        assert_problem(&answer, 401, None, "needs a token");
        assert_eq!(header(&answer, "www-authenticate"), Some("Bearer"));
        let answer = server.send(method, &path, &[kind, ("authorization", "Bearer nonsense")], "{}").await;
        assert_problem(&answer, 401, None, "the token is wrong");
        let answer = server.send(method, &path, &[kind, ("authorization", &check)], "{}").await;
        assert_problem(&answer, 403, None, "admin token");
    }
    assert!(server.limiter().assignments().is_empty());
}

#[tokio::test]
async fn changes_are_json_from_our_own_origin() {
    let server = server().await;
    let bearer = format!("Bearer {ADMIN}");
    let auth = ("authorization", bearer.as_str());
    let body = r#"{"agent": "a"}"#;
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let answer = server.send("POST", &format!("{BASE}/allowlist"), &[auth, ("content-type", kind)], body).await;
        assert_problem(&answer, 415, None, "application/json");
    }
    let json_type = ("content-type", "application/json");
    let foreign = [auth, json_type, ("origin", "http://evil.example")];
    assert_problem(&server.send("POST", &format!("{BASE}/allowlist"), &foreign, body).await, 403, None, "origins");
    let rebound = [auth, json_type, ("host", "evil.example")];
    assert_problem(&server.send("POST", &format!("{BASE}/allowlist"), &rebound, body).await, 421, None, "");
    assert!(server.limiter().assignments().is_empty());
}

#[tokio::test]
async fn it_lists_defaults_and_all_overrides() {
    let server = server().await;
    server
        .admin_json("PUT", &format!("{BASE}/agent-7"), json!({"overrides": {"heavy": "100/min"}, "plan": "pro"}))
        .await;
    server.admin_json("POST", &format!("{BASE}/allowlist"), json!({"agent": "dashboard"})).await;
    let all = server.admin_json("GET", BASE, Value::Null).await;
    let expected = json!({
        "defaults": {"ws/heavy": "10/minute", "http/heavy": "10/minute", "http/read": "100/minute"},
        "defaults_changed": {},
        "plans": {"pro": {"ws/heavy": "10/minute", "http/heavy": "10/minute", "http/read": "500/minute"}},
        "overrides": [{"agent": "agent-7", "plan": "pro", "overrides": {"http/heavy": "100/minute", "ws/heavy": "100/minute"}}],
        "allowlist": ["dashboard"],
        "kept_in": null,
    });
    assert_eq!(all, expected);
}

#[tokio::test]
async fn new_defaults_are_in_force_for_the_next_check() {
    let server = server().await;
    assert_eq!(server.limit("a", "http/read").await, 100);
    let path = format!("{BASE}/defaults");
    let answer = server.admin_json("PUT", &path, json!({"http/read": "7/s", "heavy": 30})).await;
    assert_eq!(answer["defaults"]["http/read"], "7/second");
    assert_eq!(
        answer["defaults_changed"],
        json!({"http/read": "7/second", "http/heavy": "30/minute", "ws/heavy": "30/minute"})
    );
    for agent in ["a", "newcomer"] {
        assert_eq!(server.limit(agent, "http/read").await, 7);
        assert_eq!(server.limit(agent, "ws/heavy").await, 30);
    }
    // A change leaves the other lanes as they were.
    server.admin_json("PUT", &path, json!({"ws/heavy": "deny"})).await;
    assert_eq!((server.limit("a", "http/heavy").await, server.limit("a", "ws/heavy").await), (json!(30), json!(0)));
    server.admin_json("DELETE", &path, Value::Null).await;
    assert_eq!((server.limit("a", "http/read").await, server.limit("a", "ws/heavy").await), (json!(100), json!(10)));
}

#[tokio::test]
async fn an_agent_gets_overrides_and_goes_back_to_the_defaults() {
    let server = server().await;
    for path in [format!("{BASE}/agent-7"), format!("{BASE}/agents/agent-7")] {
        assert_eq!(server.limit("agent-7", "http/heavy").await, 10);
        let answer = server.admin_json("PUT", &path, json!({"overrides": {"heavy": 100, "ws/heavy": "5/min"}})).await;
        assert_eq!(answer["overrides"], json!({"http/heavy": "100/minute", "ws/heavy": "5/minute"}));
        assert_eq!(server.admin_json("GET", &path, Value::Null).await["overrides"], answer["overrides"]);
        assert_eq!(server.limit("agent-7", "http/heavy").await, 100);
        assert_eq!(server.limit("agent-7", "ws/heavy").await, 5);
        // A plan keeps the overrides; new overrides replace them.
        server.admin_json("PUT", &path, json!({"plan": "pro"})).await;
        assert_eq!(server.limit("agent-7", "http/read").await, 500);
        assert_eq!(server.limit("agent-7", "http/heavy").await, 100);
        server.admin_json("PUT", &path, json!({"overrides": {"http/read": 3}})).await;
        assert_eq!(server.limit("agent-7", "http/heavy").await, 10);
        assert_eq!(server.limit("agent-7", "http/read").await, 3);
        let answer = server.admin_json("DELETE", &path, Value::Null).await;
        assert_eq!((&answer["overrides"], &answer["plan"]), (&json!({}), &json!(null)));
        assert_eq!(server.limit("agent-7", "http/read").await, 100);
    }
    assert!(server.limiter().assignments().is_empty());
}

#[tokio::test]
async fn names_of_paths_are_agents_under_the_alias() {
    let server = server().await;
    for name in ["defaults", "allowlist", "whitelist", "agents", "reload", "a%2Fb", "%FF"] {
        let path = format!("{BASE}/agents/{name}");
        server.admin_json("PUT", &path, json!({"overrides": {"http/read": 3}})).await;
        assert_eq!(server.admin_json("GET", &path, Value::Null).await["overrides"], json!({"http/read": "3/minute"}));
        server.admin_json("POST", &format!("{path}/reset_violations"), Value::Null).await;
    }
    let agents: Vec<_> = server.limiter().assignments().into_iter().map(|(agent, _)| agent).collect();
    assert_eq!(
        agents,
        ["a/b", "agents", "allowlist", "defaults", "reload", "whitelist"]
            .map(Vec::from)
            .into_iter()
            .chain([vec![0xff]])
            .collect::<Vec<_>>()
    );
    assert_eq!(server.limit("defaults", "http/read").await, 3);
}

#[tokio::test]
async fn the_allowlist_has_four_verbs_and_two_names() {
    let server = server().await;
    for (list, other) in [("allowlist", "whitelist"), ("whitelist", "allowlist")] {
        let path = format!("{BASE}/{list}");
        assert_eq!(server.admin_json("GET", &path, Value::Null).await, json!({"agents": []}));
        server.admin_json("POST", &path, json!({"agent": "a"})).await;
        let answer = server.admin_json("POST", &path, json!({"agent_id": "b"})).await;
        assert_eq!(answer, json!({"agents": ["a", "b"]}));
        let exempt = server.check(r#"{"agent": "a", "lane": "http/heavy", "cost": 1000000}"#).await;
        assert_eq!(json(&exempt)["verdict"], "exempt");
        let answer = server.admin_json("PUT", &path, json!({"agents": ["b", "c", {"base64": "/w=="}]})).await;
        assert_eq!(answer, json!({"agents": ["b", "c", {"base64": "/w=="}]}));
        assert_eq!(server.limit("a", "http/heavy").await, 10);
        assert_eq!(server.admin_json("PUT", &path, json!(["c"])).await, json!({"agents": ["c"]}));
        assert_eq!(server.admin_json("GET", &format!("{BASE}/{other}"), Value::Null).await, json!({"agents": ["c"]}));
        assert_eq!(server.admin_json("DELETE", &format!("{path}/c"), Value::Null).await, json!({"agents": []}));
        assert_eq!(server.limit("c", "http/heavy").await, 10);
    }
}

/// Replacing the allowlist used to limit the dashboard again.
#[tokio::test]
async fn an_agent_that_the_policy_exempts_stays_exempt_when_the_allowlist_changes() {
    let server = TestServer::with(Policy::preset("hub").expect("a preset"), |_| {}).await;
    let path = format!("{BASE}/whitelist");
    let is_exempt = async || {
        let answer = server.check(r#"{"agent": "dashboard", "lane": "http/heavy", "cost": 1000000}"#).await;
        assert_eq!(json(&answer)["verdict"], "exempt");
    };
    is_exempt().await;
    assert_eq!(server.admin_json("GET", &path, Value::Null).await, json!({"agents": ["dashboard"]}));
    assert_eq!(server.admin_json("PUT", &path, json!(["a"])).await, json!({"agents": ["a", "dashboard"]}));
    is_exempt().await;
    let answer = server.admin_json("DELETE", &format!("{path}/dashboard"), Value::Null).await;
    assert_eq!(answer, json!({"agents": ["a", "dashboard"]}));
    server.admin_json("PUT", &format!("{BASE}/defaults"), json!({"http/heavy": "7/min"})).await;
    is_exempt().await;
}

#[tokio::test]
async fn an_exemption_and_overrides_do_not_affect_each_other() {
    let server = server().await;
    let agent = format!("{BASE}/a");
    server.admin_json("PUT", &agent, json!({"overrides": {"http/read": 3}})).await;
    server.admin_json("PUT", &format!("{BASE}/allowlist"), json!({"agents": ["a"]})).await;
    server.admin_json("DELETE", &agent, Value::Null).await;
    assert!(server.limiter().is_exempt("a").expect("an id"), "no overrides, and still exempt");
    server.admin_json("PUT", &agent, json!({"overrides": {"http/read": 3}})).await;
    server.admin_json("PUT", &format!("{BASE}/allowlist"), json!({"agents": []})).await;
    assert_eq!(server.limit("a", "http/read").await, 3);
}

#[tokio::test]
async fn violations_are_forgiven_and_lanes_filled() {
    let server = server().await;
    let drained = r#"{"agent": "a", "lane": "http/heavy", "cost": 10}"#;
    for status in [200, 429, 429] {
        assert_eq!(server.check(drained).await.status, status);
    }
    let path = format!("{BASE}/a");
    assert_eq!(server.admin_json("GET", &path, Value::Null).await["violations"]["in_a_row"], 2);
    let answer = server.admin_json("POST", &format!("{path}/reset_violations"), Value::Null).await;
    assert_eq!((&answer["violations"]["in_a_row"], &answer["rate_limited"]), (&json!(0), &json!(false)));
    assert_eq!(server.check(drained).await.status, 429, "forgiving does not fill lanes");
    server.admin_json("POST", &format!("{path}/reset"), json!({})).await;
    assert_eq!(server.check(drained).await.status, 200);
}

#[tokio::test]
async fn a_change_of_limits_keeps_debt_except_in_the_hub() {
    for (preset, expected) in [("standard", 429), ("hub", 200)] {
        let server = TestServer::with(Policy::preset(preset).expect("a preset"), |_| {}).await;
        let capacity = server.limit("a", "http/heavy").await.as_u64().expect("a number");
        let drained = json!({"agent": "a", "lane": "http/heavy", "cost": capacity - 1}).to_string();
        assert_eq!(server.check(&drained).await.status, 200);
        server.admin_json("PUT", &format!("{BASE}/a"), json!({"overrides": {"http/heavy": "1/hour"}})).await;
        let next = server.check(r#"{"agent": "a", "lane": "http/heavy"}"#).await;
        assert_eq!(next.status, expected, "{preset}");
    }
}

#[tokio::test]
async fn an_invalid_change_is_answered_with_the_field_and_changes_nothing() {
    let server = server().await;
    server.admin_json("PUT", &format!("{BASE}/a"), json!({"overrides": {"http/read": 3}, "plan": "pro"})).await;
    let before = server.admin_json("GET", BASE, Value::Null).await;
    for (path, body, field, text) in [
        ("/a", json!([]), None, "overrides"),
        ("/a", json!({}), Some("overrides"), "missing"),
        ("/a", json!({"heavy": 3}), Some("heavy"), "no such field"),
        ("/a", json!({"overrides": []}), Some("overrides"), "lanes and their limits"),
        ("/a", json!({"overrides": {"http/reed": 3}}), Some("overrides.http/reed"), "the lanes are ws/heavy"),
        ("/a", json!({"overrides": {"heavy": 5, "http/read": "fast"}}), Some("overrides.http/read"), "fast"),
        ("/a", json!({"overrides": {"http/read": 0}}), Some("overrides.http/read"), "deny"),
        ("/a", json!({"overrides": {"http/read": -1}}), Some("overrides.http/read"), "per minute"),
        ("/a", json!({"overrides": {"http/read": null}}), Some("overrides.http/read"), "per minute"),
        ("/a", json!({"overrides": {"heavy": 5}, "plan": "free"}), Some("plan"), "the plans are default, pro"),
        ("/a", json!({"overrides": {"heavy": 5}, "plan": 7}), Some("plan"), "name of a plan"),
        ("/defaults", json!({"http/read": "5/s", "nothing": 1}), Some("nothing"), "no such lane or tier"),
        ("/defaults", json!({"http/read": "5/s", "heavy": true}), Some("heavy"), "per minute"),
        ("/defaults", json!("5/s"), None, "lanes and their limits"),
        ("/allowlist", json!({"agents": ["b", ""]}), Some("agents[1]"), "empty"),
        ("/allowlist", json!({"agents": "b"}), Some("agents"), "not a list"),
        ("/allowlist", json!({"agent": "b"}), Some("agent"), "no such field"),
        ("/%zz", json!({"plan": "pro"}), Some("agent"), "hexadecimal"),
    ] {
        assert_problem(&server.admin("PUT", &format!("{BASE}{path}"), body).await, 400, field, text);
    }
    for (body, field) in [(json!({}), Some("agent")), (json!({"agent": 7}), Some("agent")), (json!(7), None)] {
        assert_problem(&server.admin("POST", &format!("{BASE}/allowlist"), body).await, 400, field, "");
    }
    let broken = [("authorization", &*format!("Bearer {ADMIN}")), ("content-type", "application/json")];
    assert_problem(&server.send("PUT", &format!("{BASE}/a"), &broken, "{").await, 400, None, "not valid JSON");
    let huge = json!({"agents": vec!["a".repeat(250); 5_000]});
    assert_problem(&server.admin("PUT", &format!("{BASE}/allowlist"), huge).await, 413, None, "bytes at most");
    assert_eq!(server.admin_json("GET", BASE, Value::Null).await, before);
}

#[tokio::test]
async fn changes_survive_a_restart() {
    let directory = Directory::new("kept");
    let start = || TestServer::with(policy(), |settings| settings.state = Some(directory.path().join("state")));
    let mut server = start().await;
    server.admin_json("PUT", &format!("{BASE}/a"), json!({"overrides": {"heavy": 33}, "plan": "pro"})).await;
    server.admin_json("PUT", &format!("{BASE}/defaults"), json!({"http/read": "44/min"})).await;
    server.admin_json("POST", &format!("{BASE}/allowlist"), json!({"agent": "b"})).await;
    let before = server.admin_json("GET", BASE, Value::Null).await;
    assert!(before["kept_in"].as_str().expect("a path").ends_with("state"));
    server.stop();
    server.stopped().await;
    drop(server);
    let server = start().await;
    assert_eq!(server.admin_json("GET", BASE, Value::Null).await, before);
    assert_eq!(server.limit("a", "ws/heavy").await, 33);
    assert_eq!(server.limit("c", "http/read").await, 44);
    assert_eq!(server.limit("b", "http/read").await, json!(null));
    let second = tollgate_server::App::new(server.app.settings().clone(), Source::Policy(Box::new(policy())), None);
    assert!(second.err().expect("the state has one writer").to_string().contains("locked by another process"));
}

/// The state directory is gone: nothing can be saved, so nothing is changed.
#[tokio::test]
async fn a_change_that_cannot_be_saved_is_not_made() {
    let directory = Directory::new("lost");
    let state = directory.path().join("state");
    let server = TestServer::with(policy(), |settings| settings.state = Some(state.clone())).await;
    std::fs::remove_dir_all(&state).expect("a directory");
    let answer = server.admin("PUT", &format!("{BASE}/a"), json!({"overrides": {"heavy": 33}})).await;
    assert_problem(&answer, 500, None, "cannot write");
    let answer = server.admin("PUT", &format!("{BASE}/defaults"), json!({"http/read": "44/min"})).await;
    assert_problem(&answer, 500, None, "was not made");
    assert_eq!(server.limit("a", "http/heavy").await, 10);
    assert_eq!(server.limit("a", "http/read").await, 100);
    assert_eq!(server.admin_json("GET", BASE, Value::Null).await["defaults_changed"], json!({}));
}

#[tokio::test]
async fn a_reload_puts_the_file_in_force_or_changes_nothing() {
    let directory = Directory::new("reload");
    let file = directory.path().join("tollgate.toml");
    let write = |limit: &str| {
        std::fs::write(&file, format!("[lanes]\napi = \"{limit}\"\nrun = \"1/min\"\n")).expect("a file");
    };
    write("10/min");
    let server = TestServer::from(Source::File(file.clone()), |_| {}).await;
    assert_eq!(server.limit("a", "api").await, 10);
    write("20/min");
    assert_eq!(server.limit("a", "api").await, 10, "not before the reload");
    let answer = server.admin_json("POST", "/api/admin/reload", Value::Null).await;
    assert_eq!(answer, json!({"reloaded": true, "needs_restart": false, "hidden_by_defaults": []}));
    assert_eq!(server.limit("a", "api").await, 20);
    write("0/min");
    let broken = server.admin("POST", "/api/admin/reload", Value::Null).await;
    assert_problem(&broken, 422, None, "line 2, column 7: lane \"api\": a rate or burst of 0");
    assert_eq!(server.limit("a", "api").await, 20);
    std::fs::write(&file, "[lanes]\napi = \"30/min\"\n").expect("a file");
    let other = server.admin("POST", "/api/admin/reload", Value::Null).await;
    assert_problem(&other, 422, None, "other lanes");
    assert_eq!(server.limit("a", "api").await, 20);
    // Limits set through the admin API override the file, and the reload lists them.
    server.admin_json("PUT", &format!("{BASE}/defaults"), json!({"api": "50/min"})).await;
    std::fs::write(&file, "[lanes]\napi = \"30/min\"\nrun = \"2/min\"\n[server]\nagents = 5\n").expect("a file");
    let answer = server.admin_json("POST", "/api/admin/reload", Value::Null).await;
    assert_eq!(answer, json!({"reloaded": true, "needs_restart": true, "hidden_by_defaults": ["api"]}));
    assert_eq!((server.limit("a", "api").await, server.limit("a", "run").await), (json!(50), json!(2)));
    server.admin_json("DELETE", &format!("{BASE}/defaults"), Value::Null).await;
    assert_eq!(server.limit("a", "api").await, 30);
}

fn any_change() -> impl Strategy<Value = Value> {
    let limit = prop_oneof![
        (0..5_u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop_oneof![Just("10/s"), Just("deny"), Just("1/year"), Just("")].prop_map(Value::from),
        Just(Value::Null),
        ".{0,6}".prop_map(Value::from),
    ];
    let lane = prop_oneof![Just("heavy"), Just("ws/heavy"), Just("http/read"), Just("x")];
    let limits = proptest::collection::btree_map(lane, limit.clone(), 0..4).prop_map(|limits| json!(limits));
    let ids = proptest::collection::vec(prop_oneof![Just(json!("a")), Just(json!("b")), limit.clone()], 0..4);
    let plan = prop_oneof![Just(json!("pro")), Just(json!("default")), Just(json!(null)), limit];
    prop_oneof![
        limits.clone(),
        (limits, plan).prop_map(|(overrides, plan)| json!({"overrides": overrides, "plan": plan})),
        ids.prop_map(|ids| json!({"agents": ids})),
        prop_oneof![Just("a"), Just(""), Just("b")].prop_map(|agent| json!({"agent": agent})),
        any::<u64>().prop_map(Value::from),
    ]
}

/// Each change is made as a whole or not at all.
#[test]
fn no_change_is_half_made() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(server());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 500, ..ProptestConfig::default() });
    let method = prop_oneof![Just("PUT"), Just("POST"), Just("DELETE")];
    let path = prop_oneof![Just("/defaults"), Just("/allowlist"), Just("/a"), Just("/agents/b"), Just("/whitelist/a")];
    let run = |(method, path, body): (&str, &str, Value)| {
        runtime.block_on(async {
            let before = server.admin_json("GET", BASE, Value::Null).await;
            let answer = server.admin(method, &format!("{BASE}{path}"), body).await;
            match answer.status.as_u16() {
                200 => {}
                400 | 405 => assert_eq!(server.admin_json("GET", BASE, Value::Null).await, before, "{answer:?}"),
                other => panic!("{other}: {answer:?}"),
            }
            let after = server.admin_json("GET", BASE, Value::Null).await;
            assert!(!server.limit("stranger", "http/read").await.is_null(), "{after}");
        });
        Ok(())
    };
    if let Err(error) = runner.run(&(method, path, any_change()), run) {
        panic!("{error}");
    }
}
