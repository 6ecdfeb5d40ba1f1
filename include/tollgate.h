/*
 * tollgate: an exact, lock-free rate limiter.
 *
 * May agent A do this, on lane L, for cost C, now? A policy names lanes and
 * their limits; a limiter answers by them:
 *
 *     tollgate_policy_builder_new, _lane, _build   what is limited, and to what
 *     tollgate_limiter_new                         the memory for so many agents
 *     tollgate_limiter_check                       the question
 *     tollgate_limiter_admit                       the same, and denials are violations
 *     tollgate_limiter_check_all                   several at once, all or none
 *     tollgate_limiter_acquire, _release           what is held: connections, say
 *     tollgate_limiter_reserve, _commit            what costs what it costs only at the end
 *     tollgate_limiter_assign, _set_override, ...  what an operator decides about agents
 *
 * Rules that hold for every function:
 *
 * - Status. A function that can fail returns a tollgate_status. Unless that is
 *   TOLLGATE_STATUS_OK, no output was written and nothing was charged. A
 *   denial is no failure: it is a verdict.
 * - Pointers. NULL is answered with TOLLGATE_STATUS_NULL_POINTER, unless the
 *   comment of the function allows it. Other pointers have to be right: no
 *   library can tell a dangling one, or a length that is too long for its buffer.
 * - Ownership. What a function hands out through a pointer to a handle belongs
 *   to the caller, who gives it back once with the matching _free. Nothing that
 *   is handed in is kept. Texts that functions return are part of the library.
 * - Threads. Limiters, policies and clocks may be used by any number of threads
 *   at once; a policy builder or an assignment by one at a time. Nobody may use a handle while
 *   or after it is freed.
 * - Const. What is pointed to as const is not changed by the call.
 * - Texts and ids. Both come with a length, so a NUL at the end is not needed
 *   and not counted. Texts are UTF-8; ids are any bytes.
 * - Sizes. A struct that begins with struct_size can grow. Set all of it to
 *   zero and struct_size to its sizeof; then a program and a library of
 *   different versions understand each other.
 * - Time is in nanoseconds, as a span or as an instant on a limiter's clock.
 * - Panics. No panic leaves the library: a bug inside becomes
 *   TOLLGATE_STATUS_PANIC.
 * - Forks. A child may go on using what was made before the fork, as its own
 *   copy. Each process then limits on its own.
 *
 * Generated from the Rust sources: change those and run `make header`.
 */

#ifndef TOLLGATE_H
#define TOLLGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version that a program was compiled with; tollgate_version tells what it runs with. */
#define TOLLGATE_VERSION "0.1.0"
#define TOLLGATE_VERSION_MAJOR 0
#define TOLLGATE_VERSION_MINOR 1
#define TOLLGATE_VERSION_PATCH 0
#define TOLLGATE_VERSION_NUMBER \
  (TOLLGATE_VERSION_MAJOR * 65536 + TOLLGATE_VERSION_MINOR * 256 + TOLLGATE_VERSION_PATCH)

/** The address and the length of a string literal, as two arguments. */
#define TOLLGATE_LITERAL(text) (text), (sizeof(text) - 1)

/**
 * Room for the message of a tollgate_error, its NUL included.
 */
#define TOLLGATE_ERROR_MESSAGE_BYTES 496

/**
 * What tollgate_features tells: policies as TOML text, tollgate_policy_from_toml.
 */
#define TOLLGATE_FEATURE_CONFIG 1

/**
 * What tollgate_features tells: assignments kept in a file,
 * tollgate_limiter_keep_assignments_in.
 */
#define TOLLGATE_FEATURE_PERSIST 2

/**
 * The most bytes of a text handed in, such as a limit.
 */
#define TOLLGATE_TEXT_BYTES_MAX 1048576

/**
 * The most waits of a curve.
 */
#define TOLLGATE_CURVE_STEPS_MAX 15

/**
 * The most lanes of a policy.
 */
#define TOLLGATE_LANES_MAX 62

/**
 * The longest name of a lane, plan or action, in bytes without a NUL.
 */
#define TOLLGATE_LANE_NAME_BYTES_MAX 64

/**
 * The most plans of a policy, "default" among them.
 */
#define TOLLGATE_PLANS_MAX 256

/**
 * The most agents a limiter may be made for.
 */
#define TOLLGATE_AGENTS_MAX 1073741824

/**
 * What a limiter is made for when nothing is said.
 */
#define TOLLGATE_AGENTS_DEFAULT 1000000

/**
 * The longest agent id, in bytes. The shortest has one.
 */
#define TOLLGATE_ID_BYTES_MAX 256

/**
 * The most requests of a batch.
 */
#define TOLLGATE_BATCH_MAX 1048576

/**
 * A span that never ends: the wait of a denial that no wait will lift.
 */
#define TOLLGATE_NEVER UINT64_MAX

/**
 * The most parts of one tollgate_limiter_check_all.
 */
#define TOLLGATE_PARTS_MAX 16

/**
 * The most reservations that a limiter may be made for.
 */
#define TOLLGATE_RESERVATIONS_MAX 16777216

/**
 * How many may be open at once when nothing is said.
 */
#define TOLLGATE_RESERVATIONS_DEFAULT 16384

/**
 * A commit may use at most so many times the lane's capacity beyond what was
 * reserved.
 */
#define TOLLGATE_OVERSPEND_MAX 100

/**
 * The most agents that may have overrides at once.
 */
#define TOLLGATE_OVERRIDES_MAX 65000

/**
 * A number of a lane or a plan that there is not.
 */
#define TOLLGATE_NONE UINT32_MAX

/**
 * The most agents on a page.
 */
#define TOLLGATE_PAGE_MAX 200

/**
 * How many events are kept until they are polled.
 */
#define TOLLGATE_EVENTS_KEPT 1024

/**
 * What came of a call. The numbers are part of the ABI: later versions add
 * to them and never use one again.
 *
 * Any function that returns a status may also return
 * TOLLGATE_STATUS_NULL_POINTER and TOLLGATE_STATUS_PANIC; its comment lists
 * the others.
 */
enum tollgate_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The call did what it says. A denial is this too: it is a verdict.
   */
  TOLLGATE_STATUS_OK = 0,
  /**
   * A pointer is NULL that must not be.
   */
  TOLLGATE_STATUS_NULL_POINTER = 1,
  /**
   * The struct_size of a struct is smaller than any version of the struct,
   * or absurdly large. Set it to sizeof the struct.
   */
  TOLLGATE_STATUS_STRUCT_SIZE = 2,
  /**
   * The agent id has no bytes.
   */
  TOLLGATE_STATUS_EMPTY_ID = 3,
  /**
   * The agent id has more than TOLLGATE_ID_BYTES_MAX bytes.
   */
  TOLLGATE_STATUS_ID_TOO_LONG = 4,
  /**
   * The policy has no such lane.
   */
  TOLLGATE_STATUS_UNKNOWN_LANE = 5,
  /**
   * A cost of 0 asks nothing; look with tollgate_limiter_status.
   */
  TOLLGATE_STATUS_ZERO_COST = 6,
  /**
   * The cost is larger than the lane's capacity, so it can never pass.
   */
  TOLLGATE_STATUS_COST_ABOVE_CAPACITY = 7,
  /**
   * The agent is new, and no record may be given up for it.
   */
  TOLLGATE_STATUS_FULL = 8,
  /**
   * More than TOLLGATE_BATCH_MAX requests in one batch.
   */
  TOLLGATE_STATUS_BATCH_SIZE = 9,
  /**
   * The policy makes no sense; the error's message says why.
   */
  TOLLGATE_STATUS_INVALID_POLICY = 10,
  /**
   * A limiter holds 1 to TOLLGATE_AGENTS_MAX agents.
   */
  TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE = 11,
  /**
   * The system would not reserve the memory.
   */
  TOLLGATE_STATUS_OUT_OF_MEMORY = 12,
  /**
   * An option has a value that this version does not know.
   */
  TOLLGATE_STATUS_INVALID_OPTION = 13,
  /**
   * A text is not UTF-8. Agent ids need not be: they are bytes.
   */
  TOLLGATE_STATUS_NOT_UTF8 = 14,
  /**
   * A text has more than TOLLGATE_TEXT_BYTES_MAX bytes.
   */
  TOLLGATE_STATUS_TEXT_TOO_LONG = 15,
  /**
   * The buffer cannot hold the text and its NUL.
   */
  TOLLGATE_STATUS_BUFFER_TOO_SMALL = 16,
  /**
   * Only a manual clock can be moved.
   */
  TOLLGATE_STATUS_NOT_MANUAL = 17,
  /**
   * The default limiter exists already.
   */
  TOLLGATE_STATUS_ALREADY_MADE = 18,
  /**
   * A bug in tollgate: please report it. The call was given up midway; the
   * limiter can be used further.
   */
  TOLLGATE_STATUS_PANIC = 19,
  /**
   * The policy has no such plan.
   */
  TOLLGATE_STATUS_UNKNOWN_PLAN = 20,
  /**
   * A limit makes no sense; the error's message says why.
   */
  TOLLGATE_STATUS_INVALID_LIMIT = 21,
  /**
   * TOLLGATE_OVERRIDES_MAX agents have overrides already.
   */
  TOLLGATE_STATUS_TOO_MANY_OVERRIDES = 22,
  /**
   * Another agent with an assignment has the same hash: a chance of 1 in
   * 2^64.
   */
  TOLLGATE_STATUS_SAME_HASH = 23,
  /**
   * The process was forked while another thread changed something, and the
   * change is half made. Checks go on.
   */
  TOLLGATE_STATUS_FORKED = 24,
  /**
   * The new policy has other lanes than the one in force.
   */
  TOLLGATE_STATUS_OTHER_LANES = 25,
  /**
   * The new policy lacks a plan of the one in force.
   */
  TOLLGATE_STATUS_PLAN_MISSING = 26,
  /**
   * The file of assignments could not be read or written; the error's
   * message says why. If it says that the file may not outlive a power
   * failure, the file has the change already: repeat the call.
   */
  TOLLGATE_STATUS_FILE = 27,
  /**
   * Assignments are not kept in a file.
   */
  TOLLGATE_STATUS_NO_FILE = 28,
  /**
   * The library was built without what this needs; see tollgate_features.
   */
  TOLLGATE_STATUS_NOT_BUILT_IN = 29,
  /**
   * There is no preset of this name; the error's message lists those there are.
   */
  TOLLGATE_STATUS_UNKNOWN_PRESET = 30,
  /**
   * There is no element of this number.
   */
  TOLLGATE_STATUS_OUT_OF_RANGE = 31,
  /**
   * More slots were released than the agent holds.
   */
  TOLLGATE_STATUS_NOT_HELD = 32,
  /**
   * The call does not make sense for a lane of this kind.
   */
  TOLLGATE_STATUS_WRONG_KIND = 33,
  /**
   * All or none: 1 to 16 parts.
   */
  TOLLGATE_STATUS_PARTS = 34,
  /**
   * As many reservations are open as the limiter was built for.
   */
  TOLLGATE_STATUS_RESERVATIONS_FULL = 35,
  /**
   * The reservation was settled, its time has passed, or it never was.
   */
  TOLLGATE_STATUS_UNKNOWN_RESERVATION = 36,
  /**
   * The agent has as many reservations open as one agent may.
   */
  TOLLGATE_STATUS_TOO_MANY_RESERVATIONS = 37,
  /**
   * A commit used so much more than was reserved that it must be a mistake:
   * more than TOLLGATE_OVERSPEND_MAX times the lane's capacity.
   */
  TOLLGATE_STATUS_USED_TOO_LARGE = 38,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_status tollgate_status;
#else
typedef int32_t tollgate_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What becomes of an agent's debt when its limits change.
 */
enum tollgate_on_change
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The time until a lane is full again stays as it is, but no longer than
   * the new limit takes to refill a whole bucket.
   */
  TOLLGATE_ON_CHANGE_KEEP_DEBT = 0,
  /**
   * Every lane of the agent is filled.
   */
  TOLLGATE_ON_CHANGE_RESET = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_on_change tollgate_on_change;
#else
typedef int32_t tollgate_on_change;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a clock reads. All count nanoseconds and never the wall clock's.
 */
enum tollgate_time_source
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The processor's counter where it can be trusted, else
   * TOLLGATE_TIME_SOURCE_OS. To choose, not to be told.
   */
  TOLLGATE_TIME_SOURCE_AUTO = 0,
  /**
   * The processor's time stamp counter, held to the OS clock. To be told,
   * not to choose: it is what TOLLGATE_TIME_SOURCE_AUTO takes if it can.
   */
  TOLLGATE_TIME_SOURCE_TSC = 1,
  /**
   * The system's monotonic clock. It stands still while the machine is suspended.
   */
  TOLLGATE_TIME_SOURCE_OS = 2,
  /**
   * The system's monotonic clock as of its last tick, 1 to 10 ms off: the cheapest.
   */
  TOLLGATE_TIME_SOURCE_COARSE = 3,
  /**
   * The system's clock that goes on while the machine is suspended.
   */
  TOLLGATE_TIME_SOURCE_BOOTTIME = 4,
  /**
   * A clock that moves when it is told to, for tests and simulations. It starts at 0.
   */
  TOLLGATE_TIME_SOURCE_MANUAL = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_time_source tollgate_time_source;
#else
typedef int32_t tollgate_time_source;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whether a request may go on. Zero is a denial, so that a verdict that was
 * set to zero and never written lets nothing through.
 */
enum tollgate_decision
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * It may not; nothing was charged.
   */
  TOLLGATE_DECISION_DENY = 0,
  /**
   * It may.
   */
  TOLLGATE_DECISION_ALLOW = 1,
  /**
   * It may, and the agent is near its limit.
   */
  TOLLGATE_DECISION_WARN = 2,
  /**
   * It may: the agent is never limited, and nothing was charged.
   */
  TOLLGATE_DECISION_EXEMPT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_decision tollgate_decision;
#else
typedef int32_t tollgate_decision;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How near to its limit a lane is.
 */
enum tollgate_usage_level
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Less than half of the lane is used.
   */
  TOLLGATE_USAGE_LEVEL_GREEN = 0,
  /**
   * 50 to 80 % of it are used.
   */
  TOLLGATE_USAGE_LEVEL_YELLOW = 1,
  /**
   * More than 80 % of it are used.
   */
  TOLLGATE_USAGE_LEVEL_RED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_usage_level tollgate_usage_level;
#else
typedef int32_t tollgate_usage_level;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What happens to a new agent when no record near its home is free.
 */
enum tollgate_on_full
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * The record with the least debt is given up for it, and it inherits that
   * debt. Whoever lost the record may return with a fresh bucket: see
   * lossy_evictions in tollgate_stats.
   */
  TOLLGATE_ON_FULL_EVICT = 0,
  /**
   * It is refused with TOLLGATE_STATUS_FULL. Exact for everybody.
   */
  TOLLGATE_ON_FULL_DENY = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_on_full tollgate_on_full;
#else
typedef int32_t tollgate_on_full;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How agent ids are hashed.
 */
enum tollgate_id_hash
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * A keyed multilinear hash: the fastest.
   */
  TOLLGATE_ID_HASH_MULTILINEAR = 0,
  /**
   * SipHash-1-3: for ids chosen by those who can observe how the limiter
   * treats them.
   */
  TOLLGATE_ID_HASH_SIPHASH13 = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_id_hash tollgate_id_hash;
#else
typedef int32_t tollgate_id_hash;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What a limiter remembers of what it does.
 */
