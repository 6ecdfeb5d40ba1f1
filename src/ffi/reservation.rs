//! Reservations: an estimate is charged, and settled when the cost is known.

use super::check::{VerdictOut, check};
use super::guard::guard;
use super::pointers::{Tagged, borrow, out, tagged_out};
use super::{Limiter, Status, Verdict};
use crate as tollgate;
use std::cell::Cell;
use std::ffi::c_void;
use std::time::Duration;
use tollgate::{LaneId, Request, ReservationId, Settle, Tick};

/// The most reservations that a limiter may be made for.
pub const TOLLGATE_RESERVATIONS_MAX: u64 = 16_777_216;
/// How many may be open at once when nothing is said.
pub const TOLLGATE_RESERVATIONS_DEFAULT: u64 = 16_384;

/// A commit may use at most so many times the lane's capacity beyond what was
/// reserved.
pub const TOLLGATE_OVERSPEND_MAX: u64 = 100;

const _: () = assert!(TOLLGATE_OVERSPEND_MAX == tollgate::bounds::OVERSPEND_MAX);
const _: () = assert!(TOLLGATE_RESERVATIONS_MAX == tollgate::bounds::RESERVATIONS_MAX as u64);
const _: () = assert!(cfg!(loom) || TOLLGATE_RESERVATIONS_DEFAULT == tollgate::bounds::RESERVATIONS_DEFAULT as u64);

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settlement {
    /// Set it to sizeof(tollgate_settlement) before the call; it stays as it is.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// What was reserved and is not needed: given back, to the window that it
    /// was charged in if that is not over.
    pub unused: u64,
    /// What was used beyond what was reserved: charged to the present window,
    /// into debt if need be.
    pub overspent: u64,
    /// What is still reserved; 0 once the reservation is settled.
    pub left: u64,
}

const _: () = assert!(size_of::<Settlement>() == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Settlement {
    const SIZE_MIN: u32 = 32;
}

/// A whole call that makes a reservation.
///
/// # Safety
///
/// As [`tollgate_limiter_reserve`].
unsafe fn reserve(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    verdict_out: *mut Verdict,
    reservation_out: *mut u64,
    ask: impl FnOnce(&tollgate::Limiter, &[u8]) -> Result<tollgate::Reserved, tollgate::Error>,
) -> Status {
    // Checked before anything is charged, written after everything went well.
    let reservation_out = match out(reservation_out) {
        Ok(place) => place,
        Err(status) => return status,
    };
    let number = Cell::new(0);
    let ask = |limiter: &tollgate::Limiter, id: &[u8], verdict_out: VerdictOut| {
        let reserved = ask(limiter, id)?;
        number.set(reserved.id().map_or(0, ReservationId::number));
        verdict_out.tell(Ok(reserved.verdict()))
    };
    // SAFETY: as the caller guarantees.
    let status = unsafe { check(limiter, id, id_len, verdict_out, ask) };
    if status == Status::Ok {
        // SAFETY: not NULL, so writable as the caller guarantees.
        unsafe { reservation_out.write(number.get()) };
    }
    status
}

/// Charges an estimate now, to be settled when the cost is known: by
/// tollgate_limiter_commit, or by tollgate_limiter_cancel if nothing came of
/// it. For LLM calls and whatever else costs what it costs only at the end.
///
/// If neither happens within `ttl_ns`, the estimate stays charged: to
/// disconnect is not free. `reservation_out` gets the number of the
/// reservation, to be kept until it is settled; it means nothing if the
/// decision is TOLLGATE_DECISION_DENY, and then nothing was charged. For lanes
/// that are buckets, windows or budgets.
///
/// A reservation belongs to the charge that it makes. A reset forgives that
/// charge, and leaves nothing to give back; a change of limits leaves it its
/// worth; tollgate_limiter_forget closes it.
///
/// Status: as tollgate_limiter_check; WRONG_KIND for a lane that is held or an
/// exact window; TOO_MANY_RESERVATIONS if the agent has as many open as one
/// agent may; RESERVATIONS_FULL if as many are open as the limiter was made
/// for. With any of them nothing was charged.
///
/// # Safety
///
/// As tollgate_limiter_check, and `reservation_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reserve(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    estimate: u64,
    ttl_ns: u64,
    verdict_out: *mut Verdict,
    reservation_out: *mut u64,
) -> Status {
    let (lane, ttl) = (LaneId::new(lane), Duration::from_nanos(ttl_ns));
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| limiter.reserve(Request::new(id, lane).cost(estimate), ttl);
    // SAFETY: as this function's contract has it.
    unsafe { reserve(limiter, id, id_len, verdict_out, reservation_out, ask) }
}

/// As tollgate_limiter_reserve, at an instant of the caller's; see
/// tollgate_limiter_check_at.
///
/// Status: as tollgate_limiter_reserve.
///
/// # Safety
///
/// As tollgate_limiter_reserve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reserve_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    estimate: u64,
    ttl_ns: u64,
    now_ns: u64,
    verdict_out: *mut Verdict,
    reservation_out: *mut u64,
) -> Status {
    let (lane, ttl, now) = (LaneId::new(lane), Duration::from_nanos(ttl_ns), Tick::from_nanos(now_ns));
    let ask =
        |limiter: &tollgate::Limiter, id: &[u8]| limiter.reserve(Request::new(id, lane).cost(estimate).at(now), ttl);
    // SAFETY: as this function's contract has it.
    unsafe { reserve(limiter, id, id_len, verdict_out, reservation_out, ask) }
}

