/* What the files of the NIF share. Each file holds the functions of one noun. */

#ifndef TOLLGATE_NIF_H
#define TOLLGATE_NIF_H

#include <erl_nif.h>
#include <tollgate_redis.h>

#include <stdbool.h>
#include <stdint.h>

/* The id of what is compiled: Tollgate.Build gives it. */
#ifndef TOLLGATE_BUILD
#error "TOLLGATE_BUILD is missing: build with mix compile"
#endif

typedef ERL_NIF_TERM term;

/* A function that Elixir calls; each has a fixed number of arguments. */
#define NIF(name) term name(ErlNifEnv *env, __attribute__((unused)) int argc, const term argv[])

/*
 * Requests in one call of check_many. A call on a scheduler has to end within a
 * millisecond, and this many checks take a tenth of that; and they are kept on
 * its stack. Tollgate.check_many splits longer lists.
 */
#define BATCH_MAX 512

/* An instance: what a reference in Elixir points to. */
typedef struct {
#ifdef TOLLGATE_TEST_LAYOUT
    /* Another build, for the tests: what it keeps lies elsewhere. */
    char elsewhere[TOLLGATE_TEST_LAYOUT];
#endif
    tollgate_limiter *limiter;
    tollgate_clock *clock;
    tollgate_log_throttle *log;
    uint64_t memory_bytes;
    /* Waits in whole seconds, or in milliseconds. */
    bool whole_seconds;
    /* Whether other VMs may use the limiter too, so that a change may have to wait for one of them. */
    bool is_shared;
    /* Of an instance that shares lanes with other machines: its engine, until it is stopped, and a lock for that. */
    tollgate_engine *engine;
    ErlNifMutex *engine_lock;
    /* Set once, before anybody else sees the instance. */
    uint32_t lanes;
    struct {
        term channel;
        term tier;
    } lane[TOLLGATE_LANES_MAX];
} instance;

/* How an instance shares lanes with other machines. It points to the terms of the call. */
typedef struct {
    tollgate_cluster_options cluster;
    tollgate_cluster_lane lanes[TOLLGATE_LANES_MAX];
    tollgate_engine_options engine;
} sharing;

/* One question, as the arguments of a call put it. */
typedef struct {
    instance *of;
    tollgate_request request;
    /* What the request points to if it brings a limit. */
    tollgate_call_limit limit;
    uint64_t now_ns;
    uint32_t flags;
} question;

/* Requests of one call, and the limits that they bring. */
typedef struct {
    tollgate_request requests[BATCH_MAX];
    tollgate_call_limit limits[BATCH_MAX];
    unsigned count;
} batch;

/* The options that a call allows. */
enum {
    OPTION_COST = 1,
    OPTION_PLAN = 2,
    OPTION_AT = 4,
    OPTION_COUNTED = 8,
    OPTION_LANE = 16,
    OPTION_SO_FAR = 32,
    OPTION_LIMIT = 64,
    OPTIONS_OF_REQUEST = OPTION_COST | OPTION_PLAN | OPTION_LIMIT,
    OPTIONS_OF_CALL = OPTION_AT | OPTION_COUNTED,
    OPTIONS_OF_QUESTION = OPTIONS_OF_REQUEST | OPTIONS_OF_CALL,
};

