//! The documentation: its links resolve, and its words follow `docs/words.md`.

#![expect(clippy::panic, reason = "a file that cannot be read fails its test")]

use std::path::{Path, PathBuf};

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["docs", "docs/python"].map(|folder| std::fs::read_dir(root.join(folder)).expect(folder));
    let entries = folders.into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let pages = entries.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    pages.chain([root.join("README.md")]).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

#[test]
fn every_link_resolves() {
    for page in pages() {
        let text = read(&page);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            let is_there = || read(&target).lines().any(|line| line.starts_with('#') && anchor(line) == heading);
            assert!(heading.is_empty() || is_there(), "{}: no heading {link}", page.display());
        }
    }
}

#[test]
fn no_page_uses_a_word_to_avoid() {
    let avoided = ["told", "is none", "makes sense", "make sense", "nothing is said", "so many", "in the course of"];
    for page in pages() {
        let text = read(&page).replace('\n', " ").to_lowercase();
        for word in avoided {
            assert!(!text.contains(&format!(" {word} ")), "{}: {word:?}; docs/words.md", page.display());
        }
    }
}
