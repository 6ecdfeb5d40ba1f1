/*
 * tollgate: an exact, lock-free rate limiter.
 *
 * Every request asks one question: may agent A do this, on lane L, for cost C,
 * now? A policy names the lanes and their limits. A limiter answers exactly, from
 * any number of threads, and tracks a fixed number of agents in memory that never
 * grows.
 *
 *     #include <stdio.h>
 *     #include <tollgate.h>
 *
 *     int main(void) {
 *       tollgate_policy *policy;
 *       tollgate_limiter *limiter;
 *       tollgate_error error = {.struct_size = sizeof error};
 *       const char toml[] = "[lanes]\n\"http/read\" = \"10/second burst 20\"\n";
 *       if (tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), &error, &policy) ||
 *           tollgate_limiter_new(policy, NULL, &error, &limiter)) {
 *         fprintf(stderr, "%s\n", error.message);
 *         return 1;
 *       }
 *       tollgate_policy_free(policy);
 *
 *       uint32_t lane;
 *       tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/read"), &lane);
 *       tollgate_request request = {"user:42", 7, 1, lane, TOLLGATE_NONE, NULL};
 *       tollgate_verdict verdict = {0};
 *       tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict);
 *       if (verdict.decision == TOLLGATE_DECISION_DENY)
 *         printf("wait %llu ns\n", (unsigned long long)verdict.retry_after_ns);
 *       tollgate_limiter_free(limiter);
 *       return 0;
 *     }
 *
 * Words. An agent is anything that is limited: a user, a client, an address. Its
 * id names it. A lane is one limited resource of an agent, such as "http/read".
 * A plan is a set of limits. A token is the unit of cost.
 *
 * Rules that hold for every function:
 *
 * - Status. A function that can fail returns a tollgate_status. Unless that is
 *   TOLLGATE_STATUS_OK, it has charged nothing, changed nothing, and written no
 *   output except error_out; PANIC and FILE have exceptions, which they name. A
 *   denial is not a failure: it is a verdict.
 * - Zero. Clear a verdict before the call. A verdict of zeros denies, so a caller
 *   that ignores the status of a failed check lets nothing through.
 * - Pointers. NULL returns TOLLGATE_STATUS_NULL_POINTER, unless the function's
 *   comment allows it; an array of no elements may always be NULL. Any other
 *   pointer must be valid and aligned, for as many bytes or elements as its
 *   length says. Outputs must not overlap inputs or each other. The library
 *   cannot detect a dangling pointer.
 * - Ownership. The caller owns every handle that a function returns, and frees it
 *   once. The library keeps no pointer that it is given: the memory behind it may
 *   be reused as soon as the call returns.
 * - Ids and texts come with a length in bytes, and need no NUL. Ids are any
 *   bytes. Texts are UTF-8, of up to TOLLGATE_TEXT_BYTES_MAX bytes.
 * - Buffers. A text that a function writes ends in a NUL, which its length does
 *   not count but the size of the buffer does. A NULL buffer of size 0 asks for
 *   the length alone.
 * - Arrays. A function writes at most as many elements as the array has room for,
 *   and reports how many there are, which may be more.
 * - Sizes. A struct that begins with struct_size can grow in later versions. Set
 *   all of it to zero and struct_size to its sizeof. The library never reads or
 *   writes beyond struct_size, so programs and libraries of different versions
 *   understand each other. Members named reserved are 0.
 * - Time is in nanoseconds: a span, or an instant of the limiter's clock, which
 *   counts from an origin of its own and is not the time of day. TOLLGATE_NOW as
 *   now_ns makes the limiter read its clock. A clock ends after 36 years; later
 *   instants count as that one.
 * - Threads. Any number of threads may use a handle at once. No thread may use it
 *   while or after it is freed. The library starts no threads, installs no signal
 *   handlers and calls nothing back. Do not call it from a signal handler.
 * - Memory. A limiter reserves what it needs when it is built, and a check
 *   allocates nothing. Other functions may allocate; like most programs in Rust,
 *   the library aborts the process if the system refuses a small allocation.
 * - Panics. A bug inside the library becomes TOLLGATE_STATUS_PANIC, with a
 *   message on stderr; nothing unwinds into C.
 * - Forks. A child process may use every handle that was made before the fork,
 *   as its own copy. From then on each process limits on its own, unless the
 *   limiter is shared; and only the process that named a file should go on
 *   changing it.
 *
 * Generated from src/ffi: change the sources and run `make header`.
 */

#ifndef TOLLGATE_H
#define TOLLGATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version this program is compiled with; tollgate_version is the one that runs. */
#define TOLLGATE_VERSION "0.1.0"
#define TOLLGATE_VERSION_MAJOR 0
#define TOLLGATE_VERSION_MINOR 1
#define TOLLGATE_VERSION_PATCH 0
#define TOLLGATE_VERSION_NUMBER \
  (TOLLGATE_VERSION_MAJOR * 65536 + TOLLGATE_VERSION_MINOR * 256 + TOLLGATE_VERSION_PATCH)

/** The address and the length of a string literal or a char array, as two arguments. */
#define TOLLGATE_LITERAL(text) (text), (sizeof(text) - 1)

/** How machines share lanes: tollgate_redis.h has its members. */
typedef struct tollgate_cluster_options tollgate_cluster_options;

/* -------------------------------------------------------------------------------------------------
 * Status: how a call ended.
 */

/**
 * How a call ended. Each function lists the statuses that it returns; all of them
 * may also return NULL_POINTER and PANIC and, with a shared limiter, BUSY and
 * SHARED. A later version may add statuses, and never changes the meaning of a number.
 */
typedef int32_t tollgate_status;
enum {
  /** The call succeeded. So does a check that denies: see the verdict. */
  TOLLGATE_STATUS_OK = 0,
  /** A pointer is NULL where NULL is not allowed. */
  TOLLGATE_STATUS_NULL_POINTER = 1,
  /** A struct_size is smaller than the struct ever was, or above 4,096. Set it to sizeof. */
  TOLLGATE_STATUS_STRUCT_SIZE = 2,
  /**
   * A flag, an enum value or an option that this version does not know, or
   * two options that contradict each other. Clear a struct before you fill it.
   */
  TOLLGATE_STATUS_INVALID_OPTION = 3,
  /** The buffer has no room for the text and its NUL. Ask for the length with NULL and 0. */
  TOLLGATE_STATUS_BUFFER_TOO_SMALL = 4,
  /** A text is not UTF-8. Ids need not be: they are bytes. */
  TOLLGATE_STATUS_NOT_UTF8 = 5,
  /** A text has more than TOLLGATE_TEXT_BYTES_MAX bytes. */
  TOLLGATE_STATUS_TEXT_TOO_LONG = 6,
  /**
   * An array has more than TOLLGATE_BATCH_MAX elements, or the overrides of an
   * agent are more than TOLLGATE_LANES_MAX. Split it.
   */
  TOLLGATE_STATUS_BATCH_SIZE = 7,
  /** tollgate_check_all takes 1 to TOLLGATE_PARTS_MAX requests. */
  TOLLGATE_STATUS_PARTS = 8,
  /** The library was built without this feature; see tollgate_features. */
  TOLLGATE_STATUS_NOT_BUILT_IN = 9,
  /**
   * A bug in tollgate: please report it. The call stopped midway and may have
   * charged something; the limiter stays usable.
   */
  TOLLGATE_STATUS_PANIC = 10,
  /** The agent id has no bytes. */
  TOLLGATE_STATUS_EMPTY_ID = 11,
  /** The agent id has more than TOLLGATE_ID_BYTES_MAX bytes. Hash it first. */
  TOLLGATE_STATUS_ID_TOO_LONG = 12,
  /** The policy has no such lane. */
  TOLLGATE_STATUS_UNKNOWN_LANE = 13,
  /** The policy has no such plan. */
  TOLLGATE_STATUS_UNKNOWN_PLAN = 14,
  /** The cost is 0. Ask for at least 1, or look with tollgate_peek. */
  TOLLGATE_STATUS_ZERO_COST = 15,
  /** The cost is above the lane's capacity, so it can never pass. */
  TOLLGATE_STATUS_COST_ABOVE_CAPACITY = 16,
  /** The lane's limit is of a kind that this function does not work with. */
  TOLLGATE_STATUS_WRONG_KIND = 17,
  /** The agent holds fewer slots than were to be released. */
  TOLLGATE_STATUS_NOT_HELD = 18,
  /**
   * The agent is new, and no record is free for it. Build the limiter for
   * more agents, or with TOLLGATE_ON_FULL_EVICT.
   */
  TOLLGATE_STATUS_FULL = 19,
  /** All reservations that the limiter was built for are open. */
  TOLLGATE_STATUS_RESERVATIONS_FULL = 20,
  /** The agent has as many open reservations as one agent may have. Settle some first. */
  TOLLGATE_STATUS_TOO_MANY_RESERVATIONS = 21,
  /** The reservation was settled, or expired, or never existed. */
  TOLLGATE_STATUS_UNKNOWN_RESERVATION = 22,
  /**
   * The settlement overspends by more than TOLLGATE_OVERSPEND_MAX times the
   * lane's capacity, which is most likely a mistake of units.
   */
  TOLLGATE_STATUS_USED_TOO_LARGE = 23,
  /** The policy is invalid; the error says why, and where. */
  TOLLGATE_STATUS_INVALID_POLICY = 24,
  /** A limit is invalid; the error says why. */
  TOLLGATE_STATUS_INVALID_LIMIT = 25,
  /** There is no preset of this name; see tollgate_preset_name. */
  TOLLGATE_STATUS_UNKNOWN_PRESET = 26,
  /** A limiter holds 1 to TOLLGATE_AGENTS_MAX agents. */
  TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE = 27,
  /** The system refused the memory. Build for fewer agents or lanes. */
  TOLLGATE_STATUS_OUT_OF_MEMORY = 28,
  /** Only a manual clock can be moved. */
  TOLLGATE_STATUS_NOT_MANUAL = 29,
  /**
   * TOLLGATE_OVERRIDES_MAX agents have overrides already. Put agents with
   * the same limits into a plan.
   */
  TOLLGATE_STATUS_TOO_MANY_OVERRIDES = 30,
  /**
   * Another assigned agent has the same hash: a chance of 1 in 2^64. Build a
   * new limiter, which hashes differently.
   */
  TOLLGATE_STATUS_SAME_HASH = 31,
  /**
   * This process was forked while another thread was changing assignments or
   * the policy. Checks still work; for more changes, build a limiter in the child.
   */
  TOLLGATE_STATUS_FORKED = 32,
  /** The new policy has other lanes than the one in force, or another order of them. */
  TOLLGATE_STATUS_OTHER_LANES = 33,
  /**
   * The new policy lacks a plan of the one in force. Keep the plan: callers
   * may use its number.
   */
  TOLLGATE_STATUS_PLAN_MISSING = 34,
  /**
   * A file could not be read or written; the error says why. If it says that
   * the change may not survive a power failure, the change is in force and in
   * the file: repeat the call to make it safe.
   */
  TOLLGATE_STATUS_FILE = 35,
  /** No file was named: see tollgate_keep_assignments_in and tollgate_keep_budgets_in. */
  TOLLGATE_STATUS_NO_FILE = 36,
  /**
   * Another process that shares the limiter holds a lock that the call needs,
   * and does not go on: it is stopped, or the machine is overloaded. Try again.
   * A check of an agent that has a record never gets this.
   */
  TOLLGATE_STATUS_BUSY = 37,
  /**
   * The shared slab cannot be made or joined, or has no room for the change, or
   * this process was forked and can have no seat in it; the error says why.
   */
  TOLLGATE_STATUS_SHARED = 38,
  /**
   * As many calls hold slots of the shared limiter as it has room for: as many as
   * it has agents, and at least 16,384. Release some, or make it for more agents.
   */
  TOLLGATE_STATUS_HOLDS_FULL = 39,
  /** The lane is dynamic and has no default, and the request brings no limit. */
  TOLLGATE_STATUS_NO_LIMIT = 40,
  /** The request brings a limit, and the lane has its own. */
  TOLLGATE_STATUS_LIMIT_GIVEN = 41,
  /** Two requests of one call bring different limits for one lane of an agent. */
  TOLLGATE_STATUS_LIMITS_DIFFER = 42,
};

