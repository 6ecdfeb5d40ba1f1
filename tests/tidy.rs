//! The house in numbers, and rules that no compiler knows. `make count` prints them.
//!
//! A number with a maximum may reach it. To raise one, give the reason in the commit.

#![expect(clippy::panic, reason = "a file that cannot be read fails its test")]

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/map.rs"]
mod map;
#[path = "tidy/width.rs"]
mod width;

use std::path::{Path, PathBuf};

/// The longest that a source file may be.
const LINES_MAX: usize = 450;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files of these folders whose names end so, built ones aside.
fn files(folders: &[&str], endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    // Ends: each folder is visited once.
    while let Some(folder) = folders.pop() {
        if !folder.exists() {
            continue; // `docs`, in a package that was published.
        }
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_built =
                ["target", "_build", "tmp", "build", "corpus", "artifacts", "node_modules"].contains(&&*name);
            if path.is_dir() && !is_built && !name.starts_with('.') {
                folders.push(path);
            } else if path.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", shown(path)))
}

/// The public methods of `Limiter`.
fn methods() -> usize {
    let sources = files(&["src/limiter"], &[".rs"]);
    let of = |source: &PathBuf| {
        let text = read(source);
        let code = text.split("#[cfg(all(test").next().unwrap_or_default().to_owned();
        let blocks = code.split("\nimpl Limiter {\n").skip(1);
        let is_method = |line: &&str| line.starts_with("    pub fn ") || line.starts_with("    pub const fn ");
        blocks
            .map(|block| block.split("\n}\n").next().unwrap_or_default().lines().filter(is_method).count())
            .sum::<usize>()
    };
    sources.iter().map(of).sum()
}

/// The names at the crate's root.
fn names() -> usize {
    let text = text("src/lib.rs");
    let uses = text.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap_or_default());
    let of = |names: &str| match names.split_once('{') {
        Some((_, list)) => list.trim_end_matches('}').split(',').filter(|name| !name.trim().is_empty()).count(),
        None => 1,
    };
    uses.map(of).sum::<usize>() + text.matches("\npub mod ").count()
}

/// The functions of the C header.
fn functions() -> usize {
    let text = text("include/tollgate.h");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let calls = text.match_indices('(').filter_map(|(end, _)| text[..end].rsplit(|c| !is_name(c)).next());
    let names: std::collections::BTreeSet<_> = calls.filter(|name| name.starts_with("tollgate_")).collect();
    names.len()
}

#[test]
fn the_house_grows_no_wider() {
    let rust = files(&["src", "bindings"], &[".rs"]);
    let long = rust.iter().filter(|path| read(path).lines().count() > LINES_MAX).count();
    for (what, count, most) in [
        ("public methods of Limiter", methods(), 60),
        ("names at the crate's root", names(), 50),
        ("C functions", functions(), 75),
        ("lines of the C header", text("include/tollgate.h").lines().count(), 2_200),
        ("lines of the README", text("README.md").lines().count(), 250),
        ("Rust files over 450 lines", long, 0),
    ] {
        println!("{what:<28} {count:>6}, at most {most}");
        assert!(count > 0 || most == 0, "{what}: nothing was counted");
        assert!(count <= most, "{what}: {count}, and {most} at most");
    }
    // Not bounded: what is new takes lines.
    let sources =
        files(&["src", "include", "bindings/c", "bindings/elixir"], &[".rs", ".c", ".h", ".hpp", ".cpp", ".ex"]);
    println!(
        "lines of src, include, C, Elixir {:>4}",
        sources.iter().map(|path| read(path).lines().count()).sum::<usize>()
    );
}

#[test]
fn no_file_outgrows_its_bound() {
    for path in files(&["src", "bindings", "tests", "benches", "examples"], &[".rs"]) {
        let lines = read(&path).lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines, and {LINES_MAX} at most: it is two files", shown(&path));
    }
}

/// `M` and a number, say, means nothing to a reader who does not have the list.
#[test]
fn no_number_of_a_requirement_stands_in_the_sources() {
    let is_id = |word: &str| {
        let number = word.strip_prefix(['M', 'D', 'E', 'P']).unwrap_or_default();
        let is_number = (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && !number.starts_with('0')
    };
    assert!(is_id("M20") && is_id("D3") && is_id("P14") && !is_id("M") && !is_id("M1234") && !is_id("x86"));
    let endings = [".rs", ".md", ".c", ".h", ".hpp", ".ex", ".exs", ".json", ".toml", ".js"];
    for path in files(&["src", "tests", "bindings", "benches", "examples", "include", "docs"], &endings) {
        let text = read(&path);
        let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let id = words.find(|word| is_id(word)).filter(|_| !path.ends_with("tests/tidy.rs"));
        assert_eq!(id, None, "{}: write what the requirement says", shown(&path));
    }
}