enum tollgate_sight
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Nothing; its checks do not even ask.
   */
  TOLLGATE_SIGHT_OFF = 0,
  /**
   * Verdicts by lane, worst offenders, the last events: about 700 kB.
   */
  TOLLGATE_SIGHT_ON = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_sight tollgate_sight;
#else
typedef int32_t tollgate_sight;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * In which order agents are listed. Agents that are alike come by id.
 */
enum tollgate_agent_sort
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * By id, byte by byte.
   */
  TOLLGATE_AGENT_SORT_ID = 0,
  /**
   * Those first whose dominant lane is nearest to its limit.
   */
  TOLLGATE_AGENT_SORT_USAGE = 1,
  /**
   * Those first that have the most violations in the present window.
   */
  TOLLGATE_AGENT_SORT_VIOLATIONS = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_agent_sort tollgate_agent_sort;
#else
typedef int32_t tollgate_agent_sort;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What an event tells of. Later versions may have more: ignore what you do
 * not know.
 */
enum tollgate_event_type
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * An agent's violations reached the policy's threshold: agent, consecutive.
   */
  TOLLGATE_EVENT_TYPE_SUSTAINED_ABUSE = 0,
  /**
   * An action that the policy does not name was met for the first time:
   * channel, action.
   */
  TOLLGATE_EVENT_TYPE_UNKNOWN_ACTION = 1,
  /**
   * There was no record for a new agent without taking one from an agent in
   * debt, or none at all; at most once a minute: lossy_evictions, refused.
   */
  TOLLGATE_EVENT_TYPE_SATURATED = 2,
  /**
   * Another policy was put in force.
   */
  TOLLGATE_EVENT_TYPE_POLICY_REPLACED = 3,
  /**
   * What was decided about one agent has changed: agent.
   */
  TOLLGATE_EVENT_TYPE_ASSIGNMENT_CHANGED = 4,
  /**
   * What was decided about several agents has changed in one call: agents.
   */
  TOLLGATE_EVENT_TYPE_ASSIGNMENTS_CHANGED = 5,
  /**
   * The clock gave the processor's counter up.
   */
  TOLLGATE_EVENT_TYPE_CLOCK_FELL_BACK = 6,
  /**
   * A check, one of many (sample_every in tollgate_limiter_options): agent,
   * lane, decision, remaining.
   */
  TOLLGATE_EVENT_TYPE_CHECKED = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_event_type tollgate_event_type;
#else
typedef int32_t tollgate_event_type;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Where an id is shown.
 */
enum tollgate_shown
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * In a log or on a terminal.
   */
  TOLLGATE_SHOWN_TEXT = 0,
  /**
   * In HTML, an attribute too.
   */
  TOLLGATE_SHOWN_HTML = 1,
  /**
   * As the label of a metric.
   */
  TOLLGATE_SHOWN_LABEL = 2,
  /**
   * In a URL, percent-encoded.
   */
  TOLLGATE_SHOWN_URL = 3,
  /**
   * In JSON: a string with its quotes, or {"base64": ...}.
   */
  TOLLGATE_SHOWN_JSON = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_shown tollgate_shown;
#else
typedef int32_t tollgate_shown;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A page of a list of agents. It does not change, so any number of threads
 * may use it at once.
 */
typedef struct tollgate_agent_page tollgate_agent_page;

/**
 * What an operator has decided about one agent: its plan, limits of its own
 * for some lanes, and whether it is exempt.
 *
 * Plans and lanes are kept by name, and nothing is checked against a policy
 * before a limiter is given it. One thread at a time may use it.
 */
typedef struct tollgate_assignment tollgate_assignment;

/**
 * Agents, and what each is assigned.
 *
 * One thread at a time may use it.
 */
typedef struct tollgate_assignments tollgate_assignments;

/**
 * Where a limiter's time comes from.
 *
 * A limiter without one has a clock of its own of the kind
 * TOLLGATE_TIME_SOURCE_AUTO. Any number of limiters may share one, and any
 * number of threads may use it at once.
 */
typedef struct tollgate_clock tollgate_clock;

/**
 * An exact rate limiter for a fixed number of agents.
 *
 * Any number of threads may call any function on one limiter at once, except
 * tollgate_limiter_free. A check of a known agent takes no lock and allocates
 * nothing.
 *
 * A child process made by fork may go on using a limiter that was made before
 * the fork, whatever other threads were doing: it has its own copy. From then
 * on each process limits on its own.
 */
typedef struct tollgate_limiter tollgate_limiter;

/**
 * Denials as lines of a log, few of them: the first of an agent, then how
 * many there were each minute, and every five minutes a summary. Any number
 * of threads may use one at once.
 */
typedef struct tollgate_log_throttle tollgate_log_throttle;

/**
 * Who violates limits the most. It does not change, so any number of threads
 * may use it at once.
 */
typedef struct tollgate_offenders tollgate_offenders;

/**
 * Named lanes, each with its limit; plans with other limits for them; the
 * lane of every action; the rules of conduct: everything an operator decides.
 *
 * It does not change, so any number of threads may use it at once.
 */
typedef struct tollgate_policy tollgate_policy;

/**
 * Collects lanes, plans, actions and rules; tollgate_policy_builder_build
 * checks them all.
 *
 * One thread at a time may use it.
 */
typedef struct tollgate_policy_builder tollgate_policy_builder;

/**
 * The unknown actions that a limiter has met: how many, and the first 256
 * names. It does not change, so any number of threads may use it at once.
 */
typedef struct tollgate_unknown_actions tollgate_unknown_actions;

/**
 * What a violation is, and what follows from it. All zero, but for
 * struct_size, is the default, and so is each member that is zero.
 */
typedef struct tollgate_conduct_rules {
  /**
   * Set it to sizeof(tollgate_conduct_rules).
   */
  uint32_t struct_size;
  /**
   * How many waits the curve has, up to TOLLGATE_CURVE_STEPS_MAX. By default
   * none: waits are those of the lanes.
   */
  uint32_t curve_steps;
  /**
   * The wait after the first, second, ... violation in a row; the last one
   * stands for all that follow. No wait that is told is shorter than the first.
   */
  uint64_t curve_ns[TOLLGATE_CURVE_STEPS_MAX];
  /**
   * After this long without a violation the next one is the first again. By
   * default 60 seconds.
   */
  uint64_t quiet_ns;
  /**
   * Within how long of the first the violations of abuse_violations are
   * sustained abuse. By default 5 minutes.
   */
  uint64_t abuse_window_ns;
  /**
   * So many violations are sustained abuse. By default 10.
   */
  uint32_t abuse_violations;
  /**
   * 1 if every denial is a violation. By default it is one to come back
   * before a wait is over, and be denied again; parallel requests of one
   * moment count once, and up to 15 that may have been under way not at all.
   */
  uint32_t every_denial;
  /**
   * 1 if the wait of a violation is a block: until it is over,
   * tollgate_limiter_admit denies on every lane.
   */
  uint32_t enforce_wait;
  /**
   * Must be 0.
   */
  uint32_t reserved;
} tollgate_conduct_rules;

/**
 * Why a call failed, for people: what was wrong, where, and what is allowed.
 *
 * It belongs to the caller, so threads do not disturb each other. Functions
 * that take one also take NULL; they write it only when they fail.
 */
typedef struct tollgate_error {
  /**
   * Set it to sizeof(tollgate_error) before the call.
   */
  uint32_t struct_size;
  /**
   * The status that the call returned.
   */
  tollgate_status status;
  /**
   * The line of the text that was at fault, counted from 1; 0 if there is none.
   */
  uint32_t line;
  /**
   * The column in that line, counted from 1; 0 if there is none.
   */
  uint32_t column;
  /**
   * A sentence, NUL-terminated UTF-8, cut short if it has no room.
   */
  char message[TOLLGATE_ERROR_MESSAGE_BYTES];
} tollgate_error;

/**
 * How a limiter is made. All zero, but for struct_size, is the default.
 */
typedef struct tollgate_limiter_options {
  /**
   * Set it to sizeof(tollgate_limiter_options).
   */
  uint32_t struct_size;
  /**
   * One of TOLLGATE_ON_FULL_EVICT and TOLLGATE_ON_FULL_DENY.
   */
  int32_t on_full;
  /**
   * How many agents it must hold at the same time; 0 for TOLLGATE_AGENTS_DEFAULT.
   */
  uint64_t agents;
  /**
   * Where its time comes from; NULL for a clock of its own.
   */
  const struct tollgate_clock *clock;
  /**
   * One of TOLLGATE_ID_HASH_MULTILINEAR and TOLLGATE_ID_HASH_SIPHASH13.
   */
  int32_t id_hash;
  /**
   * Must be 0.
   */
  uint32_t reserved;
  /**
   * One of TOLLGATE_SIGHT_OFF and TOLLGATE_SIGHT_ON.
   */
  int32_t sight;
  /**
   * With TOLLGATE_SIGHT_ON: makes every so many-th check of a thread an
   * event; 0 for none.
   */
  uint32_t sample_every;
  /**
   * With TOLLGATE_SIGHT_ON: writes down the ids of up to so many agents that
   * hold records, so that they can be listed; 0 for none.
   */
  uint64_t roster;
  /**
   * How many reservations may be open at once, up to
   * TOLLGATE_RESERVATIONS_MAX; 0 for TOLLGATE_RESERVATIONS_DEFAULT. Each
   * takes 64 bytes.
   */
  uint64_t reservations;
  /**
   * 1 if all of the memory of the records, and of a roster if there is one,
   * is taken from the system when the limiter is made; if there is not
   * enough, it is not made: TOLLGATE_STATUS_OUT_OF_MEMORY. 0 if the system
   * commits a page when the first agent comes to live there, which lets that
   * one check wait, for up to half a millisecond and more. What kept budgets
   * take is committed as it is used either way.
   */
  uint32_t commit_memory;
  /**
   * How many reservations one agent may have open at once; 0 for one in 64
   * of all, but at least 16. (Was reserved, and 0.)
   */
  uint32_t reservations_per_agent;
} tollgate_limiter_options;

/**
 * What a limiter holds and has seen.
 */
typedef struct tollgate_stats {
  /**
   * Set it to sizeof(tollgate_stats) before the call.
   */
  uint32_t struct_size;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Agents that hold a record now. Idle ones hold theirs until somebody
   * needs it or a sweep takes it.
   */
  uint64_t agents;
  /**
   * Records in all.
   */
  uint64_t records;
  /**
   * Records given to agents since the start.
   */
  uint64_t claims;
  /**
   * Idle records taken for newcomers or swept: nothing was lost.
   */
  uint64_t idle_evictions;
  /**
   * Records in debt given up for newcomers: their agents may return with
   * fresh buckets. If this grows, make the limiter for more agents.
   */
  uint64_t lossy_evictions;
  /**
   * Exchanges that were lost to another thread and tried again.
   */
  uint64_t retries;
} tollgate_stats;

/**
 * The answer to a check. tollgate_verdict_remaining tells what is left.
 */
typedef struct tollgate_verdict {
  /**
   * Set it to sizeof(tollgate_verdict) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * Whether the request may go on.
   */
  tollgate_decision decision;
  /**
   * What the lane holds when it is full, in tokens.
   */
  uint64_t capacity;
  /**
   * How long a denied caller has to wait until the same request would pass,
   * exact to the nanosecond; TOLLGATE_NEVER if no wait helps, 0 if it was allowed.
   */
  uint64_t retry_after_ns;
  /**
   * How long until the lane is full again, if nothing more is charged.
   */
  uint64_t full_in_ns;
  /**
   * How long a token takes to come back. Of a lane that is no bucket, a
   * number of tollgate's own with its highest bit set.
   */
  uint64_t token_ns;
} tollgate_verdict;

/**
 * The answer to one request of a batch. Being part of an array, it never grows.
 */
typedef struct tollgate_answer {
  /**
   * What tollgate_limiter_check would have returned. The other members are
   * those of its verdict if it is TOLLGATE_STATUS_OK, and zero otherwise.
   */
  tollgate_status status;
  /**
   * Whether the request may go on.
   */
  tollgate_decision decision;
  /**
   * What the lane holds when it is full, in tokens.
   */
  uint64_t capacity;
  /**
   * See retry_after_ns in tollgate_verdict.
   */
  uint64_t retry_after_ns;
  /**
   * How long until the lane is full again, if nothing more is charged.
   */
  uint64_t full_in_ns;
  /**
   * How long a token takes to come back. Of a lane that is no bucket, a
   * number of tollgate's own with its highest bit set.
   */
  uint64_t token_ns;
} tollgate_answer;

/**
 * One request of a batch. Being part of an array, it never grows.
 */
typedef struct tollgate_request {
  /**
   * Who asks: any bytes.
   */
  const void *id;
  /**
   * How many bytes, 1 to TOLLGATE_ID_BYTES_MAX.
   */
  size_t id_len;
  /**
   * How much, at least 1.
   */
  uint64_t cost;
  /**
   * For what.
   */
  uint32_t lane;
  /**
   * Not looked at.
   */
  uint32_t reserved;
} tollgate_request;

/**
 * A lane of an agent as it stands, without having been charged.
 */
typedef struct tollgate_lane_status {
  /**
   * Set it to sizeof(tollgate_lane_status) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * 1 if the agent is never limited, else 0.
   */
  uint32_t exempt;
  /**
   * Whole tokens that could be charged now; UINT64_MAX of an exempt agent.
   */
  uint64_t remaining;
  /**
   * What the lane holds when it is full; 0 if it denies everything,
   * UINT64_MAX of an exempt agent.
   */
  uint64_t capacity;
  /**
   * How long until there is one more whole token than now; TOLLGATE_NEVER
   * if the lane is full or denies everything.
   */
  uint64_t next_in_ns;
  /**
   * How long until the lane is full again, if nothing more is charged.
   */
  uint64_t full_in_ns;
} tollgate_lane_status;

/**
 * The answer to several charges at once: all were made, or none.
 */
typedef struct tollgate_all_verdict {
  /**
   * Set it to sizeof(tollgate_all_verdict) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * TOLLGATE_DECISION_DENY if a part stands in the way, and then nothing was
   * charged; else WARN if an agent is near its limit, EXEMPT if none of the
   * agents is ever limited, ALLOW otherwise.
   */
  tollgate_decision decision;
  /**
   * The longest wait of the parts that stand in the way; TOLLGATE_NEVER if
   * no wait helps, 0 if it was allowed.
   */
  uint64_t retry_after_ns;
  /**
   * The parts that stand in the way: bit 0 is set for the first, bit 1 for
   * the second, and so on; 0 if it was allowed.
   */
  uint32_t blocking;
  /**
   * The parts with whose denial the conduct of their agent became sustained
   * abuse, as bits; of tollgate_limiter_admit_all alone.
   */
  uint32_t sustained_abuse;
} tollgate_all_verdict;

/**
 * What became of a reservation.
 */
typedef struct tollgate_settlement {
  /**
   * Set it to sizeof(tollgate_settlement) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * What was reserved and is not needed: given back, to the window that it
   * was charged in if that is not over.
   */
  uint64_t unused;
  /**
   * What was used beyond what was reserved: charged to the present window,
   * into debt if need be.
   */
  uint64_t overspent;
  /**
   * What is still reserved; 0 once the reservation is settled.
   */
  uint64_t left;
} tollgate_settlement;

/**
 * What came of a file of used budgets.
 */
