/*
 * A thread pool: all workers share one limiter, without a lock around it.
 *
 *     cc -pthread thread_pool.c $(pkg-config --cflags --libs tollgate) -o thread_pool
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <tollgate.h>

enum { WORKERS = 4, JOBS = 1000 };
static const char POLICY[] = "[lanes]\njobs = '500/hour'\n";

typedef struct worker {
    pthread_t thread;
    tollgate_limiter *limiter;
    uint64_t allowed, denied;
} worker;

/* What each job of the pool does first: may this agent go on? */
static void *work(void *argument)
{
    worker *self = argument;
    const tollgate_request request = { TOLLGATE_LITERAL("agent-7"), 1, 0, TOLLGATE_NONE, NULL };
    for (int job = 0; job < JOBS; job++) {
        tollgate_verdict verdict = { 0 };
        if (tollgate_check(self->limiter, &request, TOLLGATE_NOW, 0, &verdict) != TOLLGATE_STATUS_OK)
            continue; /* Nothing was charged. A server would answer 500. */
        if (verdict.decision == TOLLGATE_DECISION_DENY)
            self->denied++;
        else
            self->allowed++;
    }
    return NULL;
}

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_error error = { .struct_size = sizeof error };
    if (tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy) != TOLLGATE_STATUS_OK
        || tollgate_limiter_new(policy, NULL, &error, &limiter) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tollgate_policy_free(policy);

    worker workers[WORKERS] = { 0 };
    uint64_t allowed = 0, denied = 0;
    for (int i = 0; i < WORKERS; i++) {
        workers[i].limiter = limiter;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        allowed += workers[i].allowed;
        denied += workers[i].denied;
    }
    /* The only thread that is left frees it. */
    tollgate_limiter_free(limiter);
    printf("%d requests of %d threads: %" PRIu64 " allowed, %" PRIu64 " denied\n", WORKERS * JOBS, WORKERS, allowed,
           denied);
    return 0;
}
