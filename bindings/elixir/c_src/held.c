/* What is held until it is given back: slots, and estimates that are settled later. */

#include "nif.h"

/* (reference, agent, lane) -> as check */
NIF(nif_acquire)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)) {
        return raised;
    }
    tollgate_verdict verdict = {.struct_size = sizeof verdict};
    tollgate_status status = tollgate_limiter_acquire(limiter->limiter, id.data, id.size, lane, &verdict);
    return status == TOLLGATE_STATUS_OK ? make_verdict(env, limiter, &verdict) : not_answered(env, status, argv[1]);
}

/* (reference, agent, lane) -> the status after it | {:error, :not_held} */
NIF(nif_release)
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
    tollgate_status status = tollgate_limiter_release(limiter->limiter, id.data, id.size, lane, &seen);
    return status == TOLLGATE_STATUS_OK ? make_status(env, &seen) : not_answered(env, status, argv[1]);
}

static bool read_ttl(ErlNifEnv *env, term given, uint64_t *ttl_ns, term *raised)
{
    return get_u64(env, given, ttl_ns)
        || refuse(raised, bad_argument(env, "the time to live is a whole number of nanoseconds, got: %.60T", given));
}

/* (reference, agent, lane, estimate, ttl_ns) -> {decision, remaining, capacity, retry_after_ns, full_in_ns, wait, reservation} */
NIF(nif_reserve)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane;
    uint64_t estimate, ttl_ns, reservation;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised) || !read_cost(env, argv[3], &estimate, &raised)
        || !read_ttl(env, argv[4], &ttl_ns, &raised)) {
        return raised;
    }
    tollgate_verdict verdict = {.struct_size = sizeof verdict};
    tollgate_status status = tollgate_limiter_reserve(limiter->limiter, id.data, id.size, lane, estimate, ttl_ns,
        &verdict, &reservation);
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    bool denied = verdict.decision == TOLLGATE_DECISION_DENY;
    return enif_make_tuple7(env, make_decision(verdict.decision),
        enif_make_uint64(env, tollgate_verdict_remaining(&verdict)), enif_make_uint64(env, verdict.capacity),
        make_span(env, verdict.retry_after_ns), make_span(env, verdict.full_in_ns),
        make_wait(env, limiter, verdict.retry_after_ns), denied ? atom_nil : enif_make_uint64(env, reservation));
}

static bool read_reservation(ErlNifEnv *env, const term argv[], instance **limiter, uint64_t *reservation, term *raised)
{
    if (!get_instance(env, argv[0], limiter)) {
        return refuse(raised, bad_instance(env, argv[0]));
    }
    return get_u64(env, argv[1], reservation)
        || refuse(raised, bad_argument(env, "a reservation is the number that reserve gave, got: %.60T", argv[1]));
}

static term settle(ErlNifEnv *env, const term argv[],
    tollgate_status (*call)(tollgate_limiter *, uint64_t, uint64_t, tollgate_settlement *))
{
    instance *limiter;
    uint64_t reservation, used;
    term raised;
    if (!read_reservation(env, argv, &limiter, &reservation, &raised)) {
        return raised;
    }
    if (!get_u64(env, argv[2], &used)) {
        return bad_argument(env, "what was used is a whole number from 0 to 2^64 - 1, got: %.60T", argv[2]);
    }
    tollgate_settlement settled = {.struct_size = sizeof settled};
    tollgate_status status = call(limiter->limiter, reservation, used, &settled);
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL)
        : enif_make_tuple3(env, enif_make_uint64(env, settled.unused), enif_make_uint64(env, settled.overspent),
            enif_make_uint64(env, settled.left));
}

/* (reference, reservation, used) -> {unused, overspent, left} | {:error, :unknown_reservation} */
NIF(nif_commit)
{
    (void)argc;
    return settle(env, argv, tollgate_limiter_commit);
}

/* (reference, reservation, used) -> as commit */
NIF(nif_commit_part)
{
    (void)argc;
    return settle(env, argv, tollgate_limiter_commit_part);
}

/* (reference, reservation, ttl_ns) -> :ok | {:error, :unknown_reservation} */
NIF(nif_extend)
{
    (void)argc;
    instance *limiter;
    uint64_t reservation, ttl_ns;
    term raised;
    if (!read_reservation(env, argv, &limiter, &reservation, &raised) || !read_ttl(env, argv[2], &ttl_ns, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_extend(limiter->limiter, reservation, ttl_ns);
    return status == TOLLGATE_STATUS_OK ? atom_ok : failed(env, status, NULL);
}
