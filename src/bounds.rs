//! Every capacity and maximum, with its reason.

use std::time::Duration;

/// The longest agent id, in bytes. Bounds the hash key and the time to hash.
pub const ID_BYTES_MAX: usize = 256;

/// The most lanes a policy may have: buckets, budgets and held slots of so
/// many lanes, a word each, fill a record of 64 words.
pub const LANES_MAX: usize = 62;

/// The most words that the lanes of a policy may take together: a record of
/// 256 words, 2 KB, less its tag word and its conduct word. An exact window
/// takes as many as it has permits, a window two, all others take one.
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

/// How many names of unknown actions are kept. The rest is only counted.
pub(crate) const UNKNOWN_ACTIONS_MAX: usize = 256;

/// How many events wait to be polled. The oldest goes when there are more.
pub const EVENTS_KEPT: usize = if cfg!(loom) { 2 } else { 1_024 };

/// How many agents are kept count of that violate limits, and in how many
/// parts of all violations such a count may be wrong by one.
pub const OFFENDERS_KEPT: usize = 128;

/// How many agents a [`LogThrottle`](crate::observe::LogThrottle) knows apart at a time.
pub const THROTTLED_AGENTS_MAX: usize = 1_024;

/// The most agents that a roster has room for: 272 bytes of address space each.
pub const ROSTER_MAX: usize = 1 << 20;

/// The most agents on one page of a list.
pub const PAGE_MAX: usize = 200;

/// The longest curve of waits: the conduct word counts violations in a row
/// with four bits.
pub const CURVE_STEPS_MAX: usize = 15;

/// How many denials of an agent at one moment are taken for those of parallel
/// workers, each of which will wait as asked. A word counts them with four bits.
pub(crate) const PARALLEL_MAX: u64 = 15;

/// The same in the second half of a wait of a second or more.
pub(crate) const PARALLEL_LATE_MAX: u64 = 8;

/// How many announced waits are remembered: 64 kB. An agent whose wait was
/// overwritten is judged as if none had been announced to it.
pub(crate) const WAITS_KEPT: usize = if cfg!(loom) { 1 } else { 8_192 };

/// How many exempt agents are found without a lock, about: 64 kB. One that has
/// no place there is as exempt, and each of its checks takes a lock.
pub(crate) const EXEMPT_KEPT: usize = if cfg!(loom) { 1 } else { 8_192 };

/// How many warnings are remembered where a policy warns once: 512 kB. An agent
/// whose warning was overwritten is warned once more.
pub(crate) const WARNED_KEPT: usize = if cfg!(loom) { 1 } else { 65_536 };

/// The longest quiet period, and the longest wait of a curve.
pub const QUIET_MAX: Duration = Duration::from_secs(86_400);

/// The most violations that abuse may be defined by: the conduct word counts
/// them with six bits.
pub const ABUSE_VIOLATIONS_MAX: u32 = 63;

/// The longest window in which violations make abuse: the conduct word holds
/// its age in 15 bits of eighths of a second.
pub const ABUSE_WINDOW_MAX: Duration = Duration::from_secs(4_095);

/// The largest capacity (burst) of a lane, in tokens.
pub const CAPACITY_MAX: u64 = 1_000_000_000_000;

/// The fastest refill, in tokens per second: one token per nanosecond tick.
pub const TOKENS_PER_SECOND_MAX: u64 = 1_000_000_000;

/// A full refill takes less than this: ten years of 365.25 days. Together
/// with the 36 years that 60 bits of nanoseconds hold, it leaves a limiter 26
/// years of uptime before the range bites (and then it denies).
pub const REFILL_MAX: Duration = Duration::from_secs(315_576_000);

/// The shortest window: a shorter one would leave its word no room to count.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);

/// The longest window: the longest month. A verdict tells lengths in 22 bits
/// of seconds.
pub const WINDOW_MAX: Duration = Duration::from_secs(31 * 86_400);

/// The most that an exact window lets through. Each takes a word of every
/// record, so at the most a record is 2 KB, and a denial looks at 1 KB of it.
pub const EXACT_MAX: u64 = 128;

/// The most slots that an agent may hold at once: 20 bits of a word.
pub const HELD_MAX: u64 = (1 << 20) - 1;

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

/// How many may be open by default: 1 MB.
pub const RESERVATIONS_DEFAULT: usize = if cfg!(loom) { 2 } else { 16_384 };

/// What an open reservation takes.
pub(crate) const RESERVATION_BYTES: usize = 64;

/// By default one agent may have this part of all reservations open: 256 of
/// 16,384. One agent within its limit must not use up what all agents need.
pub(crate) const RESERVATIONS_SHARE: usize = 64;

/// So many an agent may have open in a small table, too.
pub(crate) const RESERVATIONS_PER_AGENT_MIN: usize = 16;

/// A settlement may use at most this many times the lane's capacity beyond what was
/// reserved. More is no overspending but a mistake, of units say, and would
/// leave a bucket in debt for years.
pub const OVERSPEND_MAX: u64 = 100;

/// The share of records that are held when a limiter has the number of agents
/// it was built for. At 3/4, with a neighbourhood of 96 records, about one
/// agent in 10,000 finds no vacant record.
pub(crate) const LOAD_NUMERATOR: u64 = 3;
pub(crate) const LOAD_DENOMINATOR: u64 = 4;

/// Words of a record that are no lane: the tag and the conduct word.
pub(crate) const RECORD_WORDS_RESERVED: usize = 2;
pub(crate) const RECORD_WORDS_MIN: usize = 4;
pub(crate) const RECORD_WORDS_MAX: usize = 256;

/// How many victims a newcomer tries to inherit from before it is told
/// [`Full`](crate::Error::Full). A try fails only if the victim returned in
/// the nanoseconds between being chosen and being replaced.
pub(crate) const LOSSY_TRIES_MAX: usize = 8;
