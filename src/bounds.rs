//! Every capacity and maximum, with its reason.

use std::time::Duration;

/// The longest agent id, in bytes. Bounds the hash key and the time to hash.
pub const ID_BYTES_MAX: usize = 256;

/// The most lanes a policy may have: with a word each (buckets, budgets, held
/// slots) they fill a record of 64 words.
pub const LANES_MAX: usize = 62;

/// The most words that the lanes of a policy may take together: a record of
/// 256 words, 2 KB, less its tag word and its conduct word. An exact window
/// takes one for each permit, a window two, every other kind one.
pub const LANE_WORDS_MAX: usize = RECORD_WORDS_MAX - RECORD_WORDS_RESERVED;

/// The longest name of a lane, plan or action, in bytes, so that errors and
/// metrics stay readable.
pub const LANE_NAME_BYTES_MAX: usize = 64;

/// The most plans a policy may have, `default` among them. Each takes two rows
/// in the table of limits: one in use, one for the policy that replaces it.
pub const PLANS_MAX: usize = 256;

/// The most agents that may have overrides at once. Each takes a row of the
/// table of limits, which a tag word numbers with 16 bits.
pub const OVERRIDES_MAX: usize = 65_000;

/// The most actions a policy may name: a search takes 12 steps.
pub const ACTIONS_MAX: usize = 4_096;

/// How many names of unknown actions are kept. Others are only counted.
pub(crate) const UNKNOWN_ACTIONS_MAX: usize = 256;

/// How many events wait to be polled. One more overwrites the oldest.
pub const EVENTS_KEPT: usize = if cfg!(loom) { 2 } else { 1_024 };

/// How many agents that violate limits are counted. An agent's count is wrong by
/// at most this share of all violations: one in 128.
pub const OFFENDERS_KEPT: usize = 128;

/// How many agents a [`LogThrottle`](crate::observe::LogThrottle) tracks at a time.
pub const THROTTLED_AGENTS_MAX: usize = 1_024;

/// The most agents that a roster has room for: 272 bytes of address space each.
pub const ROSTER_MAX: usize = 1 << 20;

/// The most agents on one page of a list.
pub const PAGE_MAX: usize = 200;

/// The longest curve of waits: the conduct word counts violations in a row
/// with four bits.
pub const CURVE_STEPS_MAX: usize = 15;

/// How many denials of an agent within one moment are taken for parallel
/// workers, each of which will then wait. A word counts them with four bits.
pub(crate) const PARALLEL_MAX: u64 = 15;

/// The same in the second half of a wait of a second or more.
pub(crate) const PARALLEL_LATE_MAX: u64 = 8;

/// How many announced waits are remembered: 64 kB. An agent whose wait was
/// overwritten is judged as if it had been given none.
pub(crate) const WAITS_KEPT: usize = if cfg!(loom) { 1 } else { 8_192 };

/// About how many exempt agents are found without a lock: 64 kB. Others are
/// just as exempt, but each of their checks takes a lock.
pub(crate) const EXEMPT_KEPT: usize = if cfg!(loom) { 1 } else { 8_192 };

/// How many warnings are remembered where a policy warns once: 512 kB. An agent
/// whose warning was overwritten is warned once more.
pub(crate) const WARNED_KEPT: usize = if cfg!(loom) { 1 } else { 65_536 };

/// The longest quiet period, and the longest wait of a curve.
pub const QUIET_MAX: Duration = Duration::from_secs(86_400);

/// The highest threshold of violations for sustained abuse: the conduct word
/// counts them with six bits.
pub const ABUSE_VIOLATIONS_MAX: u32 = 63;

/// The longest window for sustained abuse: the conduct word holds its age in 15
/// bits, as eighths of a second.
pub const ABUSE_WINDOW_MAX: Duration = Duration::from_secs(4_095);

/// The largest capacity (burst) of a lane, in tokens.
pub const CAPACITY_MAX: u64 = 1_000_000_000_000;

/// The fastest refill, in tokens per second: one token per nanosecond tick.
pub const TOKENS_PER_SECOND_MAX: u64 = 1_000_000_000;

/// A full refill takes less than this: ten years of 365.25 days. 60 bits of
/// nanoseconds hold 36 years, so a limiter can run for 26 years before it
/// reaches the end of the range (and then it denies).
pub const REFILL_MAX: Duration = Duration::from_secs(315_576_000);

/// How deep a dynamic lane without a default is taken to be when records are
/// ranked by what they would lose: most limits that calls bring are of about a
/// minute. `lane/dynamic.rs` says why no depth lets more pass.
pub(crate) const DYNAMIC_DEPTH: Duration = Duration::from_secs(60);

/// The shortest window: a shorter one would leave its word no room to count.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);

/// The longest window: the longest month. A verdict holds the length in seconds,
/// in 22 bits.
pub const WINDOW_MAX: Duration = Duration::from_secs(31 * 86_400);

