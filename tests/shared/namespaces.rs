//! Processes in other namespaces, and file systems that are full. Needs root, and `unshare` of util-linux.

use crate::child;
use crate::forks::{alone, in_child};
use crate::place::Place;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tollgate::observe::Observe;
use tollgate::shared::SharedError;
use tollgate::{BuildError, ControlError, Error, Limiter, Policy, Request};

fn policy() -> Policy {
    Policy::builder().lane("http", "100/day").lane("ws", "held 3").build().unwrap()
}

/// `unshare` with these arguments, in front of this program's test of this name. `None` if this process may not.
pub(crate) fn unshare(arguments: &[&str], test: &str, path: &Path) -> Option<Command> {
    let may = Command::new("unshare").args(arguments).arg("true").output().is_ok_and(|run| run.status.success());
    if !may {
        assert!(std::env::var_os("TOLLGATE_ALL").is_none(), "unshare {arguments:?} is not allowed: run this as root");
        println!("not run: unshare {arguments:?} is not allowed here");
        return None;
    }
    let inner = child::command(test, path);
    let mut command = Command::new("unshare");
    command.args(arguments).arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    Some(command)
}

#[test]
fn processes_of_two_pid_namespaces_share_one_limit() {
    let build = |slab: &Path| Limiter::builder(policy()).agents(1_000).shared(slab).build().unwrap();
    if let Some(slab) = child::argument() {
        let limiter = build(&slab);
        let [http, ws] = ["http", "ws"].map(|lane| limiter.lane(lane).unwrap());
        let allowed = (0..60).filter(|_| limiter.check("agent-7", http).unwrap().is_allowed()).count();
        let held = limiter.hold_until_released(Request::new("agent-7", ws).cost(2)).unwrap().is_allowed();
        eprintln!("{} {allowed} {held}", std::process::id());
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let limiter = build(&place.slab());
    let [http, ws] = ["http", "ws"].map(|lane| limiter.lane(lane).unwrap());
    let test = "namespaces::processes_of_two_pid_namespaces_share_one_limit";
    let arguments = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let Some(mut command) = unshare(&arguments, test, &place.slab()) else { return };
    let mut other = command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(other.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "1 60 true", "the first process of its namespace");
    assert_eq!((0..60).filter(|_| limiter.check("agent-7", http).unwrap().is_allowed()).count(), 40);
    let request = Request::new("agent-7", ws).cost(2);
    assert!(!limiter.hold_until_released(request).unwrap().is_allowed());
    let pids: Vec<_> = limiter.sharing().unwrap().processes.iter().map(|process| process.pid).collect();
    assert!(pids.contains(&1) && pids.contains(&std::process::id()), "{pids:?}");
    // Pid 1 of this namespace lives, and that of the other is dead.
    other.kill().unwrap();
    other.wait().unwrap();
    let taken = (0..1_000_000).find(|_| limiter.hold_until_released(request).unwrap().is_allowed());
    assert!(taken.is_some(), "its slots do not come back");
    assert_eq!(limiter.audit(), [""; 0]);
}

const ROLE: &str = "TOLLGATE_TEST_ROLE";

/// `nsenter -p` without `-m` leaves a process the `/proc` of another namespace, where its neighbours' numbers are other
/// processes. By those a holder that lives was taken for dead.
#[test]
fn a_process_with_the_proc_of_another_namespace_robs_nobody() {
    let build = |slab: &Path| Limiter::builder(policy()).agents(1_000).shared(slab).build().unwrap();
    let test = "namespaces::a_process_with_the_proc_of_another_namespace_robs_nobody";
    let took = |limiter: &Limiter| {
        let request = Request::new("agent-7", limiter.lane("ws").unwrap());
        (0..3).filter(|_| limiter.hold_until_released(request).unwrap().is_allowed()).count()
    };
    if let Some(slab) = child::argument() {
        let limiter = build(&slab);
        if std::env::var_os(ROLE).is_some() {
            // With the outer /proc, in which pid 1 is another process.
            let pid = std::fs::read_link("/proc/self").unwrap();
            assert_ne!(pid.to_str(), Some(&*std::process::id().to_string()), "the outer /proc");
            assert_eq!((took(&limiter), limiter.sharing().unwrap().processes.len()), (0, 2));
            limiter.sweep(std::time::Duration::ZERO);
            assert_eq!((took(&limiter), limiter.sharing().unwrap().takeovers), (0, 0));
            return;
        }
        // Pid 1 of its namespace, with a /proc of its own.
        assert_eq!((std::process::id(), took(&limiter)), (1, 3));
        let inner = child::command(test, &slab);
        let mut second = Command::new("unshare");
        second.args(["--mount", "sh", "-c", "umount /proc && exec \"$0\" \"$@\""]).arg(inner.get_program());
        second.args(inner.get_args()).env(ROLE, "second");
        let run = second.output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        eprintln!("done");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let arguments = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let Some(mut command) = unshare(&arguments, test, &place.slab()) else { return };
    let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(said.contains("done"), "{said}");
}

/// Pid 1 made a child past the C library, in another pid namespace: it is pid 1 too, and took its parent's seat for its
/// own.
#[test]
fn a_child_with_the_pid_of_its_parent_is_another_process() {
    let build = |slab: &Path| Limiter::builder(policy()).agents(1_000).shared(slab).build().unwrap();
    if let Some(slab) = child::argument() {
        let limiter = build(&slab);
        let ws = limiter.lane("ws").unwrap();
        let request = Request::new("agent-7", ws).cost(3);
        assert_eq!(std::process::id(), 1);
        let flags = libc::SIGCHLD | libc::CLONE_NEWPID;
        // SAFETY: as `fork`, with the parent's stack copied; the child takes slots and ends.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as libc::pid_t };
        if pid == 0 {
            let is_held = limiter.hold_until_released(request).is_ok_and(|verdict| verdict.is_allowed());
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_held)) }
        }
        let mut status = 0;
        // SAFETY: waits for the child just made, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
        limiter.sweep(std::time::Duration::ZERO);
        let state = limiter.peek(request).unwrap();
        assert_eq!(state.remaining(), 3, "the dead child's slots");
        eprintln!("done");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let arguments = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let test = "namespaces::a_child_with_the_pid_of_its_parent_is_another_process";
    let Some(mut command) = unshare(&arguments, test, &place.slab()) else { return };
    let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(said.contains("done"), "{said}");
}

