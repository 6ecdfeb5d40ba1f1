//! `tollgate serve`.

use super::{log_to_stderr, program, runtime, say};
use crate::app::App;
use crate::error::StartError;
use crate::net::listener::Server;
use crate::source::Source;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tollgate::Policy;

#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(super) struct Arguments {
    /// The policy file, with a table [server] for what is below
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    config: Option<PathBuf>,
    /// The preset to serve without a file: adr, citizen, hub, platform or standard
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Where to listen: 127.0.0.1:8787 if nothing is said
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// The directory that keeps what the admin API changes; without one it is gone at the end
    #[arg(long, value_name = "DIRECTORY")]
    state: Option<PathBuf>,
    /// Log lines as JSON
    #[arg(long)]
    log_json: bool,
    /// How many agents are held, instead of what the file says.
    #[arg(skip)]
    pub(super) agents: Option<u64>,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        log_to_stderr(self.log_json);
        runtime()?.block_on(async {
            let server = self.start().await?;
            server.run().await
        })
    }

    /// Listens with everything the arguments, the environment and the file say.
    pub(super) async fn start(self) -> Result<Started, StartError> {
        let source = match (self.config, self.preset) {
            (Some(file), _) => Source::File(file),
            (None, preset) => Source::Preset(preset.unwrap_or_else(|| "standard".to_owned())),
        };
        let (_, mut settings) = source.read()?;
        settings.listen = self.listen.unwrap_or(settings.listen);
        settings.state = self.state.or(settings.state);
        settings.agents = self.agents.unwrap_or(settings.agents);
        token_of_environment("TOLLGATE_ADMIN_TOKEN", &mut settings.admin_token)?;
        token_of_environment("TOLLGATE_CHECK_TOKEN", &mut settings.check_token)?;
        let what = match &source {
            Source::File(path) => format!("the policy of {}", path.display()),
            Source::Preset(name) => format!("the preset \"{name}\""),
            Source::Policy(_) => "its policy".to_owned(),
        };
        let app = Arc::new(App::new(settings, source, None)?);
        let server = Server::bind(Arc::clone(&app)).await?;
        Ok(Started { app, server, what })
    }
}

fn token_of_environment(name: &str, token: &mut Option<String>) -> Result<(), StartError> {
    match std::env::var(name) {
        Err(std::env::VarError::NotPresent) => Ok(()),
        Ok(text) => {
            crate::settings::check_token(&text).map_err(|problem| StartError::new(format!("{name}: {problem}")))?;
            *token = Some(text);
            Ok(())
        }
        Err(_) => Err(StartError::new(format!("{name}: it is no text"))),
    }
}

/// A server that listens.
pub(super) struct Started {
    pub(super) app: Arc<App>,
    pub(super) server: Server,
    what: String,
}

impl Started {
    async fn run(self) -> Result<(), StartError> {
        let on = |kind| signal(kind).map_err(|error| StartError::new(format!("cannot listen for signals: {error}")));
        let (mut end, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
        let mut hangup = on(SignalKind::hangup())?;
        say(&self.greeting());
        let app = Arc::clone(&self.app);
        let reloads = tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                let app = Arc::clone(&app);
                // It reads files and walks all records.
                _ = tokio::task::spawn_blocking(move || app.control().reload_and_log()).await;
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
        tracing::info!("ended");
        Ok(())
    }

    /// What somebody needs who has just started it.
    pub(super) fn greeting(&self) -> String {
        let (app, address) = (&self.app, self.server.address());
        let (settings, policy) = (app.settings(), app.limiter().policy());
        let base = format!("http://{address}");
        let program = program();
        let mut lines = vec![
            format!(
                "tollgate {} serves {} on {base}: {} lanes, up to {} agents.",
                env!("CARGO_PKG_VERSION"),
                self.what,
                policy.lanes().len(),
                settings.agents
            ),
            String::new(),
        ];
        match app.made_up_token() {
            Some(token) => {
                lines.push(format!("Dashboard:  {base}/#token={token}"));
                lines.push("            This token, made up for this run, is for the admin API too:".to_owned());
                lines.push(format!("            curl -H 'authorization: Bearer {token}' {base}/api/admin/rate-limits"));
            }
            None => lines.push(format!("Dashboard:  {base}/ (log in with the admin token)")),
        }
        if let Some((lane, capacity)) = smallest_lane(&policy) {
            lines.push(format!("Try it:     curl -i -d '{{\"agent\":\"me\",\"lane\":\"{lane}\"}}' {base}/v1/check"));
            lines.push(format!("            Call it {} times within a second: the last answer is 429.", capacity + 1));
        }
        if settings.state.is_none() {
            lines.push(
                "Kept:       nothing; what the admin API changes is gone at the end (--state DIRECTORY)".to_owned(),
            );
        }
        lines.push(format!("Your own:   {program} init            writes tollgate.toml, a commented policy file"));
        lines.push(format!("            {program} serve --config tollgate.toml"));
        lines.join("\n")
    }
}

/// The lane that is used up first.
fn smallest_lane(policy: &Policy) -> Option<(&str, u64)> {
    let lanes = policy.lanes().filter_map(|(lane, name)| Some((name, policy.limit(lane)?.capacity())));
    lanes.filter(|(_, capacity)| *capacity > 0).min_by_key(|(_, capacity)| *capacity)
}
