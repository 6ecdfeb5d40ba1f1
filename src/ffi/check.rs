//! Asking: may this agent do this?
//!
//! A request says who asks, on which lane, at what cost. The verdict says
//! whether the request may go on, and what a denied caller has to wait. A
//! denial charges nothing.
//!
//! The question takes some tens of nanoseconds, no lock and no memory, unless
//! the agent is new.

use super::guard::guard;
use super::pointers::{agent, borrow, has_flag, instant, list, out, plan_id};
use super::{Limiter, Status};
use crate as tollgate;
use crate::limiter::Asked;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use tollgate::{LaneId, Tick};

/// As an instant: the limiter reads its clock.
pub const TOLLGATE_NOW: u64 = u64::MAX;
/// As a span: no wait helps.
pub const TOLLGATE_NEVER: u64 = u64::MAX;
/// As a plan: the agent's own, or the default plan. As a lane: all, or none.
pub const TOLLGATE_NONE: u32 = u32::MAX;
/// A flag of tollgate_check and the like: a denial counts against the agent's
/// conduct, and a policy that enforces waits denies a violator until its wait
/// is over.
pub const TOLLGATE_COUNTED: u32 = 1;
/// The longest agent id, in bytes.
pub const TOLLGATE_ID_BYTES_MAX: usize = 256;
/// The most elements of an array.
pub const TOLLGATE_BATCH_MAX: usize = 1_048_576;

const _: () = assert!(TOLLGATE_ID_BYTES_MAX == tollgate::bounds::ID_BYTES_MAX);
const _: () = assert!(TOLLGATE_BATCH_MAX == tollgate::bounds::BATCH_MAX);

/// The question. It never grows, so it can be filled in one initializer:
/// {id, id_len, cost, lane, TOLLGATE_NONE}.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Request {
    /// Who asks: any bytes.
    pub id: *const c_void,
    /// How many bytes: 1 to TOLLGATE_ID_BYTES_MAX.
    pub id_len: usize,
    /// How many tokens, at least 1. All of them are charged, or none.
    pub cost: u64,
    /// The lane: see tollgate_limiter_lane.
    pub lane: u32,
    /// The plan of an agent without an assignment, for what is known only with
    /// the request, such as how it was authenticated: see tollgate_limiter_plan.
    /// TOLLGATE_NONE for the default plan. The limiter does not remember it.
    pub plan: u32,
}

const _: () = assert!(size_of::<Request>() == 32);

/// Whether a request may go on. A verdict that was set to zero denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Decision {
    /// It may not, and nothing was charged.
    Deny = 0,
    /// It may.
    Allow = 1,
    /// It may, and the agent is near its limit.
    Warn = 2,
    /// It may: the agent is exempt, and nothing was charged.
    Exempt = 3,
}

impl From<tollgate::Decision> for Decision {
    #[inline(always)]
    fn from(decision: tollgate::Decision) -> Self {
        match decision {
            tollgate::Decision::Deny => Self::Deny,
            tollgate::Decision::Allow => Self::Allow,
            tollgate::Decision::Warn => Self::Warn,
            tollgate::Decision::Exempt => Self::Exempt,
        }
    }
}

/// The answer. It never grows: it is an element of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Verdict {
    /// TOLLGATE_STATUS_OK. In an array, also why a request could not be
    /// answered; then all other members are zero.
    pub status: Status,
    /// Whether the request may go on.
    pub decision: Decision,
    /// What the lane holds when it is full, in tokens. UINT64_MAX if the agent is exempt.
    pub capacity: u64,
    /// How long a denied caller has to wait: the longer of the next two. 0 if
    /// it was allowed, TOLLGATE_NEVER if no wait helps.
    pub retry_after_ns: u64,
    /// How long until the lane would let the same request pass, exact to the
    /// nanosecond. 0 if it was allowed, TOLLGATE_NEVER if it never would.
    pub lane_wait_ns: u64,
    /// How long a denied agent has to wait for its conduct. 0 without TOLLGATE_COUNTED.
    pub conduct_wait_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How long one token of a bucket takes to come back. 0 in a lane that
    /// counts: window, exact, budget and held.
    pub token_ns: u64,
    /// What is left in a lane that counts. 0 in a bucket. Use
    /// tollgate_verdict_remaining, which works for both.
    pub count_left: u64,
    /// If this denial is a violation: how many in a row, up to 15. Else 0.
    pub violations_in_a_row: u32,
    /// 1 if with this denial the agent's conduct became sustained abuse, else 0.
    pub sustained_abuse: u32,
}

