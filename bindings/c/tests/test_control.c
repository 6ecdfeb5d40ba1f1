/* What an operator decides: plans, overrides, exemptions, many at once, a new policy. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

enum { WS_HEAVY, HTTP_HEAVY, HTTP_LIGHT };
enum { DEFAULT, FREE, PRO };

/* Three lanes and two plans. `heavy` is the limit of the first lane. */
static tollgate_policy *plans(const char *heavy, const char *on_change)
{
    char toml[512];
    snprintf(toml, sizeof toml,
             "on_change = '%s'\n"
             "[lanes]\n"
             "'ws/heavy' = '%s'\n"
             "'http/heavy' = '20/minute'\n"
             "'http/light' = '120/minute'\n"
             "[plans.free]\n"
             "'http/heavy' = '5/minute burst 2'\n"
             "[plans.pro]\n"
             "'ws/heavy' = '100/minute'\n",
             on_change, heavy);
    return policy_of(toml);
}

static rig plans_rig(void)
{
    return rig_of(plans("10/minute", "keep"), 100, TOLLGATE_ON_FULL_DENY);
}

static tollgate_lane_state state(const tollgate_limiter *limiter, uint32_t lane)
{
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    REQUIRE_OK(tollgate_peek(limiter, REQUEST(ID, ID_LEN, lane, 1), TOLLGATE_NOW, &state));
    return state;
}

