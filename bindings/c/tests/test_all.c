/* Several charges, all or none. */
#include "expect.h"

static tollgate_request part(const char *id, uint32_t lane, uint64_t cost)
{
    return (tollgate_request){ id, strlen(id), cost, lane, TOLLGATE_NONE, NULL };
}

static uint32_t in_a_row(const tollgate_limiter *limiter, const char *id)
{
    tollgate_conduct_state conduct = SIZED(tollgate_conduct_state);
    REQUIRE_OK(tollgate_conduct(limiter, id, strlen(id), TOLLGATE_NOW, &conduct));
    return conduct.violations_in_a_row;
}

static void all_are_charged_or_none(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    tollgate_verdict verdicts[3];
    tollgate_request parts[3] = { part("user:42", LIGHT, 1), part("user:42", HEAVY, 2), part("team:7", HEAVY, 1) };
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 3, TOLLGATE_NOW, 0, verdicts, &all));
    EXPECT_EQ(all.struct_size, sizeof all);
    EXPECT_EQ(all.decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(all.retry_after_ns | all.blocking, 0);
    EXPECT_EQ(tollgate_verdict_remaining(&verdicts[0]), 119);
    EXPECT_EQ(tollgate_verdict_remaining(&verdicts[1]), 1);
    EXPECT_EQ(tollgate_verdict_remaining(&verdicts[2]), 2);

    /* The second blocks for six seconds, the time of one token. The others say what would have been. */
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 3, TOLLGATE_NOW, 0, verdicts, &all));
    EXPECT_EQ(all.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(all.blocking, 2);
    EXPECT_EQ(all.retry_after_ns, 6 * SECOND);
    EXPECT_EQ(verdicts[0].decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(verdicts[1].decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdicts[1].retry_after_ns, 6 * SECOND);
    EXPECT_EQ(verdicts[2].decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(tokens_left(made.limiter, "user:42", 7, LIGHT), 119);
    EXPECT_EQ(tokens_left(made.limiter, "user:42", 7, HEAVY), 1);
    EXPECT_EQ(tokens_left(made.limiter, "team:7", 6, HEAVY), 2);

    /* The caller may pass its own time, and go without the single verdicts. */
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 3, 1006 * SECOND, 0, NULL, &all));
    EXPECT_EQ(all.decision, TOLLGATE_DECISION_WARN);
    /* A lane that denies everything: no wait helps. */
    parts[2].lane = CLOSED;
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 3, TOLLGATE_NOW, 0, verdicts, &all));
    EXPECT_EQ(all.blocking, 6);
    EXPECT(all.retry_after_ns == TOLLGATE_NEVER);
    /* The same lane twice counts twice: together these can never pass. */
    tollgate_request twice[2] = { part("twin", HEAVY, 2), part("twin", HEAVY, 2) };
    EXPECT_EQ(tollgate_check_all(made.limiter, twice, 2, TOLLGATE_NOW, 0, verdicts, &all),
              TOLLGATE_STATUS_COST_ABOVE_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, "twin", 4, HEAVY), HEAVY_CAPACITY);
    /* An exempt agent never blocks. */
    EXPECT_OK(tollgate_set_exempt(made.limiter, "twin", 4, true, NULL));
    EXPECT_OK(tollgate_check_all(made.limiter, twice, 2, TOLLGATE_NOW, 0, verdicts, &all));
    EXPECT_EQ(all.decision, TOLLGATE_DECISION_EXEMPT);
    rig_free(&made);
}

static void a_counted_denial_is_a_violation_of_the_agent_that_blocks(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    tollgate_verdict verdicts[2];
    tollgate_request parts[2] = { part("user:42", LIGHT, 1), part("team:7", HEAVY, HEAVY_CAPACITY) };
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 2, TOLLGATE_NOW, TOLLGATE_COUNTED, NULL, &all));
    EXPECT(all.decision != TOLLGATE_DECISION_DENY);
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 2, 1000 * SECOND, TOLLGATE_COUNTED, NULL, &all));
    EXPECT_OK(tollgate_check_all(made.limiter, parts, 2, TOLLGATE_NOW, TOLLGATE_COUNTED, verdicts, &all));
    EXPECT_EQ(all.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(all.blocking, 2);
    EXPECT_EQ(verdicts[1].violations_in_a_row, 2);
    EXPECT_EQ(verdicts[0].violations_in_a_row, 0);
    EXPECT_EQ(in_a_row(made.limiter, "team:7"), 2);
    EXPECT_EQ(in_a_row(made.limiter, "user:42"), 0);
    /* The tenth within five minutes is sustained abuse, and is reported once. */
    for (uint32_t violations = 3; violations <= 11; violations++) {
        EXPECT_OK(tollgate_check_all(made.limiter, parts, 2, TOLLGATE_NOW, TOLLGATE_COUNTED, verdicts, &all));
        EXPECT_EQ(verdicts[0].sustained_abuse, 0);
        EXPECT_EQ(verdicts[1].sustained_abuse, violations == 10);
    }
    rig_free(&made);
}

