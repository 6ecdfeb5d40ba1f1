//! Asking: may this agent do this?
//!
//! A check takes some tens of nanoseconds, no lock and no allocation; the first
//! one of an agent takes longer.

use super::guard::guard;
use super::pointers::{agent, borrow, has_flag, instant, list, out, places, plan_id};
use super::request::asked;
use super::{Limiter, Request, Status, TOLLGATE_COUNTED, TOLLGATE_NOW, Verdict};
use crate as tollgate;
use crate::engine::BatchItem;
use std::ptr::NonNull;
use tollgate::{LaneId, Tick};

/// May the agent do this? Charges the cost, or nothing.
///
/// flags is 0 or TOLLGATE_COUNTED. now_ns is TOLLGATE_NOW, or an instant of
/// tollgate_limiter_now that the caller already has. An instant that is older
/// than another caller's only makes the answer stricter; one ahead of the clock
/// lets the agent borrow from its future.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
/// COST_ABOVE_CAPACITY, FULL; INVALID_OPTION for other flags; WRONG_KIND for the
/// lane "total", which is only charged along with other lanes. Every call with a
/// request may also return INVALID_LIMIT, NO_LIMIT and LIMIT_GIVEN.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `request` is NULL or
/// readable, and its id is NULL or readable for its id_len bytes; `verdict_out`
/// is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check(
    limiter: *mut Limiter,
    request: *const Request,
    now_ns: u64,
    flags: u32,
    verdict_out: *mut Verdict,
) -> Status {
    // SAFETY: NULL or readable, by this function's contract.
    let plain = unsafe { request.as_ref() }.filter(|request| request.is_plain() && flags == 0);
    // Jumps: each is out of line, and "C" since then nothing unwinds from it that would have to be caught here.
    match plain {
        // SAFETY: as this function's contract has it.
        Some(plain) if now_ns == TOLLGATE_NOW => unsafe { check_plain::<true>(limiter, plain, now_ns, verdict_out) },
        // SAFETY: as above.
        Some(plain) => unsafe { check_plain::<false>(limiter, plain, now_ns, verdict_out) },
        // SAFETY: as above.
        None => unsafe { check_with_options(limiter, request, now_ns, flags, verdict_out) },
    }
}

/// Checks a request without a plan, a limit and flags. Compiled once for the
/// clock's time and once for the caller's, so that the check is in line as a
/// whole in both.
///
/// # Safety
///
/// As [`tollgate_check`].
#[inline(never)]
unsafe extern "C" fn check_plain<const NOW: bool>(
    limiter: *const Limiter,
    request: &Request,
    now_ns: u64,
    verdict_out: *mut Verdict,
) -> Status {
    guard(|| {
        let verdict_out = out(verdict_out)?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        let agent = unsafe { agent(request.id, request.id_len) }?;
        let (lane, cost) = (LaneId::new(request.lane), request.cost);
        let at = if NOW { None } else { Some(Tick::from_nanos(now_ns)) };
        let request = tollgate::Request { agent, lane, cost, plan: None, at, is_counted: false, limit: None };
        // SAFETY: not NULL, so writable as the caller guarantees.
        limiter.0.check_with(request, |answer| unsafe { Verdict::put(verdict_out, answer) })
    })
}

/// # Safety
///
/// As [`tollgate_check`].
#[inline(never)]
unsafe extern "C" fn check_with_options(
    limiter: *const Limiter,
    request: *const Request,
    now_ns: u64,
    flags: u32,
    verdict_out: *mut Verdict,
) -> Status {
    guard(|| {
        let verdict_out = out(verdict_out)?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable with its id and its limit, as the caller guarantees.
        let request = unsafe { asked(request, now_ns, has_flag(flags, TOLLGATE_COUNTED)?) }?;
        // SAFETY: not NULL, so writable as the caller guarantees.
        limiter.0.check_with(request, |answer| unsafe { Verdict::put(verdict_out, answer) })
    })
}

/// A request of a batch as the limiter reads it.
#[derive(Clone, Copy)]
struct Asking<'a> {
    /// Invariant: its id is NULL, or readable for as many bytes as stated, and its limit is NULL or readable.
    request: &'a Request,
    is_counted: bool,
}

impl BatchItem for Asking<'_> {
    /// What cannot be an id is asked for as an empty one, which nobody has.
    #[inline(always)]
    fn agent(&self) -> &[u8] {
        // SAFETY: NULL or readable, by the invariant.
        unsafe { agent(self.request.id, self.request.id_len) }.unwrap_or_default()
    }

    #[inline(always)]
    fn lane(&self) -> LaneId {
        LaneId::new(self.request.lane)
    }

    #[inline(always)]
    fn cost(&self) -> u64 {
        self.request.cost
    }

    #[inline(always)]
    fn at(&self) -> Option<Tick> {
        None
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.request.is_plain() && !self.is_counted
    }

    /// What cannot be a limit is asked for nobody too.
    fn request(&self) -> tollgate::Request<'_> {
        // SAFETY: NULL or readable, by the invariant.
        let limit = unsafe { self.request.limit() };
        let agent = if limit.is_ok() { self.agent() } else { &[] };
        let request = tollgate::Request::new(agent, self.lane()).cost(self.cost()).limit(limit.unwrap_or_default());
        tollgate::Request { plan: plan_id(self.request.plan), is_counted: self.is_counted, ..request }
    }
}

/// Answers many requests as if they were checked one by one, in order, at one
/// instant. Faster than single checks of many agents. flags is 0 or
/// TOLLGATE_COUNTED, for all requests.
///
/// verdicts_out has room for count verdicts, and gets one at the index of each
/// request. A request that cannot be answered gets its own status there, and the
/// others proceed.
///
/// Status: BATCH_SIZE; INVALID_OPTION for other flags.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `requests` is NULL or
/// readable for `count` requests, each with an id that is NULL or readable for
/// its id_len bytes; `verdicts_out` is NULL or writable for `count` verdicts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_check_many(
    limiter: *mut Limiter,
    requests: *const Request,
    count: usize,
    now_ns: u64,
    flags: u32,
    verdicts_out: *mut Verdict,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or writable for `count` verdicts and no part of the requests, by this function's contract.
        let places = unsafe { places(verdicts_out, count) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `count` requests, by this function's contract.
        let requests = unsafe { list(requests, count) }?;
        let is_counted = has_flag(flags, TOLLGATE_COUNTED)?;
        // The ids are NULL or readable, by this function's contract.
        let asked = requests.iter().map(|request| Asking { request, is_counted });
        limiter.check_batch(asked, requests.iter().zip(places), instant(now_ns), |(request, place), answer| {
            // SAFETY: a place of the caller's, which is ours to write.
            if let Err(status) = unsafe { Verdict::put(NonNull::from(&mut *place).cast(), answer) } {
                // SAFETY: NULL or readable, by this function's contract.
                let id = unsafe { agent(request.id, request.id_len) };
                // SAFETY: as above.
                let limit = unsafe { request.limit() };
                // What could not be an id or a limit has its own status.
                place.write(Verdict::failed(id.err().or(limit.err()).unwrap_or(status)));
            }
        });
        Ok(())
    })
}
