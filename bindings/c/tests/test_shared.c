/*
 * One limiter for several processes, each of them real: children that are
 * forked, stopped and killed. The files are on /dev/shm, which is in memory.
 */
#define _GNU_SOURCE /* fork, kill, usleep and mkstemp, also with -std=c11. */
#include "expect.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child needs milliseconds. After this long it hangs. */
enum { CHILD_SECONDS = 60 };
enum { CHILDREN = 4, CAPACITY = 100 };

static const char POLICY[] = "[lanes]\nhttp = '100/hour'\nllm = 'budget 1000/day'\n";

/* A path of this test's own; `made_at` is the file that the library makes of it, with `layout` behind its name. */
static char directory[] = "/dev/shm/tollgate-test-XXXXXX";
static char layout[16];
static char path[sizeof directory + 32];
static char made_at[sizeof path + sizeof layout];

static void new_path(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(made_at, sizeof made_at, "%s%s", path, layout);
}

static tollgate_limiter_options options_at(const char *where)
{
    tollgate_limiter_options options = rig_options(1000, TOLLGATE_ON_FULL_EVICT, NULL);
    options.shared_path = where;
    options.shared_path_len = where != NULL ? strlen(where) : 0;
    return options;
}

/* Ends the process if it fails: a child has nothing else to do. */
static tollgate_limiter *limiter_at(const char *where)
{
    tollgate_policy *policy = policy_of(POLICY);
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = options_at(where);
    tollgate_error error = SIZED(tollgate_error);
    if (tollgate_limiter_new(policy, &options, &error, &limiter) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", where, error.message);
        _exit(1);
    }
    tollgate_policy_free(policy);
    return limiter;
}

/* A limiter without a path: the children need nothing but the handle. */
static tollgate_limiter *limiter_in_memory(void)
{
    tollgate_policy *policy = policy_of(POLICY);
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = options_at(NULL);
    options.shared_by = TOLLGATE_SHARED_BY_MEMFD;
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    tollgate_policy_free(policy);
    return limiter;
}

static tollgate_limiter_view snapshot(const tollgate_limiter *limiter)
{
    tollgate_limiter_view snapshot = SIZED(tollgate_limiter_view);
    REQUIRE_OK(tollgate_snapshot(limiter, &snapshot, NULL, 0));
    return snapshot;
}

/* What the library appends to a path: the descriptor says where it leads. */
static void find_layout(void)
{
    new_path("layout");
    tollgate_limiter *limiter = limiter_at(path);
    char descriptor[64];
    snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%" PRId32, snapshot(limiter).shared_fd);
    ssize_t length = readlink(descriptor, made_at, sizeof made_at - 1);
    EXPECT(length > (ssize_t)strlen(path) && strncmp(made_at, path, strlen(path)) == 0);
    EXPECT_EQ(unlink(made_at), 0);
    snprintf(layout, sizeof layout, "%s", made_at + strlen(path));
    EXPECT(layout[0] == '.' && layout[1] == 'v');
    tollgate_limiter_free(limiter);
}

/* How many of these checks are allowed. */
static int allowed(tollgate_limiter *limiter, int checks)
{
    int count = 0;
    for (int i = 0; i < checks; i++) {
        tollgate_verdict verdict = { 0 };
        if (tollgate_check(limiter, REQUEST("agent-7", 7, 0, 1), TOLLGATE_NOW, 0, &verdict) == TOLLGATE_STATUS_OK
            && verdict.decision != TOLLGATE_DECISION_DENY)
            count++;
    }
    return count;
}

/* In the child it returns 0, like fork. */
static pid_t child_new(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        alarm(CHILD_SECONDS);
    EXPECT(pid >= 0);
    return pid;
}

