//! Limiters: made, freed, asked about themselves.

use super::guard::guard;
use super::pointers::{Tagged, borrow, hand_over, out, tagged_in, tagged_out, take_back, tell, text};
use super::{Clock, Policy, Sight, Status, TOLLGATE_RESERVATIONS_DEFAULT, default};
use crate as tollgate;
use std::ffi::c_char;
use std::time::Duration;
use tollgate::Tick;

/// The most agents a limiter may be made for.
pub const TOLLGATE_AGENTS_MAX: u64 = 1_073_741_824;
/// What a limiter is made for when nothing is said.
pub const TOLLGATE_AGENTS_DEFAULT: u64 = 1_000_000;

const _: () = assert!(TOLLGATE_AGENTS_MAX == tollgate::bounds::AGENTS_MAX);
const _: () = assert!(TOLLGATE_AGENTS_DEFAULT == tollgate::bounds::AGENTS_DEFAULT);

/// An exact rate limiter for a fixed number of agents.
///
/// Any number of threads may call any function on one limiter at once, except
/// tollgate_limiter_free. A check of a known agent takes no lock and allocates
/// nothing.
///
/// A child process made by fork may go on using a limiter that was made before
/// the fork, whatever other threads were doing: it has its own copy. From then
/// on each process limits on its own.
pub struct Limiter(pub(super) tollgate::Limiter);

/// What happens to a new agent when no record near its home is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OnFull {
    /// The record with the least debt is given up for it, and it inherits that
    /// debt. Whoever lost the record may return with a fresh bucket: see
    /// lossy_evictions in tollgate_stats.
    Evict = 0,
    /// It is refused with TOLLGATE_STATUS_FULL. Exact for everybody.
    Deny = 1,
}

/// How agent ids are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum IdHash {
    /// A keyed multilinear hash: the fastest.
    Multilinear = 0,
    /// SipHash-1-3: for ids chosen by those who can observe how the limiter
    /// treats them.
    Siphash13 = 1,
}

/// How a limiter is made. All zero, but for struct_size, is the default.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LimiterOptions {
    /// Set it to sizeof(tollgate_limiter_options).
    pub struct_size: u32,
    /// One of TOLLGATE_ON_FULL_EVICT and TOLLGATE_ON_FULL_DENY.
    pub on_full: i32,
    /// How many agents it must hold at the same time; 0 for TOLLGATE_AGENTS_DEFAULT.
    pub agents: u64,
    /// Where its time comes from; NULL for a clock of its own.
    pub clock: *const Clock,
    /// One of TOLLGATE_ID_HASH_MULTILINEAR and TOLLGATE_ID_HASH_SIPHASH13.
    pub id_hash: i32,
    /// Must be 0.
    pub reserved: u32,
    /// One of TOLLGATE_SIGHT_OFF and TOLLGATE_SIGHT_ON.
    pub sight: i32,
    /// With TOLLGATE_SIGHT_ON: makes every so many-th check of a thread an
    /// event; 0 for none.
    pub sample_every: u32,
    /// With TOLLGATE_SIGHT_ON: writes down the ids of up to so many agents that
    /// hold records, so that they can be listed; 0 for none.
    pub roster: u64,
    /// How many reservations may be open at once, up to
    /// TOLLGATE_RESERVATIONS_MAX; 0 for TOLLGATE_RESERVATIONS_DEFAULT. Each
    /// takes 64 bytes.
    pub reservations: u64,
    /// 1 if all of the memory of the records, and of a roster if there is one,
    /// is taken from the system when the limiter is made; if there is not
    /// enough, it is not made: TOLLGATE_STATUS_OUT_OF_MEMORY. 0 if the system
    /// commits a page when the first agent comes to live there, which lets that
    /// one check wait, for up to half a millisecond and more. What kept budgets
    /// take is committed as it is used either way.
    pub commit_memory: u32,
    /// How many reservations one agent may have open at once; 0 for one in 64
    /// of all, but at least 16. (Was reserved, and 0.)
    pub reservations_per_agent: u32,
}

const _: () = assert!(size_of::<LimiterOptions>() == 64);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for LimiterOptions {
    const SIZE_MIN: u32 = 32;
}

