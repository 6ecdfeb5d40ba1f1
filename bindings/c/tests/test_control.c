/* What an operator decides: plans, overrides, exemptions, many at once, a new policy. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

enum { WS_HEAVY, HTTP_HEAVY, HTTP_LIGHT };
enum { DEFAULT, FREE, PRO };

/* Three lanes and two plans. `heavy` is the number of tokens a minute. */
static tollgate_policy *plans(const char *heavy, int32_t on_change)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("ws/heavy"), heavy, strlen(heavy)));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/heavy"), TOLLGATE_LITERAL("20/minute")));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/light"), TOLLGATE_LITERAL("120/minute")));
    REQUIRE_OK(tollgate_policy_builder_plan(builder, TOLLGATE_LITERAL("free")));
    REQUIRE_OK(tollgate_policy_builder_plan(builder, TOLLGATE_LITERAL("pro")));
    REQUIRE_OK(tollgate_policy_builder_plan_lane(builder, TOLLGATE_LITERAL("pro"), TOLLGATE_LITERAL("ws/heavy"),
                                                 TOLLGATE_LITERAL("100/minute")));
    REQUIRE_OK(tollgate_policy_builder_plan_lane_bucket(builder, TOLLGATE_LITERAL("free"), TOLLGATE_LITERAL("http/heavy"),
                                                        5, 60 * SECOND, 2));
    REQUIRE_OK(tollgate_policy_builder_on_change(builder, on_change));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_policy_builder_free(builder);
    return policy;
}

static rig plans_rig(void)
{
    return rig_of(plans("10/minute", TOLLGATE_ON_CHANGE_KEEP_DEBT), 100, TOLLGATE_ON_FULL_DENY);
}

static uint64_t capacity(const tollgate_limiter *limiter, uint32_t lane)
{
    tollgate_lane_status status = lane_status_new();
    REQUIRE_OK(tollgate_limiter_status(limiter, ID, ID_LEN, lane, &status));
    return status.capacity;
}

