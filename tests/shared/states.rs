//! A process is killed after each instruction that changes the slab: whoever comes next goes on from there.
//!
//! One run of a call, step by step, shows every content that the file has meanwhile. Each of them is copied to a file
//! of its own: a slab all of whose processes died at that instruction. So nothing is sampled; but nobody lives either,
//! which `stepped.rs` and `killed.rs` try.
//!
//! Whoever puts right what others left may die as well: of some contents that is stepped through too.

use crate::forks::alone;
use crate::place::Place;
use crate::scribbled::pages;
use crate::stepped::{CALLS, Call, MAKE, kill, limiter, step, traced};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate::{Limiter, Request};

const PAGE: usize = 4_096;

/// The pages of a file that anybody has written, as they were when somebody last looked.
struct Content {
    file: File,
    map: *const u8,
    bytes: usize,
    pages: BTreeMap<u64, [u8; PAGE]>,
}

impl Content {
    fn of(slab: &Path) -> Self {
        let file = File::options().read(true).write(true).open(slab).unwrap();
        let bytes = file.metadata().unwrap().len() as usize;
        // SAFETY: a new mapping, which is only read.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(map, libc::MAP_FAILED);
        let mut content = Self { file, map: map.cast(), bytes, pages: BTreeMap::new() };
        content.has_changed();
        content
    }

    /// Looks again, at pages alone that have memory.
    fn has_changed(&mut self) -> bool {
        let mut has_changed = false;
        for page in pages(&self.file) {
            let known = self.pages.entry(page).or_insert([0; PAGE]);
            // SAFETY: within the file, which keeps its length.
            let now = unsafe { self.map.add(page as usize * PAGE) };
            // SAFETY: a page of each; the process that writes the first is stopped.
            if unsafe { libc::memcmp(now.cast(), known.as_ptr().cast(), PAGE) } != 0 {
                // SAFETY: as above.
                unsafe { now.copy_to_nonoverlapping(known.as_mut_ptr(), PAGE) };
                has_changed = true;
            }
        }
        has_changed
    }

    /// Makes another file with this content, which nobody uses.
    fn write_to(&self, path: &Path) {
        let _ = std::fs::remove_file(path);
        let file = File::create(path).unwrap();
        file.set_len(self.bytes as u64).unwrap();
        self.pages.iter().for_each(|(page, bytes)| file.write_all_at(bytes, page * PAGE as u64).unwrap());
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        // SAFETY: a mapping of this value's own.
        unsafe { libc::munmap(self.map.cast_mut().cast(), self.bytes) };
    }
}

/// The file of the slab at a path.
fn file_of(slab: &Path) -> PathBuf {
    slab.with_extension("v1")
}

/// Joins a slab that is as somebody left it, and ends what was begun.
fn recover(slab: &Path) -> Limiter {
    let next = limiter(slab);
    next.unassign("nobody").unwrap();
    next.sweep(Duration::ZERO);
    next
}

/// Whoever comes next finds nothing that contradicts itself.
fn judge(slab: &Path, after: &str) {
    let next = recover(slab);
    let [http, conn] = ["http", "conn"].map(|lane| next.lane(lane).unwrap());
    let limit = next.limit_of("agent", http).unwrap().unwrap();
    let seen = next.check("agent", http).unwrap_or_else(|error| panic!("{after}: {error}"));
    assert_eq!(seen.capacity(), limit.capacity(), "{after}");
    assert_eq!(next.peek(Request::new("agent", conn)).unwrap().remaining(), 3, "{after}");
    assert_eq!((next.sharing().unwrap().processes.len(), next.audit()), (1, Vec::new()), "{after}");
}

/// How far the short form goes into a call.
const STEPS: u64 = 60_000;

/// Every so many contents one is put right by a process that is killed too.
const RECOVERED: u64 = 6;

/// How far to go.
#[derive(Clone, Copy)]
struct Depth {
    /// Into a call, in steps.
    steps: u64,
    /// At how many of its contents whoever puts it right is killed too, after each change of those.
    recoveries: u64,
}

/// Steps through a call that changes `slab`, and judges each content. Returns how many steps and contents there were.
fn explore(slab: &Path, name: &str, call: Call, watcher: &Limiter, depth: Depth) -> (u64, u64) {
    let copy = slab.with_file_name(format!("{}-left", slab.file_stem().unwrap().to_str().unwrap()));
    let mut content = Content::of(&file_of(slab));
    let pid = traced(watcher, slab, call);
    let (mut steps, mut contents) = (0, 0);
    // Ends with the call, or when it is as long as that.
    while steps < depth.steps && step(pid, 1) {
        steps += 1;
        if !content.has_changed() {
            continue;
        }
        contents += 1;
        let after = format!("{name}, killed after {steps} instructions");
        // The first ones change the seat alone.
        if contents % RECOVERED == 0 && contents / RECOVERED <= depth.recoveries {
            content.write_to(&file_of(&copy));
            let deeper = Depth { recoveries: 0, ..depth };
            let (steps, contents) = explore(&copy, &after, |_, slab| drop(recover(slab)), watcher, deeper);
            println!("{after}: {steps} instructions to put it right, {contents} contents");
        }
        content.write_to(&file_of(&copy));
        judge(&copy, &after);
    }
    if steps == depth.steps {
        kill(pid);
    }
    (steps, contents)
}

fn run(depth: Depth) {
    let _alone = alone();
    for (name, call) in CALLS {
        // It changes another slab, which is not there yet: `stepped.rs`.
        if name == MAKE {
            continue;
        }
        let place = Place::new();
        let watcher = limiter(&place.slab());
        let [http, conn] = ["http", "conn"].map(|lane| watcher.lane(lane).unwrap());
        assert!(watcher.check("agent", http).unwrap().is_allowed());
        watcher.set_override("agent", "http", "12/s burst 4").unwrap();
        // The slot of a dead process, as the others find it.
        let dead =
            crate::forks::stays(|| watcher.hold_until_released(Request::new("agent", conn)).unwrap().is_allowed());
        dead.kill();
        let (steps, contents) = explore(&place.slab(), name, call, &watcher, depth);
        println!("{name}: {steps} instructions, {contents} contents");
        assert!(contents > 3 || steps == depth.steps, "{name} changes more than that");
    }
}

#[test]
fn a_process_may_die_after_any_change() {
    run(Depth { steps: STEPS, recoveries: 0 });
}

#[test]
#[ignore = "half an hour: run it with make long"]
fn a_process_may_die_after_any_change_and_so_may_the_one_that_puts_it_right() {
    run(Depth { steps: u64::MAX, recoveries: 3 });
}
