//! `/metrics`, and the alerts that use it.

use crate::common::{CHECK, TestServer, header};
use crate::directory::Directory;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate::Policy;
use tollgate_server::client::Client;
use tollgate_server::{Address, ClusterSettings, Listen, Secret};

fn policy() -> Policy {
    let policy =
        Policy::builder().lane("ws/light", "5/min").lane("odd\"\\", "1/min").plan("pro", [("ws/light", "9/min")]);
    policy.build().expect("a policy")
}

/// A page, parsed like Prometheus does: families with their kind, samples with their value.
#[derive(Default)]
struct Page {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => {
                    let mut words = comment.splitn(3, ' ');
                    let (what, name) = (words.next().expect("a word"), words.next());
                    match (what, name, words.next()) {
                        ("TYPE", Some(name), Some(kind)) => {
                            assert_eq!(page.kinds.insert(name.to_owned(), kind.to_owned()), None, "{name} twice");
                        }
                        ("HELP", Some(_), Some(help)) => assert!(help.ends_with('.'), "{help}"),
                        ("EOF", None, None) => {}
                        _ => panic!("{line}"),
                    }
                }
                None => {
                    let (name, value) = line.rsplit_once(' ').expect("a sample");
                    let value = value.parse().expect("a number");
                    assert_eq!(page.samples.insert(name.to_owned(), value), None, "{name} twice");
                }
            }
        }
        page
    }
}

async fn page(server: &TestServer, accept: &str) -> (String, String) {
    let answer = server.send("GET", "/metrics", &[("accept", accept)], "").await;
    assert_eq!(answer.status, 200);
    let kind = header(&answer, "content-type").expect("a type").to_owned();
    (kind, String::from_utf8(answer.body.to_vec()).expect("a text"))
}

#[tokio::test]
async fn everything_is_counted_and_no_agent_is_named() {
    let server = TestServer::with(policy(), |_| {}).await;
    server.limiter().exempt("secret-exempt").expect("an id");
    server.limiter().assign("secret-pro", server.limiter().plan("pro").expect("a plan")).expect("an id");
    for (agent, cost, times) in [("secret-a", 1, 7), ("secret-exempt", 3, 1), ("secret-pro", 9, 2)] {
        for _ in 0..times {
            server.check(&json!({"agent": agent, "lane": "ws/light", "cost": cost}).to_string()).await;
        }
    }
    server.check(r#"{"agent": "secret-a", "lane": "ws/light", "cost": 1, "plan": "pro"}"#).await;
    let (kind, text) = page(&server, "text/plain").await;
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    assert!(!text.contains("secret"), "{text}");
    let page = Page::read(&text);
    let light = r#"policy="ws/light",tier="light",channel="ws""#;
    for (sample, value) in [
        (format!("tollgate_decisions_total{{{light},outcome=\"allow\"}}"), 4.0),
        (format!("tollgate_decisions_total{{{light},outcome=\"warn\"}}"), 2.0),
        (format!("tollgate_decisions_total{{{light},outcome=\"deny\"}}"), 4.0),
        (format!("tollgate_decisions_total{{{light},outcome=\"exempt\"}}"), 1.0),
        ("tollgate_cost_total{policy=\"ws/light\"}".to_owned(), 14.0),
        ("tollgate_cost_total{policy=\"odd\\\"\\\\\"}".to_owned(), 0.0),
        ("rate_limit_hits_total{endpoint=\"ws/light\",user_tier=\"default\"}".to_owned(), 2.0),
        ("rate_limit_hits_total{endpoint=\"ws/light\",user_tier=\"pro\"}".to_owned(), 2.0),
        ("tollgate_check_duration_seconds_count".to_owned(), 11.0),
        ("tollgate_check_duration_seconds_bucket{le=\"+Inf\"}".to_owned(), 11.0),
        ("tollgate_keys".to_owned(), 2.0), // An exempt agent has no record.
        ("tollgate_agents_assigned{what=\"exempt\"}".to_owned(), 1.0),
        ("tollgate_config_reloads_total{result=\"success\"}".to_owned(), 0.0),
    ] {
        assert_eq!(page.samples.get(&sample), Some(&value), "{sample}\n{text}");
    }
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds"] {
        assert!(page.samples[name] > 0.0, "{name}");
    }
}

