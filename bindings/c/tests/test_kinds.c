/* Other kinds of limit: windows, exact windows, budgets, slots that are held. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
enum { WINDOW, EXACT, BUDGET, HELD, BUCKET };

static tollgate_policy *kinds(void)
{
    return policy_of("[lanes]\n"
                     "window = 'window 3/min'\n"
                     "exact = 'exact 3/5min'\n"
                     "budget = 'budget 3/day'\n"
                     "held = 'held 3'\n"
                     "bucket = '3/minute'\n");
}

static void every_kind_lets_three_through(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict;
    for (uint32_t lane = WINDOW; lane <= BUCKET; lane++) {
        for (uint64_t left = 3; left-- > 0;) {
            EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, lane, 1), TOLLGATE_NOW, 0, &verdict));
            EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
            EXPECT_EQ(tollgate_verdict_remaining(&verdict), left);
            EXPECT_EQ(verdict.capacity, 3);
            /* A bucket has the time of a token, and every other kind a count. */
            EXPECT_EQ(verdict.token_ns, lane == BUCKET ? 20 * SECOND : 0);
            EXPECT_EQ(verdict.count_left, lane == BUCKET ? 0 : left);
        }
        EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, lane, 1), TOLLGATE_NOW, 0, &verdict));
        EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
        EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, lane), 0);
    }
    EXPECT_TEXT("held 3", tollgate_policy_limit, made.policy, 0, HELD);
    rig_free(&made);
}

static void a_slot_is_held_until_it_is_released(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    const tollgate_request *slot = REQUEST(ID, ID_LEN, HELD, 1);
    tollgate_verdict verdict;
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    for (uint64_t left = 3; left-- > 0;) {
        EXPECT_OK(tollgate_hold(made.limiter, slot, TOLLGATE_NOW, 0, &verdict));
        EXPECT_EQ(tollgate_verdict_remaining(&verdict), left);
    }
    EXPECT_OK(tollgate_clock_advance(made.clock, 1000 * SECOND)); /* Time gives nothing back. */
    EXPECT_OK(tollgate_hold(made.limiter, slot, TOLLGATE_NOW, TOLLGATE_COUNTED, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    for (uint64_t left = 1; left <= 2; left++) {
        EXPECT_OK(tollgate_release(made.limiter, slot, TOLLGATE_NOW, &state));
        EXPECT_EQ(state.remaining, left);
    }
    EXPECT_OK(tollgate_release(made.limiter, slot, 2000 * SECOND, NULL)); /* The state is optional. */
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HELD), 3);
    rig_free(&made);
}

