/* Clocks: every source, and the one that is moved by hand. */
#include "expect.h"

/* What a limiter on this clock says that it reads. */
static tollgate_clock_source source_of(const tollgate_clock *clock)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    tollgate_limiter_options options = rig_options(10, TOLLGATE_ON_FULL_DENY, clock);
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    EXPECT_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    EXPECT_EQ(snapshot.clock_fallbacks, 0);
    tollgate_limiter_free(limiter);
    tollgate_policy_free(policy);
    return snapshot.clock_source;
}

static void every_source_can_be_read(void)
{
    static const int32_t chosen[] = { TOLLGATE_CLOCK_SOURCE_OS, TOLLGATE_CLOCK_SOURCE_COARSE,
                                      TOLLGATE_CLOCK_SOURCE_BOOTTIME, TOLLGATE_CLOCK_SOURCE_MANUAL };
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        tollgate_clock *clock = NULL;
        uint64_t now = 0, later = 0;
        REQUIRE_OK(tollgate_clock_new(chosen[i], &clock));
        EXPECT_EQ(source_of(clock), chosen[i]);
        EXPECT_OK(tollgate_clock_now(clock, &now));
        EXPECT_OK(tollgate_clock_now(clock, &later));
        EXPECT(now <= later);
        EXPECT_EQ(now == 0, chosen[i] == TOLLGATE_CLOCK_SOURCE_MANUAL);
        if (chosen[i] != TOLLGATE_CLOCK_SOURCE_MANUAL) {
            EXPECT_EQ(tollgate_clock_advance(clock, 1), TOLLGATE_STATUS_NOT_MANUAL);
            EXPECT_EQ(tollgate_clock_set(clock, 1), TOLLGATE_STATUS_NOT_MANUAL);
        }
        tollgate_clock_free(clock);
    }
}

/* Which of the two depends on the machine. A limiter without a clock does the same. */
static void auto_chooses_the_counter_or_the_system(void)
{
    tollgate_clock *clock = NULL;
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_AUTO, &clock));
    const tollgate_clock_source source = source_of(clock);
    EXPECT(source == TOLLGATE_CLOCK_SOURCE_TSC || source == TOLLGATE_CLOCK_SOURCE_OS);
    EXPECT_EQ(source_of(NULL), source);
    tollgate_clock_free(clock);
}

static void a_manual_clock_moves_by_hand(void)
{
    tollgate_clock *clock = NULL;
    uint64_t now = 77;
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    EXPECT_OK(tollgate_clock_advance(clock, 5 * SECOND));
    EXPECT_OK(tollgate_clock_advance(clock, 1));
    EXPECT_OK(tollgate_clock_now(clock, &now));
    EXPECT_EQ(now, 5 * SECOND + 1);
    EXPECT_OK(tollgate_clock_set(clock, 3));
    EXPECT_OK(tollgate_clock_now(clock, &now));
    EXPECT_EQ(now, 3);
    EXPECT_OK(tollgate_clock_advance(clock, UINT64_MAX));
    EXPECT_OK(tollgate_clock_now(clock, &now));
    EXPECT_EQ(now, (UINT64_C(1) << 60) - 1);
    tollgate_clock_free(clock);
}

/* The limiter goes on with the clock's time when the handle is gone. */
static void a_limiter_outlives_the_handle_of_its_clock(void)
{
    rig made = rig_new(10, TOLLGATE_ON_FULL_DENY);
    uint64_t now = 0;
    tollgate_clock_free(made.clock);
    made.clock = NULL;
    EXPECT_OK(tollgate_limiter_now(made.limiter, &now));
    EXPECT_EQ(now, 1000 * SECOND);
    rig_free(&made);
}

static void misuse_is_answered(void)
{
    tollgate_clock *clock = NULL;
    uint64_t number = 77;
    EXPECT_EQ(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_TSC, &clock), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_clock_new(6, &clock), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_clock_new(-1, &clock), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(clock == NULL);
    EXPECT_EQ(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_OS, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_clock_now(NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_clock_advance(NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_clock_set(NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(number, 77);
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    EXPECT_EQ(tollgate_clock_now(clock, NULL), TOLLGATE_STATUS_NULL_POINTER);
    tollgate_clock_free(clock);
    tollgate_clock_free(NULL);
}

int main(void)
{
    every_source_can_be_read();
    auto_chooses_the_counter_or_the_system();
    a_manual_clock_moves_by_hand();
    a_limiter_outlives_the_handle_of_its_clock();
    misuse_is_answered();
    return expectations_end("test_clock");
}
