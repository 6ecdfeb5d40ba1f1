//! The dashboard in a real browser.

#![allow(clippy::panic, reason = "a panic is a failure that names its line")]

#[path = "../http/common.rs"]
#[allow(dead_code, reason = "shared with the tests over HTTP, which use more of it")]
mod common;
#[path = "../../../../tests/common/tools.rs"]
mod tools;

mod browser;

mod access;
mod admin;
mod cards;
mod connection;
mod crowd;
mod demo;
mod events;

use browser::{Browser, is_installed};
use common::{ADMIN, Running};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tollgate::{LaneId, Request};

/// One browser at a time: each takes a core.
static TURN: Mutex<()> = Mutex::const_new(());

/// A browser that is logged in.
async fn logged_in(server: &Running, name: &str) -> (Browser, MutexGuard<'static, ()>) {
    let turn = TURN.lock().await;
    let browser = Browser::start(name).await;
    browser.open(&format!("http://{}/#token={ADMIN}", server.address)).await;
    browser.until("document.getElementById('connection').dataset.state === 'live'").await;
    (browser, turn)
}

/// An agent uses so many tokens of a lane.
fn uses(server: &Running, agent: impl AsRef<[u8]>, lane: &str, tokens: u64) {
    let lane: LaneId = server.limiter().lane(lane).expect("a lane");
    let verdict = server.limiter().check_request(Request::new(&agent, lane).cost(tokens).counted()).expect("a verdict");
    assert!(verdict.is_allowed());
}

/// An agent violates a limit: it asks for more than is left.
fn violates(server: &Running, agent: &str, lane: &str) {
    let lane: LaneId = server.limiter().lane(lane).expect("a lane");
    let left = server.limiter().peek(Request::new(agent, lane)).expect("a status").remaining();
    let verdict =
        server.limiter().check_request(Request::new(agent, lane).cost(left + 1).counted()).expect("a verdict");
    assert!(!verdict.is_allowed());
}

/// An expression for the card of an agent with this id.
fn card(id: &str) -> String {
    format!(
        "[...document.querySelectorAll('.card')].find((card) => card.querySelector('.id').textContent === {})",
        json!(id)
    )
}
