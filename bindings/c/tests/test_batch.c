/* Batches: one by one, in order, each with its own status. */
#include "expect.h"

static tollgate_request ask(const char *id, uint32_t lane, uint64_t cost)
{
    tollgate_request request;
    memset(&request, 0, sizeof request);
    request.id = id;
    request.id_len = id != NULL ? strlen(id) : 0;
    request.lane = lane;
    request.cost = cost;
    return request;
}

static void each_request_has_its_own_answer(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_request requests[] = {
        ask("a", HEAVY, 2),          ask("b", HEAVY, 1),     ask("a", HEAVY, 2), ask("", HEAVY, 1),
        ask(NULL, HEAVY, 1),         ask("a", HEAVY, 1),     ask("a", LANES, 1), ask("a", HEAVY, 0),
        ask("a", HEAVY, UINT64_MAX), ask("too long", HEAVY, 1), ask("c", CLOSED, 1),
    };
    enum { COUNT = sizeof requests / sizeof *requests };
    requests[9].id_len = SIZE_MAX;
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
    };
    static const tollgate_decision decisions[COUNT] = {
        TOLLGATE_DECISION_ALLOW, TOLLGATE_DECISION_ALLOW, TOLLGATE_DECISION_DENY, TOLLGATE_DECISION_DENY,
        TOLLGATE_DECISION_DENY,  TOLLGATE_DECISION_WARN,  TOLLGATE_DECISION_DENY, TOLLGATE_DECISION_DENY,
        TOLLGATE_DECISION_DENY,  TOLLGATE_DECISION_DENY,  TOLLGATE_DECISION_DENY,
    };
    tollgate_answer answers[COUNT + 1];
    memset(answers, 0x5a, sizeof answers);
    EXPECT_OK(tollgate_limiter_check_many(made.limiter, requests, COUNT, answers));
    for (size_t i = 0; i < COUNT; i++) {
        EXPECT_EQ(answers[i].status, statuses[i]);
        EXPECT_EQ(answers[i].decision, decisions[i]);
        if (statuses[i] != TOLLGATE_STATUS_OK)
            EXPECT_EQ(answers[i].capacity | answers[i].retry_after_ns | answers[i].full_in_ns | answers[i].token_ns, 0);
    }
    EXPECT_EQ(tollgate_answer_remaining(&answers[0]), 1);
    EXPECT_EQ(tollgate_answer_remaining(&answers[1]), 2);
    EXPECT_EQ(answers[2].retry_after_ns, 6 * SECOND);
    EXPECT_EQ(tollgate_answer_remaining(&answers[3]), 0);
    EXPECT_EQ(answers[10].retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(answers[COUNT].status, 0x5a5a5a5a); /* Not one more is written. */
    EXPECT_EQ(tollgate_answer_remaining(NULL), 0);
    rig_free(&made);
}

/* A batch of 1,000 over 50 agents is what the same checks one by one are. */
static void a_batch_is_checks_one_by_one(void)
{
    enum { COUNT = 1000, AGENTS = 50 };
    rig batch = rig_new(100, TOLLGATE_ON_FULL_DENY), single = rig_new(100, TOLLGATE_ON_FULL_DENY);
    static uint32_t agents[COUNT];
    static tollgate_request requests[COUNT];
    static tollgate_answer answers[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        agents[i] = i * 2654435761u % AGENTS;
        requests[i] = ask(NULL, i % 2 ? HEAVY : LIGHT, 1 + i % 5);
        requests[i].id = &agents[i];
        requests[i].id_len = sizeof agents[i];
    }
    for (uint64_t now = 1000 * SECOND; now < 1020 * SECOND; now += 7 * SECOND) {
        EXPECT_OK(tollgate_limiter_check_many_at(batch.limiter, requests, COUNT, now, answers));
        for (size_t i = 0; i < COUNT; i++) {
            tollgate_verdict verdict = verdict_new();
            tollgate_request request = requests[i];
            EXPECT_EQ(answers[i].status, tollgate_limiter_check_at(single.limiter, request.id, request.id_len,
                                                                   request.lane, request.cost, now, &verdict));
            EXPECT_EQ(answers[i].decision, verdict.decision);
            EXPECT_EQ(answers[i].capacity, verdict.capacity);
            EXPECT_EQ(answers[i].retry_after_ns, verdict.retry_after_ns);
            EXPECT_EQ(answers[i].full_in_ns, verdict.full_in_ns);
            EXPECT_EQ(answers[i].token_ns, verdict.token_ns);
            EXPECT_EQ(tollgate_answer_remaining(&answers[i]), tollgate_verdict_remaining(&verdict));
        }
    }
    rig_free(&batch);
    rig_free(&single);
}

static void a_batch_that_is_none_charges_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_request request = ask("a", HEAVY, 1);
    tollgate_answer answer;
    memset(&answer, 0x5a, sizeof answer);
    EXPECT_EQ(tollgate_limiter_check_many(NULL, &request, 1, &answer), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_many(made.limiter, NULL, 1, &answer), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_many(made.limiter, &request, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_many(made.limiter, &request, TOLLGATE_BATCH_MAX + 1, &answer),
              TOLLGATE_STATUS_BATCH_SIZE);
    EXPECT_EQ(tollgate_limiter_check_many(made.limiter, &request, SIZE_MAX, &answer), TOLLGATE_STATUS_BATCH_SIZE);
    EXPECT_EQ(tollgate_limiter_check_many_at(NULL, &request, 1, 0, &answer), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_many_at(made.limiter, NULL, 1, 0, &answer), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_many_at(made.limiter, &request, 1, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_many_at(made.limiter, &request, SIZE_MAX, 0, &answer),
              TOLLGATE_STATUS_BATCH_SIZE);
    EXPECT_OK(tollgate_limiter_check_many(made.limiter, &request, 0, &answer));
    EXPECT_EQ(answer.status, 0x5a5a5a5a);
    EXPECT_EQ(tokens_left(made.limiter, "a", 1, HEAVY), HEAVY_CAPACITY);
    rig_free(&made);
}

static void the_largest_batch_is_answered(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_request *requests = calloc(TOLLGATE_BATCH_MAX, sizeof *requests);
    tollgate_answer *answers = calloc(TOLLGATE_BATCH_MAX, sizeof *answers);
    if (requests == NULL || answers == NULL)
        exit(1);
    for (size_t i = 0; i < TOLLGATE_BATCH_MAX; i++)
        requests[i] = ask("a", HEAVY, 1);
    EXPECT_OK(tollgate_limiter_check_many(made.limiter, requests, TOLLGATE_BATCH_MAX, answers));
    uint64_t allowed = 0;
    for (size_t i = 0; i < TOLLGATE_BATCH_MAX; i++)
        allowed += answers[i].decision != TOLLGATE_DECISION_DENY;
    EXPECT_EQ(allowed, HEAVY_CAPACITY);
    free(requests);
    free(answers);
    rig_free(&made);
}

int main(void)
{
    each_request_has_its_own_answer();
    a_batch_is_checks_one_by_one();
    a_batch_that_is_none_charges_nothing();
    the_largest_batch_is_answered();
    return expectations_end("test_batch");
}