/* Atoms live as long as the VM, so one set serves every copy of the library. */
#define ATOMS(X) \
    X(ok) X(error) X(nil) X(true) X(false) X(infinity) X(message) \
    X(allow) X(warn) X(deny) X(exempt) X(full) X(busy) X(shared) X(cost_above_capacity) \
    X(no_limit) X(limit_given) X(limits_differ) \
    X(cost) X(plan) X(limit) X(at) X(counted) X(lane) X(so_far) \
    X(preset) X(toml) X(evict) X(multilinear) X(siphash13) \
    X(automatic) X(os) X(coarse) X(boottime) X(manual) X(tsc) \
    X(unknown) X(conduct) \
    X(unknown_lane) X(unknown_plan) X(bad_limit) X(not_utf8) X(text_too_long) X(too_many_overrides) X(same_hash) \
    X(other_lanes) X(plan_missing) X(store) \
    X(sustained_abuse) X(unknown_action) X(saturated) X(clock_fell_back) X(other) \
    X(not_held) X(holds_full) X(reservations_full) X(too_many_reservations) X(used_too_large) X(unknown_reservation) \
    X(id) X(usage) X(violations) X(text) X(html) X(label) X(url) X(json) \
    X(decision) X(source) X(remaining) X(capacity) X(retry_after_ms) X(retry_after_ns) X(lane_wait_ns) \
    X(conduct_wait_ns) \
    X(full_in_ns) X(in_a_row) X(in_window) X(rate_limited) X(wait_ms) X(wait_ns) X(step_ns) X(window_start_ns) \
    X(last_violation_ns) X(lanes) X(allowed) X(warned) X(denied) X(dominant) X(green) X(yellow) X(red)

#define DECLARE_ATOM(name) extern term atom_##name;
ATOMS(DECLARE_ATOM)
#undef DECLARE_ATOM

/* terms.c */
void make_atoms(ErlNifEnv *env);
/*
 * Raises ArgumentError; %T prints a term. What a NIF returns after that does not matter: the exception is what the
 * caller gets. So functions that read arguments return false, and have raised.
 */
term bad_argument(ErlNifEnv *env, const char *format, ...);
/* What a status other than OK becomes: {:error, reason} or ArgumentError. `agent` is the one it may be about. */
term failed(ErlNifEnv *env, tollgate_status status, const tollgate_error *error, term agent);
/* Whether a status is what can happen to a valid call, and so an answer: its reason. */
bool is_answer(tollgate_status status, term *reason);
term bad_agent(ErlNifEnv *env, term given);
term make_text(ErlNifEnv *env, const char *text, size_t length);
term make_bool(bool value);
/* A span in nanoseconds; TOLLGATE_NEVER becomes :infinity. */
term make_span(ErlNifEnv *env, uint64_t span_ns);
/* An instant in nanoseconds; TOLLGATE_NEVER becomes nil. */
term make_instant(ErlNifEnv *env, uint64_t instant_ns);
typedef struct {
    term key;
    term value;
} pair;
term make_map(ErlNifEnv *env, const pair pairs[], size_t count);
#define MAKE_MAP(env, pairs) make_map(env, pairs, sizeof(pairs) / sizeof *(pairs))
bool read_u64(ErlNifEnv *env, term given, const char *what, uint64_t *value);
bool read_text(ErlNifEnv *env, term given, const char *what, ErlNifBinary *text);

/* instance.c */
/* `build` names the type, so that no library takes over the instances of another build. */
bool open_instances(ErlNifEnv *env, const char *build);
bool read_instance(ErlNifEnv *env, term given, instance **of);
/* The wait of a denial in milliseconds, never rounded down. */
term make_wait(ErlNifEnv *env, const instance *of, uint64_t wait_ns);

/* engine.c */
bool read_redis(ErlNifEnv *env, term given, sharing *shared);
tollgate_status start_engine(instance *made, const sharing *shared, tollgate_error *error);
/* The engine, for free_engine, which waits for a few round trips; NULL if there is none. */
tollgate_engine *take_engine(instance *of);
void free_engine(tollgate_engine *engine);
/* Where the answer of a shared lane came from, or nil. */
term make_source(ErlNifEnv *env, tollgate_source source);

