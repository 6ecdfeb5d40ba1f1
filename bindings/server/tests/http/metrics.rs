//! `/metrics`, and the alerts that are made of it.

use crate::common::{Running, header};
use serde_json::json;
use std::collections::BTreeMap;
use tollgate::Policy;

fn policy() -> Policy {
    let policy =
        Policy::builder().lane("ws/light", "5/min").lane("odd\"\\", "1/min").plan("pro", [("ws/light", "9/min")]);
    policy.build().expect("a policy")
}

/// A page read as Prometheus does: families with their kind, samples with their value.
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

async fn page(server: &Running, accept: &str) -> (String, String) {
    let answer = server.send("GET", "/metrics", &[("accept", accept)], "").await;
    assert_eq!(answer.status, 200);
    let kind = header(&answer, "content-type").expect("a type").to_owned();
    (kind, String::from_utf8(answer.body.to_vec()).expect("a text"))
}

#[tokio::test]
async fn everything_is_counted_and_nobody_is_named() {
    let server = Running::with(policy(), |_| {}).await;
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
        ("tollgate_keys".to_owned(), 3.0),
        ("tollgate_agents_assigned{what=\"exempt\"}".to_owned(), 1.0),
        ("tollgate_config_reloads_total{result=\"success\"}".to_owned(), 0.0),
    ] {
        assert_eq!(page.samples.get(&sample), Some(&value), "{sample}\n{text}");
    }
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds"] {
        assert!(page.samples[name] > 0.0, "{name}");
    }
}

/// The rules that promtool checks: names, units, kinds, and one family for each sample.
#[tokio::test]
async fn names_follow_the_conventions_in_both_formats() {
    let server = Running::with(policy(), |settings| settings.metrics_agents = vec!["pin\"\n\\ned".into()]).await;
    server.check(r#"{"agent": "a", "lane": "ws/light"}"#).await;
    for (accept, is_open) in [("*/*", false), ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", true)] {
        let (kind, text) = page(&server, accept).await;
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

#[tokio::test]
async fn every_alert_is_made_of_what_is_there() {
    const ALERTS: &str = include_str!("../../deploy/alerts.yml");
    let server = Running::with(policy(), |_| {}).await;
    let (_, text) = page(&server, "text/plain").await;
    let kinds = Page::read(&text).kinds;
    let mut metrics = 0;
    for line in ALERTS.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in words.filter(|word| word.starts_with("tollgate_") || word.starts_with("rate_limit_")) {
            assert!(kinds.contains_key(name), "{line}");
            metrics += 1;
        }
    }
    assert_eq!(metrics, 7);
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
