//! CONTRIBUTING's map names every folder of `src`, and each folder its files.

use super::arrows::{folder_of_modules, is_test, of_tests};
use super::{files, read, root, shown, text};
use std::path::Path;

/// The names in `src` that the map has, with a slash behind those of folders.
fn on_the_map() -> Vec<String> {
    let page = text("CONTRIBUTING.md");
    let map = page.split("\n## The map\n").nth(1).and_then(|rest| rest.split("```text\n").nth(1));
    let map = map.and_then(|rest| rest.split("```").next()).expect("a map");
    let of_src = map.lines().skip_while(|line| *line != "src/").skip(1).take_while(|line| line.starts_with("  "));
    of_src.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// What stands in `src`, in the form of [`on_the_map`].
fn in_src() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("src")).expect("a folder").filter_map(Result::ok);
    let name = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        format!("{}{slash}", entry.file_name().to_string_lossy())
    };
    // A folder beside a file of its name is part of that file.
    let is_part = |name: &String| root().join("src").join(name.trim_end_matches('/')).with_extension("rs").is_file();
    entries.map(name).filter(|name| !name.ends_with('/') || !is_part(name)).collect()
}

#[test]
fn the_map_has_what_stands_in_src_and_nothing_else() {
    let (map, src) = (on_the_map(), in_src());
    assert!(map.len() > 10, "the map was not understood: {map:?}");
    for name in &src {
        assert!(map.contains(name), "src/{name} is not on CONTRIBUTING's map");
    }
    for name in &map {
        assert!(src.contains(name), "CONTRIBUTING's map has src/{name}, which is not there");
    }
}

/// The documentation at the head of a file.
fn head(file: &Path) -> String {
    read(file).lines().take_while(|line| line.starts_with("//!")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn every_folder_lists_its_files() {
    let sources = files(&["src"], &[".rs"]);
    let tests = of_tests(&sources);
    let mut missing = Vec::new();
    for list in sources.iter().filter(|file| !file.ends_with("lib.rs") && !is_test(&tests, file)) {
        let (folder, head) = (folder_of_modules(list), head(list));
        for file in sources.iter().filter(|file| file.parent() == Some(&folder) && !is_test(&tests, file)) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if name != "mod.rs" && !head.contains(&*name) {
                missing.push(format!("{} does not list {name}", shown(list)));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
