//! `tollgate explain`.

use super::check_config::columns;
use super::{print_line, runtime};
use crate::address::{Address, DEFAULT};
use crate::client::Client;
use crate::error::StartError;
use crate::id;
use serde_json::Value;
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The agent's id
    agent: String,
    /// The server's address
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[arg(default_value_t = DEFAULT)]
    server: Address,
}

impl Arguments {
    /// With TOLLGATE_ADMIN_TOKEN it also prints the agent's assignment and violations.
    pub(super) fn run(self) -> Result<(), StartError> {
        let path = format!("/v1/agents/{}", id::to_segment(self.agent.as_bytes()));
        let (document, engine) = runtime()?.block_on(async {
            let document = ask(&self.server, &path, None).await?;
            // An older server does not have it.
            Ok((document, ask(&self.server, "/v1/engine", None).await.unwrap_or_default()))
        })?;
        print_line(&text(&document, &engine));
        Ok(())
    }
}

/// The JSON document at a path of a server. The admin token of the environment precedes the other.
pub(super) async fn ask(server: &Address, path: &str, token: Option<String>) -> Result<Value, StartError> {
    let failed = |error: &dyn std::fmt::Display| {
        StartError::new(format!("cannot reach {server}: {error}; is it running? --server names another"))
    };
    let token = std::env::var("TOLLGATE_ADMIN_TOKEN").ok().or(token);
    let authorization = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    let answer = tokio::time::timeout(Duration::from_secs(10), async {
        Client::connect(server.clone()).await?.send("GET", path, &headers, "").await
    });
    let answer = answer.await.map_err(|_| failed(&"no answer within 10 s"))?.map_err(|error| failed(&error))?;
    let document: Value = serde_json::from_slice(&answer.body).map_err(|error| failed(&error))?;
    if !answer.status.is_success() {
        let detail = document["detail"].as_str().unwrap_or_default();
        return Err(StartError::new(format!("{server} answers {}: {detail}", answer.status)));
    }
    Ok(document)
}

/// The document as text; `engine` says which lanes machines share.
fn text(document: &Value, engine: &Value) -> String {
    let agent = match &document["agent"] {
        Value::String(agent) => agent.escape_debug().to_string(),
        other => other.to_string(),
    };
    if document["exempt"] == true {
        return format!("{agent} is exempt: no limit applies to it.");
    }
    let mut rows =
        vec![["lane", "limit", "left", "used", "next token in", "full again in"].map(str::to_owned).to_vec()];
    for lane in document["lanes"].as_array().into_iter().flatten() {
        let is_shared =
            engine["lanes"].as_array().is_some_and(|shared| shared.iter().any(|one| one["lane"] == lane["lane"]));
        let is_override = document["overrides"].get(lane["lane"].as_str().unwrap_or_default()).is_some();
        rows.push(vec![
            plain(&lane["lane"]),
            format!(
                "{}{}{}",
                plain(&lane["limit"]),
                if is_override { " (override)" } else { "" },
                if is_shared { " (shared)" } else { "" }
            ),
            format!("{} of {}", lane["remaining"], lane["capacity"]),
            format!("{} %", lane["used_percent"]),
            seconds(&lane["next_in_ms"]),
            seconds(&lane["full_in_ms"]),
        ]);
    }
    let mut text = format!("{agent}\n\n{}", columns(&rows));
    if engine["shared_by"] == "machines" {
        let (store, state) = (plain(&engine["store"]), plain(&engine["state"]));
        text.push_str(&format!(
            "\n\nshared: by machines through {store}, {state}; what is left is as this machine last heard of it"
        ));
    }
    if let Some(violations) = document.get("violations") {
        let plan = document["plan"].as_str().unwrap_or("default (none was assigned)");
        text.push_str(&format!("\n\nplan: {plan}"));
        text.push_str(&format!(
            "\nviolations: {} in a row, {} in the window; {}",
            or_more(violations, "in_a_row"),
            or_more(violations, "in_window"),
            if document["rate_limited"] == true { "rate limited: give it no new work" } else { "not rate limited" }
        ));
    } else {
        text.push_str("\n\nSet TOLLGATE_ADMIN_TOKEN to see its plan, overrides and violations.");
    }
    text
}

/// A count; at its maximum it stands for all larger ones.
fn or_more(violations: &Value, name: &str) -> String {
    let or_more = violations[format!("{name}_or_more")] == true;
    format!("{}{}", violations[name], if or_more { " or more" } else { "" })
}

fn plain(value: &Value) -> String {
    value.as_str().unwrap_or("none").to_owned()
}

fn seconds(ms: &Value) -> String {
    match ms.as_u64() {
        None | Some(0) => "-".to_owned(),
        Some(ms) => format!("{:?}", Duration::from_millis(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_reads_as_a_table() {
        let lane = json!({"lane": "http/heavy", "limit": "10/minute burst 5", "capacity": 5, "remaining": 2,
            "used_percent": 60, "next_in_ms": 1500, "full_in_ms": 13_500});
        let violations = json!({"in_a_row": 2, "in_window": 3});
        let document = json!({"agent": "a\u{1b}", "exempt": false, "lanes": [lane], "plan": "pro",
            "overrides": {"http/heavy": "10/minute burst 5"}, "rate_limited": true, "violations": violations});
        let text = text(&document, &Value::Null);
        assert!(text.starts_with("a\\u{1b}\n\nlane        limit"), "{text}");
        assert!(
            text.contains("http/heavy  10/minute burst 5 (override)  2 of 5  60 %  1.5s           13.5s"),
            "{text}"
        );
        assert!(
            text.ends_with("plan: pro\nviolations: 2 in a row, 3 in the window; rate limited: give it no new work")
        );
        let most = json!({"in_a_row": 15, "in_a_row_or_more": true, "in_window": 63, "in_window_or_more": true});
        let text = super::text(&json!({"agent": "a", "violations": most}), &Value::Null);
        assert!(text.contains("violations: 15 or more in a row, 63 or more in the window;"), "{text}");
        let exempt = json!({"agent": "d", "exempt": true});
        assert_eq!(super::text(&exempt, &Value::Null), "d is exempt: no limit applies to it.");
    }

    #[test]
    fn it_says_which_lanes_machines_share() {
        let lane =
            |name: &str| json!({"lane": name, "limit": "5/min", "capacity": 5, "remaining": 2, "used_percent": 60});
        let document = json!({"agent": "a", "lanes": [lane("http/read"), lane("ws/conn")]});
        let shared = json!([{"lane": "http/read"}]);
        let engine = json!({"shared_by": "machines", "store": "redis://a", "state": "lost", "lanes": shared});
        let text = text(&document, &engine);
        assert!(
            text.contains("http/read  5/min (shared)  2 of 5") && text.contains("ws/conn    5/min           2 of 5")
        );
        assert!(text.contains("\n\nshared: by machines through redis://a, lost; what is left is as"), "{text}");
    }
}
