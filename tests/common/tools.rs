//! Tools that may be missing on a machine with only Rust.
//!
//! `cargo test` passes without them: a test that needs one reports it and
//! returns. `make test` sets `TOLLGATE_ALL`, and then the test fails instead.

use std::io::Write as _;
use std::sync::Once;

/// Whether a program can be run; if not, prints what to install.
pub(crate) fn has(program: &str, package: &str) -> bool {
    static SAID: Once = Once::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        let missing = format!("{program} is missing: install {package}");
        assert!(std::env::var_os("TOLLGATE_ALL").is_none(), "{missing}");
        // Written directly, because the harness hides the output of a test that passes; once is enough.
        SAID.call_once(|| drop(writeln!(std::io::stderr(), "not run: {missing}")));
    }
    is_there
}