impl LimiterOptions {
    fn apply(&self, builder: tollgate::LimiterBuilder) -> Result<tollgate::LimiterBuilder, Status> {
        let on_full = match self.on_full {
            on_full if on_full == OnFull::Evict as i32 => tollgate::OnFull::Evict,
            on_full if on_full == OnFull::Deny as i32 => tollgate::OnFull::Deny,
            _ => return Err(Status::InvalidOption),
        };
        let hash = match self.id_hash {
            hash if hash == IdHash::Multilinear as i32 => tollgate::IdHash::Multilinear,
            hash if hash == IdHash::Siphash13 as i32 => tollgate::IdHash::SipHash13,
            _ => return Err(Status::InvalidOption),
        };
        let watched = match self.sight {
            sight if sight == Sight::Off as i32 => false,
            sight if sight == Sight::On as i32 => true,
            _ => return Err(Status::InvalidOption),
        };
        let commit_memory = match self.commit_memory {
            0 => false,
            1 => true,
            _ => return Err(Status::InvalidOption),
        };
        if self.reserved != 0 || (!watched && (self.sample_every, self.roster) != (0, 0)) {
            return Err(Status::InvalidOption);
        }
        let agents = if self.agents == 0 { TOLLGATE_AGENTS_DEFAULT } else { self.agents };
        let reservations = if self.reservations == 0 { TOLLGATE_RESERVATIONS_DEFAULT } else { self.reservations };
        let reservations = usize::try_from(reservations).unwrap_or(usize::MAX);
        let builder = builder.agents(agents).on_full(on_full).hash(hash).reservations(reservations);
        let mut builder = builder.prefault(commit_memory);
        if self.reservations_per_agent > 0 {
            builder = builder.reservations_per_agent(self.reservations_per_agent as usize);
        }
        if watched {
            let roster = usize::try_from(self.roster).unwrap_or(usize::MAX);
            builder = builder.observe(tollgate::observe::Observe::new().roster(roster).sample_every(self.sample_every));
        }
        // SAFETY: NULL or a clock that is not freed, by the contract of whoever takes options.
        Ok(match unsafe { self.clock.as_ref() } {
            Some(clock) => builder.clock(clock.shared()),
            None => builder,
        })
    }
}

/// The limiter that a policy and options describe.
///
/// # Safety
///
/// As [`tollgate_limiter_new`].
pub(super) unsafe fn make(policy: *const Policy, options: *const LimiterOptions) -> Result<Limiter, Status> {
    // SAFETY: NULL, or alive and shared, as the caller guarantees.
    let policy = unsafe { borrow(policy) }?;
    let mut builder = tollgate::Limiter::builder(policy.0.clone());
    if !options.is_null() {
        // SAFETY: readable for as many bytes as its tag says, as the caller guarantees.
        builder = unsafe { tagged_in(options) }?.apply(builder)?;
    }
    Ok(Limiter(builder.build()?))
}

/// Makes a limiter. All its memory is reserved here.
///
/// The caller owns it and gives it back with tollgate_limiter_free. Policy and
/// clock may be freed as soon as this returns. `options` may be NULL.
///
/// Status: INVALID_OPTION, AGENTS_OUT_OF_RANGE, OUT_OF_MEMORY, STRUCT_SIZE.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `options` is NULL or
/// readable for as many bytes as its struct_size says, and its clock is NULL
/// or a clock that is not freed; `limiter_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_new(
    policy: *const Policy,
    options: *const LimiterOptions,
    limiter_out: *mut *mut Limiter,
) -> Status {
    guard(|| {
        let limiter_out = out(limiter_out)?;
        // SAFETY: as this function's contract has it.
        let limiter = unsafe { make(policy, options) }?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(limiter_out, limiter) };
        Ok(())
    })
}

/// Gives a limiter back, and its memory to the system. NULL is fine, and the
/// limiter of tollgate_default stays as it is.
///
/// # Safety
///
/// `limiter` is NULL, or came from tollgate_limiter_new or tollgate_default,
/// was not freed yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_free(limiter: *mut Limiter) {
    if !default::is_default(limiter) {
        // SAFETY: as this function's contract has it.
        unsafe { take_back(limiter) }
    }
}

