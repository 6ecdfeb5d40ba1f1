/* Checks: what is allowed, what is denied and for how long, and what cannot be answered. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };

static tollgate_verdict check_at(const rig *made, uint32_t lane, uint64_t cost, uint64_t now_ns)
{
    tollgate_verdict verdict;
    REQUIRE_OK(tollgate_check(made->limiter, REQUEST(ID, ID_LEN, lane, cost), now_ns, 0, &verdict));
    EXPECT_EQ(verdict.status, TOLLGATE_STATUS_OK);
    return verdict;
}

static tollgate_verdict check(const rig *made, uint32_t lane, uint64_t cost)
{
    return check_at(made, lane, cost, TOLLGATE_NOW);
}

static void a_burst_passes_and_a_denial_has_an_exact_wait(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict;
    for (uint64_t left = HEAVY_CAPACITY; left-- > 0;) {
        verdict = check(&made, HEAVY, 1);
        EXPECT_EQ(verdict.decision, left > 0 ? TOLLGATE_DECISION_ALLOW : TOLLGATE_DECISION_WARN);
        EXPECT_EQ(tollgate_verdict_remaining(&verdict), left);
        EXPECT_EQ(verdict.capacity, HEAVY_CAPACITY);
        EXPECT_EQ(verdict.retry_after_ns | verdict.lane_wait_ns | verdict.conduct_wait_ns | verdict.count_left, 0);
        EXPECT_EQ(verdict.violations_in_a_row | verdict.sustained_abuse, 0);
        EXPECT_EQ(verdict.token_ns, 6 * SECOND);
        EXPECT_EQ(verdict.full_in_ns, (HEAVY_CAPACITY - left) * 6 * SECOND);
    }
    verdict = check(&made, HEAVY, 1);
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, 6 * SECOND);
    EXPECT_EQ(verdict.lane_wait_ns, 6 * SECOND);
    EXPECT_EQ(verdict.conduct_wait_ns, 0);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);

    /* A nanosecond before the wait is over it is still denied. */
    EXPECT_OK(tollgate_clock_advance(made.clock, 6 * SECOND - 1));
    verdict = check(&made, HEAVY, 1);
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, 1);
    EXPECT_OK(tollgate_clock_advance(made.clock, 1));
    EXPECT(check(&made, HEAVY, 1).decision != TOLLGATE_DECISION_DENY);

    /* Other agents and other lanes are not affected. */
    EXPECT_EQ(tokens_left(made.limiter, "agent-8", 7, HEAVY), HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, LIGHT), 120);
    rig_free(&made);
}

static void a_cost_is_charged_whole_or_not_at_all(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = check(&made, LIGHT, 100);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 20);
    verdict = check(&made, LIGHT, 21);
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, SECOND / 2);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 20);
    EXPECT_EQ(check(&made, LIGHT, 20).decision, TOLLGATE_DECISION_WARN);
    rig_free(&made);
}

