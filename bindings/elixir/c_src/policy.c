/* Policies: lanes, plans and actions. */

#include "nif.h"

#include <string.h>

static void bad_preset(ErlNifEnv *env, term given)
{
    char known[256] = "";
    size_t length = 0;
    const char *name;
    /* Ends after the last preset. */
    for (size_t at = 0; (name = tollgate_preset_name(at)) != NULL && length + strlen(name) + 3 < sizeof known; at++) {
        length += (size_t)enif_snprintf(known + length, sizeof known - length, "%s%s", at == 0 ? "" : ", ", name);
    }
    bad_argument(env, "there is no preset %.60T; there are: %s", given, known);
}

bool read_policy(ErlNifEnv *env, term given, tollgate_policy **policy)
{
    const term *part;
    int arity;
    ErlNifBinary text;
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status;
    if (!enif_get_tuple(env, given, &arity, &part) || arity != 2 || !enif_inspect_binary(env, part[1], &text)) {
        bad_argument(env, "a policy is {:preset, name} or {:toml, text}, got: %.100T", given);
        return false;
    }
    if (part[0] == atom_preset) {
        status = tollgate_policy_preset((const char *)text.data, text.size, NULL, policy);
    } else if (part[0] == atom_toml) {
        status = tollgate_policy_from_toml((const char *)text.data, text.size, &error, policy);
    } else {
        bad_argument(env, "a policy is {:preset, name} or {:toml, text}, got: %.100T", given);
        return false;
    }
    if (status == TOLLGATE_STATUS_UNKNOWN_PRESET && part[0] == atom_preset) {
        bad_preset(env, part[1]);
    } else if (status != TOLLGATE_STATUS_OK) {
        failed(env, status, &error, atom_nil);
    }
    return status == TOLLGATE_STATUS_OK;
}

tollgate_status make_plan(ErlNifEnv *env, const tollgate_policy *policy, uint32_t plan, term *made)
{
    char name[TOLLGATE_NAME_BYTES_MAX + 1];
    size_t length;
    *made = atom_nil;
    if (plan == TOLLGATE_NONE) {
        return TOLLGATE_STATUS_OK;
    }
    tollgate_status status = tollgate_policy_plan_name(policy, plan, name, sizeof name, &length);
    if (status == TOLLGATE_STATUS_OK) {
        *made = make_text(env, name, length);
    }
    return status;
}

/* The policy of an instance, to be freed. */
static bool take_policy(ErlNifEnv *env, term given, tollgate_policy **policy)
{
    instance *of;
    if (!read_instance(env, given, &of)) {
        return false;
    }
    tollgate_status status = tollgate_limiter_policy(of->limiter, policy);
    if (status != TOLLGATE_STATUS_OK) {
        failed(env, status, NULL, atom_nil);
        return false;
    }
    return true;
}

/* (reference) -> the policy in force, as TOML */
NIF(nif_policy)
{
    tollgate_policy *policy = NULL;
    size_t length = 0;
    term made;
    if (!take_policy(env, argv[0], &policy)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_policy_to_toml(policy, NULL, 0, &length);
    bool is_long = status == TOLLGATE_STATUS_OK || status == TOLLGATE_STATUS_BUFFER_TOO_SMALL;
    char *toml = is_long ? enif_alloc(length + 1) : NULL;
    if (toml != NULL) {
        status = tollgate_policy_to_toml(policy, toml, length + 1, &length);
    }
    made = status == TOLLGATE_STATUS_OK ? make_text(env, toml, length) : failed(env, status, NULL, atom_nil);
    enif_free(toml);
    tollgate_policy_free(policy);
    return made;
}

/* {name, limit} */
static tollgate_status make_lane(ErlNifEnv *env, const tollgate_policy *policy, uint32_t lane, term *made)
{
    char name[TOLLGATE_NAME_BYTES_MAX + 1], limit[TOLLGATE_LIMIT_BYTES];
    size_t name_length, limit_length;
    tollgate_status status = tollgate_policy_lane_name(policy, lane, name, sizeof name, &name_length);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_policy_limit(policy, TOLLGATE_NONE, lane, limit, sizeof limit, &limit_length);
    }
    if (status == TOLLGATE_STATUS_OK) {
        *made = enif_make_tuple2(env, make_text(env, name, name_length), make_text(env, limit, limit_length));
    }
    return status;
}

/* All that `make` makes of a policy, from number 0 up to the first that it does not have. */
static term list(ErlNifEnv *env, term reference,
    tollgate_status (*make)(ErlNifEnv *, const tollgate_policy *, uint32_t, term *), tollgate_status last)
{
    tollgate_policy *policy = NULL;
    if (!take_policy(env, reference, &policy)) {
        return atom_nil;
    }
    term all = enif_make_list(env, 0), made, in_order;
    tollgate_status status;
    for (uint32_t at = 0; (status = make(env, policy, at, &made)) == TOLLGATE_STATUS_OK; at++) {
        all = enif_make_list_cell(env, made, all);
    }
    tollgate_policy_free(policy);
    if (status != last) {
        return failed(env, status, NULL, atom_nil);
    }
    return enif_make_reverse_list(env, all, &in_order) ? in_order : all;
}