/**
 * A sentence about a status, for a log: a static string, never NULL, even for a
 * number that is not a status.
 */
const char *tollgate_status_text(int32_t status);


/* -------------------------------------------------------------------------------------------------
 * Errors: what was wrong, in words.
 */

/** Room for the message of a tollgate_error, its NUL included. */
#define TOLLGATE_ERROR_MESSAGE_BYTES 496

/**
 * Why a call failed, for people: what is wrong, where, and what is allowed.
 *
 * A function with an error_out writes it if it fails, and only then. NULL is
 * always allowed. With a wrong struct_size in it the call returns STRUCT_SIZE
 * and does nothing.
 */
typedef struct tollgate_error {
  /** Set it to sizeof(tollgate_error) before the call. */
  uint32_t struct_size;
  /** The status that the call returned. */
  tollgate_status status;
  /** The line of the mistake in a policy or a file, from 1; 0 for other mistakes. */
  uint32_t line;
  /** The column of the mistake in characters, from 1; 0 for other mistakes. */
  uint32_t column;
  /** A sentence in NUL-terminated UTF-8, truncated if it is too long. */
  char message[TOLLGATE_ERROR_MESSAGE_BYTES];
} tollgate_error;


/* -------------------------------------------------------------------------------------------------
 * The library: which version runs, and what is built into it.
 */

/** A bit of tollgate_features: policies as TOML text, tollgate_policy_from_toml. */
#define TOLLGATE_FEATURE_CONFIG 1
/**
 * A bit of tollgate_features: files, as in tollgate_keep_assignments_in,
 * tollgate_keep_budgets_in and tollgate_write_report.
 */
#define TOLLGATE_FEATURE_PERSIST 2
/**
 * A bit of tollgate_features: limiters that processes share, shared_by in
 * tollgate_limiter_options.
 */
#define TOLLGATE_FEATURE_SHARED 4
/**
 * A bit of tollgate_features: lanes that machines share, as libtollgate_redis
 * has it; see tollgate_redis.h.
 */
#define TOLLGATE_FEATURE_CLUSTER 8
/** The longest text or path that a function takes, in bytes: 1 MiB. */
#define TOLLGATE_TEXT_BYTES_MAX 1048576

/** The version of the library that runs, such as "1.2.3": a static string. */
const char *tollgate_version(void);

/**
 * The version of the library that runs, as a number to compare with
 * TOLLGATE_VERSION_NUMBER: 1.2.3 is 0x010203.
 */
uint32_t tollgate_version_number(void);

/**
 * What is built into the library: a sum of the bits TOLLGATE_FEATURE_. Without a
 * feature, its functions and options exist and return TOLLGATE_STATUS_NOT_BUILT_IN.
 */
uint32_t tollgate_features(void);


/* -------------------------------------------------------------------------------------------------
 * Clocks: where a limiter's time comes from.
 *
 * A limiter has a clock of its own unless tollgate_limiter_options names one.
 * Name one to share it between limiters, to choose its source, or to move
 * time by hand in a test. tollgate_snapshot reports the source of a limiter's
 * clock, and whether it had to fall back.
 */

/** A source of time. Any number of limiters and threads may share one. */
typedef struct tollgate_clock tollgate_clock;

/** Where a clock takes its time from. */
typedef int32_t tollgate_clock_source;
enum {
  /** For tollgate_clock_new: the processor's counter if it is reliable, else OS. */
  TOLLGATE_CLOCK_SOURCE_AUTO = 0,
  /**
   * In a snapshot only: the processor's time stamp counter, checked against
   * the OS clock. AUTO chooses it.
   */
  TOLLGATE_CLOCK_SOURCE_TSC = 1,
  /** The system's monotonic clock. It stands still while the machine is suspended. */
  TOLLGATE_CLOCK_SOURCE_OS = 2,
  /** The system's monotonic clock as of its last tick: the cheapest, up to 10 ms late. */
  TOLLGATE_CLOCK_SOURCE_COARSE = 3,
  /** The system's monotonic clock that also runs while the machine is suspended. */
  TOLLGATE_CLOCK_SOURCE_BOOTTIME = 4,
  /** A clock that tollgate_clock_advance and tollgate_clock_set move. It starts at 0. */
  TOLLGATE_CLOCK_SOURCE_MANUAL = 5,
};

/**
 * Makes a clock from a tollgate_clock_source. Free it with tollgate_clock_free.
 * The first AUTO of a process takes about 10 ms to test the counter.
 *
 * Status: INVALID_OPTION for any other number, TOLLGATE_CLOCK_SOURCE_TSC included.
 */
tollgate_status tollgate_clock_new(int32_t source, tollgate_clock **clock_out);

/**
 * Frees a clock. Limiters that use it keep it alive, but a manual clock can no
 * longer be moved. NULL is allowed.
 */
void tollgate_clock_free(tollgate_clock *clock);

/** Reads a clock, in nanoseconds since its origin. */
tollgate_status tollgate_clock_now(const tollgate_clock *clock, uint64_t *now_ns_out);

/**
 * Moves a manual clock ahead. It stops after 36 years.
 *
 * Status: NOT_MANUAL.
 */
tollgate_status tollgate_clock_advance(tollgate_clock *clock, uint64_t by_ns);

/**
 * Sets a manual clock. A step back only makes answers stricter.
 *
 * Status: NOT_MANUAL.
 */
tollgate_status tollgate_clock_set(tollgate_clock *clock, uint64_t now_ns);


/* -------------------------------------------------------------------------------------------------
 * Policies: what is limited, and to what.
 *
 * A policy has lanes and their limits, plans, actions and rules of conduct. It
 * is made from TOML text or a preset, validated as a whole, and never changes:
 *
 *     [lanes]                     # every lane and its limit
 *     "http/read" = "10/second burst 20"
 *     "llm/tokens" = "budget 10_000/day"
 *     [plans.pro]                 # the limits that differ in this plan
 *     "http/read" = "50/second burst 100"
 *
 * Lanes are numbered from 0 in the order of the text, and the lane "total" comes
 * last. Plans are numbered in the order of the text from 1; 0 is the plan
 * "default". To list them, count up until tollgate_policy_lane_name returns
 * UNKNOWN_LANE, or tollgate_policy_plan_name UNKNOWN_PLAN.
 */

/** The most lanes that a policy can have. */
#define TOLLGATE_LANES_MAX 62
/** The longest name of a lane or a plan, in bytes. */
#define TOLLGATE_NAME_BYTES_MAX 64
/** The most plans that a policy can have, "default" included. */
#define TOLLGATE_PLANS_MAX 256
/** Room for the text of any limit, its NUL included. */
#define TOLLGATE_LIMIT_BYTES 92

/** Lanes, limits, plans, actions and rules of conduct. It never changes. */
typedef struct tollgate_policy tollgate_policy;

/**
 * Makes the policy of a preset, by name. Free it with tollgate_policy_free.
 * The error of an unknown name lists the presets.
 *
 * Status: UNKNOWN_PRESET, NOT_UTF8, TEXT_TOO_LONG, STRUCT_SIZE.
 */
tollgate_status tollgate_policy_preset(const char *name,
                                       size_t name_len,
                                       tollgate_error *error_out,
                                       tollgate_policy **policy_out);

/** The name of a preset, counted from 0: a static string, or NULL past the last. */
const char *tollgate_preset_name(size_t index);

/**
 * Makes a policy from TOML text. Needs TOLLGATE_FEATURE_CONFIG. Free it with
 * tollgate_policy_free. The error has the line and the column of the mistake.
 *
 * Status: INVALID_POLICY, NOT_UTF8, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
 */
tollgate_status tollgate_policy_from_toml(const char *toml,
                                          size_t toml_len,
                                          tollgate_error *error_out,
                                          tollgate_policy **policy_out);

/**
 * Writes a policy as TOML, from which tollgate_policy_from_toml makes the same
 * policy. Needs TOLLGATE_FEATURE_CONFIG.
 *
 * Status: BUFFER_TOO_SMALL, NOT_BUILT_IN.
 */
tollgate_status tollgate_policy_to_toml(const tollgate_policy *policy,
                                        char *toml_out,
                                        size_t toml_size,
                                        size_t *toml_len_out);

/** Frees a policy. Limiters keep copies of their own. NULL is allowed. */
void tollgate_policy_free(tollgate_policy *policy);

/**
 * The number of a lane, by name.
 *
 * Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
 */
tollgate_status tollgate_policy_lane(const tollgate_policy *policy,
                                     const char *name,
                                     size_t name_len,
                                     uint32_t *lane_out);

/**
 * The name of a lane, by number. TOLLGATE_NAME_BYTES_MAX + 1 bytes are always
 * enough.
 *
 * Status: UNKNOWN_LANE, BUFFER_TOO_SMALL.
 */
tollgate_status tollgate_policy_lane_name(const tollgate_policy *policy,
                                          uint32_t lane,
                                          char *name_out,
                                          size_t name_size,
                                          size_t *name_len_out);

