//! Every way to a store, through the C functions: Sentinel, a cluster, TLS, a user
//! with a password. What is common to all is tested in C: `bindings/c/tests/test_engine.c`.

#![expect(clippy::panic, reason = "a panic names the line that failed")]

#[path = "../../../redis/tests/server/mod.rs"]
mod server;

use server::group::{Cluster, Sentinels};
use server::{Kind, Server, free_port};
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tollgate_redis_capi::ffi::{self, ClusterOptions, Limiter, LimiterOptions, Status, Verdict};
use tollgate_redis_capi::{
    Engine, EngineOptions, EngineState, EngineView, Servers, tollgate_engine_free, tollgate_engine_new,
    tollgate_engine_status,
};

/// How long a store may take: a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A struct of zeros, which is what C begins with.
fn zero<T>() -> T {
    // SAFETY: used for structs of numbers and pointers alone.
    unsafe { std::mem::zeroed() }
}

fn part(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}

/// A machine, as a program in C has it.
struct Machine {
    limiter: *mut Limiter,
    engine: *mut Engine,
}

impl Machine {
    /// The options are filled in by the test; its texts live as long as this call.
    fn new(fill: impl FnOnce(&mut EngineOptions)) -> Self {
        let secret = "0f6f4c0d9d1e7e4a0a2b";
        let mut cluster: ClusterOptions = zero();
        cluster.struct_size = size_of::<ClusterOptions>() as u32;
        (cluster.secret, cluster.secret_len) = (secret.as_ptr().cast(), secret.len());
        let mut options: LimiterOptions = zero();
        (options.struct_size, options.agents, options.cluster) =
            (size_of::<LimiterOptions>() as u32, 1_000, &raw const cluster);
        let (mut policy, mut limiter) = (null_mut(), null_mut());
        let (toml, toml_len) = part("[lanes]\nhttp = '60/minute'\n");
        // SAFETY: texts of ours, and places of ours.
        let status = unsafe { ffi::tollgate_policy_from_toml(toml, toml_len, null_mut(), &raw mut policy) };
        assert_eq!(status, Status::Ok);
        // SAFETY: a policy of a moment ago, and options with a secret that lives.
        let status = unsafe { ffi::tollgate_limiter_new(policy, &raw const options, null_mut(), &raw mut limiter) };
        assert_eq!(status, Status::Ok);
        // SAFETY: the limiter has its own copy.
        unsafe { ffi::tollgate_policy_free(policy) };

        let mut options: EngineOptions = zero();
        options.struct_size = size_of::<EngineOptions>() as u32;
        fill(&mut options);
        let mut engine = null_mut();
        let mut error: ffi::Error = zero();
        error.struct_size = size_of::<ffi::Error>() as u32;
        // SAFETY: a limiter of a moment ago, and options whose texts live.
        let status = unsafe { tollgate_engine_new(limiter, &raw const options, &raw mut error, &raw mut engine) };
        assert_eq!(status, Status::Ok, "{}", said(&error.message));
        Self { limiter, engine }
    }

    fn view(&self) -> EngineView {
        let mut view: EngineView = zero();
        view.struct_size = size_of::<EngineView>() as u32;
        // SAFETY: an engine that lives, and a place of its size.
        let status = unsafe { tollgate_engine_status(self.engine, &raw mut view, null_mut(), 0) };
        assert_eq!(status, Status::Ok);
        view
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&EngineView) -> bool) {
        let begin = Instant::now();
        while !is_so(&self.view()) {
            assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}: {}", said(&self.view().last_problem));
            sleep(Duration::from_millis(2));
        }
    }

    /// Whether a check is answered from what the store has granted, or is paid in advance.
    fn settles(&self) {
        self.wait_for("connected", |view| view.state == EngineState::Connected);
        let id = c"agent-7".as_ptr().cast();
        let request = ffi::Request { id, id_len: 7, cost: 1, lane: 0, plan: u32::MAX, limit: null() };
        let mut verdict: Verdict = Verdict { status: Status::Panic, ..zero() };
        // SAFETY: a limiter that lives, and places of ours.
        let status =
            unsafe { ffi::tollgate_check(self.limiter, &raw const request, ffi::TOLLGATE_NOW, 0, &raw mut verdict) };
        assert_eq!((status, verdict.decision), (Status::Ok, ffi::Decision::Allow));
        assert_eq!(verdict.source, ffi::Source::Advance as u16);
        self.wait_for("paid", |view| view.paid == 1);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: made here, and freed once.
        unsafe { ffi::tollgate_limiter_free(self.limiter) };
        // SAFETY: as above.
        unsafe { tollgate_engine_free(self.engine) };
    }
}