#[tokio::test]
async fn open_connections_are_counted_by_listener() {
    let directory = Directory::new("connections");
    let socket = Address::Unix(directory.path().join("tollgate.sock"));
    let both = Listen::new("127.0.0.1:0".parse::<Address>().expect("an address"), [socket.clone()]);
    let server = TestServer::with(policy(), |settings| settings.listen = both).await;
    let mut reader = server.client().await;
    let mut counts = async || {
        let answer = reader.send("GET", "/metrics", &[], "").await.expect("an answer");
        let page = Page::read(std::str::from_utf8(&answer.body).expect("a text"));
        ["tcp", "tls", "unix"].map(|kind| page.samples[&format!("tollgate_connections{{listener=\"{kind}\"}}")])
    };
    assert_eq!(counts().await, [1.0, 0.0, 0.0]);
    let (mut tcp, mut unix) = (server.client().await, Client::connect(socket).await.expect("a connection"));
    for client in [&mut tcp, &mut unix] {
        assert_eq!(client.send("GET", "/healthz", &[], "").await.expect("an answer").status, 200);
    }
    assert_eq!(counts().await, [2.0, 0.0, 1.0]);
    drop((tcp, unix));
    // Until the server has noticed that they are gone.
    while counts().await != [1.0, 0.0, 0.0] {}
}