/// Mounts a file system of this size in memory, over those at the directory.
fn mount(directory: &Path, size: &str) {
    mount_as("tmpfs", directory, &format!("size={size}"));
}

/// Mounts a file system of this kind over those at the directory.
pub(crate) fn mount_as(kind: &str, directory: &Path, options: &str) {
    let run = Command::new("mount").args(["-t", kind, "-o", options, "none"]).arg(directory).status();
    assert!(run.unwrap().success());
}

/// A page too few, wherever it is missing: that was once the seat's, and the slab stayed there unfinished, with all of
/// the memory that there was.
#[test]
fn a_slab_has_all_of_its_memory_or_none() {
    const PAGE: u64 = 4_096;
    let test = "namespaces::a_slab_has_all_of_its_memory_or_none";
    if let Some(directory) = child::argument() {
        let slab = directory.join("slab");
        let builder = || {
            let policy = Policy::builder().lane("http", "100/day").lane("ws", "held 3").lane("llm", "budget 9/day");
            let observe = Observe::new().roster(100);
            Limiter::builder(policy.build().unwrap()).agents(100).reservations(16).observe(observe).shared(&*slab)
        };
        mount(&directory, "1g");
        let enough = {
            let _limiter = builder().build().unwrap();
            std::fs::metadata(directory.join("slab.v1")).unwrap().blocks() * 512 / PAGE
        };
        let (mut made, mut refused, mut joined) = (0, 0, 0);
        for pages in enough - 400..=enough + 40 {
            mount(&directory, &(pages * PAGE).to_string());
            match builder().build() {
                Ok(limiter) => {
                    made += 1;
                    // Everything that a process reads and writes, with no page left but those of a second seat.
                    match builder().build() {
                        Ok(_) => joined += 1,
                        Err(BuildError::Shared(SharedError::NoRoom { bytes, left, .. })) => assert!(left < bytes),
                        other => panic!("{pages} pages: {other:?}"),
                    }
                    use_all(&limiter);
                }
                Err(BuildError::Shared(SharedError::NoRoom { bytes, left, .. })) => {
                    assert!(left < bytes, "{pages} pages: {left} of {bytes}");
                    assert!(!directory.join("slab.v1").exists(), "{pages} pages");
                    refused += 1;
                }
                other => panic!("{pages} pages: {other:?}"),
            }
        }
        eprintln!("done: {made} made, {refused} refused, {joined} joined");
        assert!(made > 0 && refused > 0 && joined > 0 && joined < made);
        return;
    }
    in_namespace(test);
}

