//! `tollgate demo --cluster`: three servers on one store, each as if on a machine of its own.

use super::{print_line, runtime, serve};
use crate::address::Address;
use crate::error::StartError;
use crate::random;
use crate::settings::{ClusterSettings, Secret};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tollgate::Policy;

/// How many servers there are.
const MACHINES: u16 = 3;

/// How long a process may take to start, and to end before it is killed.
const START_MAX: Duration = Duration::from_secs(10);
const END_MAX: Duration = Duration::from_secs(15);

/// The programs that can be the store.
const STORES: [&str; 2] = ["redis-server", "valkey-server"];

/// A process of the demo. It is ended when this is dropped.
struct Process {
    child: Child,
    /// Kept open, so that it can go on printing.
    _out: Option<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self, StartError> {
        let child = command.stdin(Stdio::null()).spawn();
        let program = command.get_program().display();
        let child = child.map_err(|error| StartError::new(format!("cannot start {program}: {error}")))?;
        Ok(Self { child, _out: None })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It is our child and was not waited for, so its id is nobody else's.
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        // Ends: after END_MAX it is killed.
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > END_MAX {
                _ = self.child.kill();
                _ = self.child.wait();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A store that the demo has started, in a directory of its own. Nothing of it stays.
struct OwnStore {
    process: Process,
    directory: PathBuf,
}

impl OwnStore {
    fn start() -> Result<Self, StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::new(format!("cannot start a store: {error}"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = std::env::split_paths(&path).collect();
        let mut programs = STORES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let program = programs.find(|program| program.is_file()).ok_or_else(|| {
            StartError::new(format!(
                "neither {} nor {} is on the PATH; install one of them, or name a store that runs: --redis redis://HOST",
                STORES[0], STORES[1]
            ))
        })?;
        let directory = std::env::temp_dir().join(format!("tollgate-demo-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.args(["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no"]);
        command.current_dir(&directory).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::start(&mut command).inspect_err(|_| drop(std::fs::remove_dir_all(&directory)))?;
        let mut store = Self { process, directory };
        let begun = Instant::now();
        // Ends: after START_MAX it fails.
        while UnixStream::connect(store.directory.join("socket")).is_err() {
            let ended = store.process.child.try_wait().ok().flatten();
            if let Some(status) = ended {
                return Err(failed(&format!("it ended with {status}")));
            }
            if begun.elapsed() > START_MAX {
                return Err(failed(&"it does not listen"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(store)
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.directory.join("socket").display())
    }
}

impl Drop for OwnStore {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Serves until it is interrupted, or for so many seconds.
pub(super) fn run(serve: &serve::Arguments, seconds: Option<u64>) -> Result<(), StartError> {
    let (policy, _) = serve.source().read()?;
    let own = if serve.redis.is_none() { Some(OwnStore::start()?) } else { None };
    let url = serve.redis.clone().or_else(|| own.as_ref().map(OwnStore::url)).unwrap_or_default();
    let secret = random::hex::<16>()?;
    let shared = ClusterSettings::new(&policy, &url, Secret::new(secret.as_str())).map_err(StartError::new)?;
    let mut servers: Vec<(SocketAddr, Process)> = Vec::new();
    for number in 0..MACHINES {
        servers.push(start_server(serve, &url, &secret, number)?);
    }
    let addresses: Vec<_> = servers.iter().map(|(address, _)| *address).collect();
    let pids = servers.iter().map(|(address, process)| format!("  http://{address}    pid {}", process.pid()));
    let mut lines =
        vec![format!("{MACHINES} servers, each as if on a machine of its own, share limits through {url}:")];
    lines.extend(pids);
    lines.extend(own.iter().map(|own| format!("  the store           pid {}", own.process.pid())));
    lines.extend(loop_to_try(&policy, &shared, &addresses));
    let first = addresses.first().map_or_else(String::new, ToString::to_string);
    lines.push(format!("See how it goes:\n  {} cluster --server {first}", super::program()));
    if let Some(own) = &own {
        let pid = own.process.pid();
        lines.push(format!("Lose the store, and find it again:\n  kill -STOP {pid}\n  kill -CONT {pid}"));
    }
    print_line(&lines.join("\n"));
    runtime()?.block_on(wait_for_end(seconds))?;
    if let Some(own) = &own {
        // A stopped process does not end.
        _ = kill_process(Pid::from_child(&own.process.child), Signal::CONT);
    }
    Ok(())
}

/// Starts one of the servers, and returns its address when it listens.
fn start_server(
    serve: &serve::Arguments,
    url: &str,
    secret: &str,
    number: u16,
) -> Result<(SocketAddr, Process), StartError> {
    let tcp = serve.listen.iter().find_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    });
    let mut listen = tcp.unwrap_or(SocketAddr::from(([127, 0, 0, 1], crate::settings::PORT)));
    if listen.port() != 0 {
        listen.set_port(listen.port().saturating_add(number));
    }
    let program = std::env::current_exe();
    let program = program.map_err(|error| StartError::new(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(program);
    command.arg("serve").args(serve.policy_arguments()).args(["--redis", url, "--listen", &listen.to_string()]);
    command.env(serve::SECRET, secret).stdout(Stdio::piped());
    if std::env::var_os("TOLLGATE_LOG").is_none() {
        command.env("TOLLGATE_LOG", "warn");
    }
    let mut server = Process::start(&mut command)?;
    let mut out = BufReader::new(server.child.stdout.take().ok_or_else(|| StartError::new("no output"))?);
    let mut greeting = String::new();
    _ = out.read_line(&mut greeting);
    let address = greeting.split("http://").nth(1).and_then(|rest| rest.split(": ").next()?.parse().ok());
    let address = address.ok_or_else(|| StartError::new(format!("the server at {listen} did not start")))?;
    server._out = Some(out);
    Ok((address, server))
}

/// A loop that shows one limit: it uses up the smallest lane.
fn loop_to_try(policy: &Policy, shared: &ClusterSettings, addresses: &[SocketAddr]) -> Vec<String> {
    let capacity = |name: &str| policy.lane(name).and_then(|lane| policy.limit(lane)).map(|limit| limit.capacity());
    let lanes = shared.lanes.iter().filter_map(|lane| Some((capacity(&lane.name)?, lane.name.as_str())));
    let Some((capacity, lane)) = lanes.filter(|(capacity, _)| *capacity > 0).min() else { return Vec::new() };
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let body = super::shell_quote(&format!("{{\"agent\":\"me\",\"lane\":{}}}", serde_json::Value::from(lane)));
    let calls = capacity.saturating_mul(u64::from(MACHINES));
    vec![
        format!("One limit over all of them: {lane} allows {capacity} at once."),
        format!(
            "  for call in $(seq {capacity}); do for server in {}; do curl -s -o /dev/null -w '%{{http_code}} ' -d {body} \
             http://$server/v1/check; done; done; echo",
            addresses.join(" ")
        ),
        format!(
            "Of these {calls} calls {capacity} are answered 200, and no more than one for each server beside them, or a \
             tenth of the limit; servers with limits of their own would allow all {calls}."
        ),
    ]
}

async fn wait_for_end(seconds: Option<u64>) -> Result<(), StartError> {
    let on = |kind| signal(kind).map_err(|error| StartError::new(format!("cannot listen for signals: {error}")));
    let (mut end, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let over = async {
        match seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => (),
        _ = end.recv() => (),
        _ = interrupt.recv() => (),
    }
    Ok(())
}