static void a_plan_holds_for_the_next_check_until_it_is_taken_away(void)
{
    rig made = plans_rig();
    uint32_t plan = 77;
    EXPECT_OK(tollgate_limiter_plan(made.limiter, TOLLGATE_LITERAL("pro"), &plan));
    EXPECT_EQ(plan, PRO);
    EXPECT_OK(tollgate_limiter_assign(made.limiter, ID, ID_LEN, plan, NULL));
    EXPECT_EQ(capacity(made.limiter, WS_HEAVY), 100);
    EXPECT_EQ(capacity(made.limiter, HTTP_HEAVY), 20);
    EXPECT_TEXT("100/minute", tollgate_limiter_limit_of, made.limiter, ID, ID_LEN, WS_HEAVY);
    bool known = true;
    EXPECT_OK(tollgate_limiter_forget(made.limiter, ID, ID_LEN, &known));
    EXPECT_EQ(capacity(made.limiter, WS_HEAVY), 100);
    EXPECT_OK(tollgate_limiter_unassign(made.limiter, ID, ID_LEN, NULL));
    EXPECT_EQ(capacity(made.limiter, WS_HEAVY), 10);

    plan = 77;
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, TOLLGATE_LITERAL("gold"), &plan), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, "\xff", 1, &plan), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, "pro", SIZE_MAX, &plan), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, NULL, 3, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_plan(NULL, "pro", 3, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, "pro", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(plan, 77);
    tollgate_error error = error_new();
    EXPECT_EQ(tollgate_limiter_assign(made.limiter, ID, ID_LEN, 3, &error), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(strcmp(error.message, "there is no plan 3; this policy has 3, numbered from 0"), 0);
    EXPECT_EQ(tollgate_limiter_assign(made.limiter, ID, ID_LEN, 65536, NULL), TOLLGATE_STATUS_UNKNOWN_PLAN);
    rig_free(&made);
}

/* For what is known only with the request. */
static void a_plan_may_stand_in_for_an_assignment(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    tollgate_verdict verdict = verdict_new();
    tollgate_lane_status status = lane_status_new();
    tollgate_admission admission = admission_new();
    EXPECT_OK(tollgate_limiter_check_as(limiter, ID, ID_LEN, PRO, WS_HEAVY, 10, &verdict));
    EXPECT_EQ(verdict.capacity, 100);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 90);
    EXPECT_OK(tollgate_limiter_check_as_at(limiter, ID, ID_LEN, PRO, WS_HEAVY, 10, NOW, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 80);
    EXPECT_OK(tollgate_limiter_status_as(limiter, ID, ID_LEN, PRO, WS_HEAVY, &status));
    EXPECT_EQ(status.remaining, 80);
    EXPECT_OK(tollgate_limiter_status_as_at(limiter, ID, ID_LEN, PRO, WS_HEAVY, NOW + 6 * SECOND, &status));
    EXPECT_EQ(status.remaining, 90);
    EXPECT_OK(tollgate_limiter_refund_as(limiter, ID, ID_LEN, PRO, WS_HEAVY, 5, &status));
    EXPECT_EQ(status.remaining, 85);
    EXPECT_OK(tollgate_limiter_refund_as_at(limiter, ID, ID_LEN, PRO, WS_HEAVY, 5, NOW, &status));
    EXPECT_EQ(status.remaining, 90);
    EXPECT_OK(tollgate_limiter_admit_as(limiter, ID, ID_LEN, PRO, WS_HEAVY, 40, &admission));
    EXPECT_EQ(tollgate_admission_remaining(&admission), 50);
    EXPECT_OK(tollgate_limiter_admit_as_at(limiter, ID, ID_LEN, PRO, WS_HEAVY, 51, NOW, &admission));
    EXPECT_EQ(admission.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(admission.consecutive, 0); /* It was told no wait before, so it broke none. */

    /* An assignment of its own comes first. */
    EXPECT_OK(tollgate_limiter_assign(limiter, ID, ID_LEN, FREE, NULL));
    EXPECT_OK(tollgate_limiter_status_as(limiter, ID, ID_LEN, PRO, HTTP_HEAVY, &status));
    EXPECT_EQ(status.capacity, 2);

    EXPECT_EQ(tollgate_limiter_check_as(limiter, ID, ID_LEN, 3, WS_HEAVY, 1, &verdict), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_check_as_at(limiter, ID, ID_LEN, UINT32_MAX, WS_HEAVY, 1, NOW, &verdict),
              TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_status_as(limiter, ID, ID_LEN, 3, WS_HEAVY, &status), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_status_as_at(limiter, ID, ID_LEN, 65536, 0, NOW, &status), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_refund_as(limiter, ID, ID_LEN, 3, WS_HEAVY, 1, &status), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_refund_as_at(limiter, ID, ID_LEN, 65536, 0, 1, NOW, &status), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_check_as(limiter, ID, ID_LEN, PRO, 3, 1, &verdict), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_check_as(limiter, NULL, 1, PRO, 0, 1, &verdict), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_check_as(limiter, ID, ID_LEN, PRO, 0, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_status_as(limiter, ID, ID_LEN, PRO, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_refund_as(NULL, ID, ID_LEN, PRO, 0, 1, &status), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_refund_as(limiter, ID, ID_LEN, PRO, 0, 0, &status), TOLLGATE_STATUS_ZERO_COST);
    rig_free(&made);
}

static void an_override_is_for_a_lane_or_for_a_tier_in_every_channel(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    EXPECT_OK(tollgate_limiter_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("heavy"), TOLLGATE_LITERAL("7/minute"),
                                            NULL));
    EXPECT_EQ(capacity(limiter, WS_HEAVY), 7);
    EXPECT_EQ(capacity(limiter, HTTP_HEAVY), 7);
    EXPECT_EQ(capacity(limiter, HTTP_LIGHT), 120);
    EXPECT_OK(tollgate_limiter_set_override_bucket(limiter, ID, ID_LEN, TOLLGATE_LITERAL("ws/heavy"), 1, SECOND, 33, NULL));
    EXPECT_EQ(capacity(limiter, WS_HEAVY), 33);
    EXPECT_TEXT("1/second burst 33", tollgate_limiter_limit_of, limiter, ID, ID_LEN, WS_HEAVY);
    EXPECT_OK(tollgate_limiter_remove_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("ws/heavy"), NULL));
    EXPECT_EQ(capacity(limiter, WS_HEAVY), 10);
    EXPECT_EQ(capacity(limiter, HTTP_HEAVY), 7);
    EXPECT_OK(tollgate_limiter_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("http/light"), TOLLGATE_LITERAL("deny"),
                                            NULL));
    EXPECT_EQ(capacity(limiter, HTTP_LIGHT), 0);
    EXPECT_OK(tollgate_limiter_remove_overrides(limiter, ID, ID_LEN, NULL));
    EXPECT_EQ(capacity(limiter, HTTP_HEAVY), 20);
    EXPECT_EQ(capacity(limiter, HTTP_LIGHT), 120);

    tollgate_error error = error_new();
    EXPECT_EQ(tollgate_limiter_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("huge"), TOLLGATE_LITERAL("1/s"), &error),
              TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(strcmp(error.message, "there is no lane or tier \"huge\"; the lanes are ws/heavy, http/heavy, http/light"), 0);
    EXPECT_EQ(tollgate_limiter_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("heavy"), TOLLGATE_LITERAL("0/s"), &error),
              TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(strstr(error.message, "a rate or burst of 0") == error.message);
    EXPECT_EQ(tollgate_limiter_set_override_bucket(limiter, ID, ID_LEN, TOLLGATE_LITERAL("heavy"), 1, 0, 1, NULL),
              TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT_EQ(tollgate_limiter_set_override_bucket(limiter, ID, ID_LEN, NULL, 5, 1, 1, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_set_override(limiter, ID, ID_LEN, NULL, 5, "1/s", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_set_override(limiter, ID, ID_LEN, "heavy", 5, NULL, 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_set_override(limiter, ID, ID_LEN, "\xff", 1, "1/s", 3, NULL), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_limiter_set_override(limiter, ID, ID_LEN, "heavy", 5, "1/s", SIZE_MAX, NULL),
              TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_remove_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("huge"), NULL),
              TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_remove_override(limiter, ID, ID_LEN, NULL, 4, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(capacity(limiter, WS_HEAVY), 10);
    rig_free(&made);
}

static void an_exempt_agent_is_never_limited(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    bool exempt = true;
    EXPECT_OK(tollgate_limiter_is_exempt(limiter, ID, ID_LEN, &exempt));
    EXPECT_EQ(exempt, false);
    EXPECT_OK(tollgate_limiter_exempt(limiter, ID, ID_LEN, NULL));
    EXPECT_OK(tollgate_limiter_is_exempt(limiter, ID, ID_LEN, &exempt));
    EXPECT_EQ(exempt, true);
    tollgate_verdict verdict = verdict_new();
    EXPECT_OK(tollgate_limiter_check(limiter, ID, ID_LEN, WS_HEAVY, 1000000, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_EXEMPT);
    tollgate_lane_status status = lane_status_new();
    EXPECT_OK(tollgate_limiter_status(limiter, ID, ID_LEN, WS_HEAVY, &status));
    EXPECT_EQ(status.exempt, 1);
    EXPECT_EQ(status.remaining, UINT64_MAX);
    EXPECT_TEXT("", tollgate_limiter_limit_of, limiter, ID, ID_LEN, WS_HEAVY);
    EXPECT_OK(tollgate_limiter_unexempt(limiter, ID, ID_LEN, NULL));
    EXPECT_OK(tollgate_limiter_status(limiter, ID, ID_LEN, WS_HEAVY, &status));
    EXPECT_EQ(status.exempt, 0);
    EXPECT_EQ(status.remaining, 10);
    EXPECT_EQ(tollgate_limiter_is_exempt(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    rig_free(&made);
}

/* The same misuse of every control call about an agent. */
static void misuse_decides_nothing(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    bool exempt = true;
    char text[8] = "?";
    size_t text_len = 77;
    tollgate_assignment *assignment = NULL;
    static const struct {
        tollgate_status status;
        bool no_limiter, no_id, no_error_size;
        size_t id_len;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, true, false, false, ID_LEN },
        { TOLLGATE_STATUS_NULL_POINTER, false, true, false, ID_LEN },
        { TOLLGATE_STATUS_EMPTY_ID, false, false, false, 0 },
        { TOLLGATE_STATUS_ID_TOO_LONG, false, false, false, 257 },
        { TOLLGATE_STATUS_STRUCT_SIZE, false, false, true, ID_LEN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tollgate_status expected = cases[i].status;
        tollgate_limiter *to = cases[i].no_limiter ? NULL : limiter;
        const char *id = cases[i].no_id ? NULL : ID;
        size_t len = cases[i].id_len;
        tollgate_error error = error_new();
        if (cases[i].no_error_size)
            error.struct_size--;
        EXPECT_EQ(tollgate_limiter_assign(to, id, len, PRO, &error), expected);
        EXPECT_EQ(tollgate_limiter_unassign(to, id, len, &error), expected);
        EXPECT_EQ(tollgate_limiter_set_override(to, id, len, "heavy", 5, "1/s", 3, &error), expected);
        EXPECT_EQ(tollgate_limiter_set_override_bucket(to, id, len, "heavy", 5, 1, SECOND, 1, &error), expected);
        EXPECT_EQ(tollgate_limiter_remove_override(to, id, len, "heavy", 5, &error), expected);
        EXPECT_EQ(tollgate_limiter_remove_overrides(to, id, len, &error), expected);
        EXPECT_EQ(tollgate_limiter_exempt(to, id, len, &error), expected);
        EXPECT_EQ(tollgate_limiter_unexempt(to, id, len, &error), expected);
        if (cases[i].no_error_size) {
            EXPECT_EQ(error.message[0], 0);
            continue;
        }
        EXPECT_EQ(error.status, expected);
        EXPECT(error.message[0] != 0);
        EXPECT_EQ(tollgate_limiter_is_exempt(to, id, len, &exempt), expected);
        EXPECT_EQ(tollgate_limiter_limit_of(to, id, len, WS_HEAVY, text, sizeof text, &text_len), expected);
        EXPECT_EQ(tollgate_limiter_assignment(to, id, len, &assignment), expected);
    }
    EXPECT_EQ(tollgate_limiter_limit_of(limiter, ID, ID_LEN, 3, text, sizeof text, &text_len), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_assignment(limiter, ID, ID_LEN, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(exempt && text[0] == '?' && text_len == 77 && assignment == NULL);
    tollgate_assignments *all = NULL;
    size_t count = 77;
    REQUIRE_OK(tollgate_limiter_assignments(limiter, &all));
    EXPECT_OK(tollgate_assignments_count(all, &count));
    EXPECT_EQ(count, 0);
    tollgate_assignments_free(all);
    rig_free(&made);
}

static void an_assignment_tells_what_was_decided(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    tollgate_assignment *assignment = NULL;
    bool exempt = true;
    size_t count = 77;
    REQUIRE_OK(tollgate_limiter_assignment(limiter, ID, ID_LEN, &assignment));
    EXPECT_TEXT("", tollgate_assignment_plan, assignment);
    EXPECT_OK(tollgate_assignment_exempt(assignment, &exempt));
    EXPECT_EQ(exempt, false);
    EXPECT_OK(tollgate_assignment_override_count(assignment, &count));
    EXPECT_EQ(count, 0);
    tollgate_assignment_free(assignment);

    REQUIRE_OK(tollgate_limiter_assign(limiter, ID, ID_LEN, PRO, NULL));
    REQUIRE_OK(tollgate_limiter_exempt(limiter, ID, ID_LEN, NULL));
    REQUIRE_OK(tollgate_limiter_set_override(limiter, ID, ID_LEN, "heavy", 5, "7/min", 5, NULL));
    REQUIRE_OK(tollgate_limiter_assignment(limiter, ID, ID_LEN, &assignment));
    EXPECT_TEXT("pro", tollgate_assignment_plan, assignment);
    EXPECT_OK(tollgate_assignment_exempt(assignment, &exempt));
    EXPECT_EQ(exempt, true);
    EXPECT_OK(tollgate_assignment_override_count(assignment, &count));
    EXPECT_EQ(count, 2);
    EXPECT_TEXT("http/heavy", tollgate_assignment_override_lane, assignment, 0);
    EXPECT_TEXT("ws/heavy", tollgate_assignment_override_lane, assignment, 1);
    EXPECT_TEXT("7/minute", tollgate_assignment_override_limit, assignment, 1);
    char text[8] = "?";
    EXPECT_EQ(tollgate_assignment_override_lane(assignment, 2, text, 8, &count), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_assignment_override_limit(assignment, SIZE_MAX, text, 8, &count), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_assignment_override_lane(NULL, 0, text, 8, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_override_limit(NULL, 0, text, 8, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_plan(NULL, text, 8, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_exempt(NULL, &exempt), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_exempt(assignment, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_override_count(NULL, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_override_count(assignment, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && count == 2 && exempt);
    tollgate_assignment_free(assignment);
    tollgate_assignment_free(NULL);
    rig_free(&made);
}

static void many_agents_are_decided_about_at_once_or_not_at_all(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    tollgate_assignment *assignment = NULL;
    tollgate_assignments *all = NULL;
    bool known = false;
    REQUIRE_OK(tollgate_assignment_new(&assignment));
    EXPECT_OK(tollgate_assignment_set_plan(assignment, TOLLGATE_LITERAL("pro")));
    EXPECT_OK(tollgate_assignment_set_override(assignment, TOLLGATE_LITERAL("ws/heavy"), TOLLGATE_LITERAL("7/min"), NULL));
    EXPECT_OK(tollgate_assignment_set_override(assignment, TOLLGATE_LITERAL("ws/heavy"), TOLLGATE_LITERAL("8/min"), NULL));
    EXPECT_OK(tollgate_assignment_set_override(assignment, TOLLGATE_LITERAL("x"), TOLLGATE_LITERAL("1/s"), NULL));
    EXPECT_OK(tollgate_assignment_remove_override(assignment, TOLLGATE_LITERAL("x"), &known));
    EXPECT_EQ(known, true);
    EXPECT_OK(tollgate_assignment_remove_override(assignment, TOLLGATE_LITERAL("x"), &known));
    EXPECT_EQ(known, false);
    REQUIRE_OK(tollgate_assignments_new(&all));
    EXPECT_OK(tollgate_assignments_add(all, "b\0\xff", 3, assignment));
    EXPECT_OK(tollgate_assignment_set_exempt(assignment, true));
    EXPECT_OK(tollgate_assignments_add(all, "a", 1, assignment));
    EXPECT_OK(tollgate_limiter_set_assignments(limiter, all, NULL));
    tollgate_assignments_free(all);

    REQUIRE_OK(tollgate_limiter_assignments(limiter, &all));
    size_t count = 0, len = 77;
    char id[TOLLGATE_ID_BYTES_MAX] = "?";
    EXPECT_OK(tollgate_assignments_count(all, &count));
    EXPECT_EQ(count, 2);
    EXPECT_OK(tollgate_assignments_id(all, 1, NULL, 0, &len));
    EXPECT_EQ(len, 3);
    EXPECT_EQ(tollgate_assignments_id(all, 1, id, 2, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_assignments_id(all, 2, id, sizeof id, &len), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(id[0], '?');
    EXPECT_OK(tollgate_assignments_id(all, 1, id, 3, &len));
    EXPECT_EQ(memcmp(id, "b\0\xff", 3), 0);
    tollgate_assignment *told = NULL;
    EXPECT_EQ(tollgate_assignments_get(all, 2, &told), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT(told == NULL);
    REQUIRE_OK(tollgate_assignments_get(all, 1, &told));
    EXPECT_TEXT("pro", tollgate_assignment_plan, told);
    EXPECT_TEXT("8/minute", tollgate_assignment_override_limit, told, 0);
    tollgate_assignment_free(told);
    tollgate_assignments_free(all);

    /* The second makes no sense, so the first is not in force either. */
    tollgate_error error = error_new();
    REQUIRE_OK(tollgate_assignments_new(&all));
    EXPECT_OK(tollgate_assignments_add(all, ID, ID_LEN, assignment));
    EXPECT_OK(tollgate_assignment_set_plan(assignment, TOLLGATE_LITERAL("gold")));
    EXPECT_OK(tollgate_assignments_add(all, "c", 1, assignment));
    EXPECT_EQ(tollgate_limiter_set_assignments(limiter, all, &error), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(strcmp(error.message, "agent \"c\": there is no plan \"gold\"; the plans are default, free, pro"), 0);
    EXPECT_EQ(capacity(limiter, WS_HEAVY), 10);
    EXPECT_OK(tollgate_assignment_set_plan(assignment, "", 0)); /* None. */
    EXPECT_OK(tollgate_assignment_set_override(assignment, TOLLGATE_LITERAL("y"), TOLLGATE_LITERAL("1/s"), NULL));
    EXPECT_OK(tollgate_assignments_add(all, "c", 1, assignment));
    EXPECT_EQ(tollgate_limiter_set_assignments(limiter, all, NULL), TOLLGATE_STATUS_UNKNOWN_PLAN);

    EXPECT_EQ(tollgate_limiter_set_assignments(NULL, all, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_set_assignments(limiter, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_assignments(NULL, &all), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_assignments(limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_add(all, "", 0, assignment), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_assignments_add(all, "a", 257, assignment), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_assignments_add(all, NULL, 1, assignment), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_add(NULL, "a", 1, assignment), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_add(all, "a", 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_count(NULL, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_count(all, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_id(NULL, 0, id, sizeof id, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_id(all, 0, NULL, 5, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_id(all, 0, id, sizeof id, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_get(NULL, 0, &told), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_get(all, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignments_new(NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_new(NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_plan(NULL, "pro", 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_plan(assignment, NULL, 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_plan(assignment, "\xff", 1), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_assignment_set_exempt(NULL, true), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_override(NULL, "a", 1, "1/s", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_override(assignment, NULL, 1, "1/s", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_override(assignment, "a", 1, NULL, 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_set_override(assignment, "a", 1, "1/", 2, &error), TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(strstr(error.message, "is not a limit") != NULL);
    EXPECT_EQ(tollgate_assignment_remove_override(NULL, "a", 1, &known), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_remove_override(assignment, NULL, 1, &known), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment_remove_override(assignment, "a", 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    tollgate_assignments_free(all);
    tollgate_assignments_free(NULL);
    tollgate_assignment_free(assignment);
    rig_free(&made);
}

static void overrides_are_for_65000_agents_at_most(void)
{
    rig made = plans_rig();
    tollgate_assignment *assignment = NULL;
    tollgate_assignments *all = NULL;
    REQUIRE_OK(tollgate_assignment_new(&assignment));
    REQUIRE_OK(tollgate_assignment_set_override(assignment, TOLLGATE_LITERAL("ws/heavy"), TOLLGATE_LITERAL("7/min"), NULL));
    REQUIRE_OK(tollgate_assignments_new(&all));
    for (int agent = 0; agent <= TOLLGATE_OVERRIDES_MAX; agent++)
        REQUIRE_OK(tollgate_assignments_add(all, &agent, sizeof agent, assignment));
    EXPECT_EQ(tollgate_limiter_set_assignments(made.limiter, all, NULL), TOLLGATE_STATUS_TOO_MANY_OVERRIDES);
    tollgate_assignments_free(all);
    tollgate_assignment_free(assignment);
    rig_free(&made);
}

static void another_policy_changes_the_numbers_and_keeps_debt_or_not(void)
{
    for (int32_t on_change = TOLLGATE_ON_CHANGE_KEEP_DEBT; on_change <= TOLLGATE_ON_CHANGE_RESET; on_change++) {
        rig made = plans_rig();
        tollgate_verdict verdict = verdict_new();
        EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, WS_HEAVY, 5, &verdict)); /* 30 seconds of debt. */
        tollgate_policy *policy = plans("20/minute", on_change);
        tollgate_on_change told = TOLLGATE_ON_CHANGE_KEEP_DEBT;
        EXPECT_OK(tollgate_policy_on_change(policy, &told));
        EXPECT_EQ(told, on_change);
        EXPECT_OK(tollgate_limiter_replace_policy(made.limiter, policy, NULL));
        tollgate_policy_free(policy);
        EXPECT_EQ(capacity(made.limiter, WS_HEAVY), 20);
        EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, WS_HEAVY), on_change == TOLLGATE_ON_CHANGE_RESET ? 20 : 10);

        tollgate_error error = error_new();
        policy = rig_policy();
        EXPECT_EQ(tollgate_limiter_replace_policy(made.limiter, policy, &error), TOLLGATE_STATUS_OTHER_LANES);
        EXPECT(strstr(error.message, "ws/heavy, http/heavy, http/light") != NULL);
        EXPECT_EQ(tollgate_limiter_replace_policy(NULL, policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
        EXPECT_EQ(tollgate_limiter_replace_policy(made.limiter, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
        error.struct_size--;
        EXPECT_EQ(tollgate_limiter_replace_policy(made.limiter, policy, &error), TOLLGATE_STATUS_STRUCT_SIZE);
        EXPECT_EQ(tollgate_policy_on_change(NULL, &told), TOLLGATE_STATUS_NULL_POINTER);
        EXPECT_EQ(tollgate_policy_on_change(policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
        tollgate_policy_free(policy);
        rig_free(&made);
    }

    rig made = plans_rig();
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("ws/heavy"), TOLLGATE_LITERAL("1/s")));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/heavy"), TOLLGATE_LITERAL("1/s")));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/light"), TOLLGATE_LITERAL("1/s")));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_policy_builder_free(builder);
    EXPECT_EQ(tollgate_limiter_replace_policy(made.limiter, policy, NULL), TOLLGATE_STATUS_PLAN_MISSING);
    tollgate_policy_free(policy);
    rig_free(&made);
}

int main(void)
{
    a_plan_holds_for_the_next_check_until_it_is_taken_away();
    a_plan_may_stand_in_for_an_assignment();
    an_override_is_for_a_lane_or_for_a_tier_in_every_channel();
    an_exempt_agent_is_never_limited();
    misuse_decides_nothing();
    an_assignment_tells_what_was_decided();
    many_agents_are_decided_about_at_once_or_not_at_all();
    overrides_are_for_65000_agents_at_most();
    another_policy_changes_the_numbers_and_keeps_debt_or_not();
    return expectations_end("test_control");
}
