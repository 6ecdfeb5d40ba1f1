/*
 * tollgate: an exact, lock-free rate limiter.
 *
 * May agent A do this, on lane L, for cost C, now? A policy names lanes and
 * their limits; a limiter answers by them:
 *
 *     tollgate_policy_builder_new, _lane, _build   what is limited, and to what
 *     tollgate_limiter_new                         the memory for so many agents
 *     tollgate_limiter_check                       the question
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
 *   at once; a policy builder by one at a time. Nobody may use a handle while
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
 * The most bytes of a text handed in, such as a limit.
 */
#define TOLLGATE_TEXT_BYTES_MAX 1048576

/**
 * The most lanes of a policy.
 */
#define TOLLGATE_LANES_MAX 62

/**
 * The longest lane name, in bytes without a NUL.
 */
#define TOLLGATE_LANE_NAME_BYTES_MAX 64

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
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tollgate_status tollgate_status;
#else
typedef int32_t tollgate_status;
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
 * Named lanes, each with its limit: everything a limiter needs to know.
 *
 * It does not change, so any number of threads may use it at once.
 */
typedef struct tollgate_policy tollgate_policy;

/**
 * Collects lanes; tollgate_policy_builder_build checks them all.
 *
 * One thread at a time may use it.
 */
typedef struct tollgate_policy_builder tollgate_policy_builder;

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
   * How long a token takes to come back.
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
   * How long a token takes to come back.
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
   * 0.
   */
  uint32_t reserved;
  /**
   * Whole tokens that could be charged now.
   */
  uint64_t remaining;
  /**
   * What the lane holds when it is full; 0 if it denies everything.
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
 * A copy of the limiter's policy, which the caller owns and gives back with
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
 * The present instant on the limiter's clock, in nanoseconds since its
 * origin: what the functions ending in _at want.
 *
 * # Safety
 *
 * `limiter` is NULL or a limiter that is not freed; `now_ns_out` is NULL or writable.
 */
tollgate_status tollgate_limiter_now(const struct tollgate_limiter *limiter, uint64_t *now_ns_out);

/**
 * Bytes of address space that the limiter has reserved. It never takes more.
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
 * Gives `cost` tokens back at an instant of the caller's.
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
 * Fills every lane of the agent, one after the other.
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
 * Fills one lane of the agent.
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
 * first. Tells whether anything was known of it. An agent that is checked in
 * the same moment may keep its record, with its lanes filled.
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
 * The limiter of the whole process, made on the first call.
 *
 * It belongs to the library, is the same on every call, and lives as long as
 * the process: tollgate_limiter_free leaves it alone. Unless
 * tollgate_default_configure was called before, it is made with default
 * options and the lanes ws/light, ws/normal, ws/heavy, http/light,
 * http/normal and http/heavy, in this order, of 120, 60 and 10 a minute.
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