static void what_cannot_be_answered_charges_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    tollgate_verdict verdicts[TOLLGATE_PARTS_MAX + 1];
    memset(verdicts, 0x5a, sizeof verdicts);
    tollgate_request parts[TOLLGATE_PARTS_MAX + 1];
    for (size_t i = 0; i < TOLLGATE_PARTS_MAX + 1; i++)
        parts[i] = part("a", LIGHT, 1);
    const uint64_t now = TOLLGATE_NOW;
    EXPECT_EQ(tollgate_check_all(NULL, parts, 1, now, 0, verdicts, &all), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_check_all(limiter, NULL, 1, now, 0, verdicts, &all), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_check_all(limiter, parts, 1, now, 0, verdicts, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_check_all(limiter, parts, 1, now, 2, verdicts, &all), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_check_all(limiter, parts, TOLLGATE_PARTS_MAX + 1, now, 0, verdicts, &all),
              TOLLGATE_STATUS_PARTS);
    EXPECT_EQ(tollgate_check_all(limiter, parts, SIZE_MAX, now, 0, verdicts, &all), TOLLGATE_STATUS_PARTS);
    for (uint32_t flags = 0; flags <= TOLLGATE_COUNTED; flags++) {
        EXPECT_EQ(tollgate_check_all(limiter, parts, 0, now, flags, verdicts, &all), TOLLGATE_STATUS_PARTS);
        EXPECT_EQ(tollgate_check_all(limiter, parts, 0, 0, flags, verdicts, &all), TOLLGATE_STATUS_PARTS);
    }
    all.struct_size--;
    EXPECT_EQ(tollgate_check_all(limiter, parts, 1, now, 0, verdicts, &all), TOLLGATE_STATUS_STRUCT_SIZE);
    all.struct_size++;
    const struct {
        tollgate_status status;
        tollgate_request request;
    } wrong[] = {
        { TOLLGATE_STATUS_NULL_POINTER, { NULL, 1, 1, LIGHT, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_EMPTY_ID, { "a", 0, 1, LIGHT, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_ID_TOO_LONG, { "a", 257, 1, LIGHT, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_LANE, { "a", 1, 1, LANES, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, { "a", 1, 1, LIGHT, 1, NULL } },
        { TOLLGATE_STATUS_ZERO_COST, { "a", 1, 0, LIGHT, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_COST_ABOVE_CAPACITY, { "a", 1, 121, LIGHT, TOLLGATE_NONE, NULL } },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        parts[1] = wrong[i].request;
        EXPECT_EQ(tollgate_check_all(limiter, parts, 3, now, 0, verdicts, &all), wrong[i].status);
        EXPECT_EQ(tollgate_check_all(limiter, parts, 3, now, TOLLGATE_COUNTED, verdicts, &all), wrong[i].status);
    }
    EXPECT(all.decision == TOLLGATE_DECISION_DENY && all.retry_after_ns == 0 && all.blocking == 0);
    EXPECT_EQ(verdicts[0].status, 0x5a5a5a5a);
    EXPECT_EQ(tokens_left(limiter, "a", 1, LIGHT), 120);
    parts[1] = parts[0];
    EXPECT_OK(tollgate_check_all(limiter, parts, TOLLGATE_PARTS_MAX, now, 0, verdicts, &all));
    EXPECT_EQ(verdicts[TOLLGATE_PARTS_MAX - 1].status, TOLLGATE_STATUS_OK);
    EXPECT_EQ(verdicts[TOLLGATE_PARTS_MAX].status, 0x5a5a5a5a);
    EXPECT_EQ(tokens_left(limiter, "a", 1, LIGHT), 120 - TOLLGATE_PARTS_MAX);
    rig_free(&made);
}

static void without_room_for_one_agent_no_agent_is_charged(void)
{
    rig made = rig_new(1, TOLLGATE_ON_FULL_DENY);
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    tollgate_status status = TOLLGATE_STATUS_OK;
    char id[16] = "";
    for (int i = 0; i < 10000 && status == TOLLGATE_STATUS_OK; i++) {
        snprintf(id, sizeof id, "agent-%d", i);
        tollgate_request parts[2] = { part("first", LIGHT, 1), part(id, HEAVY, 1) };
        status = tollgate_check_all(made.limiter, parts, 2, TOLLGATE_NOW, 0, NULL, &all);
        if (status == TOLLGATE_STATUS_OK)
            EXPECT_OK(tollgate_refund(made.limiter, &parts[0], TOLLGATE_NOW, NULL));
    }
    EXPECT_EQ(status, TOLLGATE_STATUS_FULL);
    EXPECT_EQ(tokens_left(made.limiter, "first", 5, LIGHT), 120);
    rig_free(&made);
}

int main(void)
{
    all_are_charged_or_none();
    a_counted_denial_is_a_violation_of_the_agent_that_blocks();
    what_cannot_be_answered_charges_nothing();
    without_room_for_one_agent_no_agent_is_charged();
    return expectations_end("test_all");
}