static void a_plan_applies_to_the_next_check_until_it_is_taken_away(void)
{
    rig made = plans_rig();
    uint32_t plan = 77;
    EXPECT_OK(tollgate_limiter_plan(made.limiter, TOLLGATE_LITERAL("pro"), &plan));
    EXPECT_EQ(plan, PRO);
    EXPECT_OK(tollgate_assign(made.limiter, ID, ID_LEN, plan, NULL));
    EXPECT_EQ(state(made.limiter, WS_HEAVY).capacity, 100);
    EXPECT_EQ(state(made.limiter, HTTP_HEAVY).capacity, 20);
    EXPECT_TEXT("100/minute", tollgate_limit_of, made.limiter, ID, ID_LEN, WS_HEAVY);
    bool forgotten = true;
    EXPECT_OK(tollgate_forget(made.limiter, ID, ID_LEN, TOLLGATE_NOW, &forgotten));
    EXPECT_EQ(state(made.limiter, WS_HEAVY).capacity, 100);
    EXPECT_OK(tollgate_assign(made.limiter, ID, ID_LEN, TOLLGATE_NONE, NULL));
    EXPECT_EQ(state(made.limiter, WS_HEAVY).capacity, 10);

    plan = 77;
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, TOLLGATE_LITERAL("gold"), &plan), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, "\xff", 1, &plan), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, "pro", SIZE_MAX, &plan), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, NULL, 3, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_plan(NULL, "pro", 3, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_plan(made.limiter, "pro", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(plan, 77);
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_assign(made.limiter, ID, ID_LEN, 3, &error), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT(strstr(error.message, "there is no plan 3; this policy has 3, numbered from 0") != NULL);
    EXPECT_EQ(tollgate_assign(made.limiter, ID, ID_LEN, 65536, &error), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT(strstr(error.message, "plan 65536") != NULL);
    rig_free(&made);
}

/* For what is known only with the request. */
static void a_request_may_name_the_plan_of_an_agent_without_one(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    tollgate_verdict verdict;
    tollgate_lane_state seen = SIZED(tollgate_lane_state);
    tollgate_request request = { ID, ID_LEN, 10, WS_HEAVY, PRO, NULL };
    EXPECT_OK(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict));
    EXPECT_EQ(verdict.capacity, 100);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 90);
    EXPECT_OK(tollgate_check(limiter, &request, NOW, 0, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 80);
    EXPECT_OK(tollgate_peek(limiter, &request, TOLLGATE_NOW, &seen));
    EXPECT_EQ(seen.remaining, 80);
    EXPECT_OK(tollgate_peek(limiter, &request, NOW + 6 * SECOND, &seen));
    EXPECT_EQ(seen.remaining, 90);
    request.cost = 5;
    EXPECT_OK(tollgate_refund(limiter, &request, TOLLGATE_NOW, &seen));
    EXPECT_EQ(seen.remaining, 85);
    EXPECT_OK(tollgate_refund(limiter, &request, NOW, &seen));
    EXPECT_EQ(seen.remaining, 90);
    request.cost = 40;
    EXPECT_OK(tollgate_check_many(limiter, &request, 1, TOLLGATE_NOW, TOLLGATE_COUNTED, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 50);
    request.cost = 51;
    EXPECT_OK(tollgate_check(limiter, &request, NOW, TOLLGATE_COUNTED, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(verdict.violations_in_a_row, 0); /* It was given no wait before, so it broke none. */
    uint64_t reservation = 0;
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    request.cost = 50;
    EXPECT_OK(tollgate_reserve(limiter, &request, SECOND, TOLLGATE_NOW, 0, &verdict, &reservation));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    EXPECT_OK(tollgate_settle(limiter, reservation, 0, TOLLGATE_NOW, 0, &settlement));
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    EXPECT_OK(tollgate_check_all(limiter, &request, 1, TOLLGATE_NOW, 0, &verdict, &all));
    EXPECT_EQ(verdict.capacity, 100);

    /* An assignment comes first. */
    EXPECT_OK(tollgate_assign(limiter, ID, ID_LEN, FREE, NULL));
    request.lane = HTTP_HEAVY;
    EXPECT_OK(tollgate_peek(limiter, &request, TOLLGATE_NOW, &seen));
    EXPECT_EQ(seen.capacity, 2);

    static const uint32_t wrong[] = { 3, 65536, TOLLGATE_NONE - 1 };
    request.cost = 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        request.plan = wrong[i];
        EXPECT_EQ(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict), TOLLGATE_STATUS_UNKNOWN_PLAN);
        EXPECT_EQ(tollgate_peek(limiter, &request, NOW, &seen), TOLLGATE_STATUS_UNKNOWN_PLAN);
        EXPECT_EQ(tollgate_refund(limiter, &request, TOLLGATE_NOW, &seen), TOLLGATE_STATUS_UNKNOWN_PLAN);
    }
    rig_free(&made);
}

static void an_override_is_for_a_lane_or_for_a_tier_in_every_channel(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    EXPECT_OK(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("heavy"),
                                    TOLLGATE_LITERAL("7/minute"), NULL));
    EXPECT_EQ(state(limiter, WS_HEAVY).capacity, 7);
    EXPECT_EQ(state(limiter, HTTP_HEAVY).capacity, 7);
    EXPECT_EQ(state(limiter, HTTP_LIGHT).capacity, 120);
    EXPECT_OK(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("ws/heavy"),
                                    TOLLGATE_LITERAL("1/second burst 33"), NULL));
    EXPECT_EQ(state(limiter, WS_HEAVY).capacity, 33);
    EXPECT_TEXT("1/second burst 33", tollgate_limit_of, limiter, ID, ID_LEN, WS_HEAVY);
    EXPECT_OK(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("ws/heavy"), NULL, 0, NULL));
    EXPECT_EQ(state(limiter, WS_HEAVY).capacity, 10);
    EXPECT_EQ(state(limiter, HTTP_HEAVY).capacity, 7);
    EXPECT_OK(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("http/light"),
                                    TOLLGATE_LITERAL("deny"), NULL));
    EXPECT_EQ(state(limiter, HTTP_LIGHT).capacity, 0);
    EXPECT_OK(tollgate_set_override(limiter, ID, ID_LEN, NULL, 0, NULL, 0, NULL));
    EXPECT_EQ(state(limiter, HTTP_HEAVY).capacity, 20);
    EXPECT_EQ(state(limiter, HTTP_LIGHT).capacity, 120);

    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("huge"), TOLLGATE_LITERAL("1/s"), &error),
              TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT(strstr(error.message, "no lane or tier \"huge\"; the lanes are ws/heavy, http/heavy, http/light") != NULL);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("heavy"), TOLLGATE_LITERAL("0/s"), &error),
              TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT(strstr(error.message, "a rate or burst of 0") != NULL);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("heavy"), TOLLGATE_LITERAL("1/0s"), NULL),
              TOLLGATE_STATUS_INVALID_LIMIT);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, NULL, 5, "1/s", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, "\xff", 1, "1/s", 3, NULL), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, "heavy", 5, "\xff", 1, NULL), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, "heavy", 5, "1/s", SIZE_MAX, NULL),
              TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_set_override(limiter, ID, ID_LEN, TOLLGATE_LITERAL("huge"), NULL, 0, NULL),
              TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(state(limiter, WS_HEAVY).capacity, 10);
    rig_free(&made);
}

