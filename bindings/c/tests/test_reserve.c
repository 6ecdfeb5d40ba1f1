/* Reservations: charge an estimate now, settle the real cost later. */
#include "expect.h"

static const char ID[] = "user:42";
enum { ID_LEN = sizeof ID - 1 };
enum { TOKENS, REQUESTS, HELD, EXACT };
#define BUDGET 10000
#define TTL (120 * SECOND)

static rig llm(uint64_t reservations)
{
    rig made = { NULL, NULL, NULL };
    made.policy = policy_of("[lanes]\n"
                            "tokens = 'budget 10_000/day'\n"
                            "requests = '10/second'\n"
                            "connections = 'held 3'\n"
                            "logins = 'exact 3/5min'\n");
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &made.clock));
    REQUIRE_OK(tollgate_clock_set(made.clock, 1000 * SECOND));
    tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, made.clock);
    options.reservations = reservations;
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, NULL, &made.limiter));
    return made;
}

static uint64_t left(const rig *made)
{
    return tokens_left(made->limiter, ID, ID_LEN, TOKENS);
}

static uint64_t reserve(const rig *made, uint64_t estimate)
{
    tollgate_verdict verdict;
    uint64_t reservation = 0;
    const tollgate_request *request = REQUEST(ID, ID_LEN, TOKENS, estimate);
    REQUIRE_OK(tollgate_reserve(made->limiter, request, TTL, TOLLGATE_NOW, 0, &verdict, &reservation));
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
    return reservation;
}

static void an_estimate_is_charged_and_settled(void)
{
    rig made = llm(0);
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    uint64_t reservation = reserve(&made, 4000);
    EXPECT_EQ(left(&made), BUDGET - 4000);
    EXPECT_OK(tollgate_settle(made.limiter, reservation, 500, TOLLGATE_NOW, TOLLGATE_SETTLE_SO_FAR, &settlement));
    EXPECT(settlement.unused == 0 && settlement.overspent == 0 && settlement.left == 3500);
    EXPECT_OK(tollgate_settle(made.limiter, reservation, 500, 1000 * SECOND, TOLLGATE_SETTLE_SO_FAR, &settlement));
    EXPECT_EQ(settlement.left, 3000);
    EXPECT_OK(tollgate_settle(made.limiter, reservation, 200, TOLLGATE_NOW, 0, &settlement));
    EXPECT(settlement.unused == 2800 && settlement.overspent == 0 && settlement.left == 0);
    EXPECT_EQ(settlement.struct_size, sizeof settlement);
    EXPECT_EQ(left(&made), BUDGET - 1200);
    /* What was used beyond the estimate is charged and reported. */
    EXPECT_OK(tollgate_settle(made.limiter, reserve(&made, 100), 150, 1000 * SECOND, 0, &settlement));
    EXPECT(settlement.unused == 0 && settlement.overspent == 50);
    EXPECT_EQ(left(&made), BUDGET - 1350);
    /* Cancelling is settling with nothing used. */
    EXPECT_OK(tollgate_settle(made.limiter, reserve(&made, 1000), 0, TOLLGATE_NOW, 0, &settlement));
    EXPECT_EQ(settlement.unused, 1000);
    EXPECT_OK(tollgate_settle(made.limiter, reserve(&made, 1000), 0, 1000 * SECOND, 0, &settlement));
    EXPECT_EQ(settlement.unused, 1000);
    EXPECT_EQ(left(&made), BUDGET - 1350);
    /* Beyond the budget nothing is reserved. */
    tollgate_verdict verdict;
    reservation = 77;
    EXPECT_OK(tollgate_reserve(made.limiter, REQUEST(ID, ID_LEN, TOKENS, 9000), TTL, 1000 * SECOND, TOLLGATE_COUNTED,
                               &verdict, &reservation));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(reservation, 0);
    EXPECT_EQ(left(&made), BUDGET - 1350);
    rig_free(&made);
}

