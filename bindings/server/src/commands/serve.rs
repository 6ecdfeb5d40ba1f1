//! `tollgate serve`.

use super::{print_line, program, runtime, shell_word};
use crate::address::{Address, Listen, reachable_of};
use crate::app::App;
use crate::error::StartError;
use crate::log::Log;
use crate::net::listener::Server;
use crate::routes::audit::reload_for_signal;
use crate::settings::{ClusterSettings, RespSettings, Secret, Settings, Store, check_url};
use crate::source::Source;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tollgate::Policy;

#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(super) struct Arguments {
    /// The policy file; its table [server] has all settings
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    config: Option<PathBuf>,
    /// The preset to serve instead of a file: adr, citizen, hub, platform or standard
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Where to listen [default: 127.0.0.1:8787]; a port alone is on loopback, 0.0.0.0:8787 is everywhere,
    /// unix:/run/tollgate.sock is a socket; more than once to listen at several
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) listen: Vec<Address>,
    /// The directory that keeps changes made through the admin API; by default they are lost at the end
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// The slab to share the limiter with other processes: a file on /run or /dev/shm
    #[arg(long, value_name = "PATH")]
    shared: Option<PathBuf>,
    /// The Redis or Valkey through which machines share limits: redis://10.0.0.5; with the same secret
    /// in TOLLGATE_CLUSTER_SECRET on every machine
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// Where to listen for Envoy's rate limit filters: 127.0.0.1:8081
    #[arg(long, value_name = "ADDRESS:PORT")]
    envoy: Option<Address>,
    /// Configuration of envoyproxy/ratelimit to serve to Envoy: a file, or a directory of .yaml files
    #[arg(long, value_name = "FILE|DIRECTORY")]
    envoy_config: Option<PathBuf>,
    /// Where clients of Redis connect, for CL.THROTTLE: 127.0.0.1:6380; the policy needs a dynamic lane
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::address::parse)]
    resp: Option<SocketAddr>,
    /// Write log lines as JSON
    #[arg(long)]
    log_json: bool,
    /// How many agents can be active at once, instead of the file's number.
    #[arg(skip)]
    pub(super) agents: Option<u64>,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        let log = Log::start(self.log_json)?;
        let result = runtime()?.block_on(async {
            let instance = self.start().await?;
            instance.run().await
        });
        log.end();
        result
    }

    /// Where the policy is.
    pub(super) fn source(&self) -> Source {
        match (&self.config, &self.preset) {
            (Some(file), _) => Source::File(file.clone()),
            (None, preset) => {
                let preset = preset.clone().unwrap_or_else(|| "standard".to_owned());
                let for_envoy = self.envoy.is_some() || self.envoy_config.is_some();
                if for_envoy { Source::PresetForEnvoy(preset) } else { Source::Preset(preset) }
            }
        }
    }

    /// The arguments of another server with the same policy.
    pub(super) fn policy_arguments(&self) -> Vec<OsString> {
        let config = self.config.iter().flat_map(|file| ["--config".into(), file.into()]);
        config.chain(self.preset.iter().flat_map(|preset| ["--preset".into(), preset.into()])).collect()
    }

    /// Listens, with the settings of the arguments, the environment and the file.
    pub(super) async fn start(self) -> Result<Instance, StartError> {
        let source = self.source();
        let (policy, mut settings) = source.read()?;
        let mut listen = self.listen.into_iter();
        settings.listen = listen.next().map_or(settings.listen, |first| Listen::new(first, listen));
        settings.state = self.state.or(settings.state);
        settings.slab = self.shared.or(settings.slab);
        if let Some(listen) = self.resp {
            let resp = settings.resp.unwrap_or_else(|| RespSettings::new(listen));
            settings.resp = Some(RespSettings { listen, ..resp });
        }
        settings.agents = self.agents.unwrap_or(settings.agents);
        if self.envoy.is_some() || self.envoy_config.is_some() {
            let envoy = settings.envoy.get_or_insert_default();
            envoy.listen = self.envoy.unwrap_or(envoy.listen.clone());
            envoy.config = self.envoy_config.or(envoy.config.take());
        }
        if let Some(url) = self.redis {
            settings.cluster = Some(share_through(&policy, &url, settings.cluster)?);
        }
        read_token_variables(&mut settings)?;
        let what = match &source {
            Source::File(path) => format!("the policy of {}", path.display()),
            Source::Preset(name) | Source::PresetForEnvoy(name) => format!("the preset \"{name}\""),
            Source::Policy(_) => "its policy".to_owned(),
        };
        let app = Arc::new(App::new(settings, source, None)?);
        let server = Server::bind(Arc::clone(&app)).await?;
        if let Some(machines) = app.machines() {
            machines.wait_for_store().await;
        }
        Ok(Instance { app, server, what })
    }
}