/* How a child ended: what it passed to _exit, or a negative number. */
static int ending(pid_t pid)
{
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void four_processes_admit_one_limit(void)
{
    new_path("four");
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = child_new();
        if (children[i] == 0) {
            tollgate_limiter *limiter = limiter_at(path);
            int count = allowed(limiter, CAPACITY);
            tollgate_limiter_free(limiter);
            _exit(count);
        }
    }
    int all = 0;
    for (int i = 0; i < CHILDREN; i++) {
        int count = ending(children[i]);
        EXPECT(count >= 0);
        all += count;
    }
    EXPECT_EQ(all, CAPACITY);

    /* All of them have ended, and what they charged is still charged. */
    tollgate_limiter *limiter = limiter_at(path);
    EXPECT_EQ(allowed(limiter, 1), 0);
    tollgate_limiter_view seen = snapshot(limiter);
    EXPECT_EQ(seen.processes, 1);
    EXPECT(seen.shared_fd >= 0);
    EXPECT_EQ(seen.policy_differs | seen.detached | seen.takeovers | seen.busy, 0);

    /* A program of before there was sharing has a smaller struct, and no byte behind it is written. */
    tollgate_limiter_view old;
    memset(&old, 0x5a, sizeof old);
    old.struct_size = offsetof(tollgate_limiter_view, processes);
    REQUIRE_OK(tollgate_snapshot(limiter, &old, NULL, 0));
    EXPECT_EQ(old.agents, 1);
    EXPECT_EQ(old.lane_count, 2);
    EXPECT_EQ(old.processes, 0x5a5a5a5a);
    EXPECT_EQ(old.detached, 0x5a5a5a5a);

    EXPECT_EQ(unlink(made_at), 0);
    EXPECT_EQ(snapshot(limiter).detached, 1);
    tollgate_limiter_free(limiter);
}

static void a_private_limiter_is_nobody_elses(void)
{
    tollgate_limiter *limiter = limiter_at(NULL);
    tollgate_limiter_view seen = snapshot(limiter);
    EXPECT_EQ(seen.processes, 0);
    EXPECT_EQ(seen.shared_fd, -1);
    EXPECT_EQ(seen.policy_differs | seen.detached | seen.takeovers | seen.busy, 0);
    tollgate_limiter_free(limiter);
}

/* It claims records and gives them up until somebody kills it. */
static void claim_for_ever(tollgate_limiter *limiter)
{
    for (uint32_t call = 0;; call++) {
        uint32_t agent = call % 5000;
        tollgate_verdict verdict;
        bool forgotten;
        tollgate_check(limiter, REQUEST(&agent, sizeof agent, 0, 1), TOLLGATE_NOW, 0, &verdict);
        if (call % 3 == 0)
            tollgate_forget(limiter, &agent, sizeof agent, TOLLGATE_NOW, &forgotten);
        if (call % 7 == 0)
            tollgate_set_exempt(limiter, &agent, sizeof agent, call % 2 == 0, NULL);
    }
}

static void a_killed_process_leaves_the_others_working(void)
{
    new_path("killed");
    tollgate_limiter *limiter = limiter_at(path);
    unsigned long rounds = setting("TOLLGATE_FORKS", 100);
    for (uint32_t round = 0; round < rounds && round < 100; round++) {
        pid_t pid = child_new();
        if (pid == 0) {
            claim_for_ever(round % 2 == 0 ? limiter : limiter_at(path));
            _exit(1);
        }
        usleep(2000 + 37 * round);
        EXPECT_EQ(kill(pid, SIGKILL), 0);
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

        /* Newcomers, of which some find no room where the dead child was at work; and a change. */
        for (uint32_t agent = 10000; agent < 10300; agent++) {
            tollgate_verdict verdict;
            EXPECT_OK(tollgate_check(limiter, REQUEST(&agent, sizeof agent, 0, 1), TOLLGATE_NOW, 0, &verdict));
        }
        EXPECT_OK(tollgate_set_exempt(limiter, "agent-8", 7, round % 2 == 0, NULL));
        EXPECT_EQ(snapshot(limiter).processes, 1);
    }
    /* A newcomer inherits the debt of the agent whose record it takes. */
    EXPECT_EQ(allowed(limiter, 1), 1);
    EXPECT_OK(tollgate_reset(limiter, "agent-7", 7, TOLLGATE_NONE, TOLLGATE_NOW));
    EXPECT_EQ(allowed(limiter, 2 * CAPACITY), CAPACITY);
    tollgate_limiter_free(limiter);
    EXPECT_EQ(unlink(made_at), 0);
}

