//! The dashboard in a real browser.

#![allow(clippy::panic, reason = "a panic names the line that failed")]

#[path = "../http/common.rs"]
#[allow(dead_code, reason = "shared with the tests over HTTP, which use more of it")]
mod common;
#[path = "../common/directory.rs"]
mod directory;
#[path = "../../../redis/tests/server/mod.rs"]
mod store;
#[path = "../../../../tests/common/tools.rs"]
mod tools;

mod browser;

mod access;
mod admin;
mod cards;
mod connection;
mod crowd;
mod demo;
mod engine;
mod events;
mod sharing;

use browser::{Browser, is_installed};
use common::{ADMIN, TestServer};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};
use tollgate::{LaneId, Request};

/// One browser at a time, because each takes a core.
static LOCK: Mutex<()> = Mutex::const_new(());

/// A browser that is logged in.
async fn logged_in(server: &TestServer, name: &str) -> (Browser, MutexGuard<'static, ()>) {
    let lock = LOCK.lock().await;
    let browser = Browser::start(name).await;
    browser.open(&format!("http://{}/#token={ADMIN}", server.address)).await;
    browser.until("document.getElementById('connection').dataset.state === 'live'").await;
    (browser, lock)
}

/// An agent uses this many tokens of a lane.
fn uses(server: &TestServer, agent: impl AsRef<[u8]>, lane: &str, tokens: u64) {
    let lane: LaneId = server.limiter().lane(lane).expect("a lane");
    let verdict = server.limiter().check_request(Request::new(&agent, lane).cost(tokens).counted()).expect("a verdict");
    assert!(verdict.is_allowed());
}

/// An agent violates a limit: its request costs more than is left.
fn violates(server: &TestServer, agent: &str, lane: &str) {
    let lane: LaneId = server.limiter().lane(lane).expect("a lane");
    let left = server.limiter().peek(Request::new(agent, lane)).expect("a state").remaining();
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
