//! What is counted for each rule, as envoyproxy/ratelimit counts it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The hits of a rule. Every one only grows.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    total: AtomicU64,
    within_limit: AtomicU64,
    near_limit: AtomicU64,
    over_limit: AtomicU64,
    shadow_mode: AtomicU64,
}

impl Counters {
    /// Their names in metrics, with what they count.
    pub(crate) const NAMES: [(&'static str, &'static str); 5] = [
        ("hits", "Hits that Envoy asked for, by rule."),
        ("within_limit", "Hits that were charged, by rule."),
        ("near_limit", "Hits that were charged beyond four fifths of the limit, by rule."),
        ("over_limit", "Hits for which the limit had no room, by rule."),
        ("shadow_mode", "Hits over the limit that passed in shadow mode, by rule."),
    ];

    /// Their values, in the order of the names.
    pub(crate) fn values(&self) -> [u64; 5] {
        let Self { total, within_limit, near_limit, over_limit, shadow_mode } = self;
        [total, within_limit, near_limit, over_limit, shadow_mode].map(|count| count.load(Relaxed))
    }

    /// Hits that were asked for.
    pub(super) fn asked(&self, hits: u64) {
        self.total.fetch_add(hits, Relaxed);
    }

    /// Hits that were charged, after which this much of the capacity was left.
    pub(super) fn charged(&self, hits: u64, capacity: u64, remaining: u64) {
        self.within_limit.fetch_add(hits, Relaxed);
        let near = capacity.saturating_sub(remaining).saturating_sub(threshold(capacity)).min(hits);
        if near > 0 {
            self.near_limit.fetch_add(near, Relaxed);
        }
    }

    /// Hits that did not fit, and whether the request passed all the same.
    pub(super) fn denied(&self, hits: u64, is_shadow: bool) {
        self.over_limit.fetch_add(hits, Relaxed);
        if is_shadow {
            self.shadow_mode.fetch_add(hits, Relaxed);
        }
    }
}

/// Up to here hits are not near the limit: the ratio of 0.8 that is envoyproxy/ratelimit's default.
fn threshold(capacity: u64) -> u64 {
    // Lossless: less than the capacity.
    (u128::from(capacity) * 4 / 5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fifth_is_near_the_limit() {
        let counters = Counters::default();
        for (hits, remaining, near) in [(1, 9, 0), (7, 2, 0), (1, 1, 1), (1, 0, 2)] {
            counters.charged(hits, 10, remaining);
            assert_eq!(counters.values()[2], near, "{hits}, {remaining}");
        }
        // Two of five at once.
        counters.charged(5, 10, 0);
        assert_eq!(counters.values(), [0, 15, 4, 0, 0]);
        counters.denied(3, false);
        counters.denied(2, true);
        assert_eq!(counters.values(), [0, 15, 4, 5, 2]);
    }
}
