/*
 * Control: what an operator decides at run time, and files that keep budgets.
 * A change that is refused changes nothing and answers {:error, {reason, message}}.
 */

#include "nif.h"

#include <string.h>

static term make_refusal(ErlNifEnv *env, term reason, const char *message)
{
    return enif_make_tuple2(env, atom_error, enif_make_tuple2(env, reason, make_text(env, message, strlen(message))));
}

static term done(ErlNifEnv *env, tollgate_status status, const tollgate_error *error, term agent)
{
    term reason;
    switch (status) {
    case TOLLGATE_STATUS_OK: return atom_ok;
    case TOLLGATE_STATUS_UNKNOWN_LANE: reason = atom_unknown_lane; break;
    case TOLLGATE_STATUS_UNKNOWN_PLAN: reason = atom_unknown_plan; break;
    case TOLLGATE_STATUS_INVALID_LIMIT: reason = atom_bad_limit; break;
    case TOLLGATE_STATUS_NOT_UTF8: reason = atom_not_utf8; break;
    case TOLLGATE_STATUS_TEXT_TOO_LONG: reason = atom_text_too_long; break;
    case TOLLGATE_STATUS_TOO_MANY_OVERRIDES: reason = atom_too_many_overrides; break;
    case TOLLGATE_STATUS_SAME_HASH: reason = atom_same_hash; break;
    case TOLLGATE_STATUS_OTHER_LANES: reason = atom_other_lanes; break;
    case TOLLGATE_STATUS_PLAN_MISSING: reason = atom_plan_missing; break;
    case TOLLGATE_STATUS_BUSY: reason = atom_busy; break;
    case TOLLGATE_STATUS_SHARED: reason = atom_shared; break;
    case TOLLGATE_STATUS_FILE: reason = atom_store; break;
    default: return failed(env, status, error, agent);
    }
    bool is_explained = error->status == status && error->message[0] != 0;
    return make_refusal(env, reason, is_explained ? error->message : tollgate_status_text(status));
}

/* (reference, agent, plan | nil) */
NIF(nif_assign)
{
    question asked;
    tollgate_error error = {.struct_size = sizeof error};
    ErlNifBinary name;
    if (!read_agent(env, argv, &asked)) {
        return atom_nil;
    }
    bool is_name = enif_inspect_binary(env, argv[2], &name);
    if (!is_name && !read_plan(env, asked.of, argv[2], &asked.request.plan)) {
        return atom_nil;
    }
    if (is_name && tollgate_limiter_plan(asked.of->limiter, (const char *)name.data, name.size,
            &asked.request.plan) != TOLLGATE_STATUS_OK) {
        char message[TOLLGATE_ERROR_MESSAGE_BYTES];
        enif_snprintf(message, sizeof message, "the policy has no plan %.80T", argv[2]);
        return make_refusal(env, atom_unknown_plan, message);
    }
    tollgate_status status = tollgate_assign(asked.of->limiter, asked.request.id, asked.request.id_len,
        asked.request.plan, &error);
    return done(env, status, &error, argv[1]);
}

static bool read_text_or_nil(ErlNifEnv *env, term given, const char *what, ErlNifBinary *text)
{
    *text = (ErlNifBinary){0};
    return given == atom_nil || read_text(env, given, what, text);
}

/* (reference, agent, lane_or_tier | nil, limit | nil): without a limit it is removed; without both, all are */
NIF(nif_set_override)
{
    question asked;
    ErlNifBinary lane, limit;
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_agent(env, argv, &asked) || !read_text_or_nil(env, argv[2], "a lane or tier", &lane)
        || !read_text_or_nil(env, argv[3], "a limit", &limit)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_set_override(asked.of->limiter, asked.request.id, asked.request.id_len,
        (const char *)lane.data, lane.size, (const char *)limit.data, limit.size, &error);
    return done(env, status, &error, argv[1]);
}