typedef struct tollgate_budgets_loaded {
  /**
   * Set it to sizeof(tollgate_budgets_loaded) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Budgets that are as used as they were.
   */
  uint64_t loaded;
  /**
   * Budgets whose window is over: nothing of them counts any more.
   */
  uint64_t ended;
  /**
   * Budgets of lanes that the policy does not have, or whose window is
   * another now. They count no more, and the next save leaves them out.
   */
  uint64_t unknown;
  /**
   * Budgets of agents for whom there was no record: the limiter is too
   * small. They count no more, and the next save leaves them out.
   */
  uint64_t full;
  /**
   * How far the calendar is ahead of the wall clock, which was put back
   * since the file was written, or ran ahead before. Windows end so much later.
   */
  uint64_t ahead_ns;
} tollgate_budgets_loaded;

/**
 * What came of saving used budgets.
 */
typedef struct tollgate_budgets_saved {
  /**
   * Set it to sizeof(tollgate_budgets_saved) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * Budgets in the file.
   */
  uint64_t saved;
  /**
   * Budgets that were used by agents whose id is not known, since they had
   * a record before the file was named. A restart loses what they used.
   */
  uint64_t unsaved;
} tollgate_budgets_saved;

/**
 * The answer to a check that counts violations. Its first members are those
 * of a tollgate_verdict; tollgate_admission_remaining tells what is left.
 */
typedef struct tollgate_admission {
  /**
   * Set it to sizeof(tollgate_admission) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * Whether the request may go on.
   */
  tollgate_decision decision;
  /**
   * What the lane holds when it is full, in tokens.
   */
  uint64_t capacity;
  /**
   * What a denied caller is told to wait: the longer of lane_retry_after_ns
   * and wait_ns; TOLLGATE_NEVER if no wait helps, 0 if it was allowed.
   */
  uint64_t retry_after_ns;
  /**
   * How long until the lane is full again, if nothing more is charged.
   */
  uint64_t full_in_ns;
  /**
   * How long a token takes to come back.
   */
  uint64_t token_ns;
  /**
   * The wait of the lane by itself: retry_after_ns of a tollgate_verdict.
   */
  uint64_t lane_retry_after_ns;
  /**
   * Of a denial: what the agent has to wait for its conduct. The step; or
   * until the block is over, if the policy enforces waits.
   */
  uint64_t wait_ns;
  /**
   * Of a denial: the wait that the curve of the policy names; 0 without a curve.
   */
  uint64_t step_ns;
  /**
   * Of a denial that is a violation: how many in a row this makes, up to 15;
   * else 0.
   */
  uint32_t consecutive;
  /**
   * 1 if with this denial the agent's conduct became sustained abuse, else
   * 0. Told once, and again only after a window without a violation.
   */
  uint32_t sustained_abuse;
} tollgate_admission;

/**
 * A violation as it was recorded.
 */
typedef struct tollgate_violation {
  /**
   * Set it to sizeof(tollgate_violation) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * How many violations in a row this makes, up to 15.
   */
  uint32_t consecutive;
  /**
   * What the agent is told to wait: the step; or until the block is over,
   * if the policy enforces waits.
   */
  uint64_t wait_ns;
  /**
   * The wait that the curve of the policy names.
   */
  uint64_t step_ns;
  /**
   * 1 if with it the agent's conduct became sustained abuse, else 0.
   */
  uint32_t sustained_abuse;
  /**
   * 0.
   */
  uint32_t reserved;
} tollgate_violation;

/**
 * An agent's conduct as it stands.
 */
typedef struct tollgate_conduct {
  /**
   * Set it to sizeof(tollgate_conduct) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * Violations in the present window of the abuse threshold, up to 63.
   */
  uint32_t violations;
  /**
   * Violations without a quiet period between them, up to 15.
   */
  uint32_t consecutive;
  /**
   * 0.
   */
  uint32_t reserved;
  /**
   * When the present window began; TOLLGATE_NEVER if there is none.
   */
  uint64_t window_start_ns;
  /**
   * When the last violation was, if it still matters; else TOLLGATE_NEVER.
   */
  uint64_t last_violation_ns;
  /**
   * What is left of the wait that the last violation brought.
   */
  uint64_t wait_ns;
} tollgate_conduct;

/**
 * An agent id of a list. Being part of an array, it never grows.
 */
typedef struct tollgate_id {
  /**
   * Any bytes.
   */
  const void *id;
  /**
   * How many bytes, 1 to TOLLGATE_ID_BYTES_MAX.
   */
  size_t id_len;
} tollgate_id;

/**
 * The lane of an action.
 */
typedef struct tollgate_action_lane {
  /**
   * Set it to sizeof(tollgate_action_lane) before the call; it stays as it is.
   */
  uint32_t struct_size;
  /**
   * The lane that pays for the action.
   */
  uint32_t lane;
  /**
   * 1 if the policy names the action, 0 if the lane is the one that takes
   * unknown actions.
   */
  uint32_t known;
  /**
   * 1 if it is the first time that the limiter meets this unknown action: a
   * line in the log, so that somebody classifies it. Else 0.
   */
  uint32_t first_seen;
} tollgate_action_lane;

/**
 * What a limiter holds and has done, all at one time.
 */
typedef struct tollgate_snapshot {
  /**
   * Set it to sizeof(tollgate_snapshot) before the call.
   */
  uint32_t struct_size;
  /**
   * 1 if the limiter counts what it does, else 0: TOLLGATE_SIGHT_ON.
   */
  uint32_t counting;
  /**
   * When it was taken.
   */
  uint64_t at_ns;
  /**
   * Requests that were allowed, in all lanes.
   */
  uint64_t allowed;
  /**
   * Requests that were allowed near the limit.
   */
  uint64_t warned;
  /**
   * Requests that were denied.
   */
  uint64_t denied;
  /**
   * Requests of exempt agents.
   */
  uint64_t exempt;
  /**
   * Calls that could not be answered, TOLLGATE_STATUS_FULL aside.
   */
  uint64_t errors;
  /**
   * New agents that found no record: TOLLGATE_STATUS_FULL.
   */
  uint64_t full;
  /**
   * Violations recorded.
   */
  uint64_t violations;
  /**
   * Violations recorded in the last hour.
   */
  uint64_t violations_last_hour;
  /**
   * How often an agent's conduct became sustained abuse.
   */
  uint64_t sustained_abuse;
  /**
   * See tollgate_stats, for this and the next five.
   */
  uint64_t agents;
  /**
   * Records in all.
   */
  uint64_t records;
  /**
   * Records given to agents.
   */
  uint64_t claims;
  /**
   * Idle records taken for newcomers or swept.
   */
  uint64_t idle_evictions;
  /**
   * Records in debt given up for newcomers.
   */
  uint64_t lossy_evictions;
  /**
   * Exchanges that were lost to another thread.
   */
  uint64_t retries;
  /**
   * Agents about which something was decided.
   */
  uint64_t agents_assigned;
  /**
   * Agents with overrides.
   */
  uint64_t agents_overridden;
  /**
   * Agents that are exempt.
   */
  uint64_t agents_exempt;
  /**
   * Unknown actions that arrived.
   */
  uint64_t unknown_actions;
  /**
   * Events that were dropped because nobody polled in time.
   */
  uint64_t events_dropped;
  /**
   * How often the clock gave the processor's counter up.
   */
  uint64_t clock_fallbacks;
  /**
   * What its clock reads.
   */
  tollgate_time_source clock_source;
  /**
   * 0.
   */
  uint32_t reserved;
} tollgate_snapshot;

/**
 * The verdicts of one lane. Being part of an array, it never grows.
 */
typedef struct tollgate_lane_counts {
  /**
   * Requests that were allowed.
   */
  uint64_t allowed;
  /**
   * Requests that were allowed near the limit.
   */
  uint64_t warned;
  /**
   * Requests that were denied.
   */
  uint64_t denied;
  /**
   * Requests of exempt agents.
   */
  uint64_t exempt;
} tollgate_lane_counts;

/**
 * How an agent stands.
 */
typedef struct tollgate_agent_view {
  /**
   * Set it to sizeof(tollgate_agent_view) before the call.
   */
  uint32_t struct_size;
  /**
   * 1 if the agent holds a record, else 0.
   */
  uint32_t known;
  /**
   * 1 if the agent is never limited, else 0.
   */
  uint32_t exempt;
  /**
   * The number of its plan; TOLLGATE_NONE if it is assigned to none.
   */
  uint32_t plan;
  /**
   * The lane that is nearest to its limit; TOLLGATE_NONE if the agent is
   * exempt, or every lane denies everything.
   */
  uint32_t dominant_lane;
  /**
   * 1 if it has violated a limit and has not been quiet since, else 0.
   */
  uint32_t rate_limited;
  /**
   * Violations in the present window of the abuse threshold, up to 63.
   */
  uint32_t violations;
  /**
   * Violations without a quiet period between them, up to 15.
   */
  uint32_t consecutive;
  /**
   * When this was seen.
   */
  uint64_t at_ns;
  /**
   * When the last violation was, if it still matters; else TOLLGATE_NEVER.
   */
  uint64_t last_violation_ns;
  /**
   * What is left of the wait that the last violation brought.
   */
  uint64_t wait_ns;
} tollgate_agent_view;

/**
 * A lane of an agent as it stands. Being part of an array, it never grows.
 */
typedef struct tollgate_lane_view {
  /**
   * Whole tokens that could be charged; UINT64_MAX of an exempt agent.
   */
  uint64_t remaining;
  /**
   * What the lane holds when it is full.
   */
  uint64_t capacity;
  /**
   * How long until there is one more whole token than now; TOLLGATE_NEVER
   * if the lane is full or denies everything.
   */
  uint64_t next_in_ns;
  /**
   * How long until the lane is full again, if nothing more is charged.
   */
  uint64_t full_in_ns;
  /**
   * How much of the lane is used, 0 to 100.
   */
  double usage_percent;
  /**
   * How near to its limit the lane is.
   */
  tollgate_usage_level level;
  /**
   * 1 if the agent has a limit of its own for the lane, else 0.
   */
  uint32_t overridden;
} tollgate_lane_view;

/**
 * Which agents to list. All zero, but for struct_size, is the first page of
 * all of them, by id.
 */
typedef struct tollgate_agent_query {
  /**
   * Set it to sizeof(tollgate_agent_query).
   */
  uint32_t struct_size;
  /**
   * One of TOLLGATE_AGENT_SORT_ID, _USAGE and _VIOLATIONS.
   */
  int32_t sort;
  /**
   * Only agents whose id begins with these bytes; NULL for all.
   */
  const void *prefix;
  /**
   * How many bytes.
   */
  size_t prefix_len;
  /**
   * Only agents whose id has these bytes in it; NULL for all.
   */
  const void *part;
  /**
   * How many bytes.
   */
  size_t part_len;
  /**
   * Which page; the first is 0.
   */
  uint64_t page;
  /**
   * How many on a page, up to TOLLGATE_PAGE_MAX; 0 for as many.
   */
  uint64_t per_page;
} tollgate_agent_query;

/**
 * Something that an operator should hear of. Members that its type does not
 * name are zero.
 */
typedef struct tollgate_event {
  /**
   * Set it to sizeof(tollgate_event) before the call.
   */
  uint32_t struct_size;
  /**
   * What happened: a tollgate_event_type, or one of a later version.
   */
  int32_t kind;
  /**
   * Counts up from 0 by one for each event. A gap tells how many were dropped.
   */
  uint64_t number;
  /**
   * When it happened.
   */
  uint64_t at_ns;
  /**
   * Records given up so far.
   */
  uint64_t lossy_evictions;
  /**
   * New agents refused so far.
   */
  uint64_t refused;
  /**
   * How many agents.
   */
  uint64_t agents;
  /**
   * What was left; UINT64_MAX for an exempt agent.
   */
  uint64_t remaining;
  /**
   * Violations without a quiet period between them.
   */
  uint32_t consecutive;
  /**
   * For what.
   */
  uint32_t lane;
  /**
   * The answer.
   */
  tollgate_decision decision;
  /**
   * How many bytes the agent's id has.
   */
  uint32_t agent_len;
  /**
   * The agent's id, any bytes.
   */
  uint8_t agent[TOLLGATE_ID_BYTES_MAX];
  /**
   * The action's channel, NUL-terminated, cut to 64 bytes.
   */
  char channel[72];
  /**
   * The action's name, NUL-terminated, cut to 64 bytes.
   */
  char action[72];
} tollgate_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A sentence on a status, NUL-terminated. It is part of the library: never
 * free it. A number that is no status has a sentence too.
 */
const char *tollgate_status_text(int32_t status);

/**
 * The version of the library in use, such as "1.2.3", NUL-terminated. It is
 * part of the library: never free it.
 */
const char *tollgate_version(void);

/**
 * The version of the library in use as a number that grows, 8 bits a part:
 * 1.2.3 is 0x010203. Compare with TOLLGATE_VERSION_NUMBER.
 */
uint32_t tollgate_version_number(void);

/**
 * What is built into the library in use: a sum of TOLLGATE_FEATURE_CONFIG and
 * the like. Functions of what is not are there all the same, and return
 * TOLLGATE_STATUS_NOT_BUILT_IN.
 */
uint32_t tollgate_features(void);

/**
 * Starts a policy without lanes.
 *
 * The caller owns the builder and gives it back with tollgate_policy_builder_free.
 *
 * # Safety
 *
 * `builder_out` is NULL or writable.
 */
tollgate_status tollgate_policy_builder_new(struct tollgate_policy_builder **builder_out);

/**
 * Gives a builder back. NULL is fine.
 *
 * # Safety
 *
 * `builder` is NULL, or came from tollgate_policy_builder_new, was not freed
 * yet, and is in use by no other thread.
 */
void tollgate_policy_builder_free(struct tollgate_policy_builder *builder);

/**
 * Adds a lane whose limit is given as text: "10/second burst 20", "60/min",
 * "5 per 5 minutes" or "deny".
 *
 * Lanes are numbered from 0 in the order in which they are added. What makes
 * no sense is told when the policy is built. Neither text is kept.
 *
 * The lane "total" is a limit over all others: a check charges its lane and the
 * total, both or neither. It has the last number wherever it is added, and is
 * "unlimited" in plans that go without it. It is a bucket, a window or a
 * budget, and never charged alone: such calls answer WRONG_KIND.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `name` and
 * `limit` are NULL or readable for as many bytes as stated.
 */
tollgate_status tollgate_policy_builder_lane(struct tollgate_policy_builder *builder,
                                             const char *name,
                                             size_t name_len,
                                             const char *limit,
                                             size_t limit_len);

/**
 * Adds a lane whose limit is given in numbers: a bucket that holds `capacity`
 * tokens and gets `tokens` of them back every `per_ns` nanoseconds.
 *
 * Otherwise as tollgate_policy_builder_lane.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `name` is
 * NULL or readable for `name_len` bytes.
 */
tollgate_status tollgate_policy_builder_lane_bucket(struct tollgate_policy_builder *builder,
                                                    const char *name,
                                                    size_t name_len,
                                                    uint64_t tokens,
                                                    uint64_t per_ns,
                                                    uint64_t capacity);

/**
 * Adds a plan in which every lane has its own limit, until
 * tollgate_policy_builder_plan_lane says otherwise.
 *
 * Plans are numbered from 1 in the order in which they are added; 0 is
 * "default", which every policy has. What makes no sense is told when the
 * policy is built.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `name` is
 * NULL or readable for `name_len` bytes.
 */
tollgate_status tollgate_policy_builder_plan(struct tollgate_policy_builder *builder,
                                             const char *name,
                                             size_t name_len);

