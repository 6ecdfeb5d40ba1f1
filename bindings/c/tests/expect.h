/* What the C tests share: expectations that count, and limiters to try. */
#ifndef EXPECT_H
#define EXPECT_H

#include "tollgate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

static int expectations_failed;

#define EXPECT(condition)                                                                   \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);        \
            expectations_failed = 1;                                                        \
        }                                                                                   \
    } while (0)

/* Both sides as 64-bit numbers, shown when they differ. */
#define EXPECT_EQ(actual, expected)                                                         \
    do {                                                                                    \
        int64_t actual_ = (int64_t)(actual), expected_ = (int64_t)(expected);               \
        if (actual_ != expected_) {                                                         \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", expected %s, which is %" PRId64 "\n", \
                    __FILE__, __LINE__, #actual, actual_, #expected, expected_);            \
            expectations_failed = 1;                                                        \
        }                                                                                   \
    } while (0)

/* A struct that knows its size, all else zero. */
#define SIZED(type) ((type){ .struct_size = sizeof(type) })

/* A request under the default plan, as an argument. */
#define REQUEST(id, id_len, lane, cost) (&(tollgate_request){ (id), (id_len), (cost), (lane), TOLLGATE_NONE, NULL })

#define EXPECT_OK(call) EXPECT_EQ(call, TOLLGATE_STATUS_OK)

/* A test that cannot go on without this. */
#define REQUIRE_OK(call)                                                                    \
    do {                                                                                    \
        tollgate_status status_ = (call);                                                   \
        if (status_ != TOLLGATE_STATUS_OK) {                                                \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, tollgate_status_text(status_)); \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* A function that writes text into a buffer, called with the given arguments: what it writes, and how it refuses. */
#define EXPECT_TEXT(expected, function, ...)                                                \
    do {                                                                                    \
        char text_[256] = "?";                                                              \
        size_t len_ = 777, size_ = strlen(expected) + 1;                                    \
        EXPECT_EQ(function(__VA_ARGS__, text_, size_ - 1, &len_), TOLLGATE_STATUS_BUFFER_TOO_SMALL); \
        EXPECT_EQ(function(__VA_ARGS__, NULL, size_, &len_), TOLLGATE_STATUS_NULL_POINTER); \
        EXPECT_EQ(function(__VA_ARGS__, text_, size_, NULL), TOLLGATE_STATUS_NULL_POINTER); \
        EXPECT_EQ(len_, 777);                                                               \
        EXPECT_EQ(strcmp(text_, "?"), 0);                                                   \
        EXPECT_OK(function(__VA_ARGS__, NULL, 0, &len_));                                   \
        EXPECT_EQ(len_, size_ - 1);                                                         \
        EXPECT_OK(function(__VA_ARGS__, text_, size_, &len_));                              \
        if (strcmp(text_, expected) != 0) {                                                 \
            fprintf(stderr, "%s:%d: %s says \"%s\", expected \"%s\"\n", __FILE__, __LINE__, #function, text_, \
                    expected);                                                              \
            expectations_failed = 1;                                                        \
        }                                                                                   \
        EXPECT_EQ(len_, size_ - 1);                                                         \
    } while (0)

/* The lanes of `rig_new`. */
enum { LIGHT, HEAVY, CLOSED, LANES };
#define HEAVY_CAPACITY 3

/*
 * A limiter on a clock that stands still: light is 120 a minute; heavy 10 a
 * minute, three at once; closed denies everything. Every denial is a violation,
 * and waits grow.
 */
typedef struct rig {
    tollgate_clock *clock;
    tollgate_policy *policy;
    tollgate_limiter *limiter;
} rig;

static inline tollgate_policy *policy_of(const char *toml)
{
    tollgate_policy *policy = NULL;
    tollgate_error error;
    memset(&error, 0, sizeof error);
    error.struct_size = sizeof error;
    if (tollgate_policy_from_toml(toml, strlen(toml), &error, &policy) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%" PRIu32 ":%" PRIu32 ": %s\n%s\n", error.line, error.column, error.message, toml);
        exit(1);
    }
    return policy;
}

static inline tollgate_policy *rig_policy(void)
{
    return policy_of("[lanes]\n"
                     "light = '120/minute'\n"
                     "heavy = '10/minute burst 3'\n"
                     "closed = 'deny'\n"
                     "[conduct]\n"
                     "curve = ['1s', '2s', '5s', '10s', '30s']\n"
                     "every_denial = true\n");
}

static inline tollgate_limiter_options rig_options(uint64_t agents, int32_t on_full, const tollgate_clock *clock)
{
    tollgate_limiter_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.agents = agents;
    options.on_full = on_full;
    options.clock = clock;
    return options;
}

/* Takes ownership of the policy. */
static inline rig rig_of(tollgate_policy *policy, uint64_t agents, int32_t on_full)
{
    rig made = { NULL, policy, NULL };
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &made.clock));
    REQUIRE_OK(tollgate_clock_set(made.clock, 1000 * SECOND));
    tollgate_limiter_options options = rig_options(agents, on_full, made.clock);
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, NULL, &made.limiter));
    return made;
}

static inline rig rig_new(uint64_t agents, int32_t on_full)
{
    return rig_of(rig_policy(), agents, on_full);
}

static inline tollgate_policy *preset(const char *name)
{
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_preset(name, strlen(name), NULL, &policy));
    return policy;
}

static inline void rig_free(rig *made)
{
    tollgate_limiter_free(made->limiter);
    tollgate_policy_free(made->policy);
    tollgate_clock_free(made->clock);
}

/* What is left of a lane. */
static inline uint64_t tokens_left(const tollgate_limiter *limiter, const void *id, size_t id_len, uint32_t lane)
{
    tollgate_request request = { id, id_len, 1, lane, TOLLGATE_NONE, NULL };
    tollgate_lane_state state;
    memset(&state, 0, sizeof state);
    state.struct_size = sizeof state;
    REQUIRE_OK(tollgate_peek(limiter, &request, TOLLGATE_NOW, &state));
    return state.remaining;
}

/* What the process holds of the machine's memory, in bytes. */
static inline uint64_t resident_bytes(void)
{
    char line[128];
    uint64_t kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kilobytes = strtoull(line + 6, NULL, 10);
    if (status != NULL)
        fclose(status);
    EXPECT(kilobytes != 0);
    return kilobytes * 1024;
}

/* A number from the environment, so that slow tools run shorter tests. */
static inline unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? strtoul(value, NULL, 10) : otherwise;
}

static inline int expectations_end(const char *name)
{
    printf("%s %s\n", name, expectations_failed ? "FAILED" : "ok");
    return expectations_failed;
}

#endif
