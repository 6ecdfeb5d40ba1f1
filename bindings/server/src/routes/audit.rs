//! What the admin API changes goes into the audit log, and can be read.

use super::{AgentInPath, PeerAddress, admin};
use crate::app::App;
use crate::audit::Entry;
use crate::auth::Right;
use crate::id;
use crate::meter::SavedFile;
use crate::problem::Problem;
use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, header};
use serde_json::{Value, json};
use std::sync::Arc;

/// The last changes, the newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    _ = app.keys().require(Right::Admin, &headers, peer)?;
    let kept_in = app.settings().audit_log.as_ref().map(|path| path.display().to_string());
    Ok(super::json(&json!({"changes": app.audit().entries(), "kept_in": kept_in})))
}

/// Records a change that an admin makes, if it succeeds.
pub(super) async fn audited(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let peer = super::peer(request.extensions());
    let is_change = !request.method().is_safe();
    if !is_change || app.keys().require(Right::Admin, request.headers(), peer).is_err() {
        return next.run(request).await;
    }
    let _turn = app.audit().turn().await;
    let (mut parts, body) = request.into_parts();
    let template = parts.extensions.get::<MatchedPath>().map_or_else(String::new, |path| path.as_str().to_owned());
    let agent = AgentInPath::from_request_parts(&mut parts, &()).await.ok().map(|AgentInPath(agent)| agent);
    let agent = agent.filter(|_| template.contains("{agent}"));
    let who = if parts.headers.contains_key(header::AUTHORIZATION) { "admin token" } else { "session" };
    let client = app.keys().client(peer, &parts.headers).to_string();
    let what = format!("{} {template}", parts.method);
    let from = state(&app, &template, agent.as_deref());
    let response = next.run(Request::from_parts(parts, body)).await;
    if response.status().is_success() {
        let to = state(&app, &template, agent.as_deref());
        let agent = agent.as_deref().map(id::to_json);
        let entry = Entry { who, client: Some(client), what, agent, from, to };
        let of_entry = Arc::clone(&app);
        // It waits for the disk.
        let recorded = tokio::task::spawn_blocking(move || of_entry.audit().record(entry)).await;
        if !recorded.unwrap_or(false) {
            app.meter().count_failed_save(SavedFile::Audit);
        }
    }
    response
}

/// What a change at a path may change.
fn state(app: &App, template: &str, agent: Option<&[u8]>) -> Value {
    if template.contains("/allowlist") || template.contains("/whitelist") {
        return admin::exempt(app.limiter()).into();
    }
    match agent {
        Some(agent) => {
            let assignment = app.limiter().assignment(agent).unwrap_or_default();
            json!({"plan": assignment.plan(), "overrides": admin::overrides(&assignment)})
        }
        None => admin::limits(&app.limiter().policy()).into(),
    }
}

/// Reads everything again because of a signal, and records what has changed.
pub(crate) fn reload_for_signal(app: &App) {
    let limits = || Value::from(admin::limits(&app.limiter().policy()));
    let from = limits();
    if app.reload().is_ok() {
        let (what, to) = ("SIGHUP".to_owned(), limits());
        if !app.audit().record(Entry { who: "operator", client: None, what, agent: None, from, to }) {
            app.meter().count_failed_save(SavedFile::Audit);
        }
    }
}