static void an_exempt_agent_is_never_limited(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    EXPECT_EQ(state(limiter, WS_HEAVY).exempt, 0);
    EXPECT_OK(tollgate_set_exempt(limiter, ID, ID_LEN, true, NULL));
    tollgate_verdict verdict;
    EXPECT_OK(tollgate_check(limiter, REQUEST(ID, ID_LEN, WS_HEAVY, 1000000), TOLLGATE_NOW,
                             TOLLGATE_COUNTED, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_EXEMPT);
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), UINT64_MAX);
    tollgate_lane_state seen = state(limiter, WS_HEAVY);
    EXPECT_EQ(seen.exempt, 1);
    EXPECT_EQ(seen.remaining, UINT64_MAX);
    EXPECT_TEXT("", tollgate_limit_of, limiter, ID, ID_LEN, WS_HEAVY);
    EXPECT_OK(tollgate_set_exempt(limiter, ID, ID_LEN, false, NULL));
    seen = state(limiter, WS_HEAVY);
    EXPECT_EQ(seen.exempt, 0);
    EXPECT_EQ(seen.remaining, 10);
    rig_free(&made);
}

static size_t assigned(const tollgate_limiter *limiter)
{
    size_t count = 77;
    REQUIRE_OK(tollgate_assigned(limiter, NULL, 0, NULL, 0, &count));
    return count;
}

