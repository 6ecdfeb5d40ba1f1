/* The policies of vectors.c, as TOML text. */
#ifndef VECTORS_POLICY_H
#define VECTORS_POLICY_H

#include "vectors_json.h"

typedef struct toml {
    char text[16384];
    size_t len;
} toml;

static void append(toml *to, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int written = vsnprintf(to->text + to->len, sizeof to->text - to->len, format, values);
    va_end(values);
    if (written < 0 || (size_t)written >= sizeof to->text - to->len)
        fail("a policy that is longer than any vector needs");
    to->len += (size_t)written;
}

/* A JSON value as TOML: strings, numbers, and lists of them are written alike. */
static void append_value(toml *to, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    append(to, "%s", text != NULL ? text : "?");
    free(text);
}

/* Dotted keys, so that no table has to be written in one place: "lanes" or "plans"."pro", and so on. */
static void append_limits(toml *to, const char *table, const json_t *plan, json_t *limits)
{
    size_t index;
    json_t *pair;
    json_array_foreach(limits, index, pair) {
        json_t *lane = json_array_get(pair, 0), *limit = json_array_get(pair, 1);
        if (!json_is_string(lane) || !json_is_string(limit))
            fail("not a pair of a lane and a limit");
        append(to, "%s.", table);
        if (plan != NULL) {
            append_value(to, plan);
            append(to, ".");
        }
        append_value(to, lane);
        append(to, " = ");
        append_value(to, limit);
        append(to, "\n");
    }
}

static void append_conduct(toml *to, json_t *object)
{
    fields from = { object, 0 };
    json_t *curve = optional(&from, "curve_ms"), *step, *value;
    size_t index;
    append(to, "conduct.curve = [");
    json_array_foreach(curve, index, step)
        append(to, "\"%" PRIu64 "ms\", ", number_of(step, "curve_ms"));
    append(to, "]\n");
    if ((value = optional(&from, "quiet_ms")) != NULL)
        append(to, "conduct.quiet = \"%" PRIu64 "ms\"\n", number_of(value, "quiet_ms"));
    if ((value = optional(&from, "abuse_violations")) != NULL)
        append(to, "conduct.abuse = { violations = %" PRIu64 ", within = \"%" PRIu64 "ms\" }\n",
               number_of(value, "abuse_violations"), number_of(get(&from, "abuse_within_ms"), "abuse_within_ms"));
    append(to, "conduct.every_denial = %s\n", flag(&from, "every_denial") ? "true" : "false");
    append(to, "conduct.enforce_wait = %s\n", flag(&from, "enforce_wait") ? "true" : "false");
    all_used(&from);
}

/* Values that the policy and the policy file call by the same name. */
static void append_same(toml *to, fields *from, const char *name)
{
    const json_t *value = optional(from, name);
    if (value == NULL)
        return;
    append(to, "%s = ", name);
    append_value(to, value);
    append(to, "\n");
}

static tollgate_status make_policy(json_t *object, tollgate_policy **policy)
{
    fields from = { object, 0 };
    json_t *value, *item;
    size_t index;
    if ((value = optional(&from, "preset")) != NULL) {
        all_used(&from);
        return tollgate_policy_preset(TEXT(value), NULL, policy);
    }
    if ((value = optional(&from, "toml")) != NULL) {
        all_used(&from);
        return tollgate_policy_from_toml(TEXT(value), NULL, policy);
    }
    toml text_of = { "", 0 };
    append_same(&text_of, &from, "outside_total");
    append_same(&text_of, &from, "unknown_actions_to");
    append_same(&text_of, &from, "warn_below_percent");
    append_same(&text_of, &from, "on_change");
    append_limits(&text_of, "lanes", NULL, get(&from, "lanes"));
    json_t *plans = optional(&from, "plans"), *actions = optional(&from, "actions");
    json_array_foreach(plans, index, item) {
        fields plan = { item, 0 };
        json_t *name = text(&plan, "name"), *limits = get(&plan, "limits");
        if (json_array_size(limits) == 0) {
            append(&text_of, "plans.");
            append_value(&text_of, name);
            append(&text_of, " = {}\n");
        }
        append_limits(&text_of, "plans", name, limits);
        all_used(&plan);
    }
    json_array_foreach(actions, index, item) {
        fields tier = { item, 0 };
        append(&text_of, "actions.");
        append_value(&text_of, text(&tier, "channel"));
        append(&text_of, ".");
        append_value(&text_of, text(&tier, "tier"));
        append(&text_of, " = ");
        append_value(&text_of, get(&tier, "names"));
        append(&text_of, "\n");
        all_used(&tier);
    }
    if ((value = optional(&from, "conduct")) != NULL)
        append_conduct(&text_of, value);
    all_used(&from);
    return tollgate_policy_from_toml(text_of.text, text_of.len, NULL, policy);
}

#endif
