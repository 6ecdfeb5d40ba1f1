//! What the page changes.

use super::common::json;
use super::{TestServer, card, is_installed, logged_in, uses, violates};

#[tokio::test]
async fn a_change_in_the_form_is_in_force_for_the_next_check() {
    if !is_installed() {
        return;
    }
    let policy = super::common::counting().lane("api", "100/minute").lane("heavy", "10/minute");
    let policy = policy.plan("pro", [("api", "1000/minute")]).build().expect("a policy");
    let server = TestServer::with(policy, |_| {}).await;
    uses(&server, "agent-7", "api", 90);
    violates(&server, "agent-7", "api");
    let (browser, _lock) = logged_in(&server, "admin").await;
    let card = card("agent-7");
    browser.until(&format!("Boolean({card})")).await;

    // By keyboard alone: the card has the focus, and Enter opens it.
    browser.run(&format!("{card}.focus()")).await;
    browser.press("\u{E007}").await;
    browser.until("document.getElementById('agent').open").await;
    assert_eq!(browser.eval("document.querySelectorAll('.lane-row').length").await, 2);

    // An invalid limit is reported at its field, in the server's words.
    browser.type_into("#override-0", "0/minute").await;
    browser.press("\u{E007}").await;
    browser.until("document.getElementById('override-0-error').textContent.includes('deny')").await;
    assert_eq!(browser.eval("document.getElementById('override-0').getAttribute('aria-invalid')").await, "true");
    assert_eq!(browser.eval("document.activeElement.id").await, "override-0");
    assert_eq!(server.limiter().assignment("agent-7").expect("an id").overrides().len(), 0);
    assert_eq!(browser.complaints().await.len(), 1, "the refusal, which the browser logs itself");

    // A valid one is in force at once, and its card shows it.
    browser.type_into("#override-0", "500/minute").await;
    browser.click("#save").await;
    browser.until("document.getElementById('toast').textContent.startsWith('Saved')").await;
    let verdict = json(&server.check(r#"{"agent": "agent-7", "lane": "api"}"#).await);
    assert_eq!((&verdict["allowed"], &verdict["limit"]), (&true.into(), &500.into()), "{verdict}");
    browser.until(&format!("{card}.querySelector('.used').textContent.endsWith('of 500 used')")).await;
    browser.until(&format!("{card}.querySelector('.badges').innerText === 'override'")).await;

    browser.type_into("#override-0", " ").await;
    browser.run("document.getElementById('plan').value = 'pro'").await;
    browser.click("#save").await;
    browser.until(&format!("{card}.querySelector('.used').textContent.endsWith('of 1,000 used')")).await;
    browser.until(&format!("{card}.querySelector('.badges').innerText === 'pro'")).await;
    assert_eq!(server.limiter().assignment("agent-7").expect("an id").plan(), Some("pro"));

    browser.click("#clear").await;
    browser.until(&format!("{card}.querySelector('.badges').innerText === ''")).await;
    assert_eq!(browser.eval("document.getElementById('plan').value").await, "");

    browser.click("#set-exempt").await;
    browser.until(&format!("{card}.querySelector('.badges').innerText === 'exempt'")).await;
    assert_eq!(json(&server.check(r#"{"agent": "agent-7", "lane": "api", "cost": 99}"#).await)["verdict"], "exempt");
    browser.click("#set-exempt").await;
    browser.until(&format!("{card}.querySelector('.badges').innerText === ''")).await;

    browser.until(&format!("{card}.querySelector('.conduct').textContent.startsWith('1 violation')")).await;
    browser.click("#forgive").await;
    browser.until(&format!("{card}.querySelector('.conduct').textContent === ''")).await;
    assert_eq!(server.limiter().violations("agent-7").expect("an id").violations(), 0);
    browser.click("#reset").await;
    browser.until(&format!("{card}.querySelector('.used').textContent === '0 of 100 used'")).await;
    assert_eq!(
        server
            .limiter()
            .peek(tollgate::Request::new("agent-7", server.limiter().lane("api").expect("a lane")))
            .expect("a state")
            .remaining(),
        100
    );

    // Forgetting an agent takes two clicks.
    browser.click("#forget").await;
    assert!(server.limiter().agent("agent-7").expect("an id").is_known);
    browser.click("#forget").await;
    browser.until(&format!("!({card})")).await;
    assert!(!server.limiter().agent("agent-7").expect("an id").is_known);
    browser.press("\u{E00C}").await;
    browser.until("!document.getElementById('agent').open").await;

    // An agent that has never sent a request can be assigned limits too.
    browser.type_into("#search", "a.new one").await;
    browser.until("document.getElementById('empty').innerText.includes('Open this id')").await;
    browser.click("#empty button").await;
    browser.until("document.getElementById('agent').open").await;
    browser.type_into("#override-1", "deny").await;
    browser.click("#save").await;
    browser.until("document.getElementById('toast').textContent.startsWith('Saved')").await;
    assert_eq!(server.limiter().assignment("a.new one").expect("an id").overrides().len(), 1);
    assert_eq!(browser.complaints().await, [""; 0]);
}

/// On a busy machine, the close event used to arrive after the next agent had been opened, and emptied its dialog.
#[tokio::test]
async fn a_late_close_event_does_not_empty_the_next_dialog() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "100/minute")]).await;
    uses(&server, "agent-7", "api", 30);
    let (browser, _lock) = logged_in(&server, "late").await;
    let card = card("agent-7");
    browser.until(&format!("Boolean({card})")).await;
    browser.run(&format!("{card}.click()")).await;
    browser.until("document.querySelectorAll('.lane-row').length === 1").await;
    browser.run("document.getElementById('agent').dispatchEvent(new Event('close'))").await;
    assert_eq!(browser.eval("document.querySelectorAll('.lane-row').length").await, 1);
    browser.run("document.getElementById('agent').close()").await;
    browser.until("document.querySelectorAll('.lane-row').length === 0").await;
}

/// Browsers read `%2E%2E` in a path as a directory: such cards used to open nothing.
#[tokio::test]
async fn agents_with_names_of_directories_can_be_opened() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "100/minute")]).await;
    for agent in [".", ".."] {
        uses(&server, agent, "api", 30);
    }
    let (browser, _lock) = logged_in(&server, "dots").await;
    for agent in [".", ".."] {
        let card = card(agent);
        browser.until(&format!("Boolean({card})")).await;
        browser.run(&format!("{card}.click()")).await;
        browser.until("document.getElementById('agent').open").await;
        browser.until("document.querySelectorAll('.lane-row').length === 1").await;
        browser.click("#reset").await;
        browser.until(&format!("{card}.querySelector('.used').textContent.startsWith('0 of 100')")).await;
        browser.run("document.getElementById('agent').close()").await;
    }
    assert_eq!(browser.complaints().await, [""; 0]);
}
