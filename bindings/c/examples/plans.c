/*
 * Plans and conduct: what a customer has bought, what an operator decides about
 * one agent, and longer waits for those who go on after a denial.
 *
 *     cc plans.c $(pkg-config --cflags --libs tollgate) -o plans
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollgate.h>

static void require(tollgate_status status, const tollgate_error *error)
{
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error->message[0] != '\0' ? error->message : tollgate_status_text(status));
        exit(1);
    }
}

/* Asks for `cost` tokens and says what came of it. */
static uint64_t ask(tollgate_limiter *limiter, const char *agent, uint32_t lane, uint64_t cost)
{
    tollgate_admission admission = { 0 };
    tollgate_error none = { 0 };
    admission.struct_size = sizeof admission;
    require(tollgate_limiter_admit(limiter, agent, strlen(agent), lane, cost, &admission), &none);
    if (admission.decision == TOLLGATE_DECISION_EXEMPT)
        printf("%s: never limited\n", agent);
    else if (admission.decision != TOLLGATE_DECISION_DENY)
        printf("%s: %" PRIu64 " of %" PRIu64 " left\n", agent, tollgate_admission_remaining(&admission), admission.capacity);
    else
        printf("%s: denied, violation %" PRIu32 " in a row, wait %" PRIu64 " ms\n", agent, admission.consecutive,
               tollgate_hub_retry_after_ms(admission.retry_after_ns));
    return admission.retry_after_ns;
}

int main(void)
{
    tollgate_error error = { 0 };
    error.struct_size = sizeof error;
    tollgate_policy *policy = NULL;
    tollgate_clock *clock = NULL; /* One that stands still, so that this prints the same every time. */
    tollgate_limiter *limiter = NULL;
    require(tollgate_policy_preset(TOLLGATE_LITERAL("platform"), &policy, &error), &error);
    require(tollgate_clock_new(TOLLGATE_TIME_SOURCE_MANUAL, &clock), &error);
    tollgate_limiter_options options = { 0 };
    options.struct_size = sizeof options;
    options.agents = 10000;
    options.clock = clock;
    require(tollgate_limiter_new(policy, &options, &limiter), &error);
    tollgate_policy_free(policy);

    uint32_t lane = 0, pro = 0;
    require(tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("http/executions"), &lane), &error);
    require(tollgate_limiter_plan(limiter, TOLLGATE_LITERAL("pro"), &pro), &error);

    /* Two plans, an override and an exemption. Each holds for the very next check. */
    ask(limiter, "user:1", lane, 1);
    require(tollgate_limiter_assign(limiter, TOLLGATE_LITERAL("user:1"), pro, &error), &error);
    ask(limiter, "user:1", lane, 1);
    require(tollgate_limiter_set_override(limiter, TOLLGATE_LITERAL("user:2"), TOLLGATE_LITERAL("executions"),
                                          TOLLGATE_LITERAL("2/second"), &error), &error);
    require(tollgate_limiter_exempt(limiter, TOLLGATE_LITERAL("dashboard"), &error), &error);
    ask(limiter, "dashboard", lane, 1);

    /* Who goes on asking waits longer and longer, and gets no new work. */
    ask(limiter, "user:2", lane, 2);
    for (int i = 0; i < 4; i++)
        ask(limiter, "user:2", lane, 1);
    const tollgate_id ids[] = { { TOLLGATE_LITERAL("user:1") }, { TOLLGATE_LITERAL("user:2") } };
    bool assignable[2] = { false, false };
    require(tollgate_limiter_assignable(limiter, ids, 2, assignable), &error);
    printf("new work for user:1: %s, for user:2: %s\n", assignable[0] ? "yes" : "no", assignable[1] ? "yes" : "no");

    /* Who waits as told is let in again. */
    require(tollgate_clock_advance(clock, ask(limiter, "user:2", lane, 1)), &error);
    ask(limiter, "user:2", lane, 1);

    /* What makes no sense is refused in words, and changes nothing. */
    if (tollgate_limiter_set_override(limiter, TOLLGATE_LITERAL("user:2"), TOLLGATE_LITERAL("executions"),
                                      TOLLGATE_LITERAL("0/minute"), &error) != TOLLGATE_STATUS_OK)
        printf("refused: %s\n", error.message);
    tollgate_limiter_free(limiter);
    tollgate_clock_free(clock);
    return 0;
}
