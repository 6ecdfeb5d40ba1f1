/* Actions: the lane that pays for each, and those that the policy does not name. */
#include "expect.h"

static void an_action_goes_to_its_lane_and_an_unknown_one_is_reported_once(void)
{
    rig made = rig_of(preset("hub"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_action_lane lane = SIZED(tollgate_action_lane);
    EXPECT_OK(tollgate_lane_for(made.limiter, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("ping"), &lane));
    EXPECT_EQ(lane.lane, 0);
    EXPECT_EQ(lane.known, 1);
    EXPECT_EQ(lane.first_seen, 0);
    EXPECT_EQ(lane.struct_size, sizeof lane);
    EXPECT_OK(tollgate_lane_for(made.limiter, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("identify"), &lane));
    EXPECT_EQ(lane.lane, 2);
    for (uint32_t times = 0; times < 2; times++) {
        EXPECT_OK(tollgate_lane_for(made.limiter, TOLLGATE_LITERAL("http"), TOLLGATE_LITERAL("dance"), &lane));
        EXPECT_EQ(lane.lane, 4);
        EXPECT_EQ(lane.known, 0);
        EXPECT_EQ(lane.first_seen, times == 0);
    }
    EXPECT_OK(tollgate_lane_for(made.limiter, TOLLGATE_LITERAL("ws"), TOLLGATE_LITERAL("sing"), &lane));
    EXPECT_EQ(lane.lane, 1);

    /* Sorted by channel and name. */
    tollgate_unknown_action actions[3];
    tollgate_unknown_action_totals totals = SIZED(tollgate_unknown_action_totals);
    memset(actions, 0x5a, sizeof actions);
    EXPECT_OK(tollgate_unknown_actions(made.limiter, actions, 3, &totals));
    EXPECT_EQ(totals.total, 3);
    EXPECT_EQ(totals.not_listed, 0);
    EXPECT_EQ(totals.count, 2);
    EXPECT_EQ(totals.struct_size, sizeof totals);
    EXPECT(strcmp(actions[0].channel, "http") == 0 && strcmp(actions[0].name, "dance") == 0);
    EXPECT(strcmp(actions[1].channel, "ws") == 0 && strcmp(actions[1].name, "sing") == 0);
    EXPECT_EQ(actions[2].name[0], 0x5a);
    /* With room for one, one is written; and all are counted. */
    memset(actions, 0x5a, sizeof actions);
    EXPECT_OK(tollgate_unknown_actions(made.limiter, actions, 1, &totals));
    EXPECT_EQ(totals.count, 2);
    EXPECT_EQ(strcmp(actions[0].name, "dance"), 0);
    EXPECT_EQ(actions[1].name[0], 0x5a);
    EXPECT_OK(tollgate_unknown_actions(made.limiter, NULL, 0, &totals));

    totals.total = 77;
    EXPECT_EQ(tollgate_unknown_actions(NULL, actions, 1, &totals), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions(made.limiter, NULL, 1, &totals), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_unknown_actions(made.limiter, actions, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    totals.struct_size--;
    EXPECT_EQ(tollgate_unknown_actions(made.limiter, actions, 1, &totals), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(totals.total, 77);
    rig_free(&made);
}

static void a_long_name_is_cut(void)
{
    rig made = rig_of(preset("hub"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_action_lane lane = SIZED(tollgate_action_lane);
    tollgate_unknown_action action;
    tollgate_unknown_action_totals totals = SIZED(tollgate_unknown_action_totals);
    char name[100];
    memset(name, 'x', sizeof name);
    EXPECT_OK(tollgate_lane_for(made.limiter, "ws", 2, name, sizeof name, &lane));
    EXPECT_OK(tollgate_unknown_actions(made.limiter, &action, 1, &totals));
    EXPECT_EQ(strlen(action.name), TOLLGATE_NAME_BYTES_MAX);
    rig_free(&made);
}

static void misuse_finds_no_lane(void)
{
    rig made = rig_of(preset("hub"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_action_lane lane = SIZED(tollgate_action_lane);
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        EXPECT_EQ(tollgate_lane_for(cases[i].no_handle ? NULL : made.limiter, cases[i].channel, cases[i].channel_len,
                                    cases[i].action, cases[i].action_len, &lane),
                  cases[i].status);
    EXPECT_EQ(tollgate_lane_for(made.limiter, "ws", 2, "ping", 4, NULL), TOLLGATE_STATUS_NULL_POINTER);
    lane.struct_size--;
    EXPECT_EQ(tollgate_lane_for(made.limiter, "ws", 2, "ping", 4, &lane), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(lane.lane, 77);
    rig_free(&made);
}

int main(void)
{
    an_action_goes_to_its_lane_and_an_unknown_one_is_reported_once();
    a_long_name_is_cut();
    misuse_finds_no_lane();
    return expectations_end("test_action");
}
