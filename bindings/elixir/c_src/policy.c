/* Policies: from what Tollgate.Policy made of the options to the limiter's own. */

#include "nif.h"

#define TEXT(binary) (const char *)(binary).data, (binary).size

static term no_line(ErlNifEnv *env, term line)
{
    return bad_argument(env, "%.100T is no line of a policy", line);
}

/* {:plan, name, [{lane, limit}]} */
static bool add_plan(ErlNifEnv *env, tollgate_policy_builder *builder, const term part[], tollgate_status *status)
{
    ErlNifBinary plan, lane, limit;
    const term *pair;
    int arity;
    term rest = part[2], line;
    if (!enif_inspect_binary(env, part[1], &plan)) {
        return false;
    }
    *status = tollgate_policy_builder_plan(builder, TEXT(plan));
    while (*status == TOLLGATE_STATUS_OK && enif_get_list_cell(env, rest, &line, &rest)) {
        if (!enif_get_tuple(env, line, &arity, &pair) || arity != 2 || !enif_inspect_binary(env, pair[0], &lane)
            || !enif_inspect_binary(env, pair[1], &limit)) {
            return false;
        }
        *status = tollgate_policy_builder_plan_lane(builder, TEXT(plan), TEXT(lane), TEXT(limit));
    }
    return true;
}

/* {:actions, channel, tier, [name]} */
static bool add_actions(ErlNifEnv *env, tollgate_policy_builder *builder, const term part[], tollgate_status *status)
{
    ErlNifBinary channel, tier, name;
    term rest = part[3], action;
    *status = TOLLGATE_STATUS_OK;
    if (!enif_inspect_binary(env, part[1], &channel) || !enif_inspect_binary(env, part[2], &tier)) {
        return false;
    }
    while (*status == TOLLGATE_STATUS_OK && enif_get_list_cell(env, rest, &action, &rest)) {
        if (!enif_inspect_binary(env, action, &name)) {
            return false;
        }
        *status = tollgate_policy_builder_action(builder, TEXT(channel), TEXT(tier), TEXT(name));
    }
    return true;
}

/* {:conduct, [step_ns], quiet_ns, abuse_violations, abuse_window_ns, every_denial, enforce_wait} */
static bool add_conduct(ErlNifEnv *env, tollgate_policy_builder *builder, const term part[], tollgate_status *status)
{
    tollgate_conduct_rules rules = {.struct_size = sizeof rules};
    term rest = part[1], step;
    for (; enif_get_list_cell(env, rest, &step, &rest); rules.curve_steps++) {
        if (rules.curve_steps == TOLLGATE_CURVE_STEPS_MAX || !get_u64(env, step, &rules.curve_ns[rules.curve_steps])) {
            return false;
        }
    }
    if (!get_u64(env, part[2], &rules.quiet_ns) || !enif_get_uint(env, part[3], &rules.abuse_violations)
        || !get_u64(env, part[4], &rules.abuse_window_ns)) {
        return false;
    }
    rules.every_denial = part[5] == atom_true;
    rules.enforce_wait = part[6] == atom_true;
    *status = tollgate_policy_builder_conduct(builder, &rules);
    return true;
}

static bool add_line(ErlNifEnv *env, tollgate_policy_builder *builder, term line, term *raised)
{
    const term *part;
    int arity;
    ErlNifBinary first, second;
    unsigned number;
    bool good;
    tollgate_status status = TOLLGATE_STATUS_OK;
    if (!enif_get_tuple(env, line, &arity, &part) || arity < 2) {
        return refuse(raised, no_line(env, line));
    }
    if (part[0] == atom_lane && arity == 3) {
        good = enif_inspect_binary(env, part[1], &first) && enif_inspect_binary(env, part[2], &second);
        status = good ? tollgate_policy_builder_lane(builder, TEXT(first), TEXT(second)) : status;
    } else if (part[0] == atom_plan && arity == 3) {
        good = add_plan(env, builder, part, &status);
    } else if (part[0] == atom_actions && arity == 4) {
        good = add_actions(env, builder, part, &status);
    } else if (part[0] == atom_unknown_actions_to && arity == 2) {
        good = enif_inspect_binary(env, part[1], &first);
        status = good ? tollgate_policy_builder_unknown_actions_to(builder, TEXT(first)) : status;
    } else if (part[0] == atom_outside_total && arity == 2) {
        good = enif_inspect_binary(env, part[1], &first);
        status = good ? tollgate_policy_builder_outside_total(builder, TEXT(first)) : status;
    } else if (part[0] == atom_conduct && arity == 7) {
        good = add_conduct(env, builder, part, &status);
    } else if (part[0] == atom_on_change && arity == 2) {
        good = part[1] == atom_keep || part[1] == atom_reset;
        status = tollgate_policy_builder_on_change(builder,
            part[1] == atom_reset ? TOLLGATE_ON_CHANGE_RESET : TOLLGATE_ON_CHANGE_KEEP_DEBT);
    } else if (part[0] == atom_warn_below_percent && arity == 2) {
        good = enif_get_uint(env, part[1], &number) && number <= 100;
        status = good ? tollgate_policy_builder_warn_below_percent(builder, number) : status;
    } else {
        good = false;
    }
    if (!good) {
        return refuse(raised, no_line(env, line));
    }
    return status == TOLLGATE_STATUS_OK || refuse(raised, failed(env, status, NULL));
}

static bool build(ErlNifEnv *env, term lines, tollgate_policy **policy, term *raised)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = tollgate_policy_builder_new(&builder);
    if (status != TOLLGATE_STATUS_OK) {
        return refuse(raised, failed(env, status, NULL));
    }
    term rest = lines, line;
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

/* {:preset, name}, {:toml, text} or the lines of a policy */
bool read_policy(ErlNifEnv *env, term given, tollgate_policy **policy, term *raised)
{
    const term *part;
    int arity;
    ErlNifBinary text;
    if (!enif_get_tuple(env, given, &arity, &part)) {
        return build(env, given, policy, raised);
    }
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status;
    if (arity != 2 || !enif_inspect_binary(env, part[1], &text)) {
        return refuse(raised, no_line(env, given));
    } else if (part[0] == atom_preset) {
        status = tollgate_policy_preset(TEXT(text), policy, &error);
    } else if (part[0] == atom_toml) {
        status = tollgate_policy_from_toml(TEXT(text), policy, &error);
    } else {
        return refuse(raised, no_line(env, given));
    }
    return status == TOLLGATE_STATUS_OK || refuse(raised, failed(env, status, &error));
}
