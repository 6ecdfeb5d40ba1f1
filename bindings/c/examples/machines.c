/*
 * Two machines, one limit: two processes that share nothing but a Redis or Valkey.
 *
 *     cc machines.c $(pkg-config --cflags --libs tollgate_redis) -o machines
 *     ./machines redis://127.0.0.1
 *
 * The secret is the same on every machine, and in no program: take it from the
 * environment or a file, as the password if the store asks for one.
 */
#define _POSIX_C_SOURCE 200809L /* fork and nanosleep, also with -std=c11. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <tollgate_redis.h>
#include <unistd.h>

enum { MACHINES = 2, LIMIT = 60 };
static const char POLICY[] = "[lanes]\njobs = '60/hour'\n";
static const char SECRET[] = "an example's, not to be copied";

static void rest_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* Asks for far too much, and returns how many jobs were allowed. */
static int work(const char *url)
{
    tollgate_cluster_options cluster = { .struct_size = sizeof cluster };
    cluster.secret = SECRET;
    cluster.secret_len = sizeof SECRET - 1;
    tollgate_limiter_options options = { .struct_size = sizeof options, .cluster = &cluster };
    tollgate_engine_options where = { .struct_size = sizeof where, .nodes_at_least = MACHINES };
    where.urls = url;
    where.urls_len = strlen(url);

    tollgate_policy *policy = NULL;
    tollgate_limiter *limiter = NULL;
    tollgate_engine *engine = NULL;
    tollgate_error error = { .struct_size = sizeof error };
    if (tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy) != TOLLGATE_STATUS_OK
        || tollgate_limiter_new(policy, &options, &error, &limiter) != TOLLGATE_STATUS_OK
        || tollgate_engine_new(limiter, &where, &error, &engine) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 255;
    }
    tollgate_policy_free(policy);

    /* Without a store each machine allows its share. This one would rather wait for it, 5 s at most. */
    tollgate_engine_view view = { .struct_size = sizeof view };
    for (int tries = 0; tries < 1000 && view.state != TOLLGATE_ENGINE_STATE_CONNECTED; tries++) {
        rest_ms(5);
        tollgate_engine_status(engine, &view, NULL, 0);
    }
    if (view.state != TOLLGATE_ENGINE_STATE_CONNECTED)
        fprintf(stderr, "no store: %s\n", view.last_problem);

    const tollgate_request request = { TOLLGATE_LITERAL("agent-7"), 1, 0, TOLLGATE_NONE, NULL };
    int allowed = 0;
    for (int job = 0; job < 10 * LIMIT; job++) {
        tollgate_verdict verdict = { 0 };
        if (tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict) == TOLLGATE_STATUS_OK
            && verdict.decision != TOLLGATE_DECISION_DENY)
            allowed++;
        rest_ms(1);
    }
    tollgate_engine_free(engine); /* What it has in credit goes back to the store. */
    tollgate_limiter_free(limiter);
    return allowed;
}

int main(int count, char **arguments)
{
    const char *url = count > 1 ? arguments[1] : "redis://127.0.0.1";
    pid_t machines[MACHINES];
    fflush(NULL);
    for (int i = 0; i < MACHINES; i++) {
        machines[i] = fork();
        if (machines[i] < 0)
            return 1;
        if (machines[i] == 0)
            _exit(work(url));
    }
    int allowed = 0, status = 0;
    for (int i = 0; i < MACHINES; i++)
        if (waitpid(machines[i], &status, 0) == machines[i] && WIFEXITED(status))
            allowed += WEXITSTATUS(status);
    /* Slack, 10 % here; and time refills a job a minute. */
    printf("%d machines, %d jobs an hour: %d allowed\n", MACHINES, LIMIT, allowed);
    return allowed >= LIMIT - 2 && allowed <= LIMIT + LIMIT / 10 + 1 ? 0 : 1;
}
