/*
 * An event loop: each turn reads the time once and passes it to every check.
 *
 *     cc event_loop.c $(pkg-config --cflags --libs tollgate) -o event_loop
 */
#include <inttypes.h>
#include <stdio.h>
#include <tollgate.h>

enum { TURNS = 4, REQUESTS = 3 };
static const uint64_t TURN_NS = UINT64_C(250000000);
static const char POLICY[] = "[lanes]\nrows = '40/second burst 100'\n";

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_error error = { .struct_size = sizeof error };
    uint64_t now = 0;
    if (tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy) != TOLLGATE_STATUS_OK
        || tollgate_limiter_new(policy, NULL, &error, &limiter) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tollgate_policy_free(policy);

    /* A real loop calls tollgate_limiter_now at the top of each turn. This one
     * simulates its turns, so that it need not wait. */
    tollgate_limiter_now(limiter, &now);
    const tollgate_request thirty_rows = { TOLLGATE_LITERAL("agent-7"), 30, 0, TOLLGATE_NONE, NULL };
    for (int turn = 0; turn < TURNS; turn++, now += TURN_NS) {
        for (int i = 0; i < REQUESTS; i++) {
            tollgate_verdict verdict = { 0 };
            tollgate_status status = tollgate_check(limiter, &thirty_rows, now, 0, &verdict);
            if (status != TOLLGATE_STATUS_OK)
                fprintf(stderr, "%s\n", tollgate_status_text(status));
            else if (verdict.decision == TOLLGATE_DECISION_DENY)
                printf("turn %d: wait %" PRIu64 " ms for 30 rows\n", turn, verdict.retry_after_ns / 1000000);
            else
                printf("turn %d: 30 rows, %" PRIu64 " left\n", turn, tollgate_verdict_remaining(&verdict));
        }
    }
    tollgate_limiter_free(limiter);
    return 0;
}
