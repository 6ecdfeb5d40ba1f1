//! Seeing what a limiter does: counts, how agents stand, lists of them, worst
//! offenders, events, and lines for a log. TOLLGATE_SIGHT_ON asks for it when
//! the limiter is made.

use super::error::{Failure, guard_told};
use super::guard::guard;
use super::pointers::{
    Tagged, agent, borrow, bytes, hand_over, out, put_bytes, put_text, tagged_in, tagged_out, take_back, tell,
};
use super::{Decision, Error, Limiter, Status, TOLLGATE_ID_BYTES_MAX, TOLLGATE_NEVER, TimeSource};
use crate as tollgate;
use crate::clock::nanos_saturating;
use std::ffi::{c_char, c_void};
use std::fmt::Display;
use tollgate::observe::{EventKind, ShownId};
use tollgate::{Agent, Tick};

/// A number of a lane or a plan that there is not.
pub const TOLLGATE_NONE: u32 = u32::MAX;
/// The most agents on a page.
pub const TOLLGATE_PAGE_MAX: usize = 200;
/// How many events are kept until they are polled.
pub const TOLLGATE_EVENTS_KEPT: usize = 1_024;

const _: () = assert!(TOLLGATE_PAGE_MAX == tollgate::bounds::PAGE_MAX);
const _: () = assert!(TOLLGATE_EVENTS_KEPT == tollgate::bounds::EVENTS_KEPT || cfg!(loom));

/// What a limiter remembers of what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Sight {
    /// Nothing; its checks do not even ask.
    Off = 0,
    /// Verdicts by lane, worst offenders, the last events: about 700 kB.
    On = 1,
}

/// What a limiter holds and has done, all at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Snapshot {
    /// Set it to sizeof(tollgate_snapshot) before the call.
    pub struct_size: u32,
    /// 1 if the limiter counts what it does, else 0: TOLLGATE_SIGHT_ON.
    pub counting: u32,
    /// When it was taken.
    pub at_ns: u64,
    /// Requests that were allowed, in all lanes.
    pub allowed: u64,
    /// Requests that were allowed near the limit.
    pub warned: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests of exempt agents.
    pub exempt: u64,
    /// Calls that could not be answered, TOLLGATE_STATUS_FULL aside.
    pub errors: u64,
    /// New agents that found no record: TOLLGATE_STATUS_FULL.
    pub full: u64,
    /// Violations recorded.
    pub violations: u64,
    /// Violations recorded in the last hour.
    pub violations_last_hour: u64,
    /// How often an agent's conduct became sustained abuse.
    pub sustained_abuse: u64,
    /// See tollgate_stats, for this and the next five.
    pub agents: u64,
    /// Records in all.
    pub records: u64,
    /// Records given to agents.
    pub claims: u64,
    /// Idle records taken for newcomers or swept.
    pub idle_evictions: u64,
    /// Records in debt given up for newcomers.
    pub lossy_evictions: u64,
    /// Exchanges that were lost to another thread.
    pub retries: u64,
    /// Agents about which something was decided.
    pub agents_assigned: u64,
    /// Agents with overrides.
    pub agents_overridden: u64,
    /// Agents that are exempt.
    pub agents_exempt: u64,
    /// Unknown actions that arrived.
    pub unknown_actions: u64,
    /// Events that were dropped because nobody polled in time.
    pub events_dropped: u64,
    /// How often the clock gave the processor's counter up.
    pub clock_fallbacks: u64,
    /// What its clock reads.
    pub clock_source: TimeSource,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Snapshot>() == 192);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Snapshot {
    const SIZE_MIN: u32 = 192;
}

/// The verdicts of one lane. Being part of an array, it never grows.
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

/// Writes elements to an array, and how many they are to `len_out`. NULL and 0
/// ask for their number alone.
///
/// # Safety
///
/// `array_out` is NULL or writable for `size` elements; `len_out` is NULL or writable.
unsafe fn put_array<T>(
    elements: impl ExactSizeIterator<Item = T>,
    array_out: *mut T,
    size: usize,
    len_out: *mut usize,
) -> Result<(), Status> {
    let len_out = out(len_out)?;
    let len = elements.len();
    if !(array_out.is_null() && size == 0) {
        let array = out(array_out)?;
        if size < len {
            return Err(Status::BufferTooSmall);
        }
        for (index, element) in elements.enumerate() {
            // SAFETY: the array has room for all of them, as the caller guarantees.
            let place = unsafe { array.add(index) };
            // SAFETY: as above.
            unsafe { place.write(element) };
        }
    }
    // SAFETY: not NULL, so writable as the caller guarantees.
    unsafe { len_out.write(len) };
    Ok(())
}

