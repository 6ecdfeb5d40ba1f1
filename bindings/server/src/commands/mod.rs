//! The command line.

mod check_config;
mod cluster;
mod demo;
mod explain;
mod import;
mod init;
mod machines;
mod manual;
mod serve;
mod slab;

use crate::error::StartError;
use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "tollgate", version, about = "A rate limiter as a server.", long_about = MANUAL)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Arguments,
}

const MANUAL: &str = "\
A rate limiter as a server.

May agent A do this, on lane L, for cost C, now? POST /v1/check answers 200 or 429, with \
headers and a body that you can pass on to your own clients. Without a command and without \
arguments it serves the preset \"standard\" on http://127.0.0.1:8787, and prints a command that \
gets the first 429 and a token for the admin API.

  tollgate init                              write a commented policy file, tollgate.toml
  tollgate check-config tollgate.toml        check it, and print what it means
  tollgate serve --config tollgate.toml      serve it; SIGHUP reads it again, SIGTERM shuts down
  tollgate import envoy ratelimit.yaml       print configuration of envoyproxy/ratelimit as a policy file
  tollgate explain agent-7                   print the state of an agent, from the running server
  tollgate slab /run/tollgate/slab           print who shares a limiter, and how that goes
  tollgate cluster                           print how machines share limits, from the running server

POST /v1/check/many decides many requests at once; /v1/check/all charges several, all or none. \
POST /v1/reserve charges an estimate that /v1/settle settles; POST /v1/hold takes a slot that \
/v1/release gives back; /v1/extend gives either more time. GET /v1/agents/AGENT reads the state \
of an agent, and charges nothing. /api/admin changes limits, /metrics is for Prometheus, /healthz \
and /readyz for probes, / is the dashboard.

With --envoy, or [envoy] in the policy file, it answers Envoy's rate limit filters over gRPC; \
--envoy-config serves the configuration of envoyproxy/ratelimit as it is.

With --shared, all servers of a machine that name the same slab are one limiter. With --redis, or \
[cluster] in the policy file, machines share their limits through Redis or Valkey, and no check \
waits for it. Without either each server limits for itself.

Tokens are not arguments, because others could see them. They are in the policy file \
(admin_token_file in [server]) or in the environment: TOLLGATE_ADMIN_TOKEN, TOLLGATE_CHECK_TOKEN; \
and the secret for --redis in TOLLGATE_CLUSTER_SECRET. \
TOLLGATE_LOG is the level of the log on standard error: off, error, warn, info, debug or trace.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a limiter over HTTP (the default command)
    Serve(serve::Arguments),
    /// Check a policy file, and print what it means
    CheckConfig(check_config::Arguments),
    /// Write a commented policy file
    Init(init::Arguments),
    /// Print configuration of another rate limiter as a policy file
    Import(import::Arguments),
    /// Print the state of an agent, from a running server
    Explain(explain::Arguments),
    /// Print who shares a slab, and how that goes; it joins the slab for the moment
    Slab(slab::Arguments),
    /// Print how machines share limits, from a running server; or an agent's keys
    Cluster(cluster::Arguments),
    /// Serve with simulated agents, one of them abusive; or --cluster: three servers with one limit
    Demo(demo::Arguments),
    /// Print a script with which a shell completes this program's arguments
    Completions(manual::Completions),
    /// Print a man page, of the program or of one of its commands
    Man(manual::Man),
}

/// Runs the command of the arguments.
pub fn main() -> ExitCode {
    let Arguments { command, serve } = Arguments::parse();
    let result = match command {
        None => serve.run(),
        Some(Command::Serve(arguments)) => arguments.run(),
        Some(Command::CheckConfig(arguments)) => arguments.run(),
        Some(Command::Init(arguments)) => arguments.run(),
        Some(Command::Import(arguments)) => arguments.run(),
        Some(Command::Explain(arguments)) => arguments.run(),
        Some(Command::Slab(arguments)) => arguments.run(),
        Some(Command::Cluster(arguments)) => arguments.run(),
        Some(Command::Demo(arguments)) => arguments.run(),
        Some(Command::Completions(arguments)) => arguments.run(),
        Some(Command::Man(arguments)) => arguments.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`, which panics if standard error is closed.
            _ = writeln!(std::io::stderr(), "tollgate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line to standard output. If nobody reads it, that is not an error.
fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// How this program was called, for commands that can be copied.
fn program() -> String {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_some() {
        return "cargo run --release --".to_owned();
    }
    std::env::args().next().map_or_else(|| "tollgate".to_owned(), |program| shell_word(&program))
}

/// A word of a command line, in quotes if it needs them.
fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) { word.to_owned() } else { shell_quote(word) }
}

/// A word in quotes, for every shell.
fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn runtime() -> Result<tokio::runtime::Runtime, StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| StartError::new(format!("cannot start threads: {error}")))
}
