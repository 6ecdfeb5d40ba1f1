/* What is known of an agent: how its lanes stand, and how to change that. */

#include "nif.h"

term make_status(ErlNifEnv *env, const tollgate_lane_status *lane)
{
    if (lane->exempt != 0) {
        return atom_exempt;
    }
    return enif_make_tuple4(env, enif_make_uint64(env, lane->remaining), enif_make_uint64(env, lane->capacity),
        make_span(env, lane->next_in_ns), make_span(env, lane->full_in_ns));
}

/* (reference, agent, lane, plan | nil) -> {remaining, capacity, next_in_ns, full_in_ns} | :exempt */
NIF(nif_status)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane, plan;
    bool has_plan;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)
        || !read_plan(env, limiter, argv[3], &has_plan, &plan, &raised)) {
        return raised;
    }
    tollgate_lane_status seen = {.struct_size = sizeof seen};
    tollgate_status status = has_plan
        ? tollgate_limiter_status_as(limiter->limiter, id.data, id.size, plan, lane, &seen)
        : tollgate_limiter_status(limiter->limiter, id.data, id.size, lane, &seen);
    return status == TOLLGATE_STATUS_OK ? make_status(env, &seen) : not_answered(env, status, argv[1]);
}

/* (reference, agent, lane, plan | nil, cost) -> the status after it */
NIF(nif_refund)
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
    tollgate_lane_status seen = {.struct_size = sizeof seen};
    tollgate_status status = has_plan
        ? tollgate_limiter_refund_as(limiter->limiter, id.data, id.size, plan, lane, cost, &seen)
        : tollgate_limiter_refund(limiter->limiter, id.data, id.size, lane, cost, &seen);
    return status == TOLLGATE_STATUS_OK ? make_status(env, &seen) : not_answered(env, status, argv[1]);
}

/* (reference, agent) */
NIF(nif_reset)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_reset(limiter->limiter, id.data, id.size);
    return status == TOLLGATE_STATUS_OK ? atom_ok : not_answered(env, status, argv[1]);
}

/* (reference, agent, lane) */
NIF(nif_reset_lane)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_reset_lane(limiter->limiter, id.data, id.size, lane);
    return status == TOLLGATE_STATUS_OK ? atom_ok : not_answered(env, status, argv[1]);
}

/* (reference, agent) -> whether anything was known of it */
NIF(nif_forget)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    bool known;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_forget(limiter->limiter, id.data, id.size, &known);
    return status == TOLLGATE_STATUS_OK ? make_bool(known) : not_answered(env, status, argv[1]);
}
