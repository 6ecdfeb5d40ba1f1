/* Conduct: denials that count, waits that grow, agents that get no new work and are forgiven. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

static tollgate_verdict counted(const rig *made, uint32_t lane, uint64_t cost)
{
    tollgate_verdict verdict;
    REQUIRE_OK(tollgate_check(made->limiter, REQUEST(ID, ID_LEN, lane, cost), TOLLGATE_NOW,
                              TOLLGATE_COUNTED, &verdict));
    return verdict;
}

static tollgate_conduct_state conduct(const tollgate_limiter *limiter, uint64_t now_ns)
{
    tollgate_conduct_state seen = SIZED(tollgate_conduct_state);
    REQUIRE_OK(tollgate_conduct(limiter, ID, ID_LEN, now_ns, &seen));
    return seen;
}

static void waits_grow_along_the_curve_and_the_longer_wait_applies(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = counted(&made, LIGHT, 120);
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_WARN);
    EXPECT_EQ(verdict.retry_after_ns | verdict.lane_wait_ns | verdict.conduct_wait_ns | verdict.violations_in_a_row, 0);
    EXPECT_EQ(verdict.full_in_ns, 60 * SECOND);
    EXPECT_EQ(verdict.token_ns, SECOND / 2);
    EXPECT_EQ(verdict.capacity, 120);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);

    static const uint64_t curve[] = { 1, 2, 5, 10, 30, 30 };
    for (uint32_t i = 0; i < 6; i++) {
        verdict = counted(&made, LIGHT, 1);
        EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
        EXPECT_EQ(verdict.violations_in_a_row, i + 1);
        EXPECT_EQ(verdict.conduct_wait_ns, curve[i] * SECOND);
        EXPECT_EQ(verdict.lane_wait_ns, SECOND / 2);
        EXPECT_EQ(verdict.retry_after_ns, curve[i] * SECOND);
        EXPECT_EQ(verdict.sustained_abuse, 0);
    }
    EXPECT_EQ(counted(&made, LIGHT, 120).retry_after_ns, 60 * SECOND); /* The lane's wait, which is the longer one. */
    verdict = counted(&made, CLOSED, 1);
    EXPECT_EQ(verdict.retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(verdict.lane_wait_ns, TOLLGATE_NEVER);
    EXPECT_EQ(verdict.conduct_wait_ns, 30 * SECOND);

    /* A denial that is not counted adds no violation. */
    const uint32_t before = conduct(made.limiter, TOLLGATE_NOW).violations_in_a_row;
    EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, LIGHT, 1), TOLLGATE_NOW, 0, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.conduct_wait_ns | verdict.violations_in_a_row, 0);
    EXPECT_EQ(conduct(made.limiter, TOLLGATE_NOW).violations_in_a_row, before);
    rig_free(&made);
}

static void ten_violations_in_five_minutes_are_reported_once(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = SIZED(tollgate_violation);
    for (uint32_t i = 1; i <= 12; i++) {
        EXPECT_OK(tollgate_record_violation(made.limiter, ID, ID_LEN, TOLLGATE_NOW, &violation));
        EXPECT_EQ(violation.violations_in_a_row, i);
        EXPECT_EQ(violation.sustained_abuse, i == 10);
        EXPECT_EQ(violation.wait_ns, violation.step_ns);
        EXPECT_EQ(violation.struct_size, sizeof violation);
    }
    EXPECT_EQ(violation.step_ns, 30 * SECOND);
    rig_free(&made);

    made = rig_new(100, TOLLGATE_ON_FULL_DENY); /* Of denials too. */
    for (uint32_t i = 1; i <= 12; i++)
        EXPECT_EQ(counted(&made, CLOSED, 1).sustained_abuse, i == 10);
    rig_free(&made);
}

