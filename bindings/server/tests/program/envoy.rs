//! A real Envoy that asks the program. Its configuration is that of `docs/envoy.md`.

use super::directory::Directory;
use super::{ServerProcess, error, output, tollgate};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONFIG: &str = include_str!("../../../../docs/envoy/envoy.yaml");
const POLICY: &str = include_str!("../../../../docs/envoy/tollgate.toml");
const RATELIMIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/envoy/ratelimit.yaml");
const RATELIMIT_TEXT: &str = include_str!("../../../../docs/envoy/ratelimit.yaml");

/// How long a program may take to answer for the first time: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Envoy on the path, or where `.ci/tools` puts it in the target directory.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let kept = test.ancestors().map(|folder| folder.join("envoy/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = kept.chain(std::env::split_paths(&path)).map(|folder| folder.join("envoy")).find(|file| file.is_file());
    if found.is_none() {
        let missing = "envoy is missing: run .ci/tools, which puts one into the target directory";
        assert!(std::env::var_os("TOLLGATE_ALL").is_none(), "{missing}");
        eprintln!("not run: {missing}");
    }
    found
}

/// The address at which a server answers Envoy.
fn address(server: &ServerProcess) -> SocketAddr {
    let line = server.greeting.lines().find(|line| line.starts_with("Envoy:")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A text with another in place of a part of it, which it has.
fn with(text: &str, part: &str, other: &str) -> String {
    assert!(text.contains(part), "{part}");
    text.replace(part, other)
}

/// The arguments of a server with the configuration of the page, in a file of its own. A minute is an hour: a machine
/// may be too busy for six requests within the twelve seconds after which one more would pass.
fn arguments(directory: &Directory) -> [String; 7] {
    let file = directory.file("ratelimit.yaml", &with(RATELIMIT_TEXT, "unit: minute", "unit: hour"));
    ["serve", "--listen", "127.0.0.1:0", "--envoy", "127.0.0.1:0", "--envoy-config", &file].map(str::to_owned)
}

/// A server with these arguments.
fn start(arguments: &[String]) -> ServerProcess {
    ServerProcess::start(&mut tollgate(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// A service that answers every request with 200.
fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let (mut head, mut byte) = (Vec::new(), [0]);
                // Ends when Envoy closes the connection.
                while stream.read(&mut byte).is_ok_and(|read| read > 0) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nserved").unwrap();
                    }
                }
            });
        }
    });
    port
}

struct Envoy {
    child: Child,
    admin: SocketAddr,
    edge: SocketAddr,
    _directory: Directory,
}

impl Envoy {
    /// Starts one in front of a service, with this configuration and the server's address put into it.
    fn start(program: &PathBuf, name: &str, config: &str, server: SocketAddr) -> Self {
        let directory = Directory::new(name);
        let ports = [
            ("port_value: 9901", 0),
            ("port_value: 10000", 0),
            ("port_value: 9000", service()),
            ("port_value: 8081", server.port()),
        ];
        // The page's time-out is for machines that have time.
        let mut text = with(config, "timeout: 0.25s", "timeout: 60s");
        for (written, port) in ports {
            text = with(&text, written, &format!("port_value: {port}"));
        }
        let file = directory.file("envoy.yaml", &text);
        let (admin, log) = (directory.path().join("admin"), directory.path().join("log"));
        let mut command = Command::new(program);
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c", &file]);
        command.arg("--admin-address-path").arg(&admin).arg("--log-path").arg(&log);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut envoy = Self { child, admin: nowhere, edge: nowhere, _directory: directory };
        let text_of = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        envoy.until("an address", |envoy| match text_of(&admin).trim().parse() {
            Ok(address) => {
                envoy.admin = address;
                true
            }
            Err(_) => {
                assert!(envoy.child.try_wait().unwrap().is_none(), "envoy ended: {}", text_of(&log));
                false
            }
        });
        envoy.until("a listener", |envoy| {
            let listeners = get(envoy.admin, "/listeners", "");
            let found = listeners.lines().find_map(|line| line.strip_prefix("edge::")?.parse().ok());
            envoy.edge = found.unwrap_or(nowhere);
            found.is_some()
        });
        // Until its health check has succeeded, a cluster is asked all the same; this is the check's own test.
        envoy.until("a healthy cluster", |envoy| {
            let stats = get(envoy.admin, "/stats?filter=cluster.tollgate.health_check.success", "");
            stats
                .lines()
                .any(|line| line.starts_with("cluster.tollgate.health_check.success: ") && !line.ends_with(" 0"))
        });
        envoy
    }

    fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_true(self) {
            assert!(begun.elapsed() < PATIENCE, "no {what} for {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn get(&self, path: &str, headers: &str) -> String {
        get(self.edge, path, headers)
    }

    /// The statuses of several requests.
    fn statuses(&self, count: usize, path: &str, headers: &str) -> Vec<String> {
        let status = |answer: String| answer.split(' ').nth(1).unwrap_or_default().to_owned();
        (0..count).map(|_| status(self.get(path, headers))).collect()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The whole answer to a GET; nothing if nobody answers.
fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return String::new() };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}\r\n");
    let mut answer = String::new();
    _ = stream.write_all(head.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
    answer
}

#[test]
fn five_requests_pass_and_the_next_gets_a_429() {
    let Some(program) = program() else { return };
    let directory = Directory::new("envoy-429-rules");
    let server = start(&arguments(&directory));
    let envoy = Envoy::start(&program, "envoy-429", CONFIG, address(&server));
    for left in (0..5).rev() {
        let answer = envoy.get("/login", "");
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("served"), "{answer}");
        assert!(answer.contains(&format!("ratelimit: \"login\";r={left};t=")), "{answer}");
    }
    // All paths that begin with /login are one.
    let answer = envoy.get("/login/again", "");
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let mut found = head.lines().filter_map(|line| line.strip_prefix(&format!("{name}: ")));
        let first = found.next().unwrap_or_default().to_owned();
        assert_eq!(found.next(), None, "{name} is there twice: {head}");
        first
    };
    let wait: u64 = header("retry-after").parse().unwrap();
    assert!((1..=720).contains(&wait), "{head}");
    assert_eq!((&*header("x-envoy-ratelimited"), &*header("content-type")), ("true", "application/problem+json"));
    assert!(header("ratelimit").starts_with("\"login\";r=0;t="), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["status"], &body["violated-policies"]), (&429.into(), &serde_json::json!(["login"])));

    assert_eq!(envoy.statuses(4, "/search", ""), ["200"; 4], "in shadow mode");
    assert_eq!(envoy.statuses(1, "/old", ""), ["429"], "nothing passes");
    assert_eq!(envoy.statuses(2, "/else", "x-user: me\r\n"), ["200"; 2]);
    let metrics = get(server.address, "/metrics", "");
    for sample in [
        r#"tollgate_envoy_hits_total{domain="edge",rule="path_/login*.remote_address"} 6"#,
        r#"tollgate_envoy_within_limit_total{domain="edge",rule="path_/login*.remote_address"} 5"#,
        r#"tollgate_envoy_near_limit_total{domain="edge",rule="path_/login*.remote_address"} 1"#,
        r#"tollgate_envoy_over_limit_total{domain="edge",rule="path_/login*.remote_address"} 1"#,
        r#"tollgate_envoy_over_limit_total{domain="edge",rule="path_/old"} 1"#,
        r#"tollgate_envoy_hits_total{domain="edge",rule="user"} 2"#,
    ] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
    assert!(metrics.lines().any(|line| line.starts_with("tollgate_envoy_shadow_mode_total") && !line.ends_with(" 0")));
    server.stop();
}

