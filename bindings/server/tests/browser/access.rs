//! Accessibility: names, contrast, keyboard, small screens.

use super::{Browser, TestServer, is_installed, logged_in, uses, violates};
use serde_json::json;
use tollgate::{ConductRules, Policy};

const CHECK: &str = include_str!("access.js");

async fn check(browser: &Browser, what: &str) {
    let problems = browser.eval(&format!("(() => {{ {CHECK} }})()")).await;
    assert_eq!(problems, json!([]), "{what}");
}

#[tokio::test]
async fn text_has_contrast_and_fields_have_names_on_every_screen() {
    if !is_installed() {
        return;
    }
    let policy = Policy::builder().lane("api", "100/minute").lane("heavy", "10/minute");
    let policy = policy.conduct(ConductRules::default().with_every_denial(true));
    let policy = policy.plan("pro", [("api", "1000/minute")]).build().expect("a policy");
    let server = TestServer::with(policy, |_| {}).await;
    for (agent, used) in [("green", 10), ("yellow", 60), ("red", 95), (&"long-".repeat(51), 30)] {
        uses(&server, agent, "api", used);
    }
    for _ in 0..11 {
        violates(&server, "red", "api");
    }
    server.limiter().exempt("friend").expect("exempt");
    uses(&server, "friend", "api", 1);
    server.limiter().assign("green", server.limiter().policy().plan("pro").expect("a plan")).expect("a plan");
    let (browser, _lock) = logged_in(&server, "access").await;
    browser
        .until("document.querySelectorAll('.card').length === 5 && document.querySelectorAll('#events li').length >= 3")
        .await;
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        for (screen, width, height, is_phone) in [("desk", 1360, 1000, false), ("phone", 390, 844, true)] {
            browser.screen(width, height, is_phone).await;
            browser.until(&format!("innerWidth === {width}")).await;
            check(&browser, &format!("{scheme} {screen}")).await;
            browser
                .run("[...document.querySelectorAll('.card')].find((card) => card.innerText.includes('red')).click()")
                .await;
            browser.until("document.getElementById('agent').open").await;
            browser
                .run(
                    "document.getElementById('override-0').value = 'nonsense'; document.getElementById('save').click()",
                )
                .await;
            browser.until("document.getElementById('override-0-error').textContent !== ''").await;
            check(&browser, &format!("{scheme} {screen}, an agent")).await;
            browser.picture(&format!("agent-{scheme}-{screen}.png")).await;
            browser.run("document.getElementById('agent').close()").await;
        }
    }
    browser.click("#log-out").await;
    browser.until("!document.getElementById('login-view').hidden").await;
}

/// The tab key reaches everything, in the order of the page, and the focus is visible.
#[tokio::test]
async fn the_keyboard_reaches_everything() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "100/minute")]).await;
    uses(&server, "only", "api", 10);
    let (browser, _lock) = logged_in(&server, "keyboard").await;
    browser.until("document.querySelectorAll('.card').length === 1").await;
    let mut reached = Vec::new();
    browser.run("document.querySelector('.skip').focus()").await;
    for tabs in 0..8 {
        if tabs > 0 {
            browser.press("\u{E004}").await;
        }
        let focus = browser.eval("[document.activeElement.id || document.activeElement.className, getComputedStyle(document.activeElement).outlineStyle !== 'none']").await;
        assert_eq!(focus[1], true, "the focus on {focus} is not visible");
        reached.push(focus[0].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(reached, ["skip", "notify", "log-out", "events", "search", "sort", "per-page", "card"]);
}