/// A whole call that settles a reservation, or a part of it.
///
/// # Safety
///
/// As [`tollgate_limiter_commit`].
unsafe fn settle(
    limiter: *const Limiter,
    reservation: u64,
    settlement_out: *mut Settlement,
    settle: impl FnOnce(&tollgate::Limiter, ReservationId) -> Result<tollgate::Settlement, tollgate::Error>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (settlement_out, struct_size) = unsafe { tagged_out(settlement_out) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        let settled = settle(&limiter.0, ReservationId::from_number(reservation))?;
        let tollgate::Settlement { unused, overspent, left } = settled;
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { settlement_out.write(Settlement { struct_size, reserved: 0, unused, overspent, left }) };
        Ok(())
    })
}

/// Settles a reservation: `used` is what it came to, beyond what
/// tollgate_limiter_commit_part has told already. The rest is given back; what
/// is more than was reserved is charged, into debt if need be, and told.
///
/// Of a bucket, what time has paid back since the reservation is not given back
/// again: others may have spent it. A number works until it is settled, and
/// never again.
///
/// Status: UNKNOWN_RESERVATION if it was settled already, its time has passed,
/// or the number is made up; USED_TOO_LARGE if more than a hundred times the
/// lane's capacity would be overspent; FULL if something is overspent
/// and there is no record to charge it to: commit again later; STRUCT_SIZE.
/// With any of them nothing has changed, and a reservation that is open stays open.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `settlement_out` is NULL,
/// or readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_commit(
    limiter: *mut Limiter,
    reservation: u64,
    used: u64,
    settlement_out: *mut Settlement,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { settle(limiter, reservation, settlement_out, |limiter, id| limiter.settle(id, Settle::used(used))) }
}

/// As tollgate_limiter_commit, at an instant of the caller's, or at the clock's
/// time if that is later.
///
/// Status: as tollgate_limiter_commit.
///
/// # Safety
///
/// As tollgate_limiter_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_commit_at(
    limiter: *mut Limiter,
    reservation: u64,
    used: u64,
    now_ns: u64,
    settlement_out: *mut Settlement,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: as this function's contract has it.
    unsafe {
        settle(limiter, reservation, settlement_out, |limiter, id| limiter.settle(id, Settle::used(used).at(now)))
    }
}

/// Tells that so much of a reservation was used, and keeps the rest reserved:
/// for answers that stream. What is more than was reserved is charged at once.
///
/// Status: as tollgate_limiter_commit.
///
/// # Safety
///
/// As tollgate_limiter_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_commit_part(
    limiter: *mut Limiter,
    reservation: u64,
    used: u64,
    settlement_out: *mut Settlement,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { settle(limiter, reservation, settlement_out, |limiter, id| limiter.settle(id, Settle::used_so_far(used))) }
}

/// As tollgate_limiter_commit_part, at an instant of the caller's.
///
/// Status: as tollgate_limiter_commit.
///
/// # Safety
///
/// As tollgate_limiter_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_commit_part_at(
    limiter: *mut Limiter,
    reservation: u64,
    used: u64,
    now_ns: u64,
    settlement_out: *mut Settlement,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: as this function's contract has it.
    unsafe {
        settle(limiter, reservation, settlement_out, |limiter, id| {
            limiter.settle(id, Settle::used_so_far(used).at(now))
        })
    }
}

/// Gives a reservation back, but for what tollgate_limiter_commit_part has told
/// already.
///
/// Status: as tollgate_limiter_commit.
///
/// # Safety
///
/// As tollgate_limiter_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_cancel(
    limiter: *mut Limiter,
    reservation: u64,
    settlement_out: *mut Settlement,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { settle(limiter, reservation, settlement_out, |limiter, id| limiter.settle(id, Settle::cancelled())) }
}

/// As tollgate_limiter_cancel, at an instant of the caller's.
///
/// Status: as tollgate_limiter_commit.
///
/// # Safety
///
/// As tollgate_limiter_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_cancel_at(
    limiter: *mut Limiter,
    reservation: u64,
    now_ns: u64,
    settlement_out: *mut Settlement,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: as this function's contract has it.
    unsafe {
        settle(limiter, reservation, settlement_out, |limiter, id| limiter.settle(id, Settle::cancelled().at(now)))
    }
}

/// A whole call that gives a reservation more time.
///
/// # Safety
///
/// As [`tollgate_limiter_extend`].
unsafe fn extend(
    limiter: *const Limiter,
    extend: impl FnOnce(&tollgate::Limiter) -> Result<(), tollgate::Error>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        Ok(extend(&unsafe { borrow(limiter) }?.0)?)
    })
}

/// Gives a reservation `ttl_ns` from now, if that is later than it had.
///
/// Status: UNKNOWN_RESERVATION; see tollgate_limiter_commit.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_extend(limiter: *mut Limiter, reservation: u64, ttl_ns: u64) -> Status {
    let (id, ttl) = (ReservationId::from_number(reservation), Duration::from_nanos(ttl_ns));
    // SAFETY: as this function's contract has it.
    unsafe { extend(limiter, |limiter| limiter.extend(id, ttl)) }
}

/// As tollgate_limiter_extend, from an instant of the caller's.
///
/// Status: UNKNOWN_RESERVATION.
///
/// # Safety
///
/// As tollgate_limiter_extend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_extend_at(
    limiter: *mut Limiter,
    reservation: u64,
    ttl_ns: u64,
    now_ns: u64,
) -> Status {
    let (id, ttl) = (ReservationId::from_number(reservation), Duration::from_nanos(ttl_ns));
    // SAFETY: as this function's contract has it.
    unsafe { extend(limiter, |limiter| limiter.extend_at(id, ttl, Tick::from_nanos(now_ns))) }
}
