//! Agents as an operator sees them: one, or a list.

use super::guard::guard;
use super::pointers::{ListOut, Tagged, agent, agent_at, borrow, tagged_in, tagged_out};
use super::{AgentId, Limiter, Status, TOLLGATE_NEVER, TOLLGATE_NONE};
use crate as tollgate;
use crate::clock::nanos_saturating;
use std::ffi::c_void;
use tollgate::Tick;

/// The most agents that one call lists.
pub const TOLLGATE_PAGE_MAX: usize = 200;

const _: () = assert!(TOLLGATE_PAGE_MAX == tollgate::bounds::PAGE_MAX);

/// The state of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AgentView {
    /// Set it to sizeof(tollgate_agent_view) before the call.
    pub struct_size: u32,
    /// 1 if the agent has a record, else 0.
    pub known: u32,
    /// 1 if the agent is exempt, else 0.
    pub exempt: u32,
    /// The plan it is assigned to. TOLLGATE_NONE without one.
    pub plan: u32,
    /// The lane that is nearest to its limit. TOLLGATE_NONE if the agent is exempt
    /// or all lanes deny everything.
    pub dominant_lane: u32,
    /// As in tollgate_conduct_state.
    pub rate_limited: u32,
    /// Violations in the present window of the abuse threshold, up to 63.
    pub violations_in_window: u32,
    /// Violations without a quiet period between them, up to 15.
    pub violations_in_a_row: u32,
    /// The instant of this state.
    pub at_ns: u64,
    /// The instant of the last violation. TOLLGATE_NEVER if all are forgiven.
    pub last_violation_ns: u64,
    /// What is left of the wait that followed the last violation.
    pub wait_ns: u64,
    /// How many lanes there are.
    pub lane_count: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<AgentView>() == 64);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AgentView {
    const SIZE_MIN: u32 = 64;
}

impl AgentView {
    fn new(struct_size: u32, policy: &tollgate::Policy, seen: &tollgate::observe::AgentView) -> Self {
        let plan = seen.plan.as_deref().and_then(|plan| policy.plan(plan));
        Self {
            struct_size,
            known: seen.is_known.into(),
            exempt: seen.is_exempt.into(),
            plan: plan.map_or(TOLLGATE_NONE, |plan| plan.number().into()),
            dominant_lane: seen.dominant().map_or(TOLLGATE_NONE, |lane| lane.lane.number()),
            rate_limited: seen.is_rate_limited().into(),
            violations_in_window: seen.conduct.violations(),
            violations_in_a_row: seen.conduct.in_a_row(),
            at_ns: seen.at.as_nanos(),
            last_violation_ns: seen.conduct.last_violation().map_or(TOLLGATE_NEVER, Tick::as_nanos),
            wait_ns: nanos_saturating(seen.conduct.wait()),
            lane_count: seen.lanes.len() as u32,
            reserved: 0,
        }
    }
}

/// How near to its limit a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum UsageLevel {
    /// Less than 50 % is used.
    Green = 0,
    /// 50 to 80 % is used.
    Yellow = 1,
    /// More than 80 % is used.
    Red = 2,
}

/// The state of a lane of an agent, in a list of lanes. It never grows.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct LaneView {
    /// Whole tokens that could be charged. UINT64_MAX if the agent is exempt.
    pub remaining: u64,
    /// What the lane holds when it is full. UINT64_MAX if the agent is exempt.
    pub capacity: u64,
    /// How long until there is one more whole token. TOLLGATE_NEVER if the lane
    /// is full or denies everything.
    pub next_in_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
    /// How much of the lane is used: 0 to 100.
    pub used_percent: f64,
    /// How near to its limit the lane is.
    pub level: UsageLevel,
    /// 1 if the agent has a limit of its own for the lane, else 0.
    pub overridden: u32,
}

const _: () = assert!(size_of::<LaneView>() == 48);

impl From<&tollgate::observe::LaneView> for LaneView {
    fn from(lane: &tollgate::observe::LaneView) -> Self {
        Self {
            remaining: lane.state.remaining(),
            capacity: lane.state.capacity(),
            next_in_ns: lane.state.next_in().map_or(TOLLGATE_NEVER, nanos_saturating),
            full_in_ns: nanos_saturating(lane.state.full_in()),
            used_percent: lane.used_percent(),
            level: match lane.level() {
                tollgate::observe::UsageLevel::Green => UsageLevel::Green,
                tollgate::observe::UsageLevel::Yellow => UsageLevel::Yellow,
                tollgate::observe::UsageLevel::Red => UsageLevel::Red,
            },
            overridden: lane.is_override.into(),
        }
    }
}

/// The state of an agent: its plan, its conduct and its lanes. Charges nothing,
/// and gives a new agent no record. lanes_out gets each lane by its number, at
/// most lanes_max of them; TOLLGATE_LANES_MAX are always enough.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `view_out` is NULL, or readable and writable for as many
/// bytes as its struct_size says; `lanes_out` is NULL or writable for
/// `lanes_max` lanes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agent(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    view_out: *mut AgentView,
    lanes_out: *mut LaneView,
    lanes_max: usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (view_out, struct_size) = unsafe { tagged_out(view_out) }?;
        // SAFETY: NULL, or writable for as many lanes, by this function's contract.
        let lanes_out = unsafe { ListOut::new(lanes_out, lanes_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let seen = limiter.agent(unsafe { agent_at(id, id_len, now_ns) }?)?;
        lanes_out.write(seen.lanes.iter().map(LaneView::from));
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { view_out.write(AgentView::new(struct_size, &limiter.policy(), &seen)) };
        Ok(())
    })
}

