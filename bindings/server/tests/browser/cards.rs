//! What the page shows of a known load.

use super::{ADMIN, Browser, LOCK, TestServer, card, is_installed, logged_in, uses, violates};
use serde_json::{Value, json};

#[tokio::test]
async fn the_token_logs_in_and_a_wrong_one_is_reported_at_the_field() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "100/minute")]).await;
    let _lock = LOCK.lock().await;
    let browser = Browser::start("login").await;
    browser.open(&format!("http://{}/", server.address)).await;
    browser.until("!document.getElementById('login-view').hidden").await;
    assert_eq!(browser.complaints().await, [""; 0]);
    browser.until("document.activeElement.id === 'token'").await;
    browser.press("not the token\u{E007}").await;
    browser.until("document.getElementById('token-error').textContent.includes('not the admin token')").await;
    assert_eq!(browser.eval("document.getElementById('token').getAttribute('aria-invalid')").await, "true");
    assert_eq!(browser.complaints().await.len(), 1, "the refusal, which the browser logs itself");
    browser.type_into("#token", ADMIN).await;
    browser.press("\u{E007}").await;
    browser.until("document.getElementById('connection').dataset.state === 'live'").await;
    // No agent has sent a request: the page says what to do.
    browser.until("document.getElementById('empty').innerText.includes('No agent has sent a request')").await;
    let line = browser.text("#empty code").await;
    assert_eq!(line, format!("curl -d '{{\"agent\":\"me\",\"lane\":\"api\"}}' http://{}/v1/check", server.address));
    server.check(r#"{"agent": "me", "lane": "api"}"#).await;
    browser.until(&format!("Boolean({})", card("me"))).await;
    assert_eq!(browser.eval("document.getElementById('empty').hidden").await, true);
    // The session survives a reload, and ends with the log-out.
    browser.open(&format!("http://{}/", server.address)).await;
    browser.until("document.getElementById('connection').dataset.state === 'live'").await;
    browser.click("#log-out").await;
    browser.until("!document.getElementById('login-view').hidden").await;
    browser.open(&format!("http://{}/", server.address)).await;
    browser.until("!document.getElementById('login-view').hidden").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn cards_and_summary_show_the_load() {
    if !is_installed() {
        return;
    }
    let policy = super::common::counting().lane("api", "100/minute").lane("heavy", "10/minute");
    let policy = policy.plan("pro", [("api", "1000/minute")]).build().expect("a policy");
    let server = TestServer::with(policy, |_| {}).await;
    for (agent, used) in [("g49", 49), ("y50", 50), ("y80", 80), ("r81", 81), ("r100", 100)] {
        uses(&server, agent, "api", used);
    }
    // The dominant lane is the one nearest to its limit.
    uses(&server, "y80", "heavy", 1);
    uses(&server, "both", "api", 60);
    uses(&server, "both", "heavy", 7);
    let limiter = server.limiter();
    limiter.exempt("friend").expect("exempt");
    let _ = limiter.check("friend", limiter.lane("api").expect("a lane")).expect("a verdict");
    limiter.assign("y50", limiter.policy().plan("pro").expect("a plan")).expect("a plan");
    for (agent, times) in [("r100", 4), ("r81", 2), ("y80", 1)] {
        for _ in 0..times {
            violates(&server, agent, "api");
        }
    }
    let (browser, _lock) = logged_in(&server, "cards").await;
    browser.until("document.querySelectorAll('.card').length === 7").await;
    browser.until("document.querySelectorAll('#offenders li').length === 3").await;
    for (agent, level, lane, percent, used, word) in [
        ("g49", "green", "api", "49 %", "49 of 100 used", "ok"),
        ("y50", "yellow", "api", "50 %", "500 of 1,000 used", "busy"),
        ("y80", "yellow", "api", "80 %", "80 of 100 used", "busy"),
        ("r81", "red", "api", "81 %", "81 of 100 used", "near the limit"),
        ("r100", "red", "api", "100 %", "100 of 100 used", "used up"),
        ("both", "yellow", "heavy", "70 %", "7 of 10 used", "busy"),
    ] {
        let found = browser
            .eval(&format!(
                "((card) => [card.dataset.level, ...['.lane', '.percent', '.used', '.level'].map((css) => card.querySelector(css).textContent)])({})",
                card(agent)
            ))
            .await;
        assert_eq!(found, json!([level, lane, percent, used, word]), "{agent}");
    }
    // Three levels, three colours, and the bar is as long as its percentage.
    let colours = browser
        .eval(&format!(
            "[{}, {}, {}].map((card) => getComputedStyle(card.querySelector('.level')).color)",
            card("g49"),
            card("y80"),
            card("r81")
        ))
        .await;
    assert_eq!(colours, json!(["rgb(29, 122, 70)", "rgb(138, 90, 0)", "rgb(179, 38, 30)"]));
    browser.until(&format!("Math.abs(((card) => card.querySelector('.fill').offsetWidth / card.querySelector('.track').offsetWidth)({}) - 0.49) < 0.02", card("g49"))).await;
    let badges = |id: &str| format!("{}.querySelector('.badges').innerText", card(id));
    assert_eq!(browser.eval(&badges("y50")).await, "pro");
    assert_eq!(browser.eval(&badges("friend")).await, "exempt");
    let conduct = browser.eval(&format!("{}.querySelector('.conduct').textContent", card("r100"))).await;
    // Ten seconds, stored in eighths of a second and rounded up twice.
    assert_eq!(conduct, "4 violations · wait 11 s");

    assert_eq!(browser.text("#violations").await, "7");
    assert_eq!(browser.text("#known").await, "6", "an exempt agent has no record");
    assert_eq!(browser.text("#exempt").await, "1");
    let offenders = browser
        .eval("[...document.querySelectorAll('#offenders li')].map((li) => li.innerText.replace(/\\s+/g, ' '))")
        .await;
    assert_eq!(offenders, json!(["r100 4 violations", "r81 2 violations", "y80 1 violation"]));

    // Sorted by usage at first, and by id or violations on request.
    let order = "[...document.querySelectorAll('.id')].map((id) => id.textContent)";
    assert_eq!(browser.eval(order).await, json!(["r100", "r81", "y80", "both", "y50", "g49", "friend"]));
    for (sort, first) in [("id", "both"), ("violations", "r100")] {
        browser.run(&format!("const sort = document.getElementById('sort'); sort.value = '{sort}'; sort.dispatchEvent(new Event('change'))")).await;
        browser.until(&format!("{order}[0] === '{first}'")).await;
    }
    browser.type_into("#search", "r").await;
    browser.until("document.querySelectorAll('.card').length === 3").await;
    assert_eq!(browser.text("#agents-count").await, "3 of 7 agents");
    browser.type_into("#search", "a stranger").await;
    browser.until("document.getElementById('empty').innerText.includes('has this text in its id')").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}

#[tokio::test]
async fn ids_are_shown_as_text_whatever_they_contain() {
    if !is_installed() {
        return;
    }
    let server = TestServer::lanes(&[("api", "100/minute")]).await;
    let long = "x".repeat(256);
    let ids: [(&[u8], &str); 6] = [
        (b"<img src=x onerror=\"document.title='broken'\">", r#"<img src=x onerror=\"document.title='broken'\">"#),
        (b"two\nlines\r\n", r"two\nlines\r\n"),
        (b"\xff\x00", r"\xff\0"),
        ("\u{202e}abc".as_bytes(), r"\u{202e}abc"),
        (b"../..%2f?#a&b=c", "../..%2f?#a&b=c"),
        (long.as_bytes(), &long),
    ];
    for (id, _) in ids {
        uses(&server, id, "api", 10);
    }
    let (browser, _lock) = logged_in(&server, "ids").await;
    browser.until("document.querySelectorAll('.card').length === 6").await;
    for (id, shown) in ids {
        browser.until(&format!("Boolean({})", card(shown))).await;
        browser.run(&format!("{}.click()", card(shown))).await;
        browser.until("document.getElementById('agent').open").await;
        assert_eq!(browser.text("#agent-title").await, shown);
        // The change is made to this very agent.
        browser.click("#set-exempt").await;
        browser.until("document.getElementById('set-exempt').textContent === 'End the exemption'").await;
        assert!(server.limiter().assignment(id).expect("an id").is_exempt(), "{shown}");
        browser.click(".close").await;
    }
    let none = browser.eval("document.querySelectorAll('main img, dialog img').length + document.scripts.length").await;
    assert_eq!(none, 2, "two scripts of ours and no image");
    assert_eq!(browser.eval("document.title").await, Value::from("tollgate"));
    let is_wide = browser.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth").await;
    assert_eq!(is_wide, false);
    assert_eq!(browser.complaints().await, [""; 0]);
    // No complaints means something: text cannot become markup, nor an attribute a style, and the
    // browser reports both.
    let refused = "(() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; } })()";
    assert_eq!(browser.eval(refused).await, "TypeError");
    browser.run("document.body.setAttribute('style', 'color: red')").await;
    let complaints = browser.complaints().await;
    assert!(
        complaints.len() >= 2
            && complaints.iter().all(|text| text.contains("Content Security Policy") || text.contains("TrustedHTML")),
        "{complaints:?}"
    );
}
