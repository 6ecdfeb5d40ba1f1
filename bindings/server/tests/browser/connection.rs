//! A lost connection.

use super::{ADMIN, Browser, LOCK, TestServer, card, is_installed, uses};
use serde_json::json;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to an address, and cuts them when that changes.
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
async fn a_lost_connection_is_shown_and_reconnects_by_itself() {
    if !is_installed() {
        return;
    }
    let mut server = TestServer::lanes(&[("api", "100/minute")]).await;
    let (address, gate) = proxy(server.address).await;
    let _lock = LOCK.lock().await;
    let browser = Browser::start("connection").await;
    browser.open(&format!("http://{address}/#token={ADMIN}")).await;
    let state = "document.getElementById('connection').dataset.state";
    browser.until(&format!("{state} === 'live'")).await;
    uses(&server, "before", "api", 10);
    browser.until(&format!("Boolean({})", card("before"))).await;

    gate.send_replace(None);
    browser.until(&format!("{state} === 'lost'")).await;
    browser.until("document.getElementById('lost').innerText.includes('reconnects by itself')").await;
    assert_eq!(browser.eval(&format!("Boolean({})", card("before"))).await, true, "the cards stay");
    uses(&server, "after", "api", 10);
    gate.send_replace(Some(server.address));
    browser.until(&format!("{state} === 'live'")).await;
    browser.until(&format!("Boolean({})", card("after"))).await;
    assert_eq!(browser.eval("document.getElementById('lost').hidden").await, true);

    // While the page is hidden, a snapshot comes every ten seconds, and every second again afterwards.
    browser
        .run(
            "window.requested = [];
             const construct = (real, [url]) => (requested.push(url), new real(url));
             window.EventSource = new Proxy(EventSource, {construct});
             let isHidden = true;
             Object.defineProperty(document, 'hidden', {get: () => isHidden});
             document.dispatchEvent(new Event('visibilitychange'));
             isHidden = false;
             document.dispatchEvent(new Event('visibilitychange'));",
        )
        .await;
    assert_eq!(browser.eval("requested.map((url) => url.split('?')[1])").await, json!(["every=10", "every=1"]));
    browser.until(&format!("{state} === 'live'")).await;

    // An open page does not delay shutdown.
    server.stop();
    server.stopped().await;
    browser.until(&format!("{state} === 'lost'")).await;
}

/// Sessions end with the server; a configured token does not.
#[tokio::test]
async fn after_a_restart_the_page_requests_the_token_and_continues() {
    if !is_installed() {
        return;
    }
    let mut old = TestServer::lanes(&[("api", "100/minute")]).await;
    let (address, gate) = proxy(old.address).await;
    let _lock = LOCK.lock().await;
    let browser = Browser::start("restart").await;
    browser.open(&format!("http://{address}/#token={ADMIN}")).await;
    let state = "document.getElementById('connection').dataset.state";
    browser.until(&format!("{state} === 'live'")).await;

    old.stop();
    old.stopped().await;
    let new = TestServer::lanes(&[("api", "100/minute")]).await;
    uses(&new, "after", "api", 10);
    gate.send_replace(Some(new.address));
    browser.until("!document.getElementById('login-view').hidden").await;
    assert!(browser.text("#login-view").await.contains("Your session has ended; log in again."));
    assert_eq!(browser.eval("document.getElementById('dashboard').hidden").await, true, "nothing stale is shown");
    browser.type_into("#login input", ADMIN).await;
    browser.press("\u{e007}").await;
    browser.until(&format!("{state} === 'live' && Boolean({})", card("after"))).await;
}
