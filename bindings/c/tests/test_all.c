/* Several charges, all or none. */
#include "expect.h"

static tollgate_all_verdict all_verdict_new(void)
{
    tollgate_all_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.struct_size = sizeof verdict;
    return verdict;
}

static tollgate_request part(const char *id, uint32_t lane, uint64_t cost)
{
    tollgate_request request = { id, strlen(id), cost, lane, 0 };
    return request;
}

static void all_are_charged_or_none(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_all_verdict verdict = all_verdict_new();
    tollgate_answer answers[3];
    tollgate_request parts[3] = { part("user:42", LIGHT, 1), part("user:42", HEAVY, 2), part("team:7", HEAVY, 1) };
    EXPECT_OK(tollgate_limiter_check_all(made.limiter, parts, 3, answers, &verdict));
    EXPECT_EQ(verdict.struct_size, sizeof verdict);
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(verdict.retry_after_ns | verdict.blocking | verdict.sustained_abuse, 0);
    EXPECT_EQ(tollgate_answer_remaining(&answers[0]), 119);
    EXPECT_EQ(tollgate_answer_remaining(&answers[1]), 1);
    EXPECT_EQ(tollgate_answer_remaining(&answers[2]), 2);

    /* The second stands in the way: for six seconds, a token's time. The others say what would have been. */
    EXPECT_OK(tollgate_limiter_check_all(made.limiter, parts, 3, answers, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.blocking, 2);
    EXPECT_EQ(verdict.retry_after_ns, 6 * SECOND);
    EXPECT_EQ(answers[0].decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(answers[1].decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(answers[1].retry_after_ns, 6 * SECOND);
    EXPECT_EQ(answers[2].decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(tokens_left(made.limiter, "user:42", 7, LIGHT), 119);
    EXPECT_EQ(tokens_left(made.limiter, "user:42", 7, HEAVY), 1);
    EXPECT_EQ(tokens_left(made.limiter, "team:7", 6, HEAVY), 2);

    /* At an instant of the caller's; and who wants no answers gets none. */
    EXPECT_OK(tollgate_limiter_check_all_at(made.limiter, parts, 3, 1006 * SECOND, NULL, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_WARN);
    /* A lane that denies everything: no wait helps. */
    parts[2].lane = CLOSED;
    EXPECT_OK(tollgate_limiter_check_all(made.limiter, parts, 3, answers, &verdict));
    EXPECT_EQ(verdict.blocking, 6);
    EXPECT(verdict.retry_after_ns == TOLLGATE_NEVER);
    /* The same lane twice counts twice: together these can never pass. */
    tollgate_request twice[2] = { part("twin", HEAVY, 2), part("twin", HEAVY, 2) };
    EXPECT_EQ(tollgate_limiter_check_all(made.limiter, twice, 2, answers, &verdict),
              TOLLGATE_STATUS_COST_ABOVE_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, "twin", 4, HEAVY), HEAVY_CAPACITY);
    /* Nobody who is never limited stands in the way. */
    EXPECT_OK(tollgate_limiter_exempt(made.limiter, "twin", 4, NULL));
    EXPECT_OK(tollgate_limiter_check_all(made.limiter, twice, 2, answers, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_EXEMPT);
    rig_free(&made);
}

static void a_denial_is_a_violation_of_who_stands_in_the_way(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_all_verdict verdict = all_verdict_new();
    tollgate_request parts[2] = { part("user:42", LIGHT, 1), part("team:7", HEAVY, HEAVY_CAPACITY) };
    EXPECT_OK(tollgate_limiter_admit_all(made.limiter, parts, 2, NULL, &verdict));
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
    EXPECT_OK(tollgate_limiter_admit_all_at(made.limiter, parts, 2, 1000 * SECOND, NULL, &verdict));
    EXPECT_OK(tollgate_limiter_admit_all(made.limiter, parts, 2, NULL, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.blocking, 2);
    tollgate_conduct conduct = conduct_new();
    EXPECT_OK(tollgate_limiter_violations(made.limiter, "team:7", 6, &conduct));
    EXPECT_EQ(conduct.consecutive, 2);
    EXPECT_OK(tollgate_limiter_violations(made.limiter, "user:42", 7, &conduct));
    EXPECT_EQ(conduct.consecutive, 0);
    /* The tenth within five minutes is sustained abuse, and is told once. */
    for (int violations = 3; violations <= 11; violations++) {
        EXPECT_OK(tollgate_limiter_admit_all(made.limiter, parts, 2, NULL, &verdict));
        EXPECT_EQ(verdict.sustained_abuse, violations == 10 ? 2 : 0);
    }
    rig_free(&made);
}

static void what_cannot_be_answered_charges_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_all_verdict verdict = all_verdict_new();
    tollgate_answer answers[TOLLGATE_PARTS_MAX + 1];
    memset(answers, 0x5a, sizeof answers);
    tollgate_request parts[TOLLGATE_PARTS_MAX + 1];
    for (size_t i = 0; i < TOLLGATE_PARTS_MAX + 1; i++)
        parts[i] = part("a", LIGHT, 1);
    EXPECT_EQ(tollgate_limiter_check_all(NULL, parts, 1, answers, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_all(limiter, NULL, 1, answers, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_all(limiter, parts, 1, answers, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_all(limiter, parts, 0, answers, &verdict), TOLLGATE_STATUS_PARTS);
    EXPECT_EQ(tollgate_limiter_check_all(limiter, parts, TOLLGATE_PARTS_MAX + 1, answers, &verdict), TOLLGATE_STATUS_PARTS);
    EXPECT_EQ(tollgate_limiter_check_all(limiter, parts, SIZE_MAX, answers, &verdict), TOLLGATE_STATUS_PARTS);
    EXPECT_EQ(tollgate_limiter_check_all_at(limiter, parts, 0, 0, answers, &verdict), TOLLGATE_STATUS_PARTS);
    EXPECT_EQ(tollgate_limiter_admit_all(limiter, parts, 0, answers, &verdict), TOLLGATE_STATUS_PARTS);
    EXPECT_EQ(tollgate_limiter_admit_all_at(limiter, parts, 0, 0, answers, &verdict), TOLLGATE_STATUS_PARTS);
    verdict.struct_size = sizeof verdict - 1;
    EXPECT_EQ(tollgate_limiter_check_all(limiter, parts, 1, answers, &verdict), TOLLGATE_STATUS_STRUCT_SIZE);
    verdict.struct_size = sizeof verdict;
    const tollgate_request wrong[] = { { NULL, 1, 1, LIGHT, 0 },  { "a", 0, 1, LIGHT, 0 },  { "a", 257, 1, LIGHT, 0 },
                                       { "a", 1, 1, LANES, 0 },   { "a", 1, 0, LIGHT, 0 },  { "a", 1, 121, LIGHT, 0 } };
    const tollgate_status expected[] = { TOLLGATE_STATUS_NULL_POINTER, TOLLGATE_STATUS_EMPTY_ID,
                                         TOLLGATE_STATUS_ID_TOO_LONG,  TOLLGATE_STATUS_UNKNOWN_LANE,
                                         TOLLGATE_STATUS_ZERO_COST,    TOLLGATE_STATUS_COST_ABOVE_CAPACITY };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        parts[1] = wrong[i];
        EXPECT_EQ(tollgate_limiter_check_all(limiter, parts, 3, answers, &verdict), expected[i]);
        EXPECT_EQ(tollgate_limiter_admit_all(limiter, parts, 3, answers, &verdict), expected[i]);
    }
    EXPECT(verdict.decision == TOLLGATE_DECISION_DENY && verdict.retry_after_ns == 0 && verdict.blocking == 0);
    EXPECT_EQ(answers[0].status, 0x5a5a5a5a);
    EXPECT_EQ(tokens_left(limiter, "a", 1, LIGHT), 120);
    parts[1] = parts[0];
    EXPECT_OK(tollgate_limiter_check_all(limiter, parts, TOLLGATE_PARTS_MAX, answers, &verdict));
    EXPECT_EQ(answers[TOLLGATE_PARTS_MAX - 1].status, TOLLGATE_STATUS_OK);
    EXPECT_EQ(answers[TOLLGATE_PARTS_MAX].status, 0x5a5a5a5a);
    EXPECT_EQ(tokens_left(limiter, "a", 1, LIGHT), 120 - TOLLGATE_PARTS_MAX);
    rig_free(&made);
}

static void who_finds_no_room_charges_nobody(void)
{
    rig made = rig_new(1, TOLLGATE_ON_FULL_DENY);
    tollgate_all_verdict verdict = all_verdict_new();
    tollgate_status status = TOLLGATE_STATUS_OK;
    char id[16] = "";
    for (int i = 0; i < 10000 && status == TOLLGATE_STATUS_OK; i++) {
        snprintf(id, sizeof id, "agent-%d", i);
        tollgate_request parts[2] = { part("first", LIGHT, 1), part(id, HEAVY, 1) };
        status = tollgate_limiter_check_all(made.limiter, parts, 2, NULL, &verdict);
        if (status == TOLLGATE_STATUS_OK)
            EXPECT_OK(tollgate_limiter_refund(made.limiter, "first", 5, LIGHT, 1, &(tollgate_lane_status){ .struct_size = sizeof(tollgate_lane_status) }));
    }
    EXPECT_EQ(status, TOLLGATE_STATUS_FULL);
    EXPECT_EQ(tokens_left(made.limiter, "first", 5, LIGHT), 120);
    rig_free(&made);
}

int main(void)
{
    all_are_charged_or_none();
    a_denial_is_a_violation_of_who_stands_in_the_way();
    what_cannot_be_answered_charges_nothing();
    who_finds_no_room_charges_nobody();
    return expectations_end("test_all");
}