/**
 * Gives a lane another limit in a plan that was added before.
 *
 * Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `plan`,
 * `lane` and `limit` are NULL or readable for as many bytes as stated.
 */
tollgate_status tollgate_policy_builder_plan_lane(struct tollgate_policy_builder *builder,
                                                  const char *plan,
                                                  size_t plan_len,
                                                  const char *lane,
                                                  size_t lane_len,
                                                  const char *limit,
                                                  size_t limit_len);

/**
 * As tollgate_policy_builder_plan_lane, with the limit in numbers; see
 * tollgate_policy_builder_lane_bucket.
 *
 * Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `plan` and
 * `lane` are NULL or readable for as many bytes as stated.
 */
tollgate_status tollgate_policy_builder_plan_lane_bucket(struct tollgate_policy_builder *builder,
                                                         const char *plan,
                                                         size_t plan_len,
                                                         const char *lane,
                                                         size_t lane_len,
                                                         uint64_t tokens,
                                                         uint64_t per_ns,
                                                         uint64_t capacity);

/**
 * Says that an action of a channel is charged to its lane of this tier: "ping"
 * of the channel "ws" and the tier "light" to the lane "ws/light".
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `channel`,
 * `tier` and `action` are NULL or readable for as many bytes as stated.
 */
tollgate_status tollgate_policy_builder_action(struct tollgate_policy_builder *builder,
                                               const char *channel,
                                               size_t channel_len,
                                               const char *tier,
                                               size_t tier_len,
                                               const char *action,
                                               size_t action_len);

/**
 * Sends actions that are not named to this tier of their channel; "normal" if
 * nothing is said.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `tier` is
 * NULL or readable for `tier_len` bytes.
 */
tollgate_status tollgate_policy_builder_unknown_actions_to(struct tollgate_policy_builder *builder,
                                                           const char *tier,
                                                           size_t tier_len);

/**
 * Leaves a lane out of the total, which counts all but those that are held
 * otherwise: one whose costs are not requests, such as LLM tokens. A lane that
 * is not there is reported when the policy is built.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `lane` is
 * NULL or readable for `lane_len` bytes.
 */
tollgate_status tollgate_policy_builder_outside_total(struct tollgate_policy_builder *builder,
                                                      const char *lane,
                                                      size_t lane_len);

/**
 * Sets the rules of conduct. What is out of range is told when the policy is
 * built.
 *
 * Status: INVALID_OPTION for a curve of too many steps, or a flag that is
 * neither 0 nor 1; STRUCT_SIZE.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `rules` is
 * NULL or readable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_policy_builder_conduct(struct tollgate_policy_builder *builder,
                                                const struct tollgate_conduct_rules *rules);

/**
 * Sets what becomes of an agent's debt when its limits change: one of
 * TOLLGATE_ON_CHANGE_KEEP_DEBT, the default, and TOLLGATE_ON_CHANGE_RESET.
 *
 * Status: INVALID_OPTION.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread.
 */
tollgate_status tollgate_policy_builder_on_change(struct tollgate_policy_builder *builder,
                                                  int32_t on_change);

/**
 * Warns when less than this share of a lane's capacity is left, in percent:
 * 20 if nothing is said, 0 for never.
 *
 * Status: INVALID_OPTION above 100.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread.
 */
tollgate_status tollgate_policy_builder_warn_below_percent(struct tollgate_policy_builder *builder,
                                                           uint32_t percent);

/**
 * Checks everything and makes the policy.
 *
 * The caller owns the policy and gives it back with tollgate_policy_free. The
 * builder stays as it is and may be used again. `error_out` may be NULL.
 *
 * Status: INVALID_POLICY, with the first thing that makes no sense in the
 * error's message; STRUCT_SIZE of the error.
 *
 * # Safety
 *
 * `builder` is NULL, or not freed and in use by no other thread; `policy_out`
 * is NULL or writable; `error_out` is NULL, or readable and writable for as
 * many bytes as its struct_size says.
 */
tollgate_status tollgate_policy_builder_build(const struct tollgate_policy_builder *builder,
                                              struct tollgate_policy **policy_out,
                                              struct tollgate_error *error_out);

/**
 * The ready-made policy of this name; see tollgate_preset_name.
 *
 * The caller owns the policy and gives it back with tollgate_policy_free.
 * `error_out` may be NULL.
 *
 * Status: UNKNOWN_PRESET, NOT_UTF8, TEXT_TOO_LONG, STRUCT_SIZE of the error.
 *
 * # Safety
 *
 * `name` is NULL or readable for `name_len` bytes; `policy_out` is NULL or
 * writable; `error_out` is NULL, or readable and writable for as many bytes
 * as its struct_size says.
 */
tollgate_status tollgate_policy_preset(const char *name,
                                       size_t name_len,
                                       struct tollgate_policy **policy_out,
                                       struct tollgate_error *error_out);

/**
 * The name of a preset, NUL-terminated; NULL past the last one. They are
 * numbered from 0. It is part of the library: never free it.
 */
const char *tollgate_preset_name(size_t index);

/**
 * Reads a policy from the text of a TOML file. Needs TOLLGATE_FEATURE_CONFIG.
 *
 * The caller owns the policy and gives it back with tollgate_policy_free.
 * `error_out` may be NULL; its line and column are where the text is wrong.
 *
 * Status: INVALID_POLICY, NOT_UTF8, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE
 * of the error.
 *
 * # Safety
 *
 * `toml` is NULL or readable for `toml_len` bytes; `policy_out` is NULL or
 * writable; `error_out` is NULL, or readable and writable for as many bytes
 * as its struct_size says.
 */
tollgate_status tollgate_policy_from_toml(const char *toml,
                                          size_t toml_len,
                                          struct tollgate_policy **policy_out,
                                          struct tollgate_error *error_out);

/**
 * Writes the whole policy as the text of a TOML file, NUL-terminated, and its
 * length without the NUL. tollgate_policy_from_toml reads the same policy
 * back. Needs TOLLGATE_FEATURE_CONFIG.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: BUFFER_TOO_SMALL, NOT_BUILT_IN.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `toml_out` is NULL or
 * writable for `toml_size` bytes; `toml_len_out` is NULL or writable.
 */
tollgate_status tollgate_policy_to_toml(const struct tollgate_policy *policy,
                                        char *toml_out,
                                        size_t toml_size,
                                        size_t *toml_len_out);

/**
 * Gives a policy back. NULL is fine. Limiters that were made with it keep a
 * copy of their own.
 *
 * # Safety
 *
 * `policy` is NULL, or came from a function that gave it to the caller, was
 * not freed yet, and is in use by no other thread.
 */
void tollgate_policy_free(struct tollgate_policy *policy);

/**
 * The number of the lane of this name.
 *
 * Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `name` is NULL or readable
 * for `name_len` bytes; `lane_out` is NULL or writable.
 */
tollgate_status tollgate_policy_lane(const struct tollgate_policy *policy,
                                     const char *name,
                                     size_t name_len,
                                     uint32_t *lane_out);

/**
 * How many lanes the policy has. They are numbered from 0.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `count_out` is NULL or writable.
 */
tollgate_status tollgate_policy_lane_count(const struct tollgate_policy *policy,
                                           uint32_t *count_out);

/**
 * The name of a lane, NUL-terminated, and its length without the NUL.
 *
 * A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for any.
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: UNKNOWN_LANE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `name_out` is NULL or
 * writable for `name_size` bytes; `name_len_out` is NULL or writable.
 */
tollgate_status tollgate_policy_lane_name(const struct tollgate_policy *policy,
                                          uint32_t lane,
                                          char *name_out,
                                          size_t name_size,
                                          size_t *name_len_out);

/**
 * The limit of a lane as text, NUL-terminated, such as "10/minute burst 3",
 * and its length without the NUL. The text can be given to
 * tollgate_policy_builder_lane again.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: UNKNOWN_LANE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `limit_out` is NULL or
 * writable for `limit_size` bytes; `limit_len_out` is NULL or writable.
 */
tollgate_status tollgate_policy_limit(const struct tollgate_policy *policy,
                                      uint32_t lane,
                                      char *limit_out,
                                      size_t limit_size,
                                      size_t *limit_len_out);

/**
 * A verdict warns when less than this share of the capacity is left, in percent.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `percent_out` is NULL or writable.
 */
tollgate_status tollgate_policy_warn_below_percent(const struct tollgate_policy *policy,
                                                   uint32_t *percent_out);

/**
 * The lanes that a name stands for: the lane of this name, or all lanes of
 * this tier, in order. "heavy" stands for "ws/heavy" and "http/heavy".
 *
 * `lanes_out` has room for `lanes_size` numbers; TOLLGATE_LANES_MAX is enough
 * for any policy. NULL and 0 ask for the count alone.
 *
 * Status: UNKNOWN_LANE if there are none; NOT_UTF8, TEXT_TOO_LONG,
 * BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `lane_or_tier` is NULL or
 * readable for as many bytes as stated; `lanes_out` is NULL or writable for
 * `lanes_size` numbers; `count_out` is NULL or writable.
 */
tollgate_status tollgate_policy_lanes_of(const struct tollgate_policy *policy,
                                         const char *lane_or_tier,
                                         size_t lane_or_tier_len,
                                         uint32_t *lanes_out,
                                         size_t lanes_size,
                                         size_t *count_out);

/**
 * The number of the plan of this name; "default" is 0.
 *
 * Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `name` is NULL or readable
 * for `name_len` bytes; `plan_out` is NULL or writable.
 */
tollgate_status tollgate_policy_plan(const struct tollgate_policy *policy,
                                     const char *name,
                                     size_t name_len,
                                     uint32_t *plan_out);

/**
 * How many plans the policy has, "default" among them. They are numbered from 0.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `count_out` is NULL or writable.
 */
tollgate_status tollgate_policy_plan_count(const struct tollgate_policy *policy,
                                           uint32_t *count_out);

/**
 * The name of a plan, NUL-terminated, and its length without the NUL.
 *
 * A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for any.
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: UNKNOWN_PLAN, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `name_out` is NULL or
 * writable for `name_size` bytes; `name_len_out` is NULL or writable.
 */
tollgate_status tollgate_policy_plan_name(const struct tollgate_policy *policy,
                                          uint32_t plan,
                                          char *name_out,
                                          size_t name_size,
                                          size_t *name_len_out);

/**
 * The limit of a lane in a plan as text; see tollgate_policy_limit.
 *
 * Status: UNKNOWN_PLAN, UNKNOWN_LANE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * As tollgate_policy_limit.
 */
tollgate_status tollgate_policy_plan_limit(const struct tollgate_policy *policy,
                                           uint32_t plan,
                                           uint32_t lane,
                                           char *limit_out,
                                           size_t limit_size,
                                           size_t *limit_len_out);

/**
 * How many tokens a lane holds in a plan when it is full; 0 if it denies
 * everything. The plan 0 has the lanes' own limits.
 *
 * Status: UNKNOWN_PLAN, UNKNOWN_LANE.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `capacity_out` is NULL or writable.
 */
tollgate_status tollgate_policy_capacity(const struct tollgate_policy *policy,
                                         uint32_t plan,
                                         uint32_t lane,
                                         uint64_t *capacity_out);

/**
 * What becomes of an agent's debt when its limits change.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `on_change_out` is NULL or writable.
 */
tollgate_status tollgate_policy_on_change(const struct tollgate_policy *policy,
                                          tollgate_on_change *on_change_out);

/**
 * The rules of conduct, every member filled in.
 *
 * Status: STRUCT_SIZE.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `rules_out` is NULL, or
 * readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_policy_conduct(const struct tollgate_policy *policy,
                                        struct tollgate_conduct_rules *rules_out);

/**
 * How many actions the policy names. They are numbered from 0.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `count_out` is NULL or writable.
 */
tollgate_status tollgate_policy_action_count(const struct tollgate_policy *policy,
                                             size_t *count_out);

/**
 * The name of an action that the policy names, NUL-terminated, and its length
 * without the NUL. tollgate_policy_action_lane tells where it belongs.
 *
 * A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for any.
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `name_out` is NULL or
 * writable for `name_size` bytes; `name_len_out` is NULL or writable.
 */
tollgate_status tollgate_policy_action_name(const struct tollgate_policy *policy,
                                            size_t index,
                                            char *name_out,
                                            size_t name_size,
                                            size_t *name_len_out);

/**
 * The lane of an action that the policy names. The action's channel is the
 * part of the lane's name before the last "/".
 *
 * Status: OUT_OF_RANGE.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `lane_out` is NULL or writable.
 */
tollgate_status tollgate_policy_action_lane(const struct tollgate_policy *policy,
                                            size_t index,
                                            uint32_t *lane_out);

/**
 * The tier that takes unknown actions, NUL-terminated, and its length without
 * the NUL; an empty text if the policy names no actions.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `tier_out` is NULL or
 * writable for `tier_size` bytes; `tier_len_out` is NULL or writable.
 */
tollgate_status tollgate_policy_unknown_actions_tier(const struct tollgate_policy *policy,
                                                     char *tier_out,
                                                     size_t tier_size,
                                                     size_t *tier_len_out);

/**
 * Makes a clock. `source` is one of TOLLGATE_TIME_SOURCE_AUTO, _OS, _COARSE,
 * _BOOTTIME and _MANUAL.
 *
 * The caller owns the clock and gives it back with tollgate_clock_free, which
 * limiters that use it outlive. The first AUTO of a process takes some 10 ms
 * to judge the counter.
 *
 * Status: INVALID_OPTION for any other source.
 *
 * # Safety
 *
 * `clock_out` is NULL or writable.
 */
tollgate_status tollgate_clock_new(int32_t source, struct tollgate_clock **clock_out);

/**
 * Gives a clock back. NULL is fine. Limiters that were made with it keep what
 * they need of it.
 *
 * # Safety
 *
 * `clock` is NULL, or came from tollgate_clock_new, was not freed yet, and is
 * in use by no other thread.
 */
void tollgate_clock_free(struct tollgate_clock *clock);

/**
 * The present instant, in nanoseconds since the clock's origin.
 *
 * # Safety
 *
 * `clock` is NULL or a clock that is not freed; `now_ns_out` is NULL or writable.
 */
tollgate_status tollgate_clock_now(const struct tollgate_clock *clock, uint64_t *now_ns_out);

/**
 * What the clock reads at present: never TOLLGATE_TIME_SOURCE_AUTO, but what
 * that has chosen, and TOLLGATE_TIME_SOURCE_OS once it has given the counter up.
 *
 * # Safety
 *
 * `clock` is NULL or a clock that is not freed; `source_out` is NULL or writable.
 */
tollgate_status tollgate_clock_source(const struct tollgate_clock *clock,
                                      tollgate_time_source *source_out);

/**
 * How often a trusted counter was found to disagree with the system's clock
 * and was given up: 0, or 1 since that is for good.
 *
 * # Safety
 *
 * `clock` is NULL or a clock that is not freed; `fallbacks_out` is NULL or writable.
 */
tollgate_status tollgate_clock_fallbacks(const struct tollgate_clock *clock,
                                         uint64_t *fallbacks_out);

/**
 * Moves a manual clock ahead. It stops after 36 years; then everything is denied.
 *
 * Status: NOT_MANUAL.
 *
 * # Safety
 *
 * `clock` is NULL or a clock that is not freed.
 */
tollgate_status tollgate_clock_advance(struct tollgate_clock *clock, uint64_t by_ns);

/**
 * Puts a manual clock at an instant, also back in time: a limiter then only
 * gets stricter.
 *
 * Status: NOT_MANUAL.
 *
 * # Safety
 *
 * `clock` is NULL or a clock that is not freed.
 */
