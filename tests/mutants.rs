//! Mistakes planted in the code, and the test that notices each.
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
//! The killer is `loom`, `lib` or the name of a test program, and a filter. The
//! short test finds each mutant's place in the code, so that the list does not
//! rot; `make mutants` plants them one by one in a copy of the tree, and
//! expects the named test to fail.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
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
            assert!(value.is_some(), "{path:?} has no `{key}`");
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

    /// The file as it is in this tree, and with the mutant in it.
    fn planted(&self, tree: &Path) -> (String, String) {
        let code = fs::read_to_string(tree.join(&self.file)).expect("a file of the tree");
        let places = code.matches(&self.from).count();
        assert!(places == 1 && !self.from.is_empty(), "{}: {places} places in {}", self.name, self.file);
        assert_ne!(self.from, self.to, "{}", self.name);
        let planted = code.replace(&self.from, &self.to);
        (code, planted)
    }

    /// Whether the named test fails in this tree. A tree that does not build,
    /// an unknown test name, and a test that hangs are not kills.
    fn is_killed(&self, tree: &Path, target: &Path) -> bool {
        let (program, filter) = self.killer.split_first().expect("what kills it");
        let built = cargo(program, tree, target, &["--no-run"]);
        assert!(built.status.success(), "{} does not build: {}", self.name, String::from_utf8_lossy(&built.stderr));
        let mut arguments = vec!["--"];
        arguments.extend(filter.iter().map(String::as_str));
        let run = cargo(program, tree, target, &arguments);
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(output.contains("running "), "{}: no test was run: {output}", self.name);
        assert!(!output.contains("running 0 tests"), "{}: no test has this name", self.name);
        assert_ne!(run.status.code(), Some(TIMED_OUT), "{}: the test hangs", self.name);
        !run.status.success()
    }
}

/// The exit status of `timeout`, and how long it lets a build or a test take.
const TIMED_OUT: i32 = 124;
const SECONDS_MAX: &str = "1800";

/// Builds or runs one test program. Builds are incremental, because only a line
/// changes from mutant to mutant; the models have their own target directory.
fn cargo(program: &str, tree: &Path, target: &Path, arguments: &[&str]) -> Output {
    let mut cargo = Command::new("timeout");
    cargo.args(["--kill-after=9", SECONDS_MAX, env!("CARGO"), "test", "--package", "tollgate", "--target-dir"]);
    cargo.current_dir(tree).env_remove("RUSTFLAGS").env("RUST_BACKTRACE", "0");
    match program {
        // As the alias does, which cannot be used here: cargo would also apply the alias of the tree around the copy.
        "loom" => {
            let flags = ["--config", "build.rustflags=['--cfg','loom']", "--config", "profile.loom.incremental=true"];
            cargo.arg(target.join("loom")).args(["--lib", "--profile", "loom"]).args(flags)
        }
        "lib" => cargo.arg(target).args(["--features", "config,persist,shared", "--lib"]),
        test => cargo.arg(target).args(["--features", "config,persist,shared", "--test", test]),
    };
    cargo.args(arguments).output().expect("timeout runs, which runs cargo")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn mutants() -> Vec<Mutant> {
    let files = fs::read_dir(root().join("tests/mutants")).expect("the list");
    let mut paths: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "txt"));
    paths.sort();
    paths.iter().map(|path| Mutant::read(path)).collect()
}

/// Copies the tracked files that changed since the last run, so that the rest is not rebuilt.
fn copy_tree(to: &Path) {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git runs");
    assert!(listed.status.success(), "git lists no files");
    for name in String::from_utf8(listed.stdout).expect("names in UTF-8").split('\0').filter(|name| !name.is_empty()) {
        let (file, copy) = (root().join(name), to.join(name));
        if !file.is_file() {
            let _ = fs::remove_file(copy); // Or it was never there.
        } else if fs::read(&file).expect("a readable file") != fs::read(&copy).unwrap_or_default() {
            fs::create_dir_all(copy.parent().expect("a folder")).expect("a writable folder");
            fs::copy(file, copy).expect("a copy");
        }
    }
}

/// The killers must pass in the unchanged tree, or they would prove nothing.
fn check_killers(mutants: &[Mutant], tree: &Path, target: &Path) {
    let programs: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.killer[0].as_str()).collect();
    for program in programs {
        let start = Instant::now();
        let killers = mutants.iter().filter(|mutant| mutant.killer[0] == program);
        let filters = killers.flat_map(|mutant| &mutant.killer[1..]).map(String::as_str);
        let run = cargo(program, tree, target, &["--"].into_iter().chain(filters).collect::<Vec<_>>());
        let output = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{program} fails without a mutant: {output}");
        println!("{program}: passes without a mutant ({} s)", start.elapsed().as_secs());
    }
}

#[test]
fn every_mutant_has_its_place_in_the_code() {
    let mutants = mutants();
    assert!(mutants.len() >= 10);
    for mutant in mutants {
        mutant.planted(&root());
        let (program, filters) = mutant.killer.split_first().expect("what kills it");
        let source = match program.as_str() {
            "loom" | "lib" => root().join("src"),
            test => root().join("tests").join(test),
        };
        let code = code_of(&source) + &code_of(&source.with_extension("rs"));
        assert!(filters.iter().all(|filter| code.contains(filter)), "{}: {program} has no such test", mutant.name);
    }
}

/// All code in a file or a folder; empty if it does not exist.
fn code_of(path: &Path) -> String {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| code_of(&entry.expect("an entry").path())).collect(),
        Err(_) => fs::read_to_string(path).unwrap_or_default(),
    }
}

/// `MUTANTS` names those to plant, by a part of their names.
#[test]
#[ignore = "takes minutes per mutant: make mutants"]
fn every_mutant_is_killed() {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("mutants");
    let tree = target.join("tree");
    copy_tree(&tree);
    let wanted = env::var("MUTANTS").unwrap_or_default();
    let mutants: Vec<Mutant> = mutants().into_iter().filter(|mutant| mutant.name.contains(&wanted)).collect();
    assert!(!mutants.is_empty(), "no mutant has {wanted} in its name");
    check_killers(&mutants, &tree, &target);
    let mut survivors = Vec::new();
    for mutant in mutants {
        let start = Instant::now();
        let (place, (code, planted)) = (tree.join(&mutant.file), mutant.planted(&tree));
        fs::write(&place, planted).expect("a writable copy");
        let is_killed = mutant.is_killed(&tree, &target);
        fs::write(&place, code).expect("a writable copy");
        let (fate, seconds) = (if is_killed { "killed" } else { "NOT KILLED" }, start.elapsed().as_secs());
        println!("{}: {fate} by {} ({seconds} s)", mutant.name, mutant.killer.join(" "));
        if !is_killed {
            survivors.push(mutant.name);
        }
    }
    assert!(survivors.is_empty(), "{survivors:?}");
}