/* A limit of connections that a killed process could use up would not be one. */
static void slots_of_a_killed_process_come_back(void)
{
    enum { WS = 0 };
    new_path("slots");
    tollgate_policy *policy = policy_of("[lanes]\nws = 'held 3'\n");
    tollgate_limiter_options options = options_at(path);
    tollgate_limiter *limiter = NULL;
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    tollgate_policy_free(policy);
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_t pid = child_new();
    if (pid == 0) {
        tollgate_verdict verdict;
        tollgate_status status = tollgate_check(limiter, REQUEST("agent-7", 7, WS, 2), TOLLGATE_NOW, 0, &verdict);
        char held = status == TOLLGATE_STATUS_OK && verdict.decision != TOLLGATE_DECISION_DENY;
        if (write(ends[1], &held, 1) == 1) {
            pause();
        }
        _exit(1);
    }
    char held = 0;
    EXPECT_EQ(read(ends[0], &held, 1), 1);
    EXPECT_EQ(held, 1);
    tollgate_verdict verdict;
    EXPECT_OK(tollgate_check(limiter, REQUEST("agent-7", 7, WS, 2), TOLLGATE_NOW, 0, &verdict));
    EXPECT_EQ(verdict.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(kill(pid, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    /* Not at the very next call: a denial that found nobody dead is not followed by another look for some time. */
    for (int tries = 0; tries < 10000000 && verdict.decision == TOLLGATE_DECISION_DENY; tries++) {
        EXPECT_OK(tollgate_check(limiter, REQUEST("agent-7", 7, WS, 3), TOLLGATE_NOW, 0, &verdict));
    }
    EXPECT(verdict.decision != TOLLGATE_DECISION_DENY);
    EXPECT_EQ(close(ends[0]) | close(ends[1]), 0);
    tollgate_limiter_free(limiter);
    EXPECT_EQ(unlink(made_at), 0);
}

/* Nobody can tell whether it will go on, so its lock is not taken over: who needs it is asked to come back. */
static void a_stopped_process_makes_changes_wait(void)
{
    tollgate_limiter *limiter = limiter_in_memory();
    EXPECT_EQ(allowed(limiter, 1), 1);
    pid_t pid = child_new();
    if (pid == 0)
        for (uint32_t call = 0;; call++)
            tollgate_set_exempt(limiter, "agent-8", 7, call % 2 == 0, NULL);
    tollgate_status status = TOLLGATE_STATUS_OK;
    tollgate_error error = SIZED(tollgate_error);
    /* It holds the lock most of the time, so a few attempts will do. */
    for (uint32_t tries = 0; tries < 1000 && status == TOLLGATE_STATUS_OK; tries++) {
        EXPECT_EQ(kill(pid, SIGCONT), 0);
        usleep(1000 + 37 * tries);
        EXPECT_EQ(kill(pid, SIGSTOP), 0);
        EXPECT_EQ(waitpid(pid, NULL, WUNTRACED), pid);
        status = tollgate_set_exempt(limiter, "agent-9", 7, true, &error);
    }
    EXPECT_EQ(status, TOLLGATE_STATUS_BUSY);
    EXPECT_EQ(error.status, TOLLGATE_STATUS_BUSY);
    EXPECT(strstr(error.message, "process") != NULL);
    EXPECT_EQ(allowed(limiter, 1), 1); /* An agent that has a record is not concerned. */
    EXPECT(snapshot(limiter).busy > 0);
    EXPECT_EQ(snapshot(limiter).takeovers, 0);
    EXPECT_EQ(snapshot(limiter).processes, 2);

    /* Dead is another thing: its lock is free, and what it had begun is ended. */
    EXPECT_EQ(kill(pid, SIGKILL), 0);
    EXPECT_EQ(waitpid(pid, NULL, 0), pid);
    EXPECT_OK(tollgate_set_exempt(limiter, "agent-9", 7, true, &error));
    EXPECT(snapshot(limiter).takeovers > 0);
    EXPECT_EQ(snapshot(limiter).processes, 1);
    tollgate_limiter_free(limiter);
}

static uint64_t capacity(tollgate_limiter *limiter)
{
    tollgate_verdict verdict = { 0 };
    REQUIRE_OK(tollgate_check(limiter, REQUEST("agent-7", 7, 0, 1), TOLLGATE_NOW, 0, &verdict));
    return verdict.capacity;
}

static void what_a_child_decides_holds_in_its_parent(void)
{
    new_path("override");
    tollgate_limiter *limiter = limiter_at(path);
    EXPECT_EQ(capacity(limiter), CAPACITY);
    pid_t pid = child_new();
    if (pid == 0) {
        tollgate_limiter *joined = limiter_at(path);
        tollgate_status status = tollgate_set_override(joined, TOLLGATE_LITERAL("agent-7"), TOLLGATE_LITERAL("http"),
                                                       TOLLGATE_LITERAL("70/hour"), NULL);
        /* Of this child both limiters count, and the parent has one. */
        bool is_well = status == TOLLGATE_STATUS_OK && snapshot(joined).processes == 3;
        tollgate_limiter_free(joined);
        tollgate_limiter_free(limiter);
        _exit(is_well ? 0 : 1);
    }
    EXPECT_EQ(ending(pid), 0);
    EXPECT_EQ(capacity(limiter), 70);
    EXPECT_TEXT("70/hour", tollgate_limit_of, limiter, "agent-7", 7, 0);
    EXPECT_EQ(snapshot(limiter).agents_overridden, 1);
    tollgate_limiter_free(limiter);
    EXPECT_EQ(unlink(made_at), 0);
}

static void a_limiter_from_before_the_fork_is_one_afterwards(void)
{
    tollgate_limiter *limiter = limiter_in_memory();
    pid_t children[CHILDREN];
    int all = 0;
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = child_new();
        if (children[i] == 0) {
            int count = allowed(limiter, CAPACITY / 2);
            tollgate_limiter_free(limiter);
            _exit(count);
        }
    }
    all += allowed(limiter, CAPACITY / 2);
    for (int i = 0; i < CHILDREN; i++)
        all += ending(children[i]);
    EXPECT_EQ(all, CAPACITY);
    EXPECT_EQ(snapshot(limiter).processes, 1);
    EXPECT_EQ(snapshot(limiter).detached, 0);
    tollgate_limiter_free(limiter);
}

static void a_descriptor_can_be_passed_on(void)
{
    tollgate_limiter *limiter = limiter_in_memory(), *joined = NULL;
    tollgate_policy *policy = policy_of(POLICY), *in_force = NULL;
    tollgate_limiter_options options = options_at(NULL);
    options.shared_by = TOLLGATE_SHARED_BY_DESCRIPTOR;
    options.shared_fd = dup(snapshot(limiter).shared_fd);
    EXPECT(options.shared_fd >= 0);
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &joined));
    EXPECT_EQ(allowed(joined, CAPACITY), CAPACITY);
    EXPECT_EQ(allowed(limiter, 1), 0);
    EXPECT_EQ(snapshot(limiter).processes, 2); /* Of this process both are. */
    tollgate_limiter_free(joined);
    joined = NULL;

    /* Without a policy it takes that of the others, and all else that has to be the same. */
    options.agents = 0;
    REQUIRE_OK(tollgate_limiter_new(NULL, &options, NULL, &joined));
    EXPECT_EQ(allowed(joined, 1), 0);
    REQUIRE_OK(tollgate_limiter_policy(joined, &in_force));
    EXPECT_TEXT("100/hour", tollgate_policy_limit, in_force, 0, 0);
    tollgate_policy_free(in_force);
    EXPECT_EQ(close(options.shared_fd), 0); /* The limiter has a copy. */
    EXPECT_EQ(allowed(joined, 1), 0);
    tollgate_limiter_free(joined);
    joined = NULL;

    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &error, &joined), TOLLGATE_STATUS_SHARED);
    EXPECT(strstr(error.message, "shared_fd is ") != NULL);
    int both[2];
    EXPECT_EQ(pipe(both), 0);
    options.shared_fd = both[0];
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &error, &joined), TOLLGATE_STATUS_SHARED);
    close(both[0]);
    close(both[1]);
    EXPECT(joined == NULL);
    tollgate_policy_free(policy);
    tollgate_limiter_free(limiter);
}

