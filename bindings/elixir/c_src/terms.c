/* Terms: atoms, texts, and what is told to a caller that got something wrong. */

#include "nif.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEFINE_ATOM(name) term atom_##name;
ATOMS(DEFINE_ATOM)

static term atom_struct, atom_exception, atom_argument_error;

void make_atoms(ErlNifEnv *env)
{
#define MAKE_ATOM(name) atom_##name = enif_make_atom(env, #name);
    ATOMS(MAKE_ATOM)
    atom_struct = enif_make_atom(env, "__struct__");
    atom_exception = enif_make_atom(env, "__exception__");
    atom_argument_error = enif_make_atom(env, "Elixir.ArgumentError");
}

term make_text(ErlNifEnv *env, const char *text, size_t length)
{
    term made;
    memcpy(enif_make_new_binary(env, length, &made), text, length);
    return made;
}

term make_bool(bool value)
{
    return value ? atom_true : atom_false;
}

term make_span(ErlNifEnv *env, uint64_t span_ns)
{
    return span_ns == TOLLGATE_NEVER ? atom_infinity : enif_make_uint64(env, span_ns);
}

bool get_u64(ErlNifEnv *env, term given, uint64_t *value)
{
    ErlNifUInt64 number;
    if (!enif_get_uint64(env, given, &number)) {
        return false;
    }
    *value = number;
    return true;
}

static term raise_argument_error(ErlNifEnv *env, const char *message)
{
    term exception = enif_make_new_map(env);
    enif_make_map_put(env, exception, atom_struct, atom_argument_error, &exception);
    enif_make_map_put(env, exception, atom_exception, atom_true, &exception);
    enif_make_map_put(env, exception, atom_message, make_text(env, message, strlen(message)), &exception);
    return enif_raise_exception(env, exception);
}

term bad_argument(ErlNifEnv *env, const char *format, ...)
{
    char message[512] = "";
    va_list arguments;
    va_start(arguments, format);
    enif_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return raise_argument_error(env, message);
}

term bad_instance(ErlNifEnv *env, term given)
{
    return bad_argument(env,
        "%.60T is not a limiter: it has to come from Tollgate.Native.new/2, and from this load of the NIF", given);
}

term bad_agent(ErlNifEnv *env, term given)
{
    ErlNifBinary id;
    if (enif_inspect_binary(env, given, &id)) {
        return bad_argument(env, "the agent has to have 1 to %d bytes, and this one has %lu",
            TOLLGATE_ID_BYTES_MAX, (unsigned long)id.size);
    }
    return bad_argument(env, "the agent has to be a binary, got: %.60T", given);
}

term bad_lane(ErlNifEnv *env, const instance *limiter, term channel, term tier)
{
    char known[256] = "";
    size_t length = 0;
    for (uint32_t lane = 0; lane < limiter->lanes && length < sizeof known - 1; lane++) {
        int written = enif_snprintf(known + length, sizeof known - length, "%s%T %T", lane == 0 ? "" : ", ",
            limiter->lane[lane].channel, limiter->lane[lane].tier);
        if (written < 0) {
            break;
        }
        length += (size_t)written;
    }
    return bad_argument(env, "the policy has no lane of channel %.60T and tier %.60T; it has: %s", channel, tier, known);
}

term bad_lane_term(ErlNifEnv *env, const instance *limiter, term lane)
{
    const term *pair;
    int arity;
    if (enif_get_tuple(env, lane, &arity, &pair) && arity == 2) {
        return bad_lane(env, limiter, pair[0], pair[1]);
    }
    return bad_argument(env, "a lane is its number, or a channel and a tier, got: %.60T", lane);
}

term bad_cost(ErlNifEnv *env, term given)
{
    return bad_argument(env, "the cost has to be a whole number from 1 to 2^64 - 1, got: %.60T", given);
}

term failed(ErlNifEnv *env, tollgate_status status, const tollgate_error *error)
{
    switch (status) {
    case TOLLGATE_STATUS_FULL:
        return enif_make_tuple2(env, atom_error, atom_full);
    case TOLLGATE_STATUS_NOT_HELD:
        return enif_make_tuple2(env, atom_error, atom_not_held);
    case TOLLGATE_STATUS_RESERVATIONS_FULL:
        return enif_make_tuple2(env, atom_error, atom_reservations_full);
    case TOLLGATE_STATUS_TOO_MANY_RESERVATIONS:
        return enif_make_tuple2(env, atom_error, atom_too_many_reservations);
    case TOLLGATE_STATUS_USED_TOO_LARGE:
        return enif_make_tuple2(env, atom_error, atom_used_too_large);
    case TOLLGATE_STATUS_UNKNOWN_RESERVATION:
        return enif_make_tuple2(env, atom_error, atom_unknown_reservation);
    case TOLLGATE_STATUS_COST_ABOVE_CAPACITY:
        return enif_make_tuple2(env, atom_error, atom_cost_above_capacity);
    default:
        return raise_argument_error(env, error != NULL && error->status == status && error->message[0] != 0
            ? error->message : tollgate_status_text(status));
    }
}

term not_answered(ErlNifEnv *env, tollgate_status status, term agent)
{
    return status == TOLLGATE_STATUS_EMPTY_ID || status == TOLLGATE_STATUS_ID_TOO_LONG
        ? bad_agent(env, agent) : failed(env, status, NULL);
}