/// What the limiter holds and has done, in all and lane by lane, all at one
/// time. Without TOLLGATE_SIGHT_ON only what it holds. Takes microseconds, and
/// holds up nobody.
///
/// `lanes_out` has room for `lanes_size` lanes; TOLLGATE_LANES_MAX is enough
/// for any policy. NULL and 0 ask for their number alone.
///
/// Status: STRUCT_SIZE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `snapshot_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says; `lanes_out`
/// is NULL or writable for `lanes_size` lanes; `lanes_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_snapshot(
    limiter: *const Limiter,
    snapshot_out: *mut Snapshot,
    lanes_out: *mut LaneCounts,
    lanes_size: usize,
    lanes_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (snapshot_out, struct_size) = unsafe { tagged_out(snapshot_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let seen = unsafe { borrow(limiter) }?.0.snapshot();
        let lanes = seen.lanes.iter().map(|lane| LaneCounts {
            allowed: lane.allowed,
            warned: lane.warned,
            denied: lane.denied,
            exempt: lane.exempt,
        });
        // SAFETY: the array and the length are as this function's contract has them.
        unsafe { put_array(lanes, lanes_out, lanes_size, lanes_len_out) }?;
        let snapshot = Snapshot {
            struct_size,
            counting: seen.is_counting.into(),
            at_ns: seen.at.as_nanos(),
            allowed: seen.allowed(),
            warned: seen.warned(),
            denied: seen.denied(),
            exempt: seen.lanes.iter().map(|lane| lane.exempt).fold(0, u64::wrapping_add),
            errors: seen.errors,
            full: seen.full,
            violations: seen.violations,
            violations_last_hour: seen.violations_last_hour,
            sustained_abuse: seen.sustained_abuse,
            agents: seen.stats.agents,
            records: seen.stats.records,
            claims: seen.stats.claims,
            idle_evictions: seen.stats.idle_evictions,
            lossy_evictions: seen.stats.lossy_evictions,
            retries: seen.stats.retries,
            agents_assigned: seen.assigned,
            agents_overridden: seen.overridden,
            agents_exempt: seen.exempt,
            unknown_actions: seen.unknown_actions,
            events_dropped: seen.events_dropped,
            clock_fallbacks: seen.clock_fallbacks,
            clock_source: seen.clock.into(),
            reserved: 0,
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { snapshot_out.write(snapshot) };
        Ok(())
    })
}

/// How an agent stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AgentView {
    /// Set it to sizeof(tollgate_agent_view) before the call.
    pub struct_size: u32,
    /// 1 if the agent holds a record, else 0.
    pub known: u32,
    /// 1 if the agent is never limited, else 0.
    pub exempt: u32,
    /// The number of its plan; TOLLGATE_NONE if it is assigned to none.
    pub plan: u32,
    /// The lane that is nearest to its limit; TOLLGATE_NONE if the agent is
    /// exempt, or every lane denies everything.
    pub dominant_lane: u32,
    /// 1 if it has violated a limit and has not been quiet since, else 0.
    pub rate_limited: u32,
    /// Violations in the present window of the abuse threshold, up to 63.
    pub violations: u32,
    /// Violations without a quiet period between them, up to 15.
    pub consecutive: u32,
    /// When this was seen.
    pub at_ns: u64,
    /// When the last violation was, if it still matters; else TOLLGATE_NEVER.
    pub last_violation_ns: u64,
    /// What is left of the wait that the last violation brought.
    pub wait_ns: u64,
}

const _: () = assert!(size_of::<AgentView>() == 56);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AgentView {
    const SIZE_MIN: u32 = 56;
}

/// How near to its limit a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum UsageLevel {
    /// Less than half of the lane is used.
    Green = 0,
    /// 50 to 80 % of it are used.
    Yellow = 1,
    /// More than 80 % of it are used.
    Red = 2,
}

