/* What the files of the NIF share. Each file holds the functions of one noun. */

#ifndef TOLLGATE_NIF_H
#define TOLLGATE_NIF_H

#include <erl_nif.h>
#include <tollgate.h>

#include <stdbool.h>
#include <stdint.h>

typedef ERL_NIF_TERM term;

/* The arguments of every function that Elixir calls. */
#define NIF(name) term name(ErlNifEnv *env, int argc, const term argv[])

/*
 * Requests in one call of check_many. A call on a scheduler has to end within a
 * millisecond, and so many checks take a tenth of that; and they are kept on
 * its stack. Longer lists are split in Tollgate.check_many.
 */
#define BATCH_MAX 512

/* An instance: what a reference of Elixir's points to. */
typedef struct {
    tollgate_limiter *limiter;
    tollgate_clock *clock;
    tollgate_log_throttle *log;
    /* Retries in whole seconds, as the hub tells them, or in milliseconds. */
    bool whole_seconds;
    /* Set once, before anybody else sees the instance. */
    uint32_t lanes;
    struct {
        term channel;
        term tier;
    } lane[TOLLGATE_LANES_MAX];
} instance;

/* Atoms live as long as the VM, so one set serves every copy of the library. */
#define ATOMS(X) \
    X(ok) X(error) X(nil) X(true) X(false) X(infinity) X(message) \
    X(allow) X(warn) X(deny) X(exempt) X(full) X(cost_above_capacity) \
    X(lane) X(plan) X(actions) X(unknown_actions_to) X(outside_total) X(warn_below_percent) X(on_change) X(conduct) \
    X(preset) X(toml) X(keep) X(reset) X(evict) X(multilinear) X(siphash13) \
    X(automatic) X(os) X(coarse) X(boottime) X(manual) X(tsc) \
    X(unknown_lane) X(unknown_plan) X(bad_limit) X(not_utf8) X(text_too_long) X(too_many_overrides) X(same_hash) \
    X(other_lanes) X(plan_missing) \
    X(sustained_abuse) X(unknown_action) X(saturated) X(policy_replaced) X(assignment_changed) X(assignments_changed) \
    X(clock_fell_back) X(other) X(not_held) X(reservations_full) X(too_many_reservations) X(used_too_large) X(unknown_reservation) \
    X(id) X(usage) X(violations) X(text) X(html) X(label) X(url) X(json)

#define DECLARE_ATOM(name) extern term atom_##name;
ATOMS(DECLARE_ATOM)
#undef DECLARE_ATOM

/* terms.c */
void make_atoms(ErlNifEnv *env);
/* Raises ArgumentError; %T prints a term. */
term bad_argument(ErlNifEnv *env, const char *format, ...);
/* What a status other than OK becomes: {:error, reason} or ArgumentError. */
term failed(ErlNifEnv *env, tollgate_status status, const tollgate_error *error);
/* The same for a call that concerns an agent. */
term not_answered(ErlNifEnv *env, tollgate_status status, term agent);
term bad_instance(ErlNifEnv *env, term given);
term bad_agent(ErlNifEnv *env, term given);
term bad_lane(ErlNifEnv *env, const instance *limiter, term channel, term tier);
term bad_lane_term(ErlNifEnv *env, const instance *limiter, term lane);
term bad_cost(ErlNifEnv *env, term given);
term make_text(ErlNifEnv *env, const char *text, size_t length);
term make_bool(bool value);
/* A span in nanoseconds; TOLLGATE_NEVER becomes :infinity. */
term make_span(ErlNifEnv *env, uint64_t span_ns);
bool get_u64(ErlNifEnv *env, term given, uint64_t *value);

/* instance.c */
bool open_instances(ErlNifEnv *env);
bool get_instance(ErlNifEnv *env, term given, instance **limiter);
/* A lane by its number, or by its channel and tier: {channel, tier}. */
bool get_lane(ErlNifEnv *env, const instance *limiter, term given, uint32_t *lane);
bool find_lane(const instance *limiter, term channel, term tier, uint32_t *lane);

/*
 * Functions that read arguments return false if those make no sense, and have
 * then raised the exception that has to be returned.
 */
static inline bool refuse(term *raised, term exception)
{
    *raised = exception;
    return false;
}

/* The instance and the agent that begin the arguments of a call; the lane that follows them. */
bool read_agent(ErlNifEnv *env, const term argv[], instance **limiter, ErlNifBinary *id, term *raised);
bool read_agent_and_lane(ErlNifEnv *env, const term argv[], instance **limiter, ErlNifBinary *id, uint32_t *lane,
    term *raised);
/* A plan by its name or number; nil is none. */
bool read_plan(ErlNifEnv *env, const instance *limiter, term given, bool *has_plan, uint32_t *plan, term *raised);
bool read_cost(ErlNifEnv *env, term given, uint64_t *cost, term *raised);

/* check.c */
term make_decision(tollgate_decision decision);
/* The wait of a denial in milliseconds, as the instance tells it; never rounded down. */
term make_wait(ErlNifEnv *env, const instance *limiter, uint64_t wait_ns);
/* {:allow | :warn, remaining} | {:deny, ms} | {:allow, :exempt} */
term make_verdict(ErlNifEnv *env, const instance *limiter, const tollgate_verdict *verdict);
/* Gives back the time that so many requests took. */
void count_time(ErlNifEnv *env, unsigned requests);

/* agent.c: {remaining, capacity, next_in_ns, full_in_ns} | :exempt */
term make_status(ErlNifEnv *env, const tollgate_lane_status *lane);

/* policy.c: a policy from what Tollgate.Policy made of the options. */
bool read_policy(ErlNifEnv *env, term given, tollgate_policy **policy, term *raised);

/* What Elixir calls; lib/tollgate/native.ex says what each wants. */
NIF(nif_new);
NIF(nif_name_lanes);
NIF(nif_lanes);
NIF(nif_plans);
NIF(nif_plan);
NIF(nif_memory);
NIF(nif_stats);
NIF(nif_sweep);
NIF(nif_now);
NIF(nif_clock_source);
NIF(nif_advance_clock);
NIF(nif_set_clock);
NIF(nif_nothing);
NIF(nif_check);
NIF(nif_check_many);
NIF(nif_readable);
NIF(nif_check_all);
NIF(nif_acquire);
NIF(nif_release);
NIF(nif_reserve);
NIF(nif_commit);
NIF(nif_commit_part);
NIF(nif_extend);
NIF(nif_keep_budgets_in);
NIF(nif_save_budgets);
NIF(nif_verdict);
NIF(nif_status);
NIF(nif_refund);
NIF(nif_reset);
NIF(nif_reset_lane);
NIF(nif_forget);
NIF(nif_admit);
NIF(nif_record_violation);
NIF(nif_violations);
NIF(nif_rate_limited);
NIF(nif_reset_violations);
NIF(nif_assignable);
NIF(nif_lane_for);
NIF(nif_unknown_actions);
NIF(nif_assign);
NIF(nif_set_override);
NIF(nif_remove_override);
NIF(nif_set_exempt);
NIF(nif_exempt);
NIF(nif_limit_of);
NIF(nif_assignment);
NIF(nif_assignments);
NIF(nif_set_assignments);
NIF(nif_replace_policy);
NIF(nif_snapshot);
NIF(nif_agents);
NIF(nif_top_offenders);
NIF(nif_status_document);
NIF(nif_shown);
NIF(nif_poll_events);
NIF(nif_log_denied);
NIF(nif_log_due);

#endif
