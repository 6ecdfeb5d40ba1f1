//! Checks: one request, or a batch.

use super::guard::guard;
use super::pointers::{Tagged, agent, borrow, out, plan_id, tagged_out};
use super::{Limiter, Status};
use crate as tollgate;
use crate::engine::BatchItem;
use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use tollgate::{LaneId, Tick};

/// The longest agent id, in bytes. The shortest has one.
pub const TOLLGATE_ID_BYTES_MAX: usize = 256;
/// The most requests of a batch.
pub const TOLLGATE_BATCH_MAX: usize = 1_048_576;
/// A span that never ends: the wait of a denial that no wait will lift.
pub const TOLLGATE_NEVER: u64 = u64::MAX;

const _: () = assert!(TOLLGATE_ID_BYTES_MAX == tollgate::bounds::ID_BYTES_MAX);
const _: () = assert!(TOLLGATE_BATCH_MAX == tollgate::bounds::BATCH_MAX);

/// Whether a request may go on. Zero is a denial, so that a verdict that was
/// set to zero and never written lets nothing through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Decision {
    /// It may not; nothing was charged.
    Deny = 0,
    /// It may.
    Allow = 1,
    /// It may, and the agent is near its limit.
    Warn = 2,
    /// It may: the agent is never limited, and nothing was charged.
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

/// The answer to a check. tollgate_verdict_remaining tells what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Verdict {
    /// Set it to sizeof(tollgate_verdict) before the call; it stays as it is.
    pub struct_size: u32,
    /// Whether the request may go on.
    pub decision: Decision,
    /// What the lane holds when it is full, in tokens.
    pub capacity: u64,
    /// How long a denied caller has to wait until the same request would pass,
    /// exact to the nanosecond; TOLLGATE_NEVER if no wait helps, 0 if it was allowed.
    pub retry_after_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How long a token takes to come back. Of a lane that is no bucket, a
    /// number of tollgate's own with its highest bit set.
    pub token_ns: u64,
}

const _: () = assert!(size_of::<Verdict>() == 40);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Verdict {
    const SIZE_MIN: u32 = 40;
}

impl Verdict {
    /// Writes all but the tag.
    ///
    /// Member by member: the verdict comes from memory that was just written,
    /// eight bytes at a time, and two members read at once would wait until
    /// that is all through. Volatile keeps the compiler from doing so; it
    /// saves a fifth of a check.
    ///
    /// # Safety
    ///
    /// `place` is writable.
    #[inline(always)]
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "five writes to five members of one place")]
    unsafe fn put(place: NonNull<Self>, verdict: &tollgate::Verdict) {
        let place = place.as_ptr();
        // SAFETY: each is a member of what is writable, as the caller guarantees.
        unsafe {
            (&raw mut (*place).decision).write(verdict.decision().into());
            (&raw mut (*place).capacity).write_volatile(verdict.capacity());
            (&raw mut (*place).retry_after_ns).write_volatile(retry_after_ns(verdict));
            (&raw mut (*place).full_in_ns).write_volatile(verdict.full_in_ns);
            (&raw mut (*place).token_ns).write_volatile(token_ns(verdict));
        }
    }
}

/// Marks a `token_ns` that is a count of what is left.
const COUNTED: u64 = 1 << 63;

/// What a token takes, or what is left of a count.
#[inline(always)]
pub(super) fn token_ns(verdict: &tollgate::Verdict) -> u64 {
    match verdict.token_ns() {
        0 => COUNTED | verdict.count_left(),
        token_ns => token_ns,
    }
}

/// The wait in nanoseconds, as C is told it: `RETRY_NEVER` is `TOLLGATE_NEVER`,
/// and it is 0 if the request was allowed.
#[inline(always)]
fn retry_after_ns(verdict: &tollgate::Verdict) -> u64 {
    const _: () = assert!(crate::lane::RETRY_NEVER == TOLLGATE_NEVER);
    verdict.retry_after_ns
}

/// A verdict or an answer as five words, which is what it is in memory: one
/// that nobody wrote may hold a decision that is none.
pub(super) type Words = [u64; 5];

