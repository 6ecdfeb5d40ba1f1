//! Events that an operator should know about, as they happen.
//!
//! Events go into a [`Ring`]: a push takes no lock, waits for no thread and
//! allocates nothing, so a check may do it. When the ring is full, a push drops
//! the oldest event and counts it.

use super::ring::Ring;
use super::unknown::cut;
use crate::Decision;
use crate::bounds::{EVENTS_KEPT, ID_BYTES_MAX, LANE_NAME_BYTES_MAX};
use crate::clock::Tick;
use crate::policy::LaneId;

/// Something that an operator should know about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Counts up from 0, by one per event. A gap shows how many were dropped in between.
    pub number: u64,
    /// When it happened.
    pub at: Tick,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// An agent's violations reached the policy's threshold. Reported once, and
    /// again only after a window without any.
    SustainedAbuse {
        /// The agent.
        agent: Vec<u8>,
        /// Its violations without a quiet period between them.
        in_a_row: u32,
    },
    /// An action that the policy does not name appeared for the first time.
    UnknownAction {
        /// Its channel, cut to 64 bytes.
        channel: String,
        /// Its name, cut to 64 bytes.
        action: String,
    },
    /// A new agent found no record without taking one from an agent in debt, or
    /// none at all. Reported at most once a minute.
    Saturated {
        /// Records given up so far.
        lossy_evictions: u64,
        /// New agents refused so far.
        refused: u64,
    },
    /// Another policy was put in force.
    PolicyReplaced,
    /// One agent's assignment has changed: plan, override or exemption.
    AssignmentChanged {
        /// The agent.
        agent: Vec<u8>,
    },
    /// The assignments of several agents have changed in one call.
    AssignmentsChanged {
        /// How many.
        agents: u64,
    },
    /// The clock found that the processor's counter disagrees with the
    /// operating system, and gave it up. Reported by the next poll.
    ClockFellBack,
    /// A sampled check: see [`Observe::sample_every`](crate::observe::Observe::sample_every).
    Checked {
        /// The agent.
        agent: Vec<u8>,
        /// The lane.
        lane: LaneId,
        /// The answer.
        decision: Decision,
        /// What was left; `u64::MAX` for an exempt agent.
        remaining: u64,
    },
}

