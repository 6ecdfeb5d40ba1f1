//! A test that runs part of itself in a child process.

use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "TOLLGATE_TEST_CHILD";

/// In a child: the path that it was given.
pub(crate) fn argument() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// The test of this name, run again as a child that is given a path. Its
/// reports go to stderr, which it has to itself; stdout belongs to the harness.
pub(crate) fn command(test: &str, argument: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(["--exact", test, "--nocapture"]).env(VARIABLE, argument);
    command
}