/// A copy of the policy in force, which the caller owns and gives back with
/// tollgate_policy_free.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `policy_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_policy(limiter: *const Limiter, policy_out: *mut *mut Policy) -> Status {
    guard(|| {
        let policy_out = out(policy_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(policy_out, Policy((*limiter.0.policy()).clone())) };
        Ok(())
    })
}

/// The number of the lane of this name. It stays the same for as long as the
/// limiter lives, so ask once.
///
/// Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `name` is NULL or readable
/// for `name_len` bytes; `lane_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_lane(
    limiter: *const Limiter,
    name: *const c_char,
    name_len: usize,
    lane_out: *mut u32,
) -> Status {
    let number = |limiter: &Limiter| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let lane = limiter.0.lane(unsafe { text(name, name_len) }?);
        lane.map(tollgate::LaneId::number).ok_or(Status::UnknownLane)
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, lane_out, number) }
}

/// The number of the plan of this name; "default" is 0. It stays the same for
/// as long as the limiter lives.
///
/// Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `name` is NULL or readable
/// for `name_len` bytes; `plan_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_plan(
    limiter: *const Limiter,
    name: *const c_char,
    name_len: usize,
    plan_out: *mut u32,
) -> Status {
    let number = |limiter: &Limiter| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let plan = limiter.0.plan(unsafe { text(name, name_len) }?).ok_or(Status::UnknownPlan)?;
        Ok(plan.number().into())
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, plan_out, number) }
}

/// The present instant on the limiter's clock, in nanoseconds since its
/// origin: what the functions ending in _at want.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `now_ns_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_now(limiter: *const Limiter, now_ns_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, now_ns_out, |limiter| Ok(limiter.0.now().as_nanos())) }
}

/// Bytes of address space that the limiter has reserved. No stream of ids
/// makes it more; assignments take memory beside it.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `bytes_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_memory(limiter: *const Limiter, bytes_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, bytes_out, |limiter| Ok(limiter.0.memory())) }
}

/// What a limiter holds and has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Set it to sizeof(tollgate_stats) before the call.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Agents that hold a record now. Idle ones hold theirs until somebody
    /// needs it or a sweep takes it.
    pub agents: u64,
    /// Records in all.
    pub records: u64,
    /// Records given to agents since the start.
    pub claims: u64,
    /// Idle records taken for newcomers or swept: nothing was lost.
    pub idle_evictions: u64,
    /// Records in debt given up for newcomers: their agents may return with
    /// fresh buckets. If this grows, make the limiter for more agents.
    pub lossy_evictions: u64,
    /// Exchanges that were lost to another thread and tried again.
    pub retries: u64,
}

const _: () = assert!(size_of::<Stats>() == 56);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Stats {
    const SIZE_MIN: u32 = 56;
}

/// What the limiter holds and has seen. Walks a counter per 1,024 records.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `stats_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_stats(limiter: *const Limiter, stats_out: *mut Stats) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (stats_out, struct_size) = unsafe { tagged_out(stats_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let stats = unsafe { borrow(limiter) }?.0.stats();
        let stats = Stats {
            struct_size,
            reserved: 0,
            agents: stats.agents,
            records: stats.records,
            claims: stats.claims,
            idle_evictions: stats.idle_evictions,
            lossy_evictions: stats.lossy_evictions,
            retries: stats.retries,
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { stats_out.write(stats) };
        Ok(())
    })
}

/// Vacates the records of agents that have been idle, with every lane full,
/// for `idle_for_ns`, and says how many.
///
/// Never needed for correctness: an idle record is taken when somebody needs
/// one. It makes the agents in tollgate_stats those of late. It walks all
/// records, so call it from a timer, every few minutes, say.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `swept_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_sweep(
    limiter: *mut Limiter,
    idle_for_ns: u64,
    swept_out: *mut u64,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, swept_out, |limiter| Ok(limiter.0.sweep(Duration::from_nanos(idle_for_ns)))) }
}

/// As tollgate_limiter_sweep, at an instant of the caller's.
///
/// # Safety
///
/// As tollgate_limiter_sweep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_sweep_at(
    limiter: *mut Limiter,
    idle_for_ns: u64,
    now_ns: u64,
    swept_out: *mut u64,
) -> Status {
    let sweep = |limiter: &Limiter| Ok(limiter.0.sweep_at(Duration::from_nanos(idle_for_ns), Tick::from_nanos(now_ns)));
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, swept_out, sweep) }
}
