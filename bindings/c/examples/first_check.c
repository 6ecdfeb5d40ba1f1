/*
 * A first check: a policy, a limiter, and a server's answers to one agent.
 *
 *     cc first_check.c $(pkg-config --cflags --libs tollgate) -o first_check
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tollgate.h>

/* A policy of two lanes; NULL if it makes no sense, and says why. */
static tollgate_policy *policy_new(void)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    tollgate_error error;
    memset(&error, 0, sizeof error);
    error.struct_size = sizeof error;
    if (tollgate_policy_builder_new(&builder) != TOLLGATE_STATUS_OK)
        return NULL;
    tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/light"), TOLLGATE_LITERAL("120/minute"));
    tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/heavy"), TOLLGATE_LITERAL("10/minute burst 3"));
    if (tollgate_policy_builder_build(builder, &policy, &error) != TOLLGATE_STATUS_OK)
        fprintf(stderr, "the policy: %s\n", error.message);
    tollgate_policy_builder_free(builder);
    return policy;
}

int main(void)
{
    tollgate_policy *policy = policy_new();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.agents = 100000;
    tollgate_status status = tollgate_limiter_new(policy, &options, &limiter);
    tollgate_policy_free(policy);
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "the limiter: %s\n", tollgate_status_text(status));
        return 1;
    }
    uint32_t heavy = 0;
    if (tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/heavy"), &heavy) != TOLLGATE_STATUS_OK)
        return 1;

    for (int request = 1; request <= 4; request++) {
        tollgate_verdict verdict;
        memset(&verdict, 0, sizeof verdict);
        verdict.struct_size = sizeof verdict;
        status = tollgate_limiter_check(limiter, TOLLGATE_LITERAL("agent-7"), heavy, 1, &verdict);
        if (status != TOLLGATE_STATUS_OK)
            fprintf(stderr, "request %d: %s\n", request, tollgate_status_text(status));
        else if (verdict.decision == TOLLGATE_DECISION_DENY)
            printf("request %d: 429, retry after %" PRIu64 " ms\n", request, verdict.retry_after_ns / 1000000 + 1);
        else
            printf("request %d: 200, %" PRIu64 " left\n", request, tollgate_verdict_remaining(&verdict));
    }
    tollgate_limiter_free(limiter);
    return 0;
}