/// The variable with the secret for `--redis`.
pub(super) const SECRET: &str = "TOLLGATE_CLUSTER_SECRET";

/// The settings of `[cluster]` with this store, or new ones.
fn share_through(policy: &Policy, url: &str, cluster: Option<ClusterSettings>) -> Result<ClusterSettings, StartError> {
    let failed = |problem: String| StartError::new(format!("--redis: {problem}"));
    if let Some(cluster) = cluster {
        check_url(url).map_err(failed)?;
        return Ok(ClusterSettings { store: Store::One(url.to_owned()), ..cluster });
    }
    let secret = std::env::var_os(SECRET).map(OsStringExt::into_vec).ok_or_else(|| {
        failed(format!("set {SECRET} to 16 random characters or more, the same on every machine: openssl rand -hex 16"))
    })?;
    ClusterSettings::new(policy, url, Secret::new(secret)).map_err(failed)
}

/// Who uses the limiter, in words.
fn sharing(app: &App) -> String {
    if let Some(machines) = app.machines() {
        return machines.text();
    }
    match app.limiter().sharing() {
        None => {
            "private: this process alone uses it (--shared PATH shares it with processes, --redis URL with machines)"
                .to_owned()
        }
        Some(sharing) => {
            let processes = sharing.processes.len();
            let have = if processes == 1 { "has" } else { "have" };
            format!("shared by processes: {}, {processes} {have} joined", sharing.path.display())
        }
    }
}

/// Tokens in the environment take precedence over those in the file.
pub(super) fn read_token_variables(settings: &mut Settings) -> Result<(), StartError> {
    read_token_variable("TOLLGATE_ADMIN_TOKEN", &mut settings.admin_token)?;
    read_token_variable("TOLLGATE_CHECK_TOKEN", &mut settings.check_token)
}

fn read_token_variable(name: &str, token: &mut Option<String>) -> Result<(), StartError> {
    match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => Ok(()),
        Ok(text) => {
            crate::settings::check_token(&text).map_err(|problem| StartError::new(format!("{name}: {problem}")))?;
            *token = Some(text);
            Ok(())
        }
        Err(_) => Err(StartError::new(format!("{name}: it is not text"))),
    }
}

fn url(address: &SocketAddr, settings: &Settings) -> String {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{address}")
}

fn shown(address: &Address, settings: &Settings) -> String {
    match address {
        Address::Tcp(address) => url(address, settings),
        socket @ Address::Unix(_) => socket.to_string(),
    }
}

/// A server that is listening.
pub(super) struct Instance {
    pub(super) app: Arc<App>,
    pub(super) server: Server,
    /// What it serves, in words.
    what: String,
}