const _: () = assert!(size_of::<Verdict>() == 72);

/// A token's time and the count that is left, of which a verdict has one.
#[inline(always)]
fn token_and_count(verdict: &tollgate::Verdict) -> (u64, u64) {
    match crate::lane::counted::remaining(verdict.ticks_per_token) {
        Some(left) => (0, left),
        None => (verdict.ticks_per_token, 0),
    }
}

/// What a denial means for the agent's conduct: nothing, as a rule.
#[derive(Clone, Copy)]
struct Judged {
    wait_ns: u64,
    in_a_row: u32,
    is_abuse: bool,
}

impl Judged {
    #[inline(always)]
    fn of(verdict: &tollgate::Verdict) -> Self {
        let (in_a_row, is_abuse) = (verdict.violations_in_a_row(), verdict.is_sustained_abuse());
        Self { wait_ns: verdict.finding.conduct_wait_ns(), in_a_row, is_abuse }
    }
}

impl Verdict {
    pub(super) fn new(verdict: &tollgate::Verdict) -> Self {
        const _: () = assert!(crate::lane::RETRY_NEVER == TOLLGATE_NEVER);
        let ((token_ns, count_left), judged) = (token_and_count(verdict), Judged::of(verdict));
        Self {
            status: Status::Ok,
            decision: verdict.decision().into(),
            capacity: verdict.capacity(),
            retry_after_ns: verdict.retry_after_ns.max(judged.wait_ns),
            lane_wait_ns: verdict.retry_after_ns,
            conduct_wait_ns: judged.wait_ns,
            full_in_ns: verdict.full_in_ns,
            token_ns,
            count_left,
            violations_in_a_row: judged.in_a_row,
            sustained_abuse: judged.is_abuse.into(),
        }
    }

    /// The verdict on a request that could not be answered.
    const fn failed(status: Status) -> Self {
        Self {
            status,
            decision: Decision::Deny,
            capacity: 0,
            retry_after_ns: 0,
            lane_wait_ns: 0,
            conduct_wait_ns: 0,
            full_in_ns: 0,
            token_ns: 0,
            count_left: 0,
            violations_in_a_row: 0,
            sustained_abuse: 0,
        }
    }

