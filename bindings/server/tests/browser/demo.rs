//! `tollgate demo`, as a new user sees it; screenshots are saved in the folder
//! `dashboard` of the target directory.

use super::{Browser, LOCK, is_installed};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_demo_shows_something_of_everything() {
    if !is_installed() {
        return;
    }
    let _lock = LOCK.lock().await;
    let browser = Browser::start("demo").await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["demo", "--listen", "127.0.0.1:0"]).env_remove("TOLLGATE_ADMIN_TOKEN");
    let mut demo = Demo(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program"));
    let mut lines = BufReader::new(demo.0.stdout.take().expect("piped")).lines();
    let url = lines.find_map(|line| Some(line.ok()?.strip_prefix("Dashboard:")?.trim().to_owned()));
    std::thread::spawn(move || lines.count());
    browser.open(&url.expect("the address of the dashboard")).await;
    browser
        .until("['green', 'yellow', 'red'].every((level) => document.querySelector(`.card[data-level=${level}]`))")
        .await;
    browser.until("document.querySelectorAll('#offenders li').length >= 2").await;
    browser.until("Boolean(document.querySelector('#events [data-kind=sustained_abuse]'))").await;
    browser.until("Boolean(document.querySelector('.badge[data-kind=exempt]') && document.querySelector('.badge[data-kind=override]'))").await;
    browser.until("parseFloat(document.getElementById('rate').textContent) > 10").await;
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await;
        browser.screen(1360, 1000, false).await;
        browser.picture(&format!("{scheme}.png")).await;
    }
    browser.scheme("light").await;
    browser.screen(390, 844, true).await;
    browser.until("innerWidth === 390").await;
    browser.picture("phone.png").await;
    assert_eq!(browser.complaints().await, [""; 0]);
}
