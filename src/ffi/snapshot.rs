//! Observing: what a limiter holds and has done.
//!
//! Most of it needs TOLLGATE_OBSERVE_ON in tollgate_limiter_options. Looking
//! charges nothing and does not delay checks.

use super::guard::guard;
use super::pointers::{ListOut, Tagged, borrow, put_tagged, tagged_out};
use super::shared::{self, Seen};
use super::{ClockSource, Limiter, Status};
use std::mem::offset_of;

/// What a limiter holds and has done. Counts are since it was built; of a shared
/// limiter they are those of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LimiterView {
    /// Set it to sizeof(tollgate_limiter_view) before the call.
    pub struct_size: u32,
    /// 1 with TOLLGATE_OBSERVE_ON. Else 0, and so are the members from allowed to
    /// sustained_abuse.
    pub observed: u32,
    /// Requests that were allowed, in all lanes.
    pub allowed: u64,
    /// Requests that were allowed near the limit.
    pub warned: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests of exempt agents.
    pub exempt: u64,
    /// Requests that failed, with another status than TOLLGATE_STATUS_FULL.
    pub errors: u64,
    /// Requests that failed with TOLLGATE_STATUS_FULL.
    pub full: u64,
    /// Violations.
    pub violations: u64,
    /// Violations in the last hour.
    pub violations_last_hour: u64,
    /// How often an agent's conduct became sustained abuse.
    pub sustained_abuse: u64,
    /// The instant of this snapshot.
    pub at_ns: u64,
    /// Agents that have a record. An idle one keeps it until a new agent needs it
    /// or a sweep frees it.
    pub agents: u64,
    /// Records, taken or free.
    pub records: u64,
    /// How often a record was given to a new agent.
    pub claims: u64,
    /// Idle records that were given to new agents or swept, without any loss.
    pub idle_evictions: u64,
    /// Records in debt that were given to new agents. If this grows, build the
    /// limiter for more agents.
    pub lossy_evictions: u64,
    /// Atomic exchanges that were lost to another thread and tried again.
    pub retries: u64,
    /// Reservations that are open.
    pub reservations: u64,
    /// Reservations that expired before they were settled. Each is counted when
    /// its place is used again.
    pub reservations_expired: u64,
    /// Reservations that were refused: TOO_MANY_RESERVATIONS or RESERVATIONS_FULL.
    pub reservations_refused: u64,
    /// Agents that have an assignment.
    pub agents_assigned: u64,
    /// Agents with overrides.
    pub agents_overridden: u64,
    /// Agents that are exempt.
    pub agents_exempt: u64,
    /// Unknown actions that arrived.
    pub unknown_actions: u64,
    /// Events that were dropped because they were not polled in time.
    pub events_dropped: u64,
    /// Bytes of address space that the limiter has reserved. New agents do not
    /// add to it; assignments take memory besides.
    pub memory: u64,
    /// 1 if the clock gave up the processor's counter and reads the OS clock since, else 0.
    pub clock_fallbacks: u64,
    /// Where the clock takes its time from.
    pub clock_source: ClockSource,
    /// How many lanes there are.
    pub lane_count: u32,
    /// The processes that share the limiter, this one included; 0 if it is private.
    /// A process that has built two limiters on the same memory counts twice.
    pub processes: u32,
    /// The descriptor of a shared limiter's memory, to be passed on to a process for
    /// TOLLGATE_SHARED_BY_DESCRIPTOR; -1 if it is private. It closes on exec, and the
    /// limiter owns it: do not close it.
    pub shared_fd: i32,
    /// How often a lock was taken over from a process that died with it.
    pub takeovers: u64,
    /// How often a process was answered TOLLGATE_STATUS_BUSY.
    pub busy: u64,
    /// 1 if this process was built with other limits than those in force, which are
    /// the ones that were there first, else 0.
    pub policy_differs: u32,
    /// 1 if the file at shared_path was removed or replaced, else 0. Processes that
    /// start from now on do not share this limiter: restart the others.
    pub detached: u32,
}

const _: () = assert!(size_of::<LimiterView>() == 256);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for LimiterView {
    const SIZE_MIN: u32 = 224;
}

/// The verdicts of one lane. It never grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LaneCounts {
    /// Requests that were allowed.
    pub allowed: u64,
    /// Requests that were allowed near the limit.
    pub warned: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests of exempt agents.
    pub exempt: u64,
}

/// What the limiter holds and has done. lanes_out gets the counts of each lane by
/// its number, at most lanes_max of them; TOLLGATE_LANES_MAX are always enough.
/// Takes microseconds, and of a shared limiter a few more for each process.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `view_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says; `lanes_out`
/// is NULL or writable for `lanes_max` lanes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_snapshot(
    limiter: *const Limiter,
    view_out: *mut LimiterView,
    lanes_out: *mut LaneCounts,
    lanes_max: usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (view_out, struct_size) = unsafe { tagged_out(view_out) }?;
        // SAFETY: NULL, or writable for as many lanes, by this function's contract.
        let lanes_out = unsafe { ListOut::new(lanes_out, lanes_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        let seen = limiter.snapshot();
        // It asks the system about every process, which is for nothing if the caller does not know of it.
        let is_wanted = struct_size as usize > offset_of!(LimiterView, processes);
        let sharing = if is_wanted { shared::seen(limiter) } else { Seen::PRIVATE };
        lanes_out.write(seen.lanes.iter().map(|lane| LaneCounts {
            allowed: lane.allowed,
            warned: lane.warned,
            denied: lane.denied,
            exempt: lane.exempt,
        }));
        let view = LimiterView {
            struct_size,
            observed: seen.is_counting.into(),
            allowed: seen.allowed(),
            warned: seen.warned(),
            denied: seen.denied(),
            exempt: seen.lanes.iter().map(|lane| lane.exempt).fold(0, u64::wrapping_add),
            errors: seen.errors,
            full: seen.full,
            violations: seen.violations,
            violations_last_hour: seen.violations_last_hour,
            sustained_abuse: seen.sustained_abuse,
            at_ns: seen.at.as_nanos(),
            agents: seen.stats.agents,
            records: seen.stats.records,
            claims: seen.stats.claims,
            idle_evictions: seen.stats.idle_evictions,
            lossy_evictions: seen.stats.lossy_evictions,
            retries: seen.stats.retries,
            reservations: seen.stats.reservations,
            reservations_expired: seen.stats.reservations_expired,
            reservations_refused: seen.stats.reservations_refused,
            agents_assigned: seen.assigned,
            agents_overridden: seen.overridden,
            agents_exempt: seen.exempt,
            unknown_actions: seen.unknown_actions,
            events_dropped: seen.events_dropped,
            memory: limiter.memory(),
            clock_fallbacks: seen.clock_fallbacks,
            clock_source: seen.clock.into(),
            lane_count: seen.lanes.len() as u32,
            processes: sharing.processes,
            shared_fd: sharing.descriptor,
            takeovers: sharing.takeovers,
            busy: sharing.busy,
            policy_differs: sharing.policy_differs.into(),
            detached: sharing.is_detached.into(),
        };
        // SAFETY: not NULL, so writable for as many bytes as its tag says by this function's contract.
        unsafe { put_tagged(view_out, struct_size, &view) };
        Ok(())
    })
}
