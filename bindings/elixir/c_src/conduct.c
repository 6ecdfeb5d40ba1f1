/* Conduct: checks that count violations, and what follows from those. */

#include "nif.h"

/*
 * (reference, agent, lane, plan | nil, cost) ->
 *   {decision, remaining, capacity, retry_after_ns, full_in_ns, retry_after_ms,
 *    {lane_retry_after_ns, wait_ns, step_ns, consecutive, sustained_abuse}}
 */
NIF(nif_admit)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane, plan;
    uint64_t cost;
    bool has_plan;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)
        || !read_plan(env, limiter, argv[3], &has_plan, &plan, &raised) || !read_cost(env, argv[4], &cost, &raised)) {
        return raised;
    }
    tollgate_admission seen = {.struct_size = sizeof seen};
    tollgate_status status = has_plan
        ? tollgate_limiter_admit_as(limiter->limiter, id.data, id.size, plan, lane, cost, &seen)
        : tollgate_limiter_admit(limiter->limiter, id.data, id.size, lane, cost, &seen);
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    term violation = enif_make_tuple5(env, make_span(env, seen.lane_retry_after_ns), make_span(env, seen.wait_ns),
        make_span(env, seen.step_ns), enif_make_uint(env, seen.consecutive), make_bool(seen.sustained_abuse != 0));
    return enif_make_tuple7(env, make_decision(seen.decision),
        enif_make_uint64(env, tollgate_admission_remaining(&seen)), enif_make_uint64(env, seen.capacity),
        make_span(env, seen.retry_after_ns), make_span(env, seen.full_in_ns),
        make_wait(env, limiter, seen.retry_after_ns), violation);
}

/* (reference, agent) -> {wait_ms, wait_ns, step_ns, consecutive, sustained_abuse} */
NIF(nif_record_violation)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_violation seen = {.struct_size = sizeof seen};
    tollgate_status status = tollgate_limiter_record_violation(limiter->limiter, id.data, id.size, &seen);
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    return enif_make_tuple5(env, make_wait(env, limiter, seen.wait_ns), make_span(env, seen.wait_ns),
        make_span(env, seen.step_ns), enif_make_uint(env, seen.consecutive), make_bool(seen.sustained_abuse != 0));
}

/* (reference, agent) -> {violations, consecutive, window_start_ns, last_violation_ns, wait_ns} */
NIF(nif_violations)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_conduct seen = {.struct_size = sizeof seen};
    tollgate_status status = tollgate_limiter_violations(limiter->limiter, id.data, id.size, &seen);
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    return enif_make_tuple5(env, enif_make_uint(env, seen.violations), enif_make_uint(env, seen.consecutive),
        seen.window_start_ns == TOLLGATE_NEVER ? atom_nil : enif_make_uint64(env, seen.window_start_ns),
        seen.last_violation_ns == TOLLGATE_NEVER ? atom_nil : enif_make_uint64(env, seen.last_violation_ns),
        make_span(env, seen.wait_ns));
}

/* (reference, agent) -> boolean */
NIF(nif_rate_limited)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    bool limited;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_rate_limited(limiter->limiter, id.data, id.size, &limited);
    return status == TOLLGATE_STATUS_OK ? make_bool(limited) : not_answered(env, status, argv[1]);
}

/* (reference, agent) -> whether there were any that still mattered */
NIF(nif_reset_violations)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    bool known;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_reset_violations(limiter->limiter, id.data, id.size, &known);
    return status == TOLLGATE_STATUS_OK ? make_bool(known) : not_answered(env, status, argv[1]);
}

/* (reference, agents) -> those that are not rate limited, in the same order */
NIF(nif_assignable)
{
    (void)argc;
    instance *limiter;
    tollgate_id ids[BATCH_MAX];
    term agents[BATCH_MAX];
    bool assignable[BATCH_MAX];
    unsigned count = 0;
    term rest = argv[1];
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    for (; count < BATCH_MAX && enif_get_list_cell(env, rest, &agents[count], &rest); count++) {
        ErlNifBinary id;
        if (!enif_inspect_binary(env, agents[count], &id)) {
            return bad_agent(env, agents[count]);
        }
        ids[count].id = id.data;
        ids[count].id_len = id.size;
    }
    if (!enif_is_empty_list(env, rest)) {
        return bad_argument(env, "the agents have to be a list of up to %d, got: %.60T", BATCH_MAX, argv[1]);
    }
    tollgate_status status = tollgate_limiter_assignable(limiter->limiter, ids, count, assignable);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    term all = enif_make_list(env, 0);
    for (unsigned at = count; at-- > 0;) {
        all = assignable[at] ? enif_make_list_cell(env, agents[at], all) : all;
    }
    count_time(env, count);
    return all;
}
