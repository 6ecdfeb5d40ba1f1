/* Policies: read from text, refused with a reason, and looked at. */
#include "expect.h"

static const char PLANS[] = "unknown_actions_to = 'heavy'\n"
                            "[lanes]\n"
                            "'ws/light' = '120/min'\n"
                            "'ws/heavy' = '10/min'\n"
                            "'http/heavy' = '20/min'\n"
                            "[plans.free]\n"
                            "[plans.pro]\n"
                            "'ws/heavy' = '100/min'\n"
                            "'http/heavy' = '5/second burst 9'\n"
                            "[actions.ws]\n"
                            "light = ['ping']\n";

static void a_policy_shows_its_lanes_plans_and_limits(void)
{
    tollgate_policy *policy = policy_of(PLANS);
    static const char *const lanes[] = { "ws/light", "ws/heavy", "http/heavy" };
    static const char *const plans[] = { "default", "free", "pro" };
    static const char *const limits[3][3] = {
        { "120/minute", "10/minute", "20/minute" },
        { "120/minute", "10/minute", "20/minute" },
        { "120/minute", "100/minute", "5/second burst 9" },
    };
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t number = 77;
        EXPECT_OK(tollgate_policy_lane(policy, lanes[i], strlen(lanes[i]), &number));
        EXPECT_EQ(number, i);
        EXPECT_OK(tollgate_policy_plan(policy, plans[i], strlen(plans[i]), &number));
        EXPECT_EQ(number, i);
        EXPECT_TEXT(lanes[i], tollgate_policy_lane_name, policy, i);
        EXPECT_TEXT(plans[i], tollgate_policy_plan_name, policy, i);
        for (uint32_t lane = 0; lane < 3; lane++)
            EXPECT_TEXT(limits[i][lane], tollgate_policy_limit, policy, i, lane);
    }
    /* They are numbered from 0, and past the last one there is none. */
    char text[8] = "?";
    size_t len = 77;
    EXPECT_EQ(tollgate_policy_lane_name(policy, 3, text, sizeof text, &len), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_plan_name(policy, 3, text, sizeof text, &len), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_limit(policy, 3, 0, text, sizeof text, &len), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_limit(policy, 65536, 0, text, sizeof text, &len), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_limit(policy, 0, 3, text, sizeof text, &len), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_limit(policy, 0, TOLLGATE_NONE, text, sizeof text, &len), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT(text[0] == '?' && len == 77);
    tollgate_policy_free(policy);
}

