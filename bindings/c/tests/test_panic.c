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
    EXPECT_PANIC(tollgate_default(&second));
    EXPECT_PANIC(tollgate_default_configure(made.policy, NULL));

    EXPECT(clock == NULL && policy == NULL && another == NULL && second == NULL);
    EXPECT(number == 77 && small == 77 && len == 77 && text[0] == '?' && known);
    EXPECT_EQ(source, TOLLGATE_TIME_SOURCE_COARSE);
    EXPECT_EQ(verdict.capacity | status.capacity | stats.records, 0);
    EXPECT_EQ(error.message[0], 0);
    EXPECT_EQ(answer.status, 0x5a5a5a5a);

    /* What frees cannot say so: it gives up, and can be called again. */
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
