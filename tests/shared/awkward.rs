//! Places and processes that are out of the ordinary: a daemon without standard streams, a directory that cannot be
//! listed, file systems that are not tmpfs, a crowd at the door.

use crate::child;
use crate::forks::{alone, in_child};
use crate::namespaces::{in_namespace, mount_as, unshare};
use crate::place::Place;
use crate::refused::{ATTACH, lock};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use tollgate::shared::{Shared, SharedError};
use tollgate::{BuildError, Limiter, LimiterBuilder, Policy};

fn builder(place: impl Into<Shared>) -> LimiterBuilder {
    Limiter::builder(Policy::builder().lane("http", "1/day").build().unwrap()).agents(1_000).shared(place)
}

fn refusal(builder: LimiterBuilder) -> SharedError {
    match builder.build() {
        Err(BuildError::Shared(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn is_allowed(limiter: &Limiter) -> bool {
    limiter.check("agent-7", limiter.lane("http").unwrap()).unwrap().is_allowed()
}

/// A daemon had closed its standard streams, the slab got their descriptors, and the first line that the daemon printed
/// stood in the slab's header.
#[test]
fn no_slab_takes_the_place_of_a_standard_stream() {
    let _alone = alone();
    let place = Place::new();
    for shared in [Shared::at(place.slab()), Shared::memfd()] {
        let child = in_child(|| {
            for stream in 0..3 {
                // SAFETY: as a daemon does.
                unsafe { libc::close(stream) };
            }
            let limiter = builder(shared).build().unwrap();
            let line = b"a line of the log\n";
            // SAFETY: as many bytes as there are.
            let written = (0..3).map(|stream| unsafe { libc::write(stream, line.as_ptr().cast(), line.len()) });
            u8::from(written.sum::<isize>() == -3 && limiter.shared_descriptor().unwrap().as_raw_fd() > 2)
        });
        assert_eq!(child.wait(), 1);
    }
    assert!(is_allowed(&builder(place.slab()).build().unwrap()));
}

/// A daemon that changed to the root directory looked for its slab there, and said that the file was gone.
#[test]
fn a_relative_path_leads_to_the_slab_from_every_directory() {
    let _alone = alone();
    let place = Place::new();
    let child = in_child(|| {
        std::env::set_current_dir(place.path()).unwrap();
        let limiter = builder("slab").build().unwrap();
        std::env::set_current_dir("/").unwrap();
        let sharing = limiter.sharing().unwrap();
        u8::from(!sharing.is_detached && sharing.path == place.file())
    });
    assert_eq!(child.wait(), 1);
}

/// The right to list the directory was asked for, which nothing needs.
#[test]
fn a_directory_that_cannot_be_listed_will_do() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("not run: root alone can become a user who may not list a directory");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o733)).unwrap();
    let child = in_child(|| {
        // SAFETY: gives up the rights of root in this child alone.
        assert_eq!(unsafe { libc::setuid(65_534) }, 0);
        assert!(std::fs::read_dir(place.path()).is_err());
        u8::from(is_allowed(&builder(place.slab()).build().unwrap()))
    });
    assert_eq!(child.wait(), 1);
}

/// What stands at the path is nobody's slab: each has its error, and stays as it is.
#[test]
fn what_is_no_file_is_refused_and_left_alone() {
    let _alone = alone();
    let place = Place::new();
    let file = place.file();
    let foreign = SharedError::Foreign { path: file.clone() };
    let mode = || std::fs::symlink_metadata(&file).unwrap().permissions().mode();
    let name = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: a name that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o640) }, 0);
    let fifo = mode();
    assert_eq!((refusal(builder(place.slab())), mode()), (foreign, fifo));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let opened = |refused: &SharedError| matches!(refused, SharedError::System { what: "open it", .. });
    let refused = refusal(builder(place.slab()));
    assert!(opened(&refused) && std::fs::read_dir(&file).unwrap().count() == 0, "{refused}");
    std::fs::remove_dir(&file).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
    let refused = refusal(builder(place.slab()));
    assert!(opened(&refused) && mode() & libc::S_IFMT == libc::S_IFSOCK, "{refused}");
    drop(socket);
    std::fs::remove_file(&file).unwrap();
    for name in ["a\0b".to_owned(), "x".repeat(300)] {
        let refused = refusal(builder(place.path().join(name)));
        assert!(opened(&refused), "{refused}");
    }
    // Any other name will do.
    for name in [&b"\xff\xfe"[..], b" ", b"a\nb", b"..v1", b""] {
        let slab = place.path().join(std::ffi::OsStr::from_bytes(name));
        let limiter = builder(&*slab).build().unwrap();
        assert!(is_allowed(&limiter) && !limiter.sharing().unwrap().is_detached, "{name:?}");
        assert!(!is_allowed(&builder(&*slab).build().unwrap()), "{name:?}");
    }
}