/// A text in an array of a struct.
fn said(text: &[c_char]) -> String {
    // SAFETY: every text that the library writes ends in a NUL.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned()
}

#[test]
fn sentinels_name_the_master() {
    let Some(group) = Sentinels::start(Kind::Redis) else { return };
    let urls = group.urls().join(" ");
    let machine = Machine::new(|options| {
        options.servers = Servers::Sentinel as i32;
        (options.urls, options.urls_len) = part(&urls);
        (options.master, options.master_len) = part("main");
    });
    machine.settles();
}

#[test]
fn a_cluster_is_found_by_some_of_its_servers() {
    let Some(group) = Cluster::start(Kind::Redis) else { return };
    let urls = group.urls()[..2].join("  ");
    let machine = Machine::new(|options| {
        options.servers = Servers::Cluster as i32;
        (options.urls, options.urls_len) = part(&urls);
    });
    machine.settles();
}

#[test]
fn a_user_has_a_password_that_is_never_shown() {
    for kind in Kind::ALL {
        let config = "user tollgate on >hunter2hunter2 ~tollgate:* +@all\n";
        let Some(server) = Server::start_with(kind, &[], Some(config)) else { return };
        let url = server.url();
        let machine = Machine::new(|options| {
            (options.urls, options.urls_len) = part(&url);
            (options.user, options.user_len) = part("tollgate");
            (options.password, options.password_len) = part("hunter2hunter2");
        });
        machine.settles();
        let machine = Machine::new(|options| {
            (options.urls, options.urls_len) = part(&url);
            (options.user, options.user_len) = part("tollgate");
            (options.password, options.password_len) = part("hunter3hunter3");
        });
        machine.wait_for("refused", |view| view.last_problem[0] != 0);
        let problem = said(&machine.view().last_problem);
        assert!(!problem.is_empty() && !problem.contains("hunter"), "{problem}");
    }
}

#[test]
fn certificates_are_those_that_were_given() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../redis/tests/engine/tls");
    let path = |name: &str| folder.join(name).display().to_string();
    let pem = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let port = free_port();
    let (number, certificate, key, ca) = (port.to_string(), path("server.pem"), path("server.key"), path("ca.pem"));
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let options: Vec<_> = ["--tls-port", &number, "--tls-auth-clients", "yes"].into_iter().chain(files).collect();
    let Some(_server) = Server::start(Kind::Redis, &options) else { return };
    let url = format!("rediss://127.0.0.1:{port}");
    let (ca, certificate, key) = (pem("ca.pem"), pem("client.pem"), pem("client.key"));
    let believing = |with_certificate: bool| {
        Machine::new(|options| {
            (options.urls, options.urls_len) = part(&url);
            (options.tls_ca, options.tls_ca_len) = part(&ca);
            if with_certificate {
                (options.tls_certificate, options.tls_certificate_len) = part(&certificate);
                (options.tls_key, options.tls_key_len) = part(&key);
            }
        })
    };
    believing(true).settles();
    let unknown = believing(false);
    unknown.wait_for("a certificate is asked for", |view| said(&view.last_problem).contains("CertificateRequired"));
}
