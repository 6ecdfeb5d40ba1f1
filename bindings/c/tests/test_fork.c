/*
 * A forked child goes on with its own copy of a limiter, whatever the other
 * threads of its parent were in the midst of: here two of them claim and
 * evict records all the time.
 */
#define _POSIX_C_SOURCE 200809L /* fork and alarm, also with -std=c11. */
#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* After this a child is taken to hang. It needs microseconds. */
enum { CHILD_SECONDS = 20 };
enum { WORKERS = 2, CROWD = 200, NEWCOMERS = 40 };

/* A token of the fast lane takes a millisecond to come back, one of the slow lane half a day. */
enum { FAST, SLOW };
static const uint64_t MILLISECOND = SECOND / 1000;

static atomic_bool done;
static atomic_ullong calls;

typedef struct worker {
    pthread_t thread;
    tollgate_limiter *limiter;
    tollgate_clock *clock;
    uint32_t first;
} worker;

/* Agents come, more of them than there are records, and take those of idle ones; some are forgotten. */
static void *claim_and_evict(void *argument)
{
    const worker *self = argument;
    tollgate_verdict verdict = verdict_new();
    bool known;
    for (uint32_t call = 0; !atomic_load_explicit(&done, memory_order_relaxed); call++) {
        uint32_t agent = self->first + call % CROWD;
        tollgate_limiter_check(self->limiter, &agent, sizeof agent, FAST, 1, &verdict);
        if (call % 3 == 0)
            tollgate_limiter_forget(self->limiter, &agent, sizeof agent, &known);
        tollgate_clock_advance(self->clock, MILLISECOND);
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    }
    return NULL;
}

/* What a child finds; its exit status. Time stands still for it: its clock is a copy too. */
static int child(tollgate_limiter *limiter)
{
    tollgate_lane_status status = lane_status_new();
    tollgate_verdict verdict = verdict_new();
    tollgate_stats stats = stats_new();
    uint64_t swept;
    /* Known since before the threads began, and in debt for longer than they run. */
    if (tollgate_limiter_status(limiter, TOLLGATE_LITERAL("steady"), SLOW, &status) != TOLLGATE_STATUS_OK)
        return 1;
    if (status.remaining != 1)
        return 2;
    if (tollgate_limiter_check(limiter, TOLLGATE_LITERAL("steady"), SLOW, 1, &verdict) != TOLLGATE_STATUS_OK)
        return 3;
    if (verdict.decision == TOLLGATE_DECISION_DENY)
        return 4;
    /* New ones get in, once: a record that nobody sees, or one that is seen twice, would show. */
    for (uint32_t agent = UINT32_MAX - NEWCOMERS; agent < UINT32_MAX; agent++) {
        if (tollgate_limiter_check(limiter, &agent, sizeof agent, SLOW, 2, &verdict) != TOLLGATE_STATUS_OK)
            return 5;
        if (verdict.decision == TOLLGATE_DECISION_DENY)
            return 6;
        if (tollgate_limiter_check(limiter, &agent, sizeof agent, SLOW, 1, &verdict) != TOLLGATE_STATUS_OK)
            return 7;
        if (verdict.decision != TOLLGATE_DECISION_DENY)
            return 8;
    }
    if (tollgate_limiter_sweep(limiter, 0, &swept) != TOLLGATE_STATUS_OK)
        return 9;
    if (tollgate_limiter_stats(limiter, &stats) != TOLLGATE_STATUS_OK)
        return 10;
    /* Whoever is not idle is one of the above, or came in the very last milliseconds. */
    return stats.agents > NEWCOMERS && stats.agents <= NEWCOMERS + 1 + 2 * WORKERS ? 0 : 11;
}

static tollgate_limiter *limiter_new(const tollgate_clock *clock)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("fast"), TOLLGATE_LITERAL("1000/second")));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("slow"), TOLLGATE_LITERAL("2/day")));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_limiter_options options = rig_options(64, TOLLGATE_ON_FULL_DENY, clock);
    REQUIRE_OK(tollgate_limiter_new(policy, &options, &limiter));
    tollgate_policy_free(policy);
    tollgate_policy_builder_free(builder);
    return limiter;
}

int main(void)
{
    unsigned long forks = setting("TOLLGATE_FORKS", 1000), bad = 0;
    tollgate_clock *clock = NULL;
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_TIME_SOURCE_MANUAL, &clock));
    tollgate_limiter *limiter = limiter_new(clock);
    tollgate_verdict verdict = verdict_new();
    REQUIRE_OK(tollgate_limiter_check(limiter, TOLLGATE_LITERAL("steady"), SLOW, 1, &verdict));

    worker workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].limiter = limiter;
        workers[i].clock = clock;
        workers[i].first = i * CROWD;
        EXPECT_EQ(pthread_create(&workers[i].thread, NULL, claim_and_evict, &workers[i]), 0);
    }
    for (unsigned long i = 0; i < forks && bad < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_SECONDS);
            _exit(child(limiter));
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            fprintf(stderr, "child %lu ended with %#x\n", i, (unsigned)status);
            bad++;
        }
    }
    atomic_store(&done, true);
    for (size_t i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);

    tollgate_stats stats = stats_new();
    REQUIRE_OK(tollgate_limiter_stats(limiter, &stats));
    printf("%lu forks beside %llu calls: %" PRIu64 " claims, %" PRIu64 " idle evictions\n", forks,
           (unsigned long long)atomic_load(&calls), stats.claims, stats.idle_evictions);
    EXPECT_EQ(bad, 0);
    EXPECT(stats.claims > forks && stats.idle_evictions > forks);
    tollgate_limiter_free(limiter);
    tollgate_clock_free(clock);
    return expectations_end("test_fork");
}
