//! Who shares the limiter.

use super::directory::Directory;
use super::{TestServer, common, is_installed, logged_in, uses};

#[tokio::test]
async fn processes_that_share_the_limiter_are_listed_on_request() {
    if !is_installed() {
        return;
    }
    let memory = Directory::in_memory("browser");
    let policy = || common::counting().lane("api", "10/minute").build().expect("a policy");
    let on_slab = |policy| TestServer::with(policy, |settings| settings.slab = Some(memory.slab().into()));
    let server = on_slab(policy()).await;
    uses(&server, "agent-7", "api", 6);
    let (browser, _lock) = logged_in(&server, "sharing").await;
    let path = format!("{}.v1", memory.slab());
    let text = "document.getElementById('sharing-text').innerText";
    browser.until(&format!("{text} === 'Shared by 1 process at {path}, 0 takeovers'")).await;
    // Another one joins, in this process too.
    let _other = on_slab(policy()).await;
    browser.until(&format!("{text} === 'Shared by 2 processes at {path}, 0 takeovers'")).await;
    let is_open = "document.getElementById('sharing-processes').checkVisibility()";
    assert_eq!(browser.eval(is_open).await, false);
    browser.click("#sharing-text").await;
    browser.until(is_open).await;
    let list = browser.text("#sharing-processes").await;
    assert_eq!(list.lines().count(), 2, "{list}");
    let start = format!("process {}, since ", std::process::id());
    assert!(list.starts_with(&start) && list.contains(&format!(", version {}", env!("CARGO_PKG_VERSION"))), "{list}");
    assert_eq!(list.matches("(this server)").count(), 1, "{list}");
    browser.picture("sharing.png").await;
    std::fs::remove_file(&path).expect("the slab");
    browser.until("document.getElementById('sharing').dataset.bad === 'true'").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn a_private_limiter_has_no_such_line() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "10/minute")]).await;
    let (browser, _lock) = logged_in(&server, "private").await;
    browser.until("document.getElementById('known').textContent === '0'").await;
    assert_eq!(browser.eval("document.getElementById('sharing').hidden").await, true);
}
