/* Batches: requests one by one, in order, each with its own status. */
#include "expect.h"

static tollgate_request ask(const char *id, uint32_t lane, uint64_t cost)
{
    return (tollgate_request){ id, id != NULL ? strlen(id) : 0, cost, lane, TOLLGATE_NONE, NULL };
}

static void each_request_has_its_own_verdict(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_request requests[] = {
        ask("a", HEAVY, 2),          ask("b", HEAVY, 1),        ask("a", HEAVY, 2),  ask("", HEAVY, 1),
        ask(NULL, HEAVY, 1),         ask("a", HEAVY, 1),        ask("a", LANES, 1),  ask("a", HEAVY, 0),
        ask("a", HEAVY, UINT64_MAX), ask("too long", HEAVY, 1), ask("c", CLOSED, 1), ask("d", HEAVY, 1),
    };
    enum { COUNT = sizeof requests / sizeof *requests };
    requests[9].id_len = SIZE_MAX;
    requests[11].plan = 1;
    static const tollgate_status statuses[COUNT] = {
        TOLLGATE_STATUS_OK,
        TOLLGATE_STATUS_OK,
        TOLLGATE_STATUS_OK,
        TOLLGATE_STATUS_EMPTY_ID,
        TOLLGATE_STATUS_NULL_POINTER,
        TOLLGATE_STATUS_OK,
        TOLLGATE_STATUS_UNKNOWN_LANE,
        TOLLGATE_STATUS_ZERO_COST,
        TOLLGATE_STATUS_COST_ABOVE_CAPACITY,
        TOLLGATE_STATUS_ID_TOO_LONG,
        TOLLGATE_STATUS_OK,
        TOLLGATE_STATUS_UNKNOWN_PLAN,
    };
    static const tollgate_decision decisions[COUNT] = {
        TOLLGATE_DECISION_ALLOW, TOLLGATE_DECISION_ALLOW, TOLLGATE_DECISION_DENY, TOLLGATE_DECISION_DENY,
        TOLLGATE_DECISION_DENY,  TOLLGATE_DECISION_WARN,  TOLLGATE_DECISION_DENY, TOLLGATE_DECISION_DENY,
        TOLLGATE_DECISION_DENY,  TOLLGATE_DECISION_DENY,  TOLLGATE_DECISION_DENY, TOLLGATE_DECISION_DENY,
    };
    tollgate_verdict verdicts[COUNT + 1];
    memset(verdicts, 0x5a, sizeof verdicts);
    EXPECT_OK(tollgate_check_many(made.limiter, requests, COUNT, TOLLGATE_NOW, 0, verdicts));
    for (size_t i = 0; i < COUNT; i++) {
        EXPECT_EQ(verdicts[i].status, statuses[i]);
        EXPECT_EQ(verdicts[i].decision, decisions[i]);
        tollgate_verdict refused = { 0 };
        refused.status = statuses[i];
        if (statuses[i] != TOLLGATE_STATUS_OK)
            EXPECT_EQ(memcmp(&verdicts[i], &refused, sizeof refused), 0);
    }
    EXPECT_EQ(tollgate_verdict_remaining(&verdicts[0]), 1);
    EXPECT_EQ(tollgate_verdict_remaining(&verdicts[1]), 2);
    EXPECT_EQ(verdicts[2].retry_after_ns, 6 * SECOND);
    EXPECT_EQ(tollgate_verdict_remaining(&verdicts[3]), 0);
    EXPECT_EQ(verdicts[10].retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(verdicts[COUNT].status, 0x5a5a5a5a); /* Not one more is written. */
    rig_free(&made);
}

/* A batch of 1,000 over 50 agents gives what the same checks give one by one. */
static void a_batch_is_checks_one_by_one(void)
{
    enum { COUNT = 1000, AGENTS = 50 };
    for (uint32_t flags = 0; flags <= TOLLGATE_COUNTED; flags++) {
        rig batch = rig_new(100, TOLLGATE_ON_FULL_DENY), single = rig_new(100, TOLLGATE_ON_FULL_DENY);
        static uint32_t agents[COUNT];
        static tollgate_request requests[COUNT];
        static tollgate_verdict verdicts[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            agents[i] = i * 2654435761u % AGENTS;
            requests[i] = *REQUEST(&agents[i], sizeof agents[i], i % 2 ? HEAVY : LIGHT, 1 + i % 5);
        }
        for (uint64_t now = 1000 * SECOND; now < 1020 * SECOND; now += 7 * SECOND) {
            EXPECT_OK(tollgate_check_many(batch.limiter, requests, COUNT, now, flags, verdicts));
            for (size_t i = 0; i < COUNT; i++) {
                tollgate_verdict verdict = { 0 };
                verdict.status = tollgate_check(single.limiter, &requests[i], now, flags, &verdict);
                EXPECT_EQ(memcmp(&verdicts[i], &verdict, sizeof verdict), 0);
                EXPECT_EQ(tollgate_verdict_remaining(&verdicts[i]), tollgate_verdict_remaining(&verdict));
            }
        }
        rig_free(&batch);
        rig_free(&single);
    }
}

static void a_refused_batch_charges_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_request request = ask("a", HEAVY, 1);
    tollgate_verdict verdict;
    memset(&verdict, 0x5a, sizeof verdict);
    const uint64_t times[] = { TOLLGATE_NOW, 0 };
    for (size_t i = 0; i < 2; i++) {
        uint64_t now = times[i];
        EXPECT_EQ(tollgate_check_many(NULL, &request, 1, now, 0, &verdict), TOLLGATE_STATUS_NULL_POINTER);
        EXPECT_EQ(tollgate_check_many(made.limiter, NULL, 1, now, 0, &verdict), TOLLGATE_STATUS_NULL_POINTER);
        EXPECT_EQ(tollgate_check_many(made.limiter, &request, 1, now, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
        EXPECT_EQ(tollgate_check_many(made.limiter, &request, 1, now, 2, &verdict), TOLLGATE_STATUS_INVALID_OPTION);
        EXPECT_EQ(tollgate_check_many(made.limiter, &request, TOLLGATE_BATCH_MAX + 1, now, 0, &verdict),
                  TOLLGATE_STATUS_BATCH_SIZE);
        EXPECT_EQ(tollgate_check_many(made.limiter, &request, SIZE_MAX, now, 0, &verdict), TOLLGATE_STATUS_BATCH_SIZE);
    }
    EXPECT_OK(tollgate_check_many(made.limiter, &request, 0, TOLLGATE_NOW, 0, &verdict));
    EXPECT_OK(tollgate_check_many(made.limiter, NULL, 0, TOLLGATE_NOW, 0, NULL));
    EXPECT_EQ(verdict.status, 0x5a5a5a5a);
    EXPECT_EQ(tokens_left(made.limiter, "a", 1, HEAVY), HEAVY_CAPACITY);
    rig_free(&made);
}

static void the_largest_batch_is_answered(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_request *requests = calloc(TOLLGATE_BATCH_MAX, sizeof *requests);
    tollgate_verdict *verdicts = calloc(TOLLGATE_BATCH_MAX, sizeof *verdicts);
    if (requests == NULL || verdicts == NULL)
        exit(1);
    for (size_t i = 0; i < TOLLGATE_BATCH_MAX; i++)
        requests[i] = ask("a", HEAVY, 1);
    EXPECT_OK(tollgate_check_many(made.limiter, requests, TOLLGATE_BATCH_MAX, TOLLGATE_NOW, 0, verdicts));
    uint64_t allowed = 0;
    for (size_t i = 0; i < TOLLGATE_BATCH_MAX; i++)
        allowed += verdicts[i].decision != TOLLGATE_DECISION_DENY;
    EXPECT_EQ(allowed, HEAVY_CAPACITY);
    free(requests);
    free(verdicts);
    rig_free(&made);
}

int main(void)
{
    each_request_has_its_own_verdict();
    a_batch_is_checks_one_by_one();
    a_refused_batch_charges_nothing();
    the_largest_batch_is_answered();
    return expectations_end("test_batch");
}
