//! Status: how an engine gets on, and the lanes that are shared.

use crate::Engine;
use std::ffi::c_char;
use std::time::{Duration, SystemTime};
use tollgate::cluster::{self, Link, SharedLane};
use tollgate::ffi::border::{ListOut, Tagged, borrow, guard, put_tagged, tagged_out, text_array};
use tollgate::ffi::{Status, WhenLost};
use tollgate_redis::{Out, State};

/// Reasons for which the store is lost.
pub const TOLLGATE_LOSSES: usize = 9;
/// Elements of an array that has one for each tollgate_source.
pub const TOLLGATE_SOURCES: usize = 9;
/// Room for a problem, its NUL included.
pub const TOLLGATE_PROBLEM_BYTES: usize = 256;
/// Room for the warnings, their NUL included.
pub const TOLLGATE_WARNINGS_BYTES: usize = 1024;

const _: () = assert!(cluster::Source::ALL.len() + 1 == TOLLGATE_SOURCES);

/// Whether the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum EngineState {
    /// It does not.
    Lost = 0,
    /// It does again, and is being told what was spent meanwhile. Checks still take it for lost.
    Seeding = 1,
    /// It does.
    Connected = 2,
}

/// Why the store was lost: an index of losses_by_reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Loss {
    /// No answer in time.
    Timeout = 0,
    /// The connection was refused or closed.
    Connection = 1,
    /// The server is a replica by now.
    ReadOnly = 2,
    /// The server is reading its data.
    Loading = 3,
    /// The server has no memory left.
    OutOfMemory = 4,
    /// The server does not know the user or the password, or the user may not do what is needed.
    NoAuth = 5,
    /// The key is on another server of the cluster, or on none.
    ClusterDown = 6,
    /// The server has forgotten the scripts.
    NoScript = 7,
    /// Anything else.
    Other = 8,
}

/// How an engine gets on. Counts are since it was started.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EngineView {
    /// Set it to sizeof(tollgate_engine_view) before the call.
    pub struct_size: u32,
    /// Whether the store answers.
    pub state: EngineState,
    /// For how long it has been so.
    pub state_for_ns: u64,
    /// How many machines there are, as far as this one knows, and at least as many as it was told.
    pub nodes: u32,
    /// How many machines have shown themselves lately, this one among them; 0 before
    /// the first connection.
    pub nodes_seen: u32,
    /// How long the store was lost in all, the time before the first connection aside.
    pub lost_for_ns: u64,
    /// How often it was lost, by tollgate_loss.
    pub losses_by_reason: [u64; TOLLGATE_LOSSES],
    /// How long the last question took.
    pub round_trip_ns: u64,
    /// How long the slowest question took.
    pub round_trip_max_ns: u64,
    /// How long all questions took together.
    pub round_trips_ns: u64,
    /// How many questions there were; one is for many lanes of many agents.
    pub round_trips: u64,
    /// Lanes of agents that were settled.
    pub settlements: u64,
    /// Settlements that the store refused.
    pub refused: u64,
    /// Questions without an answer.
    pub unanswered: u64,
    /// Tokens that were granted.
    pub granted: u64,
    /// Tokens that were given back.
    pub given: u64,
    /// Tokens that were spent in advance, and paid.
    pub paid: u64,
    /// Lanes of agents of which the store was told what was spent while it was lost.
    pub seeded: u64,
    /// Lanes of agents that checks have asked about.
    pub asks: u64,
    /// Those that were not asked about, because too many waited.
    pub asks_dropped: u64,
    /// How many lanes are shared.
    pub lane_count: u32,
    /// How many warnings there are.
    pub warning_count: u32,
    /// 1 if this machine knows all that operators have decided on any machine, as of
    /// a fraction of a second ago, else 0.
    pub decisions_current: u32,
    /// 0.
    pub reserved: u32,
    /// Agents about whom the store has a decision.
    pub agents_decided: u64,
    /// Decisions of this machine that the store does not know yet.
    pub decisions_waiting: u64,
    /// Decisions of other machines that cannot be in force here; warnings name the first.
    pub decisions_refused: u64,
    /// Decisions of this machine that the store has accepted.
    pub decisions_written: u64,
    /// Decisions of other machines that were put in force here.
    pub decisions_followed: u64,
    /// Decisions that were written again because the store had lost them.
    pub decisions_put_back: u64,
    /// Why the store was lost the last time, in NUL-terminated UTF-8; empty if it never was.
    pub last_problem: [c_char; TOLLGATE_PROBLEM_BYTES],
    /// Why decisions did not follow the last time the connection failed; as last_problem.
    pub decisions_problem: [c_char; TOLLGATE_PROBLEM_BYTES],
    /// What an operator should change, a warning on each line; NUL-terminated UTF-8,
    /// truncated if it is too long.
    pub warnings: [c_char; TOLLGATE_WARNINGS_BYTES],
}

const _: () = assert!(size_of::<EngineView>() == 1808);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for EngineView {
    const SIZE_MIN: u32 = 1808;
}

