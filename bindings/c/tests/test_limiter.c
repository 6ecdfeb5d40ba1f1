/* Limiters: made, asked about themselves, swept, freed. */
#include "expect.h"

static void zero_options_are_the_defaults(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *plain = NULL, *zero = NULL;
    tollgate_limiter_options options = rig_options(0, 0, NULL);
    REQUIRE_OK(tollgate_limiter_new(policy, NULL, &plain));
    REQUIRE_OK(tollgate_limiter_new(policy, &options, &zero));
    uint64_t bytes = 0, same = 1;
    EXPECT_OK(tollgate_limiter_memory(plain, &bytes));
    EXPECT_OK(tollgate_limiter_memory(zero, &same));
    EXPECT_EQ(bytes, same);
    EXPECT(bytes > TOLLGATE_AGENTS_DEFAULT * 64);
    tollgate_limiter_free(plain);
    tollgate_limiter_free(zero);
    tollgate_policy_free(policy);
}

static void either_hash_and_any_number_of_agents_will_do(void)
{
    tollgate_policy *policy = rig_policy();
    for (int32_t hash = TOLLGATE_ID_HASH_MULTILINEAR; hash <= TOLLGATE_ID_HASH_SIPHASH13; hash++) {
        tollgate_limiter_options options = rig_options(1, TOLLGATE_ON_FULL_DENY, NULL);
        options.id_hash = hash;
        tollgate_limiter *limiter = NULL;
        REQUIRE_OK(tollgate_limiter_new(policy, &options, &limiter));
        EXPECT_EQ(tokens_left(limiter, "agent", 5, HEAVY), HEAVY_CAPACITY);
        tollgate_limiter_free(limiter);
    }
    tollgate_policy_free(policy);
}

/* Without it a few pages are touched, and those may be large. */
static void memory_is_committed_at_the_start_if_asked_for(void)
{
    const uint64_t agents = 200000;
    tollgate_policy *policy = rig_policy();
    for (uint32_t commit = 0; commit <= 1; commit++) {
        tollgate_limiter_options options = rig_options(agents, TOLLGATE_ON_FULL_DENY, NULL);
        options.commit_memory = commit;
        tollgate_limiter *limiter = NULL;
        uint64_t before = resident_bytes();
        REQUIRE_OK(tollgate_limiter_new(policy, &options, &limiter));
        uint64_t after = resident_bytes();
        EXPECT_EQ(after > before + agents * 48, commit);
        EXPECT_EQ(tokens_left(limiter, "agent", 5, HEAVY), HEAVY_CAPACITY);
        tollgate_limiter_free(limiter);
    }
    tollgate_policy_free(policy);
}

/* What was compiled before memory could be committed has smaller options. */
static void options_from_before_commit_memory_are_understood(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(1, 0, NULL);
    options.struct_size = offsetof(tollgate_limiter_options, commit_memory);
    options.commit_memory = 77; /* Not looked at. */
    options.reservations_per_agent = 77;
    EXPECT_OK(tollgate_limiter_new(policy, &options, &limiter));
    tollgate_limiter_free(limiter);
    tollgate_policy_free(policy);
}

/* Larger than this version knows: fine if the rest is zero. */
static void options_from_the_future_are_understood_if_they_ask_for_nothing_new(void)
{
    struct {
        tollgate_limiter_options known;
        uint64_t later;
    } options = { rig_options(1, 0, NULL), 0 };
    options.known.struct_size = sizeof options;
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    EXPECT_OK(tollgate_limiter_new(policy, &options.known, &limiter));
    tollgate_limiter_free(limiter);
    limiter = NULL;
    options.later = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options.known, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(limiter == NULL);
    tollgate_policy_free(policy);
}

/* One agent has at most as many reservations as the options say. */
static void one_agent_has_only_its_share_of_all_reservations(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(10, 0, NULL);
    options.reservations_per_agent = 1;
    EXPECT_OK(tollgate_limiter_new(policy, &options, &limiter));
    tollgate_verdict verdict = { .struct_size = sizeof verdict };
    tollgate_settlement settlement = { .struct_size = sizeof settlement };
    uint64_t first = 0, second = 0;
    EXPECT_OK(tollgate_limiter_reserve(limiter, "a", 1, 0, 1, 1000000000, &verdict, &first));
    EXPECT_EQ(tollgate_limiter_reserve(limiter, "a", 1, 0, 1, 1000000000, &verdict, &second),
              TOLLGATE_STATUS_TOO_MANY_RESERVATIONS);
    EXPECT_OK(tollgate_limiter_reserve(limiter, "b", 1, 0, 1, 1000000000, &verdict, &second));
    EXPECT_EQ(tollgate_limiter_commit(limiter, first, UINT64_MAX, &settlement), TOLLGATE_STATUS_USED_TOO_LARGE);
    EXPECT_OK(tollgate_limiter_commit(limiter, first, 1, &settlement));
    tollgate_limiter_free(limiter);
    tollgate_policy_free(policy);
}

