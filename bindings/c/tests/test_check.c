/* Checks: what is allowed, what is denied and for how long, and what is no question. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };

static void a_burst_passes_and_the_next_is_told_how_long_to_wait(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    for (uint64_t left = HEAVY_CAPACITY; left-- > 0;) {
        EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, HEAVY, 1, &verdict));
        EXPECT_EQ(verdict.decision, left > 0 ? TOLLGATE_DECISION_ALLOW : TOLLGATE_DECISION_WARN);
        EXPECT_EQ(tollgate_verdict_remaining(&verdict), left);
        EXPECT_EQ(verdict.capacity, HEAVY_CAPACITY);
        EXPECT_EQ(verdict.retry_after_ns, 0);
        EXPECT_EQ(verdict.token_ns, 6 * SECOND);
        EXPECT_EQ(verdict.full_in_ns, (HEAVY_CAPACITY - left) * 6 * SECOND);
        EXPECT_EQ(verdict.struct_size, sizeof verdict);
    }
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, HEAVY, 1, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, 6 * SECOND);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);

    /* The wait is exact: a nanosecond earlier it is still denied. */
    EXPECT_OK(tollgate_clock_advance(made.clock, 6 * SECOND - 1));
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, HEAVY, 1, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, 1);
    EXPECT_OK(tollgate_clock_advance(made.clock, 1));
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, HEAVY, 1, &verdict));
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);

    /* Others are not affected, nor are other lanes. */
    EXPECT_EQ(tokens_left(made.limiter, "agent-8", 7, HEAVY), HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, LIGHT), 120);
    rig_free(&made);
}

static void a_cost_is_charged_whole_or_not_at_all(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, LIGHT, 100, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 20);
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, LIGHT, 21, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, SECOND / 2);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 20);
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, LIGHT, 20, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_WARN);
    rig_free(&made);
}

