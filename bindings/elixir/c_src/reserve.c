/* Reservations: estimates that are charged now and settled later. */

#include "nif.h"

/* (reference, agent, lane, ttl_ns, options) -> {verdict as a map, reservation | nil} */
NIF(nif_reserve)
{
    question asked;
    uint64_t ttl_ns, reservation = 0;
    tollgate_verdict verdict;
    const term asking[] = {argv[0], argv[1], argv[2], argv[4]};
    if (!read_question(env, asking, &asked) || !read_u64(env, argv[3], "the time to live in nanoseconds", &ttl_ns)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_reserve(asked.of->limiter, &asked.request, ttl_ns, asked.now_ns, asked.flags,
        &verdict, &reservation);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, argv[1]);
    }
    return enif_make_tuple2(env, make_verdict_map(env, asked.of, &verdict, asked.flags),
        verdict.decision == TOLLGATE_DECISION_DENY ? atom_nil : enif_make_uint64(env, reservation));
}

/* The arguments (reference, reservation, number, options). */
static bool read_reservation(ErlNifEnv *env, const term argv[], const char *what, unsigned allowed, question *asked,
    uint64_t *reservation, uint64_t *number)
{
    *asked = (question){.now_ns = TOLLGATE_NOW};
    return read_instance(env, argv[0], &asked->of)
        && read_u64(env, argv[1], "a reservation, as reserve returned it,", reservation)
        && read_u64(env, argv[2], what, number) && read_options(env, argv[3], allowed, asked);
}

/* (reference, reservation, used, options) -> {unused, overspent, left} */
NIF(nif_settle)
{
    question asked;
    uint64_t reservation, used;
    tollgate_settlement settled = {.struct_size = sizeof settled};
    if (!read_reservation(env, argv, "what was used", OPTION_SO_FAR | OPTION_AT, &asked, &reservation, &used)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_settle(asked.of->limiter, reservation, used, asked.now_ns, asked.flags, &settled);
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL, atom_nil)
        : enif_make_tuple3(env, enif_make_uint64(env, settled.unused), enif_make_uint64(env, settled.overspent),
            enif_make_uint64(env, settled.left));
}

/* (reference, reservation, ttl_ns, options) */
NIF(nif_extend)
{
    question asked;
    uint64_t reservation, ttl_ns;
    if (!read_reservation(env, argv, "the time to live in nanoseconds", OPTION_AT, &asked, &reservation, &ttl_ns)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_extend(asked.of->limiter, reservation, ttl_ns, asked.now_ns);
    return status == TOLLGATE_STATUS_OK ? atom_ok : failed(env, status, NULL, atom_nil);
}
