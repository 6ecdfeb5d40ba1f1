/* Actions: which lane pays for what an agent does. */

#include "nif.h"

/* (reference, channel, action) -> {lane, tier, known, first_seen} | nil; texts */
NIF(nif_lane_for)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary channel, action;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!enif_inspect_binary(env, argv[1], &channel) || !enif_inspect_binary(env, argv[2], &action)) {
        return bad_argument(env, "a channel and an action are texts, got: %.60T and %.60T", argv[1], argv[2]);
    }
    tollgate_action_lane found = {.struct_size = sizeof found};
    tollgate_status status = tollgate_limiter_lane_for(limiter->limiter, (const char *)channel.data, channel.size,
        (const char *)action.data, action.size, &found);
    if (status == TOLLGATE_STATUS_UNKNOWN_LANE) {
        return atom_nil;
    }
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    term tier = found.lane < limiter->lanes ? limiter->lane[found.lane].tier : atom_nil;
    return enif_make_tuple4(env, enif_make_uint(env, found.lane), tier, make_bool(found.known != 0),
        make_bool(found.first_seen != 0));
}

/* (reference) -> {total, [{channel, action}], not_listed} */
NIF(nif_unknown_actions)
{
    (void)argc;
    instance *limiter;
    tollgate_unknown_actions *actions = NULL;
    uint64_t total = 0, not_listed = 0;
    size_t count = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_unknown_actions(limiter->limiter, &actions);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_unknown_actions_total(actions, &total);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_unknown_actions_not_listed(actions, &not_listed);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_unknown_actions_count(actions, &count);
    }
    term names = enif_make_list(env, 0);
    for (size_t at = count; status == TOLLGATE_STATUS_OK && at-- > 0;) {
        char channel[TOLLGATE_LANE_NAME_BYTES_MAX + 1], name[TOLLGATE_LANE_NAME_BYTES_MAX + 1];
        size_t channel_length, name_length;
        status = tollgate_unknown_actions_channel(actions, at, channel, sizeof channel, &channel_length);
        if (status == TOLLGATE_STATUS_OK) {
            status = tollgate_unknown_actions_name(actions, at, name, sizeof name, &name_length);
        }
        if (status == TOLLGATE_STATUS_OK) {
            names = enif_make_list_cell(env,
                enif_make_tuple2(env, make_text(env, channel, channel_length), make_text(env, name, name_length)), names);
        }
    }
    tollgate_unknown_actions_free(actions);
    return status == TOLLGATE_STATUS_OK
        ? enif_make_tuple3(env, enif_make_uint64(env, total), names, enif_make_uint64(env, not_listed))
        : failed(env, status, NULL);
}
