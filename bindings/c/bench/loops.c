/*
 * Loops of checks through the C ABI, for benches/ffi.rs, which has the same in
 * Rust and times both in one process.
 */
#include "tollgate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As a caller's id: not known when this is compiled. */
#define HIDE(value) __asm__ volatile("" : "+r"(value))
/* As if a caller read it. */
#define READ(place) __asm__ volatile("" : : "r"(place) : "memory")

#define TRY(call)                                                                         \
    do {                                                                                  \
        tollgate_status status_ = (call);                                                 \
        if (status_ != TOLLGATE_STATUS_OK) {                                              \
            fprintf(stderr, "%s: %s\n", #call, tollgate_status_text(status_));            \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

enum { DENIED = 5, ID_LEN = 16, BATCH = 256 };

typedef struct loops {
    char ids[BATCH][2 * ID_LEN]; /* No id crosses a cache line. */
    tollgate_request requests[BATCH];
    tollgate_verdict verdicts[BATCH];
    tollgate_limiter *limiter;
} loops;

/* Six lanes, of which the last lets one request a day through; 256 known agents. */
loops *loops_new(int32_t source)
{
    static const char toml[] = "[lanes]\n"
                               "'ws/light' = '1000000/second burst 4294967295'\n"
                               "'ws/heavy' = '1000000/second burst 4294967295'\n"
                               "'http/light' = '1000000/second burst 4294967295'\n"
                               "'http/heavy' = '1000000/second burst 4294967295'\n"
                               "'api/light' = '1000000/second burst 4294967295'\n"
                               "'api/heavy' = '1/day'\n";
    tollgate_policy *policy = NULL;
    TRY(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), NULL, &policy));
    tollgate_clock *clock = NULL;
    TRY(tollgate_clock_new(source, &clock));
    tollgate_limiter_options options = { 0 };
    options.struct_size = sizeof options;
    options.agents = 1000;
    options.clock = clock;
    loops *made = aligned_alloc(64, (sizeof *made + 63) / 64 * 64);
    if (made == NULL)
        abort();
    memset(made, 0, sizeof *made);
    TRY(tollgate_limiter_new(policy, &options, NULL, &made->limiter));
    tollgate_clock_free(clock);
    tollgate_policy_free(policy);
    for (uint32_t agent = 0; agent < BATCH; agent++) {
        snprintf(made->ids[agent], sizeof made->ids[agent], "agent-%010u", agent);
        made->requests[agent] = (tollgate_request){ made->ids[agent], ID_LEN, 1, DENIED, TOLLGATE_NONE, NULL };
    }
    TRY(tollgate_check_many(made->limiter, made->requests, BATCH, TOLLGATE_NOW, 0, made->verdicts));
    return made;
}

void loops_free(loops *made)
{
    tollgate_limiter_free(made->limiter);
    free(made);
}

/* One hot agent at the caller's own now; returns how many were allowed. */
static inline uint64_t check_at(loops *made, uint32_t lane, uint64_t count, bool left)
{
    uint64_t now = 0, allowed = 0;
    TRY(tollgate_limiter_now(made->limiter, &now));
    tollgate_verdict verdict;
    for (uint64_t i = 0; i < count; i++) {
        now += 20;
        const char *id = made->ids[0];
        size_t id_len = ID_LEN;
        HIDE(id);
        HIDE(id_len);
        const tollgate_request request = { id, id_len, 1, lane, TOLLGATE_NONE, NULL };
        TRY(tollgate_check(made->limiter, &request, now, 0, &verdict));
        READ(&verdict);
        if (left) {
            uint64_t remaining = tollgate_verdict_remaining(&verdict);
            HIDE(remaining);
        }
        allowed += verdict.decision != TOLLGATE_DECISION_DENY;
    }
    return allowed;
}

uint64_t loops_check_at(loops *made, uint32_t lane, uint64_t count)
{
    return check_at(made, lane, count, false);
}

/* The same, and asks each time what is left. */
uint64_t loops_check_at_left(loops *made, uint32_t lane, uint64_t count)
{
    return check_at(made, lane, count, true);
}

/* One hot agent on the limiter's clock. */
uint64_t loops_check(loops *made, uint32_t lane, uint64_t count)
{
    uint64_t allowed = 0;
    tollgate_verdict verdict;
    for (uint64_t i = 0; i < count; i++) {
        const char *id = made->ids[0];
        size_t id_len = ID_LEN;
        HIDE(id);
        HIDE(id_len);
        const tollgate_request request = { id, id_len, 1, lane, TOLLGATE_NONE, NULL };
        TRY(tollgate_check(made->limiter, &request, TOLLGATE_NOW, 0, &verdict));
        READ(&verdict);
        allowed += verdict.decision != TOLLGATE_DECISION_DENY;
    }
    return allowed;
}

/* Batches of 256 agents. */
uint64_t loops_check_many(loops *made, uint32_t lane, uint64_t count)
{
    uint64_t allowed = 0, now = 0;
    TRY(tollgate_limiter_now(made->limiter, &now));
    for (uint64_t i = 0; i < count; i += BATCH) {
        for (uint32_t agent = 0; agent < BATCH; agent++)
            made->requests[agent].lane = lane;
        now += 20;
        TRY(tollgate_check_many(made->limiter, made->requests, BATCH, now, 0, made->verdicts));
        READ(made->verdicts);
        for (uint32_t agent = 0; agent < BATCH; agent++)
            allowed += made->verdicts[agent].decision != TOLLGATE_DECISION_DENY;
    }
    return allowed;
}
