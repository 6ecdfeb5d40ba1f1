//! `/openapi.json`: the server has the paths and methods that it names, and answers as it says.

use crate::common::{ADMIN, CHECK, TestServer, counting, header};
use boon::{Compiler, Schemas};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use tollgate_server::client::Answer;

const METHODS: [&str; 8] = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];

async fn document(server: &TestServer) -> Value {
    let answer = server.send("GET", "/openapi.json", &[], "").await;
    assert_eq!((answer.status.as_u16(), header(&answer, "content-type")), (200, Some("application/json")));
    crate::common::json(&answer)
}

/// The operations: path, method, and what is written about it.
fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    paths.flat_map(|(path, item)| {
        let methods = item.as_object().expect("methods").iter();
        let methods = methods.filter(|(name, _)| METHODS.contains(&name.as_str()));
        methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    })
}

/// What stands at a value, which may refer to a component.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(name) => document.pointer(&name[1..]).unwrap_or_else(|| panic!("there is no {name}")),
        None => value,
    }
}

/// All texts of `$ref`.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// Refuses members that are not in the document, so that none is forgotten.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("type") == Some(&json!("object")) && members.contains_key("properties") {
                members.insert("additionalProperties".to_owned(), json!(false));
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// What is wrong with a value.
fn mistake(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let mut whole = json!({"components": document["components"], "allOf": [schema]});
    close(&mut whole);
    compiler.add_resource("http://tollgate.test/schema", whole).expect("an address");
    let schema = compiler.compile("http://tollgate.test/schema", &mut schemas).expect("a schema");
    schemas.validate(value, schema).err().map(|error| format!("{error:#}"))
}

#[tokio::test]
async fn the_document_is_whole() {
    let server = TestServer::lanes(&[("http", "1/minute")]).await;
    let document = document(&server).await;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let at = format!("{method} {path}");
        assert!(names.insert(operation["operationId"].as_str().expect("an id")), "{at}");
        assert!(operation["summary"].is_string(), "{at}");
        let responses = operation["responses"].as_object().expect("responses");
        assert!(responses.contains_key("default") && responses.keys().any(|status| status.starts_with('2')), "{at}");
        assert!(responses.values().all(|response| resolved(&document, response)["description"].is_string()), "{at}");
        let shared = document["paths"][path]["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')) {
            assert!(shared.iter().any(|shared| resolved(&document, shared)["name"] == parameter), "{at}");
        }
    }
    let mut used = BTreeSet::new();
    references(&document, &mut used);
    for kind in ["schemas", "responses", "parameters"] {
        for name in document["components"][kind].as_object().expect("components").keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.remove(reference.as_str()), "{reference} is not used");
        }
    }
    assert_eq!(used, BTreeSet::new(), "there are no such components");
}

#[tokio::test]
async fn every_path_has_the_methods_of_the_document() {
    let server = TestServer::lanes(&[("http", "1/minute")]).await;
    let document = document(&server).await;
    let paths: BTreeSet<_> = operations(&document).map(|(path, ..)| path).collect();
    for path in paths.into_iter().filter(|path| *path != "/v1/gate") {
        let methods = operations(&document).filter(|(of, ..)| *of == path).map(|(_, method, _)| method.to_uppercase());
        let mut methods: BTreeSet<_> = methods.collect();
        if methods.contains("GET") {
            methods.insert("HEAD".to_owned());
        }
        // No path has this method, so the answer lists those that it has.
        let answer = server.send("PATCH", &path.replace("{agent}", "a").replace("{name}", "a"), &[], "").await;
        let allowed = header(&answer, "allow").unwrap_or_default().split(',').map(|name| name.trim().to_owned());
        assert_eq!((answer.status.as_u16(), allowed.collect()), (405, methods), "{path}");
    }
    for (path, method, _) in operations(&document).filter(|(path, ..)| *path == "/v1/gate") {
        let answer = server.send(&method.to_uppercase(), path, &[], "").await;
        assert!([200, 429].contains(&answer.status.as_u16()), "{method} {path}: {answer:?}");
    }
}

/// A server, its document, and where they differ.
struct Described {
    server: TestServer,
    document: Value,
    mistakes: RefCell<Vec<String>>,
}

impl Described {
    /// Sends a request to `path` with this agent in it, and compares both bodies with the document.
    async fn send(&self, method: &str, path: &str, agent: &str, body: &str, status: u16) -> Answer {
        let bearer = format!("Bearer {ADMIN}");
        let token = if status == 401 { "Bearer wrong" } else { &bearer };
        let headers = [("authorization", token), ("content-type", "application/json")];
        let answer = self.server.send(method, &path.replace("{agent}", agent), &headers, body).await;
        if let Err(mistake) = self.compare(&self.document["paths"][path][method.to_lowercase()], body, &answer, status)
        {
            self.mistakes.borrow_mut().push(format!("{method} {path} {body}: {mistake}: {answer:?}"));
        }
        answer
    }

    fn compare(&self, operation: &Value, body: &str, answer: &Answer, status: u16) -> Result<(), String> {
        if answer.status.as_u16() != status {
            return Err(format!("the status is not {status}"));
        }
        let taken = &operation["requestBody"]["content"]["application/json"]["schema"];
        if let Ok(body) = serde_json::from_str(body) {
            let mistake = mistake(&self.document, taken, &body);
            if mistake.is_some() != (status == 400) {
                return Err(mistake.unwrap_or_else(|| "the document allows the request".to_owned()));
            }
        }
        let response = operation["responses"].get(status.to_string()).ok_or("the status is not in the document")?;
        let kind = header(answer, "content-type").expect("a type").split(';').next().expect("a type");
        let schema = &resolved(&self.document, response)["content"][kind]["schema"];
        if schema.is_null() {
            return Err(format!("{kind} is not in the document"));
        }
        let body = match kind {
            "text/plain" => String::from_utf8_lossy(&answer.body).into(),
            _ => crate::common::json(answer),
        };
        mistake(&self.document, schema, &body).map_or(Ok(()), Err)
    }
}

