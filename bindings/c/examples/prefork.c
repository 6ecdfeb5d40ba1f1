/*
 * A preforking server: every worker is a process, and all of them admit one limit.
 *
 *     cc prefork.c $(pkg-config --cflags --libs tollgate) -o prefork
 *
 * Processes that are started one by one name a path instead of the memfd:
 * options.shared_path = "/run/tollgate/slab", and shared_path_len.
 */
#define _POSIX_C_SOURCE 200809L /* fork, also with -std=c11. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>
#include <tollgate.h>
#include <unistd.h>

enum { WORKERS = 4, JOBS = 100 };
static const char POLICY[] = "[lanes]\njobs = '150/hour'\n";

/* Returns how many jobs were allowed. */
static int work(tollgate_limiter *limiter)
{
    const tollgate_request request = { TOLLGATE_LITERAL("agent-7"), 1, 0, TOLLGATE_NONE, NULL };
    int allowed = 0;
    for (int job = 0; job < JOBS; job++) {
        tollgate_verdict verdict = { 0 };
        if (tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict) == TOLLGATE_STATUS_OK
            && verdict.decision != TOLLGATE_DECISION_DENY)
            allowed++;
    }
    return allowed;
}

int main(void)
{
    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_error error = { .struct_size = sizeof error };
    tollgate_limiter_options options = { .struct_size = sizeof options };
    options.shared_by = TOLLGATE_SHARED_BY_MEMFD;
    if (tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy) != TOLLGATE_STATUS_OK
        || tollgate_limiter_new(policy, &options, &error, &limiter) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tollgate_policy_free(policy);

    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] < 0)
            return 1;
        if (workers[i] == 0)
            _exit(work(limiter)); /* The handle of the parent is all it needs. */
    }
    int allowed = 0, status = 0;
    for (int i = 0; i < WORKERS; i++)
        if (waitpid(workers[i], &status, 0) == workers[i] && WIFEXITED(status))
            allowed += WEXITSTATUS(status);
    tollgate_limiter_view view = { .struct_size = sizeof view };
    tollgate_snapshot(limiter, &view, NULL, 0);
    tollgate_limiter_free(limiter);
    printf("%d requests of %d processes: %d allowed; %" PRIu32 " process is left\n", WORKERS * JOBS, WORKERS, allowed,
           view.processes);
    return allowed == 150 ? 0 : 1;
}