/* A limiter that cannot be built, and the words that its error has to contain. */
static void expect_refused(tollgate_policy *policy, const tollgate_limiter_options *options, tollgate_status status,
                           const char *words)
{
    tollgate_limiter *limiter = NULL;
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_EQ(tollgate_limiter_new(policy, options, &error, &limiter), status);
    EXPECT_EQ(error.status, status);
    if (strstr(error.message, words) == NULL) {
        fprintf(stderr, "\"%s\" does not say \"%s\"\n", error.message, words);
        expectations_failed = 1;
    }
    EXPECT(limiter == NULL);
}

static void what_cannot_be_shared_says_why(void)
{
    tollgate_policy *policy = policy_of(POLICY);
    new_path("refused");

    /* Not in memory: /proc is never, whatever the machine's disks are. */
    tollgate_limiter_options options = options_at("/proc/self/comm");
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "/proc/self/comm.v");
    char on_disk[] = "test_shared-XXXXXX";
    int file = mkstemp(on_disk);
    EXPECT(file >= 0);
    struct statfs here, memory;
    EXPECT_EQ(fstatfs(file, &here) | statfs(directory, &memory), 0);
    char on_disk_made[sizeof on_disk + sizeof layout];
    snprintf(on_disk_made, sizeof on_disk_made, "%s%s", on_disk, layout);
    options = options_at(on_disk);
    if (here.f_type != memory.f_type)
        expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "is on a disk");
    close(file);
    unlink(on_disk);
    unlink(on_disk_made);

    options = options_at(path);
    expect_refused(NULL, &options, TOLLGATE_STATUS_SHARED, "there is no slab at");
    EXPECT_EQ(symlink("/dev/shm/elsewhere", made_at), 0);
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "is a symbolic link");
    EXPECT_EQ(unlink(made_at), 0);
    file = open(made_at, O_CREAT | O_WRONLY, 0600);
    EXPECT_EQ(fchmod(file, 0666) | close(file), 0);
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "has mode 0666");
    EXPECT_EQ(unlink(made_at), 0);
    options = options_at("/dev/shm/no/such/directory");
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "could not open its directory");
    options = options_at("/dev/shm/nul\0inside");
    options.shared_path_len = 19;
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "could not");
    tollgate_policy_free(policy);
}

