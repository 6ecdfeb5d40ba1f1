/*
 * A thread pool: all workers share one limiter, without a lock around it.
 *
 *     cc -pthread thread_pool.c $(pkg-config --cflags --libs tollgate) -o thread_pool
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <tollgate.h>

enum { WORKERS = 4, JOBS = 1000 };

typedef struct worker {
    pthread_t thread;
    tollgate_limiter *limiter;
    uint64_t allowed, denied;
} worker;

/* What each job of the pool does first: may this agent go on? */
static void *work(void *argument)
{
    worker *self = argument;
    tollgate_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.struct_size = sizeof verdict; /* Once is enough: it stays as it is. */
    for (int job = 0; job < JOBS; job++) {
        if (tollgate_limiter_check(self->limiter, TOLLGATE_LITERAL("agent-7"), 0, 1, &verdict) != TOLLGATE_STATUS_OK)
            continue; /* Nothing was charged. A server would say 500. */
        if (verdict.decision == TOLLGATE_DECISION_DENY)
            self->denied++;
        else
            self->allowed++;
    }
    return NULL;
}

int main(void)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_policy_builder_new(&builder);
    tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("jobs"), TOLLGATE_LITERAL("500/hour"));
    tollgate_policy_builder_build(builder, &policy, NULL);
    tollgate_status status = tollgate_limiter_new(policy, NULL, &limiter);
    tollgate_policy_free(policy);
    tollgate_policy_builder_free(builder);
    if (status != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", tollgate_status_text(status));
        return 1;
    }

    worker workers[WORKERS];
    uint64_t allowed = 0, denied = 0;
    memset(workers, 0, sizeof workers);
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
    /* The only thread left frees it. */
    tollgate_limiter_free(limiter);
    printf("%d threads asked %d times each: %" PRIu64 " allowed, %" PRIu64 " denied\n", WORKERS, JOBS, allowed, denied);
    return 0;
}
