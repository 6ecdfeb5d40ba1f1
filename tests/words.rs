//! One vocabulary: names in every language keep to `docs/words.md`.
//!
//! A word in backticks in the table's last column may be part of no public
//! name: not of a Rust item, a C function or member, a C++ method, an Elixir or
//! Python function, a key of a policy file. And a JSON key that the pages show is in
//! the table of keys.

#![expect(clippy::panic, reason = "a file that cannot be read fails its test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder whose names end so.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    // Ends: each folder is visited once.
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a readable entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.to_string_lossy().ends_with(ending) => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of a table's row.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The words that no name may contain, with the word to use.
fn refused() -> Vec<(String, String)> {
    let page = read(&root().join("docs/words.md"));
    let table = page.split("## JSON keys").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with("| ")).map(cells);
    let of = |row: Vec<&str>| {
        let instead = row.first().copied().unwrap_or_default().to_owned();
        let words: Vec<String> = quoted(row.get(2).copied().unwrap_or_default()).map(str::to_owned).collect();
        words.into_iter().map(move |word| (word, instead.clone()))
    };
    rows.flat_map(of).collect()
}

/// `LaneState` and `lane_state` as `_lane_state_`, so that whole words are found in them.
fn in_words(name: &str) -> String {
    let mut words = String::from("_");
    for c in name.chars() {
        if c.is_ascii_uppercase() && !words.ends_with('_') && !name.contains('_') {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    words + "_"
}

/// The identifiers of a text without its comments.
fn identifiers(text: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = text;
    // Ends: each round takes at least the opening of a comment.
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code += rest;
    let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let names = code.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic())).map(str::to_owned).collect()
}

/// What follows one of these openings at the start of a line.
fn declared(text: &str, openings: &[&str]) -> BTreeSet<String> {
    let name = |rest: &str| rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().map(str::to_owned);
    let of = |line: &str| openings.iter().find_map(|opening| line.trim_start().strip_prefix(opening)).and_then(name);
    text.lines().filter_map(of).collect()
}

/// Every public name, with the file that has it.
fn names() -> Vec<(PathBuf, BTreeSet<String>)> {
    let rust = ["pub fn ", "pub const fn ", "pub struct ", "pub enum ", "pub const ", "pub type ", "pub mod "];
    let mut found = Vec::new();
    for folder in ["src", "bindings/gate/src", "bindings/tower/src"] {
        found.extend(files(folder, ".rs").into_iter().map(|file| (file.clone(), declared(&read(&file), &rust))));
    }
    // The hub's own names stand in hub.ex: they are its contract.
    for file in files("bindings/elixir/lib", ".ex").into_iter().filter(|file| !file.ends_with("hub.ex")) {
        found.push((file.clone(), declared(&read(&file), &["def ", "defdelegate ", "defmacro "])));
    }
    // Private names too: they are read as much.
    for file in files("bindings/python/python", ".py").into_iter().chain(files("bindings/python/python", ".pyi")) {
        found.push((file.clone(), declared(&read(&file), &["def ", "async def ", "class "])));
    }
    for file in files("include", ".h").into_iter().chain(files("bindings/c/tollgate", ".hpp")) {
        found.push((file.clone(), identifiers(&read(&file))));
    }
    let policy = root().join("bindings/server/src/commands/full.toml");
    let key = |line: &str| line.split_once(" = ").map(|(key, _)| key.trim_start_matches('#').to_owned());
    found.push((policy.clone(), read(&policy).lines().filter_map(key).collect()));
    found
}

#[test]
fn no_name_has_a_word_that_the_table_refuses() {
    let (refused, names) = (refused(), names());
    assert!(refused.len() >= 8, "the table was not understood: {refused:?}");
    assert!(names.iter().map(|(_, names)| names.len()).sum::<usize>() > 500, "names were not understood");
    let mut found = Vec::new();
    for (file, name) in names.iter().flat_map(|(file, names)| names.iter().map(move |name| (file, name))) {
        let is_in_name = |(word, _): &&(String, String)| in_words(name).contains(&format!("_{word}_"));
        let words = refused.iter().filter(is_in_name);
        found.extend(words.map(|(word, instead)| format!("{}: {name}: {word:?} is {instead:?}", file.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_json_key_of_the_pages_is_in_the_table() {
    let page = read(&root().join("docs/words.md"));
    let table = page.split("## JSON keys").nth(1).expect("a table of keys");
    let known: BTreeSet<&str> = quoted(table).collect();
    let http = read(&root().join("docs/http.md"));
    let is_key = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b"_-".contains(&b));
    let before_colon = |(end, _): (usize, &str)| http[..end].rsplit('"').next();
    let shown: BTreeSet<&str> =
        http.match_indices("\":").filter_map(before_colon).filter(|word| is_key(word)).collect();
    assert!(shown.len() > 20, "the page was not understood: {shown:?}");
    let is_tier = |key: &&&str| **key == "heavy";
    let missing: Vec<_> = shown.difference(&known).filter(|key| !is_tier(key)).collect();
    assert!(missing.is_empty(), "JSON keys of docs/http.md that docs/words.md does not have: {missing:?}");
}
