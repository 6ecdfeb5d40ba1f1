//! What a file's header must say, word by word. Headers of another machine, time or version are faked in the file.

use crate::forks::{alone, stays};
use crate::place::Place;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use tollgate::shared::{Shared, SharedError};
use tollgate::{BuildError, Limiter, LimiterBuilder, Policy};

/// Words of the header, as in src/shared/header.rs.
const LAYOUT: u64 = 1;
const STATE: u64 = 2;
const BOOT: u64 = 4;
const TIME_NAMESPACE: u64 = 6;

fn builder(place: impl Into<Shared>) -> LimiterBuilder {
    Limiter::builder(Policy::builder().lane("http", "1/day").build().unwrap()).agents(1_000).shared(place)
}

fn refusal(builder: LimiterBuilder) -> SharedError {
    match builder.build() {
        Err(BuildError::Shared(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// A slab in which one agent has used its limit, and that nobody has open.
fn used(place: &Place) {
    assert!(is_allowed(&builder(place.slab()).build().unwrap()));
}

fn is_allowed(limiter: &Limiter) -> bool {
    limiter.check("agent-7", limiter.lane("http").unwrap()).unwrap().is_allowed()
}

/// Changes a word of a file, and returns what it was.
fn rewrite(file: &Path, word: u64, change: impl Fn(u64) -> u64) -> u64 {
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 8 * word).unwrap();
    let was = u64::from_ne_bytes(bytes);
    file.write_all_at(&change(was).to_ne_bytes(), 8 * word).unwrap();
    was
}

fn inode(place: &Place) -> u64 {
    std::fs::metadata(place.file()).unwrap().ino()
}

#[test]
fn a_file_of_an_earlier_start_of_the_machine_is_made_anew_if_nobody_uses_it() {
    let _alone = alone();
    for word in [BOOT, BOOT + 1] {
        let place = Place::new();
        used(&place);
        assert!(!is_allowed(&builder(place.slab()).build().unwrap()), "it is joined");
        // A copy, as of a file system in memory that was kept: a new file with the old content.
        std::fs::copy(place.file(), place.path().join("copy")).unwrap();
        std::fs::rename(place.path().join("copy"), place.file()).unwrap();
        let old = inode(&place);
        rewrite(&place.file(), word, |half| half ^ 1);
        // The number may be given to the next file, so the old one is kept open.
        let _open = std::fs::File::open(place.file()).unwrap();
        let anew = builder(place.slab()).build().unwrap();
        assert!(is_allowed(&anew) && !anew.sharing().unwrap().is_detached && inode(&place) != old);
    }
}

/// A machine that was restored from a snapshot: its processes use a file of another start.
#[test]
fn a_file_of_an_earlier_start_that_is_in_use_is_not_taken_away() {
    let _alone = alone();
    let place = Place::new();
    let limiter = builder(place.slab()).build().unwrap();
    rewrite(&place.file(), BOOT, |half| half ^ 1);
    let refused = refusal(builder(place.slab()));
    let why = "was made before the machine was started";
    assert_eq!(refused, SharedError::InUse { path: place.file(), why });
    assert_eq!(
        refused.to_string(),
        format!("the slab at {} {why}; stop all processes that use it, and it is made anew", place.file().display())
    );
    assert!(is_allowed(&limiter) && !limiter.sharing().unwrap().is_detached);
    rewrite(&place.file(), STATE, |_| 0);
    let why = "was not finished by its maker";
    assert_eq!(refusal(builder(place.slab())), SharedError::InUse { path: place.file(), why });
    // A slab without a path cannot be made anew.
    let memfd = builder(Shared::memfd()).build().unwrap();
    let descriptor = || Shared::descriptor(memfd.shared_descriptor().unwrap().try_clone_to_owned().unwrap());
    assert!(builder(descriptor()).build().is_ok());
    let file = std::fs::File::from(memfd.shared_descriptor().unwrap().try_clone_to_owned().unwrap());
    file.write_all_at(&[0; 8], 8 * STATE).unwrap();
    assert_eq!(refusal(builder(descriptor())), SharedError::InUse { path: "memfd".into(), why });
}

#[test]
fn a_slab_of_another_time_namespace_is_refused_with_both() {
    let _alone = alone();
    let place = Place::new();
    let limiter = builder(place.slab()).build().unwrap();
    let own = rewrite(&place.file(), TIME_NAMESPACE, |_| 4_711);
    let refused = refusal(builder(place.slab()));
    let (has, asked) = ("time:[4711]".to_owned(), format!("time:[{own}]"));
    let namespace = std::fs::read_link("/proc/self/ns/time").map_or(asked.clone(), |name| name.display().to_string());
    assert_eq!(asked, namespace);
    assert_eq!(refused, SharedError::Differs { path: place.file(), what: "time namespace", has, asked });
    assert!(is_allowed(&limiter));
}

#[test]
fn a_slab_of_another_layout_is_refused_with_both_numbers() {
    let _alone = alone();
    let place = Place::new();
    used(&place);
    rewrite(&place.file(), LAYOUT, |layout| layout + 1);
    let refused = refusal(builder(place.slab()));
    assert_eq!(refused, SharedError::Layout { path: place.file(), has: 2, asked: 1 });
    assert_eq!(
        refused.to_string(),
        format!(
            "{} is a slab of layout 2, and this version of tollgate has layout 1; use the same version in all processes, \
             or another slab",
            place.file().display()
        )
    );
    rewrite(&place.file(), LAYOUT, |layout| layout - 1);
    assert!(!is_allowed(&builder(place.slab()).build().unwrap()), "it was left as it is");
}

/// A file that began with zeros was taken for one whose maker was killed, and removed.
#[test]
fn a_file_that_begins_with_zeros_is_not_ours() {
    let _alone = alone();
    let place = Place::new();
    let foreign = SharedError::Foreign { path: place.file() };
    let after = |zeros: usize, byte: u8| [vec![0; zeros], vec![byte]].concat();
    let page = 4_096;
    // Nothing but zeros, though not whole pages; and whole pages that end with something else.
    for content in [vec![0; 100], vec![0; page + 1], after(page - 1, 7), after(page, 7), after(300 * page - 1, 7)] {
        std::fs::write(place.file(), &content).unwrap();
        assert_eq!(refusal(builder(place.slab())), foreign, "{} bytes", content.len());
        assert_eq!(std::fs::read(place.file()).unwrap(), content);
    }
    // The word of its state alone is zero.
    std::fs::write(place.file(), [after(7, 1), after(8 * page - 9, 1)].concat()).unwrap();
    assert_eq!(refusal(builder(place.slab())), foreign);
}

/// What its maker leaves when it is killed: no byte, the length alone, and a header that is not ready.
#[test]
fn the_file_of_a_maker_that_was_killed_is_made_anew() {
    let _alone = alone();
    let place = Place::new();
    used(&place);
    let bytes = std::fs::metadata(place.file()).unwrap().len();
    for length in [0, bytes] {
        std::fs::File::create(place.file()).unwrap().set_len(length).unwrap();
        assert!(is_allowed(&builder(place.slab()).build().unwrap()));
    }
    rewrite(&place.file(), STATE, |_| 0);
    assert!(is_allowed(&builder(place.slab()).build().unwrap()));
    // Alive, it has not finished yet: a child that took a seat, and whose parent was killed before the end.
    rewrite(&place.file(), STATE, |_| 0);
    let old = std::fs::File::open(place.file()).unwrap();
    let child = stays(|| {
        let limiter = Box::leak(Box::new(builder(place.slab()).build().unwrap()));
        is_allowed(limiter)
    });
    assert_ne!(old.metadata().unwrap().ino(), inode(&place));
    rewrite(&place.file(), STATE, |_| 0);
    assert!(matches!(refusal(builder(place.slab())), SharedError::InUse { .. }));
    child.kill();
    assert!(is_allowed(&builder(place.slab()).build().unwrap()));
}