static void a_number_works_once(void)
{
    rig made = llm(0);
    tollgate_limiter *limiter = made.limiter;
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    uint64_t reservation = reserve(&made, 1000);
    EXPECT_OK(tollgate_settle(limiter, reservation, 600, TOLLGATE_NOW, 0, &settlement));
    settlement = SIZED(tollgate_settlement);
    const uint64_t numbers[] = { reservation, 0, 1, UINT64_MAX }, times[] = { TOLLGATE_NOW, 0 };
    for (size_t i = 0; i < 8; i++) {
        uint64_t number = numbers[i / 2], now = times[i % 2];
        EXPECT_EQ(tollgate_settle(limiter, number, 1, now, 0, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_settle(limiter, number, 1, now, TOLLGATE_SETTLE_SO_FAR, &settlement),
                  TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_settle(limiter, number, 0, now, 0, &settlement), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
        EXPECT_EQ(tollgate_extend(limiter, number, TTL, now), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
    }
    EXPECT_EQ(settlement.unused | settlement.overspent | settlement.left, 0);
    EXPECT_EQ(left(&made), BUDGET - 600);
    rig_free(&made);
}

static void a_reservation_that_runs_out_stays_charged(void)
{
    rig made = llm(0);
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    uint64_t forgotten = reserve(&made, 1000), kept = reserve(&made, 1000);
    EXPECT_OK(tollgate_clock_advance(made.clock, TTL - 1));
    EXPECT_OK(tollgate_extend(made.limiter, kept, TTL, TOLLGATE_NOW));
    EXPECT_OK(tollgate_extend(made.limiter, kept, 1, 1000 * SECOND)); /* Never shortens it. */
    EXPECT_OK(tollgate_clock_advance(made.clock, 1));
    EXPECT_EQ(tollgate_settle(made.limiter, forgotten, 0, TOLLGATE_NOW, 0, &settlement),
              TOLLGATE_STATUS_UNKNOWN_RESERVATION);
    EXPECT_EQ(left(&made), BUDGET - 2000);
    EXPECT_OK(tollgate_settle(made.limiter, kept, 0, TOLLGATE_NOW, 0, &settlement));
    EXPECT_EQ(left(&made), BUDGET - 1000);
    rig_free(&made);
}

/* What time has paid back to a bucket does not come back a second time. */
static void a_bucket_gets_back_what_time_has_not_paid(void)
{
    rig made = llm(0);
    tollgate_verdict verdict;
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    uint64_t reservation = 0;
    EXPECT_OK(tollgate_reserve(made.limiter, REQUEST(ID, ID_LEN, REQUESTS, 10), TTL, TOLLGATE_NOW, 0, &verdict,
                               &reservation));
    EXPECT_OK(tollgate_clock_advance(made.clock, SECOND / 2));
    EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, REQUESTS, 5), TOLLGATE_NOW, 0, &verdict));
    EXPECT_EQ(tollgate_verdict_remaining(&verdict), 0);
    EXPECT_OK(tollgate_settle(made.limiter, reservation, 0, TOLLGATE_NOW, 0, &settlement));
    EXPECT_EQ(tokens_left(made.limiter, ID, ID_LEN, REQUESTS), 5);
    rig_free(&made);
}