/// A lane of an agent as it stands. Being part of an array, it never grows.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct LaneView {
    /// Whole tokens that could be charged; UINT64_MAX of an exempt agent.
    pub remaining: u64,
    /// What the lane holds when it is full.
    pub capacity: u64,
    /// How long until there is one more whole token than now; TOLLGATE_NEVER
    /// if the lane is full or denies everything.
    pub next_in_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How much of the lane is used, 0 to 100.
    pub usage_percent: f64,
    /// How near to its limit the lane is.
    pub level: UsageLevel,
    /// 1 if the agent has a limit of its own for the lane, else 0.
    pub overridden: u32,
}

const _: () = assert!(size_of::<LaneView>() == 48);

/// Where a view of an agent goes.
struct ViewOut {
    view: *mut AgentView,
    lanes: *mut LaneView,
    lanes_size: usize,
    lanes_len: *mut usize,
}

impl ViewOut {
    /// # Safety
    ///
    /// As [`tollgate_limiter_agent`].
    unsafe fn put(&self, policy: &tollgate::Policy, seen: &tollgate::observe::AgentView) -> Result<(), Status> {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (view_out, struct_size) = unsafe { tagged_out(self.view) }?;
        let lanes = seen.lanes.iter().map(|lane| LaneView {
            remaining: lane.status.remaining(),
            capacity: lane.status.capacity(),
            next_in_ns: lane.status.next_in().map_or(TOLLGATE_NEVER, nanos_saturating),
            full_in_ns: nanos_saturating(lane.status.full_in()),
            usage_percent: lane.used_percent(),
            level: match lane.level() {
                tollgate::observe::UsageLevel::Green => UsageLevel::Green,
                tollgate::observe::UsageLevel::Yellow => UsageLevel::Yellow,
                tollgate::observe::UsageLevel::Red => UsageLevel::Red,
            },
            overridden: lane.is_override.into(),
        });
        // SAFETY: the array and the length are as the caller guarantees.
        unsafe { put_array(lanes, self.lanes, self.lanes_size, self.lanes_len) }?;
        let plan = seen.plan.as_deref().and_then(|plan| policy.plan(plan));
        let view = AgentView {
            struct_size,
            known: seen.is_known.into(),
            exempt: seen.is_exempt.into(),
            plan: plan.map_or(TOLLGATE_NONE, |plan| plan.number().into()),
            dominant_lane: seen.dominant().map_or(TOLLGATE_NONE, |lane| lane.lane.number()),
            rate_limited: seen.is_rate_limited().into(),
            violations: seen.conduct.violations(),
            consecutive: seen.conduct.consecutive(),
            at_ns: seen.at.as_nanos(),
            last_violation_ns: seen.conduct.last_violation().map_or(TOLLGATE_NEVER, Tick::as_nanos),
            wait_ns: nanos_saturating(seen.conduct.wait()),
        };
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { view_out.write(view) };
        Ok(())
    }
}

/// A whole call that looks at one agent.
///
/// # Safety
///
/// As [`tollgate_limiter_agent`].
unsafe fn look(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    now: Option<Tick>,
    place: &ViewOut,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        unsafe { tagged_out(place.view) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        let seen = limiter.agent(Agent { id: unsafe { agent(id, id_len) }?, at: now })?;
        // SAFETY: as the caller guarantees.
        unsafe { place.put(&limiter.policy(), &seen) }
    })
}

/// How the agent stands: its plan, its conduct, each lane, and which of them
/// is nearest to its limit. Charges nothing and makes no agent known.
///
/// `lanes_out` has room for `lanes_size` lanes; TOLLGATE_LANES_MAX is enough
/// for any policy. NULL and 0 ask for their number alone.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `view_out` is NULL, or readable and writable for as many
/// bytes as its struct_size says; `lanes_out` is NULL or writable for
/// `lanes_size` lanes; `lanes_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_agent(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    view_out: *mut AgentView,
    lanes_out: *mut LaneView,
    lanes_size: usize,
    lanes_len_out: *mut usize,
) -> Status {
    let place = ViewOut { view: view_out, lanes: lanes_out, lanes_size, lanes_len: lanes_len_out };
    // SAFETY: as this function's contract has it.
    unsafe { look(limiter, id, id_len, None, &place) }
}