/**
 * The number of a plan, by name.
 *
 * Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
 */
tollgate_status tollgate_policy_plan(const tollgate_policy *policy,
                                     const char *name,
                                     size_t name_len,
                                     uint32_t *plan_out);

/**
 * The name of a plan, by number. TOLLGATE_NAME_BYTES_MAX + 1 bytes are always
 * enough.
 *
 * Status: UNKNOWN_PLAN, BUFFER_TOO_SMALL.
 */
tollgate_status tollgate_policy_plan_name(const tollgate_policy *policy,
                                          uint32_t plan,
                                          char *name_out,
                                          size_t name_size,
                                          size_t *name_len_out);

/**
 * The limit of a lane in a plan, as text, for example "10/second burst 20". The
 * plan TOLLGATE_NONE is the default plan. TOLLGATE_LIMIT_BYTES are always enough.
 *
 * Status: UNKNOWN_PLAN, UNKNOWN_LANE, BUFFER_TOO_SMALL.
 */
tollgate_status tollgate_policy_limit(const tollgate_policy *policy,
                                      uint32_t plan,
                                      uint32_t lane,
                                      char *limit_out,
                                      size_t limit_size,
                                      size_t *limit_len_out);


/* -------------------------------------------------------------------------------------------------
 * Sharing: one limiter for all processes of a machine.
 *
 * Processes with a limiter each admit the limit once each. Processes that share
 * one admit it once: records, limits, plans, overrides, exemptions, reservations,
 * conduct, counts and the policy in force are in memory that all of them map.
 * The first process that names a path in tollgate_limiter_options makes that
 * memory, and the others join it. A process that ends, or is killed at any
 * instruction, leaves nothing that blocks the others. All of them can write to
 * all of the memory, so they have to trust each other. Linux only.
 *
 * Lanes and their kinds, the clock's source and on_full have to be the same in
 * all processes, and no later one may ask for more agents or reservations than
 * the first. The policy in force stays, unless a later one has a higher version.
 * Slots that a process holds come back when it dies.
 */

/** How a limiter is shared with other processes. */
typedef int32_t tollgate_shared_by;
enum {
  /** By shared_path. If that is NULL, the limiter is private. */
  TOLLGATE_SHARED_BY_PATH = 0,
  /**
   * By memory without a path: with processes that are forked from this one, and
   * with those that are given the descriptor. It is gone when the last one ends.
   */
  TOLLGATE_SHARED_BY_MEMFD = 1,
  /** By shared_fd, which another process got from tollgate_snapshot and passed on. */
  TOLLGATE_SHARED_BY_DESCRIPTOR = 2,
};


/* -------------------------------------------------------------------------------------------------
 * Limiters: made from a policy, for a fixed number of agents.
 */

/** The most agents that a limiter can be built for. */
#define TOLLGATE_AGENTS_MAX 1073741824
/** How many agents a limiter is built for by default. */
#define TOLLGATE_AGENTS_DEFAULT 1000000

/**
 * An exact rate limiter for a fixed number of agents. Any number of threads
 * may use it at once.
 */
typedef struct tollgate_limiter tollgate_limiter;

/** What happens to a new agent when every record near its place is in use. */
typedef int32_t tollgate_on_full;
enum {
  /**
   * It takes the record with the least debt, and inherits that debt. The
   * agent that lost the record may come back with full lanes: see
   * lossy_evictions in tollgate_limiter_view.
   */
  TOLLGATE_ON_FULL_EVICT = 0,
  /** It is refused with TOLLGATE_STATUS_FULL. Limits are exact for every agent. */
  TOLLGATE_ON_FULL_DENY = 1,
};

/** How agent ids are hashed, with a random key of the limiter's own. */
typedef int32_t tollgate_id_hash;
enum {
  /** Multilinear: the fastest. */
  TOLLGATE_ID_HASH_MULTILINEAR = 0,
  /**
   * SipHash-1-3: for ids chosen by adversaries that can watch how the
   * limiter treats them.
   */
  TOLLGATE_ID_HASH_SIPHASH13 = 1,
};

/** What a limiter records of its work. */
typedef int32_t tollgate_observe;
enum {
  /** Nothing. This costs a check nothing. */
  TOLLGATE_OBSERVE_OFF = 0,
  /** Verdicts by lane, the worst offenders and the last events, in about 700 kB. */
  TOLLGATE_OBSERVE_ON = 1,
};

/** How a limiter is built. Zero in every member but struct_size is the default. */
typedef struct tollgate_limiter_options {
  /** Set it to sizeof(tollgate_limiter_options). */
  uint32_t struct_size;
  /** A tollgate_on_full. */
  int32_t on_full;
  /** How many agents it tracks at the same time. 0: TOLLGATE_AGENTS_DEFAULT. */
  uint64_t agents;
  /** Where its time comes from. NULL: a clock of its own. */
  const tollgate_clock *clock;
  /** A tollgate_id_hash. */
  int32_t id_hash;
  /** A tollgate_observe. */
  int32_t observe;
  /**
   * With TOLLGATE_OBSERVE_ON: each thread makes an event of one check in this
   * many. 0 samples none.
   */
  uint32_t sample_every;
  /**
   * 1 touches the memory of all records and of the roster at once, so that no
   * check waits for a page, and fails if there is too little. 0 leaves each
   * page to the agent that first needs it.
   */
  uint32_t prefault;
  /**
   * With TOLLGATE_OBSERVE_ON: room for the ids of this many agents, up to
   * 1,048,576, so that tollgate_agents can list them; 272 bytes each. Agents
   * that find no room are not listed. More room than records is never taken,
   * so UINT64_MAX asks for as much as possible. 0 lists no agent.
   */
  uint64_t roster;
  /**
   * How many reservations may be open at once, up to
   * TOLLGATE_RESERVATIONS_MAX; 64 bytes each. 0: TOLLGATE_RESERVATIONS_DEFAULT.
   */
  uint64_t reservations;
  /**
   * How many reservations one agent may have open. 0: one in 64 of them, but
   * at least 16.
   */
  uint32_t reservations_per_agent;
  /**
   * A tollgate_shared_by. Anything but a private limiter needs
   * TOLLGATE_FEATURE_SHARED.
   */
  int32_t shared_by;
  /**
   * With TOLLGATE_SHARED_BY_PATH: a file on a file system in memory, such as
   * "/run/tollgate/slab", that all processes name. Any bytes without a NUL; the
   * number of the memory's layout is appended, so that versions of this library
   * with different layouts do not meet. NULL: a private limiter.
   */
  const char *shared_path;
  /** The length of shared_path in bytes. */
  size_t shared_path_len;
  /** Who may use the file at shared_path, as for chmod. 0: 0600, its owner alone. */
  uint32_t shared_mode;
  /**
   * With TOLLGATE_SHARED_BY_DESCRIPTOR: the descriptor. The limiter makes a copy,
   * so close it when you like.
   */
  int32_t shared_fd;
  /**
   * How machines share lanes over Redis or Valkey, see tollgate_redis.h. NULL: not.
   * Anything else needs TOLLGATE_FEATURE_CLUSTER.
   */
  const tollgate_cluster_options *cluster;
} tollgate_limiter_options;

/**
 * Builds a limiter, and reserves all its memory. options may be NULL. The policy
 * and the clock may be freed as soon as this returns. Free the limiter with
 * tollgate_limiter_free.
 *
 * A limiter that is shared joins the memory that another process has made, or
 * makes it. If policy is NULL it only joins, with the policy, the clock's source,
 * the number of agents and on_full that the memory was made with.
 *
 * Status: INVALID_OPTION, AGENTS_OUT_OF_RANGE, OUT_OF_MEMORY, STRUCT_SIZE; SHARED
 * if the limiter cannot be shared so, TEXT_TOO_LONG, NOT_BUILT_IN. Of lanes that
 * machines cannot share: UNKNOWN_LANE, WRONG_KIND, INVALID_LIMIT.
 */
tollgate_status tollgate_limiter_new(const tollgate_policy *policy,
                                     const tollgate_limiter_options *options,
                                     tollgate_error *error_out,
                                     tollgate_limiter **limiter_out);

/** Frees a limiter. NULL is allowed. */
void tollgate_limiter_free(tollgate_limiter *limiter);

/** A copy of the policy in force. Free it with tollgate_policy_free. */
tollgate_status tollgate_limiter_policy(const tollgate_limiter *limiter,
                                        tollgate_policy **policy_out);

/**
 * The number of a lane, by name. It stays the same as long as the limiter
 * lives: ask once.
 *
 * Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
 */
tollgate_status tollgate_limiter_lane(const tollgate_limiter *limiter,
                                      const char *name,
                                      size_t name_len,
                                      uint32_t *lane_out);

/**
 * The number of a plan, by name. It stays the same as long as the limiter
 * lives: ask once.
 *
 * Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
 */
tollgate_status tollgate_limiter_plan(const tollgate_limiter *limiter,
                                      const char *name,
                                      size_t name_len,
                                      uint32_t *plan_out);

/** The present instant of the limiter's clock, for any now_ns. */
tollgate_status tollgate_limiter_now(const tollgate_limiter *limiter, uint64_t *now_ns_out);

/**
 * Frees the records of agents that have been idle, with every lane full, for
 * idle_for_ns. swept_out gets how many.
 *
 * Limits do not need it: a new agent takes over an idle record by itself. After
 * a sweep, tollgate_snapshot and tollgate_agents show recent agents only. It
 * walks all records, so call it from a timer, every few minutes.
 */
tollgate_status tollgate_limiter_sweep(tollgate_limiter *limiter,
                                       uint64_t idle_for_ns,
                                       uint64_t now_ns,
                                       uint64_t *swept_out);


/* -------------------------------------------------------------------------------------------------
 * Requests: which agent asks, for what, at what cost.
 */

/** As an instant: the present one. The limiter reads its clock. */
#define TOLLGATE_NOW UINT64_MAX
/** As a span: no wait helps. */
#define TOLLGATE_NEVER UINT64_MAX
/** In place of a plan or a lane: no particular one. Each function says what that means. */
#define TOLLGATE_NONE UINT32_MAX
/**
 * A flag of every function that returns a verdict: a denial counts against the
 * agent's conduct, and a policy that enforces waits denies a violator until its
 * wait is over. See tollgate_conduct.
 */
#define TOLLGATE_COUNTED 1
/** The longest agent id, in bytes. */
#define TOLLGATE_ID_BYTES_MAX 256
/** The most elements of an array that a function reads. */
#define TOLLGATE_BATCH_MAX 1048576

