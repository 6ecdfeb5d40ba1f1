/*
 * An event loop: each turn reads the time once and passes it to every check.
 *
 *     cc event_loop.c $(pkg-config --cflags --libs tollgate) -o event_loop
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tollgate.h>

enum { TURNS = 4, REQUESTS = 3 };
static const uint64_t TURN_NS = UINT64_C(250000000);

int main(void)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_policy_builder_new(&builder);
    tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("rows"), TOLLGATE_LITERAL("40/second burst 100"));
    tollgate_policy_builder_build(builder, &policy, NULL);
    tollgate_status status = tollgate_limiter_new(policy, NULL, &limiter);
    tollgate_policy_free(policy);
    tollgate_policy_builder_free(builder);
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", tollgate_status_text(status));
        return 1;
    }

    /* A loop in real time asks tollgate_limiter_now at the top of each turn.
     * This one simulates its turns, so that it need not wait. */
    uint64_t now = 0;
    tollgate_limiter_now(limiter, &now);
    tollgate_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.struct_size = sizeof verdict;
    for (int turn = 0; turn < TURNS; turn++, now += TURN_NS) {
        for (int request = 0; request < REQUESTS; request++) {
            status = tollgate_limiter_check_at(limiter, TOLLGATE_LITERAL("agent-7"), 0, 30, now, &verdict);
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