/// In which order agents are listed. Ties are in the order of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum AgentSort {
    /// By id, byte by byte.
    Id = 0,
    /// The agents nearest to the limit of their dominant lane first.
    Usage = 1,
    /// The agents with the most violations in the present window first.
    Violations = 2,
}

/// Which agents to list. Zero in every member but struct_size is the first page
/// of all agents, by id.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AgentQuery {
    /// Set it to sizeof(tollgate_agent_query).
    pub struct_size: u32,
    /// A tollgate_agent_sort.
    pub sort: i32,
    /// Only agents whose id begins with these bytes. NULL: any.
    pub prefix: *const c_void,
    /// How many bytes, up to TOLLGATE_ID_BYTES_MAX.
    pub prefix_len: usize,
    /// Only agents whose id contains these bytes. NULL: any.
    pub part: *const c_void,
    /// How many bytes, up to TOLLGATE_ID_BYTES_MAX.
    pub part_len: usize,
    /// Which page, from 0. A page has rows_max agents, but at most TOLLGATE_PAGE_MAX.
    pub page: u64,
}

const _: () = assert!(size_of::<AgentQuery>() == 48);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AgentQuery {
    const SIZE_MIN: u32 = 48;
}

impl AgentQuery {
    /// # Safety
    ///
    /// As [`tollgate_agents`].
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
        let page = usize::try_from(self.page).unwrap_or(usize::MAX);
        let query = tollgate::observe::AgentQuery::new().sort(sort).page(page);
        Ok(query.prefix(part(self.prefix, self.prefix_len)?).contains(part(self.part, self.part_len)?))
    }
}

/// An agent in a list. tollgate_agent reports its lanes too. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AgentRow {
    /// The agent.
    pub id: AgentId,
    /// 1 if it is exempt, else 0.
    pub exempt: u32,
    /// The plan it is assigned to. TOLLGATE_NONE without one.
    pub plan: u32,
    /// See tollgate_agent_view.
    pub dominant_lane: u32,
    /// See tollgate_agent_view.
    pub rate_limited: u32,
    /// See tollgate_agent_view.
    pub violations_in_window: u32,
    /// See tollgate_agent_view.
    pub violations_in_a_row: u32,
    /// 0.
    pub reserved: u32,
    /// See tollgate_agent_view.
    pub last_violation_ns: u64,
    /// See tollgate_agent_view.
    pub wait_ns: u64,
    /// How much of its dominant lane is used: 0 to 100.
    pub used_percent: f64,
}

const _: () = assert!(size_of::<AgentRow>() == 312);

impl AgentRow {
    fn new(policy: &tollgate::Policy, listed: &tollgate::observe::ListedAgent) -> Self {
        let view = AgentView::new(0, policy, &listed.view);
        Self {
            id: AgentId::new(&listed.id),
            exempt: view.exempt,
            plan: view.plan,
            dominant_lane: view.dominant_lane,
            rate_limited: view.rate_limited,
            violations_in_window: view.violations_in_window,
            violations_in_a_row: view.violations_in_a_row,
            reserved: 0,
            last_violation_ns: view.last_violation_ns,
            wait_ns: view.wait_ns,
            used_percent: listed.view.dominant().map_or(0.0, tollgate::observe::LaneView::used_percent),
        }
    }
}

/// A page of a list of agents, and the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AgentPage {
    /// Set it to sizeof(tollgate_agent_page) before the call.
    pub struct_size: u32,
    /// How many agents are on this page.
    pub count: u32,
    /// How many agents match, on all pages.
    pub matched: u64,
    /// How many agents have a record but cannot be listed, because there is no
    /// roster or it is too small.
    pub not_listed: u64,
}

const _: () = assert!(size_of::<AgentPage>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for AgentPage {
    const SIZE_MIN: u32 = 24;
}

/// Lists agents that have a record: a page of rows_max agents, at most
/// TOLLGATE_PAGE_MAX. A NULL query lists all of them by id.
///
/// Only agents on the roster can be listed: see tollgate_limiter_options. Each call
/// reads the whole roster, so make it for a page that people read, not for every
/// request.
///
/// Status: INVALID_OPTION, STRUCT_SIZE; ID_TOO_LONG for a prefix or a part.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `query` is NULL or
/// readable for as many bytes as its struct_size says, and its prefix and part
/// are NULL or readable for as many bytes as stated; `rows_out` is NULL or
/// writable for `rows_max` rows; `page_out` is NULL, or readable and writable
/// for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_agents(
    limiter: *const Limiter,
    query: *const AgentQuery,
    rows_out: *mut AgentRow,
    rows_max: usize,
    page_out: *mut AgentPage,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (page_out, struct_size) = unsafe { tagged_out(page_out) }?;
        // SAFETY: NULL, or writable for as many rows, by this function's contract.
        let rows_out = unsafe { ListOut::new(rows_out, rows_max) }?;
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
        let page = limiter.agents(&query.per_page(rows_max));
        let policy = limiter.policy();
        rows_out.write(page.agents.iter().map(|listed| AgentRow::new(&policy, listed)));
        let count = page.agents.len().min(rows_max) as u32;
        let (matched, not_listed) = (page.matched, page.not_listed);
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { page_out.write(AgentPage { struct_size, count, matched, not_listed }) };
        Ok(())
    })
}