const _: () = assert!(offset_of!(Verdict, capacity) == 8 && offset_of!(Answer, capacity) == 8);
const _: () = assert!(offset_of!(Verdict, full_in_ns) == 24 && offset_of!(Answer, full_in_ns) == 24);
const _: () = assert!(offset_of!(Verdict, token_ns) == 32 && offset_of!(Answer, token_ns) == 32);

/// Whole tokens left. A token that is partly missing is missing.
///
/// # Safety
///
/// `words` is NULL or readable.
pub(super) unsafe fn remaining(words: *const Words) -> u64 {
    // SAFETY: NULL or readable, as the caller guarantees.
    let Some(&[_, capacity, _, full_in_ns, token_ns]) = (unsafe { words.as_ref() }) else { return 0 };
    if token_ns & COUNTED != 0 {
        return token_ns & !COUNTED;
    }
    let missing = full_in_ns.checked_div(token_ns).map(|whole| whole + u64::from(full_in_ns % token_ns > 0));
    missing.map_or(0, |missing| capacity.saturating_sub(missing))
}

/// Whole tokens left in the lane after this request; 0 for NULL, and for a
/// verdict that is all zero.
///
/// It takes a division, so a check leaves it to those who want to know.
///
/// # Safety
///
/// `verdict` is NULL or points to a verdict.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_verdict_remaining(verdict: *const Verdict) -> u64 {
    // SAFETY: NULL or readable, by this function's contract.
    unsafe { remaining(verdict.cast()) }
}

/// One request of a batch. Being part of an array, it never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Request {
    /// Who asks: any bytes.
    pub id: *const c_void,
    /// How many bytes, 1 to TOLLGATE_ID_BYTES_MAX.
    pub id_len: usize,
    /// How much, at least 1.
    pub cost: u64,
    /// For what.
    pub lane: u32,
    /// Not looked at.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Request>() == 32);

/// The answer to one request of a batch. Being part of an array, it never grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// What tollgate_limiter_check would have returned. The other members are
    /// those of its verdict if it is TOLLGATE_STATUS_OK, and zero otherwise.
    pub status: Status,
    /// Whether the request may go on.
    pub decision: Decision,
    /// What the lane holds when it is full, in tokens.
    pub capacity: u64,
    /// See retry_after_ns in tollgate_verdict.
    pub retry_after_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How long a token takes to come back. Of a lane that is no bucket, a
    /// number of tollgate's own with its highest bit set.
    pub token_ns: u64,
}

const _: () = assert!(size_of::<Answer>() == 40);

impl Answer {
    /// # Safety
    ///
    /// The id of the request is NULL, or readable for as many bytes as stated.
    #[inline(always)]
    unsafe fn new(request: &Request, answer: &Result<tollgate::Verdict, tollgate::Error>) -> Self {
        match answer {
            Ok(verdict) => Self {
                status: Status::Ok,
                decision: verdict.decision().into(),
                capacity: verdict.capacity(),
                retry_after_ns: retry_after_ns(verdict),
                full_in_ns: verdict.full_in_ns,
                token_ns: token_ns(verdict),
            },
            Err(error) => {
                // SAFETY: as the caller guarantees. What could not be an id has its own status.
                let status = unsafe { agent(request.id, request.id_len) }.err().unwrap_or((*error).into());
                Self { status, decision: Decision::Deny, capacity: 0, retry_after_ns: 0, full_in_ns: 0, token_ns: 0 }
            }
        }
    }
}

/// Whole tokens left in the lane after a request of a batch; 0 for NULL, and
/// for an answer whose status is not TOLLGATE_STATUS_OK.
///
/// # Safety
///
/// `answer` is NULL or points to an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_answer_remaining(answer: *const Answer) -> u64 {
    // SAFETY: NULL or readable, by this function's contract.
    unsafe { remaining(answer.cast()) }
}

/// Where a verdict goes.
pub(super) struct VerdictOut(
    /// Invariant: writable.
    NonNull<Verdict>,
);

