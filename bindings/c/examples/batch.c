/*
 * A batch: many requests, one reading of the clock, an answer each.
 *
 *     cc batch.c $(pkg-config --cflags --libs tollgate) -o batch
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tollgate.h>

enum { REQUESTS = 5 };

int main(void)
{
    /* The limiter of the whole process needs no place to be kept in. */
    tollgate_limiter *limiter = NULL;
    uint32_t heavy = 0;
    if (tollgate_default(&limiter) != TOLLGATE_STATUS_OK
        || tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/heavy"), &heavy) != TOLLGATE_STATUS_OK)
        return 1;

    static const char *const ids[REQUESTS] = { "agent-7", "agent-8", "agent-7", "", "agent-7" };
    static const uint64_t costs[REQUESTS] = { 6, 1, 6, 1, 4 };
    tollgate_request requests[REQUESTS];
    tollgate_answer answers[REQUESTS];
    memset(requests, 0, sizeof requests);
    for (int i = 0; i < REQUESTS; i++) {
        requests[i].id = ids[i];
        requests[i].id_len = strlen(ids[i]);
        requests[i].lane = heavy;
        requests[i].cost = costs[i];
    }
    tollgate_status status = tollgate_limiter_check_many(limiter, requests, REQUESTS, answers);
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", tollgate_status_text(status));
        return 1;
    }
    for (int i = 0; i < REQUESTS; i++) {
        printf("\"%s\" asks for %" PRIu64 ": ", ids[i], costs[i]);
        if (answers[i].status != TOLLGATE_STATUS_OK)
            printf("%s\n", tollgate_status_text(answers[i].status));
        else if (answers[i].decision == TOLLGATE_DECISION_DENY)
            printf("denied, %" PRIu64 " left\n", tollgate_answer_remaining(&answers[i]));
        else
            printf("allowed, %" PRIu64 " left\n", tollgate_answer_remaining(&answers[i]));
    }
    return 0;
}
