//! A recipe of the documentation at work: tollgate, the gateway, and a service behind it.

use super::app::Service;
use super::{ServerProcess, tollgate};
use crate::directory::Directory;
use crate::store::free_port;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a gateway may take to start: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A page of `docs/gateways`, and how its gateway is started.
pub(super) struct Recipe {
    pub(super) page: &'static str,
    pub(super) program: &'static str,
    pub(super) install: &'static str,
    pub(super) arguments: &'static [&'static str],
    /// The language and the name of each file, in the order of the page.
    pub(super) files: &'static [(&'static str, &'static str)],
}

impl Recipe {
    /// The code in these languages, in the order of the page, without the indentation of its list.
    fn blocks(&self) -> Vec<(&'static str, String)> {
        let mut blocks: Vec<(&str, String)> = Vec::new();
        let (mut indentation, mut is_fenced) = (0, false);
        for line in self.page.lines() {
            let text = line.trim_start();
            match text.strip_prefix("```") {
                Some(_) if is_fenced => is_fenced = false,
                Some(language) => {
                    (indentation, is_fenced) = (line.len() - text.len(), true);
                    blocks.push((language, String::new()));
                }
                None if is_fenced => {
                    let (_, block) = blocks.last_mut().unwrap();
                    *block += line.get(indentation..).unwrap_or_default();
                    block.push('\n');
                }
                None => {}
            }
        }
        blocks
    }

    /// The program on the path, where administrators' programs are, or where `.ci/tools` puts it.
    fn find(&self) -> Option<PathBuf> {
        let test = std::env::current_exe().unwrap();
        let kept = test.ancestors().map(|folder| folder.join(self.program).join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = kept.chain(std::env::split_paths(&path)).chain(["/usr/sbin".into()]);
        let found = folders.map(|folder| folder.join(self.program)).find(|program| program.is_file());
        if found.is_none() {
            let missing = format!("{} is missing: {}", self.program, self.install);
            assert!(std::env::var_os("TOLLGATE_ALL").is_none(), "{missing}");
            // Written directly, because the harness hides the output of a test that passes.
            drop(writeln!(std::io::stderr(), "not run: {missing}"));
        }
        found
    }
}

/// A response, its names in lower case.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {text:?}"));
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        // These bodies have one chunk.
        let body = if is_chunked { body.lines().nth(1).unwrap_or_default() } else { body };
        Self { status, headers, body: body.to_owned() }
    }

    /// The one value of a header.
    pub(super) fn head(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| &**value);
        assert!(values.next().is_none(), "{name} twice: {self:?}");
        value
    }
}

pub(super) struct Gateway {
    program: PathBuf,
    arguments: &'static [&'static str],
    files: Vec<(&'static str, String)>,
    directory: Directory,
    address: SocketAddr,
    child: Child,
    app: Service,
    tollgate: Option<ServerProcess>,
}

impl Gateway {
    /// Starts everything, or says what to install.
    pub(super) fn start(recipe: &Recipe) -> Option<Self> {
        let program = recipe.find()?;
        let directory = Directory::new(recipe.program);
        let blocks = recipe.blocks();
        let policy = blocks.iter().find(|(language, _)| *language == "toml").map(|(_, text)| text);
        // Nothing comes back while the test runs.
        let policy = directory.file("tollgate.toml", &policy.expect("a policy file").replace("5/minute", "5/hour"));
        let tollgate = ServerProcess::start(&mut tollgate(&["serve", "--config", &policy, "--listen", "127.0.0.1:0"]));
        let app = Service::start();
        let (port, spare) = (free_port(), free_port());
        let changed = |text: &str| {
            let text = text.replace("127.0.0.1:8787", &tollgate.address.to_string());
            let text = text.replace("port_value: 8787", &format!("port_value: {}", tollgate.address.port()));
            let text = text.replace("9000", &app.address.port().to_string());
            text.replace("8080", &port.to_string()).replace("8788", &spare.to_string())
        };
        let mut rest = blocks.iter();
        let file = |(language, name): &(&str, &'static str)| {
            let (_, text) = rest.find(|(known, _)| known == language).expect("a file on the page");
            (*name, changed(text))
        };
        let mut files: Vec<_> = recipe.files.iter().map(file).collect();
        // What Debian's own file has, which includes this one.
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String = temporary.map(|name| format!("{name}_temp_path {name};\n")).concat();
        let main = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log error.log;\nevents {}\n";
        let main = format!("{main}http {{\naccess_log off;\n{temporary}include tollgate.conf;\n}}\n");
        files.extend((recipe.program == "nginx").then_some(("main.conf", main)));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let child = spawn(&program, recipe.arguments, &directory, &files);
        let arguments = recipe.arguments;
        let mut gateway = Self { program, arguments, files, directory, address, child, app, tollgate: Some(tollgate) };
        gateway.wait();
        Some(gateway)
    }

    /// Waits until it accepts connections.
    fn wait(&mut self) {
        let begun = Instant::now();
        // Ends: it listens, or the test fails.
        while TcpStream::connect(self.address).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended\n{}", self.log());
            assert!(begun.elapsed() < PATIENCE, "it does not listen\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Restarts it without the lines by which requests pass while tollgate is down.
    pub(super) fn close(&mut self) {
        self.end();
        for (_, text) in &mut self.files {
            let is_kept = |line: &&str| !line.trim_end().ends_with(" open");
            let kept: Vec<_> = text.lines().filter(is_kept).collect();
            *text = kept.join("\n") + "\n";
        }
        self.child = spawn(&self.program, self.arguments, &self.directory, &self.files);
        self.wait();
    }

    pub(super) fn stop_tollgate(&mut self) {
        self.tollgate.take().unwrap().stop();
    }

    pub(super) fn requests_of_app(&self) -> usize {
        self.app.requests()
    }

    /// One request over its own connection. `header` is a line, or several.
    pub(super) fn send(&self, method: &str, target: &str, header: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // A gateway that hangs is a failure, not a test that runs for ever.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let own = if header.contains("Connection:") { "" } else { "Connection: close\r\n" };
        let length = body.len();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: shop.example\r\n{own}{header}\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = Vec::new();
        // A reset ends it too.
        _ = stream.read_to_end(&mut answer);
        Answer::read(&String::from_utf8_lossy(&answer))
    }

    /// The same, again while nobody but the gateway has seen it: Traefik listens before it has its routes.
    pub(super) fn send_until_it_has_routes(&self, method: &str, target: &str, header: &str, body: &str) -> Answer {
        let begun = Instant::now();
        // Ends: it answers, or the test fails.
        loop {
            let answer = self.send(method, target, header, body);
            if answer.status != 404 {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "it has no routes\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// What the gateway has written.
    pub(super) fn log(&self) -> String {
        self.file("log") + &self.file("error.log")
    }

    /// Ends the gateway, and waits until it has.
    fn end(&mut self) {
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        // Ends: it does, or it is killed.
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(program: &PathBuf, arguments: &[&str], directory: &Directory, files: &[(&str, String)]) -> Child {
    for (name, text) in files {
        directory.file(name, text);
    }
    let log =
        || Stdio::from(std::fs::File::options().append(true).create(true).open(directory.path().join("log")).unwrap());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory.path()).stdin(Stdio::null()).stdout(log()).stderr(log());
    // Caddy keeps its state here, and listens for its administrator.
    command
        .env("HOME", directory.path())
        .env("XDG_CONFIG_HOME", directory.path())
        .env("XDG_DATA_HOME", directory.path());
    command.env("CADDY_ADMIN", format!("127.0.0.1:{}", free_port()));
    command.spawn().unwrap()
}