static void conduct_is_looked_at_and_forgiven(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = SIZED(tollgate_violation);
    tollgate_conduct_state seen = conduct(made.limiter, TOLLGATE_NOW);
    bool had = true;
    EXPECT_EQ(seen.violations_in_window | seen.violations_in_a_row | seen.rate_limited, 0);
    EXPECT_EQ(seen.window_start_ns, TOLLGATE_NEVER);
    EXPECT_EQ(seen.last_violation_ns, TOLLGATE_NEVER);
    EXPECT_EQ(seen.wait_ns, 0);
    EXPECT_EQ(seen.struct_size, sizeof seen);
    EXPECT_OK(tollgate_reset_violations(made.limiter, ID, ID_LEN, &had));
    EXPECT_EQ(had, false);

    EXPECT_OK(tollgate_record_violation(made.limiter, ID, ID_LEN, NOW, &violation));
    EXPECT_OK(tollgate_record_violation(made.limiter, ID, ID_LEN, NOW + SECOND, &violation));
    EXPECT_EQ(violation.violations_in_a_row, 2);
    seen = conduct(made.limiter, NOW + SECOND);
    EXPECT_EQ(seen.violations_in_window, 2);
    EXPECT_EQ(seen.violations_in_a_row, 2);
    EXPECT_EQ(seen.window_start_ns, NOW);
    EXPECT_EQ(seen.last_violation_ns, NOW + SECOND);
    EXPECT_EQ(seen.wait_ns, 2 * SECOND);
    EXPECT_EQ(conduct(made.limiter, NOW + 60 * SECOND).rate_limited, 1);
    EXPECT_EQ(conduct(made.limiter, NOW + 61 * SECOND).rate_limited, 0); /* Quiet for a minute. */

    EXPECT_OK(tollgate_reset_violations(made.limiter, ID, ID_LEN, &had));
    EXPECT_EQ(had, true);
    EXPECT_EQ(conduct(made.limiter, TOLLGATE_NOW).rate_limited, 0);
    rig_free(&made);
}

static void a_scheduler_learns_which_agents_may_have_new_work(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = SIZED(tollgate_violation);
    EXPECT_OK(tollgate_record_violation(made.limiter, "b", 1, TOLLGATE_NOW, &violation));
    EXPECT_OK(tollgate_record_violation(made.limiter, "d", 1, TOLLGATE_NOW, &violation));
    EXPECT_OK(tollgate_set_exempt(made.limiter, "d", 1, true, NULL));
    const tollgate_id ids[] = { { "a", 1 }, { "b", 1 }, { "c", 0 }, { NULL, 1 }, { "d", 1 }, { "e", SIZE_MAX } };
    static const bool expected[] = { true, false, false, false, true, false };
    bool assignable[6] = { false, true, true, true, false, true };
    EXPECT_OK(tollgate_assignable(made.limiter, ids, 6, TOLLGATE_NOW, assignable));
    EXPECT_EQ(memcmp(assignable, expected, sizeof expected), 0);
    EXPECT_OK(tollgate_assignable(made.limiter, ids, 2, NOW + 61 * SECOND, assignable));
    EXPECT_EQ(assignable[1], true);

    EXPECT_OK(tollgate_assignable(made.limiter, ids, 0, TOLLGATE_NOW, assignable));
    EXPECT_OK(tollgate_assignable(made.limiter, NULL, 0, TOLLGATE_NOW, NULL));
    memset(assignable, true, sizeof assignable);
    EXPECT_EQ(tollgate_assignable(made.limiter, ids, TOLLGATE_BATCH_MAX + 1, TOLLGATE_NOW, assignable),
              TOLLGATE_STATUS_BATCH_SIZE);
    EXPECT_EQ(tollgate_assignable(NULL, ids, 6, TOLLGATE_NOW, assignable), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignable(made.limiter, NULL, 6, TOLLGATE_NOW, assignable), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignable(made.limiter, ids, 6, TOLLGATE_NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(assignable[1]);
    rig_free(&made);
}

static void a_policy_may_enforce_waits(void)
{
    rig made = rig_of(policy_of("[lanes]\n"
                                "http = '10/min'\n"
                                "[conduct]\n"
                                "curve = ['3s', '4s']\n"
                                "quiet = '20s'\n"
                                "abuse = { violations = 2, within = '30s' }\n"
                                "every_denial = true\n"
                                "enforce_wait = true\n"),
                      10, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = SIZED(tollgate_violation);
    EXPECT_OK(tollgate_record_violation(made.limiter, ID, ID_LEN, TOLLGATE_NOW, &violation));
    EXPECT_EQ(violation.step_ns, 3 * SECOND);
    tollgate_verdict verdict = counted(&made, 0, 1); /* Blocked, though its bucket is full. */
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.violations_in_a_row, 2);
    EXPECT_EQ(verdict.sustained_abuse, 1);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 10);
    EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, 0, 1), TOLLGATE_NOW, 0, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_ALLOW); /* Waits apply to counted requests. */
    EXPECT_OK(tollgate_clock_advance(made.clock, counted(&made, 0, 1).retry_after_ns));
    EXPECT_EQ(counted(&made, 0, 1).decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(conduct(made.limiter, NOW + 60 * SECOND).rate_limited, 0); /* Quiet for 20 seconds. */
    rig_free(&made);
}