/** A limit of a request: capacity tokens at once, and count more every period_ns. */
typedef struct tollgate_call_limit {
  uint64_t capacity;
  uint64_t count;
  uint64_t period_ns;
} tollgate_call_limit;

/** The question. It never grows: {id, id_len, cost, lane, TOLLGATE_NONE, NULL}. */
typedef struct tollgate_request {
  /** The agent that asks: any bytes. */
  const void *id;
  /** How many bytes: 1 to TOLLGATE_ID_BYTES_MAX. */
  size_t id_len;
  /** How many tokens it costs, at least 1. All of them are charged, or none. */
  uint64_t cost;
  /** The lane: see tollgate_limiter_lane. */
  uint32_t lane;
  /**
   * The plan of an agent that is assigned to none, for this request alone: see
   * tollgate_limiter_plan. TOLLGATE_NONE is the default plan.
   */
  uint32_t plan;
  /** On a lane that is "dynamic": the limit of this call. NULL for the lane's own. */
  const tollgate_call_limit *limit;
} tollgate_request;

/**
 * Reads a limit such as "10/second burst 20" for many requests.
 *
 * Status: INVALID_LIMIT, NOT_UTF8, TEXT_TOO_LONG, STRUCT_SIZE.
 */
tollgate_status tollgate_call_limit_read(const char *limit,
                                         size_t limit_len,
                                         tollgate_error *error_out,
                                         tollgate_call_limit *limit_out);


/* -------------------------------------------------------------------------------------------------
 * Verdicts: whether a request may proceed, and how long a denied caller has to
 * wait. A denial charges nothing.
 */

/** Whether a request may proceed. Zero denies. */
typedef int32_t tollgate_decision;
enum {
  /** It may not, and nothing was charged. */
  TOLLGATE_DECISION_DENY = 0,
  /** It may. */
  TOLLGATE_DECISION_ALLOW = 1,
  /** It may, but the agent is near its limit: see warn_below_percent of the policy. */
  TOLLGATE_DECISION_WARN = 2,
  /** It may, since the agent is exempt; nothing was charged. */
  TOLLGATE_DECISION_EXEMPT = 3,
};

/** The answer. It never grows: it is an element of arrays. */
typedef struct tollgate_verdict {
  /**
   * TOLLGATE_STATUS_OK. In the array of tollgate_check_many, also why a
   * request could not be answered; then all other members are zero.
   */
  tollgate_status status;
  /** Whether the request may proceed. */
  tollgate_decision decision;
  /** What the lane holds when it is full, in tokens. UINT64_MAX if the agent is exempt. */
  uint64_t capacity;
  /**
   * How long a denied caller has to wait: the longer of the next two. 0 if
   * the request was allowed, TOLLGATE_NEVER if no wait helps.
   */
  uint64_t retry_after_ns;
  /**
   * How long until the lane would allow the same request, exact to the
   * nanosecond. 0 if it was allowed, TOLLGATE_NEVER if the lane never would.
   */
  uint64_t lane_wait_ns;
  /** How long a denied agent has to wait because of its conduct. 0 without TOLLGATE_COUNTED. */
  uint64_t conduct_wait_ns;
  /** How long until the lane is full again, if nothing more is charged. */
  uint64_t full_in_ns;
  /**
   * How long a bucket takes to refill one token. 0 for lanes that count:
   * window, exact, budget and held.
   */
  uint64_t token_ns;
  /**
   * Tokens left in a lane that counts; 0 for a bucket. Use
   * tollgate_verdict_remaining, which works for both.
   */
  uint64_t count_left;
  /** If this denial is a violation: how many in a row it makes, up to 15. Else 0. */
  uint32_t violations_in_a_row;
  /** 1 if this denial made the agent's conduct sustained abuse, else 0. */
  uint16_t sustained_abuse;
  /**
   * Of a lane that machines share, where the answer came from: a
   * tollgate_source of tollgate_redis.h. Else 0.
   */
  uint16_t source;
} tollgate_verdict;

/**
 * Whole tokens left in the lane after the request, for a lane of any kind.
 * UINT64_MAX if the agent is exempt; 0 for NULL and for a verdict of zeros.
 *
 * For a bucket this takes a division, so a check leaves it to callers that need
 * it.
 */
uint64_t tollgate_verdict_remaining(const tollgate_verdict *verdict);


/* -------------------------------------------------------------------------------------------------
 * Asking: may this agent do this?
 *
 * A check takes some tens of nanoseconds, no lock and no allocation; the first
 * one of an agent takes longer.
 */

/**
 * May the agent do this? Charges the cost, or nothing.
 *
 * flags is 0 or TOLLGATE_COUNTED. now_ns is TOLLGATE_NOW, or an instant of
 * tollgate_limiter_now that the caller already has. An instant that is older
 * than another caller's only makes the answer stricter; one ahead of the clock
 * lets the agent borrow from its future.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
 * COST_ABOVE_CAPACITY, FULL; INVALID_OPTION for other flags; WRONG_KIND for the
 * lane "total", which is only charged along with other lanes. Every call with a
 * request may also return INVALID_LIMIT, NO_LIMIT and LIMIT_GIVEN.
 */
tollgate_status tollgate_check(tollgate_limiter *limiter,
                               const tollgate_request *request,
                               uint64_t now_ns,
                               uint32_t flags,
                               tollgate_verdict *verdict_out);

/**
 * Answers many requests as if they were checked one by one, in order, at one
 * instant. Faster than single checks of many agents. flags is 0 or
 * TOLLGATE_COUNTED, for all requests.
 *
 * verdicts_out has room for count verdicts, and gets one at the index of each
 * request. A request that cannot be answered gets its own status there, and the
 * others proceed.
 *
 * Status: BATCH_SIZE; INVALID_OPTION for other flags.
 */
tollgate_status tollgate_check_many(tollgate_limiter *limiter,
                                    const tollgate_request *requests,
                                    size_t count,
                                    uint64_t now_ns,
                                    uint32_t flags,
                                    tollgate_verdict *verdicts_out);


/* -------------------------------------------------------------------------------------------------
 * All or none: one request against several lanes, or several agents.
 */

/** The most requests of one tollgate_check_all. */
#define TOLLGATE_PARTS_MAX 16

/** The answer to several requests: all were charged, or none. */
typedef struct tollgate_all_verdict {
  /** Set it to sizeof(tollgate_all_verdict) before the call. */
  uint32_t struct_size;
  /**
   * DENY if a request was denied; else WARN if an agent is near its limit,
   * EXEMPT if all agents are exempt, ALLOW otherwise.
   */
  tollgate_decision decision;
  /**
   * The longest wait of the requests that were denied. 0 if all were allowed,
   * TOLLGATE_NEVER if no wait helps.
   */
  uint64_t retry_after_ns;
  /** Which requests were denied: bit 0 is the first, and so on. */
  uint32_t blocking;
  /** 0. */
  uint32_t reserved;
} tollgate_all_verdict;

/**
 * May all of this be done? Charges every request or none: several lanes of an
 * agent, or several agents, such as a user, a team and an organisation.
 *
 * verdicts_out gets a verdict at the index of each request; it may be NULL. If a
 * request is denied, nothing is charged, and the verdicts on the others show what
 * would have happened. flags is 0 or TOLLGATE_COUNTED, for all requests.
 *
 * Two calls at the same moment may each see a charge that the other takes back,
 * and both may be denied.
 *
 * Status: PARTS; those of tollgate_check, for the first request that cannot be
 * answered; COST_ABOVE_CAPACITY also if the requests of one lane add up to more
 * than it holds; LIMITS_DIFFER; STRUCT_SIZE.
 */
tollgate_status tollgate_check_all(tollgate_limiter *limiter,
                                   const tollgate_request *requests,
                                   size_t count,
                                   uint64_t now_ns,
                                   uint32_t flags,
                                   tollgate_verdict *verdicts_out,
                                   tollgate_all_verdict *all_out);


/* -------------------------------------------------------------------------------------------------
 * Lanes of an agent: look, give back, hold, start over.
 */

/** The state of a lane of an agent. */
typedef struct tollgate_lane_state {
  /** Set it to sizeof(tollgate_lane_state) before the call. */
  uint32_t struct_size;
  /** 1 if the agent is exempt, else 0. */
  uint32_t exempt;
  /** Whole tokens that could be charged now. UINT64_MAX if the agent is exempt. */
  uint64_t remaining;
  /**
   * What the lane holds when it is full. 0 if it denies everything,
   * UINT64_MAX if the agent is exempt.
   */
  uint64_t capacity;
  /**
   * How long until there is one more whole token. TOLLGATE_NEVER if the lane
   * is full or denies everything.
   */
  uint64_t next_in_ns;
  /** How long until the lane is full again, if nothing more is charged. */
  uint64_t full_in_ns;
} tollgate_lane_state;

/**
 * Looks at a lane of an agent. Charges nothing, and gives a new agent no record.
 * The cost of the request does not matter.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, STRUCT_SIZE.
 */
tollgate_status tollgate_peek(const tollgate_limiter *limiter,
                              const tollgate_request *request,
                              uint64_t now_ns,
                              tollgate_lane_state *state_out);

/**
 * Gives the cost of a request back, but never fills a lane beyond its capacity.
 * Use the plan that the request was charged under: a token is worth what it
 * costs under that plan. The instant is now_ns, or the clock's time if that is
 * later. state_out may be NULL.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
 * COST_ABOVE_CAPACITY, STRUCT_SIZE; NOT_HELD in a held lane, as
 * tollgate_release; WRONG_KIND for the lane "total".
 */
tollgate_status tollgate_refund(tollgate_limiter *limiter,
                                const tollgate_request *request,
                                uint64_t now_ns,
                                tollgate_lane_state *state_out);

/**
 * Takes as many slots as the request costs, in a lane with a limit such as
 * "held 3": for connections and jobs. The slots stay taken until
 * tollgate_release, and the agent keeps its record as long. A denial has no
 * wait, since only a release helps. flags is 0 or TOLLGATE_COUNTED.
 *
 * Status: as tollgate_check, and WRONG_KIND unless the lane is a held one; of a
 * shared limiter also HOLDS_FULL.
 */
tollgate_status tollgate_hold(tollgate_limiter *limiter,
                              const tollgate_request *request,
                              uint64_t now_ns,
                              uint32_t flags,
                              tollgate_verdict *verdict_out);

/**
 * Gives as many slots back as the request costs. state_out may be NULL. An exempt
 * agent takes no slots, so its release never returns NOT_HELD.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, UNKNOWN_PLAN, ZERO_COST,
 * COST_ABOVE_CAPACITY, STRUCT_SIZE; WRONG_KIND unless the lane is a held one;
 * NOT_HELD if the agent holds fewer slots.
 */
