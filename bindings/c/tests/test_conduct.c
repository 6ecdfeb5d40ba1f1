/* Conduct: denials that count, waits that grow, agents that are skipped and forgiven. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

static void waits_grow_along_the_curve_and_the_longer_wait_is_told(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_admission admission = admission_new();
    EXPECT_OK(tollgate_limiter_admit(made.limiter, ID, ID_LEN, LIGHT, 120, &admission));
    EXPECT_EQ(admission.decision, TOLLGATE_DECISION_WARN);
    EXPECT_EQ(admission.retry_after_ns | admission.wait_ns | admission.step_ns | admission.consecutive, 0);
    EXPECT_EQ(admission.full_in_ns, 60 * SECOND);
    EXPECT_EQ(admission.token_ns, SECOND / 2);
    EXPECT_EQ(admission.capacity, 120);
    EXPECT_EQ(admission.struct_size, sizeof admission);
    EXPECT_EQ(tollgate_admission_remaining(&admission), 0);

    static const uint64_t curve[] = { 1, 2, 5, 10, 30, 30 };
    for (uint32_t i = 0; i < 6; i++) {
        EXPECT_OK(tollgate_limiter_admit_at(made.limiter, ID, ID_LEN, LIGHT, 1, NOW, &admission));
        EXPECT_EQ(admission.decision, TOLLGATE_DECISION_DENY);
        EXPECT_EQ(admission.consecutive, i + 1);
        EXPECT_EQ(admission.step_ns, curve[i] * SECOND);
        EXPECT_EQ(admission.wait_ns, curve[i] * SECOND);
        EXPECT_EQ(admission.lane_retry_after_ns, SECOND / 2);
        EXPECT_EQ(admission.retry_after_ns, curve[i] * SECOND);
        EXPECT_EQ(admission.sustained_abuse, 0);
    }
    EXPECT_OK(tollgate_limiter_admit(made.limiter, ID, ID_LEN, LIGHT, 120, &admission));
    EXPECT_EQ(admission.retry_after_ns, 60 * SECOND); /* The lane's wait, which is the longer one. */
    EXPECT_OK(tollgate_limiter_admit(made.limiter, ID, ID_LEN, CLOSED, 1, &admission));
    EXPECT_EQ(admission.retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(admission.lane_retry_after_ns, TOLLGATE_NEVER);
    EXPECT_EQ(tollgate_admission_remaining(NULL), 0);
    rig_free(&made);
}

static void ten_violations_in_five_minutes_are_told_once(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = violation_new();
    for (uint32_t i = 1; i <= 12; i++) {
        EXPECT_OK(tollgate_limiter_record_violation(made.limiter, ID, ID_LEN, &violation));
        EXPECT_EQ(violation.consecutive, i);
        EXPECT_EQ(violation.sustained_abuse, i == 10);
        EXPECT_EQ(violation.wait_ns, violation.step_ns);
        EXPECT_EQ(violation.struct_size, sizeof violation);
    }
    EXPECT_EQ(violation.step_ns, 30 * SECOND);
    rig_free(&made);
}

static void conduct_is_looked_at_forgotten_and_forgiven(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_conduct conduct = conduct_new();
    tollgate_violation violation = violation_new();
    bool limited = true, known = true;
    EXPECT_OK(tollgate_limiter_violations(made.limiter, ID, ID_LEN, &conduct));
    EXPECT_EQ(conduct.violations | conduct.consecutive, 0);
    EXPECT_EQ(conduct.window_start_ns, TOLLGATE_NEVER);
    EXPECT_EQ(conduct.last_violation_ns, TOLLGATE_NEVER);
    EXPECT_EQ(conduct.wait_ns, 0);
    EXPECT_OK(tollgate_limiter_rate_limited(made.limiter, ID, ID_LEN, &limited));
    EXPECT_EQ(limited, false);
    EXPECT_OK(tollgate_limiter_reset_violations(made.limiter, ID, ID_LEN, &known));
    EXPECT_EQ(known, false);

    EXPECT_OK(tollgate_limiter_record_violation_at(made.limiter, ID, ID_LEN, NOW, &violation));
    EXPECT_OK(tollgate_limiter_record_violation_at(made.limiter, ID, ID_LEN, NOW + SECOND, &violation));
    EXPECT_EQ(violation.consecutive, 2);
    EXPECT_OK(tollgate_limiter_violations_at(made.limiter, ID, ID_LEN, NOW + SECOND, &conduct));
    EXPECT_EQ(conduct.violations, 2);
    EXPECT_EQ(conduct.consecutive, 2);
    EXPECT_EQ(conduct.window_start_ns, NOW);
    EXPECT_EQ(conduct.last_violation_ns, NOW + SECOND);
    EXPECT_EQ(conduct.wait_ns, 2 * SECOND);
    EXPECT_OK(tollgate_limiter_rate_limited_at(made.limiter, ID, ID_LEN, NOW + 60 * SECOND, &limited));
    EXPECT_EQ(limited, true);
    EXPECT_OK(tollgate_limiter_rate_limited_at(made.limiter, ID, ID_LEN, NOW + 61 * SECOND, &limited));
    EXPECT_EQ(limited, false); /* Quiet for a minute. */

    EXPECT_OK(tollgate_limiter_reset_violations(made.limiter, ID, ID_LEN, &known));
    EXPECT_EQ(known, true);
    EXPECT_OK(tollgate_limiter_rate_limited(made.limiter, ID, ID_LEN, &limited));
    EXPECT_EQ(limited, false);
    rig_free(&made);
}

