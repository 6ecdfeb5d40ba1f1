//! Reservations: charge an estimate now, settle the real cost later.
//!
//! For LLM calls, downloads, and whatever else has a cost that is known only at
//! the end.

use super::guard::guard;
use super::pointers::{Tagged, borrow, has_flag, instant, out, tagged_out};
use super::request::asked;
use super::{Limiter, Request, Status, TOLLGATE_COUNTED, Verdict};
use crate as tollgate;
use std::time::Duration;
use tollgate::{ReservationId, Settle};

/// The most reservations that a limiter can be built for.
pub const TOLLGATE_RESERVATIONS_MAX: u64 = 16_777_216;
/// How many reservations a limiter is built for by default.
pub const TOLLGATE_RESERVATIONS_DEFAULT: u64 = 16_384;
/// A settlement may overspend by this many times the lane's capacity.
pub const TOLLGATE_OVERSPEND_MAX: u64 = 100;
/// A flag of tollgate_settle: this much is used so far, and the reservation stays open.
pub const TOLLGATE_SETTLE_SO_FAR: u32 = 2;

const _: () = assert!(TOLLGATE_OVERSPEND_MAX == tollgate::bounds::OVERSPEND_MAX);
const _: () = assert!(TOLLGATE_RESERVATIONS_MAX == tollgate::bounds::RESERVATIONS_MAX as u64);
const _: () = assert!(cfg!(loom) || TOLLGATE_RESERVATIONS_DEFAULT == tollgate::bounds::RESERVATIONS_DEFAULT as u64);

/// What a settlement came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settlement {
    /// Set it to sizeof(tollgate_settlement) before the call.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// What was reserved and not used. It was given back, to the window it was
    /// charged in, if that is not over.
    pub unused: u64,
    /// What was used beyond the estimate. It was charged to the present window,
    /// into debt if need be.
    pub overspent: u64,
    /// What is still reserved. 0 once the reservation is closed.
    pub left: u64,
}

const _: () = assert!(size_of::<Settlement>() == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Settlement {
    const SIZE_MIN: u32 = 32;
}

/// Charges an estimate, the cost of the request, until tollgate_settle names
/// the real cost. Without a settlement within ttl_ns the estimate stays
/// charged: disconnecting is not free. flags is 0 or TOLLGATE_COUNTED.
///
/// reservation_out gets the number to settle with, or 0 if the request was
/// denied. For buckets, windows and budgets; a policy's total is reserved with
/// the lane.
///
/// A reservation belongs to its charge. tollgate_reset forgives the charge, and
/// leaves nothing to give back; a change of limits leaves it its worth;
/// tollgate_forget closes the reservation.
///
/// Status: as tollgate_check; WRONG_KIND for a held lane and an exact window;
/// TOO_MANY_RESERVATIONS, RESERVATIONS_FULL. Each of them charges nothing.
///
/// # Safety
///
/// As tollgate_check, and `reservation_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_reserve(
    limiter: *mut Limiter,
    request: *const Request,
    ttl_ns: u64,
    now_ns: u64,
    flags: u32,
    verdict_out: *mut Verdict,
    reservation_out: *mut u64,
) -> Status {
    guard(|| {
        let (verdict_out, reservation_out) = (out(verdict_out)?, out(reservation_out)?);
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable with its id, by this function's contract.
        let request = unsafe { asked(request, now_ns, has_flag(flags, TOLLGATE_COUNTED)?) }?;
        let reserved = limiter.0.reserve(request, Duration::from_nanos(ttl_ns))?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { reservation_out.write(reserved.id().map_or(0, ReservationId::number)) };
        // SAFETY: as above.
        unsafe { Verdict::put(verdict_out, Ok(reserved.verdict())) }
    })
}

/// Settles a reservation: used is the real cost, beyond what was settled so
/// far. The rest is given back; what was used beyond the estimate is charged,
/// into debt if need be. To cancel, settle with 0.
///
/// With TOLLGATE_SETTLE_SO_FAR in flags the rest stays reserved, for answers
/// that stream. Without it the number never works again. The instant is now_ns,
/// or the clock's time if that is later.
///
/// A bucket gets back only what time has not paid back already: others may have
/// spent that.
///
/// Status: UNKNOWN_RESERVATION, USED_TOO_LARGE, INVALID_OPTION for other flags,
/// STRUCT_SIZE; FULL if something is overspent and there is no record to charge
/// it to: settle again later. Each of them leaves the reservation as it was.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `settlement_out` is NULL,
/// or readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_settle(
    limiter: *mut Limiter,
    reservation: u64,
    used: u64,
    now_ns: u64,
    flags: u32,
    settlement_out: *mut Settlement,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (settlement_out, struct_size) = unsafe { tagged_out(settlement_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        let settle = match has_flag(flags, TOLLGATE_SETTLE_SO_FAR)? {
            true => Settle::used_so_far(used),
            false => Settle::used(used),
        };
        let settle = instant(now_ns).map_or(settle, |now| settle.at(now));
        let settled = limiter.0.settle(ReservationId::from_number(reservation), settle)?;
        let tollgate::Settlement { unused, overspent, left } = settled;
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { settlement_out.write(Settlement { struct_size, reserved: 0, unused, overspent, left }) };
        Ok(())
    })
}

/// Gives a reservation ttl_ns from now_ns on, if that is later than it had.
///
/// Status: UNKNOWN_RESERVATION.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_extend(limiter: *mut Limiter, reservation: u64, ttl_ns: u64, now_ns: u64) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        let now = instant(now_ns).unwrap_or_else(|| limiter.now());
        Ok(limiter.extend_at(ReservationId::from_number(reservation), Duration::from_nanos(ttl_ns), now)?)
    })
}
