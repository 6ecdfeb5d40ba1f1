//! A connection that is lost.

use super::{ADMIN, Browser, Running, TURN, card, is_installed, uses};
use serde_json::json;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes connections on to whom it is told, and cuts them when that changes.
async fn proxy(to: SocketAddr) -> (SocketAddr, watch::Sender<Option<SocketAddr>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (gate, to) = watch::channel(Some(to));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut to = to.clone();
            let Some(address) = *to.borrow_and_update() else { continue };
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(address).await else { return };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => (),
                    _ = to.changed() => (),
                }
            });
        }
    });
    (address, gate)
}

#[tokio::test]
async fn a_lost_connection_is_shown_and_comes_back_by_itself() {
    if !is_installed() {
        return;
    }
    let mut server = Running::lanes(&[("api", "100/minute")]).await;
    let (address, gate) = proxy(server.address).await;
    let _turn = TURN.lock().await;
    let browser = Browser::start("connection").await;
    browser.open(&format!("http://{address}/#token={ADMIN}")).await;
    let state = "document.getElementById('connection').dataset.state";
    browser.until(&format!("{state} === 'live'")).await;
    uses(&server, "before", "api", 10);
    browser.until(&format!("Boolean({})", card("before"))).await;

    gate.send_replace(None);
    browser.until(&format!("{state} === 'lost'")).await;
    browser.until("document.getElementById('lost').innerText.includes('tries again by itself')").await;
    assert_eq!(browser.eval(&format!("Boolean({})", card("before"))).await, true, "what was there stays");
    uses(&server, "after", "api", 10);
    gate.send_replace(Some(server.address));
    browser.until(&format!("{state} === 'live'")).await;
    browser.until(&format!("Boolean({})", card("after"))).await;
    assert_eq!(browser.eval("document.getElementById('lost').hidden").await, true);

    // While nobody looks, a snapshot comes every ten seconds, and every second again after.
    browser
        .run(
            "window.asked = [];
             const construct = (real, [url]) => (asked.push(url), new real(url));
             window.EventSource = new Proxy(EventSource, {construct});
             let isHidden = true;
             Object.defineProperty(document, 'hidden', {get: () => isHidden});
             document.dispatchEvent(new Event('visibilitychange'));
             isHidden = false;
             document.dispatchEvent(new Event('visibilitychange'));",
        )
        .await;
    assert_eq!(browser.eval("asked.map((url) => url.split('?')[1])").await, json!(["every=10", "every=1"]));
    browser.until(&format!("{state} === 'live'")).await;

    // An open page does not hold up the end of the server.
    server.stop();
    server.ended().await;
    browser.until(&format!("{state} === 'lost'")).await;
}

/// Sessions end with the server, and the token that was configured does not.
#[tokio::test]
async fn after_a_restart_the_page_asks_for_the_token_and_goes_on() {
    if !is_installed() {
        return;
    }
    let mut old = Running::lanes(&[("api", "100/minute")]).await;
    let (address, gate) = proxy(old.address).await;
    let _turn = TURN.lock().await;
    let browser = Browser::start("restart").await;
    browser.open(&format!("http://{address}/#token={ADMIN}")).await;
    let state = "document.getElementById('connection').dataset.state";
    browser.until(&format!("{state} === 'live'")).await;

    old.stop();
    old.ended().await;
    let new = Running::lanes(&[("api", "100/minute")]).await;
    uses(&new, "after", "api", 10);
    gate.send_replace(Some(new.address));
    browser.until("!document.getElementById('login-view').hidden").await;
    assert!(browser.text("#login-view").await.contains("Your session has ended; log in again."));
    assert_eq!(browser.eval("document.getElementById('dashboard').hidden").await, true, "nothing stale is shown");
    browser.type_into("#login input", ADMIN).await;
    browser.press("\u{e007}").await;
    browser.until(&format!("{state} === 'live' && Boolean({})", card("after"))).await;
}
