//! `tollgate cluster`: how limits are shared by machines, as a server sees it; and an agent's keys.

use super::check_config::columns;
use super::explain::ask;
use super::slab::span;
use super::{print_line, runtime};
use crate::address::{Address, DEFAULT};
use crate::error::StartError;
use crate::settings::Settings;
use crate::source::Source;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;
use tollgate_redis::{Keyring, LaneKey};

#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The server's address [default: 127.0.0.1:8787, or that of --config]
    #[arg(long, value_name = "ADDRESS:PORT")]
    server: Option<Address>,
    /// The policy file of a server on this machine: its address is asked, with its token
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Print the keys under which the store knows an agent; asks nobody
    Key {
        /// The agent's id
        agent: OsString,
        /// The policy file with the secret; otherwise it is in TOLLGATE_CLUSTER_SECRET
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        if let Some(Command::Key { agent, config }) = self.command {
            print_line(&keys(agent.as_bytes(), config)?);
            return Ok(());
        }
        let settings = self.config.map(|file| Source::File(file).read()).transpose()?.map(|(_, settings)| settings);
        let of_file = settings.as_ref().map(|settings| settings.listen.reachable());
        let server = self.server.or(of_file).unwrap_or(DEFAULT);
        let token = settings.and_then(|Settings { check_token, admin_token, .. }| check_token.or(admin_token));
        let document = runtime()?.block_on(ask(&server, "/v1/engine", token))?;
        print_line(&if self.json { document.to_string() } else { text(&document) });
        Ok(())
    }
}

/// An agent's keys, one for each lane that machines share.
fn keys(agent: &[u8], config: Option<PathBuf>) -> Result<String, StartError> {
    let failed = |error: String| StartError::new(error);
    let (secret, lanes) = match config {
        Some(file) => {
            let shown = file.display().to_string();
            let (_, settings) = Source::File(file).read()?;
            let cluster = settings.cluster.ok_or_else(|| failed(format!("{shown} has no table [cluster]")))?;
            let lanes: Vec<_> = cluster.lanes.iter().map(|lane| lane.name.clone()).collect();
            (cluster.secret.bytes().to_owned(), lanes)
        }
        None => {
            let secret = std::env::var_os(super::serve::SECRET).map(OsString::into_vec).ok_or_else(|| {
                failed(format!("name the policy file with --config, or set {}", super::serve::SECRET))
            })?;
            (secret, Vec::new())
        }
    };
    let key = Keyring::new(&secret).map_err(|error| failed(error.to_string()))?.agent(agent);
    if lanes.is_empty() {
        return Ok(format!("tollgate:{{{key}}}:*"));
    }
    Ok(lanes.iter().map(|lane| key.bucket(&LaneKey::new(lane))).collect::<Vec<_>>().join("\n"))
}

