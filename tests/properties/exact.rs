//! The oracle: a textbook token bucket in exact arithmetic.
//!
//! It keeps a level and the instant of that level. Levels are in fractions of a
//! token: a token is `period` parts and a nanosecond refills `tokens` parts, so
//! nothing is ever rounded. Every number in range fits: at most 2^62 * 2^62
//! parts.

/// A bucket that holds `capacity` tokens and refills `tokens` every `period` nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    tokens: i128,
    period: i128,
    capacity: i128,
    level: i128,
    at: i128,
}

impl Exact {
    pub(crate) fn new(tokens: u64, period: u64, capacity: u64) -> Self {
        let (tokens, period, capacity) = (tokens.into(), period.into(), capacity.into());
        Self { tokens, period, capacity, level: capacity * period, at: 0 }
    }

    fn brim(&self) -> i128 {
        self.capacity * self.period
    }

    /// The level at `now`. Before the last change, it is the level minus the
    /// refill since, even below zero: only stricter.
    fn level(&self, now: u64) -> i128 {
        (self.level + (i128::from(now) - self.at) * self.tokens).min(self.brim())
    }

    fn put(&mut self, now: u64, level: i128) {
        (self.level, self.at) = (level, now.into());
    }

    /// How long until the bucket holds `level`.
    fn wait(&self, now: u64, level: i128) -> u64 {
        let missing = (level - self.level(now)).max(0);
        u64::try_from((missing + self.tokens - 1) / self.tokens).expect("a wait within the range")
    }

    /// Whole tokens at `now`.
    pub(crate) fn remaining(&self, now: u64) -> u64 {
        u64::try_from(self.level(now).max(0) / self.period).expect("at most the capacity")
    }

    /// Whether the bucket holds `cost` tokens at `now`.
    pub(crate) fn affords(&self, now: u64, cost: u64) -> bool {
        self.level(now) >= i128::from(cost) * self.period
    }

    /// Nanoseconds until it does.
    pub(crate) fn retry_after(&self, now: u64, cost: u64) -> u64 {
        self.wait(now, i128::from(cost) * self.period)
    }

    /// Nanoseconds until it is full.
    pub(crate) fn full_in(&self, now: u64) -> u64 {
        self.wait(now, self.brim())
    }

    pub(crate) fn charge(&mut self, now: u64, cost: u64) {
        let taken = i128::from(cost) * self.period;
        // Charged at the later instant: a step back gives no time twice.
        let (now, level) =
            if i128::from(now) < self.at { (self.at, self.level) } else { (now.into(), self.level(now)) };
        (self.level, self.at) = (level - taken, now);
    }

    pub(crate) fn refund(&mut self, now: u64, cost: u64) {
        let level = self.level(now);
        if level < self.brim() {
            self.put(now, (level + i128::from(cost) * self.period).min(self.brim()));
        }
    }

    pub(crate) fn reset(&mut self, now: u64) {
        if self.level(now) < self.brim() {
            self.put(now, self.brim());
        }
    }

    /// The instant of the last change; before it, a level is not well defined.
    pub(crate) fn changed_at(&self) -> u64 {
        u64::try_from(self.at).expect("an instant")
    }
}