/// A lane that machines share. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EngineLane {
    /// Its number.
    pub lane: u32,
    /// 1 if nothing is spent in advance, else 0.
    pub exact: u32,
    /// How much of its capacity may be in credit and in advance at once, in percent.
    pub slack_percent: u32,
    /// What this machine does with it while the store is lost.
    pub when_lost: WhenLost,
    /// What it holds when it is full, for an agent of the default plan.
    pub capacity: u64,
    /// How long a token of the default plan takes to refill.
    pub token_ns: u64,
    /// How many tokens all machines together may admit to an agent of the default
    /// plan beyond its limit, in any window, while the store answers.
    pub bound_tokens: u64,
    /// What this machine has in credit, of all agents together.
    pub credit: u64,
    /// What it has spent in advance and not paid yet.
    pub advance: u64,
    /// Its answers, by tollgate_source.
    pub answers: [u64; TOLLGATE_SOURCES],
}

const _: () = assert!(size_of::<EngineLane>() == 128);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl EngineLane {
    fn of(lane: &SharedLane, out: Out) -> Self {
        let mut answers = [0; TOLLGATE_SOURCES];
        for source in cluster::Source::ALL {
            answers[source as usize] = lane.answers(source);
        }
        Self {
            lane: lane.lane.number(),
            exact: lane.is_exact.into(),
            slack_percent: lane.slack_percent.into(),
            when_lost: lane.when_lost.into(),
            capacity: lane.capacity,
            token_ns: lane.token_ns,
            bound_tokens: lane.bound_tokens,
            credit: out.credit,
            advance: out.advance,
            answers,
        }
    }
}

impl EngineView {
    fn of(struct_size: u32, status: &tollgate_redis::Status, link: &cluster::ClusterStatus) -> Self {
        let (counts, trips, decisions) = (status.counts, status.round_trips, &status.decisions);
        let warnings: Vec<&str> = status.warnings.iter().chain(&decisions.warnings).map(String::as_str).collect();
        let for_so_long = SystemTime::now().duration_since(status.since).unwrap_or_default();
        Self {
            struct_size,
            state: match status.state {
                State::Lost => EngineState::Lost,
                State::Seeding => EngineState::Seeding,
                State::Connected => EngineState::Connected,
            },
            state_for_ns: nanoseconds(for_so_long),
            nodes: status.nodes.get().into(),
            nodes_seen: status.nodes_seen.into(),
            lost_for_ns: nanoseconds(status.lost_for),
            losses_by_reason: status.losses.by_reason().map(|(_, count)| count),
            round_trip_ns: nanoseconds(status.round_trip),
            round_trip_max_ns: nanoseconds(trips.max),
            round_trips_ns: nanoseconds(trips.sum),
            round_trips: trips.count,
            settlements: counts.sent,
            refused: counts.refused,
            unanswered: counts.unanswered,
            granted: counts.granted,
            given: counts.given,
            paid: counts.paid,
            seeded: counts.seeded,
            asks: link.asks,
            asks_dropped: link.asks_dropped + counts.dropped,
            // Lossless: there are at most 64, and a few warnings.
            lane_count: link.lanes.len() as u32,
            warning_count: warnings.len() as u32,
            decisions_current: decisions.is_current.into(),
            reserved: 0,
            agents_decided: decisions.agents,
            decisions_waiting: decisions.waiting,
            decisions_refused: decisions.refused,
            decisions_written: decisions.written,
            decisions_followed: decisions.followed,
            decisions_put_back: decisions.put_back,
            last_problem: text_array(status.last_problem.as_deref().unwrap_or_default()),
            decisions_problem: text_array(decisions.last_problem.as_deref().unwrap_or_default()),
            warnings: text_array(&warnings.join("\n")),
        }
    }
}

/// How an engine gets on. lanes_out gets the lanes that are shared, at most
/// lanes_max of them; TOLLGATE_LANES_MAX are always enough. Takes microseconds, and
/// never waits for the store.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `engine` is NULL or an engine that is not freed; `view_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says; `lanes_out` is
/// NULL or writable for `lanes_max` lanes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_engine_status(
    engine: *const Engine,
    view_out: *mut EngineView,
    lanes_out: *mut EngineLane,
    lanes_max: usize,
) -> Status {
    guard(|| {
        #[cfg(test)]
        crate::engine::panic_if_asked();
        // SAFETY: as this function's contract has it.
        let (place, struct_size) = unsafe { tagged_out(view_out) }?;
        // SAFETY: NULL, or writable for as many lanes, by this function's contract.
        let lanes_out = unsafe { ListOut::new(lanes_out, lanes_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let engine = unsafe { borrow(engine) }?;
        // An engine has a limiter with shared lanes.
        let link = Link::of((*engine.limiter).as_ref()).ok_or(Status::InvalidOption)?.status();
        let status = engine.engine.status();
        let of = |lane: &SharedLane| EngineLane::of(lane, status.out.get(&lane.lane).copied().unwrap_or_default());
        lanes_out.write(link.lanes.iter().map(of));
        // SAFETY: not NULL and of this size, so writable by this function's contract.
        unsafe { put_tagged(place, struct_size, &EngineView::of(struct_size, &status, &link)) };
        Ok(())
    })
}