/// How the agent stands at an instant of the caller's.
///
/// Status: as tollgate_limiter_agent.
///
/// # Safety
///
/// As tollgate_limiter_agent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_agent_at(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    view_out: *mut AgentView,
    lanes_out: *mut LaneView,
    lanes_size: usize,
    lanes_len_out: *mut usize,
) -> Status {
    let place = ViewOut { view: view_out, lanes: lanes_out, lanes_size, lanes_len: lanes_len_out };
    // SAFETY: as this function's contract has it.
    unsafe { look(limiter, id, id_len, Some(Tick::from_nanos(now_ns)), &place) }
}

/// In which order agents are listed. Agents that are alike come by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum AgentSort {
    /// By id, byte by byte.
    Id = 0,
    /// Those first whose dominant lane is nearest to its limit.
    Usage = 1,
    /// Those first that have the most violations in the present window.
    Violations = 2,
}

/// Which agents to list. All zero, but for struct_size, is the first page of
/// all of them, by id.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AgentQuery {
    /// Set it to sizeof(tollgate_agent_query).
    pub struct_size: u32,
    /// One of TOLLGATE_AGENT_SORT_ID, _USAGE and _VIOLATIONS.
    pub sort: i32,
    /// Only agents whose id begins with these bytes; NULL for all.
    pub prefix: *const c_void,
    /// How many bytes.
    pub prefix_len: usize,
    /// Only agents whose id has these bytes in it; NULL for all.
    pub part: *const c_void,
    /// How many bytes.
    pub part_len: usize,
    /// Which page; the first is 0.
    pub page: u64,
    /// How many on a page, up to TOLLGATE_PAGE_MAX; 0 for as many.
    pub per_page: u64,
}

const _: () = assert!(size_of::<AgentQuery>() == 56);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AgentQuery {
    const SIZE_MIN: u32 = 56;
}

impl AgentQuery {
    /// # Safety
    ///
    /// As [`tollgate_limiter_agents`].
    unsafe fn query(&self) -> Result<tollgate::observe::AgentQuery, Status> {
        let sort = match self.sort {
            sort if sort == AgentSort::Id as i32 => tollgate::observe::AgentSort::Id,
            sort if sort == AgentSort::Usage as i32 => tollgate::observe::AgentSort::Usage,
            sort if sort == AgentSort::Violations as i32 => tollgate::observe::AgentSort::Violations,
            _ => return Err(Status::InvalidOption),
        };
        let part = |start: *const c_void, len| match start.is_null() {
            true => Ok(&[][..]),
            // SAFETY: readable for as many bytes as stated, as the caller guarantees.
            false => unsafe { agent(start, len) },
        };
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let per_page = if self.per_page == 0 { TOLLGATE_PAGE_MAX } else { number(self.per_page) };
        let query = tollgate::observe::AgentQuery::new().sort(sort).page(number(self.page)).per_page(per_page);
        Ok(query.prefix(part(self.prefix, self.prefix_len)?).contains(part(self.part, self.part_len)?))
    }
}

/// A page of a list of agents. It does not change, so any number of threads
/// may use it at once.
pub struct AgentPage {
    page: tollgate::observe::AgentPage,
    policy: std::sync::Arc<tollgate::Policy>,
}

/// Agents that hold a record, a page of them, which the caller owns and gives
/// back with tollgate_agent_page_free. `query` may be NULL.
///
/// Only agents that are on the roster can be listed: see roster in
/// tollgate_limiter_options. Reads the whole roster, so call it for people and
/// not for requests. Charges nobody, and holds up nobody.
///
/// Status: INVALID_OPTION, ID_TOO_LONG of a prefix or part, STRUCT_SIZE of the
/// query.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `query` is NULL or
/// readable for as many bytes as its struct_size says, and its prefix and part
/// are NULL or readable for as many bytes as stated; `page_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_agents(
    limiter: *const Limiter,
    query: *const AgentQuery,
    page_out: *mut *mut AgentPage,
) -> Status {
    guard(|| {
        let page_out = out(page_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        let query = if query.is_null() {
            tollgate::observe::AgentQuery::new()
        } else {
            // SAFETY: readable for as many bytes as its tag says, by this function's contract; any bytes are a query.
            let query = unsafe { tagged_in(query) }?;
            // SAFETY: its parts are NULL or as long as stated, by this function's contract.
            unsafe { query.query() }?
        };
        let page = AgentPage { page: limiter.agents(&query), policy: limiter.policy() };
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(page_out, page) };
        Ok(())
    })
}