/* What has to be the same in all processes, while another one uses it. */
static void processes_that_do_not_agree_are_refused(void)
{
    new_path("agree");
    int ready[2], done[2];
    char byte = 0;
    EXPECT_EQ(pipe(ready) | pipe(done), 0);
    pid_t pid = child_new();
    if (pid == 0) {
        tollgate_limiter *limiter = limiter_at(path);
        close(done[1]);
        if (write(ready[1], "", 1) != 1)
            _exit(2);
        while (read(done[0], &byte, 1) > 0) {
        }
        tollgate_limiter_free(limiter);
        _exit(0);
    }
    EXPECT_EQ(read(ready[0], &byte, 1), 1);

    tollgate_policy *policy = policy_of(POLICY);
    tollgate_policy *lanes = policy_of("[lanes]\nhttp = 'window 100/hour'\nllm = 'budget 1000/day'\n");
    tollgate_limiter_options options = options_at(path);
    expect_refused(lanes, &options, TOLLGATE_STATUS_SHARED, "as lane 0");
    options.agents = 1000000;
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "has room for 1000 agents");
    options.agents = 1000;
    options.on_full = TOLLGATE_ON_FULL_DENY;
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "on_full");

    /* Other numbers are no reason: those that were there first are in force. */
    tollgate_policy *numbers = policy_of("[lanes]\nhttp = '5/hour'\nllm = 'budget 1000/day'\n");
    tollgate_limiter *limiter = NULL;
    options.on_full = TOLLGATE_ON_FULL_EVICT;
    REQUIRE_OK(tollgate_limiter_new(numbers, &options, NULL, &limiter));
    EXPECT_EQ(capacity(limiter), CAPACITY);
    EXPECT_EQ(snapshot(limiter).policy_differs, 1);
    EXPECT_EQ(snapshot(limiter).processes, 2);
    tollgate_policy_free(numbers);

    EXPECT_EQ(close(done[1]), 0);
    EXPECT_EQ(ending(pid), 0);
    EXPECT_EQ(snapshot(limiter).processes, 1);
    tollgate_limiter_free(limiter);

    /* Nobody uses it any more: it is made anew, with other lanes. */
    limiter = NULL;
    REQUIRE_OK(tollgate_limiter_new(lanes, &options, NULL, &limiter));
    tollgate_limiter_free(limiter);
    close(ready[0]);
    close(ready[1]);
    close(done[0]);
    tollgate_policy_free(lanes);
    tollgate_policy_free(policy);
    EXPECT_EQ(unlink(made_at), 0);
}

