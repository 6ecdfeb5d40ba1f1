/* What is known of an agent: how its lanes stand, and how to change that. */

#include "nif.h"

static term make_status(ErlNifEnv *env, const tollgate_lane_status *lane)
{
    return enif_make_tuple4(env, enif_make_uint64(env, lane->remaining), enif_make_uint64(env, lane->capacity),
        make_span(env, lane->next_in_ns), make_span(env, lane->full_in_ns));
}

static term not_done(ErlNifEnv *env, tollgate_status status, term agent)
{
    return status == TOLLGATE_STATUS_EMPTY_ID || status == TOLLGATE_STATUS_ID_TOO_LONG
        ? bad_agent(env, agent) : failed(env, status, NULL);
}

/* The lane that follows the agent in the arguments of a call. */
static bool read_agent_and_lane(ErlNifEnv *env, const term argv[], instance **limiter, ErlNifBinary *id, uint32_t *lane,
    term *raised)
{
    return read_agent(env, argv, limiter, id, raised)
        && (get_lane(env, *limiter, argv[2], lane) || refuse(raised, bad_lane_term(env, *limiter, argv[2])));
}

/* (reference, agent, lane) -> {remaining, capacity, next_in_ns, full_in_ns} */
NIF(nif_status)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)) {
        return raised;
    }
    tollgate_lane_status seen = {.struct_size = sizeof seen};
    tollgate_status status = tollgate_limiter_status(limiter->limiter, id.data, id.size, lane, &seen);
    return status == TOLLGATE_STATUS_OK ? make_status(env, &seen) : not_done(env, status, argv[1]);
}

/* (reference, agent, lane, cost) -> the status after it */
NIF(nif_refund)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane;
    uint64_t cost;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)) {
        return raised;
    }
    if (!get_u64(env, argv[3], &cost) || cost == 0) {
        return bad_cost(env, argv[3]);
    }
    tollgate_lane_status seen = {.struct_size = sizeof seen};
    tollgate_status status = tollgate_limiter_refund(limiter->limiter, id.data, id.size, lane, cost, &seen);
    return status == TOLLGATE_STATUS_OK ? make_status(env, &seen) : not_done(env, status, argv[1]);
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
    return status == TOLLGATE_STATUS_OK ? atom_ok : not_done(env, status, argv[1]);
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
    return status == TOLLGATE_STATUS_OK ? atom_ok : not_done(env, status, argv[1]);
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
    return status == TOLLGATE_STATUS_OK ? make_bool(known) : not_done(env, status, argv[1]);
}