/// An event on its way into the ring, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note<'a> {
    SustainedAbuse { agent: &'a [u8], in_a_row: u32 },
    UnknownAction { channel: &'a str, action: &'a str },
    Saturated { lossy_evictions: u64, refused: u64 },
    PolicyReplaced,
    AssignmentChanged { agent: &'a [u8] },
    AssignmentsChanged { agents: u64 },
    ClockFellBack,
    Checked { agent: &'a [u8], lane: LaneId, decision: Decision, remaining: u64 },
}

/// Words of an event before its texts: its kind and the lengths of its two
/// texts, when it happened, two numbers.
const HEAD: usize = 4;
const TEXT_BYTES: usize = if ID_BYTES_MAX > 2 * LANE_NAME_BYTES_MAX { ID_BYTES_MAX } else { 2 * LANE_NAME_BYTES_MAX };
const WORDS: usize = HEAD + TEXT_BYTES.div_ceil(8);

const KIND_BITS: u32 = 8;
const LENGTH_BITS: u32 = 16;

/// The queue of events.
pub(crate) struct Events(Ring<WORDS>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(Ring::new(EVENTS_KEPT))
    }

    /// Adds an event. Takes no lock and allocates nothing.
    pub(crate) fn push(&self, at: Tick, note: Note<'_>) {
        let nothing: &[u8] = &[];
        let (kind, numbers, first, second) = match note {
            Note::SustainedAbuse { agent, in_a_row } => (0, [in_a_row.into(), 0], agent, nothing),
            Note::UnknownAction { channel, action } => (1, [0; 2], cut(channel).as_bytes(), cut(action).as_bytes()),
            Note::Saturated { lossy_evictions, refused } => (2, [lossy_evictions, refused], nothing, nothing),
            Note::PolicyReplaced => (3, [0; 2], nothing, nothing),
            Note::AssignmentChanged { agent } => (4, [0; 2], agent, nothing),
            Note::AssignmentsChanged { agents } => (5, [agents, 0], nothing, nothing),
            Note::ClockFellBack => (6, [0; 2], nothing, nothing),
            Note::Checked { agent, lane, decision, remaining } => {
                (7, [u64::from(lane.number()) << KIND_BITS | decision as u64, remaining], agent, nothing)
            }
        };
        let what = (second.len() as u64) << (KIND_BITS + LENGTH_BITS) | (first.len() as u64) << KIND_BITS | kind;
        let [one, two] = numbers;
        let length = first.len() + second.len();
        // Word by word, the texts one after the other.
        let text = (0..length).step_by(8).map(|start| {
            let byte = |at: usize| first.get(at).or_else(|| second.get(at.wrapping_sub(first.len()))).copied();
            u64::from_le_bytes(std::array::from_fn(|i| byte(start + i).unwrap_or(0)))
        });
        self.0.push([what, at.as_nanos(), one, two].into_iter().chain(text));
    }

    /// The oldest event, if there is one.
    pub(crate) fn poll(&self) -> Option<Event> {
        let (number, words) = self.0.poll()?;
        let [what, at, one, two] = [words[0], words[1], words[2], words[3]];
        let bytes: Vec<u8> = words[HEAD..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let length = |shift: u32| (what >> shift & ((1 << LENGTH_BITS) - 1)) as usize;
        let (first, second) = (length(KIND_BITS), length(KIND_BITS + LENGTH_BITS));
        let agent = || bytes[..first].to_vec();
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&bytes[range]).into_owned();
        let kind = match what & ((1 << KIND_BITS) - 1) {
            0 => EventKind::SustainedAbuse { agent: agent(), in_a_row: one as u32 },
            1 => EventKind::UnknownAction { channel: text(0..first), action: text(first..first + second) },
            2 => EventKind::Saturated { lossy_evictions: one, refused: two },
            3 => EventKind::PolicyReplaced,
            4 => EventKind::AssignmentChanged { agent: agent() },
            5 => EventKind::AssignmentsChanged { agents: one },
            6 => EventKind::ClockFellBack,
            _ => EventKind::Checked {
                agent: agent(),
                lane: LaneId::new((one >> KIND_BITS) as u32),
                decision: super::DECISIONS[(one & 3) as usize],
                remaining: two,
            },
        };
        Some(Event { number, at: Tick::from_nanos(at), kind })
    }

    /// How many events were dropped before they were polled.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(note: Note<'_>) -> EventKind {
        let events = Events::new();
        events.push(Tick::from_nanos(5), Note::ClockFellBack);
        events.push(Tick::from_nanos(9), note);
        assert_eq!(events.poll().unwrap().kind, EventKind::ClockFellBack);
        let event = events.poll().unwrap();
        assert_eq!((event.number, event.at), (1, Tick::from_nanos(9)));
        assert_eq!((events.poll(), events.dropped()), (None, 0));
        event.kind
    }

    #[test]
    fn each_kind_is_polled_as_it_was_pushed() {
        let agent = vec![0xff; ID_BYTES_MAX];
        let lane = LaneId::new(61);
        assert_eq!(
            round_trip(Note::Saturated { lossy_evictions: u64::MAX, refused: 7 }),
            EventKind::Saturated { lossy_evictions: u64::MAX, refused: 7 }
        );
        assert_eq!(round_trip(Note::PolicyReplaced), EventKind::PolicyReplaced);
        assert_eq!(round_trip(Note::AssignmentsChanged { agents: 3 }), EventKind::AssignmentsChanged { agents: 3 });
        assert_eq!(round_trip(Note::ClockFellBack), EventKind::ClockFellBack);
        assert_eq!(round_trip(Note::AssignmentChanged { agent: &agent }), EventKind::AssignmentChanged { agent });
        for decision in super::super::DECISIONS {
            assert_eq!(
                round_trip(Note::Checked { agent: b"a", lane, decision, remaining: u64::MAX }),
                EventKind::Checked { agent: b"a".to_vec(), lane, decision, remaining: u64::MAX }
            );
        }
        let (long, wide) = ("x".repeat(65), format!("{}\u{1F980}", "y".repeat(63)));
        assert_eq!(
            round_trip(Note::UnknownAction { channel: &long, action: &wide }),
            EventKind::UnknownAction { channel: "x".repeat(64), action: "y".repeat(63) }
        );
    }

    proptest! {
        #[test]
        fn any_id_and_any_names_are_polled_as_they_were_pushed(
            agent in proptest::collection::vec(any::<u8>(), 1..=ID_BYTES_MAX),
            in_a_row: u32,
            channel in ".{0,10}",
            action in ".{0,16}",
        ) {
            prop_assert_eq!(
                round_trip(Note::SustainedAbuse { agent: &agent, in_a_row }),
                EventKind::SustainedAbuse { agent, in_a_row }
            );
            prop_assert_eq!(
                round_trip(Note::UnknownAction { channel: &channel, action: &action }),
                EventKind::UnknownAction { channel, action }
            );
        }
    }
}