/* (reference) -> [{name, limit}], the policy's lanes in their order */
NIF(nif_lanes)
{
    return list(env, argv[0], make_lane, TOLLGATE_STATUS_UNKNOWN_LANE);
}

/* (reference) -> [name], the policy's plans in their order */
NIF(nif_plans)
{
    return list(env, argv[0], make_plan, TOLLGATE_STATUS_UNKNOWN_PLAN);
}

/* (reference, the name of a plan) -> [{name, limit}], the lanes in their order under it | nil */
NIF(nif_plan_limits)
{
    instance *of;
    ErlNifBinary plan_name;
    uint32_t plan;
    tollgate_policy *policy = NULL;
    term all = enif_make_list(env, 0), in_order;
    if (!read_instance(env, argv[0], &of) || !read_text(env, argv[1], "the name of a plan", &plan_name)) {
        return atom_nil;
    }
    if (tollgate_limiter_plan(of->limiter, (const char *)plan_name.data, plan_name.size, &plan) != TOLLGATE_STATUS_OK) {
        return atom_nil;
    }
    if (!take_policy(env, argv[0], &policy)) {
        return atom_nil;
    }
    for (uint32_t lane = 0; lane < of->lanes; lane++) {
        char name[TOLLGATE_NAME_BYTES_MAX + 1], limit[TOLLGATE_LIMIT_BYTES];
        size_t name_length, limit_length;
        if (tollgate_policy_lane_name(policy, lane, name, sizeof name, &name_length) == TOLLGATE_STATUS_OK
            && tollgate_policy_limit(policy, plan, lane, limit, sizeof limit, &limit_length) == TOLLGATE_STATUS_OK
            && limit_length > 0) {
            all = enif_make_list_cell(env, enif_make_tuple2(env, make_text(env, name, name_length),
                make_text(env, limit, limit_length)), all);
        }
    }
    tollgate_policy_free(policy);
    return enif_make_reverse_list(env, all, &in_order) ? in_order : all;
}

/* (reference, name) -> the plan's number | nil */
NIF(nif_plan)
{
    instance *of;
    ErlNifBinary name;
    uint32_t plan;
    if (!read_instance(env, argv[0], &of) || !read_text(env, argv[1], "the name of a plan", &name)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_limiter_plan(of->limiter, (const char *)name.data, name.size, &plan);
    return status == TOLLGATE_STATUS_OK ? enif_make_uint(env, plan)
        : status == TOLLGATE_STATUS_PANIC ? failed(env, status, NULL, atom_nil) : atom_nil;
}

/* (reference, channel, action) -> {number, {channel, tier}, known, first_seen} | nil */
NIF(nif_lane_for)
{
    instance *of;
    ErlNifBinary channel, action;
    tollgate_action_lane found = {.struct_size = sizeof found};
    if (!read_instance(env, argv[0], &of) || !read_text(env, argv[1], "a channel", &channel)
        || !read_text(env, argv[2], "an action", &action)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_lane_for(of->limiter, (const char *)channel.data, channel.size,
        (const char *)action.data, action.size, &found);
    if (status == TOLLGATE_STATUS_UNKNOWN_LANE || (status == TOLLGATE_STATUS_OK && found.lane >= of->lanes)) {
        return atom_nil;
    }
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL, atom_nil)
        : enif_make_tuple4(env, enif_make_uint(env, found.lane),
            enif_make_tuple2(env, of->lane[found.lane].channel, of->lane[found.lane].tier),
            make_bool(found.known != 0), make_bool(found.first_seen != 0));
}

/* (reference) -> {total, [{channel, action}], not_listed} */
NIF(nif_unknown_actions)
{
    instance *of;
    tollgate_unknown_action actions[TOLLGATE_UNKNOWN_ACTIONS_MAX];
    tollgate_unknown_action_totals totals = {.struct_size = sizeof totals};
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_unknown_actions(of->limiter, actions, TOLLGATE_UNKNOWN_ACTIONS_MAX, &totals);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, atom_nil);
    }
    term names = enif_make_list(env, 0);
    for (uint32_t at = totals.count; at-- > 0;) {
        const tollgate_unknown_action *action = &actions[at];
        names = enif_make_list_cell(env,
            enif_make_tuple2(env, make_text(env, action->channel, strlen(action->channel)),
                make_text(env, action->name, strlen(action->name))), names);
    }
    return enif_make_tuple3(env, enif_make_uint64(env, totals.total), names, enif_make_uint64(env, totals.not_listed));
}