/* The same misuse of every function of this kind: its status, outputs untouched, nothing recorded. */
static void misuse_records_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_violation violation, violation_before;
    tollgate_conduct_state seen, seen_before;
    memset(&violation, 0x5a, sizeof violation);
    violation.struct_size = sizeof violation;
    violation_before = violation;
    memset(&seen, 0x5a, sizeof seen);
    seen.struct_size = sizeof seen;
    seen_before = seen;
    bool had = true;
    static const struct {
        tollgate_status status;
        bool no_limiter, no_id;
        size_t id_len;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, true, false, ID_LEN }, { TOLLGATE_STATUS_NULL_POINTER, false, true, ID_LEN },
        { TOLLGATE_STATUS_EMPTY_ID, false, false, 0 },         { TOLLGATE_STATUS_ID_TOO_LONG, false, false, 257 },
    };
    const uint64_t times[] = { TOLLGATE_NOW, NOW };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        tollgate_status expected = cases[i / 2].status;
        tollgate_limiter *to = cases[i / 2].no_limiter ? NULL : limiter;
        const char *id = cases[i / 2].no_id ? NULL : ID;
        const size_t len = cases[i / 2].id_len;
        EXPECT_EQ(tollgate_record_violation(to, id, len, times[i % 2], &violation), expected);
        EXPECT_EQ(tollgate_conduct(to, id, len, times[i % 2], &seen), expected);
        EXPECT_EQ(tollgate_reset_violations(to, id, len, &had), expected);
    }
    EXPECT_EQ(tollgate_record_violation(limiter, ID, ID_LEN, TOLLGATE_NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_conduct(limiter, ID, ID_LEN, TOLLGATE_NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_reset_violations(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(memcmp(&violation, &violation_before, sizeof violation), 0);
    EXPECT_EQ(memcmp(&seen, &seen_before, sizeof seen), 0);
    EXPECT_EQ(had, true);
    violation.struct_size--;
    seen.struct_size--;
    EXPECT_EQ(tollgate_record_violation(limiter, ID, ID_LEN, TOLLGATE_NOW, &violation), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_conduct(limiter, ID, ID_LEN, TOLLGATE_NOW, &seen), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(conduct(limiter, TOLLGATE_NOW).violations_in_window, 0);
    rig_free(&made);
}

/* No agent loses its record to a violator. */
static void a_violation_of_a_stranger_finds_no_room_in_a_full_limiter(void)
{
    rig made = rig_new(8, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict;
    tollgate_violation violation = SIZED(tollgate_violation);
    tollgate_status status = TOLLGATE_STATUS_OK;
    for (int agent = 0; agent < 10000 && status == TOLLGATE_STATUS_OK; agent++)
        status = tollgate_check(made.limiter, REQUEST(&agent, sizeof agent, HEAVY, 1), TOLLGATE_NOW, 0, &verdict);
    EXPECT_EQ(status, TOLLGATE_STATUS_FULL);
    int refused = 0;
    for (int agent = 20000; agent < 30000; agent++) {
        status = tollgate_record_violation(made.limiter, &agent, sizeof agent, TOLLGATE_NOW, &violation);
        refused += status == TOLLGATE_STATUS_FULL;
    }
    EXPECT(refused > 9000);
    rig_free(&made);
}

static void a_wait_is_rounded_up_to_whole_steps(void)
{
    EXPECT_EQ(tollgate_wait_ms(SECOND / 2, 1000, 60000), 1000);
    EXPECT_EQ(tollgate_wait_ms(6 * SECOND, 1000, 60000), 6000);
    EXPECT_EQ(tollgate_wait_ms(6 * SECOND + 1, 1000, 60000), 7000);
    EXPECT_EQ(tollgate_wait_ms(0, 1000, 60000), 1000);
    EXPECT_EQ(tollgate_wait_ms(6 * SECOND + 1, 1, 0), 6001);
    EXPECT_EQ(tollgate_wait_ms(TOLLGATE_NEVER, 1000, 60000), 60000);
    EXPECT(tollgate_wait_ms(TOLLGATE_NEVER - 1, 1, 0) > UINT64_MAX / 1000000);
}

int main(void)
{
    waits_grow_along_the_curve_and_the_longer_wait_applies();
    ten_violations_in_five_minutes_are_reported_once();
    conduct_is_looked_at_and_forgiven();
    a_scheduler_learns_which_agents_may_have_new_work();
    a_policy_may_enforce_waits();
    misuse_records_nothing();
    a_violation_of_a_stranger_finds_no_room_in_a_full_limiter();
    a_wait_is_rounded_up_to_whole_steps();
    return expectations_end("test_conduct");
}
