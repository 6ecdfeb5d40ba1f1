//! What a limiter holds, in numbers.

/// What a limiter holds and has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Agents that have a record now. An idle agent keeps its record until a
    /// newcomer needs it or a sweep takes it.
    pub agents: u64,
    /// Records in all.
    pub records: u64,
    /// Records given to agents since the start.
    pub claims: u64,
    /// Idle records taken for newcomers or swept: nothing was lost.
    pub idle_evictions: u64,
    /// Records in debt given up for newcomers: their agents may return with
    /// fresh buckets.
    pub lossy_evictions: u64,
    /// Exchanges that were lost to another thread and tried again.
    pub retries: u64,
    /// Reservations that are open now.
    pub reservations: u64,
    /// Reservations that expired before they were settled: their estimates
    /// stay charged. Counted when their slots are freed.
    pub reservations_expired: u64,
    /// Reservations that were refused because the agent had too many, or all
    /// slots were taken.
    pub reservations_refused: u64,
}
