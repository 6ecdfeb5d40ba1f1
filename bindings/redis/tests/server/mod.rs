//! Real servers, one process each: a test starts its own and nothing of it stays.
//!
//! They listen on a Unix socket in a temporary directory and on no port. They keep
//! nothing on disk, so a restart is a loss of everything. The directory is in memory
//! where there is such a file system: sentinels and servers of a cluster sync what
//! they know of each other, and on a busy disk stand still for seconds meanwhile.

#![allow(dead_code, reason = "not every test does everything to its servers")]

pub(crate) mod group;

use redis::{Client, Connection};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take to answer for the first time, or for servers to find each other: a machine may be busy,
/// and a sentinel that stood still for two seconds does nothing for another thirty.
const PATIENCE: Duration = Duration::from_secs(60);

/// The configuration file in the server's directory, if there is one.
const FILE: &str = "server.conf";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    Valkey,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    fn install(self) -> &'static str {
        match self {
            Self::Redis => "install redis-server",
            Self::Valkey => "run .ci/tools, which puts one into the target directory",
        }
    }

    /// The program on the path, or where `.ci/tools` puts it in the target directory.
    fn find(self) -> Option<PathBuf> {
        let test = std::env::current_exe().expect("the path of the test");
        let kept = test.ancestors().map(|folder| folder.join("valkey/bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = kept.chain(std::env::split_paths(&path));
        folders.map(|folder| folder.join(self.program())).find(|program| program.is_file())
    }
}

/// A port of this machine that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Runs a test on each kind of server. One that is missing is reported, and fails the test under `make test`.
pub(crate) fn on_each(test: impl Fn(&mut Server)) {
    for kind in Kind::ALL {
        if let Some(mut server) = Server::start(kind, &[]) {
            test(&mut server);
        }
    }
}

/// A running server, killed when it is dropped. If its test fails, its log is printed.
pub(crate) struct Server {
    kind: Kind,
    program: PathBuf,
    options: Vec<String>,
    directory: PathBuf,
    child: Child,
}

impl Server {
    /// Starts one with further options, or says what to install.
    pub(crate) fn start(kind: Kind, options: &[&str]) -> Option<Self> {
        Self::start_with(kind, options, None)
    }

    /// The same with a configuration file, which comes before the options and which the server may rewrite.
    pub(crate) fn start_with(kind: Kind, options: &[&str], file: Option<&str>) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(program) = kind.find() else {
            let missing = format!("{} is missing: {}", kind.program(), kind.install());
            assert!(std::env::var_os("TOLLGATE_ALL").is_none(), "{missing}");
            // Written directly, because the harness hides the output of a test that passes; once is enough.
            static SAID: [Once; 2] = [const { Once::new() }; 2];
            SAID[kind as usize].call_once(|| drop(writeln!(std::io::stderr(), "not run: {missing}")));
            return None;
        };
        let name = format!("tollgate-redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let in_memory = Path::new("/dev/shm");
        let directory = if in_memory.is_dir() { in_memory.join(name) } else { std::env::temp_dir().join(name) };
        std::fs::create_dir(&directory).expect("a new directory among the temporary ones");
        if let Some(file) = file {
            std::fs::write(directory.join(FILE), file).expect("a file in a new directory");
        }
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let child = spawn(&program, &directory, &options);
        let mut server = Self { kind, program, options, directory, child };
        server.wait_until_it_answers();
        Some(server)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What `redis::Client` opens.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.directory.join("socket").display())
    }

    /// The same, as a user of the server's access list.
    pub(crate) fn url_of(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    pub(crate) fn connect(&self) -> Connection {
        let client = Client::open(self.url()).expect("a URL");
        client.get_connection().unwrap_or_else(|error| panic!("{:?}: {error}\n{}", self.kind, self.log()))
    }

    fn signal(&self, signal: Signal) {
        // The process is our child and was not waited for, so its id is not another's.
        kill_process(Pid::from_child(&self.child), signal).expect("a signal to our child");
    }

    /// Stops the process where it is: connections stay, and nothing answers.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a paused process go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process, paused or not.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("SIGKILL to our child");
        self.child.wait().expect("the end of our child");
    }

    /// Kills the process and starts it with nothing in it, at the same place.
    pub(crate) fn restart_empty(&mut self) {
        self.kill();
        self.child = spawn(&self.program, &self.directory, &self.options);
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&mut self) {
        let begin = Instant::now();
        let client = Client::open(self.url()).expect("a URL");
        // Ends: after PATIENCE it fails.
        while client.get_connection().and_then(|mut connection| redis::cmd("PING").exec(&mut connection)).is_err() {
            let ended = self.child.try_wait().expect("the state of our child");
            assert!(ended.is_none(), "{:?} ended with {ended:?}:\n{}", self.kind, self.log());
            assert!(begin.elapsed() < PATIENCE, "{:?} does not answer:\n{}", self.kind, self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the log of {:?}:\n{}", self.kind, self.log());
        }
        _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn spawn(program: &Path, directory: &Path, options: &[String]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(directory.join("log")).expect("a log");
    // A server that was killed leaves its socket, and a client would find nobody there.
    _ = std::fs::remove_file(directory.join("socket"));
    let mut command = Command::new(program);
    if directory.join(FILE).exists() {
        command.arg(FILE);
    }
    command.args(["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no"]).args(options);
    command.current_dir(directory).stdin(Stdio::null());
    command.stderr(log.try_clone().expect("the log again")).stdout(log).spawn().expect("a server")
}
