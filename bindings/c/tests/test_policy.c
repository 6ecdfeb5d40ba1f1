/* Policies: built, refused with words, and looked at. */
#include "expect.h"

static tollgate_policy_builder *builder_new(void)
{
    tollgate_policy_builder *builder = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    return builder;
}

static void a_policy_tells_what_it_was_built_from(void)
{
    tollgate_policy_builder *builder = builder_new();
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("ws/light"), TOLLGATE_LITERAL("120/min")));
    EXPECT_OK(tollgate_policy_builder_lane_bucket(builder, TOLLGATE_LITERAL("http/heavy"), 10, 60 * SECOND, 3));
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("closed"), TOLLGATE_LITERAL("deny")));
    EXPECT_OK(tollgate_policy_builder_warn_below_percent(builder, 50));
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_policy_builder_free(builder);

    uint32_t count = 0, lane = 99, percent = 0;
    EXPECT_OK(tollgate_policy_lane_count(policy, &count));
    EXPECT_EQ(count, 3);
    EXPECT_OK(tollgate_policy_lane(policy, TOLLGATE_LITERAL("http/heavy"), &lane));
    EXPECT_EQ(lane, 1);
    EXPECT_OK(tollgate_policy_warn_below_percent(policy, &percent));
    EXPECT_EQ(percent, 50);

    static const char *const names[] = { "ws/light", "http/heavy", "closed" };
    static const char *const limits[] = { "120/minute", "10/minute burst 3", "deny" };
    for (lane = 0; lane < count; lane++) {
        char name[TOLLGATE_LANE_NAME_BYTES_MAX + 1], limit[64];
        size_t name_len = 0, limit_len = 0;
        EXPECT_OK(tollgate_policy_lane_name(policy, lane, name, sizeof name, &name_len));
        EXPECT_EQ(strcmp(name, names[lane]), 0);
        EXPECT_EQ(name_len, strlen(names[lane]));
        EXPECT_OK(tollgate_policy_limit(policy, lane, limit, sizeof limit, &limit_len));
        EXPECT_EQ(strcmp(limit, limits[lane]), 0);
        EXPECT_EQ(limit_len, strlen(limits[lane]));
    }
    tollgate_policy_free(policy);
}

static void a_builder_can_be_used_again(void)
{
    tollgate_policy_builder *builder = builder_new();
    tollgate_policy *first = NULL, *second = NULL;
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("a"), TOLLGATE_LITERAL("1/s")));
    EXPECT_OK(tollgate_policy_builder_build(builder, &first, NULL));
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("b"), TOLLGATE_LITERAL("1/s")));
    EXPECT_OK(tollgate_policy_builder_build(builder, &second, NULL));
    uint32_t count = 0;
    EXPECT_OK(tollgate_policy_lane_count(first, &count));
    EXPECT_EQ(count, 1);
    EXPECT_OK(tollgate_policy_lane_count(second, &count));
    EXPECT_EQ(count, 2);
    tollgate_policy_free(first);
    tollgate_policy_free(second);
    tollgate_policy_builder_free(builder);
}

/* Builds a policy of one lane that must be refused, and looks for words in the message. */
static void expect_refusal(const char *name, const char *limit, const char *words)
{
    tollgate_policy_builder *builder = builder_new();
    EXPECT_OK(tollgate_policy_builder_lane(builder, name, strlen(name), limit, strlen(limit)));
    tollgate_policy *policy = NULL;
    tollgate_error error = error_new();
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT(policy == NULL);
    EXPECT_EQ(error.struct_size, sizeof error);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_INVALID_POLICY);
    if (strstr(error.message, words) == NULL) {
        fprintf(stderr, "%s, %s: \"%s\" does not say \"%s\"\n", name, limit, error.message, words);
        expectations_failed = 1;
    }
    /* The words are optional. */
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, NULL), TOLLGATE_STATUS_INVALID_POLICY);
    tollgate_policy_builder_free(builder);
}

