/*
 * A batch: many requests at one instant, a verdict for each.
 *
 *     cc batch.c $(pkg-config --cflags --libs tollgate) -o batch
 */
#include <inttypes.h>
#include <stdio.h>
#include <tollgate.h>

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    uint32_t heavy = 0;
    if (tollgate_policy_preset(TOLLGATE_LITERAL("hub"), NULL, &policy) != TOLLGATE_STATUS_OK
        || tollgate_limiter_new(policy, NULL, NULL, &limiter) != TOLLGATE_STATUS_OK
        || tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/heavy"), &heavy) != TOLLGATE_STATUS_OK)
        return 1;
    tollgate_policy_free(policy);

    const tollgate_request requests[] = {
        { TOLLGATE_LITERAL("agent-7"), 6, heavy, TOLLGATE_NONE, NULL },
        { TOLLGATE_LITERAL("agent-8"), 1, heavy, TOLLGATE_NONE, NULL },
        { TOLLGATE_LITERAL("agent-7"), 6, heavy, TOLLGATE_NONE, NULL },
        { TOLLGATE_LITERAL(""), 1, heavy, TOLLGATE_NONE, NULL },
        { TOLLGATE_LITERAL("agent-7"), 4, heavy, TOLLGATE_NONE, NULL },
    };
    enum { COUNT = sizeof requests / sizeof *requests };
    tollgate_verdict verdicts[COUNT] = { 0 };
    tollgate_status status = tollgate_check_many(limiter, requests, COUNT, TOLLGATE_NOW, 0, verdicts);
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", tollgate_status_text(status));
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        printf("\"%s\" asks for %" PRIu64 ": ", (const char *)requests[i].id, requests[i].cost);
        if (verdicts[i].status != TOLLGATE_STATUS_OK)
            printf("%s\n", tollgate_status_text(verdicts[i].status));
        else
            printf("%s, %" PRIu64 " left\n", verdicts[i].decision == TOLLGATE_DECISION_DENY ? "denied" : "allowed",
                   tollgate_verdict_remaining(&verdicts[i]));
    }
    tollgate_limiter_free(limiter);
    return 0;
}
