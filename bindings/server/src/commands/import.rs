//! `tollgate import`.

use super::print_line;
use crate::envoy;
use crate::error::StartError;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// What the configuration is of
    #[arg(value_name = "WHAT")]
    what: What,
    /// The file, or a directory of .yaml files
    #[arg(value_name = "FILE|DIRECTORY")]
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// The configuration of envoyproxy/ratelimit
    Envoy,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        let What::Envoy = self.what;
        let paths = envoy::config_files(&self.path)?;
        let mut files = Vec::with_capacity(paths.len());
        for path in &paths {
            files.push((path.display().to_string(), envoy::read_config(path)?));
        }
        let text = envoy::to_toml(&files).map_err(|(index, error)| envoy::in_file(&paths[index], &error))?;
        print_line(text.trim_end());
        Ok(())
    }
}
