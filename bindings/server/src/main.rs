//! The program: see `tollgate --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgate_server::commands::main()
}
