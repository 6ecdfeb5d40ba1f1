//! All or none: one request against several lanes, or several agents.

use super::guard::guard;
use super::pointers::{ListOut, Tagged, borrow, has_flag, list, tagged_out};
use super::request::asked;
use super::{Decision, Limiter, Request, Status, TOLLGATE_COUNTED, TOLLGATE_NEVER, Verdict};
use crate as tollgate;
use crate::clock::nanos_saturating;
use tollgate::LaneId;

/// The most requests of one tollgate_check_all.
pub const TOLLGATE_PARTS_MAX: usize = 16;

const _: () = assert!(TOLLGATE_PARTS_MAX == tollgate::bounds::PARTS_MAX);
const _: () = assert!(TOLLGATE_PARTS_MAX <= u32::BITS as usize);

/// The answer to several requests: all were charged, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AllVerdict {
    /// Set it to sizeof(tollgate_all_verdict) before the call.
    pub struct_size: u32,
    /// DENY if a request was denied; else WARN if an agent is near its limit,
    /// EXEMPT if all agents are exempt, ALLOW otherwise.
    pub decision: Decision,
    /// The longest wait of the requests that were denied. 0 if all were allowed,
    /// TOLLGATE_NEVER if no wait helps.
    pub retry_after_ns: u64,
    /// Which requests were denied: bit 0 is the first, and so on.
    pub blocking: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<AllVerdict>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AllVerdict {
    const SIZE_MIN: u32 = 24;
}

impl AllVerdict {
    fn new(struct_size: u32, verdict: &tollgate::AllVerdict) -> Self {
        let retry_after_ns = match verdict.is_allowed() {
            true => 0,
            false => verdict.retry_after().map_or(TOLLGATE_NEVER, nanos_saturating),
        };
        Self {
            struct_size,
            decision: verdict.decision().into(),
            retry_after_ns,
            blocking: verdict.blocking().fold(0, |bits, part| bits | 1 << part),
            reserved: 0,
        }
    }
}

/// May all of this be done? Charges every request or none: several lanes of an
/// agent, or several agents, such as a user, a team and an organisation.
///
/// verdicts_out gets a verdict at the index of each request; it may be NULL. If a
/// request is denied, nothing is charged, and the verdicts on the others show what
/// would have happened. flags is 0 or TOLLGATE_COUNTED, for all requests.
///
/// Two calls at the same moment may each see a charge that the other takes back,
/// and both may be denied.
///
/// Status: PARTS; those of tollgate_check, for the first request that cannot be
/// answered; COST_ABOVE_CAPACITY also if the requests of one lane add up to more
/// than it holds; LIMITS_DIFFER; STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `requests` is NULL or
/// readable for `count` requests, each with an id that is NULL or readable for
/// its id_len bytes; `verdicts_out` is NULL or writable for `count` verdicts;
/// `all_out` is NULL, or readable and writable for as many bytes as its
/// struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_all(
    limiter: *mut Limiter,
    requests: *const Request,
    count: usize,
    now_ns: u64,
    flags: u32,
    verdicts_out: *mut Verdict,
    all_out: *mut AllVerdict,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (all_out, struct_size) = unsafe { tagged_out(all_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        let is_counted = has_flag(flags, TOLLGATE_COUNTED)?;
        if !(1..=TOLLGATE_PARTS_MAX).contains(&count) {
            return Err(Status::Parts);
        }
        // SAFETY: NULL, or readable for `count` requests, by this function's contract.
        let requests = unsafe { list(requests, count) }?;
        let size = if verdicts_out.is_null() { 0 } else { count };
        // SAFETY: NULL, or writable for `count` verdicts, by this function's contract.
        let verdicts_out = unsafe { ListOut::new(verdicts_out, size) }?;
        let mut parts = [tollgate::Request::new(&[], LaneId::new(0)); TOLLGATE_PARTS_MAX];
        for (request, part) in requests.iter().zip(&mut parts) {
            // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
            *part = unsafe { asked(request, now_ns, is_counted) }?;
        }
        let verdict = limiter.check_all(&parts[..count])?;
        verdicts_out.write(verdict.verdicts().iter().map(Verdict::new));
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { all_out.write(AllVerdict::new(struct_size, &verdict)) };
        Ok(())
    })
}