/// Gives a page back. NULL is fine.
///
/// # Safety
///
/// `page` is NULL, or came from tollgate_limiter_agents, was not freed yet, and
/// is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent_page_free(page: *mut AgentPage) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(page) }
}

/// How many agents are on the page. They are numbered from 0.
///
/// # Safety
///
/// `page` is NULL, or not freed; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent_page_count(page: *const AgentPage, count_out: *mut usize) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(page, count_out, |page| Ok(page.page.agents.len())) }
}

/// How many agents match, on all pages.
///
/// # Safety
///
/// `page` is NULL, or not freed; `matched_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent_page_matched(page: *const AgentPage, matched_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(page, matched_out, |page| Ok(page.page.matched)) }
}

/// How many agents hold a record and cannot be listed, since there is no
/// roster or it has too little room.
///
/// # Safety
///
/// `page` is NULL, or not freed; `not_listed_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent_page_not_listed(page: *const AgentPage, not_listed_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(page, not_listed_out, |page| Ok(page.page.not_listed)) }
}

/// The id of an agent of the page, any bytes without a NUL behind them, and
/// their number.
///
/// A buffer of TOLLGATE_ID_BYTES_MAX bytes is large enough for any. A NULL
/// buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `page` is NULL, or not freed; `id_out` is NULL or writable for `id_size`
/// bytes; `id_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent_page_id(
    page: *const AgentPage,
    index: usize,
    id_out: *mut c_void,
    id_size: usize,
    id_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let page = unsafe { borrow(page) }?;
        let listed = page.page.agents.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_bytes(&listed.id, id_out, id_size, id_len_out) }
    })
}

/// How an agent of the page stands; see tollgate_limiter_agent.
///
/// Status: OUT_OF_RANGE, STRUCT_SIZE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `page` is NULL, or not freed; the outputs are as for tollgate_limiter_agent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent_page_agent(
    page: *const AgentPage,
    index: usize,
    view_out: *mut AgentView,
    lanes_out: *mut LaneView,
    lanes_size: usize,
    lanes_len_out: *mut usize,
) -> Status {
    let place = ViewOut { view: view_out, lanes: lanes_out, lanes_size, lanes_len: lanes_len_out };
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let page = unsafe { borrow(page) }?;
        let listed = page.page.agents.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: as this function's contract has it.
        unsafe { place.put(&page.policy, &listed.view) }
    })
}

/// Who violates limits the most. It does not change, so any number of threads
/// may use it at once.
pub struct Offenders(tollgate::observe::Offenders);

/// Those with the most violations in the last hour, up to `most`, the worst
/// first: a copy, which the caller owns and gives back with
/// tollgate_offenders_free. Empty without TOLLGATE_SIGHT_ON.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `offenders_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_top_offenders(
    limiter: *const Limiter,
    most: usize,
    offenders_out: *mut *mut Offenders,
) -> Status {
    guard(|| {
        let offenders_out = out(offenders_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let offenders = unsafe { borrow(limiter) }?.0.top_offenders(most);
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(offenders_out, Offenders(offenders)) };
        Ok(())
    })
}

/// Gives offenders back. NULL is fine.
///
/// # Safety
///
/// `offenders` is NULL, or came from tollgate_limiter_top_offenders, was not
/// freed yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_offenders_free(offenders: *mut Offenders) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(offenders) }
}

/// How many there are. They are numbered from 0, the worst first.
///
/// # Safety
///
/// `offenders` is NULL, or not freed; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_offenders_count(offenders: *const Offenders, count_out: *mut usize) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(offenders, count_out, |offenders| Ok(offenders.0.list.len())) }
}

/// All violations of the last hour, those of agents that are not in the list
/// among them.
///
/// # Safety
///
/// `offenders` is NULL, or not freed; `violations_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_offenders_total(offenders: *const Offenders, violations_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(offenders, violations_out, |offenders| Ok(offenders.0.violations)) }
}

/// The id of an offender, any bytes without a NUL behind them, and their number.
///
/// A buffer of TOLLGATE_ID_BYTES_MAX bytes is large enough for any. A NULL
/// buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `offenders` is NULL, or not freed; `id_out` is NULL or writable for
/// `id_size` bytes; `id_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_offenders_id(
    offenders: *const Offenders,
    index: usize,
    id_out: *mut c_void,
    id_size: usize,
    id_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let offenders = unsafe { borrow(offenders) }?;
        let offender = offenders.0.list.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_bytes(&offender.agent, id_out, id_size, id_len_out) }
    })
}