tollgate_status tollgate_clock_set(struct tollgate_clock *clock, uint64_t now_ns);

/**
 * Makes a limiter. All its memory is reserved here.
 *
 * The caller owns it and gives it back with tollgate_limiter_free. Policy and
 * clock may be freed as soon as this returns. `options` may be NULL.
 *
 * Status: INVALID_OPTION, AGENTS_OUT_OF_RANGE, OUT_OF_MEMORY, STRUCT_SIZE.
 *
 * # Safety
 *
 * `policy` is NULL or a policy that is not freed; `options` is NULL or
 * readable for as many bytes as its struct_size says, and its clock is NULL
 * or a clock that is not freed; `limiter_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_new(const struct tollgate_policy *policy,
                                     const struct tollgate_limiter_options *options,
                                     struct tollgate_limiter **limiter_out);

/**
 * Gives a limiter back, and its memory to the system. NULL is fine, and the
 * limiter of tollgate_default stays as it is.
 *
 * # Safety
 *
 * `limiter` is NULL, or came from tollgate_limiter_new or tollgate_default,
 * was not freed yet, and is in use by no other thread.
 */
void tollgate_limiter_free(struct tollgate_limiter *limiter);

/**
 * A copy of the policy in force, which the caller owns and gives back with
 * tollgate_policy_free.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `policy_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_policy(const struct tollgate_limiter *limiter,
                                        struct tollgate_policy **policy_out);

/**
 * The number of the lane of this name. It stays the same for as long as the
 * limiter lives, so ask once.
 *
 * Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `name` is NULL or readable
 * for `name_len` bytes; `lane_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_lane(const struct tollgate_limiter *limiter,
                                      const char *name,
                                      size_t name_len,
                                      uint32_t *lane_out);

/**
 * The number of the plan of this name; "default" is 0. It stays the same for
 * as long as the limiter lives.
 *
 * Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `name` is NULL or readable
 * for `name_len` bytes; `plan_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_plan(const struct tollgate_limiter *limiter,
                                      const char *name,
                                      size_t name_len,
                                      uint32_t *plan_out);

/**
 * The present instant on the limiter's clock, in nanoseconds since its
 * origin: what the functions ending in _at want.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `now_ns_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_now(const struct tollgate_limiter *limiter, uint64_t *now_ns_out);

/**
 * Bytes of address space that the limiter has reserved. No stream of ids
 * makes it more; assignments take memory beside it.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `bytes_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_memory(const struct tollgate_limiter *limiter,
                                        uint64_t *bytes_out);

/**
 * What the limiter holds and has seen. Walks a counter per 1,024 records.
 *
 * Status: STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `stats_out` is NULL, or
 * readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_stats(const struct tollgate_limiter *limiter,
                                       struct tollgate_stats *stats_out);

/**
 * Vacates the records of agents that have been idle, with every lane full,
 * for `idle_for_ns`, and says how many.
 *
 * Never needed for correctness: an idle record is taken when somebody needs
 * one. It makes the agents in tollgate_stats those of late. It walks all
 * records, so call it from a timer, every few minutes, say.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `swept_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_sweep(struct tollgate_limiter *limiter,
                                       uint64_t idle_for_ns,
                                       uint64_t *swept_out);

/**
 * As tollgate_limiter_sweep, at an instant of the caller's.
 *
 * # Safety
 *
 * As tollgate_limiter_sweep.
 */
tollgate_status tollgate_limiter_sweep_at(struct tollgate_limiter *limiter,
                                          uint64_t idle_for_ns,
                                          uint64_t now_ns,
                                          uint64_t *swept_out);

/**
 * Whole tokens left in the lane after this request; 0 for NULL, and for a
 * verdict that is all zero.
 *
 * It takes a division, so a check leaves it to those who want to know.
 *
 * # Safety
 *
 * `verdict` is NULL or points to a verdict.
 */
uint64_t tollgate_verdict_remaining(const struct tollgate_verdict *verdict);

/**
 * Whole tokens left in the lane after a request of a batch; 0 for NULL, and
 * for an answer whose status is not TOLLGATE_STATUS_OK.
 *
 * # Safety
 *
 * `answer` is NULL or points to an answer.
 */
uint64_t tollgate_answer_remaining(const struct tollgate_answer *answer);

/**
 * May the agent spend `cost` tokens of a lane now? Charges all of them or none.
 *
 * A denial is TOLLGATE_STATUS_OK with the decision TOLLGATE_DECISION_DENY.
 * `id` is any bytes, need not end in a NUL, and is not kept.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, ZERO_COST, COST_ABOVE_CAPACITY,
 * FULL, STRUCT_SIZE. With any of them nothing was charged.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `verdict_out` is NULL, or readable and writable for as
 * many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_check(struct tollgate_limiter *limiter,
                                       const void *id,
                                       size_t id_len,
                                       uint32_t lane,
                                       uint64_t cost,
                                       struct tollgate_verdict *verdict_out);

/**
 * May the agent spend `cost` tokens of a lane at an instant of the caller's?
 *
 * For those who have the time at hand, such as event loops, and for tests.
 * `now_ns` counts on the limiter's clock: see tollgate_limiter_now. An older
 * one than another caller's only makes the answer stricter; one that lies
 * ahead of the clock lets the agent borrow from its future.
 *
 * Status: as tollgate_limiter_check.
 *
 * # Safety
 *
 * As tollgate_limiter_check.
 */
tollgate_status tollgate_limiter_check_at(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint32_t lane,
                                          uint64_t cost,
                                          uint64_t now_ns,
                                          struct tollgate_verdict *verdict_out);

/**
 * May the agent spend `cost` tokens of a lane now, under this plan if it has
 * no assignment of its own?
 *
 * For what is known only with the request, such as how the caller has
 * authenticated: the plans "jwt" and "unauthenticated", say. Nothing is
 * remembered of the plan; the agent's lanes are the same under each. Plans
 * are numbered: see tollgate_limiter_plan.
 *
 * Status: as tollgate_limiter_check, and UNKNOWN_PLAN.
 *
 * # Safety
 *
 * As tollgate_limiter_check.
 */
tollgate_status tollgate_limiter_check_as(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint32_t plan,
                                          uint32_t lane,
                                          uint64_t cost,
                                          struct tollgate_verdict *verdict_out);

/**
 * As tollgate_limiter_check_as, at an instant of the caller's; see
 * tollgate_limiter_check_at.
 *
 * Status: as tollgate_limiter_check_as.
 *
 * # Safety
 *
 * As tollgate_limiter_check.
 */
tollgate_status tollgate_limiter_check_as_at(struct tollgate_limiter *limiter,
                                             const void *id,
                                             size_t id_len,
                                             uint32_t plan,
                                             uint32_t lane,
                                             uint64_t cost,
                                             uint64_t now_ns,
                                             struct tollgate_verdict *verdict_out);

/**
 * Answers a batch as if its requests were checked one by one, in order, at
 * one reading of the clock.
 *
 * A request that cannot be answered gets its own status, and the others
 * proceed. There is an answer for each request, in the same place. Requests
 * and answers must not overlap. A batch asks for the memory of many agents at
 * once, so it is faster than single checks where agents are many.
 *
 * Status: BATCH_SIZE. With it nothing was charged.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `requests` is NULL or
 * readable for `count` requests, each with an id that is NULL or readable for
 * its id_len bytes; `answers_out` is NULL or writable for `count` answers.
 */
tollgate_status tollgate_limiter_check_many(struct tollgate_limiter *limiter,
                                            const struct tollgate_request *requests,
                                            size_t count,
                                            struct tollgate_answer *answers_out);

/**
 * Answers a batch at an instant of the caller's; see
 * tollgate_limiter_check_many and tollgate_limiter_check_at.
 *
 * Status: BATCH_SIZE.
 *
 * # Safety
 *
 * As tollgate_limiter_check_many.
 */
tollgate_status tollgate_limiter_check_many_at(struct tollgate_limiter *limiter,
                                               const struct tollgate_request *requests,
                                               size_t count,
                                               uint64_t now_ns,
                                               struct tollgate_answer *answers_out);

/**
 * Looks at a lane of an agent, without charging it or making the agent known.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `status_out` is NULL, or readable and writable for as
 * many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_status(const struct tollgate_limiter *limiter,
                                        const void *id,
                                        size_t id_len,
                                        uint32_t lane,
                                        struct tollgate_lane_status *status_out);

/**
 * Looks at a lane of an agent at an instant of the caller's.
 *
 * Status: as tollgate_limiter_status.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_status_at(const struct tollgate_limiter *limiter,
                                           const void *id,
                                           size_t id_len,
                                           uint32_t lane,
                                           uint64_t now_ns,
                                           struct tollgate_lane_status *status_out);

/**
 * Looks at a lane under this plan, if the agent has no assignment of its own;
 * see tollgate_limiter_check_as.
 *
 * Status: as tollgate_limiter_status, and UNKNOWN_PLAN.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_status_as(const struct tollgate_limiter *limiter,
                                           const void *id,
                                           size_t id_len,
                                           uint32_t plan,
                                           uint32_t lane,
                                           struct tollgate_lane_status *status_out);

/**
 * As tollgate_limiter_status_as, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_status_as.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_status_as_at(const struct tollgate_limiter *limiter,
                                              const void *id,
                                              size_t id_len,
                                              uint32_t plan,
                                              uint32_t lane,
                                              uint64_t now_ns,
                                              struct tollgate_lane_status *status_out);

/**
 * Gives `cost` tokens back, never beyond full, and tells how the lane then
 * stands. An agent without a record is full already.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, ZERO_COST, COST_ABOVE_CAPACITY,
 * STRUCT_SIZE.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_refund(struct tollgate_limiter *limiter,
                                        const void *id,
                                        size_t id_len,
                                        uint32_t lane,
                                        uint64_t cost,
                                        struct tollgate_lane_status *status_out);

/**
 * Gives `cost` tokens back at an instant of the caller's, or at the clock's
 * time if that is later.
 *
 * Status: as tollgate_limiter_refund.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_refund_at(struct tollgate_limiter *limiter,
                                           const void *id,
                                           size_t id_len,
                                           uint32_t lane,
                                           uint64_t cost,
                                           uint64_t now_ns,
                                           struct tollgate_lane_status *status_out);

/**
 * Gives `cost` tokens back under this plan, if the agent has no assignment of
 * its own: the plan that tollgate_limiter_check_as charged under. A token is
 * worth what it costs under the limit that applies.
 *
 * Status: as tollgate_limiter_refund, and UNKNOWN_PLAN.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_refund_as(struct tollgate_limiter *limiter,
                                           const void *id,
                                           size_t id_len,
                                           uint32_t plan,
                                           uint32_t lane,
                                           uint64_t cost,
                                           struct tollgate_lane_status *status_out);

/**
 * As tollgate_limiter_refund_as, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_refund_as.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_refund_as_at(struct tollgate_limiter *limiter,
                                              const void *id,
                                              size_t id_len,
                                              uint32_t plan,
                                              uint32_t lane,
                                              uint64_t cost,
                                              uint64_t now_ns,
                                              struct tollgate_lane_status *status_out);

/**
 * Fills every lane of the agent, one after the other. What is reserved has
 * nothing to give back any more. Slots that are held stay held.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes.
 */
tollgate_status tollgate_limiter_reset(struct tollgate_limiter *limiter,
                                       const void *id,
                                       size_t id_len);

/**
 * Fills every lane of the agent at an instant of the caller's.
 *
 * Status: as tollgate_limiter_reset.
 *
 * # Safety
 *
 * As tollgate_limiter_reset.
 */
tollgate_status tollgate_limiter_reset_at(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint64_t now_ns);

/**
 * Fills one lane of the agent; as tollgate_limiter_reset.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE.
 *
 * # Safety
 *
 * As tollgate_limiter_reset.
 */
tollgate_status tollgate_limiter_reset_lane(struct tollgate_limiter *limiter,
                                            const void *id,
                                            size_t id_len,
                                            uint32_t lane);

/**
 * Fills one lane of the agent at an instant of the caller's.
 *
 * Status: as tollgate_limiter_reset_lane.
 *
 * # Safety
 *
 * As tollgate_limiter_reset.
 */
tollgate_status tollgate_limiter_reset_lane_at(struct tollgate_limiter *limiter,
                                               const void *id,
                                               size_t id_len,
                                               uint32_t lane,
                                               uint64_t now_ns);

/**
 * Forgets the agent: its record is vacant again, and its next check is its
 * first. Its reservations are closed. Tells whether anything was known of it.
 * Slots that are held stay held, so an agent that holds one keeps its record,
 * with all other lanes filled; as may one that is checked in the same moment.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `known_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_forget(struct tollgate_limiter *limiter,
                                        const void *id,
                                        size_t id_len,
                                        bool *known_out);

/**
 * Forgets the agent at an instant of the caller's.
 *
 * Status: as tollgate_limiter_forget.
 *
 * # Safety
 *
 * As tollgate_limiter_forget.
 */
tollgate_status tollgate_limiter_forget_at(struct tollgate_limiter *limiter,
                                           const void *id,
                                           size_t id_len,
                                           uint64_t now_ns,
                                           bool *known_out);

/**
 * May all of this be done now? Charges every part or none: one request
 * against several lanes of an agent, or of several agents, such as a user, a
 * team and an organisation. There are 1 to TOLLGATE_PARTS_MAX parts.
 *
 * `answers_out` has room for an answer to each part, in the same place, or is
 * NULL. If a part stands in the way, nothing was charged, and the answers to
 * the others say what would have been. Parts and answers must not overlap.
 *
 * A caller that is alone is denied only if a part stands in the way; of
 * callers that cross, each may meet what the other is about to take back, and
 * both may be denied once.
 *
 * Status: PARTS if there are none, or too many; if a part cannot be answered,
 * what tollgate_limiter_check would have returned, and COST_ABOVE_CAPACITY if
 * parts of one lane together are more than it ever holds; STRUCT_SIZE. With
 * any of them nothing was charged.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `parts` is NULL or
 * readable for `count` requests, each with an id that is NULL or readable for
 * its id_len bytes; `answers_out` is NULL or writable for `count` answers;
 * `verdict_out` is NULL, or readable and writable for as many bytes as its
 * struct_size says.
 */
tollgate_status tollgate_limiter_check_all(struct tollgate_limiter *limiter,
                                           const struct tollgate_request *parts,
                                           size_t count,
                                           struct tollgate_answer *answers_out,
                                           struct tollgate_all_verdict *verdict_out);

/**
 * As tollgate_limiter_check_all, at an instant of the caller's; see
 * tollgate_limiter_check_at.
 *
 * Status: as tollgate_limiter_check_all.
 *
 * # Safety
 *
 * As tollgate_limiter_check_all.
 */
tollgate_status tollgate_limiter_check_all_at(struct tollgate_limiter *limiter,
                                              const struct tollgate_request *parts,
                                              size_t count,
                                              uint64_t now_ns,
                                              struct tollgate_answer *answers_out,
                                              struct tollgate_all_verdict *verdict_out);

/**
 * As tollgate_limiter_check_all, and a denial is recorded as a violation of
 * each agent that stands in the way; the longest wait takes that into account.
 * See tollgate_limiter_admit.
 *
 * Status: as tollgate_limiter_check_all.
 *
 * # Safety
 *
 * As tollgate_limiter_check_all.
 */
tollgate_status tollgate_limiter_admit_all(struct tollgate_limiter *limiter,
                                           const struct tollgate_request *parts,
                                           size_t count,
                                           struct tollgate_answer *answers_out,
                                           struct tollgate_all_verdict *verdict_out);

