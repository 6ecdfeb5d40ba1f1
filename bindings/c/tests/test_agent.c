/* What is known of an agent: looked at, refunded, reset, forgotten. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

static void spend(tollgate_limiter *limiter, uint32_t lane, uint64_t cost)
{
    tollgate_verdict verdict = verdict_new();
    REQUIRE_OK(tollgate_limiter_check(limiter, ID, ID_LEN, lane, cost, &verdict));
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
}

static void looking_charges_nothing_and_makes_nobody_known(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_lane_status status = lane_status_new();
    EXPECT_OK(tollgate_limiter_status(made.limiter, ID, ID_LEN, HEAVY, &status));
    EXPECT_EQ(status.remaining, HEAVY_CAPACITY);
    EXPECT_EQ(status.capacity, HEAVY_CAPACITY);
    EXPECT_EQ(status.next_in_ns, TOLLGATE_NEVER);
    EXPECT_EQ(status.full_in_ns, 0);
    EXPECT_EQ(status.struct_size, sizeof status);
    tollgate_stats stats = stats_new();
    EXPECT_OK(tollgate_limiter_stats(made.limiter, &stats));
    EXPECT_EQ(stats.agents, 0);

    spend(made.limiter, HEAVY, 2);
    EXPECT_OK(tollgate_limiter_status_at(made.limiter, ID, ID_LEN, HEAVY, NOW + 2 * SECOND, &status));
    EXPECT_EQ(status.remaining, 1);
    EXPECT_EQ(status.next_in_ns, 4 * SECOND);
    EXPECT_EQ(status.full_in_ns, 10 * SECOND);
    EXPECT_OK(tollgate_limiter_status(made.limiter, ID, ID_LEN, CLOSED, &status));
    EXPECT_EQ(status.capacity, 0);
    EXPECT_EQ(status.next_in_ns, TOLLGATE_NEVER);
    rig_free(&made);
}

static void a_refund_gives_back_and_never_beyond_full(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_lane_status status = lane_status_new();
    spend(made.limiter, HEAVY, 3);
    EXPECT_OK(tollgate_limiter_refund(made.limiter, ID, ID_LEN, HEAVY, 1, &status));
    EXPECT_EQ(status.remaining, 1);
    EXPECT_OK(tollgate_limiter_refund_at(made.limiter, ID, ID_LEN, HEAVY, 1, NOW, &status));
    EXPECT_EQ(status.remaining, 2);
    EXPECT_OK(tollgate_limiter_refund(made.limiter, ID, ID_LEN, HEAVY, 3, &status));
    EXPECT_EQ(status.remaining, HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    rig_free(&made);
}

static void a_reset_fills_one_lane_or_all(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    spend(made.limiter, HEAVY, 3);
    spend(made.limiter, LIGHT, 20);
    EXPECT_OK(tollgate_limiter_reset_lane(made.limiter, ID, ID_LEN, HEAVY));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, LIGHT), 100);
    spend(made.limiter, HEAVY, 3);
    EXPECT_OK(tollgate_limiter_reset_lane_at(made.limiter, ID, ID_LEN, HEAVY, NOW + 6 * SECOND));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), 2); /* Full six seconds from now. */
    EXPECT_OK(tollgate_limiter_reset(made.limiter, ID, ID_LEN));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, LIGHT), 120);
    spend(made.limiter, LIGHT, 20);
    EXPECT_OK(tollgate_limiter_reset_at(made.limiter, ID, ID_LEN, NOW));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, LIGHT), 120);
    rig_free(&made);
}

static void a_forgotten_agent_starts_afresh(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    bool known = true;
    EXPECT_OK(tollgate_limiter_forget(made.limiter, ID, ID_LEN, &known));
    EXPECT_EQ(known, false);
    spend(made.limiter, HEAVY, 3);
    EXPECT_OK(tollgate_limiter_forget(made.limiter, ID, ID_LEN, &known));
    EXPECT_EQ(known, true);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    spend(made.limiter, HEAVY, 1);
    EXPECT_OK(tollgate_limiter_forget_at(made.limiter, ID, ID_LEN, NOW, &known));
    EXPECT_EQ(known, true);
    EXPECT_OK(tollgate_limiter_forget_at(made.limiter, ID, ID_LEN, NOW, &known));
    EXPECT_EQ(known, false);
    tollgate_stats stats = stats_new();
    EXPECT_OK(tollgate_limiter_stats(made.limiter, &stats));
    EXPECT_EQ(stats.agents, 0);
    rig_free(&made);
}

