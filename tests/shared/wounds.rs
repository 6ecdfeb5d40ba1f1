//! Processes that are short of descriptors, lose them, or fork at a bad moment: each was once taken for dead, or took
//! others for dead.

use crate::forks::{Child, alone, in_child};
use crate::place::Place;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tollgate::shared::Shared;
use tollgate::{Error, Limiter, LimiterBuilder, Policy, Request};

fn builder(place: impl Into<Shared>, agents: u64) -> LimiterBuilder {
    let policy = Policy::builder().lane("http", "100/hour").lane("ws", "held 3").build().unwrap();
    Limiter::builder(policy).agents(agents).shared(place)
}

fn limiter(place: impl Into<Shared>) -> Limiter {
    builder(place, 1_000).build().unwrap()
}

/// Lets this process have no more descriptors than it has, and this many.
fn leave_descriptors(more: u64) {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let highest = open.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max().unwrap();
    let limit = libc::rlimit { rlim_cur: highest + more, rlim_max: highest + more };
    // SAFETY: sets a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Takes all descriptors that this process may have.
fn take_descriptors() {
    while let Ok(file) = std::fs::File::open("/dev/null") {
        std::mem::forget(file);
    }
}

/// A child that waits for its end.
fn idle() -> Child {
    in_child(|| {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    })
}

/// A joiner that could not read the machine's boot id took the slab for one of an earlier start, and removed it.
#[test]
fn a_joiner_without_descriptors_is_refused_and_removes_nothing() {
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(place.slab());
    for more in 0..12 {
        let slab = place.slab();
        let child = in_child(|| {
            leave_descriptors(more);
            u8::from(builder(slab, 1_000).build().is_ok())
        });
        let is_joined = child.wait() == 1;
        assert!(!limiter.sharing().unwrap().is_detached, "with {more} descriptors; joined: {is_joined}");
    }
}

/// A child that was forked while another thread built a limiter kept the lock under which processes join.
#[test]
fn a_fork_while_a_limiter_is_built_keeps_nobody_out() {
    let _alone = alone();
    let place = Place::new();
    let (slab, file) = (place.slab(), place.file());
    let making = std::thread::spawn(move || builder(slab, 2_000_000).build().unwrap());
    while !std::fs::metadata(&file).is_ok_and(|about| about.len() > 0) {
        std::thread::yield_now();
    }
    let child = idle();
    let _first = making.join().unwrap();
    let second = builder(place.slab(), 1_000).build();
    child.kill();
    assert!(second.is_ok(), "{:?}", second.err());
}

/// The same while limiters are built and dropped: no child keeps a seat of its parent.
#[test]
fn forks_while_limiters_are_built_and_dropped_keep_no_seat() {
    let _alone = alone();
    let place = Place::new();
    let first = limiter(place.slab());
    let is_done = AtomicBool::new(false);
    let children: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                drop(builder(place.slab(), 1_000).build());
            }
        });
        let children = (0..100).map(|_| idle()).collect();
        is_done.store(true, Ordering::Relaxed);
        children
    });
    let processes = first.sharing().unwrap().processes;
    let own = processes.iter().filter(|process| process.pid == std::process::id()).count();
    let joined = builder(place.slab(), 1_000).build().map(drop);
    children.into_iter().for_each(Child::kill);
    assert_eq!((own, joined.is_ok()), (1, true));
}

/// A child that can have no seat marked reservations and holds with nobody, and nobody is dead.
#[test]
fn a_process_without_a_seat_takes_nothing_and_says_why() {
    let _alone = alone();
    let limiter = limiter(Shared::memfd());
    let [http, ws] = ["http", "ws"].map(|lane| limiter.lane(lane).unwrap());
    let request = Request::new("agent-7", ws);
    assert!(limiter.hold_until_released(request).unwrap().is_allowed());
    let reservation = limiter.reserve(Request::new("agent-7", http), Duration::from_secs(60)).unwrap();
    let child = || {
        // Another child, which finds no descriptor for a seat, neither at its fork nor later.
        leave_descriptors(0);
        take_descriptors();
        let orphan = in_child(|| {
            take_descriptors();
            let answers = [
                limiter.hold_until_released(request).map(drop),
                limiter.release(request).map(drop),
                limiter.reserve(Request::new("agent-7", http), Duration::from_secs(60)).map(drop),
                limiter.settle(reservation.id().unwrap(), tollgate::Settle::used(1)).map(drop),
                limiter.check("newcomer", http).map(drop),
            ];
            limiter.sweep(Duration::ZERO);
            let is_known = limiter.check("agent-7", http).is_ok();
            let no_seat = Err(Error::NoSeat { errno: libc::EMFILE });
            u8::from(answers.iter().all(|answer| *answer == no_seat) && is_known)
        });
        orphan.wait()
    };
    assert_eq!(in_child(child).wait(), 1);
    assert_eq!(limiter.peek(request).unwrap().remaining(), 2);
    assert!(limiter.settle(reservation.id().unwrap(), tollgate::Settle::used(1)).is_ok());
    assert_eq!((limiter.audit(), limiter.sharing().unwrap().takeovers), (Vec::new(), 0));
}