/// The most permits of an exact window. Each takes a word of every record. With
/// this many a record is 2 KB, and a denial reads 1 KB of it.
pub const EXACT_MAX: u64 = 128;

/// The most slots that an agent may hold at once: 20 bits of a word.
pub const HELD_MAX: u64 = (1 << 20) - 1;

/// A shared slab has room for as many calls that hold slots as for agents, and at least for this many: 512 kB. A
/// private limiter has no such bound.
#[cfg(feature = "shared")]
pub const HOLDS_MIN: u64 = 16_384;

/// A shared slab has room for at most this many calls that hold slots: 128 MB.
pub const HOLDS_MAX: u64 = 1 << 22;

/// The farthest that a zone is from UTC, in minutes: 14 hours, as on the Line Islands.
pub const ZONE_MINUTES_MAX: i16 = 14 * 60;

/// The most agents a limiter may be built for. 2^30 agents of six lanes
/// reserve 93 GB of address space.
pub const AGENTS_MAX: u64 = 1 << 30;

/// How many agents a limiter holds by default.
pub const AGENTS_DEFAULT: u64 = 1_000_000;

/// The most requests in one call of [`check_many`](crate::Limiter::check_many).
pub const BATCH_MAX: usize = 1 << 20;

/// The most parts of one call of [`check_all`](crate::Limiter::check_all).
pub const PARTS_MAX: usize = 16;

/// The most reservations that may be open at once; an id numbers them with 24 bits.
pub const RESERVATIONS_MAX: usize = 1 << 24;

/// How many reservations may be open by default: 1 MB.
pub const RESERVATIONS_DEFAULT: usize = if cfg!(loom) { 2 } else { 16_384 };

/// The size of an open reservation.
pub(crate) const RESERVATION_BYTES: usize = 64;

/// By default one agent may have one in this many of all reservations open: 256
/// of 16,384. One agent within its limit must not use up what all agents need.
pub(crate) const RESERVATIONS_SHARE: usize = 64;

/// An agent may have this many open even in a small table.
pub(crate) const RESERVATIONS_PER_AGENT_MIN: usize = 16;

/// A settlement may use at most this many times the lane's capacity beyond what was
/// reserved. More must be a mistake, such as a wrong unit, and would leave a
/// bucket in debt for years.
pub const OVERSPEND_MAX: u64 = 100;

/// The most processes that may share a slab at once: each takes a cache line of it, and one that asks who is dead
/// asks about each.
pub const PROCESSES_MAX: usize = 1_024;

/// The layout of a shared file. It is part of the file's name, so raise it with every change of the layout.
#[cfg(feature = "shared")]
pub(crate) const SHARED_LAYOUT: u64 = 1;

/// The room for a policy's text in a shared slab: four times what the first one takes, within these bounds.
#[cfg(feature = "shared")]
pub(crate) const POLICY_BYTES_MIN: usize = 64 << 10;
#[cfg(feature = "shared")]
pub(crate) const POLICY_BYTES_MAX: usize = 16 << 20;

/// How many questions to the store that machines share lanes through may wait: 3.5 MB, or less in a limiter for few
/// agents.
#[cfg(feature = "cluster")]
pub(crate) const ASKS_KEPT: usize = if cfg!(loom) { 2 } else { 1 << 16 };
/// How many agents whose assignments have changed are named to an engine. When more change before it looks, it compares
/// all assignments instead.
#[cfg(feature = "cluster")]
pub(crate) const CHANGED_AGENTS_MAX: usize = 4_096;
#[cfg(feature = "cluster")]
pub(crate) const ASKS_MIN: u64 = if cfg!(loom) { 2 } else { 1 << 10 };

/// How long a newcomer waits for locks that other processes hold: one region's, or those of two.
pub(crate) const CLAIM_WITHIN: Duration = Duration::from_millis(2);

/// How long a control call waits for one.
pub(crate) const CONTROL_WITHIN: Duration = Duration::from_secs(2);

/// The share of records that are occupied when a limiter has the number of agents
/// it was built for. At 3/4, with a neighbourhood of 96 records, about one
/// agent in 10,000 finds no vacant record.
pub(crate) const LOAD_NUMERATOR: u64 = 3;
pub(crate) const LOAD_DENOMINATOR: u64 = 4;

/// The words of a record that are not lanes: the tag and the conduct word.
pub(crate) const RECORD_WORDS_RESERVED: usize = 2;
pub(crate) const RECORD_WORDS_MIN: usize = 4;
pub(crate) const RECORD_WORDS_MAX: usize = 256;

/// How many victims a newcomer tries to inherit from before it gets
/// [`Full`](crate::Error::Full). A try fails only if the victim comes back in
/// the nanoseconds between being chosen and being replaced.
pub(crate) const LOSSY_TRIES_MAX: usize = 8;
