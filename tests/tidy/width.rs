//! Lines that fit beside each other on a screen, comments and documents too.

use super::{files, read, shown, text};
use std::path::Path;

/// How many lines of the files with each ending may still be wider. Falls to 0.
const WIDER: [(&[&str], usize); 5] =
    [(&[".rs"], 28), (&[".md"], 230), (&[".c", ".h", ".hpp", ".cpp"], 47), (&[".ex", ".exs"], 28), (&[".toml"], 0)];

/// What cannot be broken, or would not be read better for it: links, rows of
/// tables, and in code what holds a string, which rustfmt leaves alone too.
fn may_be_wide(path: &Path, line: &str) -> bool {
    let line = line.trim_start();
    let is_comment = ["//", "*", "/*", "#"].iter().any(|start| line.starts_with(start));
    let is_row = line.trim_start_matches(['/', '!', '*', ' ']).starts_with('|');
    let is_document = path.extension().is_some_and(|ending| ending == "md");
    line.contains("://") || is_row || (line.contains('"') && !is_comment && !is_document)
}

#[test]
fn lines_are_no_wider_than_rustfmt_allows() {
    let width = text("rustfmt.toml").lines().find_map(|line| line.strip_prefix("max_width = ")?.parse::<usize>().ok());
    let width = width.expect("rustfmt.toml says how wide a line may be");
    let folders = ["src", "tests", "bindings", "benches", "examples", "include", "docs"];
    for (endings, most) in WIDER {
        let mut wide = Vec::new();
        for path in files(&folders, endings).into_iter().chain(files_of_root(endings)) {
            let text = read(&path);
            let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > width);
            let lines = lines.filter(|(_, line)| !may_be_wide(&path, line));
            wide.extend(lines.map(|(number, _)| format!("{}:{}", shown(&path), number + 1)));
        }
        println!("{endings:?}: {} lines of more than {width} characters, at most {most}", wide.len());
        assert!(wide.len() <= most, "more than {width} characters, at most {most} such lines:\n{}", wide.join("\n"));
    }
}

/// The files beside `Cargo.toml`, without those in folders.
fn files_of_root(endings: &[&str]) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(super::root()).expect("the root is a folder");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.is_file() && endings.iter().any(|ending| shown(path).ends_with(ending))).collect()
}