#[test]
fn without_the_server_requests_pass_or_fail_as_the_filter_says() {
    let Some(program) = program() else { return };
    let directory = Directory::new("envoy-modes-rules");
    let server = start(&arguments(&directory));
    let open = Envoy::start(&program, "envoy-open", CONFIG, address(&server));
    let closed = with(CONFIG, "failure_mode_deny: false", "failure_mode_deny: true");
    let closed = Envoy::start(&program, "envoy-closed", &closed, address(&server));
    // Both ask one limiter.
    assert_eq!(open.statuses(3, "/login", ""), ["200"; 3]);
    assert_eq!(closed.statuses(3, "/login", ""), ["200", "200", "429"]);
    server.stop();
    assert_eq!(open.statuses(2, "/login", ""), ["200"; 2]);
    assert_eq!(closed.statuses(2, "/login", ""), ["500"; 2]);
}

#[test]
fn lanes_are_shared_with_checks_over_http_and_limits_may_come_along() {
    let Some(program) = program() else { return };
    let directory = Directory::new("envoy-lanes");
    let policy = with(&with(POLICY, "127.0.0.1:8081", "127.0.0.1:0"), "5/minute", "5/hour");
    let file = directory.file("tollgate.toml", &policy);
    let server = ServerProcess::start(&mut tollgate(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]));
    // The limit comes from metadata, which any filter before may have set.
    let actions = "- request_headers: {header_name: x-user, descriptor_key: user}";
    let filter = "                  - name: envoy.filters.http.ratelimit\n";
    let metadata = "                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - metadata_namespace: tollgate
                          value: {limit: {requests_per_unit: 2, unit: HOUR}}
";
    let own = format!(
        "{actions}
                        - actions:
                            - request_headers: {{header_name: x-tenant, descriptor_key: tenant}}
                          limit:
                            dynamic_metadata: {{metadata_key: {{key: tollgate, path: [{{key: limit}}]}}}}"
    );
    let config = with(&with(CONFIG, actions, &own), filter, &format!("{metadata}{filter}"));
    let envoy = Envoy::start(&program, "envoy-override", &config, address(&server));
    for _ in 0..3 {
        let answer = server.post("/v1/check", r#"{"agent": "agent-7", "lane": "api/user"}"#);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(envoy.statuses(3, "/", "x-user: agent-7\r\n"), ["200", "200", "429"]);
    assert_eq!(envoy.statuses(1, "/", "x-user: agent-8\r\n"), ["200"]);
    assert_eq!(envoy.statuses(3, "/", "x-tenant: a\r\n"), ["200", "200", "429"]);
    assert!(envoy.get("/", "x-tenant: a\r\n").contains("ratelimit-policy: \"request\";q=2;w=3600"));
    let metrics = get(server.address, "/metrics", "");
    assert!(metrics.contains(r#"tollgate_envoy_over_limit_total{domain="edge",rule="(request)"} 2"#), "{metrics}");
    server.stop();
}

#[test]
fn configuration_of_envoyproxy_ratelimit_is_imported() {
    let printed = output(&["import", "envoy", RATELIMIT]);
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let directory = Directory::new("envoy-import");
    let file = directory.file("tollgate.toml", &text);
    let checked = String::from_utf8(output(&["check-config", &file]).stdout).unwrap();
    assert!(checked.contains("is valid, and can be served"), "{checked}");
    let broken = directory.file("broken.yaml", "domain: edge\ndescriptors:\n  - key: a\n    ratelimit: 1\n");
    for arguments in [
        &["import", "envoy", &broken][..],
        &["serve", "--listen", "127.0.0.1:0", "--envoy", "127.0.0.1:0", "--envoy-config", &broken],
    ] {
        let error = error(&output(arguments));
        assert!(error.contains("broken.yaml: line 4, column 5: a descriptor has no key \"ratelimit\""), "{error}");
    }
    let empty = error(&output(&["import", "envoy", directory.path().join("none").to_str().unwrap()]));
    assert!(empty.contains("name a file or a directory of .yaml files"), "{empty}");
    let rule = "[lanes]\na = \"1/s\"\n[[envoy.rules]]\ndomain = \"d\"\ndescriptor = [{ key = \"k\" }]\nlane = \"b\"\n";
    let error = error(&output(&["check-config", &directory.file("lane.toml", rule)]));
    assert!(error.contains("lane.toml: line 6, column 8: there is no lane \"b\"; the lanes are a"), "{error}");
}