static void bad_options_are_refused(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(1, 0, NULL);
    options.struct_size = 31; /* Smaller than any version of it. */
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    options.struct_size = 0;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    options.struct_size = UINT32_MAX;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    options = rig_options(1, 2, NULL);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options = rig_options(1, -1, NULL);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options = rig_options(1, 0, NULL);
    options.id_hash = 2;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options.id_hash = 0;
    options.reserved = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options.reserved = 0;
    options.commit_memory = 2;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options = rig_options(UINT64_C(1) << 31, 0, NULL);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_limiter_new(NULL, NULL, &limiter), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_new(policy, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(limiter == NULL);
    tollgate_policy_free(policy);
}

static void a_limiter_knows_its_lanes_its_time_and_its_policy(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    uint32_t lane = 77;
    EXPECT_OK(tollgate_limiter_lane(made.limiter, TOLLGATE_LITERAL("heavy"), &lane));
    EXPECT_EQ(lane, HEAVY);
    lane = 77;
    EXPECT_EQ(tollgate_limiter_lane(made.limiter, TOLLGATE_LITERAL("Heavy"), &lane), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_lane(made.limiter, "\xff", 1, &lane), TOLLGATE_STATUS_NOT_UTF8);
    EXPECT_EQ(tollgate_limiter_lane(made.limiter, "heavy", SIZE_MAX, &lane), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_lane(made.limiter, NULL, 5, &lane), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_lane(NULL, "heavy", 5, &lane), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_lane(made.limiter, "heavy", 5, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(lane, 77);

    uint64_t number = 77;
    EXPECT_OK(tollgate_limiter_now(made.limiter, &number));
    EXPECT_EQ(number, 1000 * SECOND);
    number = 77;
    EXPECT_EQ(tollgate_limiter_now(NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_now(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_memory(NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_memory(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(number, 77);

    tollgate_policy *policy = NULL;
    EXPECT_EQ(tollgate_limiter_policy(NULL, &policy), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_policy(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(policy == NULL);
    REQUIRE_OK(tollgate_limiter_policy(made.limiter, &policy));
    uint32_t count = 0;
    EXPECT_OK(tollgate_policy_lane_count(policy, &count));
    EXPECT_EQ(count, LANES);
    rig_free(&made);
    /* A copy: it outlives the limiter. */
    EXPECT_OK(tollgate_policy_lane_count(policy, &count));
    tollgate_policy_free(policy);
    tollgate_limiter_free(NULL);
}

static void statistics_count_agents_and_a_sweep_vacates_idle_ones(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_stats stats = stats_new();
    tollgate_verdict verdict = verdict_new();
    for (int agent = 0; agent < 10; agent++)
        EXPECT_OK(tollgate_limiter_check(made.limiter, &agent, sizeof agent, HEAVY, 1, &verdict));
    EXPECT_OK(tollgate_limiter_stats(made.limiter, &stats));
    EXPECT_EQ(stats.struct_size, sizeof stats);
    EXPECT_EQ(stats.agents, 10);
    EXPECT_EQ(stats.claims, 10);
    EXPECT(stats.records >= 100);
    EXPECT_EQ(stats.lossy_evictions, 0);
    EXPECT_EQ(stats.idle_evictions, 0);
    EXPECT_EQ(stats.retries, 0);

    uint64_t swept = 77;
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, 0, &swept));
    EXPECT_EQ(swept, 0); /* Nobody is idle yet. */
    EXPECT_OK(tollgate_clock_advance(made.clock, 60 * SECOND));
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, 60 * SECOND, &swept));
    EXPECT_EQ(swept, 0); /* Not for so long. */
    EXPECT_OK(tollgate_limiter_sweep_at(made.limiter, 0, 1000 * SECOND, &swept));
    EXPECT_EQ(swept, 0); /* Nor at that time. */
    EXPECT_OK(tollgate_limiter_sweep_at(made.limiter, 50 * SECOND, 1060 * SECOND, &swept));
    EXPECT_EQ(swept, 10);
    EXPECT_OK(tollgate_limiter_stats(made.limiter, &stats));
    EXPECT_EQ(stats.agents, 0);
    EXPECT_EQ(stats.idle_evictions, 10);

    swept = 77;
    EXPECT_EQ(tollgate_limiter_sweep(NULL, 0, &swept), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_sweep(made.limiter, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_sweep_at(NULL, 0, 0, &swept), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_sweep_at(made.limiter, 0, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, UINT64_MAX, &swept));
    EXPECT_EQ(swept, 0);
    stats = stats_new();
    EXPECT_EQ(tollgate_limiter_stats(NULL, &stats), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_stats(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    stats.struct_size--;
    EXPECT_EQ(tollgate_limiter_stats(made.limiter, &stats), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(stats.records, 0);
    rig_free(&made);
}

int main(void)
{
    zero_options_are_the_defaults();
    either_hash_and_any_number_of_agents_will_do();
    memory_is_committed_at_the_start_if_asked_for();
    options_from_before_commit_memory_are_understood();
    one_agent_has_only_its_share_of_all_reservations();
    options_from_the_future_are_understood_if_they_ask_for_nothing_new();
    bad_options_are_refused();
    a_limiter_knows_its_lanes_its_time_and_its_policy();
    statistics_count_agents_and_a_sweep_vacates_idle_ones();
    return expectations_end("test_limiter");
}
