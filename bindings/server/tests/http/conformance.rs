//! The requests of `bindings/gate/conformance` at `/v1/gate`, which answers as every adapter does.
//!
//! The test is the gateway: it sends what it knows of its client's request, and if the answer is 200 the service behind
//! it says hello.

use crate::common::TestServer;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tollgate::{ManualClock, Policy};
use tollgate_server::client::Answer;
use tollgate_server::{App, Settings, Source};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list")).iter()
}

/// One of `keys` as an operator writes it.
fn key(key: &Value) -> String {
    let (kind, value) = key.as_object().and_then(|key| key.iter().next()).expect("a key");
    let (kind, value) = if kind == "function" { ("header", &key["reads"]) } else { (kind.as_str(), value) };
    let prefix = key.get("prefix").map(|prefix| format!(", prefix = {prefix}")).unwrap_or_default();
    format!("{{ {kind} = {value}{prefix} }}")
}

/// The policy file of a case.
fn file(case: &Value) -> String {
    let (mut gate, mut routes) = (String::from("[gate]\n"), String::new());
    let mut trusted = vec![json!("127.0.0.1")];
    for (name, value) in case["gate"].as_object().expect("settings") {
        // Strings, numbers and lists are the same in TOML.
        let (name, value) = match name.as_str() {
            "keys" => ("agent", format!("[{}]", list(value).map(key).collect::<Vec<_>>().join(", "))),
            "style" => ("headers", value.to_string()),
            "trusted_proxies" => {
                trusted.extend(list(value).cloned());
                continue;
            }
            "routes" => {
                routes = list(value)
                    .fold("[gate.routes]\n".to_owned(), |text, rule| format!("{text}{} = {}\n", rule[0], rule[1]));
                continue;
            }
            // Over HTTP every check is counted. The others are in the URL.
            "count_violations" | "cost" | "plans" => continue,
            name => (name, value.to_string()),
        };
        writeln!(gate, "{name} = {value}").expect("a text");
    }
    let policy: Vec<_> = list(&case["policy"]).map(text).collect();
    format!("{}\n[server]\ntrusted_proxies = {}\n{gate}{routes}", policy.join("\n"), Value::from(trusted))
}

/// The URL that the operator gives the gateway for requests such as this one.
fn url(gate: &Value, headers: &[(&str, &str)]) -> String {
    let sent = |name: &Value| headers.iter().find(|(known, _)| *known == text(name)).map(|(_, value)| *value);
    let cost = gate.get("cost").and_then(|cost| sent(&cost["reads"])).map(|cost| format!("cost={cost}"));
    let plans = gate.get("plans").map(list).into_iter().flatten();
    let mut plans = plans.filter(|plan| sent(&plan["reads"]).is_some());
    let plan = plans.next().map(|plan| format!("plan={}", text(&plan["plan"])));
    let query: Vec<_> = cost.into_iter().chain(plan).collect();
    if query.is_empty() { "/v1/gate".to_owned() } else { format!("/v1/gate?{}", query.join("&")) }
}

/// The client's response in the form of the files.
fn shown(answer: &Answer) -> Value {
    // Of every response of this server.
    let own = ["content-length", "date", "x-content-type-options", "connection"];
    let mut shown = serde_json::Map::new();
    let mut names: Vec<_> = answer.headers.keys().filter(|name| !own.contains(&name.as_str())).collect();
    names.sort_by_key(|name| name.as_str());
    for name in names {
        let values: Vec<_> = answer.headers.get_all(name).iter().map(|value| value.to_str().expect("a text")).collect();
        shown.insert(name.to_string(), if let [value] = values[..] { json!(value) } else { json!(values) });
    }
    let body = if answer.status.is_success() {
        assert!(answer.body.is_empty(), "{answer:?}");
        "hello".into()
    } else {
        String::from_utf8_lossy(&answer.body)
    };
    json!({"status": answer.status.as_u16(), "headers": shown, "body": body})
}

async fn run(case: &Value) {
    let name = text(&case["name"]);
    let file = file(case);
    let policy = Policy::from_toml(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut settings = Settings::from_toml(&file, Path::new("")).unwrap_or_else(|error| panic!("{name}: {error}"));
    settings.listen = "127.0.0.1:0".parse().expect("an address");
    settings.agents = 100;
    let clock = ManualClock::new();
    let app = App::new(settings, Source::Policy(Box::new(policy)), Some(clock.clone().into())).expect("an app");
    let app = app.with_wall_clock(|| SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_250)).expect("an app");
    let server = TestServer::serve(app, clock.clone()).await;
    let mut client = server.client().await;
    for (number, step) in list(&case["steps"]).enumerate() {
        let expected = step.get("of_server").unwrap_or(&step["response"]);
        clock.advance(Duration::from_millis(step.get("advance_ms").map_or(0, |ms| ms.as_u64().expect("a number"))));
        let (method, target) = text(&step["request"]).split_once(' ').expect("a method and a target");
        let headers = step.get("headers").map(list).into_iter().flatten();
        let mut headers: Vec<_> = headers.map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
        let url = url(&case["gate"], &headers);
        headers.extend([("x-forwarded-method", method), ("x-forwarded-uri", target)]);
        headers.extend(step.get("peer").map(|peer| ("x-forwarded-for", text(peer))));
        for time in (1..=step.get("times").map_or(1, |times| times.as_u64().expect("a number"))).rev() {
            let answer = client.send("GET", &url, &headers, "").await.expect("an answer");
            match time {
                1 => assert_eq!(shown(&answer), *expected, "{name}, step {number}"),
                _ => assert_eq!(shown(&answer)["body"], "hello", "{name}, step {number}"),
            }
        }
    }
}

#[tokio::test]
async fn gateways_get_the_answers_of_every_adapter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gate/conformance");
    let (mut cases, mut others) = (0, 0);
    for file in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let suite = std::fs::read_to_string(&file).expect("a file");
        let suite: Value = serde_json::from_str(&suite).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for case in list(&suite["cases"]) {
            let differs = list(&case["steps"]).any(|step| step.get("of_server").is_some());
            assert_eq!(differs, case.get("server").is_some(), "{}: say why", case["name"]);
            if case.get("not_of_server").is_some() {
                others += 1;
            } else {
                run(case).await;
                cases += 1;
            }
        }
    }
    assert!(cases >= 29 && others <= 1, "{cases} cases were run, and {others} were not");
}