static void a_refusal_says_why(void)
{
    expect_refusal("http", "0/min", "lane \"http\": a rate or burst of 0");
    expect_refusal("http", "sixty", "\"sixty\" is not a limit");
    expect_refusal("http", "2000000000/s", "at most 1000000000 per second");
    expect_refusal("two words", "1/s", "lane name \"two words\"");
    expect_refusal("", "1/s", "lane name \"\"");

    tollgate_policy_builder *builder = builder_new();
    tollgate_policy *policy = NULL;
    tollgate_error error = error_new();
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT(strstr(error.message, "a policy of 0 lanes") != NULL);
    EXPECT_OK(tollgate_policy_builder_lane_bucket(builder, TOLLGATE_LITERAL("http"), 1, 0, 1));
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT(strstr(error.message, "a period of 0") != NULL);
    tollgate_policy_builder_free(builder);
}

/* A name of 100,000 bytes is in the message, which ends where there is no more room, between two characters. */
static void a_long_message_is_cut_short(void)
{
    enum { BYTES = 100000 };
    char *name = malloc(BYTES);
    if (name == NULL)
        exit(1);
    for (size_t i = 0; i < BYTES; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    tollgate_policy_builder *builder = builder_new();
    EXPECT_OK(tollgate_policy_builder_lane(builder, name, BYTES, TOLLGATE_LITERAL("1/s")));
    tollgate_policy *policy = NULL;
    tollgate_error error = error_new();
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    size_t len = strlen(error.message);
    EXPECT(len == TOLLGATE_ERROR_MESSAGE_BYTES - 1 || len == TOLLGATE_ERROR_MESSAGE_BYTES - 2);
    EXPECT_EQ((unsigned char)error.message[len - 1], 0xa9);
    tollgate_policy_builder_free(builder);
    free(name);
}

static void bad_texts_are_refused_and_nothing_is_added(void)
{
    tollgate_policy_builder *builder = builder_new();
    const char *text = "1/s";
    EXPECT_EQ(tollgate_policy_builder_lane(NULL, text, 3, text, 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_lane(builder, NULL, 3, text, 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_lane(builder, text, 3, NULL, 0), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_lane(builder, "\xff", 1, text, 3), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_builder_lane(builder, text, 3, "\xff", 1), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_builder_lane(builder, text, SIZE_MAX, text, 3), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_builder_lane(builder, text, 3, text, TOLLGATE_TEXT_BYTES_MAX + 1),
              TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_builder_lane_bucket(NULL, text, 3, 1, 1, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_lane_bucket(builder, NULL, 3, 1, 1, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_lane_bucket(builder, "\xff", 1, 1, 1, 1), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_builder_lane_bucket(builder, text, SIZE_MAX / 2, 1, 1, 1),
              TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_builder_warn_below_percent(NULL, 10), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_warn_below_percent(builder, 101), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_policy_builder_warn_below_percent(builder, 256 + 20), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_policy_builder_new(NULL), TOLLGATE_STATUS_NULL_POINTER);

    EXPECT_OK(tollgate_policy_builder_lane(builder, "a", 1, text, 3));
    tollgate_policy *policy = NULL;
    tollgate_error error = error_new();
    EXPECT_EQ(tollgate_policy_builder_build(NULL, &policy, &error), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(strcmp(error.message, tollgate_status_text(TOLLGATE_STATUS_NULL_POINTER)), 0);
    EXPECT_EQ(tollgate_policy_builder_build(builder, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    error.struct_size = 511;
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(policy == NULL);

    error.struct_size = sizeof error;
    error.message[0] = 'x';
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, &error));
    EXPECT_EQ(error.message[0], 'x');
    uint32_t count = 0, percent = 0;
    EXPECT_OK(tollgate_policy_lane_count(policy, &count));
    EXPECT_EQ(count, 1);
    EXPECT_OK(tollgate_policy_warn_below_percent(policy, &percent));
    EXPECT_EQ(percent, 20);
    tollgate_policy_free(policy);
    tollgate_policy_builder_free(builder);
}

static void buffers_that_are_too_small_stay_as_they_are(void)
{
    tollgate_policy *policy = rig_policy();
    char buffer[8];
    size_t len = 77;
    memset(buffer, '?', sizeof buffer);
    EXPECT_EQ(tollgate_policy_lane_name(policy, LIGHT, buffer, 5, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_limit(policy, LIGHT, buffer, sizeof buffer, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_lane_name(policy, LIGHT, buffer, 0, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(buffer[0], '?');
    EXPECT_EQ(len, 77);
    /* Exactly large enough, and not a byte more is written. */
    EXPECT_OK(tollgate_policy_lane_name(policy, LIGHT, buffer, 6, &len));
    EXPECT_EQ(strcmp(buffer, "light"), 0);
    EXPECT_EQ(buffer[6], '?');
    EXPECT_EQ(len, 5);
    /* The length alone. */
    EXPECT_OK(tollgate_policy_limit(policy, LIGHT, NULL, 0, &len));
    EXPECT_EQ(len, strlen("120/minute"));

    EXPECT_EQ(tollgate_policy_lane_name(policy, LIGHT, NULL, 6, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane_name(policy, LIGHT, buffer, 6, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane_name(NULL, LIGHT, buffer, 6, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane_name(policy, LANES, buffer, 6, &len), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_limit(NULL, LIGHT, buffer, 6, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_limit(policy, LIGHT, NULL, 6, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_limit(policy, LIGHT, buffer, 6, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_limit(policy, UINT32_MAX, buffer, 6, &len), TOLLGATE_STATUS_UNKNOWN_LANE);
    tollgate_policy_free(policy);
}

static void a_lane_that_is_not_there_is_unknown(void)
{
    tollgate_policy *policy = rig_policy();
    uint32_t number = 77;
    EXPECT_EQ(tollgate_policy_lane(policy, TOLLGATE_LITERAL("nowhere"), &number), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_lane(policy, "light", 0, &number), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_lane(policy, "\xfe", 1, &number), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_lane(policy, "light", SIZE_MAX, &number), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_lane(policy, NULL, 5, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane(NULL, "light", 5, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane(policy, "light", 5, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane_count(NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane_count(policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_warn_below_percent(NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_warn_below_percent(policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(number, 77);
    tollgate_policy_free(policy);
    tollgate_policy_free(NULL);
    tollgate_policy_builder_free(NULL);
}

static void a_policy_has_plans_actions_and_tiers(void)
{
    tollgate_policy_builder *builder = builder_new();
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("ws/light"), TOLLGATE_LITERAL("120/min")));
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("ws/heavy"), TOLLGATE_LITERAL("10/min")));
    EXPECT_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("http/heavy"), TOLLGATE_LITERAL("20/min")));
    EXPECT_OK(tollgate_policy_builder_plan(builder, TOLLGATE_LITERAL("free")));
    EXPECT_OK(tollgate_policy_builder_plan(builder, TOLLGATE_LITERAL("pro")));
    EXPECT_OK(tollgate_policy_builder_plan_lane(builder, TOLLGATE_LITERAL("pro"), TOLLGATE_LITERAL("ws/heavy"),
                                                TOLLGATE_LITERAL("100/min")));
    EXPECT_OK(tollgate_policy_builder_plan_lane_bucket(builder, TOLLGATE_LITERAL("pro"), TOLLGATE_LITERAL("http/heavy"),
                                                       5, SECOND, 9));
    EXPECT_OK(tollgate_policy_builder_action(builder, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("light"),
                                             TOLLGATE_LITERAL("ping")));
    EXPECT_OK(tollgate_policy_builder_unknown_actions_to(builder, TOLLGATE_LITERAL("heavy")));
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));

    uint32_t count = 0, plan = 77, lanes[TOLLGATE_LANES_MAX] = { 77 };
    EXPECT_OK(tollgate_policy_plan_count(policy, &count));
    EXPECT_EQ(count, 3);
    EXPECT_OK(tollgate_policy_plan(policy, TOLLGATE_LITERAL("pro"), &plan));
    EXPECT_EQ(plan, 2);
    EXPECT_OK(tollgate_policy_plan(policy, TOLLGATE_LITERAL("default"), &plan));
    EXPECT_EQ(plan, 0);
    EXPECT_TEXT("default", tollgate_policy_plan_name, policy, 0);
    EXPECT_TEXT("pro", tollgate_policy_plan_name, policy, 2);
    EXPECT_TEXT("10/minute", tollgate_policy_plan_limit, policy, 1, 1);
    EXPECT_TEXT("100/minute", tollgate_policy_plan_limit, policy, 2, 1);
    EXPECT_TEXT("5/second burst 9", tollgate_policy_plan_limit, policy, 2, 2);
    uint64_t capacity = 77;
    EXPECT_OK(tollgate_policy_capacity(policy, 2, 2, &capacity));
    EXPECT_EQ(capacity, 9);

    size_t found = 77;
    EXPECT_OK(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("heavy"), NULL, 0, &found));
    EXPECT_EQ(found, 2);
    found = 77;
    EXPECT_EQ(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("heavy"), lanes, 1, &found), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("huge"), lanes, 1, &found), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_lanes_of(policy, NULL, 1, lanes, 1, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lanes_of(NULL, "a", 1, lanes, 1, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("heavy"), NULL, 2, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("heavy"), lanes, 2, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lanes_of(policy, "\xff", 1, lanes, 2, &found), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT(found == 77 && lanes[0] == 77);
    EXPECT_OK(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("heavy"), lanes, TOLLGATE_LANES_MAX, &found));
    EXPECT(found == 2 && lanes[0] == 1 && lanes[1] == 2);
    EXPECT_OK(tollgate_policy_lanes_of(policy, TOLLGATE_LITERAL("ws/light"), lanes, 1, &found));
    EXPECT(found == 1 && lanes[0] == 0);

    EXPECT_OK(tollgate_policy_action_count(policy, &found));
    EXPECT_EQ(found, 1);
    EXPECT_TEXT("ping", tollgate_policy_action_name, policy, 0);
    EXPECT_OK(tollgate_policy_action_lane(policy, 0, &lanes[0]));
    EXPECT_EQ(lanes[0], 0);
    EXPECT_TEXT("heavy", tollgate_policy_unknown_actions_tier, policy);

    char text[8] = "?";
    plan = 77;
    capacity = 77;
    EXPECT_EQ(tollgate_policy_plan(policy, TOLLGATE_LITERAL("gold"), &plan), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_plan(policy, NULL, 1, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan(NULL, "pro", 3, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan(policy, "pro", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan_count(NULL, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan_count(policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan_name(policy, 3, text, 8, &found), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_plan_name(NULL, 0, text, 8, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan_limit(policy, 3, 0, text, 8, &found), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_plan_limit(policy, UINT32_MAX, 0, text, 8, &found), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_plan_limit(policy, 0, 3, text, 8, &found), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_plan_limit(NULL, 0, 0, text, 8, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_capacity(policy, 3, 0, &capacity), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_capacity(policy, 0, 3, &capacity), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_capacity(NULL, 0, 0, &capacity), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_capacity(policy, 0, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_action_count(NULL, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_action_count(policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_action_name(policy, 1, text, 8, &found), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_policy_action_name(NULL, 0, text, 8, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_action_lane(policy, 1, &plan), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_policy_action_lane(NULL, 0, &plan), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_action_lane(policy, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_unknown_actions_tier(NULL, text, 8, &found), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(plan == 77 && capacity == 77 && text[0] == '?' && found == 1);
    tollgate_policy_free(policy);

    EXPECT_EQ(tollgate_policy_builder_plan(builder, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_plan(NULL, "a", 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_plan(builder, "\xff", 1), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_builder_plan_lane(builder, "gold", 4, "a", 1, "1/s", 3), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_builder_plan_lane(NULL, "pro", 3, "a", 1, "1/s", 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_plan_lane(builder, NULL, 3, "a", 1, "1/s", 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_plan_lane(builder, "pro", 3, NULL, 1, "1/s", 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_plan_lane(builder, "pro", 3, "a", 1, NULL, 3), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_plan_lane_bucket(builder, "gold", 4, "a", 1, 1, 1, 1), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_builder_plan_lane_bucket(NULL, "pro", 3, "a", 1, 1, 1, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_action(NULL, "a", 1, "a", 1, "a", 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_action(builder, NULL, 1, "a", 1, "a", 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_action(builder, "a", 1, NULL, 1, "a", 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_action(builder, "a", 1, "a", 1, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_action(builder, "a", 1, "a", 1, "a", SIZE_MAX), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_builder_unknown_actions_to(NULL, "a", 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_unknown_actions_to(builder, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_outside_total(NULL, "a", 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_outside_total(builder, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_on_change(NULL, 0), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_builder_on_change(builder, 2), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_policy_builder_on_change(builder, -1), TOLLGATE_STATUS_INVALID_OPTION);

    /* What makes no sense is told when the policy is built. */
    EXPECT_OK(tollgate_policy_builder_plan_lane(builder, "pro", 3, "ws/light", 8, "0/s", 3));
    tollgate_error error = error_new();
    policy = NULL;
    EXPECT_EQ(tollgate_policy_builder_build(builder, &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT(strstr(error.message, "plan \"pro\", lane \"ws/light\": a rate or burst of 0") == error.message);
    tollgate_policy_builder_free(builder);
}

static void a_preset_is_there_by_name(void)
{
    size_t presets = 0;
    for (const char *name; (name = tollgate_preset_name(presets)) != NULL; presets++) {
        tollgate_policy *policy = preset(name);
        uint32_t lanes = 0;
        EXPECT_OK(tollgate_policy_lane_count(policy, &lanes));
        EXPECT(lanes > 1);
        tollgate_policy_free(policy);
    }
    EXPECT_EQ(presets, 5);
    tollgate_error error = error_new();
    tollgate_policy *policy = NULL;
    EXPECT_EQ(tollgate_policy_preset(TOLLGATE_LITERAL("hubs"), &policy, &error), TOLLGATE_STATUS_UNKNOWN_PRESET);
    EXPECT(strstr(error.message, "did you mean \"hub\"?") != NULL);
    EXPECT_EQ(tollgate_policy_preset(NULL, 1, &policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_preset("hub", 3, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_preset("\xff", 1, &policy, NULL), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT(policy == NULL);
}

static void a_policy_is_read_from_toml_and_written_to_it(void)
{
    static const char toml[] = "preset = \"hub\"\n[lanes]\n\"ws/light\" = \"600/min\"\n";
    tollgate_policy *policy = NULL, *again = NULL;
    if (!(tollgate_features() & TOLLGATE_FEATURE_CONFIG)) {
        size_t len = 77;
        EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), &policy, NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
        policy = preset("hub");
        EXPECT_EQ(tollgate_policy_to_toml(policy, NULL, 0, &len), TOLLGATE_STATUS_NOT_BUILT_IN);
        tollgate_policy_free(policy);
        return;
    }
    REQUIRE_OK(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), &policy, NULL));
    EXPECT_TEXT("600/minute", tollgate_policy_limit, policy, 0);
    char text[4096] = "?";
    size_t len = 77, same = 77;
    EXPECT_EQ(tollgate_policy_to_toml(policy, text, 8, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_to_toml(NULL, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_to_toml(policy, text, sizeof text, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && len == 77);
    EXPECT_OK(tollgate_policy_to_toml(policy, NULL, 0, &len));
    EXPECT_OK(tollgate_policy_to_toml(policy, text, sizeof text, &same));
    EXPECT_EQ(len, same);
    EXPECT_EQ(len, strlen(text));
    REQUIRE_OK(tollgate_policy_from_toml(text, len, &again, NULL));
    char copy[4096];
    EXPECT_OK(tollgate_policy_to_toml(again, copy, sizeof copy, &same));
    EXPECT_EQ(strcmp(text, copy), 0);
    tollgate_policy_free(again);
    tollgate_policy_free(policy);

    policy = NULL;
    tollgate_error error = error_new();
    static const char wrong[] = "[lanes]\n\"ws/light\" = \"0/min\"";
    EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(wrong), &policy, &error), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT_EQ(error.line, 2);
    EXPECT_EQ(error.column, 14);
    EXPECT(strstr(error.message, "lane \"ws/light\": a rate or burst of 0") == error.message);
    EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(wrong), &policy, NULL), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT_EQ(tollgate_policy_from_toml(NULL, 1, &policy, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_from_toml("\xff", 1, &policy, NULL), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_from_toml("", SIZE_MAX, &policy, NULL), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    error.struct_size--;
    EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), &policy, &error), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(policy == NULL);
}

int main(void)
{
    a_policy_has_plans_actions_and_tiers();
    a_preset_is_there_by_name();
    a_policy_is_read_from_toml_and_written_to_it();
    a_policy_tells_what_it_was_built_from();
    a_builder_can_be_used_again();
    a_refusal_says_why();
    a_long_message_is_cut_short();
    bad_texts_are_refused_and_nothing_is_added();
    buffers_that_are_too_small_stay_as_they_are();
    a_lane_that_is_not_there_is_unknown();
    return expectations_end("test_policy");
}
