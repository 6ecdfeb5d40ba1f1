/*
 * Control: what an operator decides at run time. A call that is refused
 * changes nothing and answers {:error, {reason, message}}.
 */

#include "nif.h"

#include <string.h>

/* Longer than any limit is written. */
#define LIMIT_BYTES 256

static term refused(ErlNifEnv *env, tollgate_status status, const tollgate_error *error, term agent)
{
    term reason;
    switch (status) {
    case TOLLGATE_STATUS_UNKNOWN_LANE: reason = atom_unknown_lane; break;
    case TOLLGATE_STATUS_UNKNOWN_PLAN: reason = atom_unknown_plan; break;
    case TOLLGATE_STATUS_INVALID_LIMIT: reason = atom_bad_limit; break;
    case TOLLGATE_STATUS_NOT_UTF8: reason = atom_not_utf8; break;
    case TOLLGATE_STATUS_TEXT_TOO_LONG: reason = atom_text_too_long; break;
    case TOLLGATE_STATUS_TOO_MANY_OVERRIDES: reason = atom_too_many_overrides; break;
    case TOLLGATE_STATUS_SAME_HASH: reason = atom_same_hash; break;
    case TOLLGATE_STATUS_OTHER_LANES: reason = atom_other_lanes; break;
    case TOLLGATE_STATUS_PLAN_MISSING: reason = atom_plan_missing; break;
    default: return not_answered(env, status, agent);
    }
    const char *text = error->status == status && error->message[0] != 0 ? error->message : tollgate_status_text(status);
    return enif_make_tuple2(env, atom_error, enif_make_tuple2(env, reason, make_text(env, text, strlen(text))));
}

static term done(ErlNifEnv *env, tollgate_status status, const tollgate_error *error, term agent)
{
    return status == TOLLGATE_STATUS_OK ? atom_ok : refused(env, status, error, agent);
}

/* (reference, agent, plan | nil) */
NIF(nif_assign)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t plan;
    bool has_plan;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)
        || !read_plan(env, limiter, argv[2], &has_plan, &plan, &raised)) {
        return raised;
    }
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = has_plan ? tollgate_limiter_assign(limiter->limiter, id.data, id.size, plan, &error)
                                      : tollgate_limiter_unassign(limiter->limiter, id.data, id.size, &error);
    return done(env, status, &error, argv[1]);
}

/* (reference, agent, lane_or_tier, limit); texts */
NIF(nif_set_override)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id, lane, limit;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    if (!enif_inspect_binary(env, argv[2], &lane) || !enif_inspect_binary(env, argv[3], &limit)) {
        return bad_argument(env, "a lane and a limit are texts, got: %.60T and %.60T", argv[2], argv[3]);
    }
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = tollgate_limiter_set_override(limiter->limiter, id.data, id.size, (const char *)lane.data,
        lane.size, (const char *)limit.data, limit.size, &error);
    return done(env, status, &error, argv[1]);
}

/* (reference, agent, lane_or_tier | nil); nil for all of them */
NIF(nif_remove_override)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id, lane;
    term raised;
    tollgate_status status;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_error error = {.struct_size = sizeof error};
    if (argv[2] == atom_nil) {
        status = tollgate_limiter_remove_overrides(limiter->limiter, id.data, id.size, &error);
    } else if (enif_inspect_binary(env, argv[2], &lane)) {
        status = tollgate_limiter_remove_override(limiter->limiter, id.data, id.size, (const char *)lane.data, lane.size,
            &error);
    } else {
        return bad_argument(env, "a lane is a text, got: %.60T", argv[2]);
    }
    return done(env, status, &error, argv[1]);
}

/* (reference, agent, boolean) */
NIF(nif_set_exempt)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = argv[2] == atom_true
        ? tollgate_limiter_exempt(limiter->limiter, id.data, id.size, &error)
        : tollgate_limiter_unexempt(limiter->limiter, id.data, id.size, &error);
    return done(env, status, &error, argv[1]);
}

/* (reference, agent) -> boolean */
NIF(nif_exempt)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    bool exempt;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_is_exempt(limiter->limiter, id.data, id.size, &exempt);
    return status == TOLLGATE_STATUS_OK ? make_bool(exempt) : not_answered(env, status, argv[1]);
}

/* (reference, agent, lane) -> text | nil */
NIF(nif_limit_of)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane;
    char limit[LIMIT_BYTES];
    size_t length;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)) {
        return raised;
    }
    tollgate_status status =
        tollgate_limiter_limit_of(limiter->limiter, id.data, id.size, lane, limit, sizeof limit, &length);
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    return length == 0 ? atom_nil : make_text(env, limit, length);
}

/* {plan | nil, [{lane, limit}], exempt} */
static tollgate_status make_assignment(ErlNifEnv *env, const tollgate_assignment *decided, term *made)
{
    char plan[TOLLGATE_LANE_NAME_BYTES_MAX + 1];
    size_t plan_length = 0, count = 0;
    bool exempt = false;
    tollgate_status status = tollgate_assignment_plan(decided, plan, sizeof plan, &plan_length);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_assignment_exempt(decided, &exempt);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_assignment_override_count(decided, &count);
    }
    term overrides = enif_make_list(env, 0);
    for (size_t at = count; status == TOLLGATE_STATUS_OK && at-- > 0;) {
        char lane[TOLLGATE_LANE_NAME_BYTES_MAX + 1], limit[LIMIT_BYTES];
        size_t lane_length, limit_length;
        status = tollgate_assignment_override_lane(decided, at, lane, sizeof lane, &lane_length);
        if (status == TOLLGATE_STATUS_OK) {
            status = tollgate_assignment_override_limit(decided, at, limit, sizeof limit, &limit_length);
        }
        if (status == TOLLGATE_STATUS_OK) {
            overrides = enif_make_list_cell(env,
                enif_make_tuple2(env, make_text(env, lane, lane_length), make_text(env, limit, limit_length)), overrides);
        }
    }
    *made = enif_make_tuple3(env, plan_length == 0 ? atom_nil : make_text(env, plan, plan_length), overrides,
        make_bool(exempt));
    return status;
}