static void a_caller_may_bring_its_own_time(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    EXPECT_OK(tollgate_limiter_check_at(made.limiter, ID, ID_LEN, HEAVY, 3, 1000 * SECOND, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    EXPECT_OK(tollgate_limiter_check_at(made.limiter, ID, ID_LEN, HEAVY, 1, 1005 * SECOND, &verdict));
    EXPECT_EQ(verdict.retry_after_ns, SECOND);
    EXPECT_OK(tollgate_limiter_check_at(made.limiter, ID, ID_LEN, HEAVY, 1, 1006 * SECOND, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_WARN);
    /* An older time is only stricter. */
    EXPECT_OK(tollgate_limiter_check_at(made.limiter, ID, ID_LEN, HEAVY, 1, 1000 * SECOND, &verdict));
    EXPECT_EQ(verdict.retry_after_ns, 12 * SECOND);
    /* Past the range of time everything is denied, and no wait helps. */
    EXPECT_OK(tollgate_limiter_check_at(made.limiter, "new", 3, HEAVY, 1, UINT64_MAX, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, TOLLGATE_NEVER);
    rig_free(&made);
}

static void a_closed_lane_denies_for_ever(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    verdict.decision = TOLLGATE_DECISION_ALLOW;
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, CLOSED, 1, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(verdict.capacity, 0);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    rig_free(&made);
}

static void an_id_is_any_bytes_up_to_256(void)
{
    rig made = rig_new(1000, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    unsigned char id[TOLLGATE_ID_BYTES_MAX];
    for (size_t i = 0; i < sizeof id; i++)
        id[i] = (unsigned char)i; /* NUL among them, and no UTF-8. */
    for (size_t len = 1; len <= sizeof id; len++) {
        EXPECT_OK(tollgate_limiter_check(made.limiter, id, len, HEAVY, 1, &verdict));
        EXPECT_EQ(tollgate_verdict_remaining(&verdict), HEAVY_CAPACITY - 1);
    }
    rig_free(&made);
}

/* Every way to ask in vain: a status each, the verdict as it was, and nothing charged. */
static void what_cannot_be_answered_charges_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    const uint64_t now = 1000 * SECOND;
    tollgate_verdict verdict, before;
    memset(&verdict, 0x5a, sizeof verdict);
    verdict.struct_size = sizeof verdict;
    before = verdict;
#define EXPECT_REFUSAL(status, limiter, id, id_len, lane, cost)                                            \
    do {                                                                                                   \
        EXPECT_EQ(tollgate_limiter_check(limiter, id, id_len, lane, cost, &verdict), status);              \
        EXPECT_EQ(tollgate_limiter_check_at(limiter, id, id_len, lane, cost, now, &verdict), status);      \
        EXPECT_EQ(memcmp(&verdict, &before, sizeof verdict), 0);                                           \
    } while (0)
    EXPECT_REFUSAL(TOLLGATE_STATUS_NULL_POINTER, NULL, ID, ID_LEN, HEAVY, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_NULL_POINTER, limiter, NULL, ID_LEN, HEAVY, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_NULL_POINTER, limiter, NULL, 0, HEAVY, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_EMPTY_ID, limiter, ID, 0, HEAVY, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_ID_TOO_LONG, limiter, ID, TOLLGATE_ID_BYTES_MAX + 1, HEAVY, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_ID_TOO_LONG, limiter, ID, SIZE_MAX, HEAVY, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_UNKNOWN_LANE, limiter, ID, ID_LEN, LANES, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_UNKNOWN_LANE, limiter, ID, ID_LEN, UINT32_MAX, 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_ZERO_COST, limiter, ID, ID_LEN, HEAVY, 0);
    EXPECT_REFUSAL(TOLLGATE_STATUS_COST_ABOVE_CAPACITY, limiter, ID, ID_LEN, HEAVY, HEAVY_CAPACITY + 1);
    EXPECT_REFUSAL(TOLLGATE_STATUS_COST_ABOVE_CAPACITY, limiter, ID, ID_LEN, HEAVY, UINT64_MAX);
    before.struct_size = verdict.struct_size = sizeof verdict - 1;
    EXPECT_REFUSAL(TOLLGATE_STATUS_STRUCT_SIZE, limiter, ID, ID_LEN, HEAVY, 1);
    before.struct_size = verdict.struct_size = 0;
    EXPECT_REFUSAL(TOLLGATE_STATUS_STRUCT_SIZE, limiter, ID, ID_LEN, HEAVY, 1);
#undef EXPECT_REFUSAL
    EXPECT_EQ(tollgate_limiter_check(limiter, ID, ID_LEN, HEAVY, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_at(limiter, ID, ID_LEN, HEAVY, 1, now, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    tollgate_stats stats = stats_new();
    EXPECT_OK(tollgate_limiter_stats(limiter, &stats));
    EXPECT_EQ(stats.agents, 0);
    rig_free(&made);
}

/* A verdict of a later version: what this one knows is written, and the rest stays. */
static void a_larger_verdict_is_fine(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    struct {
        tollgate_verdict known;
        uint64_t later;
    } verdict = { verdict_new(), 77 };
    verdict.known.struct_size = sizeof verdict;
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, HEAVY, 1, &verdict.known));
    EXPECT_EQ(verdict.known.decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(verdict.known.struct_size, sizeof verdict);
    EXPECT_EQ(verdict.later, 77);
    rig_free(&made);
}

static void what_is_left_of_nothing_is_nothing(void)
{
    tollgate_verdict verdict = verdict_new();
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
}

/* More agents in debt than records: the next one is refused, or takes one over. */
static void a_full_limiter_refuses_newcomers_or_gives_records_up(void)
{
    enum { AGENTS = 1000 };
    for (int32_t on_full = TOLLGATE_ON_FULL_EVICT; on_full <= TOLLGATE_ON_FULL_DENY; on_full++) {
        rig made = rig_new(8, on_full);
        tollgate_verdict verdict = verdict_new();
        uint64_t refused = 0;
        for (int agent = 0; agent < AGENTS; agent++) {
            tollgate_status status = tollgate_limiter_check(made.limiter, &agent, sizeof agent, HEAVY, 1, &verdict);
            EXPECT(status == TOLLGATE_STATUS_OK || status == TOLLGATE_STATUS_FULL);
            refused += status == TOLLGATE_STATUS_FULL;
        }
        tollgate_stats stats = stats_new();
        EXPECT_OK(tollgate_limiter_stats(made.limiter, &stats));
        EXPECT(stats.agents <= stats.records);
        if (on_full == TOLLGATE_ON_FULL_DENY)
            EXPECT_EQ(stats.agents + refused, AGENTS);
        else
            EXPECT_EQ(refused, 0);
        EXPECT_EQ(stats.lossy_evictions > 0, on_full == TOLLGATE_ON_FULL_EVICT);
        rig_free(&made);
    }
}

int main(void)
{
    a_burst_passes_and_the_next_is_told_how_long_to_wait();
    a_cost_is_charged_whole_or_not_at_all();
    a_caller_may_bring_its_own_time();
    a_closed_lane_denies_for_ever();
    an_id_is_any_bytes_up_to_256();
    what_cannot_be_answered_charges_nothing();
    a_larger_verdict_is_fine();
    what_is_left_of_nothing_is_nothing();
    a_full_limiter_refuses_newcomers_or_gives_records_up();
    return expectations_end("test_check");
}
