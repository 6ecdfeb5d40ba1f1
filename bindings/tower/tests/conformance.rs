//! The requests of `bindings/gate/conformance`, and the responses that every adapter gives.

#![allow(clippy::panic, reason = "a panic here is a failure that names its line")]

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tollgate::{Limiter, ManualClock, Policy};
use tollgate_tower::{Head, Key, Peer, TollgateLayer};
use tower::{Layer, ServiceExt, service_fn};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list")).iter()
}

fn pair(value: &Value) -> (&str, &str) {
    (text(&value[0]), text(&value[1]))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// A function that a gate is given: it reads a header.
fn header(name: &Value) -> impl for<'a> Fn(&Head<'a>) -> Option<String> + Send + Sync + 'static {
    let name = text(name).to_owned();
    move |head| Some(head.headers.get(&name)?.to_str().ok()?.to_owned())
}

fn key(key: &Value) -> Key {
    let source = key.as_object().and_then(|key| key.iter().next()).expect("a key");
    let made = match (source.0.as_str(), source.1) {
        ("header", name) => Key::header(text(name)),
        ("secret_header", name) => Key::secret_header(text(name)),
        ("address", bits) => Key::address().ipv6_prefix(number(bits).try_into().expect("bits")),
        ("shared", id) => Key::shared(text(id)),
        ("function", what) => Key::function(text(what), header(&key["reads"])),
        (other, _) => panic!("a key by {other}"),
    };
    key.get("prefix").map(text).into_iter().fold(made, |key, prefix| key.prefix(prefix))
}

fn layer(limiter: Limiter, gate: &Value) -> TollgateLayer {
    let wall_clock = || SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_250);
    let mut builder = TollgateLayer::builder(limiter).peer::<Peer>().wall_clock(wall_clock);
    for (name, value) in gate.as_object().expect("settings") {
        builder = match name.as_str() {
            "keys" => list(value).fold(builder, |builder, value| builder.key(key(value))),
            "lane" => builder.lane(text(value)),
            "pass_others" => builder.pass_others(),
            "routes" => list(value).map(pair).fold(builder, |builder, (rule, lane)| builder.route(rule, lane)),
            "path_contains" => {
                list(value).map(pair).fold(builder, |builder, (text, lane)| builder.path_contains(text, lane))
            }
            "cost" => {
                let cost = header(&value["reads"]);
                builder.cost(move |head| cost(head).map_or(1, |cost| cost.parse().expect("a number")))
            }
            "plans" => list(value).fold(builder, |builder, value| {
                let proof = header(&value["reads"]);
                builder.plan(text(&value["plan"]), move |head| proof(head).is_some())
            }),
            "count_violations" => builder.count_violations(),
            "answer_head" => builder.answer_head(),
            "trusted_proxies" => builder.trusted_proxies(list(value).map(text)),
            "allow_networks" => list(value).map(text).fold(builder, |builder, network| builder.allow_network(network)),
            "allow_routes" => list(value).map(text).fold(builder, |builder, rule| builder.allow_route(rule)),
            "allow_prefixes" => list(value).map(text).fold(builder, |builder, prefix| builder.allow_prefix(prefix)),
            "profile" => builder.profile(text(value).parse().expect("a profile")),
            "style" => builder.style(text(value).parse().expect("a style")),
            "headers_only_when_low" => builder.headers_only_when_low(),
            other => panic!("there is no setting {other}"),
        };
    }
    builder.build().expect("a valid layer")
}

/// The response in the form of the files: every header in order, those of one name as a list.
fn shown(status: u16, headers: &HeaderMap, body: &Bytes) -> Value {
    let mut shown = serde_json::Map::new();
    let mut names: Vec<_> = headers.keys().filter(|name| *name != "content-length").collect();
    names.sort_by_key(|name| name.as_str());
    for name in names {
        let values: Vec<_> = headers.get_all(name).iter().map(|value| value.to_str().expect("a text")).collect();
        shown.insert(name.to_string(), if let [value] = values[..] { json!(value) } else { json!(values) });
    }
    json!({"status": status, "headers": shown, "body": String::from_utf8_lossy(body)})
}

async fn run(case: &Value) {
    let name = text(&case["name"]);
    let lines: Vec<_> = list(&case["policy"]).map(text).collect();
    let clock = ManualClock::new();
    let policy = Policy::from_toml(&lines.join("\n")).unwrap_or_else(|error| panic!("{name}: {error}"));
    let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().expect("a small slab");
    let hello = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::from("hello"))) });
    let service = layer(limiter, &case["gate"]).layer(hello);
    for (number, step) in list(&case["steps"]).enumerate() {
        clock.advance(Duration::from_millis(step.get("advance_ms").map_or(0, self::number)));
        let (method, path) = text(&step["request"]).split_once(' ').expect("a method and a path");
        for time in (1..=step.get("times").map_or(1, self::number)).rev() {
            let mut request = Request::builder().method(method).uri(path);
            for (name, value) in step.get("headers").map(list).into_iter().flatten().map(pair) {
                request = request.header(name, value);
            }
            if let Some(peer) = step.get("peer") {
                request = request.extension(Peer(SocketAddr::new(text(peer).parse().expect("an address"), 4_711)));
            }
            let request = request.body(()).expect("a request");
            let (parts, body) = service.clone().oneshot(request).await.expect("a response").into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            let answer = shown(parts.status.as_u16(), &parts.headers, &body);
            match time {
                1 => assert_eq!(answer, step["response"], "{name}, step {number}"),
                _ => assert_eq!(answer["body"], "hello", "{name}, step {number}"),
            }
        }
    }
}

#[tokio::test]
async fn the_layer_answers_as_every_adapter_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gate/conformance");
    let mut cases = 0;
    for file in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a file");
        let suite: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for case in list(&suite["cases"]) {
            run(case).await;
            cases += 1;
        }
    }
    assert!(cases >= 25, "{cases} cases were found");
}
