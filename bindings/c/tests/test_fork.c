/*
 * A forked child goes on with its own copy of a limiter and a log throttle,
 * whatever the other threads of its parent were doing at that moment: here two
 * of them claim and evict records and report denials all the time.
 */
#define _POSIX_C_SOURCE 200809L /* fork and alarm, also with -std=c11. */
#include "expect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child needs microseconds. After this long it hangs. */
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
    tollgate_log_throttle *log;
    uint32_t first;
} worker;

/* More agents come than there are records, and take those of idle agents; some agents are forgotten. */
static void *claim_and_evict(void *argument)
{
    const worker *self = argument;
    tollgate_verdict verdict;
    bool forgotten, line;
    for (uint32_t call = 0; !atomic_load_explicit(&done, memory_order_relaxed); call++) {
        uint32_t agent = self->first + call % CROWD;
        tollgate_check(self->limiter, REQUEST(&agent, sizeof agent, FAST, 1), TOLLGATE_NOW, 0, &verdict);
        if (call % 3 == 0)
            tollgate_forget(self->limiter, &agent, sizeof agent, TOLLGATE_NOW, &forgotten);
        tollgate_clock_advance(self->clock, MILLISECOND);
        tollgate_log_throttle_denied(self->log, &agent, sizeof agent, call * MILLISECOND, &line);
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    }
    return NULL;
}

/* Returns the exit status of a child. Time stands still for it: its clock is a copy too. */
static int child(tollgate_limiter *limiter, tollgate_log_throttle *log)
{
    const tollgate_request *steady = REQUEST("steady", 6, SLOW, 1);
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    tollgate_verdict verdict;
    uint64_t swept;
    size_t len;
    bool line;
    /* No thread of the parent has taken a lock along. */
    if (tollgate_log_throttle_denied(log, "child", 5, 0, &line) != TOLLGATE_STATUS_OK
        || tollgate_log_throttle_line(log, 0, NULL, 0, &len) != TOLLGATE_STATUS_OK)
        return 12;
    /* Known since before the threads began, and in debt for longer than they run. */
    if (tollgate_peek(limiter, steady, TOLLGATE_NOW, &state) != TOLLGATE_STATUS_OK)
        return 1;
    if (state.remaining != 1)
        return 2;
    if (tollgate_check(limiter, steady, TOLLGATE_NOW, 0, &verdict) != TOLLGATE_STATUS_OK)
        return 3;
    if (verdict.decision == TOLLGATE_DECISION_DENY)
        return 4;
    /* Newcomers get in, once: a record that no thread sees, or one that is seen twice, would show. */
    for (uint32_t agent = UINT32_MAX - NEWCOMERS; agent < UINT32_MAX; agent++) {
        if (tollgate_check(limiter, REQUEST(&agent, sizeof agent, SLOW, 2), TOLLGATE_NOW, 0, &verdict)
            != TOLLGATE_STATUS_OK)
            return 5;
        if (verdict.decision == TOLLGATE_DECISION_DENY)
            return 6;
        if (tollgate_check(limiter, REQUEST(&agent, sizeof agent, SLOW, 1), TOLLGATE_NOW, 0, &verdict)
            != TOLLGATE_STATUS_OK)
            return 7;
        if (verdict.decision != TOLLGATE_DECISION_DENY)
            return 8;
    }
    if (tollgate_limiter_sweep(limiter, 0, TOLLGATE_NOW, &swept) != TOLLGATE_STATUS_OK)
        return 9;
    if (tollgate_snapshot(limiter, &snapshot, NULL, 0) != TOLLGATE_STATUS_OK)
        return 10;
    /* An agent that is not idle is one of the above, or came in the last milliseconds. */
    return snapshot.agents > NEWCOMERS && snapshot.agents <= NEWCOMERS + 1 + 2 * WORKERS ? 0 : 11;
}

static tollgate_limiter *limiter_new(const tollgate_clock *clock)
{
    tollgate_policy *policy = policy_of("[lanes]\nfast = '1000/second'\nslow = '2/day'\n");
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(64, TOLLGATE_ON_FULL_DENY, clock);
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    tollgate_policy_free(policy);
    return limiter;
}

int main(void)
{
    unsigned long forks = setting("TOLLGATE_FORKS", 1000), bad = 0;
    tollgate_clock *clock = NULL;
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
    tollgate_limiter *limiter = limiter_new(clock);
    tollgate_verdict verdict;
    REQUIRE_OK(tollgate_check(limiter, REQUEST("steady", 6, SLOW, 1), TOLLGATE_NOW, 0, &verdict));

    tollgate_log_throttle *log = NULL;
    REQUIRE_OK(tollgate_log_throttle_new(&log));

    worker workers[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].limiter = limiter;
        workers[i].clock = clock;
        workers[i].log = log;
        workers[i].first = i * CROWD;
        EXPECT_EQ(pthread_create(&workers[i].thread, NULL, claim_and_evict, &workers[i]), 0);
    }
    for (unsigned long i = 0; i < forks && bad < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHILD_SECONDS);
            int ended = child(limiter, log);
            /* Its own copies. */
            tollgate_log_throttle_free(log);
            tollgate_limiter_free(limiter);
            _exit(ended);
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

    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    REQUIRE_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    printf("%lu forks beside %llu calls: %" PRIu64 " claims, %" PRIu64 " idle evictions\n", forks,
           (unsigned long long)atomic_load(&calls), snapshot.claims, snapshot.idle_evictions);
    EXPECT_EQ(bad, 0);
    EXPECT(snapshot.claims > forks && snapshot.idle_evictions > forks);
    tollgate_limiter_free(limiter);
    tollgate_log_throttle_free(log);
    tollgate_clock_free(clock);
    return expectations_end("test_fork");
}
