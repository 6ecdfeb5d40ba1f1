/*
 * A call to a language model: what it costs is known only when its answer has
 * been streamed. An estimate is reserved of the user's tokens for the day, what
 * was used is told while the answer comes, and the rest is given back at the end.
 *
 *     cc llm_call.c $(pkg-config --cflags --libs tollgate) -o llm_call
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tollgate.h>

#define SECOND UINT64_C(1000000000)

static void require(tollgate_status status)
{
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", tollgate_status_text(status));
        exit(1);
    }
}

static uint64_t tokens_left(tollgate_limiter *limiter, const char *agent, uint32_t lane)
{
    tollgate_lane_status status = { 0 };
    status.struct_size = sizeof status;
    require(tollgate_limiter_status(limiter, agent, strlen(agent), lane, &status));
    return status.remaining;
}

/* Stands for a model: hands out the tokens of the next piece of its answer; 0 at the end. */
static uint64_t next_piece(int *piece)
{
    static const uint64_t tokens[] = { 120, 90, 200, 55, 0 };
    return tokens[(*piece)++];
}

static void ask_the_model(tollgate_limiter *limiter, const char *agent, uint32_t tokens, uint64_t estimate)
{
    tollgate_verdict verdict = { 0 };
    uint64_t reservation = 0;
    verdict.struct_size = sizeof verdict;
    tollgate_status status = tollgate_limiter_reserve(limiter, agent, strlen(agent), tokens, estimate, 60 * SECOND,
                                                      &verdict, &reservation);
    if (status == TOLLGATE_STATUS_RESERVATIONS_FULL) { /* Too many calls at once: nothing was charged. */
        printf("%s: busy, try again\n", agent);
        return;
    }
    require(status);
    if (verdict.decision == TOLLGATE_DECISION_DENY) {
        printf("%s: %" PRIu64 " tokens are not left today; in %" PRIu64 " h there are new ones\n", agent, estimate,
               verdict.retry_after_ns / SECOND / 3600);
        return;
    }

    /* Who dies in the midst of this has used the whole estimate, once a minute has passed. */
    tollgate_settlement settlement = { 0 };
    settlement.struct_size = sizeof settlement;
    int piece = 0;
    for (uint64_t used; (used = next_piece(&piece)) > 0;) {
        require(tollgate_limiter_commit_part(limiter, reservation, used, &settlement));
        require(tollgate_limiter_extend(limiter, reservation, 60 * SECOND));
    }
    require(tollgate_limiter_commit(limiter, reservation, 0, &settlement));
    printf("%s: reserved %" PRIu64 ", given back %" PRIu64 ", %" PRIu64 " left\n", agent, estimate, settlement.unused,
           tokens_left(limiter, agent, tokens));
}

int main(void)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    tollgate_clock *clock = NULL; /* One that stands still, so that this prints the same every time. */
    tollgate_limiter *limiter = NULL;
    require(tollgate_policy_builder_new(&builder));
    require(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("calls"), TOLLGATE_LITERAL("20/minute")));
    require(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("tokens"), TOLLGATE_LITERAL("budget 1_000/day")));
    require(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_policy_builder_free(builder);
    require(tollgate_clock_new(TOLLGATE_TIME_SOURCE_MANUAL, &clock));
    tollgate_limiter_options options = { 0 };
    options.struct_size = sizeof options;
    options.agents = 10000;
    options.clock = clock;
    require(tollgate_limiter_new(policy, &options, &limiter));
    uint32_t calls = 0, tokens = 0;
    require(tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("calls"), &calls));
    require(tollgate_limiter_lane(limiter, TOLLGATE_LITERAL("tokens"), &tokens));
    tollgate_policy_free(policy);

    ask_the_model(limiter, "user:42", tokens, 800);
    ask_the_model(limiter, "user:42", tokens, 800);
    ask_the_model(limiter, "user:42", tokens, 500);

    /* Where the cost is known beforehand: a call of the user's, and tokens of the team's, both or neither. */
    const tollgate_request parts[] = { { TOLLGATE_LITERAL("user:42"), 1, calls, 0 },
                                       { TOLLGATE_LITERAL("team:7"), 600, tokens, 0 } };
    tollgate_all_verdict verdict = { 0 };
    verdict.struct_size = sizeof verdict;
    for (int i = 0; i < 2; i++) {
        require(tollgate_limiter_check_all(limiter, parts, 2, NULL, &verdict));
        printf("embedding: %s; calls left %" PRIu64 ", the team's tokens %" PRIu64 "\n",
               verdict.decision != TOLLGATE_DECISION_DENY ? "done" : (verdict.blocking & 2) != 0 ? "the team has used its tokens" : "too many calls",
               tokens_left(limiter, "user:42", calls), tokens_left(limiter, "team:7", tokens));
    }
    tollgate_limiter_free(limiter);
    tollgate_clock_free(clock);
    return 0;
}
