//! Requests: which agent asks, for what, at what cost.

use super::Status;
use super::pointers::{agent, borrow, instant, plan_id};
use crate as tollgate;
use std::ffi::c_void;
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

/// The question: may this agent do this? It never grows, so one initializer fills
/// it: {id, id_len, cost, lane, TOLLGATE_NONE}.
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
    /// The plan that applies if the agent is not assigned to one: for what is
    /// known only with the request, such as how it was authenticated. See
    /// tollgate_limiter_plan. TOLLGATE_NONE is the default plan. The limiter
    /// does not remember it.
    pub plan: u32,
}

const _: () = assert!(size_of::<Request>() == 32);

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
    Ok(tollgate::Request { agent, lane, cost, plan, at: instant(now_ns), is_counted, limit: None })
}