/* The same misuse of every function of this kind: a status, outputs as they were, nothing changed. */
static void misuse_changes_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    spend(limiter, HEAVY, 3);
    tollgate_lane_status status, before;
    memset(&status, 0x5a, sizeof status);
    status.struct_size = sizeof status;
    before = status;
    bool known = true;
    static const struct {
        tollgate_status status;
        bool no_limiter, no_id;
        size_t id_len;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, true, false, ID_LEN },  { TOLLGATE_STATUS_NULL_POINTER, false, true, ID_LEN },
        { TOLLGATE_STATUS_EMPTY_ID, false, false, 0 },          { TOLLGATE_STATUS_ID_TOO_LONG, false, false, 257 },
        { TOLLGATE_STATUS_ID_TOO_LONG, false, false, SIZE_MAX },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tollgate_status expected = cases[i].status;
        tollgate_limiter *to = cases[i].no_limiter ? NULL : limiter;
        const char *id = cases[i].no_id ? NULL : ID;
        size_t len = cases[i].id_len;
        EXPECT_EQ(tollgate_limiter_status(to, id, len, HEAVY, &status), expected);
        EXPECT_EQ(tollgate_limiter_status_at(to, id, len, HEAVY, NOW, &status), expected);
        EXPECT_EQ(tollgate_limiter_refund(to, id, len, HEAVY, 1, &status), expected);
        EXPECT_EQ(tollgate_limiter_refund_at(to, id, len, HEAVY, 1, NOW, &status), expected);
        EXPECT_EQ(tollgate_limiter_reset(to, id, len), expected);
        EXPECT_EQ(tollgate_limiter_reset_at(to, id, len, NOW), expected);
        EXPECT_EQ(tollgate_limiter_reset_lane(to, id, len, HEAVY), expected);
        EXPECT_EQ(tollgate_limiter_reset_lane_at(to, id, len, HEAVY, NOW), expected);
        EXPECT_EQ(tollgate_limiter_forget(to, id, len, &known), expected);
        EXPECT_EQ(tollgate_limiter_forget_at(to, id, len, NOW, &known), expected);
    }
    EXPECT_EQ(tollgate_limiter_status(limiter, ID, ID_LEN, LANES, &status), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_status_at(limiter, ID, ID_LEN, LANES, NOW, &status), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_refund(limiter, ID, ID_LEN, LANES, 1, &status), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_reset_lane(limiter, ID, ID_LEN, LANES), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_reset_lane_at(limiter, ID, ID_LEN, LANES, NOW), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_refund(limiter, ID, ID_LEN, HEAVY, 0, &status), TOLLGATE_STATUS_ZERO_COST);
    EXPECT_EQ(tollgate_limiter_refund(limiter, ID, ID_LEN, HEAVY, 4, &status), TOLLGATE_STATUS_COST_ABOVE_CAPACITY);
    EXPECT_EQ(tollgate_limiter_status(limiter, ID, ID_LEN, HEAVY, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_status_at(limiter, ID, ID_LEN, HEAVY, NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_refund(limiter, ID, ID_LEN, HEAVY, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_refund_at(limiter, ID, ID_LEN, HEAVY, 1, NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_forget(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_forget_at(limiter, ID, ID_LEN, NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(memcmp(&status, &before, sizeof status), 0);
    status.struct_size = sizeof status - 1;
    EXPECT_EQ(tollgate_limiter_status(limiter, ID, ID_LEN, HEAVY, &status), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_limiter_refund(limiter, ID, ID_LEN, HEAVY, 1, &status), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(known, true);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), 0);
    rig_free(&made);
}

int main(void)
{
    looking_charges_nothing_and_makes_nobody_known();
    a_refund_gives_back_and_never_beyond_full();
    a_reset_fills_one_lane_or_all();
    a_forgotten_agent_starts_afresh();
    misuse_changes_nothing();
    return expectations_end("test_agent");
}
