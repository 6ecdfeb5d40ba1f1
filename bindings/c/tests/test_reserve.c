/* Reservations: an estimate is charged, and settled when the cost is known. */
#include "expect.h"

static const char ID[] = "user:42";
enum { ID_LEN = sizeof ID - 1 };
enum { TOKENS, REQUESTS, HELD, EXACT };
#define BUDGET 10000
#define TTL (120 * SECOND)

static rig llm(uint64_t reservations)
{
    static const char *const names[] = { "tokens", "requests", "connections", "logins" };
    static const char *const limits[] = { "budget 10_000/day", "10/second", "held 3", "exact 3/5min" };
    tollgate_policy_builder *builder = NULL;
    rig made = { NULL, NULL, NULL };
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    for (uint32_t lane = 0; lane <= EXACT; lane++)
        REQUIRE_OK(tollgate_policy_builder_lane(builder, names[lane], strlen(names[lane]), limits[lane], strlen(limits[lane])));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &made.policy, NULL));
    tollgate_policy_builder_free(builder);
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_TIME_SOURCE_MANUAL, &made.clock));
    REQUIRE_OK(tollgate_clock_set(made.clock, 1000 * SECOND));
    tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, made.clock);
    options.reservations = reservations;
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, &made.limiter));
    return made;
}

static tollgate_settlement settlement_new(void)
{
    tollgate_settlement settlement;
    memset(&settlement, 0, sizeof settlement);
    settlement.struct_size = sizeof settlement;
    return settlement;
}

static uint64_t left(const rig *made)
{
    return tokens_left(made->limiter, ID, ID_LEN, TOKENS);
}

static uint64_t reserve(const rig *made, uint64_t estimate)
{
    tollgate_verdict verdict = verdict_new();
    uint64_t reservation = 0;
    REQUIRE_OK(tollgate_limiter_reserve(made->limiter, ID, ID_LEN, TOKENS, estimate, TTL, &verdict, &reservation));
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
    return reservation;
}

static void an_estimate_is_charged_and_settled(void)
{
    rig made = llm(0);
    tollgate_settlement settlement = settlement_new();
    uint64_t reservation = reserve(&made, 4000);
    EXPECT_EQ(left(&made), BUDGET - 4000);
    EXPECT_OK(tollgate_limiter_commit_part(made.limiter, reservation, 500, &settlement));
    EXPECT(settlement.unused == 0 && settlement.overspent == 0 && settlement.left == 3500);
    EXPECT_OK(tollgate_limiter_commit_part_at(made.limiter, reservation, 500, 1000 * SECOND, &settlement));
    EXPECT_EQ(settlement.left, 3000);
    EXPECT_OK(tollgate_limiter_commit(made.limiter, reservation, 200, &settlement));
    EXPECT(settlement.unused == 2800 && settlement.overspent == 0 && settlement.left == 0 && settlement.reserved == 0);
    EXPECT_EQ(settlement.struct_size, sizeof settlement);
    EXPECT_EQ(left(&made), BUDGET - 1200);
    /* What is more than was reserved is charged and told. */
    EXPECT_OK(tollgate_limiter_commit_at(made.limiter, reserve(&made, 100), 150, 1000 * SECOND, &settlement));
    EXPECT(settlement.unused == 0 && settlement.overspent == 50);
    EXPECT_EQ(left(&made), BUDGET - 1350);
    /* What came to nothing is given back. */
    EXPECT_OK(tollgate_limiter_cancel(made.limiter, reserve(&made, 1000), &settlement));
    EXPECT_EQ(settlement.unused, 1000);
    EXPECT_OK(tollgate_limiter_cancel_at(made.limiter, reserve(&made, 1000), 1000 * SECOND, &settlement));
    EXPECT_EQ(settlement.unused, 1000);
    EXPECT_EQ(left(&made), BUDGET - 1350);
    /* Beyond the budget nothing is reserved. */
    tollgate_verdict verdict = verdict_new();
    reservation = 77;
    EXPECT_OK(tollgate_limiter_reserve_at(made.limiter, ID, ID_LEN, TOKENS, 9000, TTL, 1000 * SECOND, &verdict, &reservation));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(reservation, 0);
    EXPECT_EQ(left(&made), BUDGET - 1350);
    rig_free(&made);
}

