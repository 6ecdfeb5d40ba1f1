//! The state of an agent. Charges nothing.

use super::{AgentInPath, PeerAddress, ceil_ms};
use crate::app::App;
use crate::auth::Right;
use crate::id;
use crate::problem::Problem;
use crate::tokens::Scope;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tollgate::Limiter;
use tollgate_tower::{Quota, Style};

/// Where the counts of an agent's violations stop, because they are stored in few
/// bits. From there on they mean "or more"; the page shows that too.
const IN_WINDOW_MAX: u32 = tollgate::bounds::ABUSE_VIOLATIONS_MAX;
pub(crate) const IN_A_ROW_MAX: u32 = 15;

/// The state of every lane of the agent. With the admin token also its assignment and conduct.
pub(crate) async fn state(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    PeerAddress(peer): PeerAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (right, scope) = app.keys().require_read(&headers, peer)?;
    let is_admin = right == Right::Admin;
    // Releases slots whose lease has expired.
    drop(app.leases().lock(app.limiter().now()));
    let mut document = document(app.limiter(), &agent, is_admin)?;
    if let Some(lanes) = document["lanes"].as_array_mut() {
        lanes.retain(|lane| lane["lane"].as_str().is_some_and(|lane| scope.has(lane)));
    }
    let mut response = super::json(&document);
    write_headers(&app, &agent, &scope, response.headers_mut())?;
    Ok(response)
}

/// Writes every lane into the list fields, and the tightest into fields with room for one.
fn write_headers(app: &App, agent: &[u8], scope: &Scope, headers: &mut HeaderMap) -> Result<(), Problem> {
    let now = || app.wall_clock();
    // The lanes and the total, each by itself.
    let view = app.limiter().agent(agent)?;
    let mut tightest: Option<(&str, Quota)> = None;
    for lane in view.lanes.iter().filter(|lane| !lane.state.is_exempt() && scope.has(&lane.name)) {
        let (name, quota) = (lane.name.as_str(), Quota::from(&lane.state));
        Style::Draft10.write(headers, name, &quota, &now);
        let share = |quota: &Quota| quota.remaining as f64 / quota.capacity.max(1) as f64;
        if tightest.as_ref().is_none_or(|(_, least)| share(&quota) < share(least)) {
            tightest = Some((name, quota));
        }
    }
    if let Some((name, quota)) = tightest {
        Style::Legacy.write(headers, name, &quota, &now);
    }
    Ok(())
}

/// The JSON document; `for_admin` adds the agent's assignment and conduct.
pub(crate) fn document(limiter: &Limiter, agent: &[u8], for_admin: bool) -> Result<Value, Problem> {
    let assignment = limiter.assignment(agent)?;
    let view = limiter.agent(agent)?;
    let mut lanes = Vec::with_capacity(view.lanes.len());
    for lane in view.lanes.iter().filter(|lane| !lane.state.is_exempt()) {
        let state = lane.state;
        let (capacity, remaining) = (state.capacity(), state.remaining());
        let used = capacity.saturating_sub(remaining);
        lanes.push(json!({
            "lane": lane.name,
            "limit": lane.limit.map(|limit| limit.to_string()),
            "capacity": capacity,
            "remaining": remaining,
            "used_percent": (u128::from(used) * 100).checked_div(u128::from(capacity)).map_or(100, |used| used as u64),
            "next_in_ms": state.next_in().map(ceil_ms),
            "full_in_ms": ceil_ms(state.full_in()),
        }));
    }
    let mut document = Map::new();
    document.insert("agent".into(), id::to_json(agent));
    document.insert("exempt".into(), limiter.is_exempt(agent)?.into());
    document.insert("lanes".into(), lanes.into());
    if for_admin {
        let now = limiter.now();
        let conduct = limiter.violations(agent)?;
        let overrides: Map<_, _> =
            assignment.overrides().map(|(lane, limit)| (lane.to_owned(), limit.to_string().into())).collect();
        document.insert("plan".into(), assignment.plan().into());
        document.insert("overrides".into(), overrides.into());
        document.insert("rate_limited".into(), limiter.rate_limited(agent)?.into());
        let ago = |at: Option<tollgate::Tick>| at.map(|at| ceil_ms(now.saturating_since(at)));
        document.insert(
            "violations".into(),
            json!({
                "in_window": conduct.violations(),
                "in_window_or_more": conduct.violations() >= IN_WINDOW_MAX,
                "window_began_ms_ago": ago(conduct.window_start()),
                "in_a_row": conduct.in_a_row(),
                "in_a_row_or_more": conduct.in_a_row() >= IN_A_ROW_MAX,
                "last_ms_ago": ago(conduct.last_violation()),
                "wait_ms": ceil_ms(conduct.wait()),
            }),
        );
    }
    Ok(document.into())
}
