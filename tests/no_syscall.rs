//! A check of a lane that machines share never asks the system for anything, however it is answered: in the kernel's
//! strict mode a process that makes any system call but read, write and exit is killed.

#![cfg(all(feature = "cluster", target_os = "linux"))]

#[path = "common/machine.rs"]
mod machine;

use machine::{check_in_every_way, every_way, lanes, machine};

/// Runs this in a child that may make no system call meanwhile, and returns how the child ended.
fn in_strict_mode(act: impl FnOnce(&tollgate::Limiter) -> bool) -> i32 {
    // SAFETY: the child runs this test alone, with the allocator that the C library prepares for that, and leaves
    // without unwinding into the harness.
    match unsafe { libc::fork() } {
        -1 => unreachable!("there is no child"),
        0 => {
            let limiter = machine();
            // SAFETY: two numbers; from here on the kernel allows this process three calls.
            let is_strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) } == 0;
            let code = if !is_strict { 3 } else { i32::from(!act(&limiter)) };
            // SAFETY: ends the only thread of the child; the usual way out is another call, which is not allowed.
            unsafe { libc::syscall(libc::SYS_exit, code) };
            unreachable!("it has ended")
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, which nobody else waits for, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        }
    }
}

#[test]
fn no_check_of_a_shared_lane_makes_a_system_call() {
    let status = in_strict_mode(|limiter| check_in_every_way(limiter, lanes(limiter)) == every_way());
    assert_eq!(status, 0, "9 is a system call; 256 is that not every way was gone; 768 is a system without this mode");
}

#[test]
fn a_system_call_would_be_noticed() {
    // SAFETY: it changes nothing.
    let status = in_strict_mode(|_| unsafe { libc::syscall(libc::SYS_getpid) } > 0);
    assert_eq!(status, 9, "killed");
}
