/*
 * Limits that machines share: each limiter here is a machine, with an engine of its
 * own, over a real Redis and a real Valkey. Real time is under test.
 */
#define _GNU_SOURCE /* fork, kill, mkdtemp and usleep, also with -std=c11. */
#include "tollgate_redis.h"

#include "expect.h"
#include "store.h"

#include <stddef.h>
#include <time.h>

static const char POLICY[] = "[lanes]\n"
                             "slow = '60/minute'\n"
                             "fast = '1000/second'\n"
                             "login = '10/hour'\n"
                             "ws = 'held 3'\n";
enum { SLOW, FAST, LOGIN, WS };
static const char SECRET[] = "0f6f4c0d9d1e7e4a0a2b";

/* A machine may be busy. */
enum { PATIENCE_MS = 30000 };

static tollgate_cluster_lane lane_named(const char *name)
{
    tollgate_cluster_lane lane;
    memset(&lane, 0, sizeof lane);
    lane.name = name;
    lane.name_len = strlen(name);
    return lane;
}

static tollgate_cluster_options cluster_of(const tollgate_cluster_lane *lanes, size_t count)
{
    tollgate_cluster_options cluster = SIZED(tollgate_cluster_options);
    cluster.secret = SECRET;
    cluster.secret_len = sizeof SECRET - 1;
    cluster.lanes = lanes;
    cluster.lanes_count = count;
    return cluster;
}

static tollgate_status limiter_with(const tollgate_cluster_options *cluster, tollgate_error *error,
                                    tollgate_limiter **limiter)
{
    tollgate_policy *policy = policy_of(POLICY);
    tollgate_limiter_options options = rig_options(1000, TOLLGATE_ON_FULL_EVICT, NULL);
    options.cluster = cluster;
    tollgate_status status = tollgate_limiter_new(policy, &options, error, limiter);
    tollgate_policy_free(policy);
    return status;
}

/* Logins are exact, and closed without a store; connections are each machine's own. */
static tollgate_limiter *limiter_new(void)
{
    tollgate_cluster_lane lanes[] = { lane_named("ws"), lane_named("login") };
    lanes[0].own = 1;
    lanes[1].exact = 1;
    lanes[1].when_lost = TOLLGATE_WHEN_LOST_CLOSED;
    tollgate_cluster_options cluster = cluster_of(lanes, 2);
    tollgate_error error = SIZED(tollgate_error);
    tollgate_limiter *limiter = NULL;
    if (limiter_with(&cluster, &error, &limiter) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return limiter;
}

static tollgate_engine_options options_at(const char *urls)
{
    tollgate_engine_options options = SIZED(tollgate_engine_options);
    options.urls = urls;
    options.urls_len = strlen(urls);
    return options;
}

static tollgate_engine *engine_new(tollgate_limiter *limiter, const char *url, uint32_t nodes)
{
    tollgate_engine_options options = options_at(url);
    options.nodes_at_least = nodes;
    options.timeout_ns = SECOND; /* A busy machine is not a lost store. */
    tollgate_engine *engine = NULL;
    tollgate_error error = SIZED(tollgate_error);
    if (tollgate_engine_new(limiter, &options, &error, &engine) != TOLLGATE_STATUS_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return engine;
}

static tollgate_engine_view view_of(const tollgate_engine *engine)
{
    tollgate_engine_view view = SIZED(tollgate_engine_view);
    REQUIRE_OK(tollgate_engine_status(engine, &view, NULL, 0));
    return view;
}

static void wait_for(const tollgate_engine *engine, tollgate_engine_state state)
{
    for (int waited = 0; view_of(engine).state != state; waited++) {
        if (waited > PATIENCE_MS) {
            fprintf(stderr, "waited in vain for state %d: %s\n", (int)state, view_of(engine).last_problem);
            exit(1);
        }
        usleep(1000);
    }
}

static tollgate_verdict ask(tollgate_limiter *limiter, const char *agent, uint32_t lane, uint64_t cost)
{
    tollgate_verdict verdict = { 0 };
    REQUIRE_OK(tollgate_check(limiter, REQUEST(agent, strlen(agent), lane, cost), TOLLGATE_NOW, 0, &verdict));
    return verdict;
}

static int allowed(tollgate_limiter *limiter, const char *agent, uint32_t lane)
{
    return ask(limiter, agent, lane, 1).decision != TOLLGATE_DECISION_DENY;
}

/* Machines that share a store. */
typedef struct machine {
    tollgate_limiter *limiter;
    tollgate_engine *engine;
} machine;

static machine machine_new(const char *url, uint32_t nodes)
{
    machine made = { limiter_new(), NULL };
    made.engine = engine_new(made.limiter, url, nodes);
    wait_for(made.engine, TOLLGATE_ENGINE_STATE_CONNECTED);
    return made;
}

static void machine_free(machine *one)
{
    tollgate_engine_free(one->engine);
    tollgate_limiter_free(one->limiter);
}

/* How many are allowed by all machines within this many milliseconds. */
static int admitted(const machine *machines, int count, const char *agent, uint32_t lane, int for_ms)
{
    int all = 0;
    for (int ms = 0; ms < for_ms; ms++) {
        for (int i = 0; i < count; i++)
            all += allowed(machines[i].limiter, agent, lane);
        usleep(1000);
    }
    return all;
}

/* Seconds of real time since. */
static double seconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) / 1e9;
}

