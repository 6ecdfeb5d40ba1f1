//! How machines share the limiter: one line.

use super::store::{Kind, Server as Store};
use super::{TestServer, common, is_installed, logged_in, uses};
use tollgate_server::{ClusterSettings, Secret};

#[tokio::test]
async fn a_line_says_how_machines_share_the_limiter() {
    if !is_installed() {
        return;
    }
    let Some(mut store) = Store::start(Kind::Redis, &[]) else { return };
    let policy = common::counting().lane("api", "10/minute").build().expect("a policy");
    let mut cluster = ClusterSettings::new(&policy, &store.url(), Secret::new("0f6f4c0d9d1e7e4a")).expect("a lane");
    cluster.nodes = 3.try_into().expect("three");
    let server = TestServer::with(policy, |settings| settings.cluster = Some(cluster)).await;
    let (browser, _lock) = logged_in(&server, "engine").await;
    let text = "document.getElementById('engine-text').innerText";
    browser.until(&format!("{text}.startsWith('Shared by 3 machines; connected for ')")).await;
    uses(&server, "agent-7", "api", 1);
    browser.until(&format!("{text}.endsWith('; answers: advance 1')")).await;
    assert_eq!(browser.eval("document.getElementById('engine').dataset.bad").await, "false");
    store.kill();
    browser.until(&format!("{text}.startsWith('Shared by 3 machines; lost for ')")).await;
    let lost = browser.text("#engine-text").await;
    assert!(lost.contains(" s: every machine allows a third; "), "{lost}");
    assert_eq!(browser.eval("document.getElementById('engine').dataset.bad").await, "true");
    browser.picture("engine.png").await;
    store.restart_empty();
    browser.until("document.getElementById('engine').dataset.state === 'connected'").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}
