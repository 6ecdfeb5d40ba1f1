//! Conduct: checks that count violations, and what follows from those.

use super::check::{Words, remaining};
use super::guard::guard;
use super::pointers::{Tagged, agent, borrow, out, plan_id, tagged_out, tell};
use super::{Decision, Limiter, Status, TOLLGATE_BATCH_MAX, TOLLGATE_NEVER};
use crate as tollgate;
use crate::clock::nanos_saturating;
use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of};
use tollgate::{Agent, LaneId, Request, Tick};

/// The answer to a check that counts violations. Its first members are those
/// of a tollgate_verdict; tollgate_admission_remaining tells what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Admission {
    /// Set it to sizeof(tollgate_admission) before the call; it stays as it is.
    pub struct_size: u32,
    /// Whether the request may go on.
    pub decision: Decision,
    /// What the lane holds when it is full, in tokens.
    pub capacity: u64,
    /// What a denied caller is told to wait: the longer of lane_retry_after_ns
    /// and wait_ns; TOLLGATE_NEVER if no wait helps, 0 if it was allowed.
    pub retry_after_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How long a token takes to come back.
    pub token_ns: u64,
    /// The wait of the lane by itself: retry_after_ns of a tollgate_verdict.
    pub lane_retry_after_ns: u64,
    /// Of a denial: what the agent has to wait for its conduct. The step; or
    /// until the block is over, if the policy enforces waits.
    pub wait_ns: u64,
    /// Of a denial: the wait that the curve of the policy names; 0 without a curve.
    pub step_ns: u64,
    /// Of a denial that is a violation: how many in a row this makes, up to 15;
    /// else 0.
    pub consecutive: u32,
    /// 1 if with this denial the agent's conduct became sustained abuse, else
    /// 0. Told once, and again only after a window without a violation.
    pub sustained_abuse: u32,
}

const _: () = assert!(size_of::<Admission>() == 72);
const _: () = assert!(offset_of!(Admission, capacity) == 8 && offset_of!(Admission, full_in_ns) == 24);
const _: () = assert!(offset_of!(Admission, token_ns) == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Admission {
    const SIZE_MIN: u32 = 72;
}

impl Admission {
    fn new(struct_size: u32, admission: &crate::engine::Admission) -> Self {
        let crate::engine::Admission { of_lane, violation, wait } = *admission;
        let verdict = admission.verdict();
        let wait_ns = nanos_saturating(wait);
        Self {
            struct_size,
            decision: verdict.decision().into(),
            capacity: verdict.capacity(),
            retry_after_ns: match verdict.is_allowed() {
                true => 0,
                false => verdict.retry_after().map_or(TOLLGATE_NEVER, nanos_saturating),
            },
            full_in_ns: verdict.full_in_ns,
            token_ns: super::check::token_ns(&verdict),
            lane_retry_after_ns: of_lane.retry_after_ns,
            wait_ns,
            step_ns: violation.map_or(wait_ns, |violation| nanos_saturating(violation.step())),
            consecutive: violation.map_or(0, |violation| violation.consecutive()),
            sustained_abuse: violation.is_some_and(|violation| violation.sustained_abuse()).into(),
        }
    }
}

/// A violation as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Violation {
    /// Set it to sizeof(tollgate_violation) before the call; it stays as it is.
    pub struct_size: u32,
    /// How many violations in a row this makes, up to 15.
    pub consecutive: u32,
    /// What the agent is told to wait: the step; or until the block is over,
    /// if the policy enforces waits.
    pub wait_ns: u64,
    /// The wait that the curve of the policy names.
    pub step_ns: u64,
    /// 1 if with it the agent's conduct became sustained abuse, else 0.
    pub sustained_abuse: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Violation>() == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Violation {
    const SIZE_MIN: u32 = 32;
}

/// An agent's conduct as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Conduct {
    /// Set it to sizeof(tollgate_conduct) before the call; it stays as it is.
    pub struct_size: u32,
    /// Violations in the present window of the abuse threshold, up to 63.
    pub violations: u32,
    /// Violations without a quiet period between them, up to 15.
    pub consecutive: u32,
    /// 0.
    pub reserved: u32,
    /// When the present window began; TOLLGATE_NEVER if there is none.
    pub window_start_ns: u64,
    /// When the last violation was, if it still matters; else TOLLGATE_NEVER.
    pub last_violation_ns: u64,
    /// What is left of the wait that the last violation brought.
    pub wait_ns: u64,
}

