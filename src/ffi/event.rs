//! Events: what an operator should know about.

use super::guard::guard;
use super::pointers::{Tagged, borrow, tagged_out, text_array};
use super::{AgentId, Decision, Limiter, Status, TOLLGATE_ACTION_BYTES};
use crate as tollgate;
use std::ffi::c_char;
use tollgate::observe::EventKind;

/// How many events a limiter keeps until they are polled.
pub const TOLLGATE_EVENTS_KEPT: usize = 1_024;

const _: () = assert!(TOLLGATE_EVENTS_KEPT == tollgate::bounds::EVENTS_KEPT || cfg!(loom));

/// What an event is about, and which members of tollgate_event it sets. Later
/// versions may add types: ignore those that you do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum EventType {
    /// There is no event.
    None = 0,
    /// An agent's violations reached the policy's threshold: agent, violations_in_a_row.
    SustainedAbuse = 1,
    /// An action that the policy does not name arrived for the first time: channel, action.
    UnknownAction = 2,
    /// A new agent took the record of an agent in debt, or was refused; at most
    /// once a minute: lossy_evictions, refused.
    Saturated = 3,
    /// Another policy is in force.
    PolicyReplaced = 4,
    /// The assignment of one agent has changed: agent.
    AssignmentChanged = 5,
    /// The assignments of several agents have changed in one call: agents.
    AssignmentsChanged = 6,
    /// The clock gave up the processor's counter and reads the OS clock since.
    ClockFellBack = 7,
    /// A sampled check, see sample_every in tollgate_limiter_options: agent,
    /// lane, decision, remaining.
    Checked = 8,
}

/// An event. Members that its type does not set are zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event {
    /// Set it to sizeof(tollgate_event) before the call.
    pub struct_size: u32,
    /// A tollgate_event_type, or one of a later version.
    pub kind: i32,
    /// Events are numbered from 0. A gap shows how many were dropped.
    pub number: u64,
    /// The instant at which it happened.
    pub at_ns: u64,
    /// Records in debt that were given to new agents so far.
    pub lossy_evictions: u64,
    /// New agents that were refused so far.
    pub refused: u64,
    /// How many agents.
    pub agents: u64,
    /// What was left. UINT64_MAX if the agent is exempt.
    pub remaining: u64,
    /// Violations without a quiet period between them.
    pub violations_in_a_row: u32,
    /// The lane.
    pub lane: u32,
    /// The answer.
    pub decision: Decision,
    /// The agent.
    pub agent: AgentId,
    /// The action's channel, NUL-terminated, truncated to 64 bytes.
    pub channel: [c_char; TOLLGATE_ACTION_BYTES],
    /// The action's name, NUL-terminated, truncated to 64 bytes.
    pub action: [c_char; TOLLGATE_ACTION_BYTES],
}

const _: () = assert!(size_of::<Event>() == 472);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Event {
    const SIZE_MIN: u32 = 472;
}

impl Event {
    fn none(struct_size: u32) -> Self {
        Self {
            struct_size,
            kind: EventType::None as i32,
            number: 0,
            at_ns: 0,
            lossy_evictions: 0,
            refused: 0,
            agents: 0,
            remaining: 0,
            violations_in_a_row: 0,
            lane: 0,
            decision: Decision::Deny,
            agent: AgentId::new(&[]),
            channel: text_array(""),
            action: text_array(""),
        }
    }

    fn new(struct_size: u32, event: &tollgate::observe::Event) -> Self {
        let of = Self { number: event.number, at_ns: event.at.as_nanos(), ..Self::none(struct_size) };
        let (kind, event) = match &event.kind {
            EventKind::SustainedAbuse { agent, in_a_row } => {
                let agent = AgentId::new(agent);
                (EventType::SustainedAbuse, Self { agent, violations_in_a_row: *in_a_row, ..of })
            }
            EventKind::UnknownAction { channel, action } => {
                let (channel, action) = (text_array(channel), text_array(action));
                (EventType::UnknownAction, Self { channel, action, ..of })
            }
            EventKind::Saturated { lossy_evictions, refused } => {
                (EventType::Saturated, Self { lossy_evictions: *lossy_evictions, refused: *refused, ..of })
            }
            EventKind::PolicyReplaced => (EventType::PolicyReplaced, of),
            EventKind::AssignmentChanged { agent } => {
                (EventType::AssignmentChanged, Self { agent: AgentId::new(agent), ..of })
            }
            EventKind::AssignmentsChanged { agents } => (EventType::AssignmentsChanged, Self { agents: *agents, ..of }),
            EventKind::ClockFellBack => (EventType::ClockFellBack, of),
            EventKind::Checked { agent, lane, decision, remaining } => {
                let (lane, decision) = (lane.number(), (*decision).into());
                (EventType::Checked, Self { agent: AgentId::new(agent), lane, decision, remaining: *remaining, ..of })
            }
        };
        Self { kind: kind as i32, ..event }
    }
}

/// Takes the oldest event. If there is no event, as always without
/// TOLLGATE_OBSERVE_ON, the kind is TOLLGATE_EVENT_TYPE_NONE. Any number of threads
/// may poll; each event goes to one of them.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `event_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_poll_event(limiter: *mut Limiter, event_out: *mut Event) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (event_out, struct_size) = unsafe { tagged_out(event_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let event = unsafe { borrow(limiter) }?.0.poll_event();
        let event = event.map_or_else(|| Event::none(struct_size), |event| Event::new(struct_size, &event));
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { event_out.write(event) };
        Ok(())
    })
}
