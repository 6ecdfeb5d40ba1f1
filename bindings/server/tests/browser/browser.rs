//! A real Chromium without a window, driven over WebDriver.

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the page may take for anything, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Browser {
    client: Client,
    driver: Driver,
}

/// ChromeDriver and its one session; dropping it ends both.
struct Driver {
    child: Child,
    address: SocketAddr,
    session: String,
    profile: PathBuf,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Ends Chromium, which would outlive its driver.
        _ = self.end_session();
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.profile);
    }
}

impl Driver {
    /// A command that the client does not support.
    async fn request(&self, path: &str, body: &Value) -> Value {
        let mut client = tollgate_server::client::Client::connect(self.address).await.expect("chromedriver");
        let path = format!("/session/{}{path}", self.session);
        let answer = client.send("POST", &path, &[], body.to_string()).await.expect("an answer");
        serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    fn end_session(&self) -> std::io::Result<usize> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(
            format!("DELETE /session/{} HTTP/1.1\r\nhost: {}\r\n\r\n", self.session, self.address).as_bytes(),
        )?;
        stream.read(&mut [0; 256])
    }
}

/// Whether a browser and its driver are installed.
pub(crate) fn is_installed() -> bool {
    [("chromedriver", "chromium-driver"), ("chromium", "chromium")]
        .iter()
        .all(|(program, package)| crate::tools::has(program, package))
}

impl Browser {
    /// A new browser with an empty profile; `name` is unique among tests.
    pub(crate) async fn start(name: &str) -> Self {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()
        });
        // Nothing else reads its output, and it must not block on it.
        std::thread::spawn(move || lines.count());
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("a port")));
        let profile = std::env::temp_dir().join(format!("tollgate-browser-{name}-{}", std::process::id()));
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1360,1000",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let mut driver = Driver { child, address, session: String::new(), profile };
        let capabilities = options.as_object().expect("an object").clone();
        let mut client = ClientBuilder::new(HttpConnector::new());
        let client = client.capabilities(capabilities).connect(&format!("http://{address}")).await;
        let client = client.expect("a session");
        driver.session = client.session_id().await.expect("an answer").expect("a session");
        Self { client, driver }
    }

    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.expect("a page");
    }

    /// The value of a script's expression.
    pub(crate) async fn eval(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.client.execute(&script, vec![]).await.unwrap_or_else(|error| panic!("{error}: {expression}"))
    }

    /// Runs a script.
    pub(crate) async fn run(&self, script: &str) {
        self.client.execute(script, vec![]).await.unwrap_or_else(|error| panic!("{error}: {script}"));
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let begun = Instant::now();
        while self.eval(expression).await != json!(true) {
            if begun.elapsed() > TIMEOUT {
                let page = self.eval("document.body.innerText").await;
                panic!("never: {expression}\n{}", page.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The text of an element.
    pub(crate) async fn text(&self, css: &str) -> String {
        let text = self.eval(&format!("document.querySelector({})?.innerText", json!(css))).await;
        text.as_str().unwrap_or_default().to_owned()
    }

    pub(crate) async fn click(&self, css: &str) {
        let element = self.client.find(Locator::Css(css)).await.unwrap_or_else(|error| panic!("{error}: {css}"));
        element.click().await.unwrap_or_else(|error| panic!("{error}: {css}"));
    }

    /// Clears a field and types into it.
    pub(crate) async fn type_into(&self, css: &str, text: &str) {
        let element = self.client.find(Locator::Css(css)).await.unwrap_or_else(|error| panic!("{error}: {css}"));
        element.clear().await.expect("a field");
        element.send_keys(text).await.expect("a field");
    }

    /// Presses keys in the focused element.
    pub(crate) async fn press(&self, keys: &str) {
        let focused = self.client.active_element().await.expect("something has the focus");
        focused.send_keys(keys).await.expect("it accepts keys");
    }

    /// A command of the DevTools protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) {
        let body = json!({"cmd": command, "params": parameters});
        let answer = self.driver.request("/goog/cdp/execute", &body).await;
        assert!(answer["value"].get("error").is_none(), "{command}: {answer}");
    }

    /// Emulates a dark or a light colour scheme.
    pub(crate) async fn scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await;
    }

    /// Emulates a screen of this width and height.
    pub(crate) async fn screen(&self, width: u32, height: u32, is_phone: bool) {
        let scale = if is_phone { 2 } else { 1 };
        let parameters = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", parameters).await;
    }

    /// Saves a screenshot in the folder `dashboard` of the target directory.
    pub(crate) async fn picture(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../dashboard");
        std::fs::create_dir_all(&folder).expect("a folder");
        let picture = self.client.screenshot().await.expect("a picture");
        std::fs::write(folder.join(name), picture).expect("a file");
    }

    /// What the browser has logged since the last call: errors, warnings, and what the
    /// page's security policy has refused.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.driver.request("/se/log", &json!({"type": "browser"})).await;
        let entries = log["value"].as_array().unwrap_or_else(|| panic!("no log: {log}"));
        let bad = entries.iter().filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        bad.map(|entry| entry["message"].to_string()).collect()
    }
}
