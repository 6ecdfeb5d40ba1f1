//! An agent as it stands, without a charge.

use super::{AgentInPath, PeerAddress};
use crate::app::App;
use crate::auth::Right;
use crate::id;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tollgate::Limiter;
use tollgate_tower::{Quota, Style};

/// Where the counts of an agent's violations stop: it is kept in few bits. From there on
/// they say how many there were at least; the page says so too.
const IN_WINDOW_MAX: u32 = tollgate::bounds::ABUSE_VIOLATIONS_MAX;
pub(crate) const IN_A_ROW_MAX: u32 = 15;

/// Every lane of the agent. With the admin token also what was decided about
/// it, and its conduct.
pub(crate) async fn status(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    PeerAddress(peer): PeerAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    app.keys().require_check(&headers, || peer)?;
    let is_admin = app.keys().right(&headers, peer)? == Right::Admin;
    // Slots whose lease has run out are free.
    drop(app.leases().turn(app.limiter().now()));
    let document = document(app.limiter(), &agent, is_admin)?;
    let mut response = super::json(&document);
    tell(&app, &agent, response.headers_mut())?;
    Ok(response)
}

/// Tells every lane in the list fields, and the tightest where there is room for one.
fn tell(app: &App, agent: &[u8], headers: &mut HeaderMap) -> Result<(), Problem> {
    let now = || app.wall_clock();
    // Each lane by itself, and the total beside them.
    let view = app.limiter().agent(agent)?;
    let mut tightest: Option<(&str, Quota)> = None;
    for lane in view.lanes.iter().filter(|lane| !lane.status.is_exempt()) {
        let (name, quota) = (lane.name.as_str(), Quota::from(&lane.status));
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

pub(crate) fn document(limiter: &Limiter, agent: &[u8], with_decisions: bool) -> Result<Value, Problem> {
    let assignment = limiter.assignment(agent)?;
    let view = limiter.agent(agent)?;
    let mut lanes = Vec::with_capacity(view.lanes.len());
    for lane in view.lanes.iter().filter(|lane| !lane.status.is_exempt()) {
        let status = lane.status;
        let (capacity, remaining) = (status.capacity(), status.remaining());
        let used = capacity.saturating_sub(remaining);
        lanes.push(json!({
            "lane": lane.name,
            "limit": lane.limit.map(|limit| limit.to_string()),
            "capacity": capacity,
            "remaining": remaining,
            "used_percent": (u128::from(used) * 100).checked_div(u128::from(capacity)).map_or(100, |used| used as u64),
            "next_in_ms": status.next_in().map(ms_up),
            "full_in_ms": ms_up(status.full_in()),
        }));
    }
    let mut document = Map::new();
    document.insert("agent".into(), id::to_json(agent));
    document.insert("exempt".into(), limiter.is_exempt(agent)?.into());
    document.insert("lanes".into(), lanes.into());
    if with_decisions {
        let now = limiter.now();
        let conduct = limiter.violations(agent)?;
        let overrides: Map<_, _> =
            assignment.overrides().map(|(lane, limit)| (lane.to_owned(), limit.to_string().into())).collect();
        document.insert("plan".into(), assignment.plan().into());
        document.insert("overrides".into(), overrides.into());
        document.insert("rate_limited".into(), limiter.rate_limited(agent)?.into());
        let ago = |at: Option<tollgate::Tick>| at.map(|at| ms_up(now.saturating_since(at)));
        document.insert(
            "violations".into(),
            json!({
                "in_window": conduct.violations(),
                "in_window_or_more": conduct.violations() >= IN_WINDOW_MAX,
                "window_began_ms_ago": ago(conduct.window_start()),
                "in_a_row": conduct.consecutive(),
                "in_a_row_or_more": conduct.consecutive() >= IN_A_ROW_MAX,
                "last_ms_ago": ago(conduct.last_violation()),
                "wait_ms": ms_up(conduct.wait()),
            }),
        );
    }
    Ok(document.into())
}

pub(crate) fn ms_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
