//! Requests: which agent asks, for what, at what cost.

use super::failure::guard_error;
use super::pointers::{agent, borrow, instant, out, plan_id, text};
use super::{Error, Status};
use crate as tollgate;
use std::ffi::{c_char, c_void};
use std::time::Duration;
use tollgate::LaneId;

/// As an instant: the present one. The limiter reads its clock.
pub const TOLLGATE_NOW: u64 = u64::MAX;
/// As a span: no wait helps.
pub const TOLLGATE_NEVER: u64 = u64::MAX;
/// In place of a plan or a lane: no particular one. Each function says what that means.
pub const TOLLGATE_NONE: u32 = u32::MAX;
/// A flag of every function that returns a verdict: a denial counts against the
/// agent's conduct, and a policy that enforces waits denies a violator until its
/// wait is over. See tollgate_conduct.
pub const TOLLGATE_COUNTED: u32 = 1;
/// The longest agent id, in bytes.
pub const TOLLGATE_ID_BYTES_MAX: usize = 256;
/// The most elements of an array that a function reads.
pub const TOLLGATE_BATCH_MAX: usize = 1_048_576;

const _: () = assert!(TOLLGATE_ID_BYTES_MAX == tollgate::bounds::ID_BYTES_MAX);
const _: () = assert!(TOLLGATE_BATCH_MAX == tollgate::bounds::BATCH_MAX);

/// A limit of a request: capacity tokens at once, and count more every period_ns.
#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "the first line says what each is")]
pub struct CallLimit {
    pub capacity: u64,
    pub count: u64,
    pub period_ns: u64,
}

const _: () = assert!(size_of::<CallLimit>() == 24);

/// The question. It never grows: {id, id_len, cost, lane, TOLLGATE_NONE, NULL}.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Request {
    /// The agent that asks: any bytes.
    pub id: *const c_void,
    /// How many bytes: 1 to TOLLGATE_ID_BYTES_MAX.
    pub id_len: usize,
    /// How many tokens it costs, at least 1. All of them are charged, or none.
    pub cost: u64,
    /// The lane: see tollgate_limiter_lane.
    pub lane: u32,
    /// The plan of an agent that is assigned to none, for this request alone: see
    /// tollgate_limiter_plan. TOLLGATE_NONE is the default plan.
    pub plan: u32,
    /// On a lane that is "dynamic": the limit of this call. NULL for the lane's own.
    pub limit: *const CallLimit,
}

const _: () = assert!(size_of::<Request>() == 40);

impl Request {
    /// Whether it has no plan and no limit.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.plan == TOLLGATE_NONE && self.limit.is_null()
    }

    /// The limit that it brings along.
    ///
    /// # Safety
    ///
    /// `limit` is NULL or readable.
    #[inline]
    pub(super) unsafe fn limit(&self) -> Result<Option<tollgate::CallLimit>, Status> {
        // SAFETY: NULL or readable, as the caller guarantees.
        let Some(limit) = (unsafe { self.limit.as_ref() }) else { return Ok(None) };
        let period = Duration::from_nanos(limit.period_ns);
        tollgate::CallLimit::new(limit.capacity, limit.count, period).map(Some).map_err(|_| Status::InvalidLimit)
    }
}

/// Reads a limit such as "10/second burst 20" for many requests.
///
/// Status: INVALID_LIMIT, NOT_UTF8, TEXT_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limit` is NULL or readable for `limit_len` bytes; `error_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says; `limit_out`
/// is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_call_limit_read(
    limit: *const c_char,
    limit_len: usize,
    error_out: *mut Error,
    limit_out: *mut CallLimit,
) -> Status {
    let call = || {
        let limit_out = out(limit_out)?;
        // SAFETY: NULL, or readable for `limit_len` bytes, by this function's contract.
        let limit = tollgate::CallLimit::try_from(unsafe { text(limit, limit_len) }?)?;
        let (capacity, period_ns) = (limit.capacity(), limit.token_ns());
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { limit_out.write(CallLimit { capacity, count: 1, period_ns }) };
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_error(error_out, call) }
}

/// A request as the limiter takes it.
///
/// # Safety
///
/// `request` is NULL or readable, its id is NULL or readable for as many bytes as
/// stated, for as long as the result is used, and its limit is NULL or readable.
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
    // SAFETY: NULL or readable, as the caller guarantees.
    let limit = unsafe { request.limit() }?;
    let (lane, cost, plan) = (LaneId::new(request.lane), request.cost, plan_id(request.plan));
    Ok(tollgate::Request { agent, lane, cost, plan, at: instant(now_ns), is_counted, limit })
}
