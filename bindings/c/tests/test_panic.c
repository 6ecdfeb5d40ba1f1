/*
 * A panic inside becomes a status, in every function that can have one, with
 * outputs untouched, except the error; and the next call works. Needs the library that is built
 * with --cfg tollgate_test_hooks.
 */
#include "expect.h"

/* The next call of this thread panics inside. */
void tollgate_test_panic_next(void);

/* Rust reports each panic on stderr, as it should. */
#define EXPECT_PANIC(call)                          \
    do {                                            \
        tollgate_test_panic_next();                 \
        EXPECT_EQ(call, TOLLGATE_STATUS_PANIC);     \
    } while (0)

int main(void)
{
    rig made = rig_new(10, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    tollgate_log_throttle *throttle = NULL;
    REQUIRE_OK(tollgate_log_throttle_new(&throttle));

    tollgate_clock *clock = NULL;
    tollgate_policy *policy = NULL;
    tollgate_limiter *second = NULL;
    tollgate_log_throttle *log = NULL;
    uint64_t number = 77;
    uint32_t small = 77;
    size_t len = 77;
    char text[8] = "????";
    bool flag = true;
    const tollgate_request request = { "a", 1, 1, HEAVY, TOLLGATE_NONE, NULL };
    const tollgate_id ids[] = { { "a", 1 } };
    const tollgate_assignment_entry entry = { "a", 1, NULL, 0, 0, 0 };
    tollgate_verdict verdict;
    memset(&verdict, 0x5a, sizeof verdict);
    tollgate_agent_id agent;
    memset(&agent, 0x5a, sizeof agent);
    tollgate_error error = SIZED(tollgate_error);
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    tollgate_violation violation = SIZED(tollgate_violation);
    tollgate_conduct_state conduct = SIZED(tollgate_conduct_state);
    tollgate_assignment_state assignment = SIZED(tollgate_assignment_state);
    tollgate_budgets_loaded loaded = SIZED(tollgate_budgets_loaded);
    tollgate_budgets_saved saved = SIZED(tollgate_budgets_saved);
    tollgate_action_lane lane = SIZED(tollgate_action_lane);
    tollgate_unknown_action_totals actions = SIZED(tollgate_unknown_action_totals);
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    tollgate_agent_view view = SIZED(tollgate_agent_view);
    tollgate_agent_page page = SIZED(tollgate_agent_page);
    tollgate_offender_totals offenders = SIZED(tollgate_offender_totals);
    tollgate_event event = SIZED(tollgate_event);
    tollgate_call_limit limit;

    EXPECT_PANIC(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    EXPECT_PANIC(tollgate_clock_now(made.clock, &number));
    EXPECT_PANIC(tollgate_clock_advance(made.clock, SECOND));
    EXPECT_PANIC(tollgate_clock_set(made.clock, 0));

    EXPECT_PANIC(tollgate_policy_preset("hub", 3, &error, &policy));
    EXPECT_PANIC(tollgate_policy_from_toml("", 0, &error, &policy));
    EXPECT_PANIC(tollgate_policy_to_toml(made.policy, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_lane(made.policy, "heavy", 5, &small));
    EXPECT_PANIC(tollgate_policy_lane_name(made.policy, HEAVY, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_plan(made.policy, "default", 7, &small));
    EXPECT_PANIC(tollgate_policy_plan_name(made.policy, 0, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_policy_limit(made.policy, 0, HEAVY, text, sizeof text, &len));

    EXPECT_PANIC(tollgate_call_limit_read("1/s", 3, &error, &limit));
    EXPECT_PANIC(tollgate_limiter_new(made.policy, NULL, &error, &second));
    EXPECT_PANIC(tollgate_limiter_policy(limiter, &policy));
    EXPECT_PANIC(tollgate_limiter_lane(limiter, "heavy", 5, &small));
    EXPECT_PANIC(tollgate_limiter_plan(limiter, "default", 7, &small));
    EXPECT_PANIC(tollgate_limiter_now(limiter, &number));
    EXPECT_PANIC(tollgate_limiter_sweep(limiter, 0, TOLLGATE_NOW, &number));

    EXPECT_PANIC(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict));
    EXPECT_PANIC(tollgate_check(limiter, &request, 0, TOLLGATE_COUNTED, &verdict));
    EXPECT_PANIC(tollgate_check_many(limiter, &request, 1, TOLLGATE_NOW, 0, &verdict));
    EXPECT_PANIC(tollgate_check_all(limiter, &request, 1, TOLLGATE_NOW, 0, &verdict, &all));
    EXPECT_PANIC(tollgate_peek(limiter, &request, TOLLGATE_NOW, &state));
    EXPECT_PANIC(tollgate_refund(limiter, &request, TOLLGATE_NOW, &state));
    EXPECT_PANIC(tollgate_hold(limiter, &request, TOLLGATE_NOW, 0, &verdict));
    EXPECT_PANIC(tollgate_release(limiter, &request, TOLLGATE_NOW, &state));
    EXPECT_PANIC(tollgate_reset(limiter, "a", 1, HEAVY, TOLLGATE_NOW));
    EXPECT_PANIC(tollgate_forget(limiter, "a", 1, TOLLGATE_NOW, &flag));

    EXPECT_PANIC(tollgate_reserve(limiter, &request, SECOND, TOLLGATE_NOW, 0, &verdict, &number));
    EXPECT_PANIC(tollgate_settle(limiter, 1, 1, TOLLGATE_NOW, 0, &settlement));
    EXPECT_PANIC(tollgate_extend(limiter, 1, 1, TOLLGATE_NOW));

    EXPECT_PANIC(tollgate_record_violation(limiter, "a", 1, TOLLGATE_NOW, &violation));
    EXPECT_PANIC(tollgate_conduct(limiter, "a", 1, TOLLGATE_NOW, &conduct));
    EXPECT_PANIC(tollgate_reset_violations(limiter, "a", 1, &flag));
    EXPECT_PANIC(tollgate_assignable(limiter, ids, 1, TOLLGATE_NOW, &flag));

    EXPECT_PANIC(tollgate_assign(limiter, "a", 1, 0, &error));
    EXPECT_PANIC(tollgate_set_override(limiter, "a", 1, "heavy", 5, "1/s", 3, &error));
    EXPECT_PANIC(tollgate_set_exempt(limiter, "a", 1, true, &error));
    EXPECT_PANIC(tollgate_limit_of(limiter, "a", 1, HEAVY, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_assignment(limiter, "a", 1, &assignment, NULL, 0));
    EXPECT_PANIC(tollgate_assigned(limiter, NULL, 0, &agent, 1, &len));
    EXPECT_PANIC(tollgate_set_assignments(limiter, &entry, 1, &error));
    EXPECT_PANIC(tollgate_replace_policy(limiter, made.policy, &error));
    EXPECT_PANIC(tollgate_keep_assignments_in(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_reload_assignments(limiter, &error));
    EXPECT_PANIC(tollgate_keep_budgets_in(limiter, "a", 1, &error, &loaded));
    EXPECT_PANIC(tollgate_save_budgets(limiter, &error, &saved));

    EXPECT_PANIC(tollgate_lane_for(limiter, "a", 1, "a", 1, &lane));
    EXPECT_PANIC(tollgate_unknown_actions(limiter, NULL, 0, &actions));
    EXPECT_PANIC(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    EXPECT_PANIC(tollgate_agent(limiter, "a", 1, TOLLGATE_NOW, &view, NULL, 0));
    EXPECT_PANIC(tollgate_agents(limiter, NULL, NULL, 0, &page));
    EXPECT_PANIC(tollgate_top_offenders(limiter, NULL, 0, &offenders));
    EXPECT_PANIC(tollgate_poll_event(limiter, &event));
    EXPECT_PANIC(tollgate_report(limiter, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_write_report(limiter, "a", 1, &error));
    EXPECT_PANIC(tollgate_id_shown("a", 1, TOLLGATE_SHOWN_TEXT, text, sizeof text, &len));
    EXPECT_PANIC(tollgate_log_throttle_new(&log));
    EXPECT_PANIC(tollgate_log_throttle_denied(throttle, "a", 1, 0, &flag));
    EXPECT_PANIC(tollgate_log_throttle_line(throttle, 0, text, sizeof text, &len));

    EXPECT(clock == NULL && policy == NULL && second == NULL && log == NULL);
    EXPECT(number == 77 && small == 77 && len == 77 && text[0] == '?' && flag);
    EXPECT_EQ(verdict.status, 0x5a5a5a5a);
    EXPECT_EQ(agent.len, 0x5a5a5a5a);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_PANIC);
    EXPECT_EQ(strcmp(error.message, tollgate_status_text(TOLLGATE_STATUS_PANIC)), 0);
    EXPECT_EQ(all.retry_after_ns | state.capacity | settlement.unused | settlement.left, 0);
    EXPECT_EQ(violation.step_ns | conduct.wait_ns | conduct.window_start_ns | assignment.plan, 0);
    EXPECT_EQ(loaded.loaded | saved.saved | lane.known | actions.total | snapshot.records, 0);
    EXPECT_EQ(view.at_ns | page.matched | offenders.violations | event.at_ns, 0);

    /* A function that frees cannot say so: it gives up, and can be called again. */
    tollgate_test_panic_next();
    tollgate_log_throttle_free(throttle);
    tollgate_log_throttle_free(throttle);
    tollgate_test_panic_next();
    tollgate_policy_free(made.policy);
    tollgate_test_panic_next();
    tollgate_clock_free(made.clock);
    tollgate_test_panic_next();
    tollgate_limiter_free(made.limiter);

    EXPECT_OK(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), HEAVY_CAPACITY - 1);
    rig_free(&made);
    return expectations_end("test_panic");
}
