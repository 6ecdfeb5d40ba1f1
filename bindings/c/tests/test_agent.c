/* What is known of an agent: peeked at, refunded, reset, forgotten. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

static void spend(tollgate_limiter *limiter, uint32_t lane, uint64_t cost)
{
    tollgate_verdict verdict;
    REQUIRE_OK(tollgate_check(limiter, REQUEST(ID, ID_LEN, lane, cost), TOLLGATE_NOW, 0, &verdict));
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
}

static uint64_t agents(const tollgate_limiter *limiter)
{
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    REQUIRE_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    return snapshot.agents;
}

static void peeking_charges_nothing_and_makes_no_agent_known(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    const tollgate_request *heavy = REQUEST(ID, ID_LEN, HEAVY, 1);
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    EXPECT_OK(tollgate_peek(made.limiter, heavy, TOLLGATE_NOW, &state));
    EXPECT_EQ(state.remaining, HEAVY_CAPACITY);
    EXPECT_EQ(state.capacity, HEAVY_CAPACITY);
    EXPECT_EQ(state.next_in_ns, TOLLGATE_NEVER);
    EXPECT_EQ(state.full_in_ns | state.exempt, 0);
    EXPECT_EQ(state.struct_size, sizeof state);
    EXPECT_EQ(agents(made.limiter), 0);

    spend(made.limiter, HEAVY, 2);
    EXPECT_OK(tollgate_peek(made.limiter, heavy, NOW + 2 * SECOND, &state));
    EXPECT_EQ(state.remaining, 1);
    EXPECT_EQ(state.next_in_ns, 4 * SECOND);
    EXPECT_EQ(state.full_in_ns, 10 * SECOND);
    EXPECT_OK(tollgate_peek(made.limiter, REQUEST(ID, ID_LEN, CLOSED, 1), TOLLGATE_NOW, &state));
    EXPECT_EQ(state.capacity, 0);
    EXPECT_EQ(state.next_in_ns, TOLLGATE_NEVER);
    rig_free(&made);
}

/* A state of a later version: what this one knows is written, and the rest stays. */
static void a_larger_struct_is_fine(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    struct {
        tollgate_lane_state known;
        uint64_t later;
    } state = { { .struct_size = sizeof state }, 77 };
    EXPECT_OK(tollgate_peek(made.limiter, REQUEST(ID, ID_LEN, HEAVY, 1), TOLLGATE_NOW, &state.known));
    EXPECT_EQ(state.known.remaining, HEAVY_CAPACITY);
    EXPECT_EQ(state.known.struct_size, sizeof state);
    EXPECT_EQ(state.later, 77);
    rig_free(&made);
}

static void a_refund_gives_back_and_never_beyond_full(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    spend(made.limiter, HEAVY, 3);
    EXPECT_OK(tollgate_refund(made.limiter, REQUEST(ID, ID_LEN, HEAVY, 1), TOLLGATE_NOW, &state));
    EXPECT_EQ(state.remaining, 1);
    EXPECT_OK(tollgate_refund(made.limiter, REQUEST(ID, ID_LEN, HEAVY, 1), NOW, &state));
    EXPECT_EQ(state.remaining, 2);
    EXPECT_OK(tollgate_refund(made.limiter, REQUEST(ID, ID_LEN, HEAVY, 3), TOLLGATE_NOW, &state));
    EXPECT_EQ(state.remaining, HEAVY_CAPACITY);
    spend(made.limiter, HEAVY, 2);
    EXPECT_OK(tollgate_refund(made.limiter, REQUEST(ID, ID_LEN, HEAVY, 1), TOLLGATE_NOW, NULL));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY - 1);
    rig_free(&made);
}

static void a_reset_fills_one_lane_or_all(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    spend(limiter, HEAVY, 3);
    spend(limiter, LIGHT, 20);
    EXPECT_OK(tollgate_reset(limiter, ID, ID_LEN, HEAVY, TOLLGATE_NOW));
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, LIGHT), 100);
    spend(limiter, HEAVY, 3);
    EXPECT_OK(tollgate_reset(limiter, ID, ID_LEN, HEAVY, NOW + 6 * SECOND));
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), 2); /* Full six seconds from now. */
    EXPECT_OK(tollgate_reset(limiter, ID, ID_LEN, TOLLGATE_NONE, TOLLGATE_NOW));
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, LIGHT), 120);
    spend(limiter, LIGHT, 20);
    EXPECT_OK(tollgate_reset(limiter, ID, ID_LEN, TOLLGATE_NONE, NOW));
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, LIGHT), 120);
    rig_free(&made);
}