/**
 * As tollgate_limiter_admit_all, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_check_all.
 *
 * # Safety
 *
 * As tollgate_limiter_check_all.
 */
tollgate_status tollgate_limiter_admit_all_at(struct tollgate_limiter *limiter,
                                              const struct tollgate_request *parts,
                                              size_t count,
                                              uint64_t now_ns,
                                              struct tollgate_answer *answers_out,
                                              struct tollgate_all_verdict *verdict_out);

/**
 * Takes a slot of a lane whose limit is "held 3" or the like, for a
 * connection, say, until tollgate_limiter_release gives it back.
 *
 * Status: as tollgate_limiter_check, and WRONG_KIND if the lane is another kind
 * of limit.
 *
 * # Safety
 *
 * As tollgate_limiter_check.
 */
tollgate_status tollgate_limiter_acquire(struct tollgate_limiter *limiter,
                                         const void *id,
                                         size_t id_len,
                                         uint32_t lane,
                                         struct tollgate_verdict *verdict_out);

/**
 * Gives a slot back, once for each that was taken, and tells how the lane
 * then stands.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, STRUCT_SIZE; WRONG_KIND if the
 * lane is another kind of limit; NOT_HELD if the agent holds none. With any of
 * them nothing has changed.
 *
 * # Safety
 *
 * As tollgate_limiter_status.
 */
tollgate_status tollgate_limiter_release(struct tollgate_limiter *limiter,
                                         const void *id,
                                         size_t id_len,
                                         uint32_t lane,
                                         struct tollgate_lane_status *status_out);

/**
 * Charges an estimate now, to be settled when the cost is known: by
 * tollgate_limiter_commit, or by tollgate_limiter_cancel if nothing came of
 * it. For LLM calls and whatever else costs what it costs only at the end.
 *
 * If neither happens within `ttl_ns`, the estimate stays charged: to
 * disconnect is not free. `reservation_out` gets the number of the
 * reservation, to be kept until it is settled; it means nothing if the
 * decision is TOLLGATE_DECISION_DENY, and then nothing was charged. For lanes
 * that are buckets, windows or budgets.
 *
 * A reservation belongs to the charge that it makes. A reset forgives that
 * charge, and leaves nothing to give back; a change of limits leaves it its
 * worth; tollgate_limiter_forget closes it.
 *
 * Status: as tollgate_limiter_check; WRONG_KIND for a lane that is held or an
 * exact window; TOO_MANY_RESERVATIONS if the agent has as many open as one
 * agent may; RESERVATIONS_FULL if as many are open as the limiter was made
 * for. With any of them nothing was charged.
 *
 * # Safety
 *
 * As tollgate_limiter_check, and `reservation_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_reserve(struct tollgate_limiter *limiter,
                                         const void *id,
                                         size_t id_len,
                                         uint32_t lane,
                                         uint64_t estimate,
                                         uint64_t ttl_ns,
                                         struct tollgate_verdict *verdict_out,
                                         uint64_t *reservation_out);

/**
 * As tollgate_limiter_reserve, at an instant of the caller's; see
 * tollgate_limiter_check_at.
 *
 * Status: as tollgate_limiter_reserve.
 *
 * # Safety
 *
 * As tollgate_limiter_reserve.
 */
tollgate_status tollgate_limiter_reserve_at(struct tollgate_limiter *limiter,
                                            const void *id,
                                            size_t id_len,
                                            uint32_t lane,
                                            uint64_t estimate,
                                            uint64_t ttl_ns,
                                            uint64_t now_ns,
                                            struct tollgate_verdict *verdict_out,
                                            uint64_t *reservation_out);

/**
 * Settles a reservation: `used` is what it came to, beyond what
 * tollgate_limiter_commit_part has told already. The rest is given back; what
 * is more than was reserved is charged, into debt if need be, and told.
 *
 * Of a bucket, what time has paid back since the reservation is not given back
 * again: others may have spent it. A number works until it is settled, and
 * never again.
 *
 * Status: UNKNOWN_RESERVATION if it was settled already, its time has passed,
 * or the number is made up; USED_TOO_LARGE if more than a hundred times the
 * lane's capacity would be overspent; FULL if something is overspent
 * and there is no record to charge it to: commit again later; STRUCT_SIZE.
 * With any of them nothing has changed, and a reservation that is open stays open.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `settlement_out` is NULL,
 * or readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_commit(struct tollgate_limiter *limiter,
                                        uint64_t reservation,
                                        uint64_t used,
                                        struct tollgate_settlement *settlement_out);

/**
 * As tollgate_limiter_commit, at an instant of the caller's, or at the clock's
 * time if that is later.
 *
 * Status: as tollgate_limiter_commit.
 *
 * # Safety
 *
 * As tollgate_limiter_commit.
 */
tollgate_status tollgate_limiter_commit_at(struct tollgate_limiter *limiter,
                                           uint64_t reservation,
                                           uint64_t used,
                                           uint64_t now_ns,
                                           struct tollgate_settlement *settlement_out);

/**
 * Tells that so much of a reservation was used, and keeps the rest reserved:
 * for answers that stream. What is more than was reserved is charged at once.
 *
 * Status: as tollgate_limiter_commit.
 *
 * # Safety
 *
 * As tollgate_limiter_commit.
 */
tollgate_status tollgate_limiter_commit_part(struct tollgate_limiter *limiter,
                                             uint64_t reservation,
                                             uint64_t used,
                                             struct tollgate_settlement *settlement_out);

/**
 * As tollgate_limiter_commit_part, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_commit.
 *
 * # Safety
 *
 * As tollgate_limiter_commit.
 */
tollgate_status tollgate_limiter_commit_part_at(struct tollgate_limiter *limiter,
                                                uint64_t reservation,
                                                uint64_t used,
                                                uint64_t now_ns,
                                                struct tollgate_settlement *settlement_out);

/**
 * Gives a reservation back, but for what tollgate_limiter_commit_part has told
 * already.
 *
 * Status: as tollgate_limiter_commit.
 *
 * # Safety
 *
 * As tollgate_limiter_commit.
 */
tollgate_status tollgate_limiter_cancel(struct tollgate_limiter *limiter,
                                        uint64_t reservation,
                                        struct tollgate_settlement *settlement_out);

/**
 * As tollgate_limiter_cancel, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_commit.
 *
 * # Safety
 *
 * As tollgate_limiter_commit.
 */
tollgate_status tollgate_limiter_cancel_at(struct tollgate_limiter *limiter,
                                           uint64_t reservation,
                                           uint64_t now_ns,
                                           struct tollgate_settlement *settlement_out);

/**
 * Gives a reservation `ttl_ns` from now, if that is later than it had.
 *
 * Status: UNKNOWN_RESERVATION; see tollgate_limiter_commit.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed.
 */
tollgate_status tollgate_limiter_extend(struct tollgate_limiter *limiter,
                                        uint64_t reservation,
                                        uint64_t ttl_ns);

/**
 * As tollgate_limiter_extend, from an instant of the caller's.
 *
 * Status: UNKNOWN_RESERVATION.
 *
 * # Safety
 *
 * As tollgate_limiter_extend.
 */
tollgate_status tollgate_limiter_extend_at(struct tollgate_limiter *limiter,
                                           uint64_t reservation,
                                           uint64_t ttl_ns,
                                           uint64_t now_ns);

/**
 * Keeps used budgets in a file, and charges what it says was used of windows
 * that are not over. Needs TOLLGATE_FEATURE_PERSIST.
 *
 * Call it once, before the first check, and after
 * tollgate_limiter_keep_assignments_in; then call tollgate_limiter_save_budgets
 * every few seconds and as the last thing before the process ends. What was
 * charged since the last save is lost if the process is killed. The path is
 * any bytes without a NUL, as the system takes them. `error_out` may be NULL;
 * its line and column are those of the file.
 *
 * To remember ids takes 272 bytes of memory for each agent that is given a
 * record, unless there is a roster of all of them already; what the file says
 * of an agent takes 16, and 8 for each lane with a budget.
 *
 * Status: FILE if it cannot be read or written, is in use, or makes no sense,
 * and then nothing was charged; TEXT_TOO_LONG; NOT_BUILT_IN; STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `path` is NULL or readable
 * for `path_len` bytes; `loaded_out` is NULL, and `error_out` may be, or each
 * is readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_keep_budgets_in(struct tollgate_limiter *limiter,
                                                 const char *path,
                                                 size_t path_len,
                                                 struct tollgate_budgets_loaded *loaded_out,
                                                 struct tollgate_error *error_out);

/**
 * Writes to the file what has been used of budgets since the last save. When
 * this returns, it is on the disk. Holds up no check. Needs
 * TOLLGATE_FEATURE_PERSIST.
 *
 * Each budget is saved as it is at some moment during the call. Looking at a
 * million agents takes some 40 ms; what is written follows what has changed.
 * `error_out` may be NULL.
 *
 * Status: NO_FILE without tollgate_limiter_keep_budgets_in, or in a process
 * that was forked since; FILE if the system refuses, or somebody else wrote to
 * it; NOT_BUILT_IN; STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `saved_out` is NULL, and
 * `error_out` may be, or each is readable and writable for as many bytes as
 * its struct_size says.
 */
tollgate_status tollgate_limiter_save_budgets(struct tollgate_limiter *limiter,
                                              struct tollgate_budgets_saved *saved_out,
                                              struct tollgate_error *error_out);

/**
 * Whole tokens left in the lane after this request; 0 for NULL, and for an
 * admission that is all zero.
 *
 * # Safety
 *
 * `admission` is NULL or points to an admission.
 */
uint64_t tollgate_admission_remaining(const struct tollgate_admission *admission);

/**
 * May the agent spend `cost` tokens of a lane now? As tollgate_limiter_check,
 * and a denial may be a violation: see tollgate_conduct_rules.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, ZERO_COST, COST_ABOVE_CAPACITY,
 * FULL, STRUCT_SIZE. With any of them nothing was charged or recorded.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `admission_out` is NULL, or readable and writable for
 * as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_admit(struct tollgate_limiter *limiter,
                                       const void *id,
                                       size_t id_len,
                                       uint32_t lane,
                                       uint64_t cost,
                                       struct tollgate_admission *admission_out);

/**
 * As tollgate_limiter_admit, at an instant of the caller's; see
 * tollgate_limiter_check_at.
 *
 * Status: as tollgate_limiter_admit.
 *
 * # Safety
 *
 * As tollgate_limiter_admit.
 */
tollgate_status tollgate_limiter_admit_at(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint32_t lane,
                                          uint64_t cost,
                                          uint64_t now_ns,
                                          struct tollgate_admission *admission_out);

/**
 * As tollgate_limiter_admit, under this plan if the agent has no assignment
 * of its own; see tollgate_limiter_check_as.
 *
 * Status: as tollgate_limiter_admit, and UNKNOWN_PLAN.
 *
 * # Safety
 *
 * As tollgate_limiter_admit.
 */
tollgate_status tollgate_limiter_admit_as(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint32_t plan,
                                          uint32_t lane,
                                          uint64_t cost,
                                          struct tollgate_admission *admission_out);

/**
 * As tollgate_limiter_admit_as, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_admit_as.
 *
 * # Safety
 *
 * As tollgate_limiter_admit.
 */
tollgate_status tollgate_limiter_admit_as_at(struct tollgate_limiter *limiter,
                                             const void *id,
                                             size_t id_len,
                                             uint32_t plan,
                                             uint32_t lane,
                                             uint64_t cost,
                                             uint64_t now_ns,
                                             struct tollgate_admission *admission_out);

/**
 * Records a violation that the caller has found, and says what follows.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE; FULL if nothing is known of the
 * agent and every record near its home is in use.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `violation_out` is NULL, or readable and writable for
 * as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_record_violation(struct tollgate_limiter *limiter,
                                                  const void *id,
                                                  size_t id_len,
                                                  struct tollgate_violation *violation_out);

/**
 * Records a violation at an instant of the caller's.
 *
 * Status: as tollgate_limiter_record_violation.
 *
 * # Safety
 *
 * As tollgate_limiter_record_violation.
 */
tollgate_status tollgate_limiter_record_violation_at(struct tollgate_limiter *limiter,
                                                     const void *id,
                                                     size_t id_len,
                                                     uint64_t now_ns,
                                                     struct tollgate_violation *violation_out);

/**
 * The agent's conduct as it stands. Looking changes nothing.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `conduct_out` is NULL, or readable and writable for as
 * many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_violations(const struct tollgate_limiter *limiter,
                                            const void *id,
                                            size_t id_len,
                                            struct tollgate_conduct *conduct_out);

/**
 * The agent's conduct as it stands at an instant of the caller's.
 *
 * Status: as tollgate_limiter_violations.
 *
 * # Safety
 *
 * As tollgate_limiter_violations.
 */
tollgate_status tollgate_limiter_violations_at(const struct tollgate_limiter *limiter,
                                               const void *id,
                                               size_t id_len,
                                               uint64_t now_ns,
                                               struct tollgate_conduct *conduct_out);

/**
 * Whether the agent has violated a limit and has not been quiet since: a
 * scheduler gives it no new work. An exempt agent never is.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `limited_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_rate_limited(const struct tollgate_limiter *limiter,
                                              const void *id,
                                              size_t id_len,
                                              bool *limited_out);

/**
 * As tollgate_limiter_rate_limited, at an instant of the caller's.
 *
 * Status: as tollgate_limiter_rate_limited.
 *
 * # Safety
 *
 * As tollgate_limiter_rate_limited.
 */
tollgate_status tollgate_limiter_rate_limited_at(const struct tollgate_limiter *limiter,
                                                 const void *id,
                                                 size_t id_len,
                                                 uint64_t now_ns,
                                                 bool *limited_out);

/**
 * Which of the agents may be given new work: all that are not rate limited,
 * at one reading of the clock. There is an answer for each id, in the same
 * place; a bad id may not. Ids and answers must not overlap, and there are at
 * most TOLLGATE_BATCH_MAX of them.
 *
 * Status: BATCH_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `ids` is NULL or readable
 * for `count` ids, each NULL or readable for its id_len bytes;
 * `assignable_out` is NULL or writable for `count` answers.
 */
tollgate_status tollgate_limiter_assignable(const struct tollgate_limiter *limiter,
                                            const struct tollgate_id *ids,
                                            size_t count,
                                            bool *assignable_out);

/**
 * Forgives the agent all violations, and tells whether there were any that
 * still mattered.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `known_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_reset_violations(struct tollgate_limiter *limiter,
                                                  const void *id,
                                                  size_t id_len,
                                                  bool *known_out);

/**
 * The wait of a denial as a message hub tells it: milliseconds, rounded up to
 * whole seconds, at least one; 60000 for TOLLGATE_NEVER.
 */
uint64_t tollgate_hub_retry_after_ms(uint64_t retry_after_ns);

/**
 * Assigns the agent to a plan of the policy. It stays so when its record is
 * evicted or forgotten.
 *
 * This and the other control calls take turns under a lock that no check
 * takes. When one returns, its change holds for the next check in every
 * thread. `error_out` may be NULL.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, SAME_HASH, FORKED, FILE,
 * STRUCT_SIZE of the error. With any of them nothing has changed.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `error_out` is NULL, or readable and writable for as
 * many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_assign(struct tollgate_limiter *limiter,
                                        const void *id,
                                        size_t id_len,
                                        uint32_t plan,
                                        struct tollgate_error *error_out);

/**
 * Takes the agent's plan away; its overrides and its exemption stay.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
 *
 * # Safety
 *
 * As tollgate_limiter_assign.
 */