/// The violations of an offender in the last hour: at most so many, and at
/// least so many less `error_out`.
///
/// Status: OUT_OF_RANGE.
///
/// # Safety
///
/// `offenders` is NULL, or not freed; `violations_out` and `error_out` are NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_offenders_violations(
    offenders: *const Offenders,
    index: usize,
    violations_out: *mut u64,
    error_out: *mut u64,
) -> Status {
    guard(|| {
        let (violations_out, error_out) = (out(violations_out)?, out(error_out)?);
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let offenders = unsafe { borrow(offenders) }?;
        let offender = offenders.0.list.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { violations_out.write(offender.violations) };
        // SAFETY: as above.
        unsafe { error_out.write(offender.error) };
        Ok(())
    })
}

/// What an event tells of. Later versions may have more: ignore what you do
/// not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum EventType {
    /// An agent's violations reached the policy's threshold: agent, consecutive.
    SustainedAbuse = 0,
    /// An action that the policy does not name was met for the first time:
    /// channel, action.
    UnknownAction = 1,
    /// There was no record for a new agent without taking one from an agent in
    /// debt, or none at all; at most once a minute: lossy_evictions, refused.
    Saturated = 2,
    /// Another policy was put in force.
    PolicyReplaced = 3,
    /// What was decided about one agent has changed: agent.
    AssignmentChanged = 4,
    /// What was decided about several agents has changed in one call: agents.
    AssignmentsChanged = 5,
    /// The clock gave the processor's counter up.
    ClockFellBack = 6,
    /// A check, one of many (sample_every in tollgate_limiter_options): agent,
    /// lane, decision, remaining.
    Checked = 7,
}

/// Something that an operator should hear of. Members that its type does not
/// name are zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event {
    /// Set it to sizeof(tollgate_event) before the call.
    pub struct_size: u32,
    /// What happened: a tollgate_event_type, or one of a later version.
    pub kind: i32,
    /// Counts up from 0 by one for each event. A gap tells how many were dropped.
    pub number: u64,
    /// When it happened.
    pub at_ns: u64,
    /// Records given up so far.
    pub lossy_evictions: u64,
    /// New agents refused so far.
    pub refused: u64,
    /// How many agents.
    pub agents: u64,
    /// What was left; UINT64_MAX for an exempt agent.
    pub remaining: u64,
    /// Violations without a quiet period between them.
    pub consecutive: u32,
    /// For what.
    pub lane: u32,
    /// The answer.
    pub decision: Decision,
    /// How many bytes the agent's id has.
    pub agent_len: u32,
    /// The agent's id, any bytes.
    pub agent: [u8; TOLLGATE_ID_BYTES_MAX],
    /// The action's channel, NUL-terminated, cut to 64 bytes.
    pub channel: [c_char; 72],
    /// The action's name, NUL-terminated, cut to 64 bytes.
    pub action: [c_char; 72],
}

const _: () = assert!(size_of::<Event>() == 472);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Event {
    const SIZE_MIN: u32 = 472;
}

impl Event {
    fn new(struct_size: u32, event: &tollgate::observe::Event) -> Self {
        let mut told = Self {
            struct_size,
            kind: -1,
            number: event.number,
            at_ns: event.at.as_nanos(),
            lossy_evictions: 0,
            refused: 0,
            agents: 0,
            remaining: 0,
            consecutive: 0,
            lane: 0,
            decision: Decision::Deny,
            agent_len: 0,
            agent: [0; TOLLGATE_ID_BYTES_MAX],
            channel: [0; 72],
            action: [0; 72],
        };
        let kind = match &event.kind {
            EventKind::SustainedAbuse { agent, consecutive } => {
                told.put_agent(agent);
                told.consecutive = *consecutive;
                EventType::SustainedAbuse
            }
            EventKind::UnknownAction { channel, action } => {
                fill(&mut told.channel[..71], channel);
                fill(&mut told.action[..71], action);
                EventType::UnknownAction
            }
            EventKind::Saturated { lossy_evictions, refused } => {
                (told.lossy_evictions, told.refused) = (*lossy_evictions, *refused);
                EventType::Saturated
            }
            EventKind::PolicyReplaced => EventType::PolicyReplaced,
            EventKind::AssignmentChanged { agent } => {
                told.put_agent(agent);
                EventType::AssignmentChanged
            }
            EventKind::AssignmentsChanged { agents } => {
                told.agents = *agents;
                EventType::AssignmentsChanged
            }
            EventKind::ClockFellBack => EventType::ClockFellBack,
            EventKind::Checked { agent, lane, decision, remaining } => {
                told.put_agent(agent);
                (told.lane, told.decision, told.remaining) = (lane.number(), (*decision).into(), *remaining);
                EventType::Checked
            }
        };
        told.kind = kind as i32;
        told
    }