static void a_caller_may_pass_its_own_time(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = check_at(&made, HEAVY, 3, 1000 * SECOND);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    EXPECT_EQ(check_at(&made, HEAVY, 1, 1005 * SECOND).retry_after_ns, SECOND);
    EXPECT_EQ(check_at(&made, HEAVY, 1, 1006 * SECOND).decision, TOLLGATE_DECISION_WARN);
    /* An older time is only stricter. */
    EXPECT_EQ(check_at(&made, HEAVY, 1, 1000 * SECOND).retry_after_ns, 12 * SECOND);
    /* Past the range of time everything is denied, and no wait helps. */
    EXPECT_OK(tollgate_check(made.limiter, REQUEST("new", 3, HEAVY, 1), TOLLGATE_NOW - 1, 0, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, TOLLGATE_NEVER);
    rig_free(&made);
}

static void a_closed_lane_denies_for_ever(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = check(&made, CLOSED, 1);
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(verdict.lane_wait_ns, TOLLGATE_NEVER);
    EXPECT_EQ(verdict.capacity, 0);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    rig_free(&made);
}

static void an_id_is_any_bytes_up_to_256(void)
{
    rig made = rig_new(1000, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict;
    unsigned char id[TOLLGATE_ID_BYTES_MAX];
    for (size_t i = 0; i < sizeof id; i++)
        id[i] = (unsigned char)i; /* A NUL among them, and not UTF-8. */
    for (size_t len = 1; len <= sizeof id; len++) {
        EXPECT_OK(tollgate_check(made.limiter, REQUEST(id, len, HEAVY, 1), TOLLGATE_NOW, 0, &verdict));
        EXPECT_EQ(tollgate_verdict_remaining(&verdict), HEAVY_CAPACITY - 1);
    }
    rig_free(&made);
}

/* Every request that cannot be answered: its status, the verdict untouched, and nothing charged. */
static void what_cannot_be_answered_charges_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_verdict verdict, before;
    memset(&verdict, 0x5a, sizeof verdict);
    before = verdict;
    const struct {
        tollgate_status status;
        tollgate_request request;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, { NULL, ID_LEN, 1, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_NULL_POINTER, { NULL, 0, 1, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_EMPTY_ID, { ID, 0, 1, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_ID_TOO_LONG, { ID, TOLLGATE_ID_BYTES_MAX + 1, 1, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_ID_TOO_LONG, { ID, SIZE_MAX, 1, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_LANE, { ID, ID_LEN, 1, LANES, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_LANE, { ID, ID_LEN, 1, TOLLGATE_NONE, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, { ID, ID_LEN, 1, HEAVY, 1, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, { ID, ID_LEN, 1, HEAVY, 65536, NULL } },
        { TOLLGATE_STATUS_ZERO_COST, { ID, ID_LEN, 0, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_COST_ABOVE_CAPACITY, { ID, ID_LEN, HEAVY_CAPACITY + 1, HEAVY, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_COST_ABOVE_CAPACITY, { ID, ID_LEN, UINT64_MAX, HEAVY, TOLLGATE_NONE, NULL } },
    };
    const uint64_t times[] = { TOLLGATE_NOW, 1000 * SECOND };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const tollgate_request *request = &cases[i / 2].request;
        EXPECT_EQ(tollgate_check(limiter, request, times[i % 2], 0, &verdict), cases[i / 2].status);
        EXPECT_EQ(tollgate_check(limiter, request, times[i % 2], TOLLGATE_COUNTED, &verdict), cases[i / 2].status);
    }
    const tollgate_request *good = REQUEST(ID, ID_LEN, HEAVY, 1);
    EXPECT_EQ(tollgate_check(NULL, good, TOLLGATE_NOW, 0, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_check(limiter, NULL, TOLLGATE_NOW, 0, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_check(limiter, good, TOLLGATE_NOW, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_check(limiter, good, TOLLGATE_NOW, 2, &verdict), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_check(limiter, good, TOLLGATE_NOW, UINT32_MAX, &verdict), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(memcmp(&verdict, &before, sizeof verdict), 0);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    EXPECT_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    EXPECT_EQ(snapshot.agents, 0);
    rig_free(&made);
}

static void what_is_left_is_computed_from_the_verdict(void)
{
    tollgate_verdict verdict = { 0 };
    EXPECT_EQ(tollgate_verdict_remaining(NULL), 0);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    verdict.capacity = 5;
    verdict.token_ns = 10;
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 5);
    verdict.full_in_ns = 1; /* A token that is partly missing is missing. */
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 4);
    verdict.full_in_ns = UINT64_MAX;
    verdict.token_ns = 1;
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    verdict.token_ns = 0; /* A lane that counts says so itself. */
    verdict.count_left = 3;
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 3);
}

/* More agents in debt than records: a newcomer is refused, or it takes a record over. */
static void a_full_limiter_refuses_newcomers_or_gives_records_up(void)
{
    enum { AGENTS = 1000 };
    for (int32_t on_full = TOLLGATE_ON_FULL_EVICT; on_full <= TOLLGATE_ON_FULL_DENY; on_full++) {
        rig made = rig_new(8, on_full);
        tollgate_verdict verdict;
        uint64_t refused = 0;
        for (int agent = 0; agent < AGENTS; agent++) {
            tollgate_status status =
                tollgate_check(made.limiter, REQUEST(&agent, sizeof agent, HEAVY, 1), TOLLGATE_NOW, 0, &verdict);
            EXPECT(status == TOLLGATE_STATUS_OK || status == TOLLGATE_STATUS_FULL);
            refused += status == TOLLGATE_STATUS_FULL;
        }
        tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
        EXPECT_OK(tollgate_snapshot(made.limiter, &snapshot, NULL, 0));
        EXPECT(snapshot.agents <= snapshot.records);
        if (on_full == TOLLGATE_ON_FULL_DENY)
            EXPECT_EQ(snapshot.agents + refused, AGENTS);
        else
            EXPECT_EQ(refused, 0);
        EXPECT_EQ(snapshot.lossy_evictions > 0, on_full == TOLLGATE_ON_FULL_EVICT);
        rig_free(&made);
    }
}

int main(void)
{
    a_burst_passes_and_a_denial_has_an_exact_wait();
    a_cost_is_charged_whole_or_not_at_all();
    a_caller_may_pass_its_own_time();
    a_closed_lane_denies_for_ever();
    an_id_is_any_bytes_up_to_256();
    what_cannot_be_answered_charges_nothing();
    what_is_left_is_computed_from_the_verdict();
    a_full_limiter_refuses_newcomers_or_gives_records_up();
    return expectations_end("test_check");
}