/// The last of many that start at once was refused, since those before it had taken two seconds in all; so was each
/// that came while another made a slab of many gigabytes.
#[test]
fn a_joiner_waits_as_long_as_those_before_it_get_on() {
    let _alone = alone();
    let place = Place::new();
    let first = builder(place.slab()).build().unwrap();
    let attach = lock(&place.file(), ATTACH, 1);
    let gets_on = in_child(|| {
        let began = Instant::now();
        // Real time: longer than one that does not get on is waited for.
        while began.elapsed() < Duration::from_millis(3_000) {
            // Takes memory that is there, as one does that takes a seat which was taken before.
            // SAFETY: acts on an open file.
            assert_eq!(unsafe { libc::fallocate(attach.as_raw_fd(), 0, 0, 4_096) }, 0);
            std::thread::sleep(Duration::from_millis(50));
        }
        0
    });
    drop(attach); // The child has it.
    let second = builder(place.slab()).build();
    assert!(second.is_ok(), "{:?}", second.err());
    assert_eq!(gets_on.wait(), 0);
    assert_eq!(first.sharing().unwrap().processes.len(), 2);
}

/// In a ramfs nothing can be reserved, and nothing has to be; pages of hugetlbfs cannot be mapped one by one.
#[test]
fn of_other_file_systems_in_memory_ramfs_will_do() {
    if let Some(directory) = child::argument() {
        let slab = directory.join("slab");
        mount_as("ramfs", &directory, "mode=700");
        let limiter = builder(&*slab).build().unwrap();
        limiter.set_override("agent-8", "http", "7/s").unwrap();
        let second = builder(&*slab).build().unwrap();
        assert_eq!((is_allowed(&limiter), is_allowed(&second)), (true, false));
        assert_eq!((second.sharing().unwrap().processes.len(), second.audit()), (2, Vec::new()));
        mount_as("hugetlbfs", &directory, "mode=700");
        assert_eq!(refusal(builder(&*slab)), SharedError::OnDisk { path: directory.join("slab.v1") });
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        eprintln!("done");
        return;
    }
    in_namespace("awkward::of_other_file_systems_in_memory_ramfs_will_do");
}

/// A container that was moved from another machine may read other monotonic clocks.
#[test]
fn a_process_of_another_time_namespace_is_refused() {
    if let Some(slab) = child::argument() {
        let refused = refusal(builder(&*slab));
        assert!(matches!(&refused, SharedError::Differs { what: "time namespace", .. }), "{refused}");
        let own = std::fs::read_link("/proc/self/ns/time").unwrap();
        assert!(refused.to_string().contains(own.to_str().unwrap()), "{refused}");
        eprintln!("done");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let _first = builder(place.slab()).build().unwrap();
    let test = "awkward::a_process_of_another_time_namespace_is_refused";
    let arguments = ["--time", "--monotonic", "1000", "--fork", "--kill-child"];
    let Some(mut command) = unshare(&arguments, test, &place.slab()) else { return };
    let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(said.contains("done"), "{said}");
}