tollgate_status tollgate_limiter_unassign(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          struct tollgate_error *error_out);

/**
 * Gives the agent a limit of its own for a lane, or for a tier in every
 * channel: "heavy" stands for "ws/heavy" and "http/heavy". The limit is text,
 * such as "10/second burst 20" or "deny".
 *
 * Status: EMPTY_ID, ID_TOO_LONG, NOT_UTF8, TEXT_TOO_LONG, UNKNOWN_LANE,
 * INVALID_LIMIT, TOO_MANY_OVERRIDES, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
 *
 * # Safety
 *
 * As tollgate_limiter_assign; `lane_or_tier` and `limit` are NULL or readable
 * for as many bytes as stated.
 */
tollgate_status tollgate_limiter_set_override(struct tollgate_limiter *limiter,
                                              const void *id,
                                              size_t id_len,
                                              const char *lane_or_tier,
                                              size_t lane_or_tier_len,
                                              const char *limit,
                                              size_t limit_len,
                                              struct tollgate_error *error_out);

/**
 * As tollgate_limiter_set_override, with the limit in numbers: a bucket that
 * holds `capacity` tokens and gets `tokens` back every `per_ns` nanoseconds.
 *
 * Status: as tollgate_limiter_set_override.
 *
 * # Safety
 *
 * As tollgate_limiter_assign; `lane_or_tier` is NULL or readable for as many
 * bytes as stated.
 */
tollgate_status tollgate_limiter_set_override_bucket(struct tollgate_limiter *limiter,
                                                     const void *id,
                                                     size_t id_len,
                                                     const char *lane_or_tier,
                                                     size_t lane_or_tier_len,
                                                     uint64_t tokens,
                                                     uint64_t per_ns,
                                                     uint64_t capacity,
                                                     struct tollgate_error *error_out);

/**
 * Takes the agent's own limit for a lane or tier away.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, NOT_UTF8, TEXT_TOO_LONG, UNKNOWN_LANE,
 * SAME_HASH, FORKED, FILE, STRUCT_SIZE.
 *
 * # Safety
 *
 * As tollgate_limiter_assign; `lane_or_tier` is NULL or readable for as many
 * bytes as stated.
 */
tollgate_status tollgate_limiter_remove_override(struct tollgate_limiter *limiter,
                                                 const void *id,
                                                 size_t id_len,
                                                 const char *lane_or_tier,
                                                 size_t lane_or_tier_len,
                                                 struct tollgate_error *error_out);

/**
 * Takes all of the agent's own limits away.
 *
 * Status: as tollgate_limiter_unassign.
 *
 * # Safety
 *
 * As tollgate_limiter_assign.
 */
tollgate_status tollgate_limiter_remove_overrides(struct tollgate_limiter *limiter,
                                                  const void *id,
                                                  size_t id_len,
                                                  struct tollgate_error *error_out);

/**
 * Never limits the agent from now on: every check of it is answered with
 * TOLLGATE_DECISION_EXEMPT and charges nothing.
 *
 * Status: as tollgate_limiter_unassign.
 *
 * # Safety
 *
 * As tollgate_limiter_assign.
 */
tollgate_status tollgate_limiter_exempt(struct tollgate_limiter *limiter,
                                        const void *id,
                                        size_t id_len,
                                        struct tollgate_error *error_out);

/**
 * Limits the agent again, by its overrides and its plan.
 *
 * Status: as tollgate_limiter_unassign.
 *
 * # Safety
 *
 * As tollgate_limiter_assign.
 */
tollgate_status tollgate_limiter_unexempt(struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          struct tollgate_error *error_out);

/**
 * Whether the agent is never limited.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `exempt_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_is_exempt(const struct tollgate_limiter *limiter,
                                           const void *id,
                                           size_t id_len,
                                           bool *exempt_out);

/**
 * The agent's limit for a lane as text, NUL-terminated, and its length
 * without the NUL: its override, or else its plan's. An exempt agent has
 * none, and the text is empty.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `limit_out` is NULL or writable for `limit_size` bytes;
 * `limit_len_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_limit_of(const struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint32_t lane,
                                          char *limit_out,
                                          size_t limit_size,
                                          size_t *limit_len_out);

/**
 * What was decided about the agent: a copy, which the caller owns and gives
 * back with tollgate_assignment_free.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `assignment_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_assignment(const struct tollgate_limiter *limiter,
                                            const void *id,
                                            size_t id_len,
                                            struct tollgate_assignment **assignment_out);

/**
 * Every agent about which something was decided, in the order of the ids: a
 * copy, which the caller owns and gives back with tollgate_assignments_free.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `assignments_out` is NULL
 * or writable.
 */
tollgate_status tollgate_limiter_assignments(const struct tollgate_limiter *limiter,
                                             struct tollgate_assignments **assignments_out);

/**
 * Decides about many agents at once: what was decided about each of them
 * before is replaced, and all others stay as they are. An empty assignment
 * makes an agent like any other. `error_out` may be NULL.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, UNKNOWN_LANE, INVALID_LIMIT,
 * TOO_MANY_OVERRIDES, SAME_HASH, FORKED, FILE, STRUCT_SIZE of the error. With
 * any of them nothing has changed.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `assignments` is NULL, or
 * not freed and in use by no other thread; `error_out` is NULL, or readable
 * and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_set_assignments(struct tollgate_limiter *limiter,
                                                 const struct tollgate_assignments *assignments,
                                                 struct tollgate_error *error_out);

/**
 * Puts another policy in force: other numbers for the same lanes, and perhaps
 * more plans. Assignments stay. The limiter keeps a copy of its own.
 *
 * Walks all records, so that when it returns every check uses the new
 * numbers; checks go on meanwhile. What becomes of debt, the new policy says.
 * Plans keep their numbers, so they can be added but not taken away.
 * `error_out` may be NULL.
 *
 * Status: OTHER_LANES; INVALID_LIMIT if a lane is of another kind than it was,
 * or keeps its window in another zone; PLAN_MISSING, FORKED, STRUCT_SIZE of the
 * error. With any of them nothing has changed.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `policy` is NULL or a
 * policy that is not freed; `error_out` is NULL, or readable and writable for
 * as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_replace_policy(struct tollgate_limiter *limiter,
                                                const struct tollgate_policy *policy,
                                                struct tollgate_error *error_out);

/**
 * Keeps assignments in a file from now on, and puts those in force that it
 * holds already. Call it before the first check, so that no agent is met
 * without its limits. What was decided before about other agents is added to
 * the file. Needs TOLLGATE_FEATURE_PERSIST.
 *
 * The path is any bytes without a NUL, as the system takes them. From then on
 * a control call returns when its change is in the file and in force.
 * `error_out` may be NULL; its line and column are those of the file.
 *
 * Status: FILE if it cannot be read or written, is in use, or makes no sense;
 * UNKNOWN_PLAN, UNKNOWN_LANE or INVALID_LIMIT if it holds what the policy does
 * not know; TOO_MANY_OVERRIDES, SAME_HASH, FORKED; TEXT_TOO_LONG; NOT_BUILT_IN;
 * STRUCT_SIZE of the error. With any of them nothing has changed.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `path` is NULL or
 * readable for `path_len` bytes; `error_out` is NULL, or readable and
 * writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_keep_assignments_in(struct tollgate_limiter *limiter,
                                                     const char *path,
                                                     size_t path_len,
                                                     struct tollgate_error *error_out);

/**
 * Reads the file of assignments again, after somebody has edited it, and puts
 * what it says in force: about agents that it does not name, nothing is
 * decided. Needs TOLLGATE_FEATURE_PERSIST. `error_out` may be NULL.
 *
 * After an error control calls fail until the file is corrected and reloaded,
 * so that none of them overwrites what was edited.
 *
 * Status: as tollgate_limiter_keep_assignments_in, and NO_FILE if assignments
 * are not kept in a file.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `error_out` is NULL, or
 * readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_reload_assignments(struct tollgate_limiter *limiter,
                                                    struct tollgate_error *error_out);

/**
 * Makes an assignment that decides nothing.
 *
 * The caller owns it and gives it back with tollgate_assignment_free.
 *
 * # Safety
 *
 * `assignment_out` is NULL or writable.
 */
tollgate_status tollgate_assignment_new(struct tollgate_assignment **assignment_out);

/**
 * Gives an assignment back. NULL is fine.
 *
 * # Safety
 *
 * `assignment` is NULL, or came from a function that gave it to the caller,
 * was not freed yet, and is in use by no other thread.
 */
void tollgate_assignment_free(struct tollgate_assignment *assignment);

/**
 * The name of the plan, NUL-terminated, and its length without the NUL; an
 * empty text if there is none.
 *
 * A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for the
 * plan of any policy. A NULL buffer of size 0 asks for the length alone.
 *
 * Status: BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread; `plan_out`
 * is NULL or writable for `plan_size` bytes; `plan_len_out` is NULL or writable.
 */
tollgate_status tollgate_assignment_plan(const struct tollgate_assignment *assignment,
                                         char *plan_out,
                                         size_t plan_size,
                                         size_t *plan_len_out);

/**
 * Sets the plan by name; an empty name takes it away.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread; `plan` is
 * NULL or readable for `plan_len` bytes.
 */
tollgate_status tollgate_assignment_set_plan(struct tollgate_assignment *assignment,
                                             const char *plan,
                                             size_t plan_len);

/**
 * Whether the agent is never limited.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread;
 * `exempt_out` is NULL or writable.
 */
tollgate_status tollgate_assignment_exempt(const struct tollgate_assignment *assignment,
                                           bool *exempt_out);

/**
 * Exempts the agent, or no longer.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread.
 */
tollgate_status tollgate_assignment_set_exempt(struct tollgate_assignment *assignment, bool exempt);

/**
 * For how many lanes the agent has a limit of its own.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread;
 * `count_out` is NULL or writable.
 */
tollgate_status tollgate_assignment_override_count(const struct tollgate_assignment *assignment,
                                                   size_t *count_out);

/**
 * The lane of an override, NUL-terminated, and its length without the NUL.
 * Overrides are numbered from 0, in the order of the names of their lanes.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread; `lane_out`
 * is NULL or writable for `lane_size` bytes; `lane_len_out` is NULL or writable.
 */
tollgate_status tollgate_assignment_override_lane(const struct tollgate_assignment *assignment,
                                                  size_t index,
                                                  char *lane_out,
                                                  size_t lane_size,
                                                  size_t *lane_len_out);

/**
 * The limit of an override as text, NUL-terminated, and its length without
 * the NUL.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread;
 * `limit_out` is NULL or writable for `limit_size` bytes; `limit_len_out` is
 * NULL or writable.
 */
tollgate_status tollgate_assignment_override_limit(const struct tollgate_assignment *assignment,
                                                   size_t index,
                                                   char *limit_out,
                                                   size_t limit_size,
                                                   size_t *limit_len_out);

/**
 * Sets the agent's own limit for a lane, in place of the one before.
 * `error_out` may be NULL.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG, INVALID_LIMIT, STRUCT_SIZE of the error.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread; `lane` and
 * `limit` are NULL or readable for as many bytes as stated; `error_out` is
 * NULL, or readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_assignment_set_override(struct tollgate_assignment *assignment,
                                                 const char *lane,
                                                 size_t lane_len,
                                                 const char *limit,
                                                 size_t limit_len,
                                                 struct tollgate_error *error_out);

/**
 * Takes the agent's own limit for a lane away, and tells whether it had one.
 *
 * Status: NOT_UTF8, TEXT_TOO_LONG.
 *
 * # Safety
 *
 * `assignment` is NULL, or not freed and in use by no other thread; `lane` is
 * NULL or readable for `lane_len` bytes; `known_out` is NULL or writable.
 */
tollgate_status tollgate_assignment_remove_override(struct tollgate_assignment *assignment,
                                                    const char *lane,
                                                    size_t lane_len,
                                                    bool *known_out);

/**
 * Makes a list without agents.
 *
 * The caller owns it and gives it back with tollgate_assignments_free.
 *
 * # Safety
 *
 * `assignments_out` is NULL or writable.
 */
tollgate_status tollgate_assignments_new(struct tollgate_assignments **assignments_out);

/**
 * Gives a list back. NULL is fine.
 *
 * # Safety
 *
 * `assignments` is NULL, or came from a function that gave it to the caller,
 * was not freed yet, and is in use by no other thread.
 */
void tollgate_assignments_free(struct tollgate_assignments *assignments);

/**
 * Adds an agent and a copy of its assignment at the end. If an agent is there
 * twice, the last one counts.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * Both handles are NULL, or not freed and in use by no other thread; `id` is
 * NULL or readable for `id_len` bytes.
 */
tollgate_status tollgate_assignments_add(struct tollgate_assignments *assignments,
                                         const void *id,
                                         size_t id_len,
                                         const struct tollgate_assignment *assignment);

/**
 * How many agents the list has. They are numbered from 0.
 *
 * # Safety
 *
 * `assignments` is NULL, or not freed and in use by no other thread;
 * `count_out` is NULL or writable.
 */
tollgate_status tollgate_assignments_count(const struct tollgate_assignments *assignments,
                                           size_t *count_out);

/**
 * The id of an agent of the list, any bytes without a NUL behind them, and
 * their number.
 *
 * A buffer of TOLLGATE_ID_BYTES_MAX bytes is large enough for any. A NULL
 * buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `assignments` is NULL, or not freed and in use by no other thread; `id_out`
 * is NULL or writable for `id_size` bytes; `id_len_out` is NULL or writable.
 */
tollgate_status tollgate_assignments_id(const struct tollgate_assignments *assignments,
                                        size_t index,
                                        void *id_out,
                                        size_t id_size,
                                        size_t *id_len_out);

/**
 * The assignment of an agent of the list: a copy, which the caller owns and
 * gives back with tollgate_assignment_free.
 *
 * Status: OUT_OF_RANGE.
 *
 * # Safety
 *
 * `assignments` is NULL, or not freed and in use by no other thread;
 * `assignment_out` is NULL or writable.
 */
tollgate_status tollgate_assignments_get(const struct tollgate_assignments *assignments,
                                         size_t index,
                                         struct tollgate_assignment **assignment_out);

/**
 * The lane that pays for an action of a channel, by the policy in force. An
 * action that the policy does not name goes to the channel's lane for such,
 * is counted, and is told of once by name.
 *
 * Status: UNKNOWN_LANE if the channel has no lane for it; NOT_UTF8,
 * TEXT_TOO_LONG, STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `channel` and `action`
 * are NULL or readable for as many bytes as stated; `lane_out` is NULL, or
 * readable and writable for as many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_lane_for(struct tollgate_limiter *limiter,
                                          const char *channel,
                                          size_t channel_len,
                                          const char *action,
                                          size_t action_len,
                                          struct tollgate_action_lane *lane_out);

/**
 * As tollgate_limiter_lane_for, by a policy that need not be in force: nothing
 * is counted, and first_seen is 0.
 *
 * Status: as tollgate_limiter_lane_for.
 *
 * # Safety
 *
 * As tollgate_limiter_lane_for; `policy` is NULL or a policy that is not freed.
 */
tollgate_status tollgate_policy_lane_for(const struct tollgate_policy *policy,
                                         const char *channel,
                                         size_t channel_len,
                                         const char *action,
                                         size_t action_len,
                                         struct tollgate_action_lane *lane_out);