static void what_cannot_be_reserved_is_refused(void)
{
    rig made = llm(2);
    tollgate_limiter *limiter = made.limiter;
    tollgate_verdict verdict = { 0 };
    uint64_t number = 77;
    const uint64_t now = TOLLGATE_NOW;
    const struct {
        tollgate_status status;
        tollgate_request request;
    } cases[] = {
        { TOLLGATE_STATUS_NULL_POINTER, { NULL, 1, 1, TOKENS, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_EMPTY_ID, { ID, 0, 1, TOKENS, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_ID_TOO_LONG, { ID, 257, 1, TOKENS, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_LANE, { ID, ID_LEN, 1, 4, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, { ID, ID_LEN, 1, TOKENS, 1, NULL } },
        { TOLLGATE_STATUS_ZERO_COST, { ID, ID_LEN, 0, TOKENS, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_COST_ABOVE_CAPACITY, { ID, ID_LEN, BUDGET + 1, TOKENS, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_WRONG_KIND, { ID, ID_LEN, 1, HELD, TOLLGATE_NONE, NULL } },
        { TOLLGATE_STATUS_WRONG_KIND, { ID, ID_LEN, 1, EXACT, TOLLGATE_NONE, NULL } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        EXPECT_EQ(tollgate_reserve(limiter, &cases[i].request, TTL, now, 0, &verdict, &number), cases[i].status);
    const tollgate_request *good = REQUEST(ID, ID_LEN, TOKENS, 1);
    EXPECT_EQ(tollgate_reserve(NULL, good, TTL, now, 0, &verdict, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_reserve(limiter, NULL, TTL, now, 0, &verdict, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_reserve(limiter, good, TTL, now, 0, NULL, &number), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_reserve(limiter, good, TTL, now, 0, &verdict, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_reserve(limiter, good, TTL, now, 2, &verdict, &number), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(number == 77 && verdict.capacity == 0);
    EXPECT_EQ(left(&made), BUDGET);

    uint64_t first = reserve(&made, 1), second = reserve(&made, 1);
    EXPECT_EQ(tollgate_reserve(limiter, good, TTL, now, 0, &verdict, &number), TOLLGATE_STATUS_RESERVATIONS_FULL);
    EXPECT(number == 77 && verdict.capacity == 0);
    EXPECT_EQ(left(&made), BUDGET - 2);
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    EXPECT_EQ(tollgate_settle(NULL, first, 1, now, 0, &settlement), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_settle(limiter, first, 1, now, 0, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_settle(limiter, first, 1, now, 0x80, &settlement), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_extend(NULL, first, TTL, now), TOLLGATE_STATUS_NULL_POINTER);
    settlement.struct_size--;
    EXPECT_EQ(tollgate_settle(limiter, first, 1, now, 0, &settlement), TOLLGATE_STATUS_STRUCT_SIZE);
    settlement.struct_size++;
    /* None of that has settled it, and settling makes room. */
    EXPECT_OK(tollgate_settle(limiter, first, 1, now, 0, &settlement));
    EXPECT_OK(tollgate_settle(limiter, reserve(&made, 1), 1, now, 0, &settlement));
    EXPECT_OK(tollgate_settle(limiter, second, 1, now, 0, &settlement));
    rig_free(&made);
}

static void one_agent_has_only_its_share_of_all_reservations(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(10, 0, NULL);
    options.reservations_per_agent = 1;
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    tollgate_verdict verdict;
    tollgate_settlement settlement = SIZED(tollgate_settlement);
    uint64_t first = 0, second = 0;
    const tollgate_request *request = REQUEST("a", 1, LIGHT, 1);
    EXPECT_OK(tollgate_reserve(limiter, request, SECOND, TOLLGATE_NOW, 0, &verdict, &first));
    EXPECT_EQ(tollgate_reserve(limiter, request, SECOND, TOLLGATE_NOW, 0, &verdict, &second),
              TOLLGATE_STATUS_TOO_MANY_RESERVATIONS);
    request = REQUEST("b", 1, LIGHT, 1);
    EXPECT_OK(tollgate_reserve(limiter, request, SECOND, TOLLGATE_NOW, 0, &verdict, &second));
    EXPECT_EQ(tollgate_settle(limiter, first, UINT64_MAX, TOLLGATE_NOW, 0, &settlement),
              TOLLGATE_STATUS_USED_TOO_LARGE);
    EXPECT_OK(tollgate_settle(limiter, first, 1, TOLLGATE_NOW, 0, &settlement));
    tollgate_limiter_free(limiter);
    tollgate_policy_free(policy);
}

static void a_limiter_has_room_for_a_number_of_reservations(void)
{
    rig made = llm(1);
    tollgate_limiter *another = NULL;
    tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, made.clock);
    options.reservations = TOLLGATE_RESERVATIONS_MAX + 1;
    EXPECT_EQ(tollgate_limiter_new(made.policy, &options, NULL, &another), TOLLGATE_STATUS_INVALID_OPTION);
    options.reservations = UINT64_MAX;
    EXPECT_EQ(tollgate_limiter_new(made.policy, &options, NULL, &another), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(another == NULL);
    rig_free(&made);
}

int main(void)
{
    an_estimate_is_charged_and_settled();
    a_number_works_once();
    a_reservation_that_runs_out_stays_charged();
    a_bucket_gets_back_what_time_has_not_paid();
    what_cannot_be_reserved_is_refused();
    one_agent_has_only_its_share_of_all_reservations();
    a_limiter_has_room_for_a_number_of_reservations();
    return expectations_end("test_reserve");
}
