//! Ten thousand agents.

use super::{ADMIN, Browser, LOCK, TestServer, is_installed};
use serde_json::json;
use tollgate::{Policy, Request};

/// How many frames a page draws per second, over a second and a half: one or two
/// updates of the dashboard.
async fn frames_per_second(browser: &Browser) -> f64 {
    browser
        .run(
            "window.drawn = null; let frames = 0; const begun = performance.now();
             const frame = () => {
               frames++;
               const passed = performance.now() - begun;
               if (passed < 1500) requestAnimationFrame(frame); else window.drawn = 1000 * frames / passed;
             };
             requestAnimationFrame(frame);",
        )
        .await;
    browser.until("window.drawn !== null").await;
    browser.eval("window.drawn").await.as_f64().expect("a number")
}

#[tokio::test]
async fn ten_thousand_agents_stay_smooth() {
    if !is_installed() {
        return;
    }
    const AGENTS: u64 = 10_000;
    let policy = Policy::builder().lane("api", "1000/minute").build().expect("a policy");
    // With enough room that no two agents compete for a record.
    let server = TestServer::with(policy, |settings| settings.agents = 8 * AGENTS).await;
    let limiter = server.limiter();
    let lane = limiter.lane("api").expect("a lane");
    let check_all = |round: u64| {
        for number in 0..AGENTS {
            let verdict =
                limiter.check_request(Request::new(&format!("agent-{number:05}"), lane).cost(1 + (number * round) % 7));
            assert!(verdict.expect("a verdict").is_allowed());
        }
    };
    check_all(1);
    let _lock = LOCK.lock().await;
    let browser = Browser::start("crowd").await;
    browser.open("about:blank").await;
    let idle = frames_per_second(&browser).await;
    browser.open(&format!("http://{}/#token={ADMIN}", server.address)).await;
    browser.until("document.getElementById('connection').dataset.state === 'live'").await;
    browser.run("const per = document.getElementById('per-page'); per.value = '200'; per.dispatchEvent(new Event('change'))").await;
    browser
        .run("const sort = document.getElementById('sort'); sort.value = 'id'; sort.dispatchEvent(new Event('change'))")
        .await;
    browser.until("document.querySelectorAll('.card').length === 200 && document.querySelector('.id').textContent === 'agent-00000'").await;
    assert_eq!(browser.text("#agents-count").await, "10,000 agents");
    assert_eq!(browser.text("#page-number").await, "Page 1 of 50");

    // Cards are updated in place: the elements stay the same.
    browser
        .run(
            "window.first = [...document.querySelectorAll('.card')];
             window.long = [];
             new PerformanceObserver((list) => long.push(...list.getEntries().map((entry) => entry.duration))).observe({type: 'longtask'});",
        )
        .await;
    let mut busy = Vec::new();
    for round in 2..6 {
        check_all(round);
        let used = limiter.peek(Request::new("agent-00199", lane)).expect("a state");
        let used = used.capacity() - used.remaining();
        browser.until(&format!("first[199].querySelector('.used').textContent === '{used} of 1,000 used'")).await;
        busy.push(frames_per_second(&browser).await);
    }
    let same = browser.eval("[...document.querySelectorAll('.card')].every((card, i) => card === first[i])").await;
    assert_eq!(same, true);
    busy.sort_unstable_by(f64::total_cmp);
    let drawn = busy[busy.len() / 2] / idle;
    let measured = browser
        .eval(
            "[Math.max(0, ...long), long.length, document.querySelectorAll('*').length,
              Math.max(...performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/agents?'))
                  .map((entry) => entry.transferSize))]",
        )
        .await;
    println!(
        "10,000 agents: longest task {} ms, {} long tasks, {} elements, {} bytes a list, {:.0} % of the frames of an empty page",
        measured[0],
        measured[1],
        measured[2],
        measured[3],
        100.0 * drawn
    );
    assert!(measured[2].as_u64().expect("a number") < 4_000, "{measured}");
    assert!((1..60_000).contains(&measured[3].as_u64().expect("a number")), "{measured}");
    // On an idle machine it is nearly all of them.
    assert!(drawn > 0.25, "{drawn} of {idle} frames a second");

    browser.click("#next").await;
    browser.until("document.querySelector('.id').textContent === 'agent-00200'").await;
    browser.type_into("#search", "-0999").await;
    browser.until("document.querySelectorAll('.card').length === 10").await;
    assert_eq!(browser.text("#agents-count").await, "10 of 10,000 agents");
    let first = browser.eval("document.querySelector('.id').textContent").await;
    assert_eq!(first, json!("agent-09990"));
    assert_eq!(browser.complaints().await, [""; 0]);
}