static void misuse_holds_and_releases_nothing(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_verdict verdict = { 0 };
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    state.remaining = 77;
    const struct {
        tollgate_status held, released;
        tollgate_request request;
    } cases[] = {
        { TOLLGATE_STATUS_WRONG_KIND, TOLLGATE_STATUS_WRONG_KIND, { ID, ID_LEN, 1, BUCKET, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_LANE, TOLLGATE_STATUS_UNKNOWN_LANE, { ID, ID_LEN, 1, 5, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, TOLLGATE_STATUS_UNKNOWN_PLAN, { ID, ID_LEN, 1, HELD, 7, NULL } },
        { TOLLGATE_STATUS_NULL_POINTER, TOLLGATE_STATUS_NULL_POINTER, { NULL, 1, 1, HELD, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_EMPTY_ID, TOLLGATE_STATUS_EMPTY_ID, { ID, 0, 1, HELD, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_ID_TOO_LONG, TOLLGATE_STATUS_ID_TOO_LONG, { ID, 257, 1, HELD, TOLLGATE_NONE, NULL } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EXPECT_EQ(tollgate_hold(limiter, &cases[i].request, TOLLGATE_NOW, 0, &verdict), cases[i].held);
        EXPECT_EQ(tollgate_release(limiter, &cases[i].request, TOLLGATE_NOW, &state), cases[i].released);
    }
    const tollgate_request *slot = REQUEST(ID, ID_LEN, HELD, 1);
    EXPECT_EQ(tollgate_release(limiter, slot, TOLLGATE_NOW, &state), TOLLGATE_STATUS_NOT_HELD);
    EXPECT_EQ(tollgate_release(NULL, slot, TOLLGATE_NOW, &state), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_release(limiter, NULL, TOLLGATE_NOW, &state), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_hold(NULL, slot, TOLLGATE_NOW, 0, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_hold(limiter, NULL, TOLLGATE_NOW, 0, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_hold(limiter, slot, TOLLGATE_NOW, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_hold(limiter, slot, TOLLGATE_NOW, 2, &verdict), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(state.remaining == 77 && verdict.capacity == 0);
    state.struct_size--;
    EXPECT_EQ(tollgate_release(limiter, slot, TOLLGATE_NOW, &state), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HELD), 3);
    rig_free(&made);
}

static void a_lane_keeps_its_kind(void)
{
    rig made = rig_of(kinds(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_error error = SIZED(tollgate_error);
    tollgate_policy *buckets = policy_of("[lanes]\n"
                                         "window = '5/minute'\n"
                                         "exact = '5/minute'\n"
                                         "budget = '5/minute'\n"
                                         "held = '5/minute'\n"
                                         "bucket = '5/minute'\n");
    EXPECT_EQ(tollgate_replace_policy(made.limiter, buckets, &error), TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(strstr(error.message, "window") != NULL);
    EXPECT_EQ(tollgate_set_override(made.limiter, ID, ID_LEN, "held", 4, TOLLGATE_LITERAL("5/minute"), NULL),
              TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HELD), 3);
    tollgate_policy_free(buckets);
    rig_free(&made);
}

/* The limit of a dynamic lane travels with the request. */
static void a_request_brings_its_limit(void)
{
    rig made = rig_of(policy_of("[lanes]\ndynamic = 'dynamic'\nbucket = '3/minute'\n"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_call_limit limit = { 5, 10, SECOND }, slow = { 2, 1, SECOND };
    const tollgate_call_limit none = { 0, 1, 1 }, long_one = { 1, 1, UINT64_MAX };
    tollgate_request request = { ID, ID_LEN, 1, 0, TOLLGATE_NONE, &limit };
    tollgate_verdict verdict = { 0 }, verdicts[4];
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    uint64_t reservation = 0;
    EXPECT_OK(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict));
    EXPECT(verdict.capacity == 5 && verdict.token_ns == SECOND / 10 && tollgate_verdict_remaining(&verdict) == 4);
    request.limit = &slow;
    EXPECT_OK(tollgate_check(limiter, &request, TOLLGATE_NOW, TOLLGATE_COUNTED, &verdict));
    EXPECT(verdict.capacity == 2 && verdict.full_in_ns == SECOND + SECOND / 10);
    EXPECT_OK(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict));
    EXPECT(verdict.decision == TOLLGATE_DECISION_DENY && verdict.retry_after_ns == SECOND / 10);
    EXPECT_OK(tollgate_peek(limiter, &request, TOLLGATE_NOW, &state));
    EXPECT(state.remaining == 0 && state.capacity == 2);
    EXPECT_OK(tollgate_refund(limiter, &request, TOLLGATE_NOW, &state));
    EXPECT(state.full_in_ns == SECOND / 10);
    EXPECT_OK(tollgate_reserve(limiter, &request, SECOND, TOLLGATE_NOW, 0, &verdict, &reservation));
    EXPECT(reservation != 0 && verdict.capacity == 2);

    /* In a batch each has its own, and what is no limit fails alone. */
    const tollgate_request many[] = {
        { "other", 5, 1, 0, TOLLGATE_NONE, &slow },
        { "other", 5, 1, 0, TOLLGATE_NONE, &none },
        { "other", 5, 1, 1, TOLLGATE_NONE, NULL },
        { "other", 5, 1, 0, TOLLGATE_NONE, &slow },
    };
    EXPECT_OK(tollgate_check_many(limiter, many, 4, TOLLGATE_NOW, 0, verdicts));
    EXPECT(verdicts[0].capacity == 2 && tollgate_verdict_remaining(&verdicts[0]) == 1);
    EXPECT_EQ(verdicts[1].status, TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(verdicts[2].capacity == 3 && tollgate_verdict_remaining(&verdicts[3]) == 0);
    EXPECT_EQ(tollgate_check_all(limiter, many, 2, TOLLGATE_NOW, 0, NULL, &all), TOLLGATE_STATUS_INVALID_LIMIT);
    const tollgate_request differ[] = { many[0], { "other", 5, 1, 0, TOLLGATE_NONE, &limit } };
    EXPECT_EQ(tollgate_check_all(limiter, differ, 2, TOLLGATE_NOW, 0, NULL, &all), TOLLGATE_STATUS_LIMITS_DIFFER);

    const struct {
        tollgate_status status;
        uint32_t lane;
        const tollgate_call_limit *limit;
    } wrong[] = { { TOLLGATE_STATUS_NO_LIMIT, 0, NULL },
                  { TOLLGATE_STATUS_LIMIT_GIVEN, 1, &limit },
                  { TOLLGATE_STATUS_INVALID_LIMIT, 0, &none },
                  { TOLLGATE_STATUS_INVALID_LIMIT, 0, &long_one } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        request = (tollgate_request){ ID, ID_LEN, 1, wrong[i].lane, TOLLGATE_NONE, wrong[i].limit };
        EXPECT_EQ(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict), wrong[i].status);
        EXPECT_EQ(tollgate_peek(limiter, &request, TOLLGATE_NOW, &state), wrong[i].status);
        EXPECT_EQ(tollgate_refund(limiter, &request, TOLLGATE_NOW, NULL), wrong[i].status);
        EXPECT_EQ(tollgate_reserve(limiter, &request, SECOND, TOLLGATE_NOW, 0, &verdict, &reservation),
                  wrong[i].status);
    }
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_OK(tollgate_call_limit_read(TOLLGATE_LITERAL("6/minute burst 9"), &error, &limit));
    EXPECT(limit.capacity == 9 && limit.count == 1 && limit.period_ns == 10 * SECOND);
    EXPECT_EQ(tollgate_call_limit_read(TOLLGATE_LITERAL("budget 6/day"), &error, &limit), TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(strstr(error.message, "\"budget 6/day\" can't travel") != NULL);
    EXPECT_EQ(tollgate_call_limit_read(NULL, 3, NULL, &limit), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_call_limit_read(TOLLGATE_LITERAL("6/minute"), NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(limit.capacity, 9);
    rig_free(&made);
}

int main(void)
{
    a_request_brings_its_limit();
    a_lane_keeps_its_kind();
    every_kind_lets_three_through();
    a_slot_is_held_until_it_is_released();
    misuse_holds_and_releases_nothing();
    return expectations_end("test_kinds");
}