const _: () = assert!(size_of::<Conduct>() == 40);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Conduct {
    const SIZE_MIN: u32 = 40;
}

/// An agent id of a list. Being part of an array, it never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Id {
    /// Any bytes.
    pub id: *const c_void,
    /// How many bytes, 1 to TOLLGATE_ID_BYTES_MAX.
    pub id_len: usize,
}

const _: () = assert!(size_of::<Id>() == 16);

/// Whole tokens left in the lane after this request; 0 for NULL, and for an
/// admission that is all zero.
///
/// # Safety
///
/// `admission` is NULL or points to an admission.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_admission_remaining(admission: *const Admission) -> u64 {
    // SAFETY: NULL or readable, by this function's contract; an admission begins with the words of a verdict.
    unsafe { remaining(admission.cast::<Words>()) }
}

/// A whole call that puts a question about an agent and fills in a tagged struct.
///
/// # Safety
///
/// As [`tollgate_limiter_admit`].
#[inline(always)]
unsafe fn ask<T: Tagged, A>(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    place: *mut T,
    ask: impl FnOnce(&tollgate::Limiter, &[u8]) -> Result<A, Status>,
    told: impl FnOnce(u32, &A) -> T,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (place, struct_size) = unsafe { tagged_out(place) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        let answer = ask(&limiter.0, unsafe { agent(id, id_len) }?)?;
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { place.write(told(struct_size, &answer)) };
        Ok(())
    })
}

/// May the agent spend `cost` tokens of a lane now? As tollgate_limiter_check,
/// and a denial may be a violation: see tollgate_conduct_rules.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, ZERO_COST, COST_ABOVE_CAPACITY,
/// FULL, STRUCT_SIZE. With any of them nothing was charged or recorded.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `admission_out` is NULL, or readable and writable for
/// as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_admit(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    cost: u64,
    admission_out: *mut Admission,
) -> Status {
    let admit =
        |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.admission(Request::new(id, LaneId::new(lane)).cost(cost))?);
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, admission_out, admit, Admission::new) }
}

/// As tollgate_limiter_admit, at an instant of the caller's; see
/// tollgate_limiter_check_at.
///
/// Status: as tollgate_limiter_admit.
///
/// # Safety
///
/// As tollgate_limiter_admit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_admit_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    cost: u64,
    now_ns: u64,
    admission_out: *mut Admission,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let admit = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.admission(Request::new(id, LaneId::new(lane)).cost(cost).at(now))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, admission_out, admit, Admission::new) }
}

/// As tollgate_limiter_admit, under this plan if the agent has no assignment
/// of its own; see tollgate_limiter_check_as.
///
/// Status: as tollgate_limiter_admit, and UNKNOWN_PLAN.
///
/// # Safety
///
/// As tollgate_limiter_admit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_admit_as(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    cost: u64,
    admission_out: *mut Admission,
) -> Status {
    let admit = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.admission(Request::new(id, LaneId::new(lane)).cost(cost).plan(plan_id(plan)?))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, admission_out, admit, Admission::new) }
}

/// As tollgate_limiter_admit_as, at an instant of the caller's.
///
/// Status: as tollgate_limiter_admit_as.
///
/// # Safety
///
/// As tollgate_limiter_admit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_admit_as_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    cost: u64,
    now_ns: u64,
    admission_out: *mut Admission,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let admit = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.admission(Request::new(id, LaneId::new(lane)).cost(cost).plan(plan_id(plan)?).at(now))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, admission_out, admit, Admission::new) }
}

fn violation(struct_size: u32, violation: &tollgate::Violation) -> Violation {
    Violation {
        struct_size,
        consecutive: violation.consecutive(),
        wait_ns: nanos_saturating(violation.wait()),
        step_ns: nanos_saturating(violation.step()),
        sustained_abuse: violation.sustained_abuse().into(),
        reserved: 0,
    }
}

/// Records a violation that the caller has found, and says what follows.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE; FULL if nothing is known of the
/// agent and every record near its home is in use.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `violation_out` is NULL, or readable and writable for
/// as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_record_violation(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    violation_out: *mut Violation,
) -> Status {
    let record = |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.record_violation(id)?);
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, violation_out, record, violation) }
}

/// Records a violation at an instant of the caller's.
///
/// Status: as tollgate_limiter_record_violation.
///
/// # Safety
///
/// As tollgate_limiter_record_violation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_record_violation_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    violation_out: *mut Violation,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let record = |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.record_violation(Agent::new(id).at(now))?);
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, violation_out, record, violation) }
}

