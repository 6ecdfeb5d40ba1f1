//! Agents as cards: searched, sorted and paged by the server, not in the browser.

use super::parse_query;
use crate::app::App;
use crate::auth::Right;
use crate::id;
use crate::problem::Problem;
use crate::routes::{self, AgentInPath, PeerAddress, ceil_ms};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tollgate::Limiter;
use tollgate::bounds::PAGE_MAX;
use tollgate::observe::{AgentQuery, AgentSort, AgentView, LaneView, ShownId, UsageLevel};

/// How many cards a page has by default.
const PER_PAGE: usize = 48;

#[derive(Deserialize)]
pub(super) struct ListQuery {
    /// A text in the id.
    #[serde(default)]
    search: String,
    #[serde(default)]
    sort: String,
    /// The first is 0.
    #[serde(default)]
    page: usize,
    per_page: Option<usize>,
}

/// A page of cards.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    query: Result<Query<ListQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    _ = app.keys().require(Right::Admin, &headers, peer)?;
    let wanted = parse_query(query)?;
    let sort = match wanted.sort.as_str() {
        "" | "usage" => AgentSort::Usage,
        "violations" => AgentSort::Violations,
        "id" => AgentSort::Id,
        _ => return Err(Problem::field("sort", "sort by usage, violations or id")),
    };
    let per_page = wanted.per_page.unwrap_or(PER_PAGE);
    if !(1..=PAGE_MAX).contains(&per_page) {
        return Err(Problem::field("per_page", format!("a page has 1 to {PAGE_MAX} agents")));
    }
    let query = AgentQuery::new().contains(&wanted.search).sort(sort).page(wanted.page).per_page(per_page);
    let limiter = Arc::clone(app.limiter());
    // A million agents take some tenths of a second.
    let found = tokio::task::spawn_blocking(move || limiter.agents(&query)).await;
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the list could not be made; try again");
    let found = found.map_err(failed)?;
    let agents: Vec<_> = found.agents.iter().map(|agent| Value::from(card(&agent.id, &agent.view))).collect();
    Ok(routes::json(&json!({
        "agents": agents,
        "matched": found.matched,
        "listed": found.listed,
        "not_listed": found.not_listed,
        "page": wanted.page,
        "per_page": per_page,
    })))
}

/// One card, opened: every lane, and the agent's assignment and conduct.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    AgentInPath(agent): AgentInPath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    _ = app.keys().require(Right::Admin, &headers, peer)?;
    let limiter = app.limiter();
    let view = limiter.agent(&agent)?;
    let mut card = card(&agent, &view);
    card.insert("id".into(), id::to_json(&agent));
    card.insert("known".into(), view.is_known.into());
    card.insert("in_a_row".into(), view.conduct.in_a_row().into());
    card.insert("lanes".into(), lanes(limiter, &agent, &view)?.into());
    Ok(routes::json(&card.into()))
}

fn card(agent: &[u8], view: &AgentView) -> Map<String, Value> {
    let mut card = Map::new();
    card.insert("key".into(), id::to_segment(agent).into());
    card.insert("shown".into(), ShownId::new(agent).to_string().into());
    card.insert("plan".into(), view.plan.clone().into());
    card.insert("exempt".into(), view.is_exempt.into());
    card.insert("overrides".into(), view.lanes.iter().filter(|lane| lane.is_override).count().into());
    card.insert("lane".into(), view.dominant().map(usage).into());
    card.insert("violations".into(), view.conduct.violations().into());
    card.insert("wait_ms".into(), ceil_ms(view.conduct.wait()).into());
    card.insert("rate_limited".into(), view.is_rate_limited().into());
    card
}

/// A lane as a bar.
fn usage(lane: &LaneView) -> Value {
    let level = match lane.level() {
        UsageLevel::Green => "green",
        UsageLevel::Yellow => "yellow",
        _ => "red",
    };
    json!({
        "name": lane.name,
        "used": lane.used(),
        "capacity": lane.state.capacity(),
        "percent": percent(lane.used_percent()),
        "level": level,
    })
}

/// Whole percent, rounded so that they never seem to belong to another level.
fn percent(usage: f64) -> u64 {
    // At most 100.
    if usage < 50.0 { usage.floor() as u64 } else { usage.ceil() as u64 }
}

fn lanes(limiter: &Limiter, agent: &[u8], view: &AgentView) -> Result<Vec<Value>, Problem> {
    let policy = limiter.policy();
    let assignment = limiter.assignment(agent)?;
    let plan = assignment.plan().and_then(|plan| policy.plan(plan));
    let lanes = view.lanes.iter().map(|lane| {
        // The limit without an override, and without an exemption.
        let planned = plan.and_then(|plan| policy.plan_limit(plan, lane.lane)).or(policy.limit(lane.lane));
        let mut bar = if lane.state.is_exempt() { json!({"name": lane.name}) } else { usage(lane) };
        if let Value::Object(bar) = &mut bar {
            bar.insert("limit".into(), lane.limit.map(|limit| limit.to_string()).into());
            bar.insert("planned".into(), planned.map(|limit| limit.to_string()).into());
            bar.insert("override".into(), assignment.override_of(&lane.name).map(|limit| limit.to_string()).into());
            bar.insert("full_in_ms".into(), ceil_ms(lane.state.full_in()).into());
        }
        bar
    });
    Ok(lanes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_level_never_disagree() {
        let shown = [0.0, 49.9, 50.0, 79.2, 80.0, 80.1, 100.0].map(percent);
        assert_eq!(shown, [0, 49, 50, 80, 80, 81, 100]);
    }
}