static void three_machines_admit_one_limit(const store *at)
{
    machine machines[3];
    for (int i = 0; i < 3; i++)
        machines[i] = machine_new(at->url, 3);
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int all = admitted(machines, 3, "agent-1", SLOW, 1000);
    int most = 60 + 3 + (int)seconds_since(&begin) + 1;
    printf("three machines, 60/minute: %d of at most %d\n", all, most);
    EXPECT(all >= 58 && all <= most);

    tollgate_engine_view view = SIZED(tollgate_engine_view);
    tollgate_engine_lane lanes[TOLLGATE_LANES_MAX];
    REQUIRE_OK(tollgate_engine_status(machines[0].engine, &view, lanes, TOLLGATE_LANES_MAX));
    EXPECT_EQ(view.nodes, 3);
    EXPECT_EQ(view.lane_count, 3);
    EXPECT(view.round_trips > 0 && view.settlements > 0 && view.asks > 0 && view.granted + view.paid > 0);
    EXPECT(view.round_trip_max_ns > 0 && view.round_trip_max_ns <= view.round_trips_ns && view.round_trip_ns > 0);
    EXPECT_EQ(lanes[0].lane, SLOW);
    EXPECT_EQ(lanes[0].capacity, 60);
    EXPECT_EQ(lanes[0].token_ns, SECOND);
    EXPECT_EQ(lanes[0].slack_percent, 10);
    EXPECT_EQ(lanes[0].when_lost, TOLLGATE_WHEN_LOST_SHARE);
    EXPECT_EQ(lanes[0].bound_tokens, 6);
    EXPECT(lanes[0].answers[TOLLGATE_SOURCE_ADVANCE] + lanes[0].answers[TOLLGATE_SOURCE_CREDIT] > 0);
    EXPECT(lanes[0].answers[TOLLGATE_SOURCE_VIEW] > 0);
    EXPECT_EQ(lanes[0].answers[TOLLGATE_SOURCE_NONE], 0);
    EXPECT_EQ(lanes[2].lane, LOGIN);
    EXPECT_EQ(lanes[2].exact, 1);
    EXPECT_EQ(lanes[2].when_lost, TOLLGATE_WHEN_LOST_CLOSED);

    /* As many as there is room for, and no more. */
    memset(lanes, 0x5a, sizeof lanes);
    REQUIRE_OK(tollgate_engine_status(machines[0].engine, &view, lanes, 1));
    EXPECT_EQ(view.lane_count, 3);
    EXPECT_EQ(lanes[0].lane, SLOW);
    EXPECT_EQ(lanes[1].lane, 0x5a5a5a5a);

    /* The store is debited for a denial by nobody, and the verdict says by whom it was made. */
    tollgate_verdict denied = ask(machines[1].limiter, "agent-1", SLOW, 50);
    EXPECT_EQ(denied.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(denied.source, TOLLGATE_SOURCE_VIEW);
    tollgate_verdict first = ask(machines[1].limiter, "agent-2", SLOW, 1);
    EXPECT_EQ(first.decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(first.source, TOLLGATE_SOURCE_ADVANCE);
    /* A lane of its own, as ever. */
    tollgate_verdict held = { 0 };
    REQUIRE_OK(tollgate_hold(machines[1].limiter, REQUEST("agent-2", 7, WS, 1), TOLLGATE_NOW, 0, &held));
    EXPECT_EQ(held.decision, TOLLGATE_DECISION_ALLOW);
    EXPECT_EQ(held.source, TOLLGATE_SOURCE_NONE);

    /* Several at once have theirs too. */
    tollgate_request many[2] = { { "agent-3", 7, 1, SLOW, TOLLGATE_NONE, NULL }, { "agent-3", 7, 1, 99, TOLLGATE_NONE, NULL } };
    tollgate_verdict verdicts[2];
    REQUIRE_OK(tollgate_check_many(machines[1].limiter, many, 2, TOLLGATE_NOW, 0, verdicts));
    EXPECT_EQ(verdicts[0].source, TOLLGATE_SOURCE_ADVANCE);
    EXPECT_EQ(verdicts[1].status, TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(verdicts[1].source, TOLLGATE_SOURCE_NONE);
    for (int i = 0; i < 3; i++)
        machine_free(&machines[i]);
}

/* Nothing in advance: each token was granted first, and who asks too early is told to come back. */
static void an_exact_lane_asks_first(const store *at)
{
    machine machines[2] = { machine_new(at->url, 2), machine_new(at->url, 2) };
    tollgate_verdict first = ask(machines[0].limiter, "agent-4", LOGIN, 1);
    EXPECT_EQ(first.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(first.source, TOLLGATE_SOURCE_PENDING);
    EXPECT(first.retry_after_ns > 0 && first.retry_after_ns < SECOND);
    int all = admitted(machines, 2, "agent-4", LOGIN, 1000);
    EXPECT(all >= 9 && all <= 10);
    machine_free(&machines[0]);
    machine_free(&machines[1]);
}

/* Answers go on at once: the share of a lane, or none of one that is closed. */
static void a_store_that_stops_is_lost_and_comes_back(const store *at)
{
    machine one = machine_new(at->url, 3);
    kill(at->pid, SIGSTOP);
    (void)ask(one.limiter, "agent-5", FAST, 1);
    wait_for(one.engine, TOLLGATE_ENGINE_STATE_LOST);
    int share = 0;
    tollgate_verdict last = { 0 };
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 100; i++) {
        last = ask(one.limiter, "agent-6", SLOW, 1);
        share += last.decision != TOLLGATE_DECISION_DENY;
    }
    EXPECT(share >= 20 && share <= 21 + (int)(seconds_since(&begin) / 3));
    EXPECT_EQ(last.source, TOLLGATE_SOURCE_SHARE);
    last = ask(one.limiter, "agent-6", LOGIN, 1);
    EXPECT_EQ(last.decision, TOLLGATE_DECISION_DENY);
    EXPECT_EQ(last.source, TOLLGATE_SOURCE_CLOSED);
    tollgate_engine_view view = view_of(one.engine);
    EXPECT(view.losses_by_reason[TOLLGATE_LOSS_TIMEOUT] >= 1);
    EXPECT(view.last_problem[0] != 0 && view.lost_for_ns > 0);
    EXPECT(view.state_for_ns < 600 * SECOND);
    kill(at->pid, SIGCONT);
    wait_for(one.engine, TOLLGATE_ENGINE_STATE_CONNECTED);
    EXPECT(ask(one.limiter, "agent-5", FAST, 1).source <= TOLLGATE_SOURCE_ADVANCE);
    machine_free(&one);
}

/* What it had in credit, another machine can spend; and the limiter may be freed first. */
static void an_engine_that_is_freed_gives_its_credit_back(const store *at)
{
    machine first = machine_new(at->url, 2), second = machine_new(at->url, 2);
    /* Some in advance, so it asks; and goes on until it has credit. */
    for (int tries = 0; ask(first.limiter, "agent-7", FAST, 1).source != TOLLGATE_SOURCE_CREDIT; tries++) {
        EXPECT(tries < PATIENCE_MS);
        usleep(1000);
    }
    tollgate_limiter_free(first.limiter);
    tollgate_engine_free(first.engine);
    /* All of it, more than both have in advance: it was paid for and has come back, within what refills. */
    int got = 0;
    for (int tries = 0; !got && tries < PATIENCE_MS; tries++) {
        got = ask(second.limiter, "agent-7", FAST, 990).decision != TOLLGATE_DECISION_DENY;
        usleep(1000);
    }
    EXPECT(got);
    machine_free(&second);
}

/* An operator's decision on one machine holds on the other. */
static void a_decision_follows(const store *at)
{
    machine first = machine_new(at->url, 2), second = machine_new(at->url, 2);
    REQUIRE_OK(tollgate_set_exempt(first.limiter, "admin", 5, true, NULL));
    for (int tries = 0; ask(second.limiter, "admin", SLOW, 1).decision != TOLLGATE_DECISION_EXEMPT; tries++) {
        if (tries > PATIENCE_MS) {
            fprintf(stderr, "waited in vain for a decision: %s\n", view_of(second.engine).decisions_problem);
            exit(1);
        }
        usleep(1000);
    }
    tollgate_engine_view view = view_of(second.engine);
    EXPECT(view.agents_decided >= 1 && view.decisions_followed >= 1);
    EXPECT_EQ(view.decisions_refused, 0);
    machine_free(&first);
    machine_free(&second);
}

/* The copy has no thread, and says so; a child that checks starts an engine of its own. */
static void a_forked_child_has_no_engine(const store *at)
{
    machine one = machine_new(at->url, 1);
    (void)ask(one.limiter, "agent-8", SLOW, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        tollgate_engine_view view = view_of(one.engine);
        EXPECT_EQ(view.state, TOLLGATE_ENGINE_STATE_LOST);
        EXPECT(strstr(view.last_problem, "forked") != NULL);
        EXPECT_EQ(ask(one.limiter, "agent-9", SLOW, 1).source, TOLLGATE_SOURCE_SHARE);
        tollgate_engine_free(one.engine);
        tollgate_engine *own = engine_new(one.limiter, at->url, 1);
        wait_for(own, TOLLGATE_ENGINE_STATE_CONNECTED);
        EXPECT_EQ(ask(one.limiter, "agent-10", SLOW, 1).source, TOLLGATE_SOURCE_ADVANCE);
        tollgate_engine_free(own);
        tollgate_limiter_free(one.limiter);
        _exit(expectations_failed);
    }
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(view_of(one.engine).state, TOLLGATE_ENGINE_STATE_CONNECTED);
    machine_free(&one);
}

/* Until somebody is there. */
static void a_machine_that_starts_without_a_store_has_its_share(void)
{
    tollgate_limiter *limiter = limiter_new();
    tollgate_engine *engine = engine_new(limiter, "redis+unix:///nowhere/at/all", 4);
    int share = 0;
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 100; i++)
        share += allowed(limiter, "agent-1", SLOW);
    EXPECT(share >= 15 && share <= 16 + (int)(seconds_since(&begin) / 4));
    /* One engine at a time, and another one after it. */
    tollgate_engine_options options = options_at("redis+unix:///nowhere/at/all");
    tollgate_error error = SIZED(tollgate_error);
    tollgate_engine *second = NULL;
    EXPECT_EQ(tollgate_engine_new(limiter, &options, &error, &second), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(strstr(error.message, "has an engine") != NULL && second == NULL);
    tollgate_engine_free(engine);
    REQUIRE_OK(tollgate_engine_new(limiter, &options, &error, &second));
    tollgate_engine_free(second);
    tollgate_limiter_free(limiter);
}

#define EXPECT_REFUSED(call, expected, words)                                             \
    do {                                                                                  \
        tollgate_error error = SIZED(tollgate_error);                                     \
        EXPECT_EQ(call, expected);                                                        \
        EXPECT_EQ(error.status, expected);                                                \
        if (strstr(error.message, words) == NULL || strstr(error.message, "hunter2") != NULL) { \
            fprintf(stderr, "%s:%d: \"%s\", expected %s\n", __FILE__, __LINE__, error.message, words); \
            expectations_failed = 1;                                                      \
        }                                                                                 \
    } while (0)

static void lanes_that_cannot_be_shared_are_refused(void)
{
    tollgate_limiter *limiter = NULL;
    tollgate_cluster_lane lane = lane_named("ws");
    tollgate_cluster_options cluster = cluster_of(NULL, 0);
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_WRONG_KIND, "\"ws\"");
    cluster = cluster_of(&lane, 1);
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_WRONG_KIND, "\"ws\"");
    lane.own = 2;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "lane \"ws\": own is 2");
    lane.own = 1;
    lane.exact = 1;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "leave them 0");
    lane.own = 0;
    lane.exact = 2;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "exact is 2");
    lane.exact = 0;
    lane.slack_percent = 101;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "slack_percent is 101");
    lane.slack_percent = 0;
    lane.when_lost = 5;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "when_lost is 5");
    lane = lane_named("apo");
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_UNKNOWN_LANE, "\"apo\"");
    lane.name = NULL;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_NULL_POINTER, "NULL");
    lane = lane_named("\xff");
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_NOT_UTF8, "UTF-8");

    lane = lane_named("ws");
    lane.own = 1;
    cluster.secret_len = 15;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "15 bytes");
    cluster.secret_len = SIZE_MAX;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_TEXT_TOO_LONG, "");
    cluster.secret = NULL;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_NULL_POINTER, "NULL");
    cluster = cluster_of(&lane, 1);
    cluster.slack_percent = 256;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "slack_percent is 256");
    cluster.slack_percent = 0;
    cluster.when_lost = -1;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "when_lost is -1");
    cluster.when_lost = 0;
    cluster.reserved = 1;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_INVALID_OPTION, "reserved");
    cluster.reserved = 0;
    cluster.struct_size = 47;
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_STRUCT_SIZE, "struct_size");
    cluster = cluster_of(NULL, 1);
    EXPECT_REFUSED(limiter_with(&cluster, &error, &limiter), TOLLGATE_STATUS_NULL_POINTER, "NULL");
    EXPECT(limiter == NULL);
}