static void a_scheduler_is_told_who_may_have_new_work(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = violation_new();
    EXPECT_OK(tollgate_limiter_record_violation(made.limiter, "b", 1, &violation));
    EXPECT_OK(tollgate_limiter_record_violation(made.limiter, "d", 1, &violation));
    EXPECT_OK(tollgate_limiter_exempt(made.limiter, "d", 1, NULL));
    const tollgate_id ids[] = { { "a", 1 }, { "b", 1 }, { "c", 0 }, { NULL, 1 }, { "d", 1 }, { "e", SIZE_MAX } };
    static const bool expected[] = { true, false, false, false, true, false };
    bool assignable[6] = { false, true, true, true, false, true };
    EXPECT_OK(tollgate_limiter_assignable(made.limiter, ids, 6, assignable));
    EXPECT_EQ(memcmp(assignable, expected, sizeof expected), 0);

    EXPECT_OK(tollgate_limiter_assignable(made.limiter, ids, 0, assignable));
    memset(assignable, true, sizeof assignable);
    EXPECT_EQ(tollgate_limiter_assignable(made.limiter, ids, TOLLGATE_BATCH_MAX + 1, assignable),
              TOLLGATE_STATUS_BATCH_SIZE);
    EXPECT_EQ(tollgate_limiter_assignable(NULL, ids, 6, assignable), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_assignable(made.limiter, NULL, 6, assignable), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_assignable(made.limiter, ids, 6, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(assignable[1]);
    rig_free(&made);
}

static void a_policy_may_have_rules_of_its_own(void)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http"), TOLLGATE_LITERAL("10/min")));
    tollgate_conduct_rules rules = conduct_rules_new();
    rules.curve_steps = 2;
    rules.curve_ns[0] = 3 * SECOND;
    rules.curve_ns[1] = 4 * SECOND;
    rules.quiet_ns = 20 * SECOND;
    rules.abuse_violations = 2;
    rules.abuse_window_ns = 30 * SECOND;
    rules.every_denial = 1;
    rules.enforce_wait = 1;
    EXPECT_OK(tollgate_policy_builder_conduct(builder, &rules));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_conduct_rules told = conduct_rules_new();
    EXPECT_OK(tollgate_policy_conduct(policy, &told));
    EXPECT_EQ(memcmp(&told, &rules, sizeof rules), 0);

    rig made = rig_of(policy, 10, TOLLGATE_ON_FULL_DENY);
    tollgate_violation violation = violation_new();
    tollgate_admission admission = admission_new();
    EXPECT_OK(tollgate_limiter_record_violation(made.limiter, ID, ID_LEN, &violation));
    EXPECT_EQ(violation.step_ns, 3 * SECOND);
    EXPECT_OK(tollgate_limiter_admit(made.limiter, ID, ID_LEN, 0, 1, &admission)); /* Blocked, though its bucket is full. */
    EXPECT_EQ(admission.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(admission.consecutive, 2);
    EXPECT_EQ(tollgate_admission_remaining(&admission), 10);
    EXPECT_OK(tollgate_clock_advance(made.clock, admission.retry_after_ns));
    EXPECT_OK(tollgate_limiter_admit(made.limiter, ID, ID_LEN, 0, 1, &admission));
    EXPECT_EQ(admission.decision, TOLLGATE_DECISION_ALLOW);
    rig_free(&made);

    /* Zero is the default, and what makes no sense is refused. */
    rules = conduct_rules_new();
    EXPECT_OK(tollgate_policy_builder_conduct(builder, &rules));
    policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    EXPECT_OK(tollgate_policy_conduct(policy, &told));
    EXPECT_EQ(told.curve_steps, 0);
    EXPECT_EQ(told.curve_ns[0], 0);
    EXPECT_EQ(told.quiet_ns, 60 * SECOND);
    EXPECT_EQ(told.abuse_violations, 10);
    EXPECT_EQ(told.abuse_window_ns, 300 * SECOND);
    EXPECT_EQ(told.every_denial | told.enforce_wait | told.reserved, 0);
    told.struct_size--;
    EXPECT_EQ(tollgate_policy_conduct(policy, &told), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_policy_conduct(policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_conduct(NULL, &rules), TOLLGATE_STATUS_NULL_POINTER);
    tollgate_policy_free(policy);

    EXPECT_EQ(tollgate_policy_builder_conduct(NULL, &rules), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_conduct(builder, NULL), TOLLGATE_STATUS_NULL_POINTER);
    rules.struct_size--;
    EXPECT_EQ(tollgate_policy_builder_conduct(builder, &rules), TOLLGATE_STATUS_STRUCT_SIZE);
    rules = conduct_rules_new();
    rules.curve_steps = TOLLGATE_CURVE_STEPS_MAX + 1;
    EXPECT_EQ(tollgate_policy_builder_conduct(builder, &rules), TOLLGATE_STATUS_INVALID_OPTION);
    rules = conduct_rules_new();
    rules.every_denial = 2;
    EXPECT_EQ(tollgate_policy_builder_conduct(builder, &rules), TOLLGATE_STATUS_INVALID_OPTION);
    rules = conduct_rules_new();
    rules.enforce_wait = 2;
    EXPECT_EQ(tollgate_policy_builder_conduct(builder, &rules), TOLLGATE_STATUS_INVALID_OPTION);
    rules = conduct_rules_new();
    rules.reserved = 1;
    EXPECT_EQ(tollgate_policy_builder_conduct(builder, &rules), TOLLGATE_STATUS_INVALID_OPTION);
    rules = conduct_rules_new();
    rules.quiet_ns = UINT64_MAX;
    EXPECT_OK(tollgate_policy_builder_conduct(builder, &rules));
    tollgate_error error = error_new();
    policy = NULL;
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT(strstr(error.message, "a quiet period of") != NULL && policy == NULL);
    tollgate_policy_builder_free(builder);
}

/* The same misuse of every function of this kind: a status, outputs as they were, nothing recorded. */
static void misuse_records_nothing(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_admission admission, admission_before;
    tollgate_violation violation, violation_before;
    tollgate_conduct conduct, conduct_before;
    memset(&admission, 0x5a, sizeof admission);
    admission.struct_size = sizeof admission;
    admission_before = admission;
    memset(&violation, 0x5a, sizeof violation);
    violation.struct_size = sizeof violation;
    violation_before = violation;
    memset(&conduct, 0x5a, sizeof conduct);
    conduct.struct_size = sizeof conduct;
    conduct_before = conduct;
    bool flag = true;
    static const struct {
        tollgate_status status;
        bool no_limiter, no_id;
        size_t id_len;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, true, false, ID_LEN }, { TOLLGATE_STATUS_NULL_POINTER, false, true, ID_LEN },
        { TOLLGATE_STATUS_EMPTY_ID, false, false, 0 },         { TOLLGATE_STATUS_ID_TOO_LONG, false, false, 257 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tollgate_status expected = cases[i].status;
        tollgate_limiter *to = cases[i].no_limiter ? NULL : limiter;
        const char *id = cases[i].no_id ? NULL : ID;
        size_t len = cases[i].id_len;
        EXPECT_EQ(tollgate_limiter_admit(to, id, len, CLOSED, 1, &admission), expected);
        EXPECT_EQ(tollgate_limiter_admit_at(to, id, len, CLOSED, 1, NOW, &admission), expected);
        EXPECT_EQ(tollgate_limiter_admit_as(to, id, len, 0, CLOSED, 1, &admission), expected);
        EXPECT_EQ(tollgate_limiter_admit_as_at(to, id, len, 0, CLOSED, 1, NOW, &admission), expected);
        EXPECT_EQ(tollgate_limiter_record_violation(to, id, len, &violation), expected);
        EXPECT_EQ(tollgate_limiter_record_violation_at(to, id, len, NOW, &violation), expected);
        EXPECT_EQ(tollgate_limiter_violations(to, id, len, &conduct), expected);
        EXPECT_EQ(tollgate_limiter_violations_at(to, id, len, NOW, &conduct), expected);
        EXPECT_EQ(tollgate_limiter_rate_limited(to, id, len, &flag), expected);
        EXPECT_EQ(tollgate_limiter_rate_limited_at(to, id, len, NOW, &flag), expected);
        EXPECT_EQ(tollgate_limiter_reset_violations(to, id, len, &flag), expected);
    }
    EXPECT_EQ(tollgate_limiter_admit(limiter, ID, ID_LEN, LANES, 1, &admission), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_admit(limiter, ID, ID_LEN, HEAVY, 0, &admission), TOLLGATE_STATUS_ZERO_COST);
    EXPECT_EQ(tollgate_limiter_admit(limiter, ID, ID_LEN, HEAVY, 4, &admission), TOLLGATE_STATUS_COST_ABOVE_CAPACITY);
    EXPECT_EQ(tollgate_limiter_admit_as(limiter, ID, ID_LEN, 1, HEAVY, 1, &admission), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_admit_as_at(limiter, ID, ID_LEN, 65536, HEAVY, 1, NOW, &admission),
              TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_admit(limiter, ID, ID_LEN, HEAVY, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_record_violation(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_violations(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_rate_limited(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_reset_violations(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(memcmp(&admission, &admission_before, sizeof admission), 0);
    EXPECT_EQ(memcmp(&violation, &violation_before, sizeof violation), 0);
    EXPECT_EQ(memcmp(&conduct, &conduct_before, sizeof conduct), 0);
    EXPECT_EQ(flag, true);
    admission.struct_size--;
    violation.struct_size--;
    conduct.struct_size--;
    EXPECT_EQ(tollgate_limiter_admit(limiter, ID, ID_LEN, CLOSED, 1, &admission), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_limiter_record_violation(limiter, ID, ID_LEN, &violation), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_limiter_violations(limiter, ID, ID_LEN, &conduct), TOLLGATE_STATUS_STRUCT_SIZE);
    conduct = conduct_new();
    EXPECT_OK(tollgate_limiter_violations(limiter, ID, ID_LEN, &conduct));
    EXPECT_EQ(conduct.violations, 0);
    rig_free(&made);
}

/* Nobody loses a record to a violator. */
static void a_violation_of_a_stranger_finds_no_room_in_a_full_limiter(void)
{
    rig made = rig_new(8, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict = verdict_new();
    tollgate_violation violation = violation_new();
    tollgate_status status = TOLLGATE_STATUS_OK;
    for (int agent = 0; agent < 10000 && status == TOLLGATE_STATUS_OK; agent++)
        status = tollgate_limiter_check(made.limiter, &agent, sizeof agent, HEAVY, 1, &verdict);
    EXPECT_EQ(status, TOLLGATE_STATUS_FULL);
    int strangers = 0;
    for (int agent = 20000; agent < 30000; agent++)
        strangers += tollgate_limiter_record_violation(made.limiter, &agent, sizeof agent, &violation) == TOLLGATE_STATUS_FULL;
    EXPECT(strangers > 9000);
    rig_free(&made);
}

static void the_hub_is_told_whole_seconds(void)
{
    EXPECT_EQ(tollgate_hub_retry_after_ms(SECOND / 2), 1000);
    EXPECT_EQ(tollgate_hub_retry_after_ms(6 * SECOND + 1), 7000);
    EXPECT_EQ(tollgate_hub_retry_after_ms(TOLLGATE_NEVER), 60000);
}

int main(void)
{
    waits_grow_along_the_curve_and_the_longer_wait_is_told();
    ten_violations_in_five_minutes_are_told_once();
    conduct_is_looked_at_forgotten_and_forgiven();
    a_scheduler_is_told_who_may_have_new_work();
    a_policy_may_have_rules_of_its_own();
    misuse_records_nothing();
    a_violation_of_a_stranger_finds_no_room_in_a_full_limiter();
    the_hub_is_told_whole_seconds();
    return expectations_end("test_conduct");
}