fn conduct(struct_size: u32, conduct: &tollgate::Conduct) -> Conduct {
    Conduct {
        struct_size,
        violations: conduct.violations(),
        consecutive: conduct.consecutive(),
        reserved: 0,
        window_start_ns: conduct.window_start().map_or(TOLLGATE_NEVER, Tick::as_nanos),
        last_violation_ns: conduct.last_violation().map_or(TOLLGATE_NEVER, Tick::as_nanos),
        wait_ns: nanos_saturating(conduct.wait()),
    }
}

/// The agent's conduct as it stands. Looking changes nothing.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `conduct_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_violations(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    conduct_out: *mut Conduct,
) -> Status {
    let look = |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.violations(id)?);
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, conduct_out, look, conduct) }
}

/// The agent's conduct as it stands at an instant of the caller's.
///
/// Status: as tollgate_limiter_violations.
///
/// # Safety
///
/// As tollgate_limiter_violations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_violations_at(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    conduct_out: *mut Conduct,
) -> Status {
    let look =
        |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.violations(Agent::new(id).at(Tick::from_nanos(now_ns)))?);
    // SAFETY: as this function's contract has it.
    unsafe { ask(limiter, id, id_len, conduct_out, look, conduct) }
}

/// Whether the agent has violated a limit and has not been quiet since: a
/// scheduler gives it no new work. An exempt agent never is.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `limited_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_rate_limited(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    limited_out: *mut bool,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let limited = |limiter: &Limiter| Ok(limiter.0.rate_limited(unsafe { agent(id, id_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, limited_out, limited) }
}

/// As tollgate_limiter_rate_limited, at an instant of the caller's.
///
/// Status: as tollgate_limiter_rate_limited.
///
/// # Safety
///
/// As tollgate_limiter_rate_limited.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_rate_limited_at(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    limited_out: *mut bool,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let limited = |limiter: &Limiter| Ok(limiter.0.rate_limited(Agent::new(unsafe { agent(id, id_len) }?).at(now))?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, limited_out, limited) }
}

/// Which of the agents may be given new work: all that are not rate limited,
/// at one reading of the clock. There is an answer for each id, in the same
/// place; a bad id may not. Ids and answers must not overlap, and there are at
/// most TOLLGATE_BATCH_MAX of them.
///
/// Status: BATCH_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `ids` is NULL or readable
/// for `count` ids, each NULL or readable for its id_len bytes;
/// `assignable_out` is NULL or writable for `count` answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_assignable(
    limiter: *const Limiter,
    ids: *const Id,
    count: usize,
    assignable_out: *mut bool,
) -> Status {
    guard(|| {
        let answers_out = out(assignable_out)?.as_ptr().cast::<MaybeUninit<bool>>();
        if ids.is_null() {
            return Err(Status::NullPointer);
        }
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        if count > TOLLGATE_BATCH_MAX {
            return Err(Status::BatchSize);
        }
        // SAFETY: not NULL, so readable for `count` ids by this function's contract.
        let ids = unsafe { std::slice::from_raw_parts(ids, count) };
        // SAFETY: not NULL, so writable for `count` answers by this function's contract, and no part of the ids.
        let answers = unsafe { std::slice::from_raw_parts_mut(answers_out, count) };
        let now = limiter.now();
        for (id, answer) in ids.iter().zip(answers) {
            // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
            let id = unsafe { agent(id.id, id.id_len) };
            answer.write(id.is_ok_and(|id| limiter.rate_limited(Agent::new(id).at(now)) == Ok(false)));
        }
        Ok(())
    })
}

/// Forgives the agent all violations, and tells whether there were any that
/// still mattered.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `known_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reset_violations(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    known_out: *mut bool,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let forgive = |limiter: &Limiter| Ok(limiter.0.reset_violations(unsafe { agent(id, id_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, known_out, forgive) }
}

/// The wait of a denial as a message hub tells it: milliseconds, rounded up to
/// whole seconds, at least one; 60000 for TOLLGATE_NEVER.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_hub_retry_after_ms(retry_after_ns: u64) -> u64 {
    let wait = (retry_after_ns != TOLLGATE_NEVER).then(|| std::time::Duration::from_nanos(retry_after_ns));
    tollgate::clock::wait_ms(wait, 1_000, 60_000)
}
