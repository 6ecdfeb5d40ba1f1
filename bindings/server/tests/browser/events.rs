//! Events and notifications.

use super::{TestServer, is_installed, logged_in, uses, violates};
use serde_json::json;

#[tokio::test]
async fn sustained_abuse_is_listed_once_and_notified() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "10/minute")]).await;
    uses(&server, "early", "api", 10);
    for _ in 0..12 {
        violates(&server, "early", "api");
    }
    uses(&server, "rude", "api", 10);
    let (browser, _lock) = logged_in(&server, "events").await;
    let origin = format!("http://{}", server.address);
    browser.devtools("Browser.grantPermissions", json!({"permissions": ["notifications"], "origin": origin})).await;
    browser.click("#notify").await;
    browser.until("document.getElementById('notify').getAttribute('aria-pressed') === 'true'").await;
    // Events from before the page opened are listed, without a notification.
    let abuse = "document.querySelectorAll('#events [data-kind=sustained_abuse]').length";
    browser.until(&format!("{abuse} === 1")).await;
    for _ in 0..9 {
        violates(&server, "rude", "api");
    }
    // Events come in order: if this one is there, nine were not enough.
    server.limiter().exempt("friend").expect("exempt");
    browser.until("document.querySelectorAll('#events [data-kind=assignment]').length === 1").await;
    assert_eq!(browser.eval(abuse).await, 1);
    assert_eq!(browser.eval("document.documentElement.dataset.notified ?? ''").await, "");
    for _ in 0..5 {
        violates(&server, "rude", "api");
    }
    browser.until(&format!("{abuse} === 2")).await;
    browser.until("document.documentElement.dataset.notified === 'rude'").await;
    assert_eq!(browser.text("#toast").await, "Sustained abuse by rude: 10 violations within 5 minutes");
    // The event opens the agent.
    browser.click("#events [data-kind=sustained_abuse] button").await;
    browser.until("document.getElementById('agent').open").await;
    assert_eq!(browser.text("#agent-title").await, "rude");
    assert!(browser.text(".conduct-line").await.starts_with("14 violations in the current window, 14 in a row"));
    assert_eq!(browser.complaints().await, [""; 0]);
}
