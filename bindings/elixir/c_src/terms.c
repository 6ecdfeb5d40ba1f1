/* Terms: atoms, texts, maps, and exceptions for callers that got something wrong. */

#include "nif.h"

#include <stdarg.h>
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

term make_instant(ErlNifEnv *env, uint64_t instant_ns)
{
    return instant_ns == TOLLGATE_NEVER ? atom_nil : enif_make_uint64(env, instant_ns);
}

term make_map(ErlNifEnv *env, const pair pairs[], size_t count)
{
    term map = enif_make_new_map(env);
    for (size_t at = 0; at < count; at++) {
        enif_make_map_put(env, map, pairs[at].key, pairs[at].value, &map);
    }
    return map;
}

static term raise_argument_error(ErlNifEnv *env, const char *message)
{
    const pair fields[] = {{atom_struct, atom_argument_error}, {atom_exception, atom_true},
        {atom_message, make_text(env, message, strlen(message))}};
    return enif_raise_exception(env, MAKE_MAP(env, fields));
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

bool read_u64(ErlNifEnv *env, term given, const char *what, uint64_t *value)
{
    ErlNifUInt64 number;
    if (!enif_get_uint64(env, given, &number)) {
        bad_argument(env, "%s has to be a whole number from 0 to 2^64 - 1, got: %.60T", what, given);
        return false;
    }
    *value = number;
    return true;
}

bool read_text(ErlNifEnv *env, term given, const char *what, ErlNifBinary *text)
{
    if (!enif_inspect_binary(env, given, text)) {
        bad_argument(env, "%s has to be a binary, got: %.60T", what, given);
        return false;
    }
    return true;
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

bool is_answer(tollgate_status status, term *reason)
{
    switch (status) {
    case TOLLGATE_STATUS_FULL: *reason = atom_full; break;
    case TOLLGATE_STATUS_BUSY: *reason = atom_busy; break;
    case TOLLGATE_STATUS_HOLDS_FULL: *reason = atom_holds_full; break;
    case TOLLGATE_STATUS_NOT_HELD: *reason = atom_not_held; break;
    case TOLLGATE_STATUS_RESERVATIONS_FULL: *reason = atom_reservations_full; break;
    case TOLLGATE_STATUS_TOO_MANY_RESERVATIONS: *reason = atom_too_many_reservations; break;
    case TOLLGATE_STATUS_USED_TOO_LARGE: *reason = atom_used_too_large; break;
    case TOLLGATE_STATUS_UNKNOWN_RESERVATION: *reason = atom_unknown_reservation; break;
    case TOLLGATE_STATUS_NO_LIMIT: *reason = atom_no_limit; break;
    case TOLLGATE_STATUS_LIMIT_GIVEN: *reason = atom_limit_given; break;
    case TOLLGATE_STATUS_LIMITS_DIFFER: *reason = atom_limits_differ; break;
    case TOLLGATE_STATUS_COST_ABOVE_CAPACITY: *reason = atom_cost_above_capacity; break;
    default: return false;
    }
    return true;
}

term failed(ErlNifEnv *env, tollgate_status status, const tollgate_error *error, term agent)
{
    term reason;
    if (status == TOLLGATE_STATUS_INVALID_LIMIT && error == NULL) {
        /* Numbers of a request that are out of range. */
        return enif_make_tuple2(env, atom_error, atom_bad_limit);
    }
    if (is_answer(status, &reason)) {
        return enif_make_tuple2(env, atom_error, reason);
    }
    if (status == TOLLGATE_STATUS_EMPTY_ID || status == TOLLGATE_STATUS_ID_TOO_LONG) {
        return bad_agent(env, agent);
    }
    bool is_explained = error != NULL && error->status == status && error->message[0] != 0;
    return raise_argument_error(env, is_explained ? error->message : tollgate_status_text(status));
}
