//! Imports point one way: a folder of `src` imports only what stands before it.

use super::{files, read, root, shown, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folders and files of `src`, each after those that it may import.
const LEVELS: [&str; 18] = [
    "bounds", "sync", "machine", "clock", "shared", "error", "lane", "policy", "conduct", "limits", "record", "slab",
    "observe", "engine", "keep", "control", "limiter", "ffi",
];

/// What `lib.rs` names at the root, and the module that each name is from.
fn root_names() -> BTreeMap<String, String> {
    let text = text("src/lib.rs");
    let mut names = BTreeMap::new();
    for line in text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let (module, list) = line.split_once("::").unwrap_or((line, line));
        for name in list.trim_matches(['{', '}']).split(',').map(str::trim).filter(|name| !name.is_empty()) {
            names.insert(name.to_owned(), module.to_owned());
        }
    }
    names
}

/// Whether a line is the attribute of something that only tests have.
fn is_for_tests(line: &str) -> bool {
    line.starts_with("#[cfg(") && line.contains("test") && !line.contains("not(test")
}

/// The folder in which a file's own modules are.
pub(super) fn folder_of_modules(file: &Path) -> PathBuf {
    let is_root = ["mod.rs", "lib.rs"].iter().any(|name| file.ends_with(name));
    if is_root { file.parent().unwrap_or(file).to_owned() } else { file.with_extension("") }
}

/// The files of `src` that only tests have, without their ending.
pub(super) fn of_tests(sources: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for file in sources {
        let text = read(file);
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| is_for_tests(pair[0])) {
            let name = pair[1].split_once("mod ").and_then(|(_, name)| name.strip_suffix(';'));
            found.extend(name.map(|name| folder_of_modules(file).join(name)));
        }
    }
    found
}

/// Whether a file is one of those, or in a folder of one.
pub(super) fn is_test(tests: &BTreeSet<PathBuf>, file: &Path) -> bool {
    tests.iter().any(|test| file.with_extension("").starts_with(test))
}

/// The code of a file without comments and without its tests.
fn code(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| is_for_tests(pair[0]) && pair[1].ends_with('{'));
    let code = &lines[..tests.unwrap_or(lines.len())];
    let without_comment = |line: &&str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    code.iter().map(without_comment).collect()
}

/// The names that follow `crate::`.
fn imported(code: &str) -> BTreeSet<String> {
    let first = |path: &str| path.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(str::to_owned);
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => found.extend(list.split('}').next().unwrap_or_default().split(',').filter_map(first)),
            None => found.extend(first(rest)),
        }
    }
    found
}

fn level(module: &str) -> Option<usize> {
    LEVELS.iter().position(|known| *known == module)
}

/// `src/slab/region.rs` is part of `slab`.
fn module_of(file: &Path) -> String {
    let inside = file.strip_prefix(root().join("src")).unwrap_or(file);
    let first = inside.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

#[test]
fn imports_point_one_way() {
    let (names, sources) = (root_names(), files(&["src"], &[".rs"]));
    let tests = of_tests(&sources);
    assert!(sources.iter().any(|file| is_test(&tests, file)), "no file was recognised as one of tests");
    let (mut edges, mut wrong) = (0, BTreeSet::new());
    for file in sources.iter().filter(|file| !is_test(&tests, file)) {
        let module = module_of(file);
        if module == "lib" {
            continue;
        }
        let own = level(&module).unwrap_or_else(|| panic!("{}: give {module} its place in LEVELS", shown(file)));
        for name in imported(&code(&read(file))) {
            let target = names.get(&name).unwrap_or(&name);
            let Some(other) = level(target) else { continue };
            edges += 1;
            if other > own {
                wrong.insert(format!("{} imports {target}, which stands above {module}", shown(file)));
            }
        }
    }
    assert!(edges > 100, "hardly an import was found: {edges}");
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}