#[tokio::test]
async fn requests_and_answers_are_those_of_the_document() {
    let policy = counting().lane("http", "3/minute").lane("slots", "held 1").lane("any", "dynamic 9/minute");
    let policy = policy.plan("pro", [("http", "9/minute")]).build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.check_token = Some(CHECK.to_owned())).await;
    let document = document(&server).await;
    let described = Described { server, document, mistakes: RefCell::default() };
    let post = async |path: &str, body: Value, status| {
        crate::common::json(&described.send("POST", path, "", &body.to_string(), status).await)
    };
    let check = json!({"agent": "a", "lane": "http", "cost": 2});
    post("/v1/check", check.clone(), 200).await;
    post("/v1/check", check.clone(), 429).await;
    let dynamic = json!({"agent": {"base64": "/w=="}, "lane": "any", "limit": "3/minute", "plan": "pro"});
    post("/v1/check", dynamic, 200).await;
    post("/v1/check", check.clone(), 401).await;
    for wrong in [json!({}), json!({"agent": 7}), json!({"agent": ""}), json!({"agent": "a", "cost": 0}), json!([])] {
        post("/v1/check", wrong, 400).await;
    }
    post("/v1/check", json!({"agent": "a", "lane": "http", "more": 1}), 400).await;
    post("/v1/check/many", json!({"requests": [check, check]}), 200).await;
    post("/v1/check/many", json!({"requests": check}), 400).await;
    let other = json!({"agent": "b", "lane": "http"});
    post("/v1/check/all", json!({"requests": [other, {"agent": "b", "lane": "slots"}], "ttl_seconds": 5}), 200).await;
    post("/v1/check/all", json!({"requests": [other, check]}), 429).await;
    post("/v1/check/all", json!({"requests": []}), 400).await;
    let reserve = json!({"agent": "c", "lane": "http", "estimate": 2, "ttl_seconds": 9});
    let id = &post("/v1/reserve", reserve.clone(), 200).await["reservation"];
    post("/v1/reserve", reserve, 429).await;
    post("/v1/reserve", json!({"agent": "c", "lane": "http", "estimate": 1, "ttl_seconds": 0}), 400).await;
    post("/v1/settle", json!({"reservation": id, "used": 1, "so_far": true}), 200).await;
    post("/v1/extend", json!({"reservation": id}), 200).await;
    post("/v1/cancel", json!({"reservation": id}), 200).await;
    post("/v1/cancel", json!({"reservation": id}), 404).await;
    post("/v1/settle", json!({"reservation": id}), 400).await;
    let hold = json!({"agent": "c", "lane": "slots"});
    let lease = &post("/v1/hold", hold.clone(), 200).await["lease"];
    post("/v1/hold", hold, 429).await;
    post("/v1/extend", json!({"lease": lease, "ttl_seconds": 7}), 200).await;
    post("/v1/release", json!({"lease": lease}), 200).await;
    post("/v1/release", json!({"lease": lease}), 404).await;
    let admin = "/api/admin/rate-limits";
    for path in ["/v1/agents/{agent}", "/v1/engine", "/healthz", "/readyz", "/metrics", "/openapi.json"] {
        described.send("GET", path, "a", "", 200).await;
    }
    let of_agent = [admin, "/{agent}"].concat();
    for (method, path, body, status) in [
        ("PUT", &*of_agent, r#"{"overrides": {"http": "7/minute"}, "plan": "pro"}"#, 200),
        ("PUT", &of_agent, r#"{"overrides": 7}"#, 400),
        ("PUT", &of_agent, "{}", 400),
        ("GET", &of_agent, "", 200),
        ("GET", admin, "", 200),
        ("GET", admin, "", 401),
        ("DELETE", &of_agent, "", 200),
        ("POST", &[admin, "/{agent}/reset_violations"].concat(), "", 200),
        ("POST", &[admin, "/agents/{agent}/reset"].concat(), "", 200),
        ("POST", &[admin, "/{agent}/forget"].concat(), "", 200),
        ("PUT", &[admin, "/defaults"].concat(), r#"{"http": 5}"#, 200),
        ("PUT", &[admin, "/defaults"].concat(), r#"{"http": true}"#, 400),
        ("DELETE", &[admin, "/defaults"].concat(), "", 200),
        ("PUT", &[admin, "/allowlist"].concat(), r#"{"agents": ["x"]}"#, 200),
        ("PUT", &[admin, "/allowlist"].concat(), r#"{"agents": "x"}"#, 400),
        ("POST", &[admin, "/allowlist"].concat(), r#"{"agent": "y"}"#, 200),
        ("DELETE", &[admin, "/allowlist/{agent}"].concat(), "", 200),
        ("POST", "/api/admin/reload", "", 200),
        ("GET", "/api/admin/audit", "", 200),
        ("GET", "/api/dashboard/session", "", 200),
        ("GET", "/api/dashboard/agents", "", 200),
        ("GET", "/api/dashboard/agents/{agent}", "", 200),
    ] {
        described.send(method, path, "x", body, status).await;
    }
    let mistakes = described.mistakes.into_inner();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n\n"));
}
