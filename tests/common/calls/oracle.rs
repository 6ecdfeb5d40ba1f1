//! What a limiter has to answer, in plain arithmetic: each bucket is the
//! instant at which it is full.

use super::arguments::Agent;
use super::reservations::Open;
use std::collections::{BTreeMap, BTreeSet};
use tollgate::ffi::{Decision, LaneState, Limiter, Status, TOLLGATE_NEVER, Verdict};

/// The last instant there is.
pub(super) const TIME_MAX: u64 = (1 << 60) - 1;
/// More agents than this may not all find a record in the smallest limiter.
pub(super) const CROWD: usize = 60;

/// A lane as the oracle knows it.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) token_ns: u64,
    pub(super) capacity: u64,
}

impl Lane {
    pub(super) fn bucket(tokens: u64, per_ns: u64, capacity: u64) -> Self {
        Self { token_ns: per_ns.div_ceil(tokens.max(1)).max(1), capacity }
    }

    pub(super) fn depth(&self) -> u64 {
        self.capacity * self.token_ns
    }

    /// What a cost takes, or why it cannot be asked.
    pub(super) fn price(&self, cost: u64) -> Result<u64, Status> {
        match cost {
            0 => Err(Status::ZeroCost),
            _ if self.capacity == 0 => Ok(1),
            _ if cost > self.capacity => Err(Status::CostAboveCapacity),
            _ => Ok(cost * self.token_ns),
        }
    }

    /// The verdict on a bucket, and when it is full after it.
    pub(super) fn check(&self, full_at: u64, now: u64, price: u64, warn_percent: u64) -> (Verdict, u64) {
        let next = full_at.max(now) + price;
        let debt = next - now;
        let allowed = debt <= self.depth() && next <= TIME_MAX;
        let warn_below = (self.capacity * warn_percent).div_ceil(100) * self.token_ns;
        let decision = match allowed {
            true if self.depth() - debt < warn_below => Decision::Warn,
            true => Decision::Allow,
            false => Decision::Deny,
        };
        let retry_after_ns = match allowed {
            true => 0,
            false if debt > self.depth() && self.capacity > 0 => debt - self.depth(),
            false => TOLLGATE_NEVER,
        };
        let verdict = Verdict {
            status: Status::Ok,
            decision,
            capacity: self.capacity,
            retry_after_ns,
            lane_wait_ns: retry_after_ns,
            conduct_wait_ns: 0,
            full_in_ns: if allowed { debt } else { debt - price },
            token_ns: self.token_ns,
            count_left: 0,
            violations_in_a_row: 0,
            sustained_abuse: 0,
            source: 0,
        };
        (verdict, if allowed { next } else { full_at })
    }

    pub(super) fn state(&self, full_at: u64, now: u64) -> LaneState {
        let debt = full_at.saturating_sub(now);
        let left = self.depth().saturating_sub(debt);
        let remaining = left / self.token_ns;
        let next_left = (remaining + 1).min(self.capacity) * self.token_ns;
        LaneState {
            struct_size: size_of::<LaneState>() as u32,
            exempt: 0,
            remaining,
            capacity: self.capacity,
            next_in_ns: if remaining == self.capacity { TOLLGATE_NEVER } else { debt + next_left - self.depth() },
            full_in_ns: debt,
        }
    }
}

/// A limiter, with what it must know.
pub(super) struct Watched {
    pub(super) limiter: *mut Limiter,
    pub(super) lanes: Vec<Option<Lane>>,
    pub(super) warn_percent: u64,
    /// Whether its memory is such that other processes could share it.
    pub(super) shared: bool,
    pub(super) deny_on_full: bool,
    /// Whether its time is the manual clock's.
    pub(super) manual: bool,
    pub(super) full_at: BTreeMap<(Vec<u8>, u32), u64>,
    pub(super) agents: BTreeSet<Vec<u8>>,
    /// Those about whom something was decided: their limits are not the lanes' own.
    pub(super) decided: BTreeSet<Vec<u8>>,
    /// The latest instant so far, and whether there was never an older one after it.
    pub(super) latest: u64,
    pub(super) exact: bool,
    /// Whether anybody brought an instant ahead of the clock: to whom it is
    /// late, others look idle, and in a crowd that costs them their records.
    pub(super) ahead: bool,
    /// Reservations that were made and not settled, and how many may be open at once.
    pub(super) open: Vec<Open>,
    pub(super) reservations_max: usize,
    /// Whether one agent may have fewer of them open than usual.
    pub(super) few_per_agent: bool,
}

impl Watched {
    /// Notes that somebody asks at this instant.
    pub(super) fn at(&mut self, now: u64, clock: u64) {
        self.exact &= now >= self.latest;
        self.ahead |= now > clock;
        self.latest = self.latest.max(now);
    }

    /// Whether the oracle knows nothing of the agent's limits.
    pub(super) fn is_decided(&self, agent: &Agent) -> bool {
        agent.fault().is_none() && self.decided.contains(agent.key())
    }

    /// Whether the oracle can say what is too much.
    pub(super) fn is_judged(&self) -> bool {
        self.manual && (self.agents.len() < CROWD || self.deny_on_full && !self.ahead)
    }

    /// Forgets who was idle at that instant, as a sweep does.
    pub(super) fn sweep(&mut self, since: u64) {
        let in_debt: BTreeSet<Vec<u8>> =
            self.full_at.iter().filter(|(_, full_at)| **full_at > since).map(|((id, _), _)| id.clone()).collect();
        self.full_at.retain(|(id, _), _| in_debt.contains(id));
    }

    pub(super) fn is_exact(&self) -> bool {
        self.is_judged() && self.exact && self.agents.len() < CROWD
    }

    pub(super) fn full_at(&self, id: &[u8], lane: u32) -> u64 {
        self.full_at.get(&(id.to_vec(), lane)).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, id: &[u8], lane: u32, full_at: u64) {
        self.full_at.insert((id.to_vec(), lane), full_at);
    }

    /// Fills one lane as of `now`, or gives `price` back.
    pub(super) fn give_back(&mut self, id: &[u8], lane: u32, price: u64, now: u64) -> u64 {
        let full_at = self.full_at(id, lane);
        let target = full_at.saturating_sub(price).max(now).min(full_at);
        self.set(id, lane, target);
        target
    }
}

/// Texts of limits, with tokens, nanoseconds and capacity.
pub(super) const KNOWN_LIMITS: [(&str, (u64, u64, u64)); 6] = [
    ("1000/s", (1000, 1_000_000_000, 1000)),
    ("7/min burst 3", (7, 60_000_000_000, 3)),
    ("5 per 5 minutes", (5, 300_000_000_000, 5)),
    ("1/day", (1, 86_400_000_000_000, 1)),
    ("1_000_000_000/s burst 9", (1_000_000_000, 1_000_000_000, 9)),
    ("deny", (1, 1, 0)),
];

/// Limits that are no buckets: the oracle knows nothing of their lanes.
pub(super) const OTHER_LIMITS: [&str; 4] = ["window 5/min", "exact 3/min", "budget 9/hour", "held 2"];

/// The numbers of a limit's text, if it is one of these.
pub(super) fn known_limit(text: &[u8]) -> Option<Lane> {
    let (_, (tokens, per_ns, capacity)) = KNOWN_LIMITS.iter().find(|(known, _)| known.as_bytes() == text)?;
    Some(Lane::bucket(*tokens, *per_ns, *capacity))
}