/// Twelve malformed requests used to leave every count at 0.
#[tokio::test]
async fn every_response_is_counted_by_status_and_reason() {
    let server = TestServer::with(policy(), |settings| settings.check_token = Some(CHECK.to_owned())).await;
    let with_token = [("authorization", &*format!("Bearer {CHECK}"))];
    for (body, times) in [
        (r#"{"agent": "a", "lane": "ws/light", "cost": 5}"#, 2),
        ("{", 1),
        (r#"{"agent": "a", "lane": "no lane"}"#, 2),
        (r#"{"agent": "a", "lane": "ws/light", "cost": 0}"#, 1),
        (r#"{"agent": "a", "what": 1}"#, 1),
        ("[]", 1),
        (&" ".repeat(5_000), 1),
    ] {
        for _ in 0..times {
            server.send("POST", "/v1/check", &with_token, body).await;
        }
    }
    server.check(r#"{"agent": "a"}"#).await;
    server.send("GET", "/nowhere", &[], "").await;
    server.send("PUT", "/v1/check", &[], "").await;
    server.send("GET", "/healthz", &[("host", "evil.example")], "").await;
    let mut no_http = tokio::net::TcpStream::connect(server.address).await.expect("a connection");
    no_http.write_all(b"\x16\x03\x01 no HTTP\r\n\r\n").await.expect("an open connection");
    no_http.read_to_end(&mut Vec::new()).await.expect("an answer and the end");
    drop(no_http);
    // That one is counted when its connection is closed.
    let text = loop {
        let (_, text) = page(&server, "text/plain").await;
        if text.contains("reason=\"http\"") {
            break text;
        }
    };
    let responses = text.lines().filter_map(|line| line.strip_prefix("tollgate_responses_total"));
    let responses: Vec<_> = responses.filter(|sample| !sample.starts_with("{status=\"200\"")).collect();
    let expected = [
        r#"{status="400",reason="field"} 4"#,
        r#"{status="400",reason="http"} 1"#,
        r#"{status="400",reason="json"} 1"#,
        r#"{status="400",reason="request"} 1"#,
        r#"{status="401",reason="token"} 1"#,
        r#"{status="404",reason="unknown"} 1"#,
        r#"{status="405",reason="method"} 1"#,
        r#"{status="413",reason="too_large"} 1"#,
        r#"{status="421",reason="host"} 1"#,
        r#"{status="429",reason="denied"} 1"#,
    ];
    assert_eq!(responses, expected);
    assert!(text.contains("tollgate_responses_total{status=\"200\",reason=\"ok\"} "), "{text}");
    assert!(text.contains("tollgate_errors_total{reason=\"request\"} 12\n"), "{text}");
}

/// A cost above the capacity is answered as a denial. It used to be counted as a
/// hit and as an error, but not as a denial.
#[tokio::test]
async fn a_cost_that_can_never_pass_is_a_denial_everywhere() {
    let server = TestServer::with(policy(), |_| {}).await;
    let (too_much, fine) =
        (json!({"agent": "a", "lane": "ws/light", "cost": 6}), json!({"agent": "a", "lane": "odd\"\\"}));
    let reserve = json!({"agent": "a", "lane": "ws/light", "estimate": 6});
    for (path, body, status) in [
        ("/v1/check", &too_much, 429),
        ("/v1/check/many", &json!({"requests": [too_much]}), 200),
        ("/v1/check/all", &json!({"requests": [too_much, fine]}), 429),
        ("/v1/reserve", &reserve, 429),
    ] {
        let answer = server.send("POST", path, &[], &body.to_string()).await;
        assert_eq!(answer.status, status, "{path}");
        let body = crate::common::json(&answer);
        let verdict = if path.ends_with("many") { &body["verdicts"][0] } else { &body };
        assert_eq!((&verdict["verdict"], &verdict["retry_after"]), (&json!("deny"), &json!(null)), "{path}: {body}");
    }
    let (_, text) = page(&server, "text/plain").await;
    let page = Page::read(&text);
    let light = r#"policy="ws/light",tier="light",channel="ws",outcome="deny""#;
    for (sample, value) in [
        (format!("tollgate_decisions_total{{{light}}}"), 4.0),
        ("rate_limit_hits_total{endpoint=\"ws/light\",user_tier=\"default\"}".to_owned(), 4.0),
        ("tollgate_errors_total{reason=\"request\"}".to_owned(), 0.0),
        ("tollgate_cost_total{policy=\"odd\\\"\\\\\"}".to_owned(), 0.0),
    ] {
        assert_eq!(page.samples.get(&sample), Some(&value), "{sample}\n{text}");
    }
}

/// Denials by an enforced wait used to be in no count.
#[tokio::test]
async fn denials_by_an_enforced_wait_are_counted_on_every_path() {
    let conduct = tollgate::ConductRules::default().with_every_denial(true).with_enforced_wait(true);
    let conduct = conduct.with_curve([std::time::Duration::from_secs(9)]);
    let lanes = tollgate::Policy::builder().lane("llm", "budget 100/day").lane("small", "1/min").conduct(conduct);
    let server = TestServer::with(lanes.build().expect("a policy"), |_| {}).await;
    assert!(server.check(r#"{"agent": "b", "lane": "small"}"#).await.status == 200);
    server.limiter().record_violation("a").expect("an id");
    let part = |agent, lane| json!({"agent": agent, "lane": lane});
    for (path, body) in [
        ("/v1/check", part("a", "llm")),
        ("/v1/reserve", json!({"agent": "a", "lane": "llm", "estimate": 1})),
        ("/v1/check/all", json!({"requests": [part("a", "llm"), part("b", "llm"), part("b", "small")]})),
    ] {
        assert_eq!(server.send("POST", path, &[], &body.to_string()).await.status, 429, "{path}");
    }
    let (_, text) = page(&server, "text/plain").await;
    let page = Page::read(&text);
    for (lane, denied) in [("llm", 3.0), ("small", 1.0)] {
        let labels = format!(r#"policy="{lane}",tier="{lane}",channel="",outcome="deny""#);
        let sample = format!("tollgate_decisions_total{{{labels}}}");
        assert_eq!(page.samples.get(&sample), Some(&denied), "{sample}\n{text}");
        let hits = format!("rate_limit_hits_total{{endpoint=\"{lane}\",user_tier=\"default\"}}");
        assert_eq!(page.samples.get(&hits), Some(&denied), "{hits}\n{text}");
    }
}

/// Agents that have gone away stay in the counts until a sweep.
#[tokio::test]
async fn idle_records_are_swept_and_counted() {
    let server = TestServer::with(policy(), |settings| settings.sweep_every = std::time::Duration::from_secs(1)).await;
    server.check(r#"{"agent": "gone", "lane": "ws/light", "cost": 5}"#).await;
    server.check(r#"{"agent": "gone too", "lane": "ws/light"}"#).await;
    // A minute until the lane is full, and ten more.
    server.clock.advance(std::time::Duration::from_secs(661));
    server.check(r#"{"agent": "busy", "lane": "ws/light"}"#).await;
    let page = loop {
        let page = Page::read(&page(&server, "text/plain").await.1);
        // A sweep may have run before the clock was moved.
        if page.samples["tollgate_swept_records_total"] > 0.0 {
            break page;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!((page.samples["tollgate_swept_records_total"], page.samples["tollgate_keys"]), (2.0, 1.0));
    assert!(page.samples["tollgate_sweeps_total"] >= 1.0);
}

/// A server with this policy on a slab.
async fn on_slab(policy: Policy, slab: &str) -> TestServer {
    TestServer::with(policy, |settings| settings.slab = Some(slab.into())).await
}

#[tokio::test]
async fn a_shared_limiter_shows_who_shares_it_and_a_private_one_does_not() {
    let private = TestServer::with(policy(), |_| {}).await;
    let text = page(&private, "text/plain").await.1;
    assert!(!text.contains("tollgate_shared_") && !text.contains("tollgate_policy_differs"), "{text}");
    let memory = Directory::in_memory("metrics");
    let first = on_slab(policy(), &memory.slab()).await;
    let other =
        Policy::builder().lane("ws/light", "6/min").lane("odd\"\\", "1/min").plan("pro", [("ws/light", "9/min")]);
    let second = on_slab(other.build().expect("a policy"), &memory.slab()).await;
    let samples = async |server: &TestServer, names: &[&str]| {
        let page = Page::read(&page(server, "text/plain").await.1);
        names.iter().map(|name| page.samples[*name]).collect::<Vec<_>>()
    };
    let shared = ["tollgate_shared_processes", "tollgate_shared_takeovers_total", "tollgate_shared_busy_total"];
    assert_eq!(samples(&first, &shared).await, [2.0, 0.0, 0.0]);
    let wrong = ["tollgate_shared_detached", "tollgate_policy_differs"];
    assert_eq!(samples(&first, &wrong).await, [0.0, 0.0]);
    assert_eq!(samples(&second, &wrong).await, [0.0, 1.0]);
    // Verdicts are counted together, and responses by each server.
    first.check(r#"{"agent": "a", "lane": "ws/light"}"#).await;
    let light = r#"policy="ws/light",tier="light",channel="ws",outcome="allow""#;
    let counts = [&*format!("tollgate_decisions_total{{{light}}}"), "tollgate_cost_total{policy=\"ws/light\"}"];
    assert_eq!((samples(&first, &counts).await, samples(&second, &counts).await), (vec![1.0, 1.0], vec![1.0, 0.0]));
    std::fs::remove_file(format!("{}.v1", memory.slab())).expect("a slab");
    assert_eq!(samples(&first, &wrong).await, [1.0, 0.0]);
}

/// The rules of promtool: names, units, kinds, and one family for each sample.
#[tokio::test]
async fn names_follow_the_conventions_in_both_formats() {
    let memory = Directory::in_memory("names");
    let server = TestServer::with(policy(), |settings| {
        settings.metrics_agents = vec!["pin\"\n\\ned".into()];
        settings.slab = Some(memory.slab().into());
    })
    .await;
    let cluster = ClusterSettings::new(&policy(), "redis+unix:///nobody", Secret::new("0f6f4c0d9d1e7e4a"));
    let machine = TestServer::with(policy(), |settings| {
        settings.metrics_agents = vec!["pin\"\n\\ned".into()];
        settings.cluster = cluster.ok();
    })
    .await;
    let open = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    for (server, accept, is_open) in
        [(&server, "*/*", false), (&server, open, true), (&machine, "*/*", false), (&machine, open, true)]
    {
        server.check(r#"{"agent": "a", "lane": "ws/light"}"#).await;
        let (kind, text) = page(server, accept).await;
        assert_eq!(kind.starts_with("application/openmetrics-text; version=1.0.0"), is_open);
        assert_eq!(text.ends_with("# EOF\n"), is_open);
        assert!(text.contains(r#"rate_limit_remaining{user_id="pin\"\n\\ned",endpoint="ws/light"} 5"#), "{text}");
        let page = Page::read(&text);
        for sample in page.samples.keys() {
            let name = sample.split('{').next().expect("a name");
            let (family, kind) = page
                .kinds
                .iter()
                .filter(|(family, _)| name.starts_with(family.as_str()))
                .max_by_key(|(family, _)| family.len())
                .unwrap_or_else(|| panic!("{name} has no family"));
            let rest = &name[family.len()..];
            match (kind.as_str(), is_open) {
                ("counter", true) => assert_eq!(rest, "_total", "{name}"),
                ("counter", false) => assert!(rest.is_empty() && name.ends_with("_total"), "{name}"),
                ("gauge", _) => assert!(rest.is_empty() && !name.ends_with("_total"), "{name}"),
                ("histogram", _) => assert!(["_bucket", "_sum", "_count"].contains(&rest), "{name}"),
                _ => panic!("{kind}"),
            }
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        }
    }
}

/// The pages of a server on a slab, and of one of several machines, though no store listens.
async fn pages(slab: &str) -> (Page, Page) {
    let server = on_slab(policy(), slab).await;
    let cluster = ClusterSettings::new(&policy(), "redis+unix:///nobody", Secret::new("0f6f4c0d9d1e7e4a"));
    let machine = TestServer::with(policy(), |settings| settings.cluster = cluster.ok()).await;
    for server in [&server, &machine] {
        server.check(r#"{"agent": "a", "lane": "ws/light", "cost": 6}"#).await;
    }
    (Page::read(&page(&server, "text/plain").await.1), Page::read(&page(&machine, "text/plain").await.1))
}

/// The metrics that an expression names.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| ["tollgate_", "rate_limit_", "process_"].iter().any(|start| word.starts_with(start)))
}

/// Nobody would notice an expression without data.
#[tokio::test]
async fn the_dashboard_for_grafana_uses_metrics_and_labels_that_exist() {
    let memory = Directory::in_memory("grafana");
    let (server, machine) = pages(&memory.slab()).await;
    let mut samples = server.samples;
    samples.extend(machine.samples);
    let names: BTreeSet<_> = samples.keys().filter_map(|sample| sample.split('{').next()).collect();
    // Prometheus adds the first two.
    let mut labels = BTreeSet::from(["job", "instance"]);
    for pairs in samples.keys().filter_map(|sample| sample.split_once('{')) {
        labels.extend(pairs.1.split("=\"").map(|text| text.rsplit(['"', ',']).next().expect("a piece")));
    }
    let dashboard: Value = serde_json::from_str(include_str!("../../deploy/grafana.json")).expect("JSON");
    let (mut ids, mut metrics) = (BTreeSet::new(), 0);
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let targets = panel.get("targets").and_then(Value::as_array);
        assert_eq!(panel["type"] == "row", targets.is_none_or(Vec::is_empty), "{panel}");
        for target in targets.into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            assert!(named(expression).next().is_some(), "{expression}");
            for name in named(expression) {
                assert!(names.contains(name), "{name}: {expression}");
                metrics += 1;
            }
            let by = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
            let matched = expression.split('{').skip(1).filter_map(|rest| rest.split('}').next());
            let matched = matched.flat_map(|pairs| pairs.split(',')).filter_map(|pair| pair.split('=').next());
            let legend = target["legendFormat"].as_str().expect("a legend");
            let legend = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
            for label in by.flat_map(|list| list.split(',')).chain(matched).chain(legend).map(str::trim) {
                assert!(labels.contains(label), "{label}: {expression}");
            }
        }
    }
    assert!(metrics > 30, "{metrics}");
}

#[tokio::test]
async fn every_alert_uses_metrics_that_exist() {
    const ALERTS: &str = include_str!("../../deploy/alerts.yml");
    let memory = Directory::in_memory("alerts");
    let (server, machine) = pages(&memory.slab()).await;
    let mut metrics = 0;
    for line in ALERTS.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        for name in named(line) {
            assert!(server.kinds.contains_key(name) || machine.kinds.contains_key(name), "{line}");
            metrics += 1;
        }
    }
    assert_eq!(metrics, 22);
    let rule: Vec<_> =
        ALERTS.lines().skip_while(|line| !line.contains("HighRateLimitHits")).map(str::trim).take(5).collect();
    let expected = [
        "- alert: HighRateLimitHits",
        "expr: rate(rate_limit_hits_total[5m]) > 100",
        "for: 5m",
        "labels:",
        "severity: warning",
    ];
    assert_eq!(rule, expected);
}
