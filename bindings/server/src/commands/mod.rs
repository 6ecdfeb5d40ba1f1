//! The command line.

mod check_config;
mod demo;
mod explain;
mod init;
mod serve;

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

May agent A do this, on lane L, for cost C, now? Ask with POST /v1/check, and get 200 or 429, with \
the headers and the body that your own clients can be shown. Without a command and without \
arguments it serves on http://127.0.0.1:8787 with the preset \"standard\", prints a line that \
yields the first 429, and a token for the admin API.

  tollgate init                              write a commented policy file, tollgate.toml
  tollgate check-config tollgate.toml        say why it could not be served, or what it means
  tollgate serve --config tollgate.toml      serve it; SIGHUP reads it again, SIGTERM ends
  tollgate explain agent-7                   ask the running server about an agent

POST /v1/check/many decides many at once, /v1/check/all several of which all are admitted or \
none. POST /v1/reserve charges an estimate that /v1/settle settles; POST /v1/hold holds a slot \
until /v1/release. GET /v1/agents/AGENT tells how an agent stands, and charges nothing.

Tokens are not given on the command line, where others could see them, but in the policy file \
(admin_token_file in [server]) or in the environment: TOLLGATE_ADMIN_TOKEN, TOLLGATE_CHECK_TOKEN. \
TOLLGATE_LOG sets what is logged on the standard error: off, error, warn, info, debug or trace.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a limiter over HTTP (what is done without a command)
    Serve(serve::Arguments),
    /// Says why a policy file could not be served, or what it means
    CheckConfig(check_config::Arguments),
    /// Writes a commented policy file
    Init(init::Arguments),
    /// Asks a running server what holds for an agent, and why
    Explain(explain::Arguments),
    /// Serves with simulated agents, one of them abusive
    Demo(demo::Arguments),
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let Arguments { command, serve } = Arguments::parse();
    let done = match command {
        None => serve.run(),
        Some(Command::Serve(arguments)) => arguments.run(),
        Some(Command::CheckConfig(arguments)) => arguments.run(),
        Some(Command::Init(arguments)) => arguments.run(),
        Some(Command::Explain(arguments)) => arguments.run(),
        Some(Command::Demo(arguments)) => arguments.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`, which panics if nobody can read it.
            _ = writeln!(std::io::stderr(), "tollgate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints to the standard output. That nobody reads it is no reason to fail.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// How this program is called, for lines that can be copied.
fn program() -> String {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_some() {
        return "cargo run --release --".to_owned();
    }
    std::env::args().next().map_or_else(|| "tollgate".to_owned(), |program| shown(&program))
}

/// A word of a command line, in quotes if it needs them.
fn shown(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:=@,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) { word.to_owned() } else { quoted(word) }
}

/// A word in quotes, for every shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn runtime() -> Result<tokio::runtime::Runtime, StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| StartError::new(format!("cannot start threads: {error}")))
}
