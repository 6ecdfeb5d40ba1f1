/* Other kinds of limit: windows, exact windows, budgets, slots that are held. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
enum { WINDOW, EXACT, BUDGET, HELD, BUCKET };

static tollgate_policy *kinds(void)
{
    static const char *const names[] = { "window", "exact", "budget", "held", "bucket" };
    static const char *const limits[] = { "window 3/min", "exact 3/5min", "budget 3/day", "held 3", "3/minute" };
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    for (uint32_t lane = 0; lane <= BUCKET; lane++)
        REQUIRE_OK(tollgate_policy_builder_lane(builder, names[lane], strlen(names[lane]), limits[lane], strlen(limits[lane])));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_policy_builder_free(builder);
    return policy;
}

static void every_kind_lets_three_through(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    for (uint32_t lane = WINDOW; lane <= BUCKET; lane++) {
        for (uint64_t left = 3; left-- > 0;) {
            EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, lane, 1, &verdict));
            EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
            EXPECT_EQ(tollgate_verdict_remaining(&verdict), left);
            EXPECT_EQ(verdict.capacity, 3);
        }
        EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, lane, 1, &verdict));
        EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
        EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, lane), 0);
    }
    EXPECT_TEXT("held 3", tollgate_policy_limit, made.policy, HELD);
    rig_free(&made);
}

static void a_slot_is_held_until_it_is_released(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    tollgate_lane_status status = lane_status_new();
    for (uint64_t left = 3; left-- > 0;) {
        EXPECT_OK(tollgate_limiter_acquire(made.limiter, ID, ID_LEN, HELD, &verdict));
        EXPECT_EQ(tollgate_verdict_remaining(&verdict), left);
    }
    EXPECT_OK(tollgate_clock_advance(made.clock, 1000 * SECOND)); /* Time gives nothing back. */
    EXPECT_OK(tollgate_limiter_acquire(made.limiter, ID, ID_LEN, HELD, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    for (uint64_t left = 1; left <= 3; left++) {
        EXPECT_OK(tollgate_limiter_release(made.limiter, ID, ID_LEN, HELD, &status));
        EXPECT_EQ(status.remaining, left);
    }
    status.remaining = 77;
    verdict = verdict_new();
    EXPECT_EQ(tollgate_limiter_release(made.limiter, ID, ID_LEN, HELD, &status), TOLLGATE_STATUS_NOT_HELD);
    EXPECT_EQ(tollgate_limiter_release(made.limiter, ID, ID_LEN, BUCKET, &status), TOLLGATE_STATUS_WRONG_KIND);
    EXPECT_EQ(tollgate_limiter_acquire(made.limiter, ID, ID_LEN, BUCKET, &verdict), TOLLGATE_STATUS_WRONG_KIND);
    EXPECT_EQ(tollgate_limiter_acquire(made.limiter, ID, ID_LEN, 5, &verdict), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_acquire(NULL, ID, ID_LEN, HELD, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_acquire(made.limiter, NULL, 1, HELD, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_acquire(made.limiter, ID, 0, HELD, &verdict), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_limiter_acquire(made.limiter, ID, ID_LEN, HELD, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_release(NULL, ID, ID_LEN, HELD, &status), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_release(made.limiter, ID, 257, HELD, &status), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_release(made.limiter, ID, ID_LEN, 5, &status), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_release(made.limiter, ID, ID_LEN, HELD, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(status.remaining == 77 && verdict.capacity == 0);
    rig_free(&made);
}

static void a_lane_keeps_its_kind(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_error error = error_new();
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *another = NULL;
    static const char *const names[] = { "window", "exact", "budget", "held", "bucket" };
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    for (uint32_t lane = 0; lane <= BUCKET; lane++)
        REQUIRE_OK(tollgate_policy_builder_lane(builder, names[lane], strlen(names[lane]), TOLLGATE_LITERAL("5/minute")));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &another, NULL));
    tollgate_policy_builder_free(builder);
    EXPECT_EQ(tollgate_limiter_replace_policy(made.limiter, another, &error), TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(strstr(error.message, "window") != NULL);
    EXPECT_EQ(tollgate_limiter_set_override(made.limiter, ID, ID_LEN, TOLLGATE_LITERAL("held"), TOLLGATE_LITERAL("5/minute"), NULL),
              TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HELD), 3);
    tollgate_policy_free(another);
    rig_free(&made);
}

int main(void)
{
    a_lane_keeps_its_kind();
    every_kind_lets_three_through();
    a_slot_is_held_until_it_is_released();
    return expectations_end("test_kinds");
}
