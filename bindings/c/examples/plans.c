/*
 * Plans and conduct: what a customer has bought, what an operator decides about
 * one agent, and longer waits for agents that keep asking after a denial.
 *
 *     cc plans.c $(pkg-config --cflags --libs tollgate) -o plans
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollgate.h>

static const char POLICY[] = "[lanes]\n"
                             "'http/executions' = '40/minute'\n"
                             "[plans.pro]\n"
                             "'http/executions' = '200/minute'\n"
                             "[conduct]\n"
                             "curve = ['1s', '2s', '5s', '10s', '30s']\n"
                             "every_denial = true\n";

static tollgate_error error = { .struct_size = sizeof error };

static void require(tollgate_status status)
{
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message[0] != '\0' ? error.message : tollgate_status_text(status));
        exit(1);
    }
}

/* Asks, prints the verdict, and returns the wait. */
static uint64_t ask(tollgate_limiter *limiter, const char *agent, uint32_t lane, uint64_t cost)
{
    const tollgate_request request = { agent, strlen(agent), cost, lane, TOLLGATE_NONE, NULL };
    tollgate_verdict verdict = { 0 };
    require(tollgate_check(limiter, &request, TOLLGATE_NOW, TOLLGATE_COUNTED, &verdict));
    if (verdict.decision == TOLLGATE_DECISION_EXEMPT)
        printf("%s: never limited\n", agent);
    else if (verdict.decision != TOLLGATE_DECISION_DENY)
        printf("%s: %" PRIu64 " of %" PRIu64 " left\n", agent, tollgate_verdict_remaining(&verdict), verdict.capacity);
    else
        printf("%s: denied, violation %" PRIu32 " in a row, wait %" PRIu64 " ms\n", agent, verdict.violations_in_a_row,
               tollgate_wait_ms(verdict.retry_after_ns, 1000, 60000));
    return verdict.retry_after_ns;
}

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_clock *clock = NULL; /* It stands still, so that this prints the same every time. */
    tollgate_limiter *limiter = NULL;
    require(tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy));
    require(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    tollgate_limiter_options options = { .struct_size = sizeof options, .agents = 10000, .clock = clock };
    require(tollgate_limiter_new(policy, &options, &error, &limiter));
    tollgate_policy_free(policy);

    uint32_t lane = 0, pro = 0;
    require(tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/executions"), &lane));
    require(tollgate_limiter_plan(limiter, TOLLGATE_LITERAL("pro"), &pro));

    /* A plan, an override and an exemption. Each applies to the very next check. */
    ask(limiter, "user:1", lane, 1);
    require(tollgate_assign(limiter, TOLLGATE_LITERAL("user:1"), pro, &error));
    ask(limiter, "user:1", lane, 1);
    require(tollgate_set_override(limiter, TOLLGATE_LITERAL("user:2"), TOLLGATE_LITERAL("executions"),
                                  TOLLGATE_LITERAL("2/second"), &error));
    require(tollgate_set_exempt(limiter, TOLLGATE_LITERAL("dashboard"), true, &error));
    ask(limiter, "dashboard", lane, 1);

    /* An agent that keeps asking waits longer and longer, and gets no new work. */
    ask(limiter, "user:2", lane, 2);
    for (int i = 0; i < 4; i++)
        ask(limiter, "user:2", lane, 1);
    const tollgate_id ids[] = { { TOLLGATE_LITERAL("user:1") }, { TOLLGATE_LITERAL("user:2") } };
    bool assignable[2] = { false, false };
    require(tollgate_assignable(limiter, ids, 2, TOLLGATE_NOW, assignable));
    printf("new work for user:1: %s, for user:2: %s\n", assignable[0] ? "yes" : "no", assignable[1] ? "yes" : "no");

    /* An agent that waits as long as it should is let in again. */
    require(tollgate_clock_advance(clock, ask(limiter, "user:2", lane, 1)));
    ask(limiter, "user:2", lane, 1);

    /* An invalid limit is refused with a reason, and changes nothing. */
    if (tollgate_set_override(limiter, TOLLGATE_LITERAL("user:2"), TOLLGATE_LITERAL("executions"),
                              TOLLGATE_LITERAL("0/minute"), &error) != TOLLGATE_STATUS_OK)
        printf("refused: %s\n", error.message);
    tollgate_limiter_free(limiter);
    tollgate_clock_free(clock);
    return 0;
}