static void options_of_an_engine_are_refused(void)
{
    tollgate_limiter *limiter = limiter_new();
    tollgate_engine *engine = NULL;
    tollgate_engine_options options;
#define TEXT(name, text) (options.name = (text), options.name##_len = sizeof(text) - 1)
#define REFUSED(words) \
    EXPECT_REFUSED(tollgate_engine_new(limiter, &options, &error, &engine), TOLLGATE_STATUS_INVALID_OPTION, words)
    options = options_at("http://10.0.0.5");
    REFUSED("write redis://host:port");
    options = options_at("");
    REFUSED("write redis://host:port");
    options = options_at("redis://a redis://b");
    REFUSED("urls has several");
    options.servers = TOLLGATE_SERVERS_SENTINEL;
    REFUSED("the master has no name");
    options.servers = 3;
    REFUSED("tollgate_servers");
    options = options_at("redis://user:hunter2@a/x/y");
    REFUSED("URL");
    options = options_at("redis://:hunter2@a");
    TEXT(password, "hunter2");
    REFUSED("apart from it");
    options = options_at("redis://a");
    TEXT(user, "tollgate");
    REFUSED("a user needs a password");
    options = options_at("redis://a");
    TEXT(master, "main");
    REFUSED("TOLLGATE_SERVERS_SENTINEL");
    options = options_at("redis://a");
    TEXT(sentinel_password, "hunter2");
    REFUSED("there are none");
    options = options_at("redis://a/3");
    options.servers = TOLLGATE_SERVERS_CLUSTER;
    REFUSED("no databases");
    options = options_at("redis://a");
    TEXT(tls_ca, "-----BEGIN CERTIFICATE-----");
    REFUSED("rediss://");
    options = options_at("rediss://a");
    TEXT(tls_ca, "hunter2");
    REFUSED("PEM");
    options = options_at("rediss://a");
    TEXT(tls_key, "hunter2");
    REFUSED("tls_certificate");
    options = options_at("redis://a");
    options.timeout_ns = 1;
    REFUSED("time-out");
    options.timeout_ns = UINT64_MAX;
    REFUSED("time-out");
    options = options_at("redis://a");
    options.nodes_at_least = 65536;
    REFUSED("65535");
    options = options_at("redis://a");
    options.reserved = 1;
    REFUSED("reserved");

    options = options_at("redis://a");
    options.password = "\xff";
    options.password_len = 1;
    EXPECT_REFUSED(tollgate_engine_new(limiter, &options, &error, &engine), TOLLGATE_STATUS_NOT_UTF8, "password");
    options.password_len = SIZE_MAX;
    EXPECT_REFUSED(tollgate_engine_new(limiter, &options, &error, &engine), TOLLGATE_STATUS_TEXT_TOO_LONG, "password");
    options.password = NULL;
    EXPECT_REFUSED(tollgate_engine_new(limiter, &options, &error, &engine), TOLLGATE_STATUS_NULL_POINTER, "password");
    options = options_at("redis://a");
    options.urls = NULL;
    EXPECT_EQ(tollgate_engine_new(limiter, &options, NULL, &engine), TOLLGATE_STATUS_NULL_POINTER);
    options = options_at("redis://a");
    options.struct_size--;
    EXPECT_EQ(tollgate_engine_new(limiter, &options, NULL, &engine), TOLLGATE_STATUS_STRUCT_SIZE);
    options = options_at("redis://a");
    EXPECT_EQ(tollgate_engine_new(NULL, &options, NULL, &engine), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_engine_new(limiter, NULL, NULL, &engine), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_engine_new(limiter, &options, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    tollgate_engine_view view = SIZED(tollgate_engine_view);
    EXPECT_EQ(tollgate_engine_status(NULL, &view, NULL, 0), TOLLGATE_STATUS_NULL_POINTER);
    tollgate_engine_free(NULL);

    /* A limiter that shares nothing has no use for an engine. */
    rig plain = rig_new(10, TOLLGATE_ON_FULL_DENY);
    EXPECT_REFUSED(tollgate_engine_new(plain.limiter, &options, &error, &engine), TOLLGATE_STATUS_INVALID_OPTION,
                   "shares no lanes");
    EXPECT(engine == NULL);
    engine = engine_new(limiter, "redis+unix:///nowhere", 1);
    EXPECT_EQ(tollgate_engine_status(engine, NULL, NULL, 0), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_engine_status(engine, &view, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    view.struct_size = 7;
    EXPECT_EQ(tollgate_engine_status(engine, &view, NULL, 0), TOLLGATE_STATUS_STRUCT_SIZE);
    tollgate_engine_free(engine);
    rig_free(&plain);
    tollgate_limiter_free(limiter);
}

/* The layout is ABI. */
static void structs_are_laid_out_as_published(void)
{
    EXPECT_EQ(sizeof(tollgate_cluster_lane), 32);
    EXPECT_EQ(offsetof(tollgate_cluster_lane, own), 16);
    EXPECT_EQ(offsetof(tollgate_cluster_lane, when_lost), 28);
    EXPECT_EQ(sizeof(tollgate_cluster_options), 48);
    EXPECT_EQ(offsetof(tollgate_cluster_options, secret), 8);
    EXPECT_EQ(offsetof(tollgate_cluster_options, lanes), 24);
    EXPECT_EQ(offsetof(tollgate_cluster_options, when_lost), 40);
    EXPECT_EQ(sizeof(tollgate_engine_options), 168);
    EXPECT_EQ(offsetof(tollgate_engine_options, urls), 8);
    EXPECT_EQ(offsetof(tollgate_engine_options, password), 56);
    EXPECT_EQ(offsetof(tollgate_engine_options, nodes_at_least), 152);
    EXPECT_EQ(offsetof(tollgate_engine_options, timeout_ns), 160);
    EXPECT_EQ(sizeof(tollgate_engine_view), 1808);
    EXPECT_EQ(offsetof(tollgate_engine_view, losses_by_reason), 32);
    EXPECT_EQ(offsetof(tollgate_engine_view, round_trip_ns), 104);
    EXPECT_EQ(offsetof(tollgate_engine_view, lane_count), 208);
    EXPECT_EQ(offsetof(tollgate_engine_view, decisions_current), 216);
    EXPECT_EQ(offsetof(tollgate_engine_view, agents_decided), 224);
    EXPECT_EQ(offsetof(tollgate_engine_view, last_problem), 272);
    EXPECT_EQ(offsetof(tollgate_engine_view, decisions_problem), 528);
    EXPECT_EQ(offsetof(tollgate_engine_view, warnings), 784);
    EXPECT_EQ(sizeof(tollgate_engine_lane), 128);
    EXPECT_EQ(offsetof(tollgate_engine_lane, capacity), 16);
    EXPECT_EQ(offsetof(tollgate_engine_lane, answers), 56);
    EXPECT_EQ(tollgate_features() & TOLLGATE_FEATURE_CLUSTER, TOLLGATE_FEATURE_CLUSTER);
}

/* `test_engine SERVER...`: the programs to test with, redis-server by default. */
int main(int count, char **programs)
{
    static char redis[] = "redis-server";
    static char *usual[] = { NULL, redis };
    structs_are_laid_out_as_published();
    lanes_that_cannot_be_shared_are_refused();
    options_of_an_engine_are_refused();
    a_machine_that_starts_without_a_store_has_its_share();
    if (count < 2)
        count = 2, programs = usual;
    for (int i = 1; i < count; i++) {
        store made;
        if (!store_start(&made, programs[i]))
            continue;
        three_machines_admit_one_limit(&made);
        an_exact_lane_asks_first(&made);
        a_store_that_stops_is_lost_and_comes_back(&made);
        an_engine_that_is_freed_gives_its_credit_back(&made);
        a_decision_follows(&made);
        if (setting("TOLLGATE_FORKS", 1) > 0)
            a_forked_child_has_no_engine(&made);
        store_stop(&made);
    }
    return expectations_end("test_engine");
}