/**
 * The unknown actions that were met so far: a copy, which the caller owns and
 * gives back with tollgate_unknown_actions_free.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `actions_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_unknown_actions(const struct tollgate_limiter *limiter,
                                                 struct tollgate_unknown_actions **actions_out);

/**
 * Gives unknown actions back. NULL is fine.
 *
 * # Safety
 *
 * `actions` is NULL, or came from tollgate_limiter_unknown_actions, was not
 * freed yet, and is in use by no other thread.
 */
void tollgate_unknown_actions_free(struct tollgate_unknown_actions *actions);

/**
 * How many unknown actions arrived.
 *
 * # Safety
 *
 * `actions` is NULL, or not freed; `total_out` is NULL or writable.
 */
tollgate_status tollgate_unknown_actions_total(const struct tollgate_unknown_actions *actions,
                                               uint64_t *total_out);

/**
 * How many of them have a name that is not among those kept.
 *
 * # Safety
 *
 * `actions` is NULL, or not freed; `not_listed_out` is NULL or writable.
 */
tollgate_status tollgate_unknown_actions_not_listed(const struct tollgate_unknown_actions *actions,
                                                    uint64_t *not_listed_out);

/**
 * How many names were kept. They are numbered from 0, sorted by channel and name.
 *
 * # Safety
 *
 * `actions` is NULL, or not freed; `count_out` is NULL or writable.
 */
tollgate_status tollgate_unknown_actions_count(const struct tollgate_unknown_actions *actions,
                                               size_t *count_out);

/**
 * The channel of an unknown action, NUL-terminated, and its length without
 * the NUL. One longer than TOLLGATE_LANE_NAME_BYTES_MAX is cut to that.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `actions` is NULL, or not freed; `channel_out` is NULL or writable for
 * `channel_size` bytes; `channel_len_out` is NULL or writable.
 */
tollgate_status tollgate_unknown_actions_channel(const struct tollgate_unknown_actions *actions,
                                                 size_t index,
                                                 char *channel_out,
                                                 size_t channel_size,
                                                 size_t *channel_len_out);

/**
 * The name of an unknown action, NUL-terminated, and its length without the
 * NUL. One longer than TOLLGATE_LANE_NAME_BYTES_MAX is cut to that.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `actions` is NULL, or not freed; `name_out` is NULL or writable for
 * `name_size` bytes; `name_len_out` is NULL or writable.
 */
tollgate_status tollgate_unknown_actions_name(const struct tollgate_unknown_actions *actions,
                                              size_t index,
                                              char *name_out,
                                              size_t name_size,
                                              size_t *name_len_out);

/**
 * What the limiter holds and has done, in all and lane by lane, all at one
 * time. Without TOLLGATE_SIGHT_ON only what it holds. Takes microseconds, and
 * holds up nobody.
 *
 * `lanes_out` has room for `lanes_size` lanes; TOLLGATE_LANES_MAX is enough
 * for any policy. NULL and 0 ask for their number alone.
 *
 * Status: STRUCT_SIZE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `snapshot_out` is NULL, or
 * readable and writable for as many bytes as its struct_size says; `lanes_out`
 * is NULL or writable for `lanes_size` lanes; `lanes_len_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_snapshot(const struct tollgate_limiter *limiter,
                                          struct tollgate_snapshot *snapshot_out,
                                          struct tollgate_lane_counts *lanes_out,
                                          size_t lanes_size,
                                          size_t *lanes_len_out);

/**
 * How the agent stands: its plan, its conduct, each lane, and which of them
 * is nearest to its limit. Charges nothing and makes no agent known.
 *
 * `lanes_out` has room for `lanes_size` lanes; TOLLGATE_LANES_MAX is enough
 * for any policy. NULL and 0 ask for their number alone.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
 * for `id_len` bytes; `view_out` is NULL, or readable and writable for as many
 * bytes as its struct_size says; `lanes_out` is NULL or writable for
 * `lanes_size` lanes; `lanes_len_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_agent(const struct tollgate_limiter *limiter,
                                       const void *id,
                                       size_t id_len,
                                       struct tollgate_agent_view *view_out,
                                       struct tollgate_lane_view *lanes_out,
                                       size_t lanes_size,
                                       size_t *lanes_len_out);

/**
 * How the agent stands at an instant of the caller's.
 *
 * Status: as tollgate_limiter_agent.
 *
 * # Safety
 *
 * As tollgate_limiter_agent.
 */
tollgate_status tollgate_limiter_agent_at(const struct tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint64_t now_ns,
                                          struct tollgate_agent_view *view_out,
                                          struct tollgate_lane_view *lanes_out,
                                          size_t lanes_size,
                                          size_t *lanes_len_out);

/**
 * Agents that hold a record, a page of them, which the caller owns and gives
 * back with tollgate_agent_page_free. `query` may be NULL.
 *
 * Only agents that are on the roster can be listed: see roster in
 * tollgate_limiter_options. Reads the whole roster, so call it for people and
 * not for requests. Charges nobody, and holds up nobody.
 *
 * Status: INVALID_OPTION, ID_TOO_LONG of a prefix or part, STRUCT_SIZE of the
 * query.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `query` is NULL or
 * readable for as many bytes as its struct_size says, and its prefix and part
 * are NULL or readable for as many bytes as stated; `page_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_agents(const struct tollgate_limiter *limiter,
                                        const struct tollgate_agent_query *query,
                                        struct tollgate_agent_page **page_out);

/**
 * Gives a page back. NULL is fine.
 *
 * # Safety
 *
 * `page` is NULL, or came from tollgate_limiter_agents, was not freed yet, and
 * is in use by no other thread.
 */
void tollgate_agent_page_free(struct tollgate_agent_page *page);

/**
 * How many agents are on the page. They are numbered from 0.
 *
 * # Safety
 *
 * `page` is NULL, or not freed; `count_out` is NULL or writable.
 */
tollgate_status tollgate_agent_page_count(const struct tollgate_agent_page *page,
                                          size_t *count_out);

/**
 * How many agents match, on all pages.
 *
 * # Safety
 *
 * `page` is NULL, or not freed; `matched_out` is NULL or writable.
 */
tollgate_status tollgate_agent_page_matched(const struct tollgate_agent_page *page,
                                            uint64_t *matched_out);

/**
 * How many agents hold a record and cannot be listed, since there is no
 * roster or it has too little room.
 *
 * # Safety
 *
 * `page` is NULL, or not freed; `not_listed_out` is NULL or writable.
 */
tollgate_status tollgate_agent_page_not_listed(const struct tollgate_agent_page *page,
                                               uint64_t *not_listed_out);

/**
 * The id of an agent of the page, any bytes without a NUL behind them, and
 * their number.
 *
 * A buffer of TOLLGATE_ID_BYTES_MAX bytes is large enough for any. A NULL
 * buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `page` is NULL, or not freed; `id_out` is NULL or writable for `id_size`
 * bytes; `id_len_out` is NULL or writable.
 */
tollgate_status tollgate_agent_page_id(const struct tollgate_agent_page *page,
                                       size_t index,
                                       void *id_out,
                                       size_t id_size,
                                       size_t *id_len_out);

/**
 * How an agent of the page stands; see tollgate_limiter_agent.
 *
 * Status: OUT_OF_RANGE, STRUCT_SIZE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `page` is NULL, or not freed; the outputs are as for tollgate_limiter_agent.
 */
tollgate_status tollgate_agent_page_agent(const struct tollgate_agent_page *page,
                                          size_t index,
                                          struct tollgate_agent_view *view_out,
                                          struct tollgate_lane_view *lanes_out,
                                          size_t lanes_size,
                                          size_t *lanes_len_out);

/**
 * Those with the most violations in the last hour, up to `most`, the worst
 * first: a copy, which the caller owns and gives back with
 * tollgate_offenders_free. Empty without TOLLGATE_SIGHT_ON.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `offenders_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_top_offenders(const struct tollgate_limiter *limiter,
                                               size_t most,
                                               struct tollgate_offenders **offenders_out);

/**
 * Gives offenders back. NULL is fine.
 *
 * # Safety
 *
 * `offenders` is NULL, or came from tollgate_limiter_top_offenders, was not
 * freed yet, and is in use by no other thread.
 */
void tollgate_offenders_free(struct tollgate_offenders *offenders);

/**
 * How many there are. They are numbered from 0, the worst first.
 *
 * # Safety
 *
 * `offenders` is NULL, or not freed; `count_out` is NULL or writable.
 */
tollgate_status tollgate_offenders_count(const struct tollgate_offenders *offenders,
                                         size_t *count_out);

/**
 * All violations of the last hour, those of agents that are not in the list
 * among them.
 *
 * # Safety
 *
 * `offenders` is NULL, or not freed; `violations_out` is NULL or writable.
 */
tollgate_status tollgate_offenders_total(const struct tollgate_offenders *offenders,
                                         uint64_t *violations_out);

/**
 * The id of an offender, any bytes without a NUL behind them, and their number.
 *
 * A buffer of TOLLGATE_ID_BYTES_MAX bytes is large enough for any. A NULL
 * buffer of size 0 asks for the length alone.
 *
 * Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `offenders` is NULL, or not freed; `id_out` is NULL or writable for
 * `id_size` bytes; `id_len_out` is NULL or writable.
 */
tollgate_status tollgate_offenders_id(const struct tollgate_offenders *offenders,
                                      size_t index,
                                      void *id_out,
                                      size_t id_size,
                                      size_t *id_len_out);

/**
 * The violations of an offender in the last hour: at most so many, and at
 * least so many less `error_out`.
 *
 * Status: OUT_OF_RANGE.
 *
 * # Safety
 *
 * `offenders` is NULL, or not freed; `violations_out` and `error_out` are NULL
 * or writable.
 */
tollgate_status tollgate_offenders_violations(const struct tollgate_offenders *offenders,
                                              size_t index,
                                              uint64_t *violations_out,
                                              uint64_t *error_out);

/**
 * Takes the oldest event, if there is one. Any number of threads may poll at
 * once; each event is told once. There are none without TOLLGATE_SIGHT_ON.
 *
 * Status: STRUCT_SIZE.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `event_out` is NULL, or
 * readable and writable for as many bytes as its struct_size says, and is
 * written if there was an event; `polled_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_poll_event(struct tollgate_limiter *limiter,
                                            struct tollgate_event *event_out,
                                            bool *polled_out);

/**
 * What an operator wants to know, as JSON, NUL-terminated, and its length
 * without the NUL: counts, worst offenders, busiest agents.
 *
 * It may be longer from one call to the next, so let the buffer be larger
 * than a call with a NULL buffer of size 0 says.
 *
 * Status: BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `json_out` is NULL or
 * writable for `json_size` bytes; `json_len_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_status_document(const struct tollgate_limiter *limiter,
                                                 char *json_out,
                                                 size_t json_size,
                                                 size_t *json_len_out);

/**
 * Writes the limiter's status document to a file; see
 * tollgate_limiter_status_document. Call it from a timer. Needs
 * TOLLGATE_FEATURE_PERSIST.
 *
 * Whoever reads the file finds the old document or the new one, whole. The
 * path is any bytes without a NUL, as the system takes them. `error_out` may
 * be NULL.
 *
 * Status: FILE, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE of the error.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `path` is NULL or readable
 * for `path_len` bytes; `error_out` is NULL, or readable and writable for as
 * many bytes as its struct_size says.
 */
tollgate_status tollgate_limiter_write_status(const struct tollgate_limiter *limiter,
                                              const char *path,
                                              size_t path_len,
                                              struct tollgate_error *error_out);

/**
 * Makes a log throttle that has heard of nothing yet.
 *
 * The caller owns it and gives it back with tollgate_log_throttle_free.
 *
 * # Safety
 *
 * `log_out` is NULL or writable.
 */
tollgate_status tollgate_log_throttle_new(struct tollgate_log_throttle **log_out);

/**
 * Gives a log throttle back. NULL is fine.
 *
 * # Safety
 *
 * `log` is NULL, or came from tollgate_log_throttle_new, was not freed yet,
 * and is in use by no other thread.
 */
void tollgate_log_throttle_free(struct tollgate_log_throttle *log);

/**
 * Tells of a denial, and whether it is a line for the log: "INFO: Rate limit
 * hit by agent X", with the id escaped, which tollgate_log_throttle_line gives.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 *
 * # Safety
 *
 * `log` is NULL, or not freed; `id` is NULL or readable for `id_len` bytes;
 * `line_out` is NULL or writable.
 */
tollgate_status tollgate_log_throttle_denied(struct tollgate_log_throttle *log,
                                             const void *id,
                                             size_t id_len,
                                             uint64_t now_ns,
                                             bool *line_out);

/**
 * Asks for what is due at this instant, how many were suppressed and the
 * summary, and tells how many lines there are for tollgate_log_throttle_line.
 * Call it every few seconds.
 *
 * # Safety
 *
 * `log` is NULL, or not freed; `lines_out` is NULL or writable.
 */
tollgate_status tollgate_log_throttle_due(struct tollgate_log_throttle *log,
                                          uint64_t now_ns,
                                          size_t *lines_out);

/**
 * Takes the oldest line, NUL-terminated UTF-8 without a newline, and its length
 * without the NUL. It begins with "INFO: ", "THROTTLE: " or "SUMMARY: ".
 *
 * A NULL buffer of size 0 asks for the length alone, and the line stays, as
 * it does if the buffer is too small.
 *
 * Status: OUT_OF_RANGE if there is none, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `log` is NULL, or not freed; `line_out` is NULL or writable for `line_size`
 * bytes; `line_len_out` is NULL or writable.
 */
tollgate_status tollgate_log_throttle_line(struct tollgate_log_throttle *log,
                                           char *line_out,
                                           size_t line_size,
                                           size_t *line_len_out);

/**
 * An id as it is safely shown somewhere, NUL-terminated, and its length
 * without the NUL. `shown` is one of TOLLGATE_SHOWN_TEXT, _HTML, _LABEL, _URL
 * and _JSON.
 *
 * A NULL buffer of size 0 asks for the length alone.
 *
 * Status: INVALID_OPTION, ID_TOO_LONG, BUFFER_TOO_SMALL.
 *
 * # Safety
 *
 * `id` is NULL or readable for `id_len` bytes; `text_out` is NULL or writable
 * for `text_size` bytes; `text_len_out` is NULL or writable.
 */
tollgate_status tollgate_id_shown(const void *id,
                                  size_t id_len,
                                  int32_t shown,
                                  char *text_out,
                                  size_t text_size,
                                  size_t *text_len_out);

/**
 * The limiter of the whole process, made on the first call.
 *
 * It belongs to the library, is the same on every call, and lives as long as
 * the process: tollgate_limiter_free leaves it alone. Unless
 * tollgate_default_configure was called before, it is made with default
 * options and the preset "hub": the lanes ws/light, ws/normal, ws/heavy,
 * http/light, http/normal and http/heavy, in this order, of 120, 60 and 10 a
 * minute, and the actions of a message hub.
 *
 * Status: OUT_OF_MEMORY.
 *
 * # Safety
 *
 * `limiter_out` is NULL or writable.
 */
tollgate_status tollgate_default(struct tollgate_limiter **limiter_out);

/**
 * Makes the limiter of the whole process with a policy and options of the
 * caller's. Must come before its first use.
 *
 * Status: ALREADY_MADE, and whatever tollgate_limiter_new returns.
 *
 * # Safety
 *
 * `policy` and `options` are as for tollgate_limiter_new.
 */
tollgate_status tollgate_default_configure(const struct tollgate_policy *policy,
                                           const struct tollgate_limiter_options *options);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOLLGATE_H */
