/* Conduct: an agent's violations, and what follows from them. */

#include "nif.h"

/* (reference, agent, options) -> a violation as a map */
NIF(nif_record_violation)
{
    question asked;
    tollgate_violation seen = {.struct_size = sizeof seen};
    if (!read_agent(env, argv, &asked) || !read_options(env, argv[2], OPTION_AT, &asked)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_record_violation(asked.of->limiter, asked.request.id, asked.request.id_len,
        asked.now_ns, &seen);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, argv[1]);
    }
    const pair fields[] = {
        {atom_wait_ms, make_wait(env, asked.of, seen.wait_ns)},
        {atom_wait_ns, make_span(env, seen.wait_ns)},
        {atom_step_ns, make_span(env, seen.step_ns)},
        {atom_in_a_row, enif_make_uint(env, seen.violations_in_a_row)},
        {atom_sustained_abuse, make_bool(seen.sustained_abuse != 0)},
    };
    return MAKE_MAP(env, fields);
}

/* (reference, agent, options) -> its conduct as a map */
NIF(nif_conduct)
{
    question asked;
    tollgate_conduct_state seen = {.struct_size = sizeof seen};
    if (!read_agent(env, argv, &asked) || !read_options(env, argv[2], OPTION_AT, &asked)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_conduct(asked.of->limiter, asked.request.id, asked.request.id_len, asked.now_ns,
        &seen);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, argv[1]);
    }
    const pair fields[] = {
        {atom_in_window, enif_make_uint(env, seen.violations_in_window)},
        {atom_in_a_row, enif_make_uint(env, seen.violations_in_a_row)},
        {atom_window_start_ns, make_instant(env, seen.window_start_ns)},
        {atom_last_violation_ns, make_instant(env, seen.last_violation_ns)},
        {atom_wait_ns, make_span(env, seen.wait_ns)},
        {atom_rate_limited, make_bool(seen.rate_limited != 0)},
    };
    return MAKE_MAP(env, fields);
}

/* (reference, agent) -> whether there were any that still mattered */
NIF(nif_reset_violations)
{
    question asked;
    bool had;
    if (!read_agent(env, argv, &asked)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_reset_violations(asked.of->limiter, asked.request.id, asked.request.id_len, &had);
    return status == TOLLGATE_STATUS_OK ? make_bool(had) : failed(env, status, NULL, argv[1]);
}

/* (reference, agents, options) -> those that are not rate limited, in the same order */
NIF(nif_assignable)
{
    question asked = {.now_ns = TOLLGATE_NOW};
    tollgate_id ids[BATCH_MAX];
    term agents[BATCH_MAX];
    bool assignable[BATCH_MAX];
    unsigned count = 0;
    term rest = argv[1];
    if (!read_instance(env, argv[0], &asked.of) || !read_options(env, argv[2], OPTION_AT, &asked)) {
        return atom_nil;
    }
    for (; count < BATCH_MAX && enif_get_list_cell(env, rest, &agents[count], &rest); count++) {
        ErlNifBinary id;
        if (!enif_inspect_binary(env, agents[count], &id)) {
            return bad_agent(env, agents[count]);
        }
        ids[count] = (tollgate_id){.id = id.data, .id_len = id.size};
    }
    if (!enif_is_empty_list(env, rest)) {
        return bad_argument(env, "the agents have to be a list of up to %d, got: %.60T", BATCH_MAX, argv[1]);
    }
    tollgate_status status = tollgate_assignable(asked.of->limiter, ids, count, asked.now_ns, assignable);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, atom_nil);
    }
    term list = enif_make_list(env, 0);
    for (unsigned at = count; at-- > 0;) {
        list = assignable[at] ? enif_make_list_cell(env, agents[at], list) : list;
    }
    count_time(env, count);
    return list;
}