/* (reference, agent, boolean) */
NIF(nif_set_exempt)
{
    question asked;
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_agent(env, argv, &asked)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_set_exempt(asked.of->limiter, asked.request.id, asked.request.id_len,
        argv[2] == atom_true, &error);
    return done(env, status, &error, argv[1]);
}

/* (reference, agent, lane) -> text | nil */
NIF(nif_limit_of)
{
    question asked;
    char limit[TOLLGATE_LIMIT_BYTES];
    size_t length;
    if (!read_agent(env, argv, &asked) || !read_lane(env, asked.of, argv[2], &asked.request.lane)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_limit_of(asked.of->limiter, asked.request.id, asked.request.id_len,
        asked.request.lane, limit, sizeof limit, &length);
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL, argv[1])
        : length == 0 ? atom_nil : make_text(env, limit, length);
}

/* {plan | nil, [{lane, limit}], exempt} */
static tollgate_status make_assignment(ErlNifEnv *env, const tollgate_limiter *limiter, const tollgate_policy *policy,
    const void *id, size_t id_len, term *made)
{
    tollgate_assignment_state decided = {.struct_size = sizeof decided};
    tollgate_override overrides[TOLLGATE_LANES_MAX];
    tollgate_status status = tollgate_assignment(limiter, id, id_len, &decided, overrides, TOLLGATE_LANES_MAX);
    if (status != TOLLGATE_STATUS_OK) {
        return status;
    }
    term list = enif_make_list(env, 0);
    for (uint32_t at = decided.override_count; at-- > 0;) {
        char lane[TOLLGATE_NAME_BYTES_MAX + 1];
        size_t length;
        status = tollgate_policy_lane_name(policy, overrides[at].lane, lane, sizeof lane, &length);
        if (status != TOLLGATE_STATUS_OK) {
            return status;
        }
        term limit = make_text(env, overrides[at].limit, strlen(overrides[at].limit));
        list = enif_make_list_cell(env, enif_make_tuple2(env, make_text(env, lane, length), limit), list);
    }
    term plan;
    status = make_plan(env, policy, decided.plan, &plan);
    *made = enif_make_tuple3(env, plan, list, make_bool(decided.exempt != 0));
    return status;
}

/* (reference, agent) -> assignment */
NIF(nif_assignment)
{
    question asked;
    tollgate_policy *policy = NULL;
    term made;
    if (!read_agent(env, argv, &asked)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_limiter_policy(asked.of->limiter, &policy);
    if (status == TOLLGATE_STATUS_OK) {
        status = make_assignment(env, asked.of->limiter, policy, asked.request.id, asked.request.id_len, &made);
    }
    tollgate_policy_free(policy);
    return status == TOLLGATE_STATUS_OK ? made : failed(env, status, NULL, argv[1]);
}

/* (reference) -> [{agent, assignment}], sorted by agent */
NIF(nif_assignments)
{
    instance *of;
    tollgate_policy *policy = NULL;
    tollgate_agent_id *ids = NULL;
    size_t room = 0, count = 0;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_limiter_policy(of->limiter, &policy);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_assigned(of->limiter, NULL, 0, NULL, 0, &room);
    }
    if (status == TOLLGATE_STATUS_OK) {
        ids = enif_alloc(room == 0 ? 1 : room * sizeof *ids);
        status = ids == NULL ? TOLLGATE_STATUS_OUT_OF_MEMORY
                             : tollgate_assigned(of->limiter, NULL, 0, ids, room, &count);
    }
    term all = enif_make_list(env, 0), made;
    /* There may be more by now; those came later. */
    for (size_t at = count < room ? count : room; status == TOLLGATE_STATUS_OK && at-- > 0;) {
        status = make_assignment(env, of->limiter, policy, ids[at].bytes, ids[at].len, &made);
        if (status == TOLLGATE_STATUS_OK) {
            term agent = make_text(env, (const char *)ids[at].bytes, ids[at].len);
            all = enif_make_list_cell(env, enif_make_tuple2(env, agent, made), all);
        }
    }
    enif_free(ids);
    tollgate_policy_free(policy);
    return status == TOLLGATE_STATUS_OK ? all : failed(env, status, NULL, atom_nil);
}

