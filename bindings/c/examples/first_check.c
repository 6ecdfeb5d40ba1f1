/*
 * A first check: a policy, a limiter, and a server's answers to one agent.
 *
 *     cc first_check.c $(pkg-config --cflags --libs tollgate) -o first_check
 */
#include <inttypes.h>
#include <stdio.h>
#include <tollgate.h>

static const char POLICY[] = "[lanes]\n"
                             "'http/light' = '120/minute'\n"
                             "'http/heavy' = '10/minute burst 3'\n";

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_error error = { .struct_size = sizeof error };
    tollgate_limiter_options options = { .struct_size = sizeof options, .agents = 100000 };
    uint32_t heavy = 0;
    if (tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy) != TOLLGATE_STATUS_OK
        || tollgate_limiter_new(policy, &options, &error, &limiter) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "line %" PRIu32 ": %s\n", error.line, error.message);
        return 1;
    }
    tollgate_policy_free(policy);
    if (tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/heavy"), &heavy) != TOLLGATE_STATUS_OK)
        return 1;

    const tollgate_request request = { TOLLGATE_LITERAL("agent-7"), 1, heavy, TOLLGATE_NONE, NULL };
    for (int i = 1; i <= 4; i++) {
        tollgate_verdict verdict = { 0 };
        tollgate_status status = tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict);
        if (status != TOLLGATE_STATUS_OK)
            fprintf(stderr, "request %d: 500, %s\n", i, tollgate_status_text(status));
        else if (verdict.decision == TOLLGATE_DECISION_DENY)
            printf("request %d: 429, retry after %" PRIu64 " ms\n", i,
                   tollgate_wait_ms(verdict.retry_after_ns, 1000, 60000)); /* In whole seconds. */
        else
            printf("request %d: 200, %" PRIu64 " left\n", i, tollgate_verdict_remaining(&verdict));
    }
    tollgate_limiter_free(limiter);
    return 0;
}