tollgate_status tollgate_release(tollgate_limiter *limiter,
                                 const tollgate_request *request,
                                 uint64_t now_ns,
                                 tollgate_lane_state *state_out);

/**
 * Fills a lane of the agent; TOLLGATE_NONE fills all of them, one after the
 * other. Open reservations then have nothing left to give back. Held slots stay
 * held.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE.
 */
tollgate_status tollgate_reset(tollgate_limiter *limiter,
                               const void *id,
                               size_t id_len,
                               uint32_t lane,
                               uint64_t now_ns);

/**
 * Forgets the agent: frees its record and closes its reservations, so that its
 * next request is like its first. Its assignment stays. forgotten_out gets
 * whether the agent had a record.
 *
 * An agent that holds a slot keeps its record, with all other lanes filled; so
 * may one that is checked at the same moment.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 */
tollgate_status tollgate_forget(tollgate_limiter *limiter,
                                const void *id,
                                size_t id_len,
                                uint64_t now_ns,
                                bool *forgotten_out);


/* -------------------------------------------------------------------------------------------------
 * Reservations: charge an estimate now, settle the real cost later.
 *
 * For LLM calls, downloads and other work whose cost is known only at the end.
 */

/** The most reservations that a limiter can be built for. */
#define TOLLGATE_RESERVATIONS_MAX 16777216
/** How many reservations a limiter is built for by default. */
#define TOLLGATE_RESERVATIONS_DEFAULT 16384
/** The most that a settlement may overspend, in multiples of the lane's capacity. */
#define TOLLGATE_OVERSPEND_MAX 100
/** A flag of tollgate_settle: this much was used so far, and the reservation stays open. */
#define TOLLGATE_SETTLE_SO_FAR 2

/** The result of a settlement. */
typedef struct tollgate_settlement {
  /** Set it to sizeof(tollgate_settlement) before the call. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /**
   * What was reserved and not used. It went back to the window it was charged
   * in, if that is not over.
   */
  uint64_t unused;
  /**
   * What was used beyond the estimate. It was charged to the present window,
   * into debt if necessary.
   */
  uint64_t overspent;
  /** What is still reserved. 0 once the reservation is closed. */
  uint64_t left;
} tollgate_settlement;

/**
 * Charges the cost of the request as an estimate, until tollgate_settle reports
 * the real cost. Without a settlement within ttl_ns the whole estimate stays
 * charged. flags is 0 or TOLLGATE_COUNTED.
 *
 * reservation_out gets the number to settle with, or 0 if the request was denied.
 * Works with buckets, windows and budgets. If the policy has a lane "total", that
 * is reserved as well.
 *
 * After tollgate_reset a reservation has nothing left to give back; after a
 * change of limits it is worth as much as before; tollgate_forget closes it.
 *
 * Status: as tollgate_check; WRONG_KIND for a held lane and an exact window;
 * TOO_MANY_RESERVATIONS, RESERVATIONS_FULL.
 */
tollgate_status tollgate_reserve(tollgate_limiter *limiter,
                                 const tollgate_request *request,
                                 uint64_t ttl_ns,
                                 uint64_t now_ns,
                                 uint32_t flags,
                                 tollgate_verdict *verdict_out,
                                 uint64_t *reservation_out);

/**
 * Settles a reservation. used is the real cost, without what earlier settlements
 * of it reported. The rest is given back; what was used beyond the estimate is
 * charged, into debt if necessary. To cancel, settle with 0.
 *
 * flags is 0, which closes the reservation, or TOLLGATE_SETTLE_SO_FAR, which
 * leaves the rest reserved: for answers that stream. The instant is now_ns, or
 * the clock's time if that is later.
 *
 * A bucket gets back only what it has not refilled since.
 *
 * Status: UNKNOWN_RESERVATION, USED_TOO_LARGE, INVALID_OPTION for other flags,
 * STRUCT_SIZE; FULL if something was overspent and no record is free to charge
 * it to: settle again later. After a failure the reservation is as it was.
 */
tollgate_status tollgate_settle(tollgate_limiter *limiter,
                                uint64_t reservation,
                                uint64_t used,
                                uint64_t now_ns,
                                uint32_t flags,
                                tollgate_settlement *settlement_out);

/**
 * Lets a reservation live until ttl_ns after now_ns, unless it lives longer already.
 *
 * Status: UNKNOWN_RESERVATION.
 */
tollgate_status tollgate_extend(tollgate_limiter *limiter,
                                uint64_t reservation,
                                uint64_t ttl_ns,
                                uint64_t now_ns);


/* -------------------------------------------------------------------------------------------------
 * Conduct: violations, and the waits that follow from them.
 *
 * With TOLLGATE_COUNTED a denial is a violation if the agent came back before its
 * wait was over; if the policy counts every denial, it always is. The policy
 * decides which waits follow, whether they are enforced, and how many violations
 * are sustained abuse. An agent is forgiven after a quiet period.
 */

/** A violation as it was recorded. */
typedef struct tollgate_violation {
  /** Set it to sizeof(tollgate_violation) before the call. */
  uint32_t struct_size;
  /** How many violations in a row this makes, up to 15. */
  uint32_t violations_in_a_row;
  /**
   * How long the agent has to wait: step_ns, or longer if the policy enforces
   * waits and an earlier one is not over.
   */
  uint64_t wait_ns;
  /** The wait that the policy's curve has for this violation. */
  uint64_t step_ns;
  /** 1 if it made the agent's conduct sustained abuse, else 0. */
  uint32_t sustained_abuse;
  /** 0. */
  uint32_t reserved;
} tollgate_violation;

/** The state of an agent's conduct. */
typedef struct tollgate_conduct_state {
  /** Set it to sizeof(tollgate_conduct_state) before the call. */
  uint32_t struct_size;
  /**
   * 1 if the agent has violated a limit and its quiet period is not over, so
   * that a scheduler gives it no new work. Else, and if it is exempt, 0.
   */
  uint32_t rate_limited;
  /** Violations in the present window of the abuse threshold, up to 63. */
  uint32_t violations_in_window;
  /** Violations without a quiet period between them, up to 15. */
  uint32_t violations_in_a_row;
  /** The instant at which the present window began. TOLLGATE_NEVER without one. */
  uint64_t window_start_ns;
  /** The instant of the last violation. TOLLGATE_NEVER if all are forgiven. */
  uint64_t last_violation_ns;
  /** What is left of the wait that followed the last violation. */
  uint64_t wait_ns;
} tollgate_conduct_state;

/** An agent id as an argument. It never grows. */
typedef struct tollgate_id {
  /** Any bytes. */
  const void *id;
  /** How many bytes: 1 to TOLLGATE_ID_BYTES_MAX. */
  size_t id_len;
} tollgate_id;

/**
 * Records a violation that the caller has found, and reports the wait for it.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE; FULL if the agent is new and
 * every record near its place is in use.
 */
tollgate_status tollgate_record_violation(tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          uint64_t now_ns,
                                          tollgate_violation *violation_out);

/**
 * The agent's conduct. Changes nothing.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
 */
tollgate_status tollgate_conduct(const tollgate_limiter *limiter,
                                 const void *id,
                                 size_t id_len,
                                 uint64_t now_ns,
                                 tollgate_conduct_state *conduct_out);

/**
 * Forgives the agent's violations. had_out gets whether there were any that time
 * had not forgiven already.
 *
 * Status: EMPTY_ID, ID_TOO_LONG.
 */
tollgate_status tollgate_reset_violations(tollgate_limiter *limiter,
                                          const void *id,
                                          size_t id_len,
                                          bool *had_out);

/**
 * Which of these agents may be given new work: those that are not rate_limited,
 * see tollgate_conduct_state. assignable_out has room for count answers, and gets
 * one at the index of each id; false for an invalid id.
 *
 * Status: BATCH_SIZE.
 */
tollgate_status tollgate_assignable(const tollgate_limiter *limiter,
                                    const tollgate_id *ids,
                                    size_t count,
                                    uint64_t now_ns,
                                    bool *assignable_out);

/**
 * A wait in milliseconds, in whole steps of step_ms, such as 1000 for a protocol
 * that counts seconds. Rounded up, so that no caller comes back too early, and at
 * least one step; a step of 0 counts as 1. Returns never_ms for TOLLGATE_NEVER.
 */
uint64_t tollgate_wait_ms(uint64_t wait_ns, uint64_t step_ms, uint64_t never_ms);


/* -------------------------------------------------------------------------------------------------
 * Control: what an operator decides at run time.
 *
 * An agent may have a plan, limits of its own (overrides), and an exemption:
 * together, its assignment. It outlives the agent's record. When a call returns,
 * its change applies to the next check in every thread. Control calls take turns
 * under a lock that checks never take.
 */

/** The most agents that may have overrides at once. */
#define TOLLGATE_OVERRIDES_MAX 65000

/**
 * Assigns the agent to a plan. TOLLGATE_NONE removes it from its plan.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
 */
tollgate_status tollgate_assign(tollgate_limiter *limiter,
                                const void *id,
                                size_t id_len,
                                uint32_t plan,
                                tollgate_error *error_out);

/**
 * Gives the agent a limit of its own for a lane, or for a tier in every channel:
 * the tier "heavy" is "ws/heavy", "http/heavy" and so on. The limit is text, such
 * as "10/second burst 20" or "deny".
 *
 * A NULL limit removes the agent's own limit for that lane or tier; if
 * lane_or_tier is NULL as well, all of them.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, NOT_UTF8, TEXT_TOO_LONG, UNKNOWN_LANE,
 * INVALID_LIMIT, TOO_MANY_OVERRIDES, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
 */
tollgate_status tollgate_set_override(tollgate_limiter *limiter,
                                      const void *id,
                                      size_t id_len,
                                      const char *lane_or_tier,
                                      size_t lane_or_tier_len,
                                      const char *limit,
                                      size_t limit_len,
                                      tollgate_error *error_out);

/**
 * Exempts the agent, or limits it again. Requests of an exempt agent are
 * answered with TOLLGATE_DECISION_EXEMPT and charge nothing.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
 */
tollgate_status tollgate_set_exempt(tollgate_limiter *limiter,
                                    const void *id,
                                    size_t id_len,
                                    bool exempt,
                                    tollgate_error *error_out);

/**
 * The agent's limit for a lane, as text: its own, or else that of its plan.
 * Empty if the agent is exempt. TOLLGATE_LIMIT_BYTES are always enough.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, BUFFER_TOO_SMALL.
 */