    fn put_agent(&mut self, agent: &[u8]) {
        for (to, from) in self.agent.iter_mut().zip(agent) {
            *to = *from;
        }
        self.agent_len = agent.len().min(TOLLGATE_ID_BYTES_MAX) as u32;
    }
}

fn fill(place: &mut [c_char], text: &str) {
    for (to, from) in place.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// Takes the oldest event, if there is one. Any number of threads may poll at
/// once; each event is told once. There are none without TOLLGATE_SIGHT_ON.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `event_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says, and is
/// written if there was an event; `polled_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_poll_event(
    limiter: *mut Limiter,
    event_out: *mut Event,
    polled_out: *mut bool,
) -> Status {
    let poll = |limiter: &Limiter| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (event_out, struct_size) = unsafe { tagged_out(event_out) }?;
        let event = limiter.0.poll_event();
        if let Some(event) = &event {
            // SAFETY: not NULL and large enough, so writable by this function's contract.
            unsafe { event_out.write(Event::new(struct_size, event)) };
        }
        Ok(event.is_some())
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter.cast_const(), polled_out, poll) }
}

/// What an operator wants to know, as JSON, NUL-terminated, and its length
/// without the NUL: counts, worst offenders, busiest agents.
///
/// It may be longer from one call to the next, so let the buffer be larger
/// than a call with a NULL buffer of size 0 says.
///
/// Status: BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `json_out` is NULL or
/// writable for `json_size` bytes; `json_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_status_document(
    limiter: *const Limiter,
    json_out: *mut c_char,
    json_size: usize,
    json_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let document = unsafe { borrow(limiter) }?.0.report();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&document, json_out, json_size, json_len_out) }
    })
}

/// Writes the limiter's status document to a file; see
/// tollgate_limiter_status_document. Call it from a timer. Needs
/// TOLLGATE_FEATURE_PERSIST.
///
/// Whoever reads the file finds the old document or the new one, whole. The
/// path is any bytes without a NUL, as the system takes them. `error_out` may
/// be NULL.
///
/// Status: FILE, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE of the error.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `path` is NULL or readable
/// for `path_len` bytes; `error_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_write_status(
    limiter: *const Limiter,
    path: *const c_char,
    path_len: usize,
    error_out: *mut Error,
) -> Status {
    let call = || {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `path_len` bytes, by this function's contract.
        write_status(&limiter.0, unsafe { bytes(path, path_len) }?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_told(error_out, call) }
}

#[cfg(feature = "persist")]
fn write_status(limiter: &tollgate::Limiter, path: &[u8]) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(limiter.write_report(std::ffi::OsStr::from_bytes(path)).map_err(tollgate::ControlError::from)?)
}

#[cfg(not(feature = "persist"))]
fn write_status(_: &tollgate::Limiter, _: &[u8]) -> Result<(), Failure> {
    Err(Status::NotBuiltIn.into())
}

/// Denials as lines of a log, few of them: the first of an agent, then how
/// many there were each minute, and every five minutes a summary. Any number
/// of threads may use one at once.
pub struct LogThrottle {
    log: tollgate::observe::LogThrottle,
    /// Lines that are due, until they are asked for.
    lines: std::sync::Mutex<std::collections::VecDeque<String>>,
}

/// Makes a log throttle that has heard of nothing yet.
///
/// The caller owns it and gives it back with tollgate_log_throttle_free.
///
/// # Safety
///
/// `log_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_new(log_out: *mut *mut LogThrottle) -> Status {
    guard(|| {
        let log_out = out(log_out)?;
        let log = LogThrottle { log: tollgate::observe::LogThrottle::new(), lines: std::sync::Mutex::default() };
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(log_out, log) };
        Ok(())
    })
}

