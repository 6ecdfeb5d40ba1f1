//! Calls at random through the C ABI, misuse included, against an oracle that
//! knows what every agent may have (`common/calls`), with every byte of memory
//! accounted for.
//!
//! Some seconds by default; `make c-long` for a million sequences, and for the
//! same generator under cargo-fuzz.

#![cfg(all(feature = "capi", feature = "config"))]

#[path = "common/calls/mod.rs"]
mod calls;
#[path = "common/random.rs"]
mod random;

use calls::{Report, play};
use random::Random;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// How often it has allocated.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator does the work; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size() as i64);
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as i64);
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Mappings of this process: slabs are no allocations.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count())
}

fn run(sequences: u64) {
    let mut report = Report::default();
    let mut bytes = Vec::new();
    let mut draw = |seed: u64| {
        let mut random = Random::new(seed);
        bytes.clear();
        bytes.resize_with(random.below(1 << 11) as usize, || random.next() as u8);
        bytes.clone()
    };
    // The clock's judgement and the report's own tables are made once.
    (0..200).for_each(|seed| play(&draw(seed), &mut report));
    let maps = mappings();
    for seed in 0..sequences {
        let bytes = draw(seed);
        let before = (LIVE.get(), report.calls.len(), report.statuses.len());
        play(&bytes, &mut report);
        let after = (LIVE.get(), report.calls.len(), report.statuses.len());
        // A table of the report that has grown has taken memory of its own.
        assert!(
            before.0 == after.0 || (before.1, before.2) != (after.1, after.2),
            "sequence {seed} leaks: {before:?}, {after:?}"
        );
    }
    let more = mappings().saturating_sub(maps);
    assert!(more < 50, "{more} mappings more than at first");
    assert!(!cfg!(feature = "shared") || report.shared > sequences / 100, "{report:?}");

    let calls: u64 = report.calls.values().sum();
    println!("{sequences} sequences, {calls} calls: {report:?}");
    let header = include_str!("../include/tollgate.h");
    for function in report.calls.keys() {
        assert!(header.contains(&format!("{function}(")), "{function} is not in the header");
    }
    assert_eq!(report.calls.len(), declared(header), "functions that are never called");
    let unseen = [
        Status::OutOfMemory,
        Status::Panic,
        Status::TooManyOverrides,
        Status::SameHash,
        Status::Forked,
        Status::PlanMissing,
        Status::Busy,
        if cfg!(feature = "shared") { Status::Busy } else { Status::Shared },
        if cfg!(feature = "persist") { Status::NotBuiltIn } else { Status::File },
        if cfg!(feature = "persist") { Status::NotBuiltIn } else { Status::NoFile },
    ];
    for status in (0..=Status::Shared as i32).filter(|status| unseen.iter().all(|unseen| *unseen as i32 != *status)) {
        assert!(report.statuses.contains_key(&status), "status {status} was never the answer");
    }
    assert_eq!(report.statuses.get(&(Status::Panic as i32)), None);
    assert!(report.exact > report.verdicts / 4 && report.denied > report.verdicts / 20, "{report:?}");
}

/// How many functions the header declares.
fn declared(header: &str) -> usize {
    let lines = header.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    lines.filter(|line| line.split_once('(').is_some_and(|(front, _)| front.contains("tollgate_"))).count()
}

/// A limiter of the preset "hub".
fn hub() -> *mut Limiter {
    let (mut policy, mut limiter) = (null_mut(), null_mut());
    // SAFETY: a name of three bytes, and a place for the handle.
    let status = unsafe { tollgate_policy_preset(c"hub".as_ptr(), 3, std::ptr::null_mut(), &mut policy) };
    assert_eq!(status, Status::Ok);
    // SAFETY: a policy that is not freed, and a place for the handle.
    let status = unsafe { tollgate_limiter_new(policy, null(), null_mut(), &mut limiter) };
    assert_eq!(status, Status::Ok);
    // SAFETY: nobody uses it any more.
    unsafe { tollgate_policy_free(policy) };
    limiter
}

/// Known agents and new ones, singly and in batches.
#[test]
fn a_check_allocates_nothing() {
    let limiter = hub();
    let ids: Vec<u64> = (0..100).collect();
    let request = |id: &u64| Request {
        id: std::ptr::from_ref(id).cast(),
        id_len: size_of::<u64>(),
        cost: 1,
        lane: 0,
        plan: TOLLGATE_NONE,
        limit: std::ptr::null(),
    };
    let requests: Vec<Request> = ids.iter().map(request).collect();
    let mut verdicts = vec![MaybeUninit::<Verdict>::uninit(); requests.len()];
    let before = ALLOCATIONS.get();
    for (request, verdict) in requests.iter().zip(&mut verdicts) {
        // SAFETY: the limiter is not freed, and the request, its id and the place for the verdict are ours.
        let status = unsafe { tollgate_check(limiter, request, TOLLGATE_NOW, 0, verdict.as_mut_ptr()) };
        assert_eq!(status, Status::Ok);
        // SAFETY: it was written, since all is well.
        assert_eq!(unsafe { verdict.assume_init() }.decision, Decision::Allow);
    }
    let (count, places) = (requests.len(), verdicts.as_mut_ptr().cast());
    // SAFETY: as above, with as many places for verdicts as there are requests.
    let status = unsafe { tollgate_check_many(limiter, requests.as_ptr(), count, TOLLGATE_NOW, 0, places) };
    assert_eq!(status, Status::Ok);
    assert_eq!(ALLOCATIONS.get(), before);
    // SAFETY: nobody uses it any more.
    unsafe { tollgate_limiter_free(limiter) };
}

#[test]
fn no_sequence_of_calls_admits_too_much_leaks_or_panics() {
    run(20_000);
}

#[test]
#[ignore = "the long form: make c-long"]
fn no_sequence_of_a_million_admits_too_much_leaks_or_panics() {
    run(1_000_000);
}