/* The same misuse of every control call about an agent. */
static void misuse_decides_nothing(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    char text[8] = "?";
    size_t text_len = 77;
    tollgate_assignment_state assignment = SIZED(tollgate_assignment_state);
    assignment.plan = 77;
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
        tollgate_error error = SIZED(tollgate_error);
        if (cases[i].no_error_size)
            error.struct_size--;
        tollgate_assignment_entry entry = { id, len, NULL, 0, PRO, 0 };
        EXPECT_EQ(tollgate_assign(to, id, len, PRO, &error), expected);
        EXPECT_EQ(tollgate_assign(to, id, len, TOLLGATE_NONE, &error), expected);
        EXPECT_EQ(tollgate_set_override(to, id, len, "heavy", 5, "1/s", 3, &error), expected);
        EXPECT_EQ(tollgate_set_override(to, id, len, "heavy", 5, NULL, 0, &error), expected);
        EXPECT_EQ(tollgate_set_override(to, id, len, NULL, 0, NULL, 0, &error), expected);
        EXPECT_EQ(tollgate_set_exempt(to, id, len, true, &error), expected);
        EXPECT_EQ(tollgate_set_exempt(to, id, len, false, &error), expected);
        EXPECT_EQ(tollgate_set_assignments(to, &entry, 1, &error), expected);
        if (cases[i].no_error_size) {
            EXPECT_EQ(error.message[0], 0);
            continue;
        }
        EXPECT_EQ(error.status, expected);
        EXPECT(error.message[0] != 0);
        EXPECT_EQ(tollgate_limit_of(to, id, len, WS_HEAVY, text, sizeof text, &text_len), expected);
        EXPECT_EQ(tollgate_assignment(to, id, len, &assignment, NULL, 0), expected);
    }
    EXPECT_EQ(tollgate_limit_of(limiter, ID, ID_LEN, 3, text, sizeof text, &text_len), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_assignment(limiter, ID, ID_LEN, NULL, NULL, 0), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assignment(limiter, ID, ID_LEN, &assignment, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && text_len == 77 && assignment.plan == 77);
    assignment.struct_size--;
    EXPECT_EQ(tollgate_assignment(limiter, ID, ID_LEN, &assignment, NULL, 0), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(assigned(limiter), 0);
    rig_free(&made);
}

static void an_assignment_shows_what_was_decided(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    tollgate_assignment_state seen = SIZED(tollgate_assignment_state);
    tollgate_override overrides[TOLLGATE_LANES_MAX];
    EXPECT_OK(tollgate_assignment(limiter, ID, ID_LEN, &seen, overrides, TOLLGATE_LANES_MAX));
    EXPECT_EQ(seen.plan, TOLLGATE_NONE);
    EXPECT_EQ(seen.exempt | seen.override_count, 0);

    REQUIRE_OK(tollgate_assign(limiter, ID, ID_LEN, PRO, NULL));
    REQUIRE_OK(tollgate_set_exempt(limiter, ID, ID_LEN, true, NULL));
    REQUIRE_OK(tollgate_set_override(limiter, ID, ID_LEN, "heavy", 5, "7/min", 5, NULL));
    memset(overrides, 0x5a, sizeof overrides);
    EXPECT_OK(tollgate_assignment(limiter, ID, ID_LEN, &seen, overrides, TOLLGATE_LANES_MAX));
    EXPECT_EQ(seen.plan, PRO);
    EXPECT_EQ(seen.exempt, 1);
    EXPECT_EQ(seen.override_count, 2);
    EXPECT_EQ(seen.struct_size, sizeof seen);
    /* In the order of the lanes' names. */
    EXPECT(overrides[0].lane == HTTP_HEAVY && strcmp(overrides[0].limit, "7/minute") == 0);
    EXPECT(overrides[1].lane == WS_HEAVY && strcmp(overrides[1].limit, "7/minute") == 0);
    EXPECT_EQ(overrides[2].lane, 0x5a5a5a5a);
    /* With room for one, one is written; and all are counted. */
    memset(overrides, 0x5a, sizeof overrides);
    EXPECT_OK(tollgate_assignment(limiter, ID, ID_LEN, &seen, overrides, 1));
    EXPECT_EQ(seen.override_count, 2);
    EXPECT_EQ(overrides[1].lane, 0x5a5a5a5a);
    EXPECT_OK(tollgate_assignment(limiter, ID, ID_LEN, &seen, NULL, 0));
    rig_free(&made);
}

static void many_agents_are_decided_about_at_once_or_not_at_all(void)
{
    rig made = plans_rig();
    tollgate_limiter *limiter = made.limiter;
    const tollgate_override own[] = { { WS_HEAVY, "7/min" }, { WS_HEAVY, "8/min" } }; /* The last one counts. */
    tollgate_assignment_entry entries[] = {
        { "b\0\xff", 3, own, 2, PRO, 0 },
        { "a", 1, own, 1, TOLLGATE_NONE, 1 },
    };
    EXPECT_OK(tollgate_set_assignments(limiter, entries, 2, NULL));
    tollgate_agent_id ids[3];
    memset(ids, 0x5a, sizeof ids);
    size_t count = 77;
    EXPECT_OK(tollgate_assigned(limiter, NULL, 0, ids, 3, &count));
    EXPECT_EQ(count, 2);
    EXPECT(ids[0].len == 1 && memcmp(ids[0].bytes, "a", 2) == 0);
    EXPECT(ids[1].len == 3 && memcmp(ids[1].bytes, "b\0\xff", 4) == 0);
    EXPECT_EQ(ids[2].len, 0x5a5a5a5a);
    /* Page by page, each behind the last id of the one before. */
    EXPECT_OK(tollgate_assigned(limiter, ids[0].bytes, ids[0].len, ids, 1, &count));
    EXPECT_EQ(count, 1);
    EXPECT_EQ(ids[0].len, 3);
    EXPECT_OK(tollgate_assigned(limiter, ids[0].bytes, ids[0].len, ids, 1, &count));
    EXPECT_EQ(count, 0);
    tollgate_assignment_state seen = SIZED(tollgate_assignment_state);
    tollgate_override override;
    EXPECT_OK(tollgate_assignment(limiter, "b\0\xff", 3, &seen, &override, 1));
    EXPECT(seen.plan == PRO && seen.override_count == 1 && seen.exempt == 0);
    EXPECT_EQ(strcmp(override.limit, "8/minute"), 0);
    EXPECT_OK(tollgate_assignment(limiter, "a", 1, &seen, &override, 1));
    EXPECT(seen.plan == TOLLGATE_NONE && seen.exempt == 1);

    /* An entry replaces all that was decided about its agent; an empty one makes it like any other. */
    const tollgate_assignment_entry empty = { "a", 1, NULL, 0, TOLLGATE_NONE, 0 };
    EXPECT_OK(tollgate_set_assignments(limiter, &empty, 1, NULL));
    EXPECT_EQ(assigned(limiter), 1);

    /* The second is invalid, so the first is not in force either. */
    static const struct {
        tollgate_status status;
        tollgate_override override;
        tollgate_assignment_entry entry;
        const char *words;
    } wrong[] = {
        { TOLLGATE_STATUS_UNKNOWN_PLAN, { 0, "" }, { "c", 1, NULL, 0, 3, 0 }, "agent \"c\": there is no plan 3" },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, { 0, "" }, { "c", 1, NULL, 0, 70000, 0 }, "no plan 70000; this policy has 3" },
        { TOLLGATE_STATUS_UNKNOWN_LANE, { 3, "1/s" }, { "c", 1, NULL, 1, 0, 0 }, "agent \"c\": there is no lane 3" },
        { TOLLGATE_STATUS_INVALID_LIMIT, { 0, "1/" }, { "c", 1, NULL, 1, 0, 0 }, "\": \"1/\" is not a limit" },
        { TOLLGATE_STATUS_NOT_UTF8, { 0, "\xff" }, { "c", 1, NULL, 1, 0, 0 }, "agent \"c\": lane \"" },
        { TOLLGATE_STATUS_INVALID_OPTION, { 0, "" }, { "c", 1, NULL, 0, 0, 2 }, "agent \"c\": exempt is 2" },
        { TOLLGATE_STATUS_BATCH_SIZE, { 0, "1/s" }, { "\xff", 1, NULL, 63, 0, 0 }, "override_count is 63" },
        { TOLLGATE_STATUS_EMPTY_ID, { 0, "" }, { "c", 0, NULL, 0, 0, 0 }, "entries[1]: " },
        { TOLLGATE_STATUS_ID_TOO_LONG, { 0, "" }, { "c", 257, NULL, 0, 0, 0 }, "entries[1]: " },
        { TOLLGATE_STATUS_NULL_POINTER, { 0, "" }, { NULL, 1, NULL, 0, 0, 0 }, "entries[1]: " },
    };
    entries[0] = (tollgate_assignment_entry){ ID, ID_LEN, NULL, 0, PRO, 0 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tollgate_error error = SIZED(tollgate_error);
        entries[1] = wrong[i].entry;
        entries[1].overrides = entries[1].override_count > 0 ? &wrong[i].override : NULL;
        EXPECT_EQ(tollgate_set_assignments(limiter, entries, 2, &error), wrong[i].status);
        if (error.message[0] == 0 || strstr(error.message, wrong[i].words) == NULL) {
            fprintf(stderr, "\"%s\" does not say \"%s\"\n", error.message, wrong[i].words);
            expectations_failed = 1;
        }
        EXPECT_EQ(state(limiter, WS_HEAVY).capacity, 10);
    }
    entries[1] = (tollgate_assignment_entry){ "c", 1, NULL, 1, PRO, 0 };
    EXPECT_EQ(tollgate_set_assignments(limiter, entries, 2, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_set_assignments(limiter, NULL, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_set_assignments(limiter, entries, TOLLGATE_BATCH_MAX + 1, NULL), TOLLGATE_STATUS_BATCH_SIZE);
    EXPECT_OK(tollgate_set_assignments(limiter, entries, 0, NULL));
    count = 77;
    EXPECT_EQ(tollgate_assigned(NULL, NULL, 0, ids, 3, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assigned(limiter, NULL, 0, NULL, 1, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assigned(limiter, NULL, 0, ids, 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_assigned(limiter, ID, 257, ids, 3, &count), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(count, 77);
    EXPECT_EQ(assigned(limiter), 1);
    rig_free(&made);
}

static void overrides_are_for_65000_agents_at_most(void)
{
    rig made = plans_rig();
    enum { COUNT = TOLLGATE_OVERRIDES_MAX + 1 };
    static int agents[COUNT];
    tollgate_assignment_entry *entries = calloc(COUNT, sizeof *entries);
    const tollgate_override own = { WS_HEAVY, "7/min" };
    if (entries == NULL)
        exit(1);
    for (int i = 0; i < COUNT; i++) {
        agents[i] = i;
        entries[i] = (tollgate_assignment_entry){ &agents[i], sizeof agents[i], &own, 1, TOLLGATE_NONE, 0 };
    }
    EXPECT_EQ(tollgate_set_assignments(made.limiter, entries, COUNT, NULL), TOLLGATE_STATUS_TOO_MANY_OVERRIDES);
    EXPECT_EQ(assigned(made.limiter), 0);
    free(entries);
    rig_free(&made);
}

static void another_policy_changes_the_limits_and_keeps_debt_or_resets_it(void)
{
    static const char *const on_change[] = { "keep", "reset" };
    for (size_t i = 0; i < 2; i++) {
        rig made = plans_rig();
        tollgate_verdict verdict;
        /* 30 seconds of debt. */
        EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, WS_HEAVY, 5), TOLLGATE_NOW, 0, &verdict));
        tollgate_policy *policy = plans("20/minute", on_change[i]);
        EXPECT_OK(tollgate_replace_policy(made.limiter, policy, NULL));
        tollgate_policy_free(policy);
        EXPECT_EQ(state(made.limiter, WS_HEAVY).capacity, 20);
        EXPECT_EQ(state(made.limiter, WS_HEAVY).remaining, i == 0 ? 10 : 20);

        tollgate_error error = SIZED(tollgate_error);
        policy = rig_policy();
        EXPECT_EQ(tollgate_replace_policy(made.limiter, policy, &error), TOLLGATE_STATUS_OTHER_LANES);
        EXPECT(strstr(error.message, "ws/heavy, http/heavy, http/light") != NULL);
        EXPECT_EQ(tollgate_replace_policy(NULL, policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
        EXPECT_EQ(tollgate_replace_policy(made.limiter, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
        error.struct_size--;
        EXPECT_EQ(tollgate_replace_policy(made.limiter, policy, &error), TOLLGATE_STATUS_STRUCT_SIZE);
        tollgate_policy_free(policy);
        rig_free(&made);
    }

    rig made = plans_rig();
    tollgate_policy *policy = policy_of("[lanes]\n'ws/heavy' = '1/s'\n'http/heavy' = '1/s'\n'http/light' = '1/s'\n");
    EXPECT_EQ(tollgate_replace_policy(made.limiter, policy, NULL), TOLLGATE_STATUS_PLAN_MISSING);
    tollgate_policy_free(policy);
    rig_free(&made);
}

int main(void)
{
    a_plan_applies_to_the_next_check_until_it_is_taken_away();
    a_request_may_name_the_plan_of_an_agent_without_one();
    an_override_is_for_a_lane_or_for_a_tier_in_every_channel();
    an_exempt_agent_is_never_limited();
    misuse_decides_nothing();
    an_assignment_shows_what_was_decided();
    many_agents_are_decided_about_at_once_or_not_at_all();
    overrides_are_for_65000_agents_at_most();
    another_policy_changes_the_limits_and_keeps_debt_or_resets_it();
    return expectations_end("test_control");
}
