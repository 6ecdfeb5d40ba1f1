/*
 * A call to a language model. Its cost is known only when the answer has been
 * streamed, so the call reserves an estimate of the user's tokens for the day,
 * reports what it uses while the answer streams, and settles at the end.
 *
 *     cc llm_call.c $(pkg-config --cflags --libs tollgate) -o llm_call
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollgate.h>

#define SECOND UINT64_C(1000000000)
enum { CALLS, TOKENS }; /* Lanes are numbered in the order of the policy. */
static const char POLICY[] = "[lanes]\ncalls = '20/minute'\ntokens = 'budget 1_000/day'\n";

static void require(tollgate_status status)
{
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", tollgate_status_text(status));
        exit(1);
    }
}

static uint64_t left(tollgate_limiter *limiter, const char *agent, uint32_t lane)
{
    const tollgate_request request = { agent, strlen(agent), 1, lane, TOLLGATE_NONE, NULL };
    tollgate_lane_state state = { .struct_size = sizeof state };
    require(tollgate_peek(limiter, &request, TOLLGATE_NOW, &state));
    return state.remaining;
}

/* Stands for a model: the tokens of the next piece of its answer, 0 at the end. */
static uint64_t next_piece(int *piece)
{
    static const uint64_t tokens[] = { 120, 90, 200, 55, 0 };
    return tokens[(*piece)++];
}

static void ask_the_model(tollgate_limiter *limiter, const char *agent, uint64_t estimate)
{
    const tollgate_request request = { agent, strlen(agent), estimate, TOKENS, TOLLGATE_NONE, NULL };
    tollgate_verdict verdict = { 0 };
    uint64_t reservation = 0;
    tollgate_status status = tollgate_reserve(limiter, &request, 60 * SECOND, TOLLGATE_NOW, 0, &verdict, &reservation);
    if (status == TOLLGATE_STATUS_RESERVATIONS_FULL) { /* Too many calls at once: nothing was charged. */
        printf("%s: busy, try again\n", agent);
        return;
    }
    require(status);
    if (verdict.decision == TOLLGATE_DECISION_DENY) {
        printf("%s: fewer than %" PRIu64 " tokens left today; retry in %" PRIu64 " h\n", agent, estimate,
               verdict.retry_after_ns / SECOND / 3600);
        return;
    }

    /* If the process dies here, the whole estimate stays charged after a minute. */
    tollgate_settlement settlement = { .struct_size = sizeof settlement };
    int piece = 0;
    for (uint64_t used; (used = next_piece(&piece)) > 0;) {
        require(tollgate_settle(limiter, reservation, used, TOLLGATE_NOW, TOLLGATE_SETTLE_SO_FAR, &settlement));
        require(tollgate_extend(limiter, reservation, 60 * SECOND, TOLLGATE_NOW));
    }
    require(tollgate_settle(limiter, reservation, 0, TOLLGATE_NOW, 0, &settlement));
    printf("%s: reserved %" PRIu64 ", given back %" PRIu64 ", %" PRIu64 " left\n", agent, estimate, settlement.unused,
           left(limiter, agent, TOKENS));
}

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_clock *clock = NULL; /* It stands still, so that this prints the same every time. */
    tollgate_limiter *limiter = NULL;
    require(tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), NULL, &policy));
    require(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    tollgate_limiter_options options = { .struct_size = sizeof options, .agents = 10000, .clock = clock };
    require(tollgate_limiter_new(policy, &options, NULL, &limiter));
    tollgate_policy_free(policy);

    ask_the_model(limiter, "user:42", 800);
    ask_the_model(limiter, "user:42", 800);
    ask_the_model(limiter, "user:42", 500);

    /* If the cost is known beforehand: one call of the user's and 600 tokens of the team's, both or neither. */
    const tollgate_request parts[] = { { TOLLGATE_LITERAL("user:42"), 1, CALLS, TOLLGATE_NONE, NULL },
                                       { TOLLGATE_LITERAL("team:7"), 600, TOKENS, TOLLGATE_NONE, NULL } };
    tollgate_all_verdict all = { .struct_size = sizeof all };
    for (int i = 0; i < 2; i++) {
        require(tollgate_check_all(limiter, parts, 2, TOLLGATE_NOW, 0, NULL, &all));
        const char *blocked = (all.blocking & 2) != 0 ? "the team has too few tokens" : "too many calls";
        printf("embedding: %s; the user has %" PRIu64 " calls left, the team %" PRIu64 " tokens\n",
               all.decision == TOLLGATE_DECISION_DENY ? blocked : "done",
               left(limiter, "user:42", CALLS), left(limiter, "team:7", TOKENS));
    }
    tollgate_limiter_free(limiter);
    tollgate_clock_free(clock);
    return 0;
}