/* (reference, agent) -> {plan | nil, [{lane, limit}], exempt} */
NIF(nif_assignment)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    tollgate_assignment *decided = NULL;
    term made, raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_assignment(limiter->limiter, id.data, id.size, &decided);
    if (status == TOLLGATE_STATUS_OK) {
        status = make_assignment(env, decided, &made);
    }
    tollgate_assignment_free(decided);
    return status == TOLLGATE_STATUS_OK ? made : not_answered(env, status, argv[1]);
}

/* (reference) -> [{agent, assignment}], sorted by agent. Copies them all. */
NIF(nif_assignments)
{
    (void)argc;
    instance *limiter;
    tollgate_assignments *list = NULL;
    size_t count = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_assignments(limiter->limiter, &list);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_assignments_count(list, &count);
    }
    term all = enif_make_list(env, 0);
    for (size_t at = count; status == TOLLGATE_STATUS_OK && at-- > 0;) {
        char id[TOLLGATE_ID_BYTES_MAX];
        size_t length;
        tollgate_assignment *decided = NULL;
        term made;
        status = tollgate_assignments_id(list, at, id, sizeof id, &length);
        if (status == TOLLGATE_STATUS_OK) {
            status = tollgate_assignments_get(list, at, &decided);
        }
        if (status == TOLLGATE_STATUS_OK) {
            status = make_assignment(env, decided, &made);
        }
        if (status == TOLLGATE_STATUS_OK) {
            all = enif_make_list_cell(env, enif_make_tuple2(env, make_text(env, id, length), made), all);
        }
        tollgate_assignment_free(decided);
    }
    tollgate_assignments_free(list);
    return status == TOLLGATE_STATUS_OK ? all : failed(env, status, NULL);
}

/* Adds {agent, {plan | nil, [{lane, limit}], exempt}} to a list. */
static bool add_assignment(ErlNifEnv *env, tollgate_assignments *list, term given, tollgate_status *status,
    tollgate_error *error)
{
    const term *pair, *part, *line;
    int arity;
    ErlNifBinary id, plan, lane, limit;
    tollgate_assignment *decided = NULL;
    if (!enif_get_tuple(env, given, &arity, &pair) || arity != 2 || !enif_inspect_binary(env, pair[0], &id)
        || !enif_get_tuple(env, pair[1], &arity, &part) || arity != 3) {
        return false;
    }
    term rest = part[1], override;
    bool good = true;
    *status = tollgate_assignment_new(&decided);
    if (*status == TOLLGATE_STATUS_OK && part[0] != atom_nil) {
        good = enif_inspect_binary(env, part[0], &plan);
        *status = good ? tollgate_assignment_set_plan(decided, (const char *)plan.data, plan.size) : *status;
    }
    while (good && *status == TOLLGATE_STATUS_OK && enif_get_list_cell(env, rest, &override, &rest)) {
        good = enif_get_tuple(env, override, &arity, &line) && arity == 2 && enif_inspect_binary(env, line[0], &lane)
            && enif_inspect_binary(env, line[1], &limit);
        *status = good ? tollgate_assignment_set_override(decided, (const char *)lane.data, lane.size,
            (const char *)limit.data, limit.size, error) : *status;
    }
    if (good && *status == TOLLGATE_STATUS_OK) {
        *status = tollgate_assignment_set_exempt(decided, part[2] == atom_true);
    }
    if (good && *status == TOLLGATE_STATUS_OK) {
        *status = tollgate_assignments_add(list, id.data, id.size, decided);
    }
    tollgate_assignment_free(decided);
    return good;
}

/* (reference, [{agent, assignment}]): all of them at once, or none */
NIF(nif_set_assignments)
{
    (void)argc;
    instance *limiter;
    tollgate_assignments *list = NULL;
    tollgate_error error = {.struct_size = sizeof error};
    term rest = argv[1], given = argv[1];
    bool good = true;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_assignments_new(&list);
    while (good && status == TOLLGATE_STATUS_OK && enif_get_list_cell(env, rest, &given, &rest)) {
        good = add_assignment(env, list, given, &status, &error);
    }
    if (good && status == TOLLGATE_STATUS_OK) {
        status = tollgate_limiter_set_assignments(limiter->limiter, list, &error);
    }
    tollgate_assignments_free(list);
    const term *pair;
    int arity;
    term agent = good && enif_get_tuple(env, given, &arity, &pair) && arity == 2 ? pair[0] : given;
    return good ? done(env, status, &error, agent)
                : bad_argument(env, "%.200T is not an agent and what was decided about it", given);
}

/* (reference, policy) */
NIF(nif_replace_policy)
{
    (void)argc;
    instance *limiter;
    tollgate_policy *policy = NULL;
    term raised;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!read_policy(env, argv[1], &policy, &raised)) {
        return raised;
    }
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = tollgate_limiter_replace_policy(limiter->limiter, policy, &error);
    tollgate_policy_free(policy);
    return done(env, status, &error, argv[1]);
}
