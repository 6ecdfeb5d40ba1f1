//! Offenders: the agents that violate limits the most.

use super::guard::guard;
use super::pointers::{ListOut, Tagged, borrow, tagged_out};
use super::{AgentId, Limiter, Status};
use crate as tollgate;

/// The most offenders that a limiter tracks.
pub const TOLLGATE_OFFENDERS_MAX: usize = 128;

const _: () = assert!(TOLLGATE_OFFENDERS_MAX == tollgate::bounds::OFFENDERS_KEPT);

/// An agent that violated limits. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Offender {
    /// The agent.
    pub id: AgentId,
    /// 0.
    pub reserved: u32,
    /// Its violations in the last hour, in steps of ten minutes.
    pub violations: u64,
    /// At most this many of them may belong to other agents.
    pub error: u64,
}

const _: () = assert!(size_of::<Offender>() == 280);

/// All offenders together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OffenderTotals {
    /// Set it to sizeof(tollgate_offender_totals) before the call.
    pub struct_size: u32,
    /// How many offenders there are, up to TOLLGATE_OFFENDERS_MAX.
    pub count: u32,
    /// Violations of all agents in the last hour, exact.
    pub violations: u64,
    /// The largest possible error of an offender.
    pub error_max: u64,
    /// Violations that are not in any offender's count, because another thread was
    /// counting.
    pub missed: u64,
}

const _: () = assert!(size_of::<OffenderTotals>() == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for OffenderTotals {
    const SIZE_MIN: u32 = 32;
}

/// The agents with the most violations in the last hour, worst first.
/// offenders_out gets at most offenders_max of them; totals_out has how many there
/// are. Without TOLLGATE_OBSERVE_ON there are 0.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `offenders_out` is NULL or
/// writable for `offenders_max` offenders; `totals_out` is NULL, or readable and
/// writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_top_offenders(
    limiter: *const Limiter,
    offenders_out: *mut Offender,
    offenders_max: usize,
    totals_out: *mut OffenderTotals,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (totals_out, struct_size) = unsafe { tagged_out(totals_out) }?;
        // SAFETY: NULL, or writable for as many offenders, by this function's contract.
        let offenders_out = unsafe { ListOut::new(offenders_out, offenders_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let top = unsafe { borrow(limiter) }?.0.top_offenders(TOLLGATE_OFFENDERS_MAX);
        offenders_out.write(top.list.iter().map(|offender| Offender {
            id: AgentId::new(&offender.agent),
            reserved: 0,
            violations: offender.violations,
            error: offender.error,
        }));
        let totals = OffenderTotals {
            struct_size,
            count: top.list.len() as u32,
            violations: top.violations,
            error_max: top.error_max,
            missed: top.missed,
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { totals_out.write(totals) };
        Ok(())
    })
}
