//! Lines that fit beside each other on a screen, comments and documents too.

use super::{files, read, shown, text};
use std::path::Path;

const ENDINGS: [&str; 9] = [".rs", ".md", ".c", ".h", ".hpp", ".cpp", ".ex", ".exs", ".toml"];

/// What cannot be broken, or would not be read better for it: links, rows of
/// tables, one piece of code in a document, and in code what holds a string,
/// which rustfmt leaves alone too.
fn may_be_wide(path: &Path, line: &str) -> bool {
    let line = line.trim_start();
    let is_comment = ["//", "*", "/*", "#"].iter().any(|start| line.starts_with(start));
    let is_row = line.trim_start_matches(['/', '!', '*', ' ']).starts_with('|');
    let is_document = path.extension().is_some_and(|ending| ending == "md");
    let is_one_piece = is_document && line.starts_with('`');
    line.contains("://") || is_row || is_one_piece || (line.contains('"') && !is_comment && !is_document)
}

#[test]
fn lines_are_no_wider_than_rustfmt_allows() {
    let width = text("rustfmt.toml").lines().find_map(|line| line.strip_prefix("max_width = ")?.parse::<usize>().ok());
    let width = width.expect("rustfmt.toml says how wide a line may be");
    let folders = ["src", "tests", "bindings", "benches", "examples", "include", "docs"];
    let mut wide = Vec::new();
    for path in files(&folders, &ENDINGS).into_iter().chain(files_of_root(&ENDINGS)) {
        // What a program printed stands in a document as it was printed.
        let (text, is_document) = (read(&path), path.extension().is_some_and(|ending| ending == "md"));
        let mut is_fenced = false;
        let lines = text.lines().enumerate().filter(|(_, line)| {
            is_fenced ^= is_document && line.trim_start().starts_with("```");
            !is_fenced && line.chars().count() > width
        });
        let lines = lines.filter(|(_, line)| !may_be_wide(&path, line));
        wide.extend(lines.map(|(number, _)| format!("{}:{}", shown(&path), number + 1)));
    }
    assert!(wide.is_empty(), "more than {width} characters:\n{}", wide.join("\n"));
}

/// The files beside `Cargo.toml`, without those in folders.
fn files_of_root(endings: &[&str]) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(super::root()).expect("the root is a folder");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.is_file() && endings.iter().any(|ending| shown(path).ends_with(ending))).collect()
}
