//! Instructions per check: a gate, because a count, unlike a time, does not
//! depend on the load of the machine.
//!
//! callgrind counts two runs of `examples/instructions.rs` of different length;
//! the difference is what the checks cost, without start-up and exit, and the
//! bare loop is subtracted. The count covers a whole check, hash included, of
//! an agent whose record is in cache and whose id has 16 bytes.
//!
//! The example is built as a user's program would be: a separate package that
//! depends on tollgate, in the default release profile. `cargo build --release
//! --example` gives the same counts but also compiles all dev-dependencies,
//! which takes a minute.
//!
//! It is built three times: as it is by default, with the feature `shared`, and with `cluster`. A
//! limiter that could share its slab or its lanes and does not pays nothing for that.
//!
//! Only the counts with the caller's `now` have a maximum. valgrind emulates
//! the counter register and may be too slow for the clock to trust it, so the
//! cost of the default clock is printed, not judged.

#[path = "common/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The most instructions for an allowed check: counted with rustc 1.95 (100.0),
/// plus 1 for the whims of the next compiler. More than this needs an argument
/// in the commit that raises it; after a gain, lower it.
const ALLOWED_MAX: f64 = 101.0;

/// The same for a denied check (106.0).
const DENIED_MAX: f64 = 107.0;

/// The same for an observed check, whatever its verdict (234.0).
const WATCHED_MAX: f64 = 239.0;

/// Checks of the shorter and of the longer run.
const SHORT: u32 = 20_000;
const LONG: u32 = 120_000;

const PROGRAM: &str = "instructions";

/// Builds the example in the release profile: debug assertions, which the
/// profile of this test may have, would count.
fn program(features: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join([&[PROGRAM], features].concat().join("-"));
    let manifest = format!(
        "[workspace]\n\
         [package]\nname = {PROGRAM:?}\nedition = \"2024\"\n\
         [dependencies]\ntollgate = {{ path = {root:?}, features = {features:?} }}\n\
         [[bin]]\nname = {PROGRAM:?}\npath = {:?}\n",
        root.join("examples/instructions.rs"),
    );
    std::fs::create_dir_all(&package).expect("a directory for the package");
    std::fs::write(package.join("Cargo.toml"), manifest).expect("a manifest for the package");
    // The versions that everything else is built with. A published package has no lock file.
    if root.join("Cargo.lock").exists() {
        std::fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).expect("a lock file for the package");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "--target-dir"]).arg(package.join("target"));
    cargo.current_dir(&package);
    // A build for another processor or profile would count other instructions, and so would one in small parts.
    let settings = ["CARGO_PROFILE_", "CARGO_INCREMENTAL"];
    let is_setting =
        |name: &str| name.contains("RUSTFLAGS") || settings.iter().any(|setting| name.starts_with(setting));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_setting)) {
        cargo.env_remove(name);
    }
    let built = cargo.env_remove("CARGO_BUILD_TARGET").output().expect("cargo runs");
    assert!(built.status.success(), "{cargo:?}: {}", String::from_utf8_lossy(&built.stderr));
    package.join("target/release").join(PROGRAM)
}

/// Instructions of one whole run.
fn instructions(program: &Path, mode: &str, checks: u32) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    let run = valgrind.args([mode, &checks.to_string()]).output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{valgrind:?} ended with {}: {said}", run.status);
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.unwrap_or_else(|| unreachable!("callgrind says how much it collected: {said}"))
}

/// Instructions per turn of the loop.
fn per_check(program: &Path, mode: &str) -> f64 {
    let (short, long) = (instructions(program, mode, SHORT), instructions(program, mode, LONG));
    // To a tenth: start-up differs by some dozens of instructions from run to run.
    let tenths = (long as f64 - short as f64) * 10.0 / f64::from(LONG - SHORT);
    tenths.round() / 10.0
}

#[test]
#[cfg_attr(not(all(target_arch = "x86_64", target_os = "linux")), ignore = "the maxima are for x86-64")]
fn a_check_takes_no_more_instructions_than_it_did() {
    if !tools::has("valgrind", "valgrind") {
        return;
    }
    for features in [&[][..], &["shared"], &["cluster"]] {
        judge(&program(features), features);
    }
}

fn judge(program: &Path, features: &[&str]) {
    let bare = per_check(program, "loop");
    println!("instructions per check with the features {features:?}, less {bare:.1} of the loop:");
    let modes = ["allowed-now", "denied-now", "allowed-watched", "denied-watched", "allowed-auto", "denied-auto"];
    let [allowed, denied, watched, denied_watched, ..] = modes.map(|mode| {
        let count = per_check(program, mode) - bare;
        println!("{mode:>16} {count:.1}");
        count
    });
    println!("  at most {ALLOWED_MAX:.1} allowed-now, {DENIED_MAX:.1} denied-now, {WATCHED_MAX:.1} watched");
    assert!(allowed <= ALLOWED_MAX, "an allowed check takes {allowed:.1} instructions, more than {ALLOWED_MAX}");
    assert!(denied <= DENIED_MAX, "a denied check takes {denied:.1} instructions, more than {DENIED_MAX}");
    let watched = watched.max(denied_watched);
    assert!(watched <= WATCHED_MAX, "a watched check takes {watched:.1} instructions, more than {WATCHED_MAX}");
    // A loop that was optimised away would pass any maximum.
    assert!(bare > 0.0 && allowed > 20.0 && denied > 20.0, "there is no check in the loop");
}
