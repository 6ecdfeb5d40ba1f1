//! A test that runs part of itself in a child process.

use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "TOLLGATE_TEST_CHILD";

/// In a child: the path that it was given. From then on it ends with the test that started it, also with one that
/// fails.
pub(crate) fn argument() -> Option<PathBuf> {
    let argument = std::env::var_os(VARIABLE).map(PathBuf::from)?;
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }, 0);
    Some(argument)
}

/// The test of this name, run again as a child that is given a path. Its
/// reports go to stderr, which it has to itself; stdout belongs to the harness.
pub(crate) fn command(test: &str, argument: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(["--exact", test, "--nocapture"]).env(VARIABLE, argument);
    command
}
