/* Policies: from what Tollgate.Policy made of the options to the limiter's own. */

#include "nif.h"

/* A text at a place of a tuple. */
static bool get_text(ErlNifEnv *env, term given, ErlNifBinary *text)
{
    return enif_inspect_binary(env, given, text);
}

static bool add_line(ErlNifEnv *env, tollgate_policy_builder *builder, term line, term *raised)
{
    const term *part;
    int arity;
    ErlNifBinary first, second;
    unsigned number;
    tollgate_status status;
    if (!enif_get_tuple(env, line, &arity, &part) || arity < 2) {
        return refuse(raised, bad_argument(env, "%.60T is no line of a policy", line));
    }
    if (part[0] == atom_lane && arity == 3 && get_text(env, part[1], &first) && get_text(env, part[2], &second)) {
        status = tollgate_policy_builder_lane(builder, (const char *)first.data, first.size,
            (const char *)second.data, second.size);
    } else if (part[0] == atom_warn_below_percent && enif_get_uint(env, part[1], &number)) {
        status = tollgate_policy_builder_warn_below_percent(builder, number);
        if (status == TOLLGATE_STATUS_INVALID_OPTION) {
            return refuse(raised, bad_argument(env, "warn_below_percent has to be from 0 to 100, got: %u", number));
        }
    } else {
        return refuse(raised, bad_argument(env, "%.60T is no line of a policy", line));
    }
    return status == TOLLGATE_STATUS_OK || refuse(raised, failed(env, status, NULL));
}

bool read_policy(ErlNifEnv *env, term given, tollgate_policy **policy, term *raised)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = tollgate_policy_builder_new(&builder);
    if (status != TOLLGATE_STATUS_OK) {
        return refuse(raised, failed(env, status, NULL));
    }
    term rest = given, line;
    bool good = true;
    while (good && enif_get_list_cell(env, rest, &line, &rest)) {
        good = add_line(env, builder, line, raised);
    }
    if (good) {
        status = tollgate_policy_builder_build(builder, policy, &error);
        good = status == TOLLGATE_STATUS_OK || refuse(raised, failed(env, status, &error));
    }
    tollgate_policy_builder_free(builder);
    return good;
}