/// Makes every kind of call; whatever it is answered will do.
fn use_all(limiter: &Limiter) {
    let [http, ws, llm] = ["http", "ws", "llm"].map(|lane| limiter.lane(lane).unwrap());
    for agent in 0..200 {
        let agent = agent.to_string();
        let _ = limiter.check(&agent, http);
        let _ = limiter.hold_until_released(Request::new(&agent, ws));
        let _ = limiter.reserve(Request::new(&agent, llm), Duration::from_secs(1));
        let _ = limiter.exempt(&agent);
        let _ = limiter.set_override(&agent, "http", "7/s");
    }
    let twice = Policy::builder().lane("http", "200/day").lane("ws", "held 3").lane("llm", "budget 9/day");
    limiter.replace_policy(twice.plan("pro", [("http", "1/s")]).build().unwrap()).unwrap();
    drop((limiter.snapshot(), limiter.stats(), limiter.assignments(), limiter.agents(&Default::default())));
    limiter.sweep(Duration::ZERO);
    assert_eq!(limiter.audit(), [""; 0]);
}

/// Runs a test again where it may mount what it likes, with a directory that it has to itself.
pub(crate) fn in_namespace(test: &str) {
    let _alone = alone();
    let place = Place::new();
    let Some(mut command) = unshare(&["--mount"], test, place.path()) else { return };
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && said.contains("done"), "{said}{}", String::from_utf8_lossy(&run.stdout));
}

/// What a small tmpfs at this place has room for is checked when the slab is built, and for each override; no process
/// is killed for it later.
#[test]
fn a_full_file_system_is_an_error_in_time() {
    if let Some(directory) = child::argument() {
        mount(&directory, "1m");
        let slab = directory.join("slab");
        match Limiter::builder(policy()).agents(100_000).shared(&*slab).build() {
            Err(BuildError::Shared(SharedError::NoRoom { bytes, left, .. })) => {
                assert!(bytes > 8 << 20 && left <= 1 << 20, "{bytes} {left}");
            }
            other => panic!("{other:?}"),
        }
        assert!(!directory.join("slab.v1").exists());
        mount(&directory, "4m");
        let limiter = Limiter::builder(policy()).agents(1_000).shared(&*slab).build().unwrap();
        let refused = (0..60_000).find_map(|agent| limiter.set_override(agent.to_string(), "http", "7/s").err());
        assert!(matches!(refused, Some(ControlError::NoMemory)), "{refused:?}");
        // All that there is goes on.
        let http = limiter.lane("http").unwrap();
        let allowed = (0..5_000).filter(|agent| limiter.check(agent.to_string(), http).is_ok()).count();
        assert_eq!((allowed, limiter.audit()), (5_000, Vec::new()));
        // A child finds no memory for its seat: it says so, and checks whom it knows.
        let rest = std::fs::write(directory.join("rest"), vec![7; 4 << 20]);
        assert!(rest.is_err(), "not a page is left");
        let child = in_child(|| {
            let no_seat = Error::NoSeat { errno: libc::ENOSPC };
            let known = (0..5_000).filter(|agent| limiter.check(agent.to_string(), http).is_ok()).count();
            u8::from(known > 0 && limiter.check("newcomer of a child", http) == Err(no_seat))
        });
        assert_eq!((child.wait(), limiter.audit()), (1, Vec::new()));
        eprintln!("done");
        return;
    }
    in_namespace("namespaces::a_full_file_system_is_an_error_in_time");
}