/// The document as text.
fn text(document: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match document["shared_by"].as_str() {
        Some("machines") => {}
        Some("processes") => {
            return format!(
                "Its limiter is shared by {} processes of one machine, not by machines.",
                document["processes"]
            );
        }
        _ => return "Its limiter is private: no other process or machine uses it.".to_owned(),
    }
    let [ms, trip_us] = ["since_ms", "round_trip_us"].map(|key| document[key].as_u64().unwrap_or(0));
    let state = format!("{}, for {}", plain(&document["state"]), span(Duration::from_millis(ms)));
    let is_lost = document["state"] == "lost";
    let state = if is_lost { format!("{state}: {}", plain(&document["without_store"])) } else { state };
    let problem = match &document["last_problem"] {
        Value::Null => String::new(),
        problem => format!(", the last because of: {}", plain(problem)),
    };
    let reasons = document["losses"].as_object().into_iter().flatten();
    let counted = reasons.filter(|(_, count)| **count != 0).map(|(reason, count)| format!("{count} {reason}"));
    let losses = counted.reduce(|all, one| format!("{all}, {one}"));
    let tokens = ["granted", "given", "paid"].map(|key| document[key].to_string());
    let [granted, given, paid] = tokens;
    let mut facts = vec![
        ["store".to_owned(), plain(&document["store"])],
        ["state".to_owned(), state],
        ["machines".to_owned(), format!("{} of {} seen", document["nodes_seen"], document["nodes"])],
        ["round trip".to_owned(), format!("{} ms", trip_us as f64 / 1e3)],
        ["losses".to_owned(), format!("{}{problem}", losses.unwrap_or_else(|| "none".to_owned()))],
        [
            "settled".to_owned(),
            format!("{} times; {granted} tokens granted, {given} given back, {paid} paid", document["settled"]),
        ],
    ];
    facts.push(["decisions".to_owned(), decisions(&document["decisions"])]);
    for warning in document["warnings"].as_array().into_iter().flatten() {
        facts.push(["warning".to_owned(), plain(warning)]);
    }
    let mut rows = vec![
        ["lane", "limit", "exact", "slack", "when lost", "credit", "advance", "beyond"].map(str::to_owned).to_vec(),
    ];
    for lane in document["lanes"].as_array().into_iter().flatten() {
        rows.push(vec![
            plain(&lane["lane"]),
            plain(&lane["limit"]),
            if lane["exact"] == true { "yes" } else { "no" }.to_owned(),
            format!("{} %", lane["slack_percent"]),
            plain(&lane["when_lost"]),
            lane["credit"].to_string(),
            lane["advance"].to_string(),
            lane["bound"].to_string(),
        ]);
    }
    let facts: Vec<_> = facts.into_iter().map(Vec::from).collect();
    let mut text = format!("{}\n\n{}", columns(&facts), columns(&rows));
    text.push_str("\n\ncredit and advance: what this machine has not spent, and has not paid");
    text.push_str("\nbeyond: the most that all machines together admit in any window in addition to the limit");
    let own: Vec<_> = document["own_lanes"].as_array().into_iter().flatten().map(|lane| plain(&lane["lane"])).collect();
    if !own.is_empty() {
        text.push_str(&format!("\neach machine has its own: {}", own.join(", ")));
    }
    text
}

/// How what operators decide follows to all machines, in a line.
fn decisions(document: &Value) -> String {
    let number = |key: &str| document[key].as_u64().unwrap_or(0);
    let state = if document["current"] == true { "current" } else { "not current" };
    let [agents, waiting, refused] = ["agents", "waiting", "refused"].map(number);
    let agents = format!("{agents} agent{} with assignments", if agents == 1 { "" } else { "s" });
    format!("{state}; {agents}; {waiting} waiting for the store, {refused} refused here")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_reads_as_a_table() {
        let lane = json!({"lane": "http/heavy", "limit": "10/minute burst 5", "exact": false, "slack_percent": 10,
                          "when_lost": "share", "credit": 4, "advance": 1, "bound": 3});
        let mut document = json!({"shared_by": "machines", "store": "redis://a", "state": "lost", "since_ms": 4_000,
            "without_store": "every machine allows a third", "nodes": 3, "nodes_seen": 2, "round_trip_us": 210,
            "losses": {"timeout": 1, "other": 0}, "last_problem": "timed out", "warnings": ["use noeviction"], "settled": 7, "granted": 5,
            "given": 1, "paid": 2, "decisions": {"current": true, "agents": 12, "waiting": 0, "refused": 1}, "lanes": [lane], "own_lanes": [{"lane": "ws/conn", "why": "held"}]});
        let printed = text(&document);
        for line in [
            "store       redis://a",
            "state       lost, for 4 s: every machine allows a third",
            "machines    2 of 3 seen",
            "round trip  0.21 ms",
            "losses      1 timeout, the last because of: timed out",
            "settled     7 times; 5 tokens granted, 1 given back, 2 paid",
            "decisions   current; 12 agents with assignments; 0 waiting for the store, 1 refused here",
            "warning     use noeviction",
            "http/heavy  10/minute burst 5  no     10 %   share      4       1        3",
            "each machine has its own: ws/conn",
        ] {
            assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
        }
        document["state"] = json!("connected");
        assert!(text(&document).contains("\nstate       connected, for 4 s\n"));
        assert!(text(&json!({"shared_by": "processes", "processes": 2})).contains("by 2 processes"));
        assert!(text(&json!({"shared_by": "nobody"})).contains("private"));
    }
}
