/* The table of functions, and what happens when the library is loaded. */

#include "nif.h"

/* Costs nothing but the call: the floor of the bench. */
NIF(nif_nothing)
{
    (void)env;
    (void)argc;
    (void)argv;
    return atom_ok;
}

#ifdef TOLLGATE_TEST_HOOKS
void tollgate_test_panic_next(void);

/* The next call into the limiter panics inside. Only the tests' library has this. */
static NIF(nif_panic_next)
{
    (void)env;
    (void)argc;
    (void)argv;
    tollgate_test_panic_next();
    return atom_ok;
}
#endif

/*
 * What walks all records runs on a dirty scheduler, since it may take longer
 * than a millisecond; so does what waits for the lock under which changes take
 * turns. Nothing on the way of a check does: going there and back costs a
 * hundred checks.
 */
static ErlNifFunc functions[] = {
    {"new", 2, nif_new, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"name_lanes", 2, nif_name_lanes, 0},
    {"lanes", 1, nif_lanes, 0},
    {"plans", 1, nif_plans, 0},
    {"plan", 2, nif_plan, 0},
    {"memory", 1, nif_memory, 0},
    {"stats", 1, nif_stats, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"sweep", 2, nif_sweep, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"now", 1, nif_now, 0},
    {"clock_source", 1, nif_clock_source, 0},
    {"advance_clock", 2, nif_advance_clock, 0},
    {"set_clock", 2, nif_set_clock, 0},
    {"nothing", 0, nif_nothing, 0},
    {"check", 4, nif_check, 0},
    {"check", 6, nif_check, 0},
    {"check_many", 3, nif_check_many, 0},
    {"readable", 2, nif_readable, 0},
    {"check_all", 3, nif_check_all, 0},
    {"acquire", 3, nif_acquire, 0},
    {"release", 3, nif_release, 0},
    {"reserve", 5, nif_reserve, 0},
    {"commit", 3, nif_commit, 0},
    {"commit_part", 3, nif_commit_part, 0},
    {"extend", 3, nif_extend, 0},
    {"keep_budgets_in", 2, nif_keep_budgets_in, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"save_budgets", 1, nif_save_budgets, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"verdict", 6, nif_verdict, 0},
    {"status", 4, nif_status, 0},
    {"refund", 5, nif_refund, 0},
    {"reset", 2, nif_reset, 0},
    {"reset_lane", 3, nif_reset_lane, 0},
    {"forget", 2, nif_forget, 0},
    {"admit", 5, nif_admit, 0},
    {"record_violation", 2, nif_record_violation, 0},
    {"violations", 2, nif_violations, 0},
    {"rate_limited", 2, nif_rate_limited, 0},
    {"reset_violations", 2, nif_reset_violations, 0},
    {"assignable", 2, nif_assignable, 0},
    {"lane_for", 3, nif_lane_for, 0},
    {"unknown_actions", 1, nif_unknown_actions, 0},
    {"assign", 3, nif_assign, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"set_override", 4, nif_set_override, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"remove_override", 3, nif_remove_override, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"set_exempt", 3, nif_set_exempt, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"exempt", 2, nif_exempt, 0},
    {"limit_of", 3, nif_limit_of, 0},
    {"assignment", 2, nif_assignment, 0},
    {"assignments", 1, nif_assignments, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"set_assignments", 2, nif_set_assignments, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"replace_policy", 2, nif_replace_policy, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"snapshot", 1, nif_snapshot, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"agents", 6, nif_agents, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"status_document", 1, nif_status_document, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"shown", 2, nif_shown, 0},
    {"top_offenders", 2, nif_top_offenders, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"poll_events", 1, nif_poll_events, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"log_denied", 3, nif_log_denied, 0},
    {"log_due", 2, nif_log_due, ERL_NIF_DIRTY_JOB_CPU_BOUND},
#ifdef TOLLGATE_TEST_HOOKS
    {"panic_next", 0, nif_panic_next, 0},
#endif
};

static int load(ErlNifEnv *env, void **private_data, term info)
{
    (void)private_data;
    (void)info;
    make_atoms(env);
    return open_instances(env) ? 0 : 1;
}

/* The module is loaded over itself: the instances of the old code go on under the new. */
static int upgrade(ErlNifEnv *env, void **private_data, void **old_private_data, term info)
{
    (void)old_private_data;
    return load(env, private_data, info);
}

ERL_NIF_INIT(Elixir.Tollgate.Native, functions, load, NULL, upgrade, NULL)