tollgate_status tollgate_limit_of(const tollgate_limiter *limiter,
                                  const void *id,
                                  size_t id_len,
                                  uint32_t lane,
                                  char *limit_out,
                                  size_t limit_size,
                                  size_t *limit_len_out);

/**
 * Puts another policy in force: other limits for the same lanes, in the same
 * order, and the same plans or more. Assignments stay. The limiter keeps a copy
 * of its own.
 *
 * It walks all records while checks continue; when it returns, every check uses
 * the new limits. on_change of the new policy decides what happens to debt.
 *
 * Status: OTHER_LANES, PLAN_MISSING, FORKED, STRUCT_SIZE; INVALID_LIMIT if a
 * lane changes its kind, or the time zone of its window.
 */
tollgate_status tollgate_replace_policy(tollgate_limiter *limiter,
                                        const tollgate_policy *policy,
                                        tollgate_error *error_out);


/* -------------------------------------------------------------------------------------------------
 * Assignments as data: the plan, the overrides and the exemption of agents.
 */

/** An agent id as an output. It never grows. */
typedef struct tollgate_agent_id {
  /** How many bytes it has. */
  uint32_t len;
  /** The bytes, and zeros after them. */
  uint8_t bytes[TOLLGATE_ID_BYTES_MAX];
} tollgate_agent_id;

/** A limit of an agent's own. It never grows. */
typedef struct tollgate_override {
  /** The lane. */
  uint32_t lane;
  /** The limit as text. It ends at the first NUL, or fills the array. */
  char limit[TOLLGATE_LIMIT_BYTES];
} tollgate_override;

/** The assignment of an agent. */
typedef struct tollgate_assignment_state {
  /** Set it to sizeof(tollgate_assignment_state) before the call. */
  uint32_t struct_size;
  /** Its plan. TOLLGATE_NONE without one. */
  uint32_t plan;
  /** 1 if it is exempt, else 0. */
  uint32_t exempt;
  /** How many overrides it has. */
  uint32_t override_count;
} tollgate_assignment_state;

/** The assignment of one agent, for tollgate_set_assignments. It never grows. */
typedef struct tollgate_assignment_entry {
  /** The agent: any bytes. */
  const void *id;
  /** How many bytes: 1 to TOLLGATE_ID_BYTES_MAX. */
  size_t id_len;
  /** Its overrides. Of two for one lane the last one counts. */
  const tollgate_override *overrides;
  /** How many, up to TOLLGATE_LANES_MAX. */
  size_t override_count;
  /** Its plan. TOLLGATE_NONE for no plan. */
  uint32_t plan;
  /** 1 to exempt it, else 0. */
  uint32_t exempt;
} tollgate_assignment_entry;

/**
 * The assignment of an agent. overrides_out gets its overrides in the order of
 * the lanes' names, at most overrides_max of them; TOLLGATE_LANES_MAX are always
 * enough.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
 */
tollgate_status tollgate_assignment(const tollgate_limiter *limiter,
                                    const void *id,
                                    size_t id_len,
                                    tollgate_assignment_state *assignment_out,
                                    tollgate_override *overrides_out,
                                    size_t overrides_max);

/**
 * Lists the agents that have an assignment, in the order of their ids: those
 * after after_id, or all if that is NULL. ids_out gets the first of them, at most
 * ids_max; count_out gets how many there are. For the next page, pass the last id.
 *
 * Each call copies all assignments, so use large pages.
 *
 * Status: ID_TOO_LONG.
 */
tollgate_status tollgate_assigned(const tollgate_limiter *limiter,
                                  const void *after_id,
                                  size_t after_len,
                                  tollgate_agent_id *ids_out,
                                  size_t ids_max,
                                  size_t *count_out);

/**
 * Replaces the assignments of many agents at once, all or none; other agents keep
 * theirs. An entry without plan, overrides and exemption removes the assignment.
 * Of two entries for one agent the last one counts. The error names the entry or
 * the agent.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, UNKNOWN_LANE, INVALID_LIMIT,
 * NOT_UTF8, INVALID_OPTION, BATCH_SIZE, TOO_MANY_OVERRIDES, SAME_HASH, FORKED,
 * FILE, STRUCT_SIZE.
 */
tollgate_status tollgate_set_assignments(tollgate_limiter *limiter,
                                         const tollgate_assignment_entry *entries,
                                         size_t count,
                                         tollgate_error *error_out);

/**
 * Keeps assignments in a file from now on, and applies those that the file has
 * already. Call it before the first check, so that no agent is checked without
 * its limits. Assignments of other agents are added to the file. Needs
 * TOLLGATE_FEATURE_PERSIST.
 *
 * The path is any bytes without a NUL. From then on a control call returns when
 * its change is in the file and in force. The error has the line and the column
 * of a mistake in the file.
 *
 * Status: FILE if the file is invalid, in use, or cannot be read or written;
 * UNKNOWN_PLAN, UNKNOWN_LANE, INVALID_LIMIT, TOO_MANY_OVERRIDES, SAME_HASH,
 * FORKED, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
 */
tollgate_status tollgate_keep_assignments_in(tollgate_limiter *limiter,
                                             const char *path,
                                             size_t path_len,
                                             tollgate_error *error_out);

/**
 * Reads the file of assignments again after an edit, and applies it. Agents that
 * the file does not name lose their assignments. Needs TOLLGATE_FEATURE_PERSIST.
 *
 * What other processes that share the limiter have changed since is written to
 * the file first, and stays: call it every few seconds in the process that keeps
 * the file. If the file was edited too, that is an error that says what to do.
 *
 * If it fails, control calls fail too until the file is corrected and reloaded,
 * so that none of them overwrites the edit.
 *
 * Status: as tollgate_keep_assignments_in, and NO_FILE.
 */
tollgate_status tollgate_reload_assignments(tollgate_limiter *limiter,
                                            tollgate_error *error_out);


/* -------------------------------------------------------------------------------------------------
 * Budgets across restarts.
 *
 * Buckets and windows start full after a restart; a budget for a day or a month
 * should not. Name a file before the first check, save every few seconds, and
 * once more before the process ends. If the process is killed, what was charged
 * since the last save is forgotten.
 */

/** What was read from a file of used budgets. */
typedef struct tollgate_budgets_loaded {
  /** Set it to sizeof(tollgate_budgets_loaded) before the call. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Budgets that are in use again, as much as before. */
  uint64_t loaded;
  /** Budgets whose window is over. They start full. */
  uint64_t ended;
  /**
   * Budgets that were dropped, because the policy no longer has the lane or
   * its window has changed.
   */
  uint64_t unknown;
  /**
   * Budgets that were dropped, because no record was free for the agent: the
   * limiter is too small.
   */
  uint64_t full;
  /**
   * How far the limiter's calendar is ahead of the wall clock, if that was set
   * back since the file was written. Windows end that much later. Else 0.
   */
  uint64_t ahead_ns;
} tollgate_budgets_loaded;

/** What a save wrote. */
typedef struct tollgate_budgets_saved {
  /** Set it to sizeof(tollgate_budgets_saved) before the call. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Budgets in the file. */
  uint64_t saved;
  /**
   * Used budgets that are not in the file, because their agents had a record
   * before the file was named and their ids are not known.
   */
  uint64_t unsaved;
} tollgate_budgets_saved;

/**
 * Keeps used budgets in a file, and charges what the file has for windows that
 * are not over. Call it once, before the first check and after
 * tollgate_keep_assignments_in. Needs TOLLGATE_FEATURE_PERSIST.
 *
 * The path is any bytes without a NUL. The error has the line and the column of
 * a mistake in the file. The ids of agents take 272 bytes for each record, unless
 * a roster with room for all has them already.
 *
 * Status: FILE if the file is invalid, in use, or cannot be read or written;
 * TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
 */
tollgate_status tollgate_keep_budgets_in(tollgate_limiter *limiter,
                                         const char *path,
                                         size_t path_len,
                                         tollgate_error *error_out,
                                         tollgate_budgets_loaded *loaded_out);

/**
 * Saves what was used of budgets. When it returns, the file is on the disk.
 * Checks continue meanwhile; a million agents take about 40 ms. Needs
 * TOLLGATE_FEATURE_PERSIST.
 *
 * Status: NO_FILE without tollgate_keep_budgets_in, and in a process that was
 * forked since; FILE if the file cannot be written, or if something else wrote to
 * it; NOT_BUILT_IN, STRUCT_SIZE.
 */
tollgate_status tollgate_save_budgets(tollgate_limiter *limiter,
                                      tollgate_error *error_out,
                                      tollgate_budgets_saved *saved_out);


/* -------------------------------------------------------------------------------------------------
 * Actions: which lane pays for what an agent does.
 */

/** How many names of unknown actions a limiter keeps. */
#define TOLLGATE_UNKNOWN_ACTIONS_MAX 256
/** Room for a channel or the name of an action: 64 bytes and a NUL, rounded up. */
#define TOLLGATE_ACTION_BYTES 72

/** The lane of an action. */
typedef struct tollgate_action_lane {
  /** Set it to sizeof(tollgate_action_lane) before the call. */
  uint32_t struct_size;
  /** The lane that pays for the action. */
  uint32_t lane;
  /**
   * 1 if the policy names the action; 0 if the lane is the channel's lane for
   * unknown actions.
   */
  uint32_t known;
  /**
   * 1 if this unknown action arrived for the first time, which is worth a line
   * in the log. Else 0.
   */
  uint32_t first_seen;
} tollgate_action_lane;

/** An action that the policy does not name. It never grows. */
typedef struct tollgate_unknown_action {
  /** Its channel, NUL-terminated, truncated to 64 bytes. */
  char channel[TOLLGATE_ACTION_BYTES];
  /** Its name, NUL-terminated, truncated to 64 bytes. */
  char name[TOLLGATE_ACTION_BYTES];
} tollgate_unknown_action;

/** How many unknown actions have arrived. */
typedef struct tollgate_unknown_action_totals {
  /** Set it to sizeof(tollgate_unknown_action_totals) before the call. */
  uint32_t struct_size;
  /** How many names the limiter has kept, up to TOLLGATE_UNKNOWN_ACTIONS_MAX. */
  uint32_t count;
  /** How often an unknown action arrived. */
  uint64_t total;
  /** How often one arrived whose name was not kept. */
  uint64_t not_listed;
} tollgate_unknown_action_totals;

/**
 * The lane that pays for an action of a channel under the policy in force:
 * "ws/heavy", for example, for "search" of the channel "ws". An action that the
 * policy does not name gets the channel's lane for unknown actions, and is
 * counted.
 *
 * Status: UNKNOWN_LANE if the channel has no lane for unknown actions either; NOT_UTF8,
 * TEXT_TOO_LONG, STRUCT_SIZE.
 */