static void a_number_works_once(void)
{
    rig made = llm(0);
    tollgate_settlement settlement = settlement_new();
    uint64_t reservation = reserve(&made, 1000);
    EXPECT_OK(tollgate_limiter_commit(made.limiter, reservation, 600, &settlement));
    settlement = settlement_new();
    tollgate_limiter *limiter = made.limiter;
    const uint64_t numbers[] = { reservation, 0, 1, UINT64_MAX };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint64_t number = numbers[i];
        EXPECT_EQ(tollgate_limiter_commit(limiter, number, 1, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_commit_at(limiter, number, 1, 0, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_commit_part(limiter, number, 1, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_commit_part_at(limiter, number, 1, 0, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_cancel(limiter, number, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_cancel_at(limiter, number, 0, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_extend(limiter, number, TTL), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_limiter_extend_at(limiter, number, TTL, 0), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
    }
    EXPECT_EQ(settlement.unused | settlement.overspent | settlement.left, 0);
    EXPECT_EQ(left(&made), BUDGET - 600);
    rig_free(&made);
}

static void to_disconnect_is_not_free(void)
{
    rig made = llm(0);
    tollgate_settlement settlement = settlement_new();
    uint64_t forgotten = reserve(&made, 1000), kept = reserve(&made, 1000);
    EXPECT_OK(tollgate_clock_advance(made.clock, TTL - 1));
    EXPECT_OK(tollgate_limiter_extend(made.limiter, kept, TTL));
    EXPECT_OK(tollgate_limiter_extend_at(made.limiter, kept, 1, 1000 * SECOND)); /* No sooner than it had. */
    EXPECT_OK(tollgate_clock_advance(made.clock, 1));
    EXPECT_EQ(tollgate_limiter_commit(made.limiter, forgotten, 0, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
    EXPECT_EQ(left(&made), BUDGET - 2000);
    EXPECT_OK(tollgate_limiter_commit(made.limiter, kept, 0, &settlement));
    EXPECT_EQ(left(&made), BUDGET - 1000);
    rig_free(&made);
}

/* Of a bucket, what time has paid back does not come back again. */
static void a_bucket_gets_back_what_time_has_not_paid(void)
{
    rig made = llm(0);
    tollgate_verdict verdict = verdict_new();
    tollgate_settlement settlement = settlement_new();
    uint64_t reservation = 0;
    EXPECT_OK(tollgate_limiter_reserve(made.limiter, ID, ID_LEN, REQUESTS, 10, TTL, &verdict, &reservation));
    EXPECT_OK(tollgate_clock_advance(made.clock, SECOND / 2));
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, REQUESTS, 5, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    EXPECT_OK(tollgate_limiter_cancel(made.limiter, reservation, &settlement));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, REQUESTS), 5);
    rig_free(&made);
}

static void what_cannot_be_reserved_is_refused(void)
{
    rig made = llm(2);
    tollgate_limiter *limiter = made.limiter;
    tollgate_verdict verdict = verdict_new();
    tollgate_settlement settlement = settlement_new();
    uint64_t number = 77;
    EXPECT_EQ(tollgate_limiter_reserve(NULL, ID, ID_LEN, TOKENS, 1, TTL, &verdict, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, NULL, 1, TOKENS, 1, TTL, &verdict, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, TOKENS, 1, TTL, NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, TOKENS, 1, TTL, &verdict, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_reserve_at(limiter, ID, ID_LEN, TOKENS, 1, TTL, 0, &verdict, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, 0, TOKENS, 1, TTL, &verdict, &number), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, 257, TOKENS, 1, TTL, &verdict, &number), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, 4, 1, TTL, &verdict, &number), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, TOKENS, 0, TTL, &verdict, &number), TOLLGATE_STATUS_ZERO_COST);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, TOKENS, BUDGET + 1, TTL, &verdict, &number),
              TOLLGATE_STATUS_COST_ABOVE_CAPACITY);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, HELD, 1, TTL, &verdict, &number), TOLLGATE_STATUS_WRONG_KIND);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, EXACT, 1, TTL, &verdict, &number), TOLLGATE_STATUS_WRONG_KIND);
    verdict.struct_size = sizeof verdict - 1;
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, TOKENS, 1, TTL, &verdict, &number), TOLLGATE_STATUS_STRUCT_SIZE);
    verdict.struct_size = sizeof verdict;
    EXPECT(number == 77 && verdict.capacity == 0);
    EXPECT_EQ(left(&made), BUDGET);

    uint64_t first = reserve(&made, 1), second = reserve(&made, 1);
    EXPECT_EQ(tollgate_limiter_reserve(limiter, ID, ID_LEN, TOKENS, 1, TTL, &verdict, &number),
              TOLLGATE_STATUS_RESERVATIONS_FULL);
    EXPECT(number == 77 && verdict.capacity == 0);
    EXPECT_EQ(left(&made), BUDGET - 2);
    EXPECT_EQ(tollgate_limiter_commit(NULL, first, 1, &settlement), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_commit(limiter, first, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_commit_at(limiter, first, 1, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_commit_part(limiter, first, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_commit_part_at(limiter, first, 1, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_cancel(limiter, first, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_cancel_at(limiter, first, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_extend(NULL, first, TTL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_extend_at(NULL, first, TTL, 0), TOLLGATE_STATUS_NULL_POINTER);
    settlement.struct_size = sizeof settlement - 1;
    EXPECT_EQ(tollgate_limiter_commit(limiter, first, 1, &settlement), TOLLGATE_STATUS_STRUCT_SIZE);
    settlement.struct_size = sizeof settlement;
    /* None of that has settled it, and what is settled makes room. */
    EXPECT_OK(tollgate_limiter_commit(limiter, first, 1, &settlement));
    EXPECT_OK(tollgate_limiter_commit(limiter, reserve(&made, 1), 1, &settlement));
    EXPECT_OK(tollgate_limiter_commit(limiter, second, 1, &settlement));
    rig_free(&made);
}

static void a_limiter_is_made_for_so_many(void)
{
    rig made = llm(1);
    tollgate_limiter *another = NULL;
    tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, made.clock);
    options.reservations = TOLLGATE_RESERVATIONS_MAX + 1;
    EXPECT_EQ(tollgate_limiter_new(made.policy, &options, &another), TOLLGATE_STATUS_INVALID_OPTION);
    options.reservations = UINT64_MAX;
    EXPECT_EQ(tollgate_limiter_new(made.policy, &options, &another), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(another == NULL);
    /* A program that was compiled before there were any. */
    options.struct_size = offsetof(tollgate_limiter_options, reservations);
    EXPECT_OK(tollgate_limiter_new(made.policy, &options, &another));
    tollgate_limiter_free(another);
    rig_free(&made);
}

int main(void)
{
    an_estimate_is_charged_and_settled();
    a_number_works_once();
    to_disconnect_is_not_free();
    a_bucket_gets_back_what_time_has_not_paid();
    what_cannot_be_reserved_is_refused();
    a_limiter_is_made_for_so_many();
    return expectations_end("test_reserve");
}