impl VerdictOut {
    /// Writes the verdict, if there is one.
    #[inline(always)]
    pub(super) fn tell(self, answer: Result<tollgate::Verdict, tollgate::Error>) -> Result<(), Status> {
        // SAFETY: writable, by the invariant.
        unsafe { Verdict::put(self.0, &answer?) };
        Ok(())
    }
}

/// A check under a plan, at this instant or else at the clock's.
///
/// # Safety
///
/// As [`tollgate_limiter_check`].
#[inline(never)]
unsafe fn check_under(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    (plan, lane, cost): (u32, u32, u64),
    at: Option<Tick>,
    verdict_out: *mut Verdict,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8], verdict_out: VerdictOut| {
        let request = tollgate::Request::new(id, LaneId::new(lane)).cost(cost).plan(plan_id(plan)?);
        limiter.check_with(tollgate::Request { at, ..request }, |answer| verdict_out.tell(answer))
    };
    // SAFETY: as this function's contract has it.
    unsafe { check(limiter, id, id_len, verdict_out, ask) }
}

/// A whole call that answers with a verdict, which it writes where it is found:
/// of a check it is in registers there, as a rule.
///
/// # Safety
///
/// As [`tollgate_limiter_check`].
#[inline(always)]
pub(super) unsafe fn check(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    verdict_out: *mut Verdict,
    ask: impl FnOnce(&tollgate::Limiter, &[u8], VerdictOut) -> Result<(), Status>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (verdict_out, _) = unsafe { tagged_out(verdict_out) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        let id = unsafe { agent(id, id_len) }?;
        // Not NULL and large enough, so writable as the caller guarantees.
        ask(&limiter.0, id, VerdictOut(verdict_out))
    })
}

/// May the agent spend `cost` tokens of a lane now? Charges all of them or none.
///
/// A denial is TOLLGATE_STATUS_OK with the decision TOLLGATE_DECISION_DENY.
/// `id` is any bytes, need not end in a NUL, and is not kept.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, ZERO_COST, COST_ABOVE_CAPACITY,
/// FULL, STRUCT_SIZE. With any of them nothing was charged.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `verdict_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    cost: u64,
    verdict_out: *mut Verdict,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8], verdict_out: VerdictOut| {
        limiter.check_with(tollgate::Request::new(id, LaneId::new(lane)).cost(cost), |answer| verdict_out.tell(answer))
    };
    // SAFETY: as this function's contract has it.
    unsafe { check(limiter, id, id_len, verdict_out, ask) }
}

/// May the agent spend `cost` tokens of a lane at an instant of the caller's?
///
/// For those who have the time at hand, such as event loops, and for tests.
/// `now_ns` counts on the limiter's clock: see tollgate_limiter_now. An older
/// one than another caller's only makes the answer stricter; one that lies
/// ahead of the clock lets the agent borrow from its future.
///
/// Status: as tollgate_limiter_check.
///
/// # Safety
///
/// As tollgate_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    cost: u64,
    now_ns: u64,
    verdict_out: *mut Verdict,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8], verdict_out: VerdictOut| {
        let request = tollgate::Request::new(id, LaneId::new(lane)).cost(cost).at(Tick::from_nanos(now_ns));
        limiter.check_with(request, |answer| verdict_out.tell(answer))
    };
    // SAFETY: as this function's contract has it.
    unsafe { check(limiter, id, id_len, verdict_out, ask) }
}

/// May the agent spend `cost` tokens of a lane now, under this plan if it has
/// no assignment of its own?
///
/// For what is known only with the request, such as how the caller has
/// authenticated: the plans "jwt" and "unauthenticated", say. Nothing is
/// remembered of the plan; the agent's lanes are the same under each. Plans
/// are numbered: see tollgate_limiter_plan.
///
/// Status: as tollgate_limiter_check, and UNKNOWN_PLAN.
///
/// # Safety
///
/// As tollgate_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_as(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    cost: u64,
    verdict_out: *mut Verdict,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { check_under(limiter, id, id_len, (plan, lane, cost), None, verdict_out) }
}

