//! Reservations: charge an estimate now, settle the real cost later.
//!
//! For LLM calls, downloads and other work whose cost is known only at the end.

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
/// The most that a settlement may overspend, in multiples of the lane's capacity.
pub const TOLLGATE_OVERSPEND_MAX: u64 = 100;
/// A flag of tollgate_settle: this much was used so far, and the reservation stays open.
pub const TOLLGATE_SETTLE_SO_FAR: u32 = 2;

const _: () = assert!(TOLLGATE_OVERSPEND_MAX == tollgate::bounds::OVERSPEND_MAX);
const _: () = assert!(TOLLGATE_RESERVATIONS_MAX == tollgate::bounds::RESERVATIONS_MAX as u64);
const _: () = assert!(cfg!(loom) || TOLLGATE_RESERVATIONS_DEFAULT == tollgate::bounds::RESERVATIONS_DEFAULT as u64);

/// The result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Settlement {
    /// Set it to sizeof(tollgate_settlement) before the call.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// What was reserved and not used. It went back to the window it was charged
    /// in, if that is not over.
    pub unused: u64,
    /// What was used beyond the estimate. It was charged to the present window,
    /// into debt if necessary.
    pub overspent: u64,
    /// What is still reserved. 0 once the reservation is closed.
    pub left: u64,
}

const _: () = assert!(size_of::<Settlement>() == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Settlement {
    const SIZE_MIN: u32 = 32;
}

/// Charges the cost of the request as an estimate, until tollgate_settle reports
/// the real cost. Without a settlement within ttl_ns the whole estimate stays
/// charged. flags is 0 or TOLLGATE_COUNTED.
///
/// reservation_out gets the number to settle with, or 0 if the request was denied.
/// Works with buckets, windows and budgets. If the policy has a lane "total", that
/// is reserved as well.
///
/// After tollgate_reset a reservation has nothing left to give back; after a
/// change of limits it is worth as much as before; tollgate_forget closes it.
///
/// Status: as tollgate_check; WRONG_KIND for a held lane and an exact window;
/// TOO_MANY_RESERVATIONS, RESERVATIONS_FULL.
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

/// Settles a reservation. used is the real cost, without what earlier settlements
/// of it reported. The rest is given back; what was used beyond the estimate is
/// charged, into debt if necessary. To cancel, settle with 0.
///
/// flags is 0, which closes the reservation, or TOLLGATE_SETTLE_SO_FAR, which
/// leaves the rest reserved: for answers that stream. The instant is now_ns, or
/// the clock's time if that is later.
///
/// A bucket gets back only what it has not refilled since.
///
/// Status: UNKNOWN_RESERVATION, USED_TOO_LARGE, INVALID_OPTION for other flags,
/// STRUCT_SIZE; FULL if something was overspent and no record is free to charge
/// it to: settle again later. After a failure the reservation is as it was.
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

/// Lets a reservation live until ttl_ns after now_ns, unless it lives longer already.
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