static void options_that_contradict_each_other_are_refused(void)
{
    tollgate_policy *policy = policy_of(POLICY);
    tollgate_limiter_options options = options_at(NULL);
    options.shared_by = 3;
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "shared_by is 3");
    options.shared_by = -1;
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "shared_by is -1");
    options = options_at(NULL);
    options.shared_fd = 1;
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "shared_fd is for");
    options = options_at(NULL);
    options.shared_mode = 0660;
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "shared_mode is for");
    options = options_at(path);
    options.shared_mode = 01000;
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "nine bits");
    options = options_at(path);
    options.shared_by = TOLLGATE_SHARED_BY_MEMFD;
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "shared_path is for");
    options = options_at("");
    expect_refused(policy, &options, TOLLGATE_STATUS_INVALID_OPTION, "shared_path is empty");
    options = options_at(NULL);
    options.shared_path_len = 5;
    expect_refused(policy, &options, TOLLGATE_STATUS_NULL_POINTER, "NULL");
    options = options_at(path);
    options.shared_path_len = SIZE_MAX;
    expect_refused(policy, &options, TOLLGATE_STATUS_TEXT_TOO_LONG, "bytes");
    options = options_at(NULL);
    expect_refused(NULL, &options, TOLLGATE_STATUS_NULL_POINTER, "NULL");

    /* What an old program does not know of is not asked for. */
    tollgate_limiter *limiter = NULL;
    options = options_at(path);
    options.struct_size = offsetof(tollgate_limiter_options, shared_path);
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    EXPECT_EQ(snapshot(limiter).processes, 0);
    tollgate_limiter_free(limiter);
    tollgate_policy_free(policy);
}

static void a_mode_lets_others_in(void)
{
    new_path("mode");
    tollgate_policy *policy = policy_of(POLICY);
    tollgate_limiter_options options = options_at(path);
    tollgate_limiter *limiter = NULL;
    struct stat made;
    options.shared_mode = 0660;
    REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
    EXPECT_EQ(stat(made_at, &made), 0);
    EXPECT_EQ(made.st_mode & 0777, 0660);
    options.shared_mode = 0;
    expect_refused(policy, &options, TOLLGATE_STATUS_SHARED, "has mode 0660");
    tollgate_limiter_free(limiter);
    tollgate_policy_free(policy);
    EXPECT_EQ(unlink(made_at), 0);
}

int main(void)
{
    if ((tollgate_features() & TOLLGATE_FEATURE_SHARED) == 0) {
        tollgate_policy *policy = policy_of(POLICY);
        tollgate_limiter_options options = options_at("/dev/shm/slab");
        expect_refused(policy, &options, TOLLGATE_STATUS_NOT_BUILT_IN, "without this feature");
        options = options_at(NULL);
        options.shared_by = TOLLGATE_SHARED_BY_MEMFD;
        expect_refused(policy, &options, TOLLGATE_STATUS_NOT_BUILT_IN, "without this feature");
        tollgate_policy_free(policy);
        return expectations_end("test_shared");
    }
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 1;
    }
    find_layout();
    four_processes_admit_one_limit();
    a_private_limiter_is_nobody_elses();
    a_killed_process_leaves_the_others_working();
    slots_of_a_killed_process_come_back();
    a_stopped_process_makes_changes_wait();
    what_a_child_decides_holds_in_its_parent();
    a_limiter_from_before_the_fork_is_one_afterwards();
    a_descriptor_can_be_passed_on();
    what_cannot_be_shared_says_why();
    processes_that_do_not_agree_are_refused();
    options_that_contradict_each_other_are_refused();
    a_mode_lets_others_in();
    EXPECT_EQ(rmdir(directory), 0);
    return expectations_end("test_shared");
}
