//! What all machines together may have admitted to one agent.
//!
//! In any window: as a bucket that is larger than the limit's by what machines may hold and spend in advance. What an
//! event allows in addition may be used once, at any time after it.
//!
//! Two such buckets are compared. Of what is spent in a window, each token was granted in it, or is owed at its end,
//! or was held at its start: that is at most what machines may hold, and it was granted shortly before.

use crate::scenario::Scenario;

/// The longest that credit lies from the instant at which the server grants it: what it may take to arrive, and then as
/// long as it lives, on a clock that does not stop.
const CREDIT_LIES_NS: i128 = 350_000_000 + (4 << 28);

struct Bucket {
    depth_ns: i128,
    debt_ns: i128,
    /// What events have allowed, and is not used.
    extra_ns: i128,
}

impl Bucket {
    /// By how much more than is allowed was admitted, in nanoseconds of refill.
    fn admit(&mut self, passed_ns: i128, admitted_ns: i128) -> i128 {
        self.debt_ns = (self.debt_ns - passed_ns).max(0) + admitted_ns;
        let beyond = (self.debt_ns - self.depth_ns).max(0);
        self.extra_ns -= beyond;
        self.debt_ns -= beyond;
        (-self.extra_ns).max(0)
    }
}

/// The bound of one agent.
pub(crate) struct Bound {
    at_us: u64,
    token_ns: i128,
    /// With what machines may hold, and with what was granted shortly before.
    held: Bucket,
    granted: Bucket,
    /// All that was admitted, in nanoseconds of refill.
    pub(crate) admitted_ns: i128,
}

impl Bound {
    pub(crate) fn new(scenario: &Scenario, now_us: u64) -> Self {
        let ns = |tokens: u64| i128::from(tokens) * i128::from(scenario.token_ns);
        let (nodes, depth) = (scenario.nodes as u64, ns(scenario.capacity));
        let bucket = |depth_ns| Bucket { depth_ns, debt_ns: 0, extra_ns: 0 };
        let advance = ns(nodes * scenario.advance_max());
        // Machines that hear late that others have joined hold their larger part until then; and a clock that stops
        // lets credit lie longer.
        let is_steady = scenario.nodes_at_least == scenario.nodes && !scenario.pauses;
        let lies = if is_steady { CREDIT_LIES_NS + ns(1) } else { i128::MAX / 2 };
        Self {
            at_us: now_us,
            token_ns: i128::from(scenario.token_ns),
            held: bucket(depth + advance + ns(nodes * scenario.credit_max())),
            granted: bucket(depth + advance + lies),
            admitted_ns: 0,
        }
    }

    /// Something has happened that allows more, once.
    pub(crate) fn allow(&mut self, ns: u128) {
        let ns = i128::try_from(ns).unwrap_or(i128::MAX / 4);
        self.held.extra_ns += ns;
        self.granted.extra_ns += ns;
    }

    /// The error says by how much too many were admitted.
    pub(crate) fn admit(&mut self, now_us: u64, tokens: u64) -> Result<(), String> {
        let (passed, admitted) = (i128::from(now_us - self.at_us) * 1_000, i128::from(tokens) * self.token_ns);
        self.at_us = now_us;
        self.admitted_ns += admitted;
        for (name, bucket) in [("held", &mut self.held), ("granted", &mut self.granted)] {
            let beyond = bucket.admit(passed, admitted);
            if beyond > 0 {
                let in_tokens = |ns: i128| ns as f64 / self.token_ns as f64;
                let most = in_tokens(bucket.depth_ns);
                return Err(format!("{:.3} tokens more than {most:.2} at once ({name})", in_tokens(beyond)));
            }
        }
        Ok(())
    }
}
