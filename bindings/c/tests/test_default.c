/* The limiter of the whole process. Each test is a process of its own, since there is one limiter in each. */
#define _POSIX_C_SOURCE 200809L /* fork, also with -std=c11. */
#include "expect.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4 };

static void *get_default(void *place)
{
    REQUIRE_OK(tollgate_default(place));
    return NULL;
}

static void it_is_made_once_and_never_freed(void)
{
    tollgate_limiter *limiters[THREADS] = { NULL };
    pthread_t threads[THREADS];
    EXPECT_EQ(tollgate_default(NULL), TOLLGATE_STATUS_NULL_POINTER);
    for (size_t i = 0; i < THREADS; i++)
        EXPECT_EQ(pthread_create(&threads[i], NULL, get_default, &limiters[i]), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        EXPECT(limiters[i] != NULL && limiters[i] == limiters[0]);
    tollgate_limiter_free(limiters[0]);
    static const char *const names[] = { "ws/light", "ws/normal", "ws/heavy", "http/light", "http/normal", "http/heavy" };
    static const uint64_t capacities[] = { 120, 60, 10, 120, 60, 10 };
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t lane = 77;
        EXPECT_OK(tollgate_limiter_lane(limiters[0], names[i], strlen(names[i]), &lane));
        EXPECT_EQ(lane, i);
        EXPECT_EQ(tokens_left(limiters[0], "a", 1, lane), capacities[i]);
    }
    tollgate_policy *policy = rig_policy();
    EXPECT_EQ(tollgate_default_configure(policy, NULL), TOLLGATE_STATUS_ALREADY_MADE);
    tollgate_policy_free(policy);
}

static void it_can_be_configured_before_its_first_use(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter_options options = rig_options(0, 7, NULL);
    EXPECT_EQ(tollgate_default_configure(NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_default_configure(policy, &options), TOLLGATE_STATUS_INVALID_OPTION);
    options = rig_options(10, TOLLGATE_ON_FULL_DENY, NULL);
    EXPECT_OK(tollgate_default_configure(policy, &options));
    EXPECT_EQ(tollgate_default_configure(policy, &options), TOLLGATE_STATUS_ALREADY_MADE);
    tollgate_policy_free(policy);
    tollgate_limiter *limiter = NULL;
    EXPECT_OK(tollgate_default(&limiter));
    EXPECT_EQ(tokens_left(limiter, "a", 1, HEAVY), HEAVY_CAPACITY);
}

static void in_a_process_of_its_own(void (*test)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        test();
        exit(expectations_failed);
    }
    int status = 0;
    EXPECT(child > 0);
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

int main(void)
{
    in_a_process_of_its_own(it_is_made_once_and_never_freed);
    in_a_process_of_its_own(it_can_be_configured_before_its_first_use);
    return expectations_end("test_default");
}