impl Instance {
    async fn run(self) -> Result<(), StartError> {
        let on = |kind| signal(kind).map_err(|error| StartError::new(format!("cannot listen for signals: {error}")));
        let (mut end, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
        let mut hangup = on(SignalKind::hangup())?;
        print_line(&self.greeting());
        let app = Arc::clone(&self.app);
        let reloads = tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                let app = Arc::clone(&app);
                // It reads files and walks all records.
                _ = tokio::task::spawn_blocking(move || reload_for_signal(&app)).await;
            }
        });
        let stop = async {
            tokio::select! {
                _ = end.recv() => (),
                _ = interrupt.recv() => (),
            }
        };
        self.server.run(stop).await;
        reloads.abort();
        tracing::info!("stopped");
        Ok(())
    }

    /// What to know after starting it.
    pub(super) fn greeting(&self) -> String {
        let app = &self.app;
        let (settings, policy) = (app.settings(), app.limiter().policy());
        // What follows `curl` in a command.
        let reachable = reachable_of(self.server.addresses());
        let base = match &reachable {
            Address::Tcp(address) => url(address, settings),
            Address::Unix(path) => {
                format!("--unix-socket {} http://localhost", shell_word(&path.display().to_string()))
            }
        };
        let listens: Vec<_> = self.server.addresses().iter().map(|address| shown(address, settings)).collect();
        let program = program();
        let mut lines = vec![
            format!(
                "tollgate {} serves {} on {}: {} {}, up to {} agents.",
                env!("CARGO_PKG_VERSION"),
                self.what,
                listens.join(" and "),
                policy.lanes().len(),
                if policy.lanes().len() == 1 { "lane" } else { "lanes" },
                settings.agents
            ),
            format!("Limiter:    {}", sharing(app)),
            String::new(),
        ];
        let unchecked = self.unchecked();
        if let (Some(address), Some(envoy)) = (self.server.envoy_address(), app.envoy()) {
            let rules = match envoy.settings().config.as_deref() {
                Some(config) => format!("the rules of {}", config.display()),
                None => "the rules of the policy".to_owned(),
            };
            lines.insert(2, format!("Envoy:      {rules}, over gRPC on {address}"));
        }
        // No browser opens a Unix socket.
        let page = matches!(reachable, Address::Tcp(_)).then_some(&base);
        match (app.generated_token(), page) {
            (Some(token), page) => {
                let what = match page {
                    Some(base) => {
                        lines.push(format!("Dashboard:  {base}/#token={token}"));
                        "            This token, generated for this run, is for the admin API too:"
                    }
                    None => "Admin API:  with this token, generated for this run:",
                };
                lines.push(what.to_owned());
                lines.push(format!(
                    "            curl{unchecked} -H 'authorization: Bearer {token}' {base}/api/admin/rate-limits"
                ));
            }
            (None, Some(base)) => lines.push(format!("Dashboard:  {base}/ (log in with the admin token)")),
            (None, None) => {}
        }
        lines.extend(self.try_it(&policy, &base).into_iter().flatten());
        if let Some(address) = self.server.resp_address() {
            let call = format!("redis-cli -p {} CL.THROTTLE user123 15 30 60 1", address.port());
            lines.push(format!("Redis:      {address} for clients of redis-cell: {call}"));
        }
        if settings.state.is_none() {
            lines.push(
                "State:      in memory; changes through the admin API are lost at the end (--state DIRECTORY)"
                    .to_owned(),
            );
        }
        lines.push(format!("Your own:   {program} init            writes tollgate.toml, a commented policy file"));
        lines.push(format!("            {program} serve --config tollgate.toml"));
        lines.join("\n")
    }

    /// The option of curl for a first try: the certificate has the name that clients use, and not this address.
    fn unchecked(&self) -> &'static str {
        if self.app.settings().tls.is_some() { " -k" } else { "" }
    }

    /// A command whose last call is denied, if there is a lane to try.
    fn try_it(&self, policy: &Policy, base: &str) -> Option<[String; 2]> {
        let settings = self.app.settings();
        let authorization = match (settings.checks_are_open(), &settings.check_token, self.app.generated_token()) {
            (true, ..) => String::new(),
            (_, Some(_), _) => " -H \"authorization: Bearer $TOLLGATE_CHECK_TOKEN\"".to_owned(),
            (_, None, Some(token)) => format!(" -H 'authorization: Bearer {token}'"),
            (_, None, None) => " -H \"authorization: Bearer $TOLLGATE_ADMIN_TOKEN\"".to_owned(),
        };
        let is_held = |lane| self.app.limiter().is_held(lane) == Ok(true);
        // A total may be used up before the lane is.
        let total = policy.total().and_then(|total| policy.limit(total)).map_or(u64::MAX, |limit| limit.capacity());
        let most = |lane| if policy.is_in_total(lane) { total } else { u64::MAX };
        let lanes = policy.lanes().filter(|(lane, _)| policy.total() != Some(*lane));
        let lanes = lanes
            .filter_map(|(lane, name)| Some((name, policy.limit(lane)?.capacity().min(most(lane)), is_held(lane))));
        // Held lanes come last: their slots come back when the lease expires, not after a short wait.
        let (lane, capacity, is_held) =
            lanes.min_by_key(|(_, capacity, is_held)| (*is_held, *capacity == 0, *capacity))?;
        // Nobody calls it a hundred times; one call can use everything.
        let (cost, calls) = if capacity > 20 { (capacity, 2) } else { (1, capacity + 1) };
        let cost = if cost == 1 { String::new() } else { format!(",\"cost\":{cost}") };
        let (path, lane) = (if is_held { "hold" } else { "check" }, serde_json::Value::from(lane));
        let body = super::shell_quote(&format!("{{\"agent\":\"me\",\"lane\":{lane}{cost}}}"));
        let times = if calls == 1 { "once".to_owned() } else { format!("{calls} times in a row") };
        Some([
            format!("Try it:     curl -i{}{authorization} -d {body} {base}/v1/{path}", self.unchecked()),
            format!("            Call it {times}: the last answer is 429."),
        ])
    }
}