static void a_forgotten_agent_starts_afresh(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    bool forgotten = true;
    EXPECT_OK(tollgate_forget(made.limiter, ID, ID_LEN, TOLLGATE_NOW, &forgotten));
    EXPECT_EQ(forgotten, false);
    spend(made.limiter, HEAVY, 3);
    EXPECT_OK(tollgate_forget(made.limiter, ID, ID_LEN, TOLLGATE_NOW, &forgotten));
    EXPECT_EQ(forgotten, true);
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, HEAVY), HEAVY_CAPACITY);
    spend(made.limiter, HEAVY, 1);
    EXPECT_OK(tollgate_forget(made.limiter, ID, ID_LEN, NOW, &forgotten));
    EXPECT_EQ(forgotten, true);
    EXPECT_OK(tollgate_forget(made.limiter, ID, ID_LEN, NOW, &forgotten));
    EXPECT_EQ(forgotten, false);
    EXPECT_EQ(agents(made.limiter), 0);
    rig_free(&made);
}

/* The same misuse of every function of this kind: its status, outputs untouched, nothing changed. */
static void misuse_changes_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    spend(limiter, HEAVY, 3);
    tollgate_lane_state state, before;
    memset(&state, 0x5a, sizeof state);
    state.struct_size = sizeof state;
    before = state;
    bool forgotten = true;
    static const struct {
        tollgate_status status;
        bool no_limiter, no_id;
        size_t id_len;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, true, false, ID_LEN },  { TOLLGATE_STATUS_NULL_POINTER, false, true, ID_LEN },
        { TOLLGATE_STATUS_EMPTY_ID, false, false, 0 },          { TOLLGATE_STATUS_ID_TOO_LONG, false, false, 257 },
        { TOLLGATE_STATUS_ID_TOO_LONG, false, false, SIZE_MAX },
    };
    const uint64_t times[] = { TOLLGATE_NOW, NOW };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        tollgate_status expected = cases[i / 2].status;
        tollgate_limiter *to = cases[i / 2].no_limiter ? NULL : limiter;
        const char *id = cases[i / 2].no_id ? NULL : ID;
        const size_t len = cases[i / 2].id_len;
        const uint64_t now = times[i % 2];
        EXPECT_EQ(tollgate_peek(to, REQUEST(id, len, HEAVY, 1), now, &state), expected);
        EXPECT_EQ(tollgate_refund(to, REQUEST(id, len, HEAVY, 1), now, &state), expected);
        EXPECT_EQ(tollgate_refund(to, REQUEST(id, len, HEAVY, 1), now, NULL), expected);
        EXPECT_EQ(tollgate_reset(to, id, len, HEAVY, now), expected);
        EXPECT_EQ(tollgate_reset(to, id, len, TOLLGATE_NONE, now), expected);
        EXPECT_EQ(tollgate_forget(to, id, len, now, &forgotten), expected);
    }
    const uint64_t now = TOLLGATE_NOW;
    EXPECT_EQ(tollgate_peek(limiter, NULL, now, &state), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_refund(limiter, NULL, now, &state), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_peek(limiter, REQUEST(ID, ID_LEN, HEAVY, 1), now, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_forget(limiter, ID, ID_LEN, now, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_peek(limiter, REQUEST(ID, ID_LEN, LANES, 1), now, &state), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_refund(limiter, REQUEST(ID, ID_LEN, LANES, 1), now, &state), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_reset(limiter, ID, ID_LEN, LANES, now), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_refund(limiter, REQUEST(ID, ID_LEN, HEAVY, 0), now, &state), TOLLGATE_STATUS_ZERO_COST);
    EXPECT_EQ(tollgate_refund(limiter, REQUEST(ID, ID_LEN, HEAVY, 4), now, &state),
              TOLLGATE_STATUS_COST_ABOVE_CAPACITY);
    EXPECT_EQ(memcmp(&state, &before, sizeof state), 0);
    state.struct_size--;
    EXPECT_EQ(tollgate_peek(limiter, REQUEST(ID, ID_LEN, HEAVY, 1), now, &state), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_refund(limiter, REQUEST(ID, ID_LEN, HEAVY, 1), now, &state), TOLLGATE_STATUS_STRUCT_SIZE);
    state.struct_size = 0;
    EXPECT_EQ(tollgate_peek(limiter, REQUEST(ID, ID_LEN, HEAVY, 1), now, &state), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(forgotten, true);
    EXPECT_EQ(tokens_left(limiter, ID, ID_LEN, HEAVY), 0);
    rig_free(&made);
}

int main(void)
{
    peeking_charges_nothing_and_makes_no_agent_known();
    a_larger_struct_is_fine();
    a_refund_gives_back_and_never_beyond_full();
    a_reset_fills_one_lane_or_all();
    a_forgotten_agent_starts_afresh();
    misuse_changes_nothing();
    return expectations_end("test_agent");
}
