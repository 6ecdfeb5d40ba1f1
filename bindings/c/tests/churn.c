/*
 * Does everything at once on a shared slab, until it is killed: what tests/shared/killed.rs does in Rust.
 *
 * Usage: churn SLAB SEED POLICY. SLAB is the path that all processes share, and POLICY a file with the policy as TOML.
 * A process that holds a slot of "conn" also locks one of as many files: if it finds none free, a slot was given out
 * twice. It says FAULT and what is wrong, and ends.
 */
#define _GNU_SOURCE /* flock, also with -std=c11. */
#include "tollgate.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <unistd.h>

/* As in tests/shared/killed.rs. */
enum { AGENTS = 600, IDS = 5000, CHANGED = 60, SLOTS = 3, RESERVATIONS = 256 };
enum { HTTP = 1, LLM = 2, CONN = 3, PRO = 1 };

static uint64_t state;

/* SplitMix64. */
static uint64_t below(uint64_t bound)
{
    uint64_t mixed = state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) % bound;
}

static void expect(tollgate_status status, const char *what)
{
    switch (status) {
    case TOLLGATE_STATUS_OK:
    case TOLLGATE_STATUS_BUSY:
    case TOLLGATE_STATUS_FULL:
    case TOLLGATE_STATUS_HOLDS_FULL:
    case TOLLGATE_STATUS_RESERVATIONS_FULL:
    case TOLLGATE_STATUS_TOO_MANY_RESERVATIONS:
    case TOLLGATE_STATUS_UNKNOWN_RESERVATION:
        return;
    default:
        fprintf(stderr, "FAULT in C, %s: %s\n", what, tollgate_status_text(status));
        exit(3);
    }
}

static bool is_allowed(tollgate_status status, const tollgate_verdict *verdict)
{
    return status == TOLLGATE_STATUS_OK && verdict->decision != TOLLGATE_DECISION_DENY;
}

static int locks[SLOTS];

/*
 * Opens the files that are locked with slots, once the limiter is built. A process that is killed loses what its
 * highest descriptor leads to first, and must not lose its slot before its file: see tests/shared/locks.rs.
 */
static void open_locks(const char *slab)
{
    for (int number = 0; number < SLOTS; number++) {
        char name[4096];
        snprintf(name, sizeof name, "%.*s/lock-%d", (int)(strrchr(slab, '/') - slab), slab, number);
        int low = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        locks[number] = fcntl(low, F_DUPFD_CLOEXEC, 200);
        if (locks[number] < 0) {
            fprintf(stderr, "FAULT in C: %s cannot be opened\n", name);
            exit(3);
        }
        close(low);
    }
}

static void hold(tollgate_limiter *limiter)
{
    tollgate_request request = { "conn", 4, 1, CONN, TOLLGATE_NONE, NULL };
    tollgate_verdict verdict;
    tollgate_status status = tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict);
    expect(status, "hold");
    if (!is_allowed(status, &verdict)) {
        return;
    }
    int number = 0;
    while (number < SLOTS && flock(locks[number], LOCK_EX | LOCK_NB) != 0) {
        number++;
    }
    if (number == SLOTS) {
        fprintf(stderr, "FAULT in C: more slots are held than there are\n");
        exit(3);
    }
    flock(locks[number], LOCK_UN);
    tollgate_lane_state lane = { .struct_size = sizeof lane };
    expect(tollgate_release(limiter, &request, TOLLGATE_NOW, &lane), "release");
}

static void reserve(tollgate_limiter *limiter, const char *id, size_t id_len)
{
    tollgate_request request = { id, id_len, 1 + below(40), LLM, TOLLGATE_NONE, NULL };
    tollgate_verdict verdict;
    uint64_t reservation = 0;
    tollgate_status status =
        tollgate_reserve(limiter, &request, below(30000000), TOLLGATE_NOW, 0, &verdict, &reservation);
    expect(status, "reserve");
    if (is_allowed(status, &verdict)) {
        tollgate_settlement settlement = { .struct_size = sizeof settlement };
        expect(tollgate_settle(limiter, reservation, below(60), TOLLGATE_NOW, 0, &settlement), "settle");
    }
}

static void change(tollgate_limiter *limiter)
{
    char id[32];
    size_t id_len = (size_t)snprintf(id, sizeof id, "agent-%u", (unsigned)below(CHANGED));
    bool forgotten;
    switch (below(6)) {
    case 0: expect(tollgate_set_override(limiter, id, id_len, "http", 4, "1100/s burst 3", 14, NULL), "override"); break;
    case 1: expect(tollgate_assign(limiter, id, id_len, PRO, NULL), "assign"); break;
    case 2: expect(tollgate_assign(limiter, id, id_len, TOLLGATE_NONE, NULL), "unassign"); break;
    case 3: expect(tollgate_set_exempt(limiter, id, id_len, true, NULL), "exempt"); break;
    case 4: expect(tollgate_set_exempt(limiter, id, id_len, false, NULL), "unexempt"); break;
    default: expect(tollgate_forget(limiter, id, id_len, TOLLGATE_NOW, &forgotten), "forget"); break;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: churn SLAB SEED POLICY\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* It ends with the test that started it. */
    state = strtoull(argv[2], NULL, 10);
    char text[8192];
    FILE *file = fopen(argv[3], "r");
    size_t text_len = file == NULL ? 0 : fread(text, 1, sizeof text, file);
    tollgate_policy *policy = NULL;
    tollgate_clock *clock = NULL;
    expect(tollgate_policy_from_toml(text, text_len, NULL, &policy), "policy");
    expect(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_OS, &clock), "clock");
    tollgate_limiter_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.agents = AGENTS;
    options.on_full = TOLLGATE_ON_FULL_DENY;
    options.reservations = RESERVATIONS;
    options.clock = clock;
    options.shared_path = argv[1];
    options.shared_path_len = strlen(argv[1]);
    tollgate_limiter *limiter = NULL;
    expect(tollgate_limiter_new(policy, &options, NULL, &limiter), "limiter");
    open_locks(argv[1]);
    /* Ends when it is killed. */
    for (;;) {
        char id[32];
        size_t id_len = (size_t)snprintf(id, sizeof id, "agent-%u", (unsigned)below(IDS));
        tollgate_request request = { id, id_len, 1, HTTP, TOLLGATE_NONE, NULL };
        tollgate_verdict verdict;
        uint64_t choice = below(100);
        if (choice < 75) {
            expect(tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict), "check");
        } else if (choice < 85) {
            hold(limiter);
        } else if (choice < 93) {
            reserve(limiter, id, id_len);
        } else {
            change(limiter);
        }
    }
}