/* What reading an assignment comes to. `refusal` is an answer, for a lane or a limit that is not one. */
typedef enum { READ, REFUSED, RAISED } reading;

static reading read_override(ErlNifEnv *env, const instance *of, term given, tollgate_override *override, term *refusal)
{
    const term *part;
    int arity;
    ErlNifBinary lane, limit;
    char message[TOLLGATE_ERROR_MESSAGE_BYTES];
    if (!enif_get_tuple(env, given, &arity, &part) || arity != 2 || !enif_inspect_binary(env, part[0], &lane)
        || !enif_inspect_binary(env, part[1], &limit)) {
        bad_argument(env, "%.200T is not a pair of a lane and a limit", given);
        return RAISED;
    }
    if (tollgate_limiter_lane(of->limiter, (const char *)lane.data, lane.size, &override->lane) != TOLLGATE_STATUS_OK) {
        enif_snprintf(message, sizeof message, "the policy has no lane %.100T", part[0]);
        *refusal = make_refusal(env, atom_unknown_lane, message);
        return REFUSED;
    }
    if (limit.size >= sizeof override->limit || memchr(limit.data, 0, limit.size) != NULL) {
        enif_snprintf(message, sizeof message, "%.100T is not a limit", part[1]);
        *refusal = make_refusal(env, atom_bad_limit, message);
        return REFUSED;
    }
    memcpy(override->limit, limit.data, limit.size);
    override->limit[limit.size] = 0;
    return READ;
}

/* {agent, {plan | nil, [{lane, limit}], exempt}} */
static reading read_assignment(ErlNifEnv *env, const instance *of, term given, tollgate_assignment_entry *entry,
    tollgate_override overrides[TOLLGATE_LANES_MAX], term *refusal)
{
    const term *named, *part;
    int arity;
    ErlNifBinary id;
    if (!enif_get_tuple(env, given, &arity, &named) || arity != 2 || !enif_inspect_binary(env, named[0], &id)
        || !enif_get_tuple(env, named[1], &arity, &part) || arity != 3) {
        bad_argument(env, "%.200T is not an agent and its assignment", given);
        return RAISED;
    }
    if (id.size == 0 || id.size > TOLLGATE_ID_BYTES_MAX) {
        bad_agent(env, named[0]);
        return RAISED;
    }
    *entry = (tollgate_assignment_entry){
        .id = id.data, .id_len = id.size, .overrides = overrides, .exempt = part[2] == atom_true};
    if (!read_plan(env, of, part[0], &entry->plan)) {
        return RAISED;
    }
    term rest = part[1], override;
    while (enif_get_list_cell(env, rest, &override, &rest)) {
        if (entry->override_count == TOLLGATE_LANES_MAX) {
            bad_argument(env, "an agent has an override for each lane at most, got: %.200T", part[1]);
            return RAISED;
        }
        reading read = read_override(env, of, override, &overrides[entry->override_count++], refusal);
        if (read != READ) {
            return read;
        }
    }
    if (!enif_is_empty_list(env, rest)) {
        bad_argument(env, "overrides have to be a list, got: %.200T", part[1]);
        return RAISED;
    }
    return READ;
}

