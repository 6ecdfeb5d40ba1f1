//! Slots that are held: lanes of the kind "held 3".

use super::agent::lane_status;
use super::check::{VerdictOut, check};
use super::{LaneStatus, Limiter, Status, Verdict};
use crate as tollgate;
use std::ffi::c_void;
use tollgate::{LaneId, Request};

/// Takes a slot of a lane whose limit is "held 3" or the like, for a
/// connection, say, until tollgate_limiter_release gives it back.
///
/// Status: as tollgate_limiter_check, and WRONG_KIND if the lane is another kind
/// of limit.
///
/// # Safety
///
/// As tollgate_limiter_check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_acquire(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    verdict_out: *mut Verdict,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8], verdict_out: VerdictOut| {
        verdict_out.tell(limiter.acquire(Request::new(id, LaneId::new(lane))))
    };
    // SAFETY: as this function's contract has it.
    unsafe { check(limiter, id, id_len, verdict_out, ask) }
}

/// Gives a slot back, once for each that was taken, and tells how the lane
/// then stands.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, STRUCT_SIZE; WRONG_KIND if the
/// lane is another kind of limit; NOT_HELD if the agent holds none. With any of
/// them nothing has changed.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_release(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    status_out: *mut LaneStatus,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.release(Request::new(id, LaneId::new(lane)))?);
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}
