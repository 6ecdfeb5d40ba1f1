//! The Redis of a benchmark, on a port of its own.

use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        drop(listener);
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).spawn().expect("redis-server is installed");
        let server = Self { child, port };
        // Ends: a server that does not start is seen by whoever runs this.
        while server.client().get_connection().is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("a URL")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our child");
    }

    /// Forgets everything, its statistics as well.
    pub(crate) fn clear(&self) {
        let mut connection = self.client().get_connection().expect("a connection");
        redis::cmd("FLUSHALL").exec(&mut connection).expect("an answer");
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).expect("an answer");
    }

    /// Seconds of a processor that it has used.
    pub(crate) fn processor_seconds(&self) -> f64 {
        let mut connection = self.client().get_connection().expect("a connection");
        let text: String = redis::cmd("INFO").arg("cpu").query(&mut connection).expect("an answer");
        let of =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<f64>().ok()).unwrap_or(0.0);
        of("used_cpu_user:") + of("used_cpu_sys:")
    }

    pub(crate) fn version(&self) -> String {
        let mut connection = self.client().get_connection().expect("a connection");
        let text: String = redis::cmd("INFO").arg("server").query(&mut connection).expect("an answer");
        text.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("?").trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
