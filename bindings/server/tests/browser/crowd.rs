//! Ten thousand agents.

use super::{Running, logged_in};
use serde_json::json;

#[tokio::test]
async fn ten_thousand_agents_stay_smooth() {
    const AGENTS: u64 = 10_000;
    let server = Running::lanes(&[("api", "1000/minute")]).await;
    let limiter = server.limiter();
    let lane = limiter.lane("api").expect("a lane");
    let ask = |round: u64| {
        for number in 0..AGENTS {
            let verdict = limiter.check_cost(format!("agent-{number:05}"), lane, 1 + (number * round) % 7);
            assert!(verdict.expect("a verdict").is_allowed());
        }
    };
    ask(1);
    let (browser, _turn) = logged_in(&server, "crowd").await;
    browser.run("const per = document.getElementById('per-page'); per.value = '200'; per.dispatchEvent(new Event('change'))").await;
    browser
        .run("const sort = document.getElementById('sort'); sort.value = 'id'; sort.dispatchEvent(new Event('change'))")
        .await;
    browser.until("document.querySelectorAll('.card').length === 200 && document.querySelector('.id').textContent === 'agent-00000'").await;
    assert_eq!(browser.text("#agents-count").await, "10,000 agents");
    assert_eq!(browser.text("#page-number").await, "Page 1 of 50");

    // Cards are changed in place: the same elements, however often they change.
    browser
        .run(
            "window.first = [...document.querySelectorAll('.card')];
             window.long = [];
             new PerformanceObserver((list) => long.push(...list.getEntries().map((entry) => entry.duration))).observe({type: 'longtask'});
             window.frames = 0; const frame = () => { frames++; requestAnimationFrame(frame); }; frame();",
        )
        .await;
    for round in 2..6 {
        ask(round);
        let used = limiter.status("agent-00199", lane).expect("a status");
        let used = used.capacity() - used.remaining();
        browser.until(&format!("first[199].querySelector('.used').textContent === '{used} of 1,000 used'")).await;
    }
    let same = browser.eval("[...document.querySelectorAll('.card')].every((card, i) => card === first[i])").await;
    assert_eq!(same, true);
    let measured =
        browser.eval("[Math.max(0, ...long), long.length, frames, document.querySelectorAll('*').length]").await;
    println!(
        "10,000 agents: longest task {} ms, {} long tasks, {} frames, {} elements",
        measured[0], measured[1], measured[2], measured[3]
    );
    assert!(measured[3].as_u64().expect("a number") < 4_000, "{measured}");
    assert!(measured[2].as_u64().expect("a number") > 0, "frames are drawn");

    browser.click("#next").await;
    browser.until("document.querySelector('.id').textContent === 'agent-00200'").await;
    browser.type_into("#search", "-0999").await;
    browser.until("document.querySelectorAll('.card').length === 10").await;
    assert_eq!(browser.text("#agents-count").await, "10 of 10,000 agents");
    let first = browser.eval("document.querySelector('.id').textContent").await;
    assert_eq!(first, json!("agent-09990"));
    assert_eq!(browser.complaints().await, [""; 0]);
}