/* (reference, [{agent, assignment}]): all of them at once, or none */
NIF(nif_set_assignments)
{
    instance *of;
    unsigned count;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    if (!enif_get_list_length(env, argv[1], &count)) {
        return bad_argument(env, "assignments have to be a list, got: %.200T", argv[1]);
    }
    size_t room = count == 0 ? 1 : count;
    tollgate_assignment_entry *entries = enif_alloc(room * sizeof *entries);
    /* Few agents have overrides, and an array for each of them would be large: they share one. */
    tollgate_override *overrides = NULL;
    size_t used = 0, size = 0;
    reading read = READ;
    term rest = argv[1], given = atom_nil, refusal = atom_nil;
    for (unsigned at = 0; read == READ && at < count && enif_get_list_cell(env, rest, &given, &rest); at++) {
        tollgate_override own[TOLLGATE_LANES_MAX];
        read = read_assignment(env, of, given, &entries[at], own, &refusal);
        if (read == READ && used + entries[at].override_count > size) {
            size = 2 * size + TOLLGATE_LANES_MAX;
            overrides = enif_realloc(overrides, size * sizeof *overrides);
        }
        if (read == READ && entries[at].override_count > 0) {
            memcpy(&overrides[used], own, entries[at].override_count * sizeof *own);
            used += entries[at].override_count;
        }
    }
    term answer = refusal;
    if (read == READ) {
        /* The shared array does not move any more. */
        tollgate_error error = {.struct_size = sizeof error};
        for (size_t at = 0, next = 0; at < count; next += entries[at++].override_count) {
            entries[at].overrides = entries[at].override_count == 0 ? NULL : &overrides[next];
        }
        answer = done(env, tollgate_set_assignments(of->limiter, entries, count, &error), &error, argv[1]);
    }
    enif_free(entries);
    enif_free(overrides);
    return answer;
}

/* (reference, path): decisions are in this file from now on */
NIF(nif_keep_assignments_in)
{
    instance *of;
    ErlNifBinary path;
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_instance(env, argv[0], &of) || !read_text(env, argv[1], "a path", &path)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_keep_assignments_in(of->limiter, (const char *)path.data, path.size, &error);
    return done(env, status, &error, atom_nil);
}

/* (reference): saves what other VMs have decided, and reads the file again if it was edited */
NIF(nif_reload_assignments)
{
    instance *of;
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    return done(env, tollgate_reload_assignments(of->limiter, &error), &error, atom_nil);
}

/* (reference, policy) */
NIF(nif_replace_policy)
{
    instance *of;
    tollgate_policy *policy = NULL;
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_instance(env, argv[0], &of) || !read_policy(env, argv[1], &policy)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_replace_policy(of->limiter, policy, &error);
    tollgate_policy_free(policy);
    return done(env, status, &error, atom_nil);
}

/* What the file or the system refused is for the caller to handle: {:error, message}. */
static term file_failed(ErlNifEnv *env, tollgate_status status, const tollgate_error *error)
{
    return status == TOLLGATE_STATUS_FILE || status == TOLLGATE_STATUS_NO_FILE
        ? enif_make_tuple2(env, atom_error, make_text(env, error->message, strlen(error->message)))
        : failed(env, status, error, atom_nil);
}

/* (reference, path) -> {loaded, ended, unknown, full, ahead_ns} | {:error, message} */
NIF(nif_keep_budgets_in)
{
    instance *of;
    ErlNifBinary path;
    tollgate_budgets_loaded kept = {.struct_size = sizeof kept};
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_instance(env, argv[0], &of) || !read_text(env, argv[1], "a path", &path)) {
        return atom_nil;
    }
    tollgate_status status
        = tollgate_keep_budgets_in(of->limiter, (const char *)path.data, path.size, &error, &kept);
    return status != TOLLGATE_STATUS_OK ? file_failed(env, status, &error)
        : enif_make_tuple5(env, enif_make_uint64(env, kept.loaded), enif_make_uint64(env, kept.ended),
            enif_make_uint64(env, kept.unknown), enif_make_uint64(env, kept.full),
            enif_make_uint64(env, kept.ahead_ns));
}

/* (reference) -> {saved, unsaved} | {:error, message} */
NIF(nif_save_budgets)
{
    instance *of;
    tollgate_budgets_saved kept = {.struct_size = sizeof kept};
    tollgate_error error = {.struct_size = sizeof error};
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_save_budgets(of->limiter, &error, &kept);
    return status != TOLLGATE_STATUS_OK ? file_failed(env, status, &error)
        : enif_make_tuple2(env, enif_make_uint64(env, kept.saved), enif_make_uint64(env, kept.unsaved));
}