    /// Writes the verdict, if there is one: the same as [`Verdict::new`].
    ///
    /// Member by member: the verdict may come from memory that was just
    /// written, eight bytes at a time, and two members read at once would wait
    /// until that is all through. Volatile keeps the compiler from doing so; it
    /// saves a fifth of a check. What most verdicts do not have is out of line,
    /// so that this is in line.
    ///
    /// # Safety
    ///
    /// `place` is writable.
    #[inline(always)]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "writes to the members of one place")]
    pub(super) unsafe fn put(
        place: NonNull<Self>,
        answer: Result<tollgate::Verdict, tollgate::Error>,
    ) -> Result<(), Status> {
        let verdict = match answer {
            Ok(verdict) => verdict,
            Err(error) => return Err(status_of(error)),
        };
        let ((token_ns, count_left), judged) = (token_and_count(&verdict), Judged::of(&verdict));
        let to = place.as_ptr();
        // SAFETY: each is a member of what is writable, as the caller guarantees.
        unsafe {
            (&raw mut (*to).status).write(Status::Ok);
            (&raw mut (*to).decision).write(verdict.decision().into());
            (&raw mut (*to).capacity).write_volatile(verdict.capacity());
            (&raw mut (*to).retry_after_ns).write_volatile(verdict.retry_after_ns);
            (&raw mut (*to).lane_wait_ns).write_volatile(verdict.retry_after_ns);
            (&raw mut (*to).conduct_wait_ns).write(0);
            (&raw mut (*to).full_in_ns).write_volatile(verdict.full_in_ns);
            (&raw mut (*to).token_ns).write_volatile(token_ns);
            (&raw mut (*to).count_left).write(count_left);
            (&raw mut (*to).violations_in_a_row).write(0);
            (&raw mut (*to).sustained_abuse).write(0);
        }
        if (judged.wait_ns, judged.in_a_row) != (0, 0) {
            // SAFETY: writable, as the caller guarantees, and written.
            unsafe { Self::put_judged(place, judged) };
        }
        Ok(())
    }

    /// Adds what a denial means for conduct.
    ///
    /// # Safety
    ///
    /// `place` is a verdict that nobody else uses.
    #[cold]
    #[inline(never)]
    unsafe fn put_judged(mut place: NonNull<Self>, judged: Judged) {
        // SAFETY: as the caller guarantees.
        let verdict = unsafe { place.as_mut() };
        verdict.retry_after_ns = verdict.lane_wait_ns.max(judged.wait_ns);
        verdict.conduct_wait_ns = judged.wait_ns;
        verdict.violations_in_a_row = judged.in_a_row;
        verdict.sustained_abuse = judged.is_abuse.into();
    }
}

/// Out of line, since few checks fail.
#[cold]
#[inline(never)]
fn status_of(error: tollgate::Error) -> Status {
    error.into()
}

/// A request as the limiter takes it.
///
/// # Safety
///
/// `request` is NULL or readable, and its id is NULL or readable for as many
/// bytes as stated, for as long as the result is used.
#[inline(always)]
pub(super) unsafe fn asked<'a>(
    request: *const Request,
    now_ns: u64,
    is_counted: bool,
) -> Result<tollgate::Request<'a>, Status> {
    // SAFETY: NULL or readable, as the caller guarantees.
    let request = unsafe { borrow(request) }?;
    // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
    let agent = unsafe { agent(request.id, request.id_len) }?;
    let (lane, cost, plan) = (LaneId::new(request.lane), request.cost, plan_id(request.plan));
    Ok(tollgate::Request { agent, lane, cost, plan, at: instant(now_ns), is_counted })
}

/// May the agent do this? Charges the cost, or nothing.
///
/// flags is 0 or TOLLGATE_COUNTED. now_ns is TOLLGATE_NOW, or an instant of
/// tollgate_limiter_now that the caller has at hand: an older one than another
/// caller's only makes the answer stricter; one ahead of the clock lets the
/// agent borrow from its future.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
/// COST_ABOVE_CAPACITY, FULL, INVALID_OPTION for other flags, WRONG_KIND for
/// the lane "total", which is charged with others only. Each of them charges
/// nothing.
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
    let plain = unsafe { request.as_ref() }.filter(|request| request.plan == TOLLGATE_NONE);
    let Some(plain) = plain.filter(|_| now_ns == TOLLGATE_NOW && flags == 0) else {
        // SAFETY: as this function's contract has it.
        return unsafe { check_with_options(limiter, request, now_ns, flags, verdict_out) };
    };
    guard(|| {
        let verdict_out = out(verdict_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let agent = unsafe { agent(plain.id, plain.id_len) }?;
        let request = tollgate::Request::new(agent, LaneId::new(plain.lane)).cost(plain.cost);
        // SAFETY: not NULL, so writable by this function's contract.
        limiter.0.check_with(request, |answer| unsafe { Verdict::put(verdict_out, answer) })
    })
}

