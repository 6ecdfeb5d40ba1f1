/*
 * Threads against an exact oracle: the clock stands still while they share a
 * few agents, so each must have been charged exactly what it lost. Some calls
 * are batches, and some give back at once what they got. Between rounds time
 * passes, and agents lose their records to the next ones.
 */
#define _POSIX_C_SOURCE 200809L /* Barriers, also with -std=c11. */
#include "expect.h"

#include <pthread.h>

enum { THREADS = 4, AGENTS = 60, HOT = 2, CALLS = 1000, BATCH = 16 };
static const uint64_t TOKENS = 60;

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    tollgate_limiter *limiter;
    uint64_t seed, round;
    /* Admitted, less what was refunded. */
    uint64_t charged[AGENTS];
    uint64_t denied, failures;
} worker;

/* SplitMix64: one addition and three multiply-shifts a number. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

/* Every second draw is one of the few that all call. */
static uint64_t random_agent(worker *self)
{
    uint64_t drawn = random_next(&self->seed);
    return drawn >> 1 & 1 ? drawn / 4 % HOT : drawn / 4 % AGENTS;
}

static void check_batch(worker *self)
{
    tollgate_request requests[BATCH];
    tollgate_verdict verdicts[BATCH];
    uint64_t agents[BATCH], ids[BATCH];
    for (size_t i = 0; i < BATCH; i++) {
        agents[i] = random_agent(self);
        ids[i] = self->round * AGENTS + agents[i];
        requests[i] = *REQUEST(&ids[i], sizeof ids[i], 0, 1 + random_next(&self->seed) % 2);
    }
    self->failures +=
        tollgate_check_many(self->limiter, requests, BATCH, TOLLGATE_NOW, 0, verdicts) != TOLLGATE_STATUS_OK;
    for (size_t i = 0; i < BATCH; i++) {
        self->failures += verdicts[i].status != TOLLGATE_STATUS_OK;
        if (verdicts[i].decision != TOLLGATE_DECISION_DENY)
            self->charged[agents[i]] += requests[i].cost;
        else
            self->denied++;
    }
}

static void check_one(worker *self)
{
    uint64_t agent = random_agent(self);
    uint64_t id = self->round * AGENTS + agent;
    const tollgate_request *request = REQUEST(&id, sizeof id, 0, 1);
    tollgate_verdict verdict = { 0 };
    self->failures += tollgate_check(self->limiter, request, TOLLGATE_NOW, 0, &verdict) != TOLLGATE_STATUS_OK;
    if (verdict.decision == TOLLGATE_DECISION_DENY)
        self->denied++;
    else if (random_next(&self->seed) % 8 == 0)
        self->failures += tollgate_refund(self->limiter, request, TOLLGATE_NOW, NULL) != TOLLGATE_STATUS_OK;
    else
        self->charged[agent] += 1;
}

static void *work(void *argument)
{
    worker *self = argument;
    pthread_barrier_wait(self->start);
    for (int call = 0; call < CALLS; call++) {
        if (call % BATCH == 0)
            check_batch(self);
        else
            check_one(self);
    }
    return NULL;
}

static void play(tollgate_limiter *limiter, uint64_t round)
{
    static worker workers[THREADS];
    memset(workers, 0, sizeof workers);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].start = &start;
        workers[i].limiter = limiter;
        workers[i].round = round;
        workers[i].seed = round * THREADS + i;
        EXPECT_EQ(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&start);
    for (uint64_t agent = 0; agent < AGENTS; agent++) {
        uint64_t charged = 0, id = round * AGENTS + agent;
        for (size_t i = 0; i < THREADS; i++)
            charged += workers[i].charged[agent];
        EXPECT(charged <= TOKENS);
        EXPECT_EQ(tokens_left(limiter, &id, sizeof id, 0), TOKENS - charged);
    }
    uint64_t denied = 0;
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT_EQ(workers[i].failures, 0);
        denied += workers[i].denied;
    }
    EXPECT(denied > 0); /* Else no thread asked for more than there was. */
}

int main(void)
{
    unsigned long rounds = setting("TOLLGATE_ROUNDS", 200);
    tollgate_policy *policy = policy_of("[lanes]\nlane = '60/second'\n");
    tollgate_clock *clock = NULL;
    tollgate_limiter *limiter = NULL;
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    tollgate_limiter_options options = rig_options(8, TOLLGATE_ON_FULL_DENY, clock);
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));

    /* On a busy machine the threads may run one after the other for a while: then up to 50 times as many rounds. */
    unsigned long round = 0, most = rounds < 100 ? rounds : 50 * rounds;
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    while (round < rounds || (snapshot.retries == 0 && round < most)) {
        REQUIRE_OK(tollgate_clock_advance(clock, 2 * SECOND));
        play(limiter, round++);
        REQUIRE_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    }
    printf("%lu rounds of %d threads: %" PRIu64 " claims, %" PRIu64 " idle evictions, %" PRIu64 " lost exchanges\n",
           round, THREADS, snapshot.claims, snapshot.idle_evictions, snapshot.retries);
    /* At least: an agent that got everything refunded is idle, and may lose its record within the round. */
    EXPECT(snapshot.claims >= round * AGENTS);
    EXPECT(snapshot.idle_evictions >= snapshot.claims - snapshot.records);
    EXPECT_EQ(snapshot.lossy_evictions, 0);
    EXPECT(snapshot.retries > 0 || rounds < 100); /* Else they never met. */

    tollgate_limiter_free(limiter);
    tollgate_clock_free(clock);
    tollgate_policy_free(policy);
    return expectations_end("test_threads");
}
