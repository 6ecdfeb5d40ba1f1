//! `tollgate init`.

use super::{program, say};
use crate::error::StartError;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// The file that is written; a test holds it to make sense.
const FILE: &str = include_str!("tollgate.toml");

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Where to write it; a file that is there is left alone
    #[arg(value_name = "FILE", default_value = "tollgate.toml")]
    file: PathBuf,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        let path = self.file.display();
        let mut file = OpenOptions::new().write(true).create_new(true).open(&self.file).map_err(|error| {
            let advice = match error.kind() {
                std::io::ErrorKind::AlreadyExists => "it is left as it is; name another file",
                std::io::ErrorKind::NotFound => "make the directory first",
                _ => "name a file in a directory of your own",
            };
            StartError::new(format!("cannot write {path}: {error}; {advice}"))
        })?;
        file.write_all(FILE.as_bytes()).map_err(|error| StartError::new(format!("cannot write {path}: {error}")))?;
        let (program, file) = (program(), super::shown(&path.to_string()));
        say(&format!(
            "{path} is written. Edit it, then:\n\n{program} check-config {file}\n{program} serve --config {file}"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use std::path::Path;
    use tollgate::Policy;

    #[test]
    fn the_file_makes_sense_with_and_without_its_comments() {
        let policy = Policy::from_toml(FILE).unwrap();
        assert_eq!(policy, Policy::preset("standard").unwrap());
        let settings = Settings::from_toml(FILE, Path::new("/srv")).unwrap();
        assert_eq!(settings.state.as_deref(), Some(Path::new("/srv/tollgate-state")));
        // Every key that is commented out is one; tokens from files are not there to be read.
        let is_example = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && !line.contains("token_file");
        let all: Vec<_> =
            FILE.lines().map(|line| if is_example(&line) { line.trim_start_matches('#') } else { line }).collect();
        let all = all.join("\n");
        let policy = Policy::from_toml(&all).unwrap_or_else(|error| panic!("{error}"));
        assert!(policy.plan("pro").is_some());
        Settings::from_toml(&all, Path::new("/srv")).unwrap_or_else(|error| panic!("{error}"));
    }
}