/// # Safety
///
/// As [`tollgate_check`].
#[inline(never)]
unsafe fn check_with_options(
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
        // SAFETY: NULL, or readable with its id, as the caller guarantees.
        let request = unsafe { asked(request, now_ns, has_flag(flags, TOLLGATE_COUNTED)?) }?;
        // SAFETY: not NULL, so writable as the caller guarantees.
        limiter.0.check_with(request, |answer| unsafe { Verdict::put(verdict_out, answer) })
    })
}

/// A request of a batch as the limiter reads it.
#[derive(Clone, Copy)]
struct Asking<'a> {
    /// Invariant: its id is NULL, or readable for as many bytes as stated.
    request: &'a Request,
    is_counted: bool,
}

impl Asked for Asking<'_> {
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
        self.request.plan == TOLLGATE_NONE && !self.is_counted
    }

    fn request(&self) -> tollgate::Request<'_> {
        let request = tollgate::Request::new(self.agent(), self.lane()).cost(self.cost());
        tollgate::Request { plan: plan_id(self.request.plan), is_counted: self.is_counted, ..request }
    }
}

/// Answers many requests as if they were checked one by one, in order, at one
/// instant. Faster than single checks if the agents are many.
///
/// verdicts_out gets a verdict for each request, in the same place. A request
/// that cannot be answered gets its own status there, and the others proceed.
/// The arrays must not overlap.
///
/// Status: BATCH_SIZE, INVALID_OPTION for other flags than TOLLGATE_COUNTED.
/// Both charge nothing.
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
        let verdicts_out = out(verdicts_out)?.as_ptr().cast::<MaybeUninit<Verdict>>();
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        let requests = out(requests.cast_mut())?.as_ptr();
        // SAFETY: readable for `count` requests, by this function's contract.
        let requests = unsafe { list(requests, count) }?;
        let is_counted = has_flag(flags, TOLLGATE_COUNTED)?;
        // SAFETY: not NULL, so writable for `count` verdicts by this function's contract, and no part of the requests.
        let places = unsafe { std::slice::from_raw_parts_mut(verdicts_out, count) };
        // The ids are NULL or readable, by this function's contract.
        let asked = requests.iter().map(|request| Asking { request, is_counted });
        limiter.check_batch(asked, requests.iter().zip(places), instant(now_ns), |(request, place), answer| {
            place.write(match answer {
                Ok(verdict) => Verdict::new(&verdict),
                Err(error) => {
                    // SAFETY: NULL or readable, by this function's contract. What could not be an id has its own status.
                    let id = unsafe { agent(request.id, request.id_len) };
                    Verdict::failed(id.err().unwrap_or(error.into()))
                }
            });
        });
        Ok(())
    })
}

/// Whole tokens that are left in the lane after the request, whatever its kind.
/// UINT64_MAX if the agent is exempt; 0 for NULL and for a verdict of zeros.
///
/// For a bucket this takes a division, so a check leaves it to callers that
/// want to know.
///
/// # Safety
///
/// `verdict` is NULL or points to a verdict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_verdict_remaining(verdict: *const Verdict) -> u64 {
    /// A verdict in memory: one that nobody wrote may hold a decision that does not exist.
    type Words = [u64; 9];
    const _: () = assert!(std::mem::offset_of!(Verdict, full_in_ns) == 40);
    const _: () = assert!(std::mem::offset_of!(Verdict, count_left) == 56);
    // SAFETY: NULL or readable, by this function's contract.
    let Some(&[_, capacity, _, _, _, full_in_ns, token_ns, count_left, _]) =
        (unsafe { verdict.cast::<Words>().as_ref() })
    else {
        return 0;
    };
    match token_ns {
        0 => count_left,
        // A token that is partly missing is missing.
        token_ns => capacity.saturating_sub(full_in_ns.div_ceil(token_ns)),
    }
}
