//! A limit on the size of files stands in for a full disk: a write past it is
//! an error. It applies to a process, so it is set in a child.

pub(crate) fn limit(bytes: libc::rlim_t) {
    // SAFETY: a write past the limit should be an error, not the end of the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the answer.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, 0);
    limit.rlim_cur = bytes.min(limit.rlim_max);
    // SAFETY: the limit lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}