/// As tollgate_limiter_check_as, at an instant of the caller's; see
/// tollgate_limiter_check_at.
///
/// Status: as tollgate_limiter_check_as.
///
/// # Safety
///
/// As tollgate_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_as_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    cost: u64,
    now_ns: u64,
    verdict_out: *mut Verdict,
) -> Status {
    let now = Some(Tick::from_nanos(now_ns));
    // SAFETY: as this function's contract has it.
    unsafe { check_under(limiter, id, id_len, (plan, lane, cost), now, verdict_out) }
}

/// A request as the limiter reads it.
#[derive(Clone, Copy)]
struct Asking<'a>(
    /// Invariant: its id is NULL, or readable for as many bytes as stated.
    &'a Request,
);

impl BatchItem for Asking<'_> {
    /// What cannot be an id is asked for as an empty one, which nobody has.
    #[inline(always)]
    fn agent(&self) -> &[u8] {
        let (id, len) = (self.0.id, self.0.id_len);
        if id.is_null() || len > TOLLGATE_ID_BYTES_MAX {
            return &[];
        }
        // SAFETY: not NULL, so readable for `len` bytes by the invariant.
        unsafe { std::slice::from_raw_parts(id.cast(), len) }
    }

    #[inline(always)]
    fn lane(&self) -> LaneId {
        LaneId::new(self.0.lane)
    }

    #[inline(always)]
    fn cost(&self) -> u64 {
        self.0.cost
    }

    #[inline(always)]
    fn at(&self) -> Option<Tick> {
        None
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        true
    }

    fn request(&self) -> tollgate::Request<'_> {
        tollgate::Request::new(self.agent(), self.lane()).cost(self.cost())
    }
}

/// A whole batch, at the instant `now` or else at the clock's.
///
/// # Safety
///
/// As [`tollgate_limiter_check_many`].
unsafe fn check_many(
    limiter: *const Limiter,
    requests: *const Request,
    count: usize,
    answers_out: *mut Answer,
    now: Option<Tick>,
) -> Status {
    guard(|| {
        let answers_out = out(answers_out)?.as_ptr().cast::<MaybeUninit<Answer>>();
        if requests.is_null() {
            return Err(Status::NullPointer);
        }
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = &unsafe { borrow(limiter) }?.0;
        if count > TOLLGATE_BATCH_MAX {
            return Err(Status::BatchSize);
        }
        // SAFETY: not NULL, so readable for `count` requests as the caller guarantees.
        let requests = unsafe { std::slice::from_raw_parts(requests, count) };
        // SAFETY: not NULL, so writable for `count` answers as the caller guarantees, and no part of the requests.
        let answers = unsafe { std::slice::from_raw_parts_mut(answers_out, count) };
        // The ids are NULL or readable, as the caller guarantees.
        let asked = requests.iter().map(Asking);
        limiter.check_batch(asked, requests.iter().zip(answers), now, |(request, place), answer| {
            // SAFETY: as above.
            place.write(unsafe { Answer::new(request, &answer) });
        });
        Ok(())
    })
}

/// Answers a batch as if its requests were checked one by one, in order, at
/// one reading of the clock.
///
/// A request that cannot be answered gets its own status, and the others
/// proceed. There is an answer for each request, in the same place. Requests
/// and answers must not overlap. A batch asks for the memory of many agents at
/// once, so it is faster than single checks where agents are many.
///
/// Status: BATCH_SIZE. With it nothing was charged.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `requests` is NULL or
/// readable for `count` requests, each with an id that is NULL or readable for
/// its id_len bytes; `answers_out` is NULL or writable for `count` answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_many(
    limiter: *mut Limiter,
    requests: *const Request,
    count: usize,
    answers_out: *mut Answer,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { check_many(limiter, requests, count, answers_out, None) }
}

/// Answers a batch at an instant of the caller's; see
/// tollgate_limiter_check_many and tollgate_limiter_check_at.
///
/// Status: BATCH_SIZE.
///
/// # Safety
///
/// As tollgate_limiter_check_many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_check_many_at(
    limiter: *mut Limiter,
    requests: *const Request,
    count: usize,
    now_ns: u64,
    answers_out: *mut Answer,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { check_many(limiter, requests, count, answers_out, Some(Tick::from_nanos(now_ns))) }
}
