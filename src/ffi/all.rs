//! Several charges, all or none.

use super::guard::guard;
use super::pointers::{Tagged, agent, borrow, tagged_out};
use super::{Answer, Decision, Limiter, Request, Status, TOLLGATE_NEVER};
use crate as tollgate;
use crate::clock::nanos_saturating;
use std::mem::MaybeUninit;
use tollgate::{LaneId, Tick};

/// The most parts of one tollgate_limiter_check_all.
pub const TOLLGATE_PARTS_MAX: usize = 16;

const _: () = assert!(TOLLGATE_PARTS_MAX == tollgate::bounds::PARTS_MAX);
const _: () = assert!(TOLLGATE_PARTS_MAX <= u32::BITS as usize);

/// The answer to several charges at once: all were made, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AllVerdict {
    /// Set it to sizeof(tollgate_all_verdict) before the call; it stays as it is.
    pub struct_size: u32,
    /// TOLLGATE_DECISION_DENY if a part stands in the way, and then nothing was
    /// charged; else WARN if an agent is near its limit, EXEMPT if none of the
    /// agents is ever limited, ALLOW otherwise.
    pub decision: Decision,
    /// The longest wait of the parts that stand in the way; TOLLGATE_NEVER if
    /// no wait helps, 0 if it was allowed.
    pub retry_after_ns: u64,
    /// The parts that stand in the way: bit 0 is set for the first, bit 1 for
    /// the second, and so on; 0 if it was allowed.
    pub blocking: u32,
    /// The parts with whose denial the conduct of their agent became sustained
    /// abuse, as bits; of tollgate_limiter_admit_all alone.
    pub sustained_abuse: u32,
}

const _: () = assert!(size_of::<AllVerdict>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AllVerdict {
    const SIZE_MIN: u32 = 24;
}

fn bits(parts: impl Iterator<Item = usize>) -> u32 {
    parts.fold(0, |bits, part| bits | 1 << part)
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
            blocking: bits(verdict.blocking()),
            sustained_abuse: bits(
                (0..verdict.verdicts().len()).filter(|part| verdict.verdicts()[*part].is_sustained_abuse()),
            ),
        }
    }
}

impl From<&tollgate::Verdict> for Answer {
    fn from(verdict: &tollgate::Verdict) -> Self {
        Self {
            status: Status::Ok,
            decision: verdict.decision().into(),
            capacity: verdict.capacity(),
            retry_after_ns: verdict.retry_after_ns,
            full_in_ns: verdict.full_in_ns,
            token_ns: super::check::token_ns(verdict),
        }
    }
}

/// A whole call.
///
/// # Safety
///
/// As [`tollgate_limiter_check_all`].
unsafe fn all(
    limiter: *const Limiter,
    parts: *const Request,
    count: usize,
    answers_out: *mut Answer,
    verdict_out: *mut AllVerdict,
    (now, is_counted): (Option<Tick>, bool),
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (verdict_out, struct_size) = unsafe { tagged_out(verdict_out) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        if parts.is_null() {
            return Err(Status::NullPointer);
        }
        if !(1..=TOLLGATE_PARTS_MAX).contains(&count) {
            return Err(Status::Parts);
        }
        // SAFETY: not NULL, so readable for `count` requests as the caller guarantees.
        let parts = unsafe { std::slice::from_raw_parts(parts, count) };
        let mut asked = [tollgate::Request::new(&[], LaneId::new(0)); TOLLGATE_PARTS_MAX];
        for (part, asked) in parts.iter().zip(&mut asked) {
            // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
            let agent = unsafe { agent(part.id, part.id_len) }?;
            let request = tollgate::Request::new(agent, LaneId::new(part.lane)).cost(part.cost);
            *asked = tollgate::Request { at: now, is_counted, ..request };
        }
        let verdict = limiter.0.check_all(&asked[..count])?;
        if !answers_out.is_null() {
            // SAFETY: not NULL, so writable for `count` answers as the caller guarantees, and no part of the requests.
            let answers = unsafe { std::slice::from_raw_parts_mut(answers_out.cast::<MaybeUninit<Answer>>(), count) };
            for (place, verdict) in answers.iter_mut().zip(verdict.verdicts()) {
                place.write(verdict.into());
            }
        }
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { verdict_out.write(AllVerdict::new(struct_size, &verdict)) };
        Ok(())
    })
}

/// May all of this be done now? Charges every part or none: one request
/// against several lanes of an agent, or of several agents, such as a user, a
/// team and an organisation. There are 1 to TOLLGATE_PARTS_MAX parts.
///
/// `answers_out` has room for an answer to each part, in the same place, or is
/// NULL. If a part stands in the way, nothing was charged, and the answers to
/// the others say what would have been. Parts and answers must not overlap.
///
/// A caller that is alone is denied only if a part stands in the way; of
/// callers that cross, each may meet what the other is about to take back, and
/// both may be denied once.
///
/// Status: PARTS if there are none, or too many; if a part cannot be answered,
/// what tollgate_limiter_check would have returned, and COST_ABOVE_CAPACITY if
/// parts of one lane together are more than it ever holds; STRUCT_SIZE. With
/// any of them nothing was charged.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `parts` is NULL or
/// readable for `count` requests, each with an id that is NULL or readable for
/// its id_len bytes; `answers_out` is NULL or writable for `count` answers;
/// `verdict_out` is NULL, or readable and writable for as many bytes as its
/// struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_all(
    limiter: *mut Limiter,
    parts: *const Request,
    count: usize,
    answers_out: *mut Answer,
    verdict_out: *mut AllVerdict,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { all(limiter, parts, count, answers_out, verdict_out, (None, false)) }
}

/// As tollgate_limiter_check_all, at an instant of the caller's; see
/// tollgate_limiter_check_at.
///
/// Status: as tollgate_limiter_check_all.
///
/// # Safety
///
/// As tollgate_limiter_check_all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_all_at(
    limiter: *mut Limiter,
    parts: *const Request,
    count: usize,
    now_ns: u64,
    answers_out: *mut Answer,
    verdict_out: *mut AllVerdict,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: as this function's contract has it.
    unsafe { all(limiter, parts, count, answers_out, verdict_out, (Some(now), false)) }
}

/// As tollgate_limiter_check_all, and a denial is recorded as a violation of
/// each agent that stands in the way; the longest wait takes that into account.
/// See tollgate_limiter_admit.
///
/// Status: as tollgate_limiter_check_all.
///
/// # Safety
///
/// As tollgate_limiter_check_all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_admit_all(
    limiter: *mut Limiter,
    parts: *const Request,
    count: usize,
    answers_out: *mut Answer,
    verdict_out: *mut AllVerdict,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { all(limiter, parts, count, answers_out, verdict_out, (None, true)) }
}

/// As tollgate_limiter_admit_all, at an instant of the caller's.
///
/// Status: as tollgate_limiter_check_all.
///
/// # Safety
///
/// As tollgate_limiter_check_all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_admit_all_at(
    limiter: *mut Limiter,
    parts: *const Request,
    count: usize,
    now_ns: u64,
    answers_out: *mut Answer,
    verdict_out: *mut AllVerdict,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: as this function's contract has it.
    unsafe { all(limiter, parts, count, answers_out, verdict_out, (Some(now), true)) }
}
