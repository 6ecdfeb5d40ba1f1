//! A slab that has no room for one more process, or for its policy; and one whose door is held shut.

use crate::forks::{alone, in_child};
use crate::place::Place;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use tollgate::shared::SharedError;
use tollgate::{BuildError, ControlError, Limiter, LimiterBuilder, Policy, PolicyBuilder};

/// The bytes that are locked, as in src/shared/seats.rs and src/machine/file.rs.
pub(crate) const ATTACH: i64 = 1 << 62;
const SEATS: i64 = ATTACH + 16;
const PROCESSES_MAX: i64 = 1_024;

fn policy() -> PolicyBuilder {
    Policy::builder().lane("http", "100/hour")
}

fn builder(policy: PolicyBuilder, slab: &Path) -> LimiterBuilder {
    Limiter::builder(policy.build().unwrap()).agents(1_000).shared(slab)
}

fn refusal(builder: LimiterBuilder) -> SharedError {
    match builder.build() {
        Err(BuildError::Shared(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Locks bytes of the file until it is closed, as processes do that use it.
pub(crate) fn lock(file: &Path, first: i64, count: i64) -> File {
    let file = File::options().read(true).write(true).open(file).unwrap();
    // SAFETY: plain numbers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (first, count);
    // SAFETY: an open file, and a lock that is filled in.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
    file
}

/// One lock on all other seats stands for as many processes.
#[test]
fn one_process_more_than_there_are_seats_is_refused() {
    let _alone = alone();
    let place = Place::new();
    let first = builder(policy(), &place.slab()).build().unwrap();
    let others = lock(&place.file(), SEATS + 1, PROCESSES_MAX - 1);
    let full = SharedError::TooManyProcesses { path: place.file() };
    assert_eq!(refusal(builder(policy(), &place.slab())), full);
    assert_eq!(refusal(Limiter::join(place.slab())), full, "a look takes a seat too");
    assert!(full.to_string().starts_with("1024 processes use the slab"), "{full}");
    // A child finds no seat either, and does without: it may check whom it knows.
    let http = first.lane("http").unwrap();
    assert!(first.check("agent-7", http).unwrap().is_allowed());
    let child = in_child(|| {
        let is_known = first.check("agent-7", http).is_ok_and(|verdict| verdict.is_allowed());
        u8::from(is_known && first.check("newcomer", http) == Err(tollgate::Error::NoSeat { errno: 0 }))
    });
    assert_eq!(child.wait(), 1);
    drop(others);
    let _last = lock(&place.file(), SEATS + 2, PROCESSES_MAX - 2);
    let second = builder(policy(), &place.slab()).build().unwrap();
    assert_eq!(refusal(builder(policy(), &place.slab())), full);
    drop(second);
    assert!(builder(policy(), &place.slab()).build().is_ok());
}

/// It waits for two seconds, as the error says, and not for ever: the holder is stopped.
#[test]
fn a_process_that_is_stopped_while_it_joins_keeps_others_out_for_a_while() {
    let _alone = alone();
    let place = Place::new();
    let first = builder(policy(), &place.slab()).build().unwrap();
    let stopped = in_child(|| {
        let _attach = lock(&place.file(), ATTACH, 1);
        // SAFETY: stops this child.
        unsafe { libc::raise(libc::SIGSTOP) };
        0
    });
    stopped.wait_for_stop();
    let attaching = SharedError::Attaching { path: place.file() };
    assert_eq!(refusal(builder(policy(), &place.slab())), attaching);
    // Those that have joined are not concerned.
    assert!(first.check("agent-7", first.lane("http").unwrap()).unwrap().is_allowed());
    stopped.kill();
    assert!(builder(policy(), &place.slab()).build().is_ok());
}

/// A policy whose text takes about this many bytes: of ids that are exempt.
fn long(bytes: usize) -> PolicyBuilder {
    policy().exempt((0..bytes / 200).map(|id| format!("{id}-{}", "x".repeat(190))))
}

/// The room of a slab is decided by its first policy: another cannot outgrow that.
#[test]
fn a_policy_that_is_too_long_is_refused_with_both_lengths() {
    let _alone = alone();
    let place = Place::new();
    let first = builder(policy(), &place.slab()).build().unwrap();
    let room = 64 << 10;
    let too_long = long(room + 10_000);
    let bytes = too_long.clone().build().unwrap().to_toml().len();
    let refused = first.replace_policy(too_long.clone().build().unwrap());
    assert!(matches!(refused, Err(ControlError::PolicyTooLong { bytes: of, most }) if (of, most) == (bytes, room)));
    // Of two policies the higher version should be in force, and cannot.
    let version = too_long.version(2);
    let bytes = version.clone().build().unwrap().to_toml().len();
    let problem = ControlError::PolicyTooLong { bytes, most: room }.to_string();
    let refused = refusal(builder(version, &place.slab()));
    assert_eq!(refused, SharedError::Refused { path: place.file(), problem });
    assert_eq!((first.policy().version(), first.sharing().unwrap().processes.len()), (None, 1));
    assert!(first.replace_policy(long(10_000).build().unwrap()).is_ok());
    assert_eq!(first.audit(), [""; 0]);
}