/// A program that closes what it did not open asked another file who is dead.
#[test]
fn a_process_that_lost_its_descriptor_robs_nobody() {
    let _alone = alone();
    let limiter = limiter(Shared::memfd());
    let ws = limiter.lane("ws").unwrap();
    assert!(limiter.hold_until_released(Request::new("agent-7", ws).cost(3)).unwrap().is_allowed());
    let child = in_child(|| {
        let descriptor = limiter.shared_descriptor().unwrap().as_raw_fd();
        // SAFETY: as a careless program does.
        unsafe { libc::close(descriptor) };
        let other = std::fs::File::open(Path::new("/dev/null")).unwrap();
        assert_eq!(other.as_raw_fd(), descriptor);
        u8::from(limiter.hold_until_released(Request::new("agent-7", ws)).unwrap().is_allowed())
    });
    assert_eq!(child.wait(), 0);
}

/// A date that cannot be was a panic, of whoever looked and of all that joined later.
#[test]
fn a_date_that_cannot_be_is_shown_as_none() {
    const MADE_AT: u64 = 80;
    const JOINED_AT: u64 = 4_096 + 4 * 8;
    let _alone = alone();
    let place = Place::new();
    let first = limiter(place.slab());
    let file = std::fs::File::options().write(true).open(place.file()).unwrap();
    for at in [MADE_AT, JOINED_AT] {
        for date in [u64::MAX, i64::MAX as u64] {
            file.write_all_at(&date.to_ne_bytes(), at).unwrap();
            let sharing = first.sharing().unwrap();
            let shown = if at == MADE_AT { sharing.made } else { sharing.processes[0].joined };
            assert_eq!(shown, UNIX_EPOCH, "{date}");
            assert_eq!(limiter(place.slab()).sharing().unwrap().processes.len(), 2);
        }
    }
}

/// A worker that had dropped root, and forked, had a child that may not open the slab: it was told that a process 0
/// held a lock.
#[test]
fn a_child_that_may_not_open_the_slab_says_so() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can give its rights up");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(place.slab());
    let [http, ws] = ["http", "ws"].map(|lane| limiter.lane(lane).unwrap());
    assert!(limiter.check("agent-7", http).unwrap().is_allowed());
    let worker = in_child(|| {
        // SAFETY: gives up rights of this process alone.
        assert_eq!(unsafe { libc::setgid(65_534) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setuid(65_534) }, 0);
        assert!(limiter.check("agent-8", http).unwrap().is_allowed(), "it has a seat from before");
        let child = in_child(|| {
            let no_seat = Error::NoSeat { errno: libc::EACCES };
            assert_eq!(limiter.check("newcomer", http), Err(no_seat));
            assert_eq!(limiter.hold_until_released(Request::new("agent-7", ws)), Err(no_seat));
            assert_eq!(limiter.reset("agent-7"), Err(no_seat));
            assert_eq!(limiter.forget("agent-7"), Err(no_seat));
            let refused = limiter.exempt("agent-7").unwrap_err();
            assert_eq!(
                refused.to_string(),
                "this process has no seat at the shared slab: Permission denied (os error 13); give the slab a group \
                 and mode that let it write, such as 0660, or build the limiter after giving up rights"
            );
            assert!(limiter.check("agent-7", http).unwrap().is_allowed(), "a known agent needs none");
            1
        });
        child.wait()
    });
    assert_eq!(worker.wait(), 1);
}