tollgate_status tollgate_lane_for(tollgate_limiter *limiter,
                                  const char *channel,
                                  size_t channel_len,
                                  const char *action,
                                  size_t action_len,
                                  tollgate_action_lane *lane_out);

/**
 * The unknown actions that have arrived so far, sorted by channel and name, so
 * that you can add them to the policy. actions_out gets at most actions_max of
 * them; totals_out has how many there are.
 *
 * Status: STRUCT_SIZE.
 */
tollgate_status tollgate_unknown_actions(const tollgate_limiter *limiter,
                                         tollgate_unknown_action *actions_out,
                                         size_t actions_max,
                                         tollgate_unknown_action_totals *totals_out);


/* -------------------------------------------------------------------------------------------------
 * Observing: what a limiter holds and has done.
 *
 * Most of it needs TOLLGATE_OBSERVE_ON in tollgate_limiter_options. Looking
 * charges nothing and does not delay checks.
 */

/**
 * What a limiter holds and has done. Counts are since it was built; of a shared
 * limiter they are those of all processes.
 */
typedef struct tollgate_limiter_view {
  /** Set it to sizeof(tollgate_limiter_view) before the call. */
  uint32_t struct_size;
  /**
   * 1 with TOLLGATE_OBSERVE_ON. Else 0, and so are the members from allowed to
   * sustained_abuse.
   */
  uint32_t observed;
  /** Requests that were allowed, in all lanes. */
  uint64_t allowed;
  /** Requests that were allowed near the limit. */
  uint64_t warned;
  /** Requests that were denied. */
  uint64_t denied;
  /** Requests of exempt agents. */
  uint64_t exempt;
  /** Requests that failed, with another status than TOLLGATE_STATUS_FULL. */
  uint64_t errors;
  /** Requests that failed with TOLLGATE_STATUS_FULL. */
  uint64_t full;
  /** Violations. */
  uint64_t violations;
  /** Violations in the last hour. */
  uint64_t violations_last_hour;
  /** How often an agent's conduct became sustained abuse. */
  uint64_t sustained_abuse;
  /** The instant of this snapshot. */
  uint64_t at_ns;
  /**
   * Agents that have a record. An idle one keeps it until a new agent needs it
   * or a sweep frees it.
   */
  uint64_t agents;
  /** Records, taken or free. */
  uint64_t records;
  /** How often a record was given to a new agent. */
  uint64_t claims;
  /** Idle records that were given to new agents or swept, without any loss. */
  uint64_t idle_evictions;
  /**
   * Records in debt that were given to new agents. If this grows, build the
   * limiter for more agents.
   */
  uint64_t lossy_evictions;
  /** Atomic exchanges that were lost to another thread and tried again. */
  uint64_t retries;
  /** Reservations that are open. */
  uint64_t reservations;
  /**
   * Reservations that expired before they were settled. Each is counted when
   * its place is used again.
   */
  uint64_t reservations_expired;
  /** Reservations that were refused: TOO_MANY_RESERVATIONS or RESERVATIONS_FULL. */
  uint64_t reservations_refused;
  /** Agents that have an assignment. */
  uint64_t agents_assigned;
  /** Agents with overrides. */
  uint64_t agents_overridden;
  /** Agents that are exempt. */
  uint64_t agents_exempt;
  /** Unknown actions that arrived. */
  uint64_t unknown_actions;
  /** Events that were dropped because they were not polled in time. */
  uint64_t events_dropped;
  /**
   * Bytes of address space that the limiter has reserved. New agents do not
   * add to it; assignments take memory besides.
   */
  uint64_t memory;
  /** 1 if the clock gave up the processor's counter and reads the OS clock since, else 0. */
  uint64_t clock_fallbacks;
  /** Where the clock takes its time from. */
  tollgate_clock_source clock_source;
  /** How many lanes there are. */
  uint32_t lane_count;
  /**
   * The processes that share the limiter, this one included; 0 if it is private.
   * A process that has built two limiters on the same memory counts twice.
   */
  uint32_t processes;
  /**
   * The descriptor of a shared limiter's memory, to be passed on to a process for
   * TOLLGATE_SHARED_BY_DESCRIPTOR; -1 if it is private. It closes on exec, and the
   * limiter owns it: do not close it.
   */
  int32_t shared_fd;
  /** How often a lock was taken over from a process that died with it. */
  uint64_t takeovers;
  /** How often a process was answered TOLLGATE_STATUS_BUSY. */
  uint64_t busy;
  /**
   * 1 if this process was built with other limits than those in force, which are
   * the ones that were there first, else 0.
   */
  uint32_t policy_differs;
  /**
   * 1 if the file at shared_path was removed or replaced, else 0. Processes that
   * start from now on do not share this limiter: restart the others.
   */
  uint32_t detached;
} tollgate_limiter_view;

/** The verdicts of one lane. It never grows. */
typedef struct tollgate_lane_counts {
  /** Requests that were allowed. */
  uint64_t allowed;
  /** Requests that were allowed near the limit. */
  uint64_t warned;
  /** Requests that were denied. */
  uint64_t denied;
  /** Requests of exempt agents. */
  uint64_t exempt;
} tollgate_lane_counts;

/**
 * What the limiter holds and has done. lanes_out gets the counts of each lane by
 * its number, at most lanes_max of them; TOLLGATE_LANES_MAX are always enough.
 * Takes microseconds, and of a shared limiter a few more for each process.
 *
 * Status: STRUCT_SIZE.
 */
tollgate_status tollgate_snapshot(const tollgate_limiter *limiter,
                                  tollgate_limiter_view *view_out,
                                  tollgate_lane_counts *lanes_out,
                                  size_t lanes_max);


/* -------------------------------------------------------------------------------------------------
 * Agents as an operator sees them: one, or a list.
 */

/** The most agents that one call lists. */
#define TOLLGATE_PAGE_MAX 200

/** The state of an agent. */
typedef struct tollgate_agent_view {
  /** Set it to sizeof(tollgate_agent_view) before the call. */
  uint32_t struct_size;
  /** 1 if the agent has a record, else 0. */
  uint32_t known;
  /** 1 if the agent is exempt, else 0. */
  uint32_t exempt;
  /** The plan it is assigned to. TOLLGATE_NONE without one. */
  uint32_t plan;
  /**
   * The lane that is nearest to its limit. TOLLGATE_NONE if the agent is exempt
   * or all lanes deny everything.
   */
  uint32_t dominant_lane;
  /** As in tollgate_conduct_state. */
  uint32_t rate_limited;
  /** Violations in the present window of the abuse threshold, up to 63. */
  uint32_t violations_in_window;
  /** Violations without a quiet period between them, up to 15. */
  uint32_t violations_in_a_row;
  /** The instant of this state. */
  uint64_t at_ns;
  /** The instant of the last violation. TOLLGATE_NEVER if all are forgiven. */
  uint64_t last_violation_ns;
  /** What is left of the wait that followed the last violation. */
  uint64_t wait_ns;
  /** How many lanes there are. */
  uint32_t lane_count;
  /** 0. */
  uint32_t reserved;
} tollgate_agent_view;

/** How near to its limit a lane is. */
typedef int32_t tollgate_usage_level;
enum {
  /** Less than 50 % is used. */
  TOLLGATE_USAGE_LEVEL_GREEN = 0,
  /** 50 to 80 % is used. */
  TOLLGATE_USAGE_LEVEL_YELLOW = 1,
  /** More than 80 % is used. */
  TOLLGATE_USAGE_LEVEL_RED = 2,
};

/** The state of a lane of an agent, in a list of lanes. It never grows. */
typedef struct tollgate_lane_view {
  /** Whole tokens that could be charged. UINT64_MAX if the agent is exempt. */
  uint64_t remaining;
  /** What the lane holds when it is full. UINT64_MAX if the agent is exempt. */
  uint64_t capacity;
  /**
   * How long until there is one more whole token. TOLLGATE_NEVER if the lane
   * is full or denies everything.
   */
  uint64_t next_in_ns;
  /** How long until the lane is full again, if nothing more is charged. */
  uint64_t full_in_ns;
  /** How much of the lane is used: 0 to 100. */
  double used_percent;
  /** How near to its limit the lane is. */
  tollgate_usage_level level;
  /** 1 if the agent has a limit of its own for the lane, else 0. */
  uint32_t overridden;
} tollgate_lane_view;

/**
 * The state of an agent: its plan, its conduct and its lanes. Charges nothing,
 * and gives a new agent no record. lanes_out gets each lane by its number, at
 * most lanes_max of them; TOLLGATE_LANES_MAX are always enough.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
 */
tollgate_status tollgate_agent(const tollgate_limiter *limiter,
                               const void *id,
                               size_t id_len,
                               uint64_t now_ns,
                               tollgate_agent_view *view_out,
                               tollgate_lane_view *lanes_out,
                               size_t lanes_max);

/** In which order agents are listed. Ties are in the order of ids. */
typedef int32_t tollgate_agent_sort;
enum {
  /** By id, byte by byte. */
  TOLLGATE_AGENT_SORT_ID = 0,
  /** The agents nearest to the limit of their dominant lane first. */
  TOLLGATE_AGENT_SORT_USAGE = 1,
  /** The agents with the most violations in the present window first. */
  TOLLGATE_AGENT_SORT_VIOLATIONS = 2,
};

/**
 * Which agents to list. Zero in every member but struct_size is the first page
 * of all agents, by id.
 */
typedef struct tollgate_agent_query {
  /** Set it to sizeof(tollgate_agent_query). */
  uint32_t struct_size;
  /** A tollgate_agent_sort. */
  int32_t sort;
  /** Only agents whose id begins with these bytes. NULL: any. */
  const void *prefix;
  /** How many bytes, up to TOLLGATE_ID_BYTES_MAX. */
  size_t prefix_len;
  /** Only agents whose id contains these bytes. NULL: any. */
  const void *part;
  /** How many bytes, up to TOLLGATE_ID_BYTES_MAX. */
  size_t part_len;
  /** Which page, from 0. A page has rows_max agents, but at most TOLLGATE_PAGE_MAX. */
  uint64_t page;
} tollgate_agent_query;

