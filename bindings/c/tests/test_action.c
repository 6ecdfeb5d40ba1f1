/* Actions: the lane that pays for each, and those that nobody has classified. */
#include "expect.h"

static void an_action_goes_to_its_lane_and_an_unknown_one_is_told_of_once(void)
{
    rig made = rig_of(preset("hub"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_action_lane lane = action_lane_new();
    EXPECT_OK(tollgate_limiter_lane_for(made.limiter, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("ping"), &lane));
    EXPECT_EQ(lane.lane, 0);
    EXPECT_EQ(lane.known, 1);
    EXPECT_EQ(lane.first_seen, 0);
    EXPECT_EQ(lane.struct_size, sizeof lane);
    for (uint32_t times = 0; times < 2; times++) {
        EXPECT_OK(tollgate_limiter_lane_for(made.limiter, TOLLGATE_LITERAL("http"), TOLLGATE_LITERAL("dance"), &lane));
        EXPECT_EQ(lane.lane, 4);
        EXPECT_EQ(lane.known, 0);
        EXPECT_EQ(lane.first_seen, times == 0);
    }
    EXPECT_OK(tollgate_policy_lane_for(made.policy, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("identify"), &lane));
    EXPECT_EQ(lane.lane, 2);
    EXPECT_EQ(lane.known, 1);
    EXPECT_OK(tollgate_policy_lane_for(made.policy, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("sing"), &lane));
    EXPECT_EQ(lane.lane, 1);
    EXPECT_EQ(lane.known | lane.first_seen, 0);

    tollgate_unknown_actions *actions = NULL;
    uint64_t total = 77, not_listed = 77;
    size_t count = 77;
    REQUIRE_OK(tollgate_limiter_unknown_actions(made.limiter, &actions));
    EXPECT_OK(tollgate_unknown_actions_total(actions, &total));
    EXPECT_OK(tollgate_unknown_actions_not_listed(actions, &not_listed));
    EXPECT_OK(tollgate_unknown_actions_count(actions, &count));
    EXPECT_EQ(total, 2); /* The policy counts nothing. */
    EXPECT_EQ(not_listed, 0);
    EXPECT_EQ(count, 1);
    EXPECT_TEXT("http", tollgate_unknown_actions_channel, actions, 0);
    EXPECT_TEXT("dance", tollgate_unknown_actions_name, actions, 0);

    char text[8] = "?";
    EXPECT_EQ(tollgate_unknown_actions_channel(actions, 1, text, 8, &count), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_unknown_actions_name(actions, 1, text, 8, &count), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_unknown_actions_channel(NULL, 0, text, 8, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_name(NULL, 0, text, 8, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_total(NULL, &total), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_total(actions, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_not_listed(NULL, &total), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_not_listed(actions, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_count(NULL, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions_count(actions, NULL), TOLLGATE_STATUS_NULL_POINTER);
    tollgate_unknown_actions *none = NULL;
    EXPECT_EQ(tollgate_limiter_unknown_actions(NULL, &none), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_unknown_actions(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(none == NULL && text[0] == '?' && count == 1 && total == 2);
    tollgate_unknown_actions_free(actions);
    tollgate_unknown_actions_free(NULL);
    rig_free(&made);
}

static void misuse_finds_no_lane(void)
{
    rig made = rig_of(preset("hub"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_action_lane lane = action_lane_new();
    lane.lane = 77;
    static const struct {
        tollgate_status status;
        bool no_handle;
        const char *channel, *action;
        size_t channel_len, action_len;
    } cases[] = {
        { TOLLGATE_STATUS_UNKNOWN_LANE, false, "grpc", "ping", 4, 4 },
        { TOLLGATE_STATUS_NULL_POINTER, true, "ws", "ping", 2, 4 },
        { TOLLGATE_STATUS_NULL_POINTER, false, NULL, "ping", 2, 4 },
        { TOLLGATE_STATUS_NULL_POINTER, false, "ws", NULL, 2, 4 },
        { TOLLGATE_STATUS_NOT_UTF8, false, "\xff", "ping", 1, 4 },
        { TOLLGATE_STATUS_NOT_UTF8, false, "ws", "\xc3", 2, 1 },
        { TOLLGATE_STATUS_TEXT_TOO_LONG, false, "ws", "ping", 2, SIZE_MAX },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        EXPECT_EQ(tollgate_limiter_lane_for(cases[i].no_handle ? NULL : made.limiter, cases[i].channel,
                                            cases[i].channel_len, cases[i].action, cases[i].action_len, &lane),
                  cases[i].status);
        EXPECT_EQ(tollgate_policy_lane_for(cases[i].no_handle ? NULL : made.policy, cases[i].channel,
                                           cases[i].channel_len, cases[i].action, cases[i].action_len, &lane),
                  cases[i].status);
    }
    EXPECT_EQ(tollgate_limiter_lane_for(made.limiter, "ws", 2, "ping", 4, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_policy_lane_for(made.policy, "ws", 2, "ping", 4, NULL), TOLLGATE_STATUS_NULL_POINTER);
    lane.struct_size--;
    EXPECT_EQ(tollgate_limiter_lane_for(made.limiter, "ws", 2, "ping", 4, &lane), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_policy_lane_for(made.policy, "ws", 2, "ping", 4, &lane), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(lane.lane, 77);
    rig_free(&made);
}

int main(void)
{
    an_action_goes_to_its_lane_and_an_unknown_one_is_told_of_once();
    misuse_finds_no_lane();
    return expectations_end("test_action");
}