/* question.c */
bool find_lane(const instance *of, term channel, term tier, uint32_t *lane);
term bad_lane(ErlNifEnv *env, const instance *of, term channel, term tier);
/* A lane by {channel, tier}, by its name or by its number. */
bool read_lane(ErlNifEnv *env, const instance *of, term given, uint32_t *lane);
/* A plan by its name, as a text or an atom, or by its number; nil is TOLLGATE_NONE. */
bool read_plan(ErlNifEnv *env, const instance *of, term given, uint32_t *plan);
/* The instance and the agent that begin the arguments of a call; the rest of the question gets its defaults. */
bool read_agent(ErlNifEnv *env, const term argv[], question *asked);
bool read_cost(ErlNifEnv *env, term given, uint64_t *cost);
bool read_options(ErlNifEnv *env, term given, unsigned allowed, question *asked);
/* (reference, agent, lane, options) */
bool read_question(ErlNifEnv *env, const term argv[], question *asked);
/* [{agent, lane} | {agent, lane, options}] of up to BATCH_MAX */
bool read_requests(ErlNifEnv *env, instance *of, term given, batch *read);
/* Accounts for the time that this many requests took. */
void count_time(ErlNifEnv *env, unsigned requests);

/* ask.c */
/* {:allow | :warn, remaining} | {:deny, ms} | {:allow, :exempt}; a denial that is counted has two more. */
term make_verdict(ErlNifEnv *env, const instance *of, const tollgate_verdict *verdict, uint32_t flags);
/* All there is to know of it, as a map. */
term make_verdict_map(ErlNifEnv *env, const instance *of, const tollgate_verdict *verdict, uint32_t flags);
term make_decision(tollgate_decision decision);

/* policy.c: {:preset, name} or {:toml, text} */
bool read_policy(ErlNifEnv *env, term given, tollgate_policy **policy);
/* A plan's name; nil for TOLLGATE_NONE. */
tollgate_status make_plan(ErlNifEnv *env, const tollgate_policy *policy, uint32_t plan, term *made);

/*
 * What Elixir calls, with the number of its arguments; lib/tollgate/native.ex names them. Functions that walk all
 * records run on a dirty scheduler (CPU), since they may take longer than a millisecond; so do those that wait for the
 * lock of changes, and those that write files (IO). Nothing on the path of a check does: going there and back costs a
 * hundred checks.
 */
#define NIFS(X) \
    X(new, 2, CPU) X(name_lanes, 2, HERE) X(lanes, 1, HERE) X(call_limit, 1, HERE) X(plans, 1, HERE) X(plan, 2, HERE) \
    X(lane_for, 3, HERE) X(unknown_actions, 1, HERE) X(sweep, 2, CPU) X(now, 1, HERE) X(advance_clock, 2, HERE) \
    X(set_clock, 2, HERE) X(nothing, 0, HERE) X(build, 0, HERE) X(check, 4, HERE) X(ask, 4, HERE) X(verdict, 4, HERE) \
    X(decide, 7, HERE) \
    X(validate, 2, HERE) X(check_many, 3, HERE) X(check_all, 3, HERE) X(peek, 4, HERE) X(refund, 4, HERE) \
    X(hold, 4, HERE) X(release, 4, HERE) X(reserve, 5, HERE) X(settle, 4, HERE) X(extend, 4, HERE) \
    X(reset, 3, HERE) X(forget, 3, HERE) X(record_violation, 3, HERE) X(conduct, 3, HERE) \
    X(reset_violations, 2, HERE) X(assignable, 3, HERE) X(assign, 3, IO) X(set_override, 4, IO) \
    X(set_exempt, 3, IO) X(limit_of, 3, HERE) X(assignment, 2, HERE) X(assignments, 1, CPU) \
    X(set_assignments, 2, IO) X(replace_policy, 2, CPU) X(keep_assignments_in, 2, IO) \
    X(reload_assignments, 1, IO) X(policy, 1, HERE) X(plan_limits, 2, HERE) X(keep_budgets_in, 2, IO) \
    X(save_budgets, 1, IO) \
    X(snapshot, 1, CPU) X(agent, 3, HERE) X(agents, 6, CPU) X(top_offenders, 2, CPU) X(report, 1, CPU) \
    X(shown, 2, HERE) X(poll_events, 1, CPU) X(log_denied, 3, HERE) X(log_due, 2, CPU) \
    X(engine, 1, CPU) X(stop_engine, 1, IO)

#define DECLARE_NIF(name, arity, where) NIF(nif_##name);
NIFS(DECLARE_NIF)
#undef DECLARE_NIF

#endif
