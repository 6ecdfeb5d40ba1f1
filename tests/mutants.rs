//! Mistakes that were planted in the code, and what notices each.
//!
//! A file in `tests/mutants` is one mutant:
//!
//! ```text
//! about: what is wrong then
//! file: src/slab/tenancy.rs
//! killed by: lib a_claim_locks_every_region
//! -the line as it is
//! +the line as it is in the mutant
//! ```
//!
//! What kills it is `loom`, `lib` or the name of a test program, and a filter.
//! The short test finds each mutant's place in the code, so that the list does
//! not rot; `make mutants` plants them one by one in a copy of the tree, and
//! expects the named test to fail.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

struct Mutant {
    name: String,
    file: String,
    killer: Vec<String>,
    from: String,
    to: String,
}

impl Mutant {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a readable file");
        let field = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key));
            assert!(value.is_some(), "{path:?} does not say `{key}`");
            value.unwrap_or_default().trim().to_owned()
        };
        let lines = |sign: char| -> String {
            text.lines().filter_map(|line| line.strip_prefix(sign)).map(|line| format!("{line}\n")).collect()
        };
        assert!(!field("about:").is_empty());
        Self {
            name: path.file_stem().expect("a name").to_string_lossy().into_owned(),
            file: field("file:"),
            killer: field("killed by:").split_whitespace().map(str::to_owned).collect(),
            from: lines('-'),
            to: lines('+'),
        }
    }

    /// The file with the mutant in it.
    fn planted(&self) -> String {
        let code = fs::read_to_string(root().join(&self.file)).expect("a file of the tree");
        let places = code.matches(&self.from).count();
        assert!(places == 1 && !self.from.is_empty(), "{}: {places} places in {}", self.name, self.file);
        assert_ne!(self.from, self.to, "{}", self.name);
        code.replace(&self.from, &self.to)
    }

    /// Whether the named test fails in this tree. Whatever else goes wrong is not a kill.
    fn is_killed(&self, tree: &Path, target: &Path) -> bool {
        let (program, filter) = self.killer.split_first().expect("what kills it");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(tree).env_remove("RUSTFLAGS").env("RUST_BACKTRACE", "0");
        match program.as_str() {
            // As the alias does, which cannot be used here: cargo would add that of the tree around the copy to it.
            "loom" => {
                let loom = ["test", "--package", "tollgate", "--lib", "--profile", "loom"];
                let flags = ["--config", "build.rustflags=['--cfg','loom']", "--target-dir"];
                cargo.args(loom).args(flags).arg(target.join("loom"))
            }
            "lib" => {
                cargo.args(["test", "--package", "tollgate", "--all-features", "--lib", "--target-dir"]).arg(target)
            }
            test => {
                let test = ["test", "--package", "tollgate", "--all-features", "--profile", "stress", "--test", test];
                cargo.args(test).arg("--target-dir").arg(target)
            }
        };
        let output = cargo.arg("--").args(filter).output().expect("cargo runs");
        let told = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("test result: "), "{}: no test was run: {errors}", self.name);
        assert!(!told.contains("running 0 tests"), "{}: no test has this name", self.name);
        told.contains("test result: FAILED")
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn mutants() -> Vec<Mutant> {
    let files = fs::read_dir(root().join("tests/mutants")).expect("the list");
    let mut paths: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| Mutant::read(path)).collect()
}

/// Copies what git knows of.
fn copy_tree(to: &Path) {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().expect("git runs");
    assert!(listed.status.success(), "git lists no files");
    for name in String::from_utf8(listed.stdout).expect("names in UTF-8").split('\0').filter(|name| !name.is_empty()) {
        let copy = to.join(name);
        fs::create_dir_all(copy.parent().expect("a folder")).expect("a writable folder");
        if root().join(name).is_file() {
            fs::copy(root().join(name), copy).expect("a copy");
        }
    }
}

#[test]
fn every_mutant_has_its_place_in_the_code() {
    let mutants = mutants();
    assert!(mutants.len() >= 10);
    for mutant in mutants {
        mutant.planted();
        let test = root().join("tests").join(&mutant.killer[0]);
        let known = ["loom", "lib"].contains(&mutant.killer[0].as_str());
        assert!(known || test.is_dir() || test.with_extension("rs").is_file(), "{}: no such tests", mutant.name);
    }
}

/// `MUTANTS` names those to plant, by a part of their names.
#[test]
#[ignore = "takes minutes for each: make mutants"]
fn every_mutant_is_killed() {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("mutants");
    let tree = target.join("tree");
    copy_tree(&tree);
    let wanted = env::var("MUTANTS").unwrap_or_default();
    let mut survivors = Vec::new();
    for mutant in mutants().into_iter().filter(|mutant| mutant.name.contains(&wanted)) {
        let (place, code) = (tree.join(&mutant.file), mutant.planted());
        fs::write(&place, code).expect("a writable copy");
        let is_killed = mutant.is_killed(&tree, &target);
        fs::copy(root().join(&mutant.file), &place).expect("a copy");
        println!("{}: {} by {}", mutant.name, if is_killed { "killed" } else { "NOT KILLED" }, mutant.killer.join(" "));
        if !is_killed {
            survivors.push(mutant.name);
        }
    }
    assert!(survivors.is_empty(), "{survivors:?}");
}