static void misuse_finds_nothing(void)
{
    tollgate_policy *policy = policy_of(PLANS);
    uint32_t number = 77;
    EXPECT_EQ(tollgate_policy_lane(policy, TOLLGATE_LITERAL("nowhere"), &number), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_lane(policy, "ws/light", 0, &number), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_policy_lane(policy, "\xfe", 1, &number), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_lane(policy, "ws/light", SIZE_MAX, &number), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_lane(policy, NULL, 5, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane(NULL, "ws/light", 8, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane(policy, "ws/light", 8, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan(policy, TOLLGATE_LITERAL("gold"), &number), TOLLGATE_STATUS_UNKNOWN_PLAN);
    EXPECT_EQ(tollgate_policy_plan(policy, "\xfe", 1, &number), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_plan(policy, "pro", SIZE_MAX, &number), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_plan(policy, NULL, 1, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan(NULL, "pro", 3, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan(policy, "pro", 3, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(number, 77);
    char text[8] = "?";
    size_t len = 77;
    EXPECT_EQ(tollgate_policy_lane_name(NULL, 0, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_plan_name(NULL, 0, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_limit(NULL, 0, 0, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && len == 77);
    tollgate_policy_free(policy);
    tollgate_policy_free(NULL);
}

static void a_buffer_is_written_whole_or_not_at_all(void)
{
    tollgate_policy *policy = rig_policy();
    char buffer[8];
    size_t len = 77;
    memset(buffer, '?', sizeof buffer);
    EXPECT_EQ(tollgate_policy_lane_name(policy, LIGHT, buffer, 5, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_limit(policy, 0, LIGHT, buffer, sizeof buffer, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_lane_name(policy, LIGHT, buffer, 0, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(buffer[0], '?');
    EXPECT_EQ(len, 77);
    /* Exactly large enough, and not a byte more is written. */
    EXPECT_OK(tollgate_policy_lane_name(policy, LIGHT, buffer, 6, &len));
    EXPECT_EQ(strcmp(buffer, "light"), 0);
    EXPECT_EQ(buffer[6], '?');
    EXPECT_EQ(len, 5);
    tollgate_policy_free(policy);
}

static void every_preset_has_a_name(void)
{
    size_t presets = 0;
    for (const char *name; (name = tollgate_preset_name(presets)) != NULL; presets++) {
        tollgate_policy *policy = preset(name);
        char lane[TOLLGATE_NAME_BYTES_MAX + 1];
        size_t len = 0;
        EXPECT_OK(tollgate_policy_lane_name(policy, 1, lane, sizeof lane, &len));
        tollgate_policy_free(policy);
    }
    EXPECT_EQ(presets, 5);
    EXPECT(tollgate_preset_name(SIZE_MAX) == NULL);
    tollgate_policy *policy = NULL;
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_policy_preset(TOLLGATE_LITERAL("hubs"), &error, &policy), TOLLGATE_STATUS_UNKNOWN_PRESET);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_UNKNOWN_PRESET);
    EXPECT(strstr(error.message, "did you mean \"hub\"?") != NULL);
    EXPECT_EQ(tollgate_policy_preset(TOLLGATE_LITERAL("hubs"), NULL, &policy), TOLLGATE_STATUS_UNKNOWN_PRESET);
    EXPECT_EQ(tollgate_policy_preset(NULL, 1, &error, &policy), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_preset("hub", 3, &error, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_preset("\xff", 1, &error, &policy), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_preset("hub", SIZE_MAX, &error, &policy), TOLLGATE_STATUS_TEXT_TOO_LONG);
    error.struct_size--;
    EXPECT_EQ(tollgate_policy_preset("hub", 3, &error, &policy), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(policy == NULL);
}

/* A text that must be refused: why, and where. */
static void expect_refusal(const char *toml, uint32_t line, uint32_t column, const char *words)
{
    tollgate_policy *policy = NULL;
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_policy_from_toml(toml, strlen(toml), &error, &policy), TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT(policy == NULL);
    EXPECT_EQ(error.struct_size, sizeof error);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_INVALID_POLICY);
    EXPECT_EQ(error.line, line);
    EXPECT_EQ(error.column, column);
    if (strstr(error.message, words) == NULL) {
        fprintf(stderr, "%s: \"%s\" does not say \"%s\"\n", toml, error.message, words);
        expectations_failed = 1;
    }
    /* The error is optional. */
    EXPECT_EQ(tollgate_policy_from_toml(toml, strlen(toml), NULL, &policy), TOLLGATE_STATUS_INVALID_POLICY);
}

static void a_refusal_says_why_and_where(void)
{
    expect_refusal("[lanes]\nhttp = '0/min'", 2, 8, "lane \"http\": a rate or burst of 0");
    expect_refusal("[lanes]\nhttp = 'sixty'", 2, 8, "\"sixty\" is not a limit");
    expect_refusal("[lanes]\nhttp = '2000000000/s'", 2, 8, "at most 1000000000 per second");
    expect_refusal("[lanes]\nhttp = '1/0s'", 2, 8, "a period of 0");
    expect_refusal("[lanes]\n'two words' = '1/s'", 2, 1, "lane name \"two words\"");
    expect_refusal("[lanes]\n'' = '1/s'", 2, 1, "lane name \"\"");
    expect_refusal("", 1, 1, "a policy of 0 lanes");
    expect_refusal("warn_below_percent = 101\n[lanes]\na = '1/s'", 1, 22, "101");
    expect_refusal("on_change = 'maybe'\n[lanes]\na = '1/s'", 1, 13, "\"maybe\"");
    expect_refusal("[lanes]\na = '1/s'\n[plans.pro]\na = '0/s'", 4, 5,
                   "plan \"pro\", lane \"a\": a rate or burst of 0");
    expect_refusal("[lanes]\na = '1/s'\n[conduct]\nquiet = '2d'", 4, 9, "a quiet period of");
    expect_refusal("[lanes\n", 1, 7, "");
}

/* A name of 100,000 bytes is in the message, which is cut between two characters where it runs out of room. */
static void a_long_message_is_cut_short(void)
{
    enum { NAME = 100000 };
    static const char before[] = "[lanes]\n'", after[] = "' = '1/s'";
    char *toml = malloc(NAME + sizeof before + sizeof after), *end = toml;
    if (toml == NULL)
        exit(1);
    memcpy(end, before, sizeof before - 1);
    end += sizeof before - 1;
    for (size_t i = 0; i < NAME; i += 2, end += 2)
        memcpy(end, "\xc3\xa9", 2);
    memcpy(end, after, sizeof after);
    tollgate_policy *policy = NULL;
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_policy_from_toml(toml, strlen(toml), &error, &policy), TOLLGATE_STATUS_INVALID_POLICY);
    size_t len = strlen(error.message);
    EXPECT(len == TOLLGATE_ERROR_MESSAGE_BYTES - 1 || len == TOLLGATE_ERROR_MESSAGE_BYTES - 2);
    EXPECT_EQ((unsigned char)error.message[len - 1], 0xa9);
    free(toml);
}

static void a_policy_is_read_from_toml_and_written_to_it(void)
{
    static const char toml[] = "preset = \"hub\"\n[lanes]\n\"ws/light\" = \"600/min\"\n";
    tollgate_policy *policy = NULL, *again = NULL;
    tollgate_error error = SIZED(tollgate_error);
    error.message[0] = 'x';
    REQUIRE_OK(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), &error, &policy));
    EXPECT_EQ(error.message[0], 'x'); /* Written on failure alone. */
    EXPECT_TEXT("600/minute", tollgate_policy_limit, policy, 0, 0);
    char text[4096] = "?", copy[4096];
    size_t len = 77, same = 77;
    EXPECT_EQ(tollgate_policy_to_toml(policy, text, 8, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_policy_to_toml(NULL, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_to_toml(policy, text, sizeof text, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && len == 77);
    EXPECT_OK(tollgate_policy_to_toml(policy, NULL, 0, &len));
    EXPECT_OK(tollgate_policy_to_toml(policy, text, sizeof text, &same));
    EXPECT_EQ(len, same);
    EXPECT_EQ(len, strlen(text));
    REQUIRE_OK(tollgate_policy_from_toml(text, len, NULL, &again));
    EXPECT_OK(tollgate_policy_to_toml(again, copy, sizeof copy, &same));
    EXPECT_EQ(strcmp(text, copy), 0);
    tollgate_policy_free(again);
    tollgate_policy_free(policy);

    policy = NULL;
    EXPECT_EQ(tollgate_policy_from_toml(NULL, 1, &error, &policy), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(strcmp(error.message, tollgate_status_text(TOLLGATE_STATUS_NULL_POINTER)), 0);
    EXPECT_EQ(tollgate_policy_from_toml("\xff", 1, NULL, &policy), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_policy_from_toml("", SIZE_MAX, NULL, &policy), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_from_toml("", TOLLGATE_TEXT_BYTES_MAX + 1, NULL, &policy), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    error.struct_size--;
    EXPECT_EQ(tollgate_policy_from_toml(TOLLGATE_LITERAL(toml), &error, &policy), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(policy == NULL);
}

/* A library without TOML has presets, and the functions all the same. */
static void without_toml_the_functions_say_so(void)
{
    tollgate_policy *policy = NULL;
    size_t len = 77;
    EXPECT_EQ(tollgate_policy_from_toml("", 0, NULL, &policy), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT(policy == NULL);
    policy = preset("hub");
    EXPECT_EQ(tollgate_policy_to_toml(policy, NULL, 0, &len), TOLLGATE_STATUS_NOT_BUILT_IN);
    tollgate_policy_free(policy);
}

int main(void)
{
    every_preset_has_a_name();
    if (tollgate_features() & TOLLGATE_FEATURE_CONFIG) {
        a_policy_shows_its_lanes_plans_and_limits();
        misuse_finds_nothing();
        a_buffer_is_written_whole_or_not_at_all();
        a_refusal_says_why_and_where();
        a_long_message_is_cut_short();
        a_policy_is_read_from_toml_and_written_to_it();
    } else {
        without_toml_the_functions_say_so();
    }
    return expectations_end("test_policy");
}
