/* Limiters: built, asked about themselves, swept, freed. */
#include "tollgate_redis.h"

#include "expect.h"

static tollgate_limiter_view snapshot(const tollgate_limiter *limiter)
{
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    REQUIRE_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    return snapshot;
}

static void zero_options_are_the_defaults(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *plain = NULL, *zero = NULL;
    tollgate_limiter_options options = rig_options(0, 0, NULL);
    REQUIRE_OK(tollgate_limiter_new(policy, NULL, NULL, &plain));
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &zero));
    tollgate_limiter_view one = snapshot(plain), same = snapshot(zero);
    EXPECT_EQ(one.memory, same.memory);
    EXPECT_EQ(one.records, same.records);
    EXPECT(one.memory > TOLLGATE_AGENTS_DEFAULT * 64);
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
        REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
        EXPECT_EQ(tokens_left(limiter, "agent", 5, HEAVY), HEAVY_CAPACITY);
        tollgate_limiter_free(limiter);
    }
    tollgate_policy_free(policy);
}

/* Without it a few pages are touched, and those may be large. */
static void memory_is_prefaulted_on_request(void)
{
    const uint64_t agents = 200000;
    tollgate_policy *policy = rig_policy();
    for (uint32_t prefault = 0; prefault <= 1; prefault++) {
        tollgate_limiter_options options = rig_options(agents, TOLLGATE_ON_FULL_DENY, NULL);
        options.prefault = prefault;
        tollgate_limiter *limiter = NULL;
        uint64_t before = resident_bytes();
        REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
        uint64_t after = resident_bytes();
        EXPECT_EQ(after > before + agents * 48, prefault);
        EXPECT_EQ(tokens_left(limiter, "agent", 5, HEAVY), HEAVY_CAPACITY);
        tollgate_limiter_free(limiter);
    }
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
    EXPECT_OK(tollgate_limiter_new(policy, &options.known, NULL, &limiter));
    tollgate_limiter_free(limiter);
    limiter = NULL;
    options.later = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options.known, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(limiter == NULL);
    tollgate_policy_free(policy);
}

static void bad_options_are_refused(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(1, 0, NULL);
    options.struct_size = 31; /* Smaller than any version of it. */
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    options.struct_size = 0;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    options.struct_size = UINT32_MAX;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    options = rig_options(1, 2, NULL);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options = rig_options(1, -1, NULL);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options = rig_options(1, 0, NULL);
    options.id_hash = 2;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options.id_hash = 0;
    options.prefault = 2;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(strstr(error.message, "prefault is 2") != NULL);
    options.prefault = 0;
    options.roster = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(strstr(error.message, "TOLLGATE_OBSERVE_ON") != NULL);
    options = rig_options(UINT64_C(1) << 31, 0, NULL);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_limiter_new(NULL, NULL, NULL, &limiter), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_new(policy, NULL, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(limiter == NULL);

    /* The error says why. */
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &error, &limiter), TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE);
    EXPECT(error.message[0] != 0);
    error.struct_size--;
    EXPECT_EQ(tollgate_limiter_new(policy, NULL, &error, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    error.struct_size = 4097;
    EXPECT_EQ(tollgate_limiter_new(policy, NULL, &error, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(limiter == NULL);
    tollgate_policy_free(policy);
}

/* Without an engine there is nobody to share lanes with. The options are checked all the same. */
static void a_library_without_an_engine_shares_no_lanes(void)
{
    if ((tollgate_features() & TOLLGATE_FEATURE_CLUSTER) != 0)
        return;
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_cluster_options cluster = SIZED(tollgate_cluster_options);
    tollgate_limiter_options options = rig_options(1, 0, NULL);
    options.cluster = &cluster;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_NULL_POINTER);
    cluster.secret = "sixteen bytes or more";
    cluster.secret_len = 21;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_NOT_BUILT_IN);
    cluster.struct_size--;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_STRUCT_SIZE);
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
    EXPECT_EQ(number, 77);

    tollgate_policy *policy = NULL;
    EXPECT_EQ(tollgate_limiter_policy(NULL, &policy), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_policy(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(policy == NULL);
    REQUIRE_OK(tollgate_limiter_policy(made.limiter, &policy));
    rig_free(&made);
    /* A copy: it outlives the limiter. */
    EXPECT_TEXT("10/minute burst 3", tollgate_policy_limit, policy, 0, HEAVY);
    tollgate_policy_free(policy);
    tollgate_limiter_free(NULL);
}

static void a_sweep_vacates_idle_agents(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict;
    for (int agent = 0; agent < 10; agent++)
        EXPECT_OK(tollgate_check(made.limiter, REQUEST(&agent, sizeof agent, HEAVY, 1), TOLLGATE_NOW, 0, &verdict));
    tollgate_limiter_view seen = snapshot(made.limiter);
    EXPECT_EQ(seen.agents, 10);
    EXPECT_EQ(seen.claims, 10);
    EXPECT(seen.records >= 100);
    EXPECT_EQ(seen.lossy_evictions | seen.idle_evictions | seen.retries, 0);

    uint64_t swept = 77;
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, 0, TOLLGATE_NOW, &swept));
    EXPECT_EQ(swept, 0); /* No agent is idle yet, */
    EXPECT_OK(tollgate_clock_advance(made.clock, 60 * SECOND));
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, 60 * SECOND, TOLLGATE_NOW, &swept));
    EXPECT_EQ(swept, 0); /* nor has been for a minute, */
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, 0, 1000 * SECOND, &swept));
    EXPECT_EQ(swept, 0); /* nor was at that time. */
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, 50 * SECOND, 1060 * SECOND, &swept));
    EXPECT_EQ(swept, 10);
    seen = snapshot(made.limiter);
    EXPECT_EQ(seen.agents, 0);
    EXPECT_EQ(seen.idle_evictions, 10);

    swept = 77;
    EXPECT_EQ(tollgate_limiter_sweep(NULL, 0, TOLLGATE_NOW, &swept), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_sweep(made.limiter, 0, TOLLGATE_NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(swept, 77);
    EXPECT_OK(tollgate_limiter_sweep(made.limiter, UINT64_MAX, TOLLGATE_NOW, &swept));
    EXPECT_EQ(swept, 0);
    rig_free(&made);
}

int main(void)
{
    zero_options_are_the_defaults();
    either_hash_and_any_number_of_agents_will_do();
    memory_is_prefaulted_on_request();
    options_from_the_future_are_understood_if_they_ask_for_nothing_new();
    bad_options_are_refused();
    a_library_without_an_engine_shares_no_lanes();
    a_limiter_knows_its_lanes_its_time_and_its_policy();
    a_sweep_vacates_idle_agents();
    return expectations_end("test_limiter");
}
