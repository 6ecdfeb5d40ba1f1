//! `tollgate init`.

use super::{print_line, program};
use crate::error::StartError;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A file to start with.
const SHORT: &str = include_str!("tollgate.toml");

/// Every key with its default. `docs/policy-file.md` has the same text.
const FULL: &str = include_str!("full.toml");

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The file to write, or - to print it; an existing file is not changed
    #[arg(value_name = "FILE", default_value = "tollgate.toml")]
    file: PathBuf,
    /// Include every key, with its default and an explanation
    #[arg(long)]
    full: bool,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        let text = if self.full { FULL } else { SHORT };
        if self.file == Path::new("-") {
            print_line(text.trim_end());
            return Ok(());
        }
        let path = self.file.display();
        let mut file = OpenOptions::new().write(true).create_new(true).open(&self.file).map_err(|error| {
            let advice = match error.kind() {
                std::io::ErrorKind::AlreadyExists => "it was not changed; name another file",
                std::io::ErrorKind::NotFound => "create the directory first",
                _ => "name a file in a directory that you can write to",
            };
            StartError::new(format!("cannot write {path}: {error}; {advice}"))
        })?;
        file.write_all(text.as_bytes()).map_err(|error| StartError::new(format!("cannot write {path}: {error}")))?;
        let (program, file) = (program(), super::shell_word(&path.to_string()));
        print_line(&format!(
            "Wrote {path}. Edit it, then:\n\n{program} check-config {file}\n{program} serve --config {file}"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CLUSTER_KEYS, ENVOY_KEYS, GATE_KEYS, KEYS, RESP_KEYS, SHARED_KEYS, Settings};
    use std::collections::BTreeSet;
    use tollgate::Policy;

    /// Whether a line is a key that is commented out.
    fn is_example(line: &str) -> bool {
        line.starts_with('#') && !line.starts_with("# ") && line.len() > 1
    }

    /// The file with its commented keys set, except for files, which do not exist here, and for other stores than the
    /// first. This program's text is the secret.
    fn uncommented(file: &str) -> String {
        let kept = ["token_file", "secret_file", "file:/etc", "#user", "#tls_", "#sentinel", "#master", "#cluster ="];
        let is_kept = |line: &str| kept.iter().any(|kept| line.contains(kept));
        let line = |line| if is_example(line) && !is_kept(line) { line.trim_start_matches('#') } else { line };
        let text = file.lines().map(line).collect::<Vec<_>>().join("\n");
        text.replace("env:TOLLGATE_CLUSTER_SECRET", concat!("file:", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
    }

    fn settings(text: &str) -> Settings {
        Settings::from_toml(text, Path::new("/srv")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_short_file_is_valid_with_and_without_its_comments() {
        assert_eq!(Policy::from_toml(SHORT), Ok(Policy::preset("standard").unwrap()));
        assert_eq!(settings(SHORT).state.as_deref(), Some(Path::new("/srv/tollgate-state")));
        let policy = Policy::from_toml(&uncommented(SHORT)).unwrap_or_else(|error| panic!("{error}"));
        assert!(policy.plan("pro").is_some());
        settings(&uncommented(SHORT));
    }

    #[test]
    fn the_full_file_has_the_defaults() {
        assert_eq!(Policy::from_toml(FULL), Ok(Policy::preset("standard").unwrap()));
        assert_eq!(settings(FULL), Settings::default());
        let policy = Policy::from_toml(&uncommented(FULL)).unwrap_or_else(|error| panic!("{error}"));
        assert!(policy.total().is_some() && policy.plan("pro").is_some());
        assert_eq!(policy.version(), Some(1));
        let settings = settings(&uncommented(FULL));
        assert_eq!(settings.slab.as_deref(), Some(Path::new("/run/tollgate/slab")));
        let cluster = settings.cluster.unwrap();
        assert_eq!(cluster.nodes.get(), 1);
        assert_eq!(settings.resp.unwrap().lane.as_deref(), Some("http/any"));
        let gate = settings.gate.unwrap();
        assert_eq!((gate.agent.len(), gate.routes.len()), (3, 2));
        assert!(cluster.lane("http/heavy").is_some_and(|lane| lane.is_exact), "{cluster:?}");
    }

    /// The keys that the policy parser allows where `wrong` is, from its error message.
    fn allowed(wrong: &str) -> Vec<String> {
        let message = Policy::from_toml(wrong).unwrap_err().message().to_owned();
        let keys = message.split("allowed: ").nth(1).unwrap_or_else(|| panic!("{message}"));
        keys.split(';').next().unwrap().split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn the_full_file_has_every_key_that_is_read() {
        let names = |line: &str| {
            let line = if is_example(line) { line.trim_start_matches('#') } else { line };
            let name = line.trim_start_matches('[').split([' ', '=', ']', '.']).next().unwrap_or_default().to_owned();
            // The keys of `abuse` are on its line.
            let inner = line.split('{').nth(1).unwrap_or_default().split(',');
            let inner: Vec<_> =
                inner.map(|pair| pair.split('=').next().unwrap_or_default().trim().to_owned()).collect();
            inner.into_iter().chain([name])
        };
        let is_comment = |line: &&str| line.starts_with("# ") || *line == "#";
        let present: BTreeSet<_> = FULL.lines().filter(|line| !is_comment(line)).flat_map(names).collect();
        let keys = ["x = 1", "[conduct]\nx = 1", "[conduct]\nabuse = { x = 1 }"].map(allowed).concat();
        assert_eq!(keys.len(), 18 + 5 + 2, "{keys:?}");
        let known = [KEYS, SHARED_KEYS, &CLUSTER_KEYS, &ENVOY_KEYS, &GATE_KEYS, RESP_KEYS].concat();
        for key in keys.iter().map(String::as_str).chain(known) {
            let key = match key {
                "lane" => "cluster",
                "routes" => "gate",
                "rules" => "envoy",
                "tokens" if FULL.contains("[server.tokens.") => continue,
                key => key,
            };
            assert!(present.contains(key), "{key} is not in full.toml");
        }
    }

    #[test]
    fn the_full_file_is_in_the_documentation() {
        let page = include_str!("../../../../docs/policy-file.md");
        assert!(page.contains(&format!("```toml\n{FULL}```")), "put commands/full.toml into docs/policy-file.md");
    }
}