/** An agent in a list. tollgate_agent reports its lanes too. It never grows. */
typedef struct tollgate_agent_row {
  /** The agent. */
  tollgate_agent_id id;
  /** 1 if it is exempt, else 0. */
  uint32_t exempt;
  /** The plan it is assigned to. TOLLGATE_NONE without one. */
  uint32_t plan;
  /** See tollgate_agent_view. */
  uint32_t dominant_lane;
  /** See tollgate_agent_view. */
  uint32_t rate_limited;
  /** See tollgate_agent_view. */
  uint32_t violations_in_window;
  /** See tollgate_agent_view. */
  uint32_t violations_in_a_row;
  /** 0. */
  uint32_t reserved;
  /** See tollgate_agent_view. */
  uint64_t last_violation_ns;
  /** See tollgate_agent_view. */
  uint64_t wait_ns;
  /** How much of its dominant lane is used: 0 to 100. */
  double used_percent;
} tollgate_agent_row;

/** A page of a list of agents, and the whole list. */
typedef struct tollgate_agent_page {
  /** Set it to sizeof(tollgate_agent_page) before the call. */
  uint32_t struct_size;
  /** How many agents are on this page. */
  uint32_t count;
  /** How many agents match, on all pages. */
  uint64_t matched;
  /**
   * How many agents have a record but cannot be listed, because there is no
   * roster or it is too small.
   */
  uint64_t not_listed;
} tollgate_agent_page;

/**
 * Lists agents that have a record: a page of rows_max agents, at most
 * TOLLGATE_PAGE_MAX. A NULL query lists all of them by id.
 *
 * Only agents on the roster can be listed: see tollgate_limiter_options. Each call
 * reads the whole roster, so make it for a page that people read, not for every
 * request.
 *
 * Status: INVALID_OPTION, STRUCT_SIZE; ID_TOO_LONG for a prefix or a part.
 */
tollgate_status tollgate_agents(const tollgate_limiter *limiter,
                                const tollgate_agent_query *query,
                                tollgate_agent_row *rows_out,
                                size_t rows_max,
                                tollgate_agent_page *page_out);


/* -------------------------------------------------------------------------------------------------
 * Offenders: the agents that violate limits the most.
 */

/** The most offenders that a limiter tracks. */
#define TOLLGATE_OFFENDERS_MAX 128

/** An agent that violated limits. It never grows. */
typedef struct tollgate_offender {
  /** The agent. */
  tollgate_agent_id id;
  /** 0. */
  uint32_t reserved;
  /** Its violations in the last hour, in steps of ten minutes. */
  uint64_t violations;
  /** At most this many of them may belong to other agents. */
  uint64_t error;
} tollgate_offender;

/** All offenders together. */
typedef struct tollgate_offender_totals {
  /** Set it to sizeof(tollgate_offender_totals) before the call. */
  uint32_t struct_size;
  /** How many offenders there are, up to TOLLGATE_OFFENDERS_MAX. */
  uint32_t count;
  /** Violations of all agents in the last hour, exact. */
  uint64_t violations;
  /** The largest possible error of an offender. */
  uint64_t error_max;
  /**
   * Violations that are not in any offender's count, because another thread was
   * counting.
   */
  uint64_t missed;
} tollgate_offender_totals;

/**
 * The agents with the most violations in the last hour, worst first.
 * offenders_out gets at most offenders_max of them; totals_out has how many there
 * are. Without TOLLGATE_OBSERVE_ON there are 0.
 *
 * Status: STRUCT_SIZE.
 */
tollgate_status tollgate_top_offenders(const tollgate_limiter *limiter,
                                       tollgate_offender *offenders_out,
                                       size_t offenders_max,
                                       tollgate_offender_totals *totals_out);


/* -------------------------------------------------------------------------------------------------
 * Events: what an operator should know about.
 */

/** How many events a limiter keeps until they are polled. */
#define TOLLGATE_EVENTS_KEPT 1024

/**
 * What an event is about, and which members of tollgate_event it sets. Later
 * versions may add types: ignore those that you do not know.
 */
typedef int32_t tollgate_event_type;
enum {
  /** There is no event. */
  TOLLGATE_EVENT_TYPE_NONE = 0,
  /** An agent's violations reached the policy's threshold: agent, violations_in_a_row. */
  TOLLGATE_EVENT_TYPE_SUSTAINED_ABUSE = 1,
  /** An action that the policy does not name arrived for the first time: channel, action. */
  TOLLGATE_EVENT_TYPE_UNKNOWN_ACTION = 2,
  /**
   * A new agent took the record of an agent in debt, or was refused; at most
   * once a minute: lossy_evictions, refused.
   */
  TOLLGATE_EVENT_TYPE_SATURATED = 3,
  /** Another policy is in force. */
  TOLLGATE_EVENT_TYPE_POLICY_REPLACED = 4,
  /** The assignment of one agent has changed: agent. */
  TOLLGATE_EVENT_TYPE_ASSIGNMENT_CHANGED = 5,
  /** The assignments of several agents have changed in one call: agents. */
  TOLLGATE_EVENT_TYPE_ASSIGNMENTS_CHANGED = 6,
  /** The clock gave up the processor's counter and reads the OS clock since. */
  TOLLGATE_EVENT_TYPE_CLOCK_FELL_BACK = 7,
  /**
   * A sampled check, see sample_every in tollgate_limiter_options: agent,
   * lane, decision, remaining.
   */
  TOLLGATE_EVENT_TYPE_CHECKED = 8,
};

/** An event. Members that its type does not set are zero. */
typedef struct tollgate_event {
  /** Set it to sizeof(tollgate_event) before the call. */
  uint32_t struct_size;
  /** A tollgate_event_type, or one of a later version. */
  int32_t kind;
  /** Events are numbered from 0. A gap shows how many were dropped. */
  uint64_t number;
  /** The instant at which it happened. */
  uint64_t at_ns;
  /** Records in debt that were given to new agents so far. */
  uint64_t lossy_evictions;
  /** New agents that were refused so far. */
  uint64_t refused;
  /** How many agents. */
  uint64_t agents;
  /** What was left. UINT64_MAX if the agent is exempt. */
  uint64_t remaining;
  /** Violations without a quiet period between them. */
  uint32_t violations_in_a_row;
  /** The lane. */
  uint32_t lane;
  /** The answer. */
  tollgate_decision decision;
  /** The agent. */
  tollgate_agent_id agent;
  /** The action's channel, NUL-terminated, truncated to 64 bytes. */
  char channel[TOLLGATE_ACTION_BYTES];
  /** The action's name, NUL-terminated, truncated to 64 bytes. */
  char action[TOLLGATE_ACTION_BYTES];
} tollgate_event;

/**
 * Takes the oldest event. If there is no event, as always without
 * TOLLGATE_OBSERVE_ON, the kind is TOLLGATE_EVENT_TYPE_NONE. Any number of threads
 * may poll; each event goes to one of them.
 *
 * Status: STRUCT_SIZE.
 */
tollgate_status tollgate_poll_event(tollgate_limiter *limiter,
                                    tollgate_event *event_out);


/* -------------------------------------------------------------------------------------------------
 * The report: what an operator wants to know, as JSON. And ids in a form that is
 * safe to show.
 */

/**
 * Counts, the worst offenders and the busiest agents, as JSON. Make the buffer
 * larger than the length that a first call reports, since the report may grow
 * between two calls.
 *
 * Status: BUFFER_TOO_SMALL.
 */
tollgate_status tollgate_report(const tollgate_limiter *limiter,
                                char *json_out,
                                size_t json_size,
                                size_t *json_len_out);

/**
 * Writes the report to a file, which it replaces in one step: a reader sees the
 * old report or the new one. Call it from a timer. The path is any bytes without
 * a NUL. Needs TOLLGATE_FEATURE_PERSIST.
 *
 * Status: FILE, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
 */
tollgate_status tollgate_write_report(const tollgate_limiter *limiter,
                                      const char *path,
                                      size_t path_len,
                                      tollgate_error *error_out);

/** Where an id is shown. */
typedef int32_t tollgate_shown;
enum {
  /** In a log or on a terminal. */
  TOLLGATE_SHOWN_TEXT = 0,
  /** In HTML, attributes included. */
  TOLLGATE_SHOWN_HTML = 1,
  /** As the label of a metric. */
  TOLLGATE_SHOWN_LABEL = 2,
  /** In a URL, percent-encoded. */
  TOLLGATE_SHOWN_URL = 3,
  /** In JSON: a string with its quotes, or {"base64": "..."} if it is not UTF-8. */
  TOLLGATE_SHOWN_JSON = 4,
};

/**
 * An id in a form that is safe to show; where is a tollgate_shown. 7 bytes for
 * each byte of the id, and 24 more, are always enough.
 *
 * Status: INVALID_OPTION, ID_TOO_LONG, BUFFER_TOO_SMALL.
 */
tollgate_status tollgate_id_shown(const void *id,
                                  size_t id_len,
                                  int32_t where,
                                  char *text_out,
                                  size_t text_size,
                                  size_t *text_len_out);


/* -------------------------------------------------------------------------------------------------
 * Rate-limited log lines about denials: a line for the first denial of an agent,
 * then a count each minute, and a summary every five minutes.
 */

/** Turns many denials into a few log lines. */
typedef struct tollgate_log_throttle tollgate_log_throttle;

/** Makes a log throttle. Free it with tollgate_log_throttle_free. */
tollgate_status tollgate_log_throttle_new(tollgate_log_throttle **log_out);

/** Frees a log throttle. NULL is allowed. */
void tollgate_log_throttle_free(tollgate_log_throttle *log);

/**
 * Reports a denial. line_out gets whether that makes a line due, which
 * tollgate_log_throttle_line then takes. now_ns is an instant, for example of
 * tollgate_limiter_now: a log throttle has no clock.
 *
 * Status: EMPTY_ID, ID_TOO_LONG, INVALID_OPTION for TOLLGATE_NOW.
 */
tollgate_status tollgate_log_throttle_denied(tollgate_log_throttle *log,
                                             const void *id,
                                             size_t id_len,
                                             uint64_t now_ns,
                                             bool *line_out);

/**
 * Takes the oldest line that is due at this instant, without a newline. It begins
 * with "INFO: ", "THROTTLE: " or "SUMMARY: ". If no line is due, the length is 0.
 * Call it until then: after a denial that made a line due, and every few seconds.
 * Of lines that are not taken the last 1,024 stay.
 *
 * A call that asks for the length alone, or whose buffer is too small, takes no
 * line.
 *
 * Status: BUFFER_TOO_SMALL, INVALID_OPTION for TOLLGATE_NOW.
 */
tollgate_status tollgate_log_throttle_line(tollgate_log_throttle *log,
                                           uint64_t now_ns,
                                           char *line_out,
                                           size_t line_size,
                                           size_t *line_len_out);


#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TOLLGATE_H */
