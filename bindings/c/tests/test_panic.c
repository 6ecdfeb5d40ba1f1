/*
 * A panic inside becomes a status, in every function that can have one, with
 * outputs as they were; and the next call works. Needs the library that is
 * built with --cfg tollgate_test_hooks.
 */
#include "expect.h"

/* The next call of this thread panics inside. */
void tollgate_test_panic_next(void);

/* Rust reports each panic on stderr; that is as it should be. */
#define EXPECT_PANIC(call)                          \
    do {                                            \
        tollgate_test_panic_next();                 \
        EXPECT_EQ(call, TOLLGATE_STATUS_PANIC);     \
    } while (0)

int main(void)
{
    rig made = rig_new(10, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_policy_builder *builder = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));

    tollgate_clock *clock = NULL;
    tollgate_policy *policy = NULL;
    tollgate_policy_builder *another = NULL;
    tollgate_limiter *second = NULL;
    uint64_t number = 77;
    uint32_t small = 77;
    size_t len = 77;
    char text[8] = "????";
    bool known = true;
    tollgate_time_source source = TOLLGATE_TIME_SOURCE_COARSE;
    tollgate_verdict verdict = verdict_new();
    tollgate_lane_status status = lane_status_new();
    tollgate_stats stats = stats_new();
    tollgate_error error = error_new();
    tollgate_request request = { "a", 1, 1, HEAVY, 0 };
    tollgate_admission admission = admission_new();
    tollgate_violation violation = violation_new();
    tollgate_conduct conduct = conduct_new();
    tollgate_conduct_rules rules = conduct_rules_new();
    tollgate_action_lane lane = action_lane_new();
    tollgate_on_change on_change = TOLLGATE_ON_CHANGE_RESET;
    tollgate_unknown_actions *actions = NULL, *unknown = NULL;
    tollgate_assignment *assignment = NULL, *assigned = NULL;
    tollgate_assignments *assignments = NULL, *all = NULL;
    REQUIRE_OK(tollgate_limiter_unknown_actions(limiter, &unknown));
    REQUIRE_OK(tollgate_assignment_new(&assigned));
    REQUIRE_OK(tollgate_assignments_new(&all));
    tollgate_id ids[] = { { "a", 1 } };
    tollgate_snapshot snapshot;
    memset(&snapshot, 0, sizeof snapshot);
    snapshot.struct_size = sizeof snapshot;
    tollgate_agent_view view;
    memset(&view, 0, sizeof view);
    view.struct_size = sizeof view;
    tollgate_event event;
    memset(&event, 0, sizeof event);
    event.struct_size = sizeof event;
    tollgate_agent_page *page = NULL, *listed = NULL;
    tollgate_offenders *offenders = NULL, *worst = NULL;
    tollgate_log_throttle *log = NULL, *throttle = NULL;
    REQUIRE_OK(tollgate_limiter_agents(limiter, NULL, &listed));
    REQUIRE_OK(tollgate_limiter_top_offenders(limiter, 1, &worst));
    REQUIRE_OK(tollgate_log_throttle_new(&throttle));
    tollgate_answer answer;
    memset(&answer, 0x5a, sizeof answer);

    EXPECT_PANIC(tollgate_clock_new(TOLLGATE_TIME_SOURCE_MANUAL, &clock));
    EXPECT_PANIC(tollgate_clock_now(made.clock, &number));
    EXPECT_PANIC(tollgate_clock_source(made.clock, &source));
    EXPECT_PANIC(tollgate_clock_fallbacks(made.clock, &number));
    EXPECT_PANIC(tollgate_clock_advance(made.clock, SECOND));
    EXPECT_PANIC(tollgate_clock_set(made.clock, 0));
    EXPECT_PANIC(tollgate_policy_builder_new(&another));
    EXPECT_PANIC(tollgate_policy_builder_lane(builder, "a", 1, "1/s", 3));
    EXPECT_PANIC(tollgate_policy_builder_lane_bucket(builder, "a", 1, 1, 1, 1));
    EXPECT_PANIC(tollgate_policy_builder_warn_below_percent(builder, 1));
    EXPECT_PANIC(tollgate_policy_builder_build(builder, &policy, &error));
    EXPECT_PANIC(tollgate_policy_lane(made.policy, "heavy", 5, &small));
    EXPECT_PANIC(tollgate_policy_lane_count(made.policy, &small));
    EXPECT_PANIC(tollgate_policy_lane_name(made.policy, HEAVY, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_limit(made.policy, HEAVY, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_warn_below_percent(made.policy, &small));
    EXPECT_PANIC(tollgate_limiter_new(made.policy, NULL, &second));
    EXPECT_PANIC(tollgate_limiter_policy(limiter, &policy));
    EXPECT_PANIC(tollgate_limiter_lane(limiter, "heavy", 5, &small));
    EXPECT_PANIC(tollgate_limiter_now(limiter, &number));
    EXPECT_PANIC(tollgate_limiter_memory(limiter, &number));
    EXPECT_PANIC(tollgate_limiter_stats(limiter, &stats));
    EXPECT_PANIC(tollgate_limiter_sweep(limiter, 0, &number));
    EXPECT_PANIC(tollgate_limiter_sweep_at(limiter, 0, 0, &number));
    EXPECT_PANIC(tollgate_limiter_check(limiter, "a", 1, HEAVY, 1, &verdict));
    EXPECT_PANIC(tollgate_limiter_check_at(limiter, "a", 1, HEAVY, 1, 0, &verdict));
    EXPECT_PANIC(tollgate_limiter_check_many(limiter, &request, 1, &answer));
    EXPECT_PANIC(tollgate_limiter_check_many_at(limiter, &request, 1, 0, &answer));
    EXPECT_PANIC(tollgate_limiter_status(limiter, "a", 1, HEAVY, &status));
    EXPECT_PANIC(tollgate_limiter_status_at(limiter, "a", 1, HEAVY, 0, &status));
    EXPECT_PANIC(tollgate_limiter_refund(limiter, "a", 1, HEAVY, 1, &status));
    EXPECT_PANIC(tollgate_limiter_refund_at(limiter, "a", 1, HEAVY, 1, 0, &status));
    EXPECT_PANIC(tollgate_limiter_reset(limiter, "a", 1));
    EXPECT_PANIC(tollgate_limiter_reset_at(limiter, "a", 1, 0));
    EXPECT_PANIC(tollgate_limiter_reset_lane(limiter, "a", 1, HEAVY));
    EXPECT_PANIC(tollgate_limiter_reset_lane_at(limiter, "a", 1, HEAVY, 0));
    EXPECT_PANIC(tollgate_limiter_forget(limiter, "a", 1, &known));
    EXPECT_PANIC(tollgate_limiter_forget_at(limiter, "a", 1, 0, &known));
    EXPECT_PANIC(tollgate_policy_builder_plan(builder, "a", 1));
    EXPECT_PANIC(tollgate_policy_builder_plan_lane(builder, "a", 1, "a", 1, "1/s", 3));
    EXPECT_PANIC(tollgate_policy_builder_plan_lane_bucket(builder, "a", 1, "a", 1, 1, 1, 1));
    EXPECT_PANIC(tollgate_policy_builder_action(builder, "a", 1, "a", 1, "a", 1));
    EXPECT_PANIC(tollgate_policy_builder_unknown_actions_to(builder, "a", 1));
    EXPECT_PANIC(tollgate_policy_builder_conduct(builder, &rules));
    EXPECT_PANIC(tollgate_policy_builder_on_change(builder, 0));
    EXPECT_PANIC(tollgate_policy_preset("hub", 3, &policy, &error));
    EXPECT_PANIC(tollgate_policy_from_toml("", 0, &policy, &error));
    EXPECT_PANIC(tollgate_policy_to_toml(made.policy, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_lanes_of(made.policy, "heavy", 5, &small, 1, &len));
    EXPECT_PANIC(tollgate_policy_plan(made.policy, "default", 7, &small));
    EXPECT_PANIC(tollgate_policy_plan_count(made.policy, &small));
    EXPECT_PANIC(tollgate_policy_plan_name(made.policy, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_plan_limit(made.policy, 0, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_capacity(made.policy, 0, 0, &number));
    EXPECT_PANIC(tollgate_policy_on_change(made.policy, &on_change));
    EXPECT_PANIC(tollgate_policy_conduct(made.policy, &rules));
    EXPECT_PANIC(tollgate_policy_action_count(made.policy, &len));
    EXPECT_PANIC(tollgate_policy_action_name(made.policy, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_action_lane(made.policy, 0, &small));
    EXPECT_PANIC(tollgate_policy_unknown_actions_tier(made.policy, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_lane_for(made.policy, "a", 1, "a", 1, &lane));
    EXPECT_PANIC(tollgate_limiter_plan(limiter, "default", 7, &small));
    EXPECT_PANIC(tollgate_limiter_lane_for(limiter, "a", 1, "a", 1, &lane));
    EXPECT_PANIC(tollgate_limiter_unknown_actions(limiter, &actions));
    EXPECT_PANIC(tollgate_unknown_actions_total(unknown, &number));
    EXPECT_PANIC(tollgate_unknown_actions_not_listed(unknown, &number));
    EXPECT_PANIC(tollgate_unknown_actions_count(unknown, &len));
    EXPECT_PANIC(tollgate_unknown_actions_channel(unknown, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_unknown_actions_name(unknown, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_limiter_check_as(limiter, "a", 1, 0, HEAVY, 1, &verdict));
    EXPECT_PANIC(tollgate_limiter_check_as_at(limiter, "a", 1, 0, HEAVY, 1, 0, &verdict));
    EXPECT_PANIC(tollgate_limiter_status_as(limiter, "a", 1, 0, HEAVY, &status));
    EXPECT_PANIC(tollgate_limiter_status_as_at(limiter, "a", 1, 0, HEAVY, 0, &status));
    EXPECT_PANIC(tollgate_limiter_refund_as(limiter, "a", 1, 0, HEAVY, 1, &status));
    EXPECT_PANIC(tollgate_limiter_refund_as_at(limiter, "a", 1, 0, HEAVY, 1, 0, &status));
    EXPECT_PANIC(tollgate_limiter_admit(limiter, "a", 1, CLOSED, 1, &admission));
    EXPECT_PANIC(tollgate_limiter_admit_at(limiter, "a", 1, CLOSED, 1, 0, &admission));
    EXPECT_PANIC(tollgate_limiter_admit_as(limiter, "a", 1, 0, CLOSED, 1, &admission));
    EXPECT_PANIC(tollgate_limiter_admit_as_at(limiter, "a", 1, 0, CLOSED, 1, 0, &admission));
    EXPECT_PANIC(tollgate_limiter_record_violation(limiter, "a", 1, &violation));
    EXPECT_PANIC(tollgate_limiter_record_violation_at(limiter, "a", 1, 0, &violation));
    EXPECT_PANIC(tollgate_limiter_violations(limiter, "a", 1, &conduct));
    EXPECT_PANIC(tollgate_limiter_violations_at(limiter, "a", 1, 0, &conduct));
    EXPECT_PANIC(tollgate_limiter_rate_limited(limiter, "a", 1, &known));
    EXPECT_PANIC(tollgate_limiter_rate_limited_at(limiter, "a", 1, 0, &known));
    EXPECT_PANIC(tollgate_limiter_assignable(limiter, ids, 1, &known));
    EXPECT_PANIC(tollgate_limiter_reset_violations(limiter, "a", 1, &known));
    EXPECT_PANIC(tollgate_limiter_assign(limiter, "a", 1, 0, &error));
    EXPECT_PANIC(tollgate_limiter_unassign(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_limiter_set_override(limiter, "a", 1, "heavy", 5, "1/s", 3, &error));
    EXPECT_PANIC(tollgate_limiter_set_override_bucket(limiter, "a", 1, "heavy", 5, 1, 1, 1, &error));
    EXPECT_PANIC(tollgate_limiter_remove_override(limiter, "a", 1, "heavy", 5, &error));
    EXPECT_PANIC(tollgate_limiter_remove_overrides(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_limiter_exempt(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_limiter_unexempt(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_limiter_is_exempt(limiter, "a", 1, &known));
    EXPECT_PANIC(tollgate_limiter_limit_of(limiter, "a", 1, HEAVY, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_limiter_assignment(limiter, "a", 1, &assignment));
    EXPECT_PANIC(tollgate_limiter_assignments(limiter, &assignments));
    EXPECT_PANIC(tollgate_limiter_set_assignments(limiter, all, &error));
    EXPECT_PANIC(tollgate_limiter_replace_policy(limiter, made.policy, &error));
    EXPECT_PANIC(tollgate_limiter_keep_assignments_in(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_limiter_reload_assignments(limiter, &error));
    EXPECT_PANIC(tollgate_assignment_new(&assignment));
    EXPECT_PANIC(tollgate_assignment_plan(assigned, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_assignment_set_plan(assigned, "a", 1));
    EXPECT_PANIC(tollgate_assignment_exempt(assigned, &known));
    EXPECT_PANIC(tollgate_assignment_set_exempt(assigned, true));
    EXPECT_PANIC(tollgate_assignment_override_count(assigned, &len));
    EXPECT_PANIC(tollgate_assignment_override_lane(assigned, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_assignment_override_limit(assigned, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_assignment_set_override(assigned, "a", 1, "1/s", 3, &error));
    EXPECT_PANIC(tollgate_assignment_remove_override(assigned, "a", 1, &known));
    EXPECT_PANIC(tollgate_assignments_new(&assignments));
    EXPECT_PANIC(tollgate_assignments_add(all, "a", 1, assigned));
    EXPECT_PANIC(tollgate_assignments_count(all, &len));
    EXPECT_PANIC(tollgate_assignments_id(all, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_assignments_get(all, 0, &assignment));
    EXPECT_PANIC(tollgate_limiter_acquire(limiter, "a", 1, HEAVY, &verdict));
    EXPECT_PANIC(tollgate_limiter_release(limiter, "a", 1, HEAVY, &status));
    EXPECT_PANIC(tollgate_limiter_snapshot(limiter, &snapshot, NULL, 0, &len));
    EXPECT_PANIC(tollgate_limiter_agent(limiter, "a", 1, &view, NULL, 0, &len));
    EXPECT_PANIC(tollgate_limiter_agent_at(limiter, "a", 1, 0, &view, NULL, 0, &len));
    EXPECT_PANIC(tollgate_limiter_agents(limiter, NULL, &page));
    EXPECT_PANIC(tollgate_agent_page_count(listed, &len));
    EXPECT_PANIC(tollgate_agent_page_matched(listed, &number));
    EXPECT_PANIC(tollgate_agent_page_not_listed(listed, &number));
    EXPECT_PANIC(tollgate_agent_page_id(listed, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_agent_page_agent(listed, 0, &view, NULL, 0, &len));
    EXPECT_PANIC(tollgate_limiter_top_offenders(limiter, 1, &offenders));
    EXPECT_PANIC(tollgate_offenders_count(worst, &len));
    EXPECT_PANIC(tollgate_offenders_total(worst, &number));
    EXPECT_PANIC(tollgate_offenders_id(worst, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_offenders_violations(worst, 0, &number, &number));
    EXPECT_PANIC(tollgate_limiter_poll_event(limiter, &event, &known));
    EXPECT_PANIC(tollgate_log_throttle_new(&log));
    EXPECT_PANIC(tollgate_log_throttle_denied(throttle, "a", 1, 0, &known));
    EXPECT_PANIC(tollgate_log_throttle_due(throttle, 0, &len));
    EXPECT_PANIC(tollgate_log_throttle_line(throttle, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_id_shown("a", 1, TOLLGATE_SHOWN_TEXT, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_default(&second));
    EXPECT_PANIC(tollgate_default_configure(made.policy, NULL));

    EXPECT(clock == NULL && policy == NULL && another == NULL && second == NULL);
    EXPECT(number == 77 && small == 77 && len == 77 && text[0] == '?' && known);
    EXPECT_EQ(source, TOLLGATE_TIME_SOURCE_COARSE);
    EXPECT_EQ(on_change, TOLLGATE_ON_CHANGE_RESET);
    EXPECT(actions == NULL && assignment == NULL && assignments == NULL);
    EXPECT(page == NULL && offenders == NULL && log == NULL);
    EXPECT_EQ(snapshot.records | view.at_ns | event.at_ns, 0);
    EXPECT_EQ(admission.capacity | violation.step_ns | conduct.wait_ns | rules.quiet_ns | lane.known, 0);
    EXPECT_EQ(verdict.capacity | status.capacity | stats.records, 0);
    EXPECT_EQ(error.message[0], 0);
    EXPECT_EQ(answer.status, 0x5a5a5a5a);

    /* What frees cannot say so: it gives up, and can be called again. */
    tollgate_test_panic_next();
    tollgate_agent_page_free(listed);
    tollgate_agent_page_free(listed);
    tollgate_test_panic_next();
    tollgate_offenders_free(worst);
    tollgate_offenders_free(worst);
    tollgate_test_panic_next();
    tollgate_log_throttle_free(throttle);
    tollgate_log_throttle_free(throttle);
    tollgate_test_panic_next();
    tollgate_unknown_actions_free(unknown);
    tollgate_unknown_actions_free(unknown);
    tollgate_test_panic_next();
    tollgate_assignment_free(assigned);
    tollgate_assignment_free(assigned);
    tollgate_test_panic_next();
    tollgate_assignments_free(all);
    tollgate_assignments_free(all);
    tollgate_test_panic_next();
    tollgate_policy_builder_free(builder);
    tollgate_policy_builder_free(builder);
    tollgate_test_panic_next();
    tollgate_policy_free(made.policy);
    tollgate_test_panic_next();
    tollgate_clock_free(made.clock);
    tollgate_test_panic_next();
    tollgate_limiter_free(made.limiter);

    EXPECT_OK(tollgate_limiter_check(limiter, "a", 1, HEAVY, 1, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), HEAVY_CAPACITY - 1);
    rig_free(&made);
    return expectations_end("test_panic");
}
