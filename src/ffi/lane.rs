//! Lanes of an agent: look, give back, hold, start over.

use super::guard::guard;
use super::pointers::{Tagged, agent_at, borrow, has_flag, out, tagged_out, tell};
use super::request::asked;
use super::{Limiter, Request, Status, TOLLGATE_COUNTED, TOLLGATE_NEVER, TOLLGATE_NONE, Verdict};
use crate as tollgate;
use crate::clock::nanos_saturating;
use std::ffi::c_void;
use tollgate::LaneId;

/// The state of a lane of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LaneState {
    /// Set it to sizeof(tollgate_lane_state) before the call.
    pub struct_size: u32,
    /// 1 if the agent is exempt, else 0.
    pub exempt: u32,
    /// Whole tokens that could be charged now. UINT64_MAX if the agent is exempt.
    pub remaining: u64,
    /// What the lane holds when it is full. 0 if it denies everything,
    /// UINT64_MAX if the agent is exempt.
    pub capacity: u64,
    /// How long until there is one more whole token. TOLLGATE_NEVER if the lane
    /// is full or denies everything.
    pub next_in_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
}

const _: () = assert!(size_of::<LaneState>() == 40);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for LaneState {
    const SIZE_MIN: u32 = 40;
}

impl LaneState {
    fn new(struct_size: u32, state: &tollgate::LaneState) -> Self {
        Self {
            struct_size,
            exempt: state.is_exempt().into(),
            remaining: state.remaining(),
            capacity: state.capacity(),
            next_in_ns: state.next_in().map_or(TOLLGATE_NEVER, nanos_saturating),
            full_in_ns: nanos_saturating(state.full_in()),
        }
    }
}

/// A whole call that ends in the state of a lane, which the caller may not want.
///
/// # Safety
///
/// As [`tollgate_peek`].
unsafe fn lane_state(
    limiter: *const Limiter,
    request: *const Request,
    now_ns: u64,
    state_out: *mut LaneState,
    is_wanted: bool,
    act: impl FnOnce(&tollgate::Limiter, tollgate::Request<'_>) -> Result<tollgate::LaneState, tollgate::Error>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let state_out = is_wanted.then(|| unsafe { tagged_out(state_out) }).transpose()?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable with its id, as the caller guarantees.
        let state = act(&limiter.0, unsafe { asked(request, now_ns, false) }?)?;
        if let Some((state_out, struct_size)) = state_out {
            // SAFETY: not NULL and large enough, so writable as the caller guarantees.
            unsafe { state_out.write(LaneState::new(struct_size, &state)) };
        }
        Ok(())
    })
}

/// Looks at a lane of an agent. Charges nothing, and gives a new agent no record.
/// The cost of the request does not matter.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `request` is NULL or
/// readable, and its id is NULL or readable for its id_len bytes; `state_out`
/// is NULL, or readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_peek(
    limiter: *const Limiter,
    request: *const Request,
    now_ns: u64,
    state_out: *mut LaneState,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { lane_state(limiter, request, now_ns, state_out, true, |limiter, request| limiter.peek(request)) }
}

/// Gives the cost of a request back, but never fills a lane beyond its capacity.
/// Use the plan that the request was charged under: a token is worth what it
/// costs under that plan. The instant is now_ns, or the clock's time if that is
/// later. state_out may be NULL.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
/// COST_ABOVE_CAPACITY, STRUCT_SIZE; NOT_HELD in a held lane, as
/// tollgate_release; WRONG_KIND for the lane "total".
///
/// # Safety
///
/// As tollgate_peek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_refund(
    limiter: *mut Limiter,
    request: *const Request,
    now_ns: u64,
    state_out: *mut LaneState,
) -> Status {
    let is_wanted = !state_out.is_null();
    // SAFETY: as this function's contract has it.
    unsafe { lane_state(limiter, request, now_ns, state_out, is_wanted, |limiter, request| limiter.refund(request)) }
}

/// Takes as many slots as the request costs, in a lane with a limit such as
/// "held 3": for connections and jobs. The slots stay taken until
/// tollgate_release, and the agent keeps its record as long. A denial has no
/// wait, since only a release helps. flags is 0 or TOLLGATE_COUNTED.
///
/// Status: as tollgate_check, and WRONG_KIND unless the lane is a held one; of a
/// shared limiter also HOLDS_FULL.
///
/// # Safety
///
/// As tollgate_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_hold(
    limiter: *mut Limiter,
    request: *const Request,
    now_ns: u64,
    flags: u32,
    verdict_out: *mut Verdict,
) -> Status {
    guard(|| {
        let verdict_out = out(verdict_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable with its id, by this function's contract.
        let request = unsafe { asked(request, now_ns, has_flag(flags, TOLLGATE_COUNTED)?) }?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { Verdict::put(verdict_out, limiter.0.hold_until_released(request)) }
    })
}

/// Gives as many slots back as the request costs. state_out may be NULL. An exempt
/// agent takes no slots, so its release never returns NOT_HELD.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
/// COST_ABOVE_CAPACITY, STRUCT_SIZE; WRONG_KIND unless the lane is a held one;
/// NOT_HELD if the agent holds fewer slots.
///
/// # Safety
///
/// As tollgate_peek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_release(
    limiter: *mut Limiter,
    request: *const Request,
    now_ns: u64,
    state_out: *mut LaneState,
) -> Status {
    let is_wanted = !state_out.is_null();
    // SAFETY: as this function's contract has it.
    unsafe { lane_state(limiter, request, now_ns, state_out, is_wanted, |limiter, request| limiter.release(request)) }
}

/// Fills a lane of the agent; TOLLGATE_NONE fills all of them, one after the
/// other. Open reservations then have nothing left to give back. Held slots stay
/// held.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_reset(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    now_ns: u64,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let agent = unsafe { agent_at(id, id_len, now_ns) }?;
        match lane {
            TOLLGATE_NONE => limiter.reset(agent)?,
            lane => limiter.reset_lane(agent, LaneId::new(lane))?,
        }
        Ok(())
    })
}

/// Forgets the agent: frees its record and closes its reservations, so that its
/// next request is like its first. Its assignment stays. forgotten_out gets
/// whether the agent had a record.
///
/// An agent that holds a slot keeps its record, with all other lanes filled; so
/// may one that is checked at the same moment.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `forgotten_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_forget(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    forgotten_out: *mut bool,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let forget = |limiter: &Limiter| Ok(limiter.0.forget(unsafe { agent_at(id, id_len, now_ns) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, forgotten_out, forget) }
}