/// Gives a log throttle back. NULL is fine.
///
/// # Safety
///
/// `log` is NULL, or came from tollgate_log_throttle_new, was not freed yet,
/// and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_free(log: *mut LogThrottle) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(log) }
}

/// Tells of a denial, and whether it is a line for the log: "INFO: Rate limit
/// hit by agent X", with the id escaped, which tollgate_log_throttle_line gives.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `log` is NULL, or not freed; `id` is NULL or readable for `id_len` bytes;
/// `line_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_denied(
    log: *mut LogThrottle,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    line_out: *mut bool,
) -> Status {
    let tell_of = |log: &LogThrottle| {
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let id = unsafe { agent(id, id_len) }?;
        if id.is_empty() {
            return Err(Status::EmptyId);
        }
        let line = log.log.denied(id, Tick::from_nanos(now_ns));
        Ok(log.keep(line) > 0)
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(log.cast_const(), line_out, tell_of) }
}

/// Asks for what is due at this instant, how many were suppressed and the
/// summary, and tells how many lines there are for tollgate_log_throttle_line.
/// Call it every few seconds.
///
/// # Safety
///
/// `log` is NULL, or not freed; `lines_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_due(
    log: *mut LogThrottle,
    now_ns: u64,
    lines_out: *mut usize,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(log.cast_const(), lines_out, |log| Ok(log.keep(log.log.due(Tick::from_nanos(now_ns))))) }
}

impl LogThrottle {
    /// Keeps lines until they are asked for, and says how many were added. Who
    /// never asks keeps the last ones.
    fn keep(&self, lines: impl IntoIterator<Item = tollgate::observe::LogLine>) -> usize {
        const KEPT: usize = 1_024;
        let mut kept = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut added = 0;
        for line in lines {
            kept.push_back(format!("{}: {line}", line.level()));
            added += 1;
        }
        let more = kept.len().saturating_sub(KEPT);
        kept.drain(..more);
        added
    }
}

/// Takes the oldest line, NUL-terminated UTF-8 without a newline, and its length
/// without the NUL. It begins with "INFO: ", "THROTTLE: " or "SUMMARY: ".
///
/// A NULL buffer of size 0 asks for the length alone, and the line stays, as
/// it does if the buffer is too small.
///
/// Status: OUT_OF_RANGE if there is none, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `log` is NULL, or not freed; `line_out` is NULL or writable for `line_size`
/// bytes; `line_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_line(
    log: *mut LogThrottle,
    line_out: *mut c_char,
    line_size: usize,
    line_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let log = unsafe { borrow(log) }?;
        let mut lines = log.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let line = lines.front().ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(line, line_out, line_size, line_len_out) }?;
        if !line_out.is_null() {
            lines.pop_front();
        }
        Ok(())
    })
}

/// Where an id is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Shown {
    /// In a log or on a terminal.
    Text = 0,
    /// In HTML, an attribute too.
    Html = 1,
    /// As the label of a metric.
    Label = 2,
    /// In a URL, percent-encoded.
    Url = 3,
    /// In JSON: a string with its quotes, or {"base64": ...}.
    Json = 4,
}

/// An id as it is safely shown somewhere, NUL-terminated, and its length
/// without the NUL. `shown` is one of TOLLGATE_SHOWN_TEXT, _HTML, _LABEL, _URL
/// and _JSON.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: INVALID_OPTION, ID_TOO_LONG, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `id` is NULL or readable for `id_len` bytes; `text_out` is NULL or writable
/// for `text_size` bytes; `text_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_id_shown(
    id: *const c_void,
    id_len: usize,
    shown: i32,
    text_out: *mut c_char,
    text_size: usize,
    text_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let id = ShownId::new(unsafe { agent(id, id_len) }?);
        let text = match shown {
            shown if shown == Shown::Text as i32 => write(&id),
            shown if shown == Shown::Html as i32 => write(&id.html()),
            shown if shown == Shown::Label as i32 => write(&id.label()),
            shown if shown == Shown::Url as i32 => write(&id.url()),
            shown if shown == Shown::Json as i32 => write(&id.json()),
            _ => return Err(Status::InvalidOption),
        };
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&text, text_out, text_size, text_len_out) }
    })
}

fn write(shown: &dyn Display) -> String {
    shown.to_string()
}
