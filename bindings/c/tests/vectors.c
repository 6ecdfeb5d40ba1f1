/*
 * Runs tests/vectors through the C ABI: vectors FILE... The README beside the
 * vectors defines every field. Needs jansson, for tests alone.
 */
#include "expect.h"

#include <jansson.h>
#include <stdarg.h>

/* Where we are, for whoever reads what went wrong. */
static const char *file_name = "?", *case_name = "?";
static size_t step_number;

static _Noreturn void fail(const char *format, ...)
{
    fprintf(stderr, "%s: case \"%s\", step %zu: ", file_name, case_name, step_number);
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

/* --- What is read from JSON. A field that nobody asked for is a mistake. */

typedef struct fields {
    json_t *object;
    size_t used;
} fields;

static json_t *optional(fields *from, const char *name)
{
    json_t *value = json_object_get(from->object, name);
    from->used += value != NULL;
    return value;
}

static json_t *get(fields *from, const char *name)
{
    json_t *value = optional(from, name);
    if (value == NULL)
        fail("%s is missing", name);
    return value;
}

/* Each field is asked for once, so counting them is enough. */
static void all_used(const fields *from)
{
    if (from->used != json_object_size(from->object))
        fail("a field means nothing here: %s", json_dumps(from->object, 0));
}

static uint64_t number_of(const json_t *value, const char *name)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= INT64_C(1) << 53)
        fail("%s is not a whole number from 0 to 2^53 - 1", name);
    return (uint64_t)json_integer_value(value);
}

static uint64_t number(fields *from, const char *name, uint64_t otherwise)
{
    json_t *value = optional(from, name);
    return value != NULL ? number_of(value, name) : otherwise;
}

/* Its address and its length, as two arguments. */
#define TEXT(value) json_string_value(value), json_string_length(value)

static json_t *text(fields *from, const char *name)
{
    json_t *value = get(from, name);
    if (!json_is_string(value))
        fail("%s is not a string", name);
    return value;
}

static bool flag(fields *from, const char *name)
{
    json_t *value = optional(from, name);
    if (value != NULL && !json_is_boolean(value))
        fail("%s is neither true nor false", name);
    return json_is_true(value);
}

typedef struct id_bytes {
    char bytes[512];
    size_t len;
} id_bytes;

static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static id_bytes id_of(const json_t *value)
{
    id_bytes id = { { 0 }, 0 };
    const json_t *base64 = json_object_get(value, "base64");
    if (json_is_string(value)) {
        id.len = json_string_length(value);
        if (id.len > sizeof id.bytes)
            fail("an id that is longer than any vector needs");
        memcpy(id.bytes, json_string_value(value), id.len);
    } else if (json_is_string(base64)) {
        uint32_t bits = 0, count = 0;
        for (const char *digit = json_string_value(base64); *digit != 0 && *digit != '='; digit++) {
            const char *place = strchr(BASE64, *digit);
            if (place == NULL || id.len == sizeof id.bytes)
                fail("not base64");
            bits = bits << 6 | (uint32_t)(place - BASE64);
            if ((count += 6) >= 8)
                id.bytes[id.len++] = (char)(bits >> (count -= 8) & 0xff);
        }
    } else {
        fail("not an agent");
    }
    return id;
}

static id_bytes agent(fields *from)
{
    return id_of(get(from, "agent"));
}

/* A string if it is UTF-8, else base64. */
static json_t *id_value(const char *id, size_t len)
{
    json_t *value = json_stringn(id, len);
    if (value != NULL)
        return value;
    char base64[512];
    size_t written = 0;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < len ? (unsigned char)id[i + j] : 0u);
        for (size_t j = 0; j < 4; j++)
            base64[written++] = i + j <= len ? BASE64[bits >> (18 - 6 * j) & 63] : '=';
    }
    return json_pack("{s:s%}", "base64", base64, written);
}

/* --- Policies. A status other than OK is a policy that makes no sense. */

static tollgate_status add_limits(tollgate_policy_builder *builder, json_t *plan, json_t *limits)
{
    size_t index;
    json_t *pair;
    json_array_foreach(limits, index, pair) {
        json_t *lane = json_array_get(pair, 0), *limit = json_array_get(pair, 1);
        if (!json_is_string(lane) || !json_is_string(limit))
            fail("not a pair of a lane and a limit");
        if (plan == NULL)
            REQUIRE_OK(tollgate_policy_builder_lane(builder, TEXT(lane), TEXT(limit)));
        else
            REQUIRE_OK(tollgate_policy_builder_plan_lane(builder, TEXT(plan), TEXT(lane), TEXT(limit)));
    }
    return TOLLGATE_STATUS_OK;
}

static void add_conduct(tollgate_policy_builder *builder, json_t *object)
{
    fields from = { object, 0 };
    tollgate_conduct_rules rules = conduct_rules_new();
    json_t *curve = optional(&from, "curve_ms"), *step;
    size_t index;
    json_array_foreach(curve, index, step) {
        if (index >= TOLLGATE_CURVE_STEPS_MAX)
            fail("a curve that is longer than any vector needs");
        rules.curve_ns[index] = number_of(step, "curve_ms") * 1000000;
        rules.curve_steps++;
    }
    rules.quiet_ns = number(&from, "quiet_ms", 0) * 1000000;
    rules.abuse_violations = (uint32_t)number(&from, "abuse_violations", 0);
    rules.abuse_window_ns = number(&from, "abuse_within_ms", 0) * 1000000;
    rules.every_denial = flag(&from, "every_denial");
    rules.enforce_wait = flag(&from, "enforce_wait");
    all_used(&from);
    REQUIRE_OK(tollgate_policy_builder_conduct(builder, &rules));
}

static tollgate_status make_policy(json_t *object, tollgate_policy **policy)
{
    fields from = { object, 0 };
    json_t *value, *item;
    size_t index;
    if ((value = optional(&from, "preset")) != NULL || (value = optional(&from, "toml")) != NULL) {
        all_used(&from);
        bool preset = json_object_get(object, "preset") != NULL;
        return preset ? tollgate_policy_preset(TEXT(value), policy, NULL)
                      : tollgate_policy_from_toml(TEXT(value), policy, NULL);
    }
    tollgate_policy_builder *builder = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    add_limits(builder, NULL, get(&from, "lanes"));
    json_t *plans = optional(&from, "plans"), *actions = optional(&from, "actions");
    json_array_foreach(plans, index, item) {
        fields plan = { item, 0 };
        json_t *name = text(&plan, "name");
        REQUIRE_OK(tollgate_policy_builder_plan(builder, TEXT(name)));
        add_limits(builder, name, get(&plan, "limits"));
        all_used(&plan);
    }
    json_array_foreach(actions, index, item) {
        fields tier = { item, 0 };
        json_t *channel = text(&tier, "channel"), *of = text(&tier, "tier"), *names = get(&tier, "names"), *name;
        size_t place;
        json_array_foreach(names, place, name)
            REQUIRE_OK(tollgate_policy_builder_action(builder, TEXT(channel), TEXT(of), TEXT(name)));
        all_used(&tier);
    }
    if ((value = optional(&from, "unknown_actions_to")) != NULL)
        REQUIRE_OK(tollgate_policy_builder_unknown_actions_to(builder, TEXT(value)));
    json_t *outside = optional(&from, "outside_total");
    json_array_foreach(outside, index, item)
        REQUIRE_OK(tollgate_policy_builder_outside_total(builder, TEXT(item)));
    if ((value = optional(&from, "warn_below_percent")) != NULL)
        REQUIRE_OK(tollgate_policy_builder_warn_below_percent(builder, (uint32_t)number_of(value, "warn_below_percent")));
    if ((value = optional(&from, "on_change")) != NULL)
        REQUIRE_OK(tollgate_policy_builder_on_change(builder, strcmp(json_string_value(value), "reset") == 0
                                                                  ? TOLLGATE_ON_CHANGE_RESET
                                                                  : TOLLGATE_ON_CHANGE_KEEP_DEBT));
    if ((value = optional(&from, "conduct")) != NULL)
        add_conduct(builder, value);
    all_used(&from);
    tollgate_status status = tollgate_policy_builder_build(builder, policy, NULL);
    tollgate_policy_builder_free(builder);
    return status;
}

/* --- Answers, as the objects that vectors expect. */

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *unless_never(uint64_t value)
{
    return value == TOLLGATE_NEVER ? json_null() : integer(value);
}

static void set(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) != 0)
        fail("no memory");
}

static const char *const DECISIONS[] = { "deny", "allow", "warn", "exempt" };

static void set_verdict(json_t *answer, const tollgate_verdict *verdict)
{
    set(answer, "decision", json_string(DECISIONS[verdict->decision]));
    if (verdict->decision == TOLLGATE_DECISION_EXEMPT)
        return;
    set(answer, "remaining", integer(tollgate_verdict_remaining(verdict)));
    set(answer, "capacity", integer(verdict->capacity));
    set(answer, "full_in_ns", integer(verdict->full_in_ns));
    if (verdict->decision == TOLLGATE_DECISION_DENY) {
        set(answer, "retry_after_ns", unless_never(verdict->retry_after_ns));
        set(answer, "hub_retry_after_ms", integer(tollgate_hub_retry_after_ms(verdict->retry_after_ns)));
    }
}

static void set_violation(json_t *answer, uint64_t step, uint64_t wait, uint32_t consecutive, uint32_t abuse)
{
    set(answer, "step_ns", integer(step));
    set(answer, "wait_ns", integer(wait));
    set(answer, "consecutive", integer(consecutive));
    set(answer, "sustained_abuse", json_boolean(abuse));
}

static void set_admission(json_t *answer, const tollgate_admission *told)
{
    tollgate_verdict verdict = verdict_new();
    verdict.decision = told->decision;
    verdict.capacity = told->capacity;
    verdict.retry_after_ns = told->retry_after_ns;
    verdict.full_in_ns = told->full_in_ns;
    verdict.token_ns = told->token_ns;
    set_verdict(answer, &verdict);
    if (told->decision == TOLLGATE_DECISION_DENY) {
        set_violation(answer, told->step_ns, told->wait_ns, told->consecutive, told->sustained_abuse);
        set(answer, "lane_retry_after_ns", unless_never(told->lane_retry_after_ns));
    }
}

static void set_status(json_t *answer, const tollgate_lane_status *status)
{
    set(answer, "exempt", json_boolean(status->exempt));
    if (status->exempt)
        return;
    set(answer, "remaining", integer(status->remaining));
    set(answer, "capacity", integer(status->capacity));
    set(answer, "next_in_ns", unless_never(status->next_in_ns));
    set(answer, "full_in_ns", integer(status->full_in_ns));
}

static void set_assignment(json_t *answer, const tollgate_assignment *assignment)
{
    char lane[256], limit[256];
    size_t len = 0, count = 0;
    bool exempt = false;
    json_t *overrides = json_array();
    REQUIRE_OK(tollgate_assignment_plan(assignment, lane, sizeof lane, &len));
    set(answer, "plan", len > 0 ? json_string(lane) : json_null());
    REQUIRE_OK(tollgate_assignment_override_count(assignment, &count));
    for (size_t i = 0; i < count; i++) {
        REQUIRE_OK(tollgate_assignment_override_lane(assignment, i, lane, sizeof lane, &len));
        REQUIRE_OK(tollgate_assignment_override_limit(assignment, i, limit, sizeof limit, &len));
        json_array_append_new(overrides, json_pack("[s, s]", lane, limit));
    }
    set(answer, "overrides", overrides);
    REQUIRE_OK(tollgate_assignment_exempt(assignment, &exempt));
    set(answer, "exempt", json_boolean(exempt));
}

static const char *error_name(tollgate_status status)
{
    static const struct {
        tollgate_status status;
        const char *name;
    } errors[] = {
        { TOLLGATE_STATUS_EMPTY_ID, "empty_id" },
        { TOLLGATE_STATUS_ID_TOO_LONG, "id_too_long" },
        { TOLLGATE_STATUS_UNKNOWN_LANE, "unknown_lane" },
        { TOLLGATE_STATUS_UNKNOWN_PLAN, "unknown_plan" },
        { TOLLGATE_STATUS_ZERO_COST, "zero_cost" },
        { TOLLGATE_STATUS_COST_ABOVE_CAPACITY, "cost_above_capacity" },
        { TOLLGATE_STATUS_FULL, "full" },
        { TOLLGATE_STATUS_INVALID_LIMIT, "bad_limit" },
        { TOLLGATE_STATUS_INVALID_POLICY, "bad_policy" },
        { TOLLGATE_STATUS_UNKNOWN_PRESET, "bad_policy" },
        { TOLLGATE_STATUS_OTHER_LANES, "other_lanes" },
        { TOLLGATE_STATUS_PLAN_MISSING, "plan_missing" },
        { TOLLGATE_STATUS_NOT_HELD, "not_held" },
        { TOLLGATE_STATUS_WRONG_KIND, "wrong_kind" },
        { TOLLGATE_STATUS_PARTS, "parts" },
        { TOLLGATE_STATUS_RESERVATIONS_FULL, "reservations_full" },
        { TOLLGATE_STATUS_TOO_MANY_RESERVATIONS, "too_many_reservations" },
        { TOLLGATE_STATUS_USED_TOO_LARGE, "used_too_large" },
        { TOLLGATE_STATUS_UNKNOWN_RESERVATION, "unknown_reservation" },
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].status == status)
            return errors[i].name;
    fail("%s", tollgate_status_text(status));
}

/* --- Calls. */

/* A lane or a plan, by name or by number. */
static uint32_t numbered(fields *step, const char *name, tollgate_limiter *limiter,
                         tollgate_status (*find)(const tollgate_limiter *, const char *, size_t, uint32_t *))
{
    json_t *value = get(step, name);
    uint32_t found = 0;
    if (!json_is_string(value))
        return (uint32_t)number_of(value, name);
    if (find(limiter, TEXT(value), &found) != TOLLGATE_STATUS_OK)
        fail("there is no %s \"%s\"", name, json_string_value(value));
    return found;
}

#define LANE numbered(step, "lane", limiter, tollgate_limiter_lane)
#define PLAN numbered(step, "plan", limiter, tollgate_limiter_plan)
#define COST number(step, "cost", 1)

static tollgate_status assignable(tollgate_limiter *limiter, fields *step, json_t *answer)
{
    static id_bytes ids[64];
    tollgate_id given[64];
    bool may[64];
    size_t index, count = 0;
    json_t *value, *agents = get(step, "agents"), *list = json_array();
    json_array_foreach(agents, index, value) {
        if (index >= 64)
            fail("more agents than any vector needs");
        ids[index] = id_of(value);
        given[index] = (tollgate_id){ ids[index].bytes, ids[index].len };
        count++;
    }
    tollgate_status status = tollgate_limiter_assignable(limiter, given, count, may);
    for (size_t i = 0; i < count; i++)
        if (status == TOLLGATE_STATUS_OK && may[i])
            json_array_append_new(list, id_value(ids[i].bytes, ids[i].len));
    set(answer, "agents", list);
    return status;
}

/* Reservations by the names that the case gives them. */
static json_t *reservations;

/* The number of a reservation; one that nobody was given if it has no name. */
static uint64_t reservation(fields *step)
{
    const json_t *known = json_object_get(reservations, json_string_value(text(step, "reservation")));
    return known != NULL ? (uint64_t)json_integer_value(known) : UINT64_MAX;
}

static tollgate_status reserve(tollgate_limiter *limiter, fields *step, json_t *answer)
{
    const id_bytes id = agent(step);
    tollgate_verdict verdict = verdict_new();
    uint64_t made = 0, estimate = number_of(get(step, "estimate"), "estimate");
    uint64_t ttl = number_of(get(step, "ttl_ms"), "ttl_ms") * 1000000;
    json_t *name = text(step, "reservation");
    tollgate_status status =
        tollgate_limiter_reserve(limiter, id.bytes, id.len, LANE, estimate, ttl, &verdict, &made);
    if (status != TOLLGATE_STATUS_OK)
        return status;
    set_verdict(answer, &verdict);
    if (verdict.decision != TOLLGATE_DECISION_DENY)
        set(reservations, json_string_value(name), integer(made));
    return status;
}

static tollgate_status settle(tollgate_limiter *limiter, fields *step, json_t *answer,
                              tollgate_status (*call)(tollgate_limiter *, uint64_t, uint64_t, tollgate_settlement *))
{
    tollgate_settlement settled;
    memset(&settled, 0, sizeof settled);
    settled.struct_size = sizeof settled;
    tollgate_status status = call != NULL
        ? call(limiter, reservation(step), number_of(get(step, "used"), "used"), &settled)
        : tollgate_limiter_cancel(limiter, reservation(step), &settled);
    set(answer, "unused", integer(settled.unused));
    set(answer, "overspent", integer(settled.overspent));
    set(answer, "left", integer(settled.left));
    return status;
}

static tollgate_status all_or_none(tollgate_limiter *limiter, fields *step, json_t *answer, bool admit)
{
    static id_bytes ids[TOLLGATE_PARTS_MAX];
    tollgate_request requests[TOLLGATE_PARTS_MAX];
    tollgate_answer answers[TOLLGATE_PARTS_MAX];
    tollgate_all_verdict verdict;
    memset(&verdict, 0, sizeof verdict);
    verdict.struct_size = sizeof verdict;
    size_t index, count = 0;
    json_t *value, *parts = get(step, "parts"), *decisions = json_array(), *blocking = json_array();
    json_array_foreach(parts, index, value) {
        if (index >= TOLLGATE_PARTS_MAX)
            fail("more parts than any vector needs");
        fields part = { value, 0 };
        ids[index] = agent(&part);
        requests[index].id = ids[index].bytes;
        requests[index].id_len = ids[index].len;
        requests[index].lane = numbered(&part, "lane", limiter, tollgate_limiter_lane);
        requests[index].cost = number(&part, "cost", 1);
        all_used(&part);
        count++;
    }
    tollgate_status status = admit ? tollgate_limiter_admit_all(limiter, requests, count, answers, &verdict)
                                   : tollgate_limiter_check_all(limiter, requests, count, answers, &verdict);
    for (size_t i = 0; status == TOLLGATE_STATUS_OK && i < count; i++) {
        json_array_append_new(decisions, json_string(DECISIONS[answers[i].decision]));
        if ((verdict.blocking >> i & 1) != 0)
            json_array_append_new(blocking, integer(i));
    }
    set(answer, "decisions", decisions);
    set(answer, "blocking", blocking);
    if (status == TOLLGATE_STATUS_OK)
        set(answer, "decision", json_string(DECISIONS[verdict.decision]));
    if (verdict.decision == TOLLGATE_DECISION_DENY)
        set(answer, "retry_after_ns", unless_never(verdict.retry_after_ns));
    return status;
}

static tollgate_status lane_for(tollgate_limiter *limiter, fields *step, json_t *answer)
{
    json_t *channel = text(step, "channel"), *action = text(step, "action");
    tollgate_action_lane lane = action_lane_new();
    tollgate_status status = tollgate_limiter_lane_for(limiter, TEXT(channel), TEXT(action), &lane);
    if (status != TOLLGATE_STATUS_OK) {
        set(answer, "lane", json_null());
        return status == TOLLGATE_STATUS_UNKNOWN_LANE ? TOLLGATE_STATUS_OK : status;
    }
    tollgate_policy *policy = NULL;
    char name[TOLLGATE_NAME_BYTES_MAX + 1];
    size_t len = 0;
    REQUIRE_OK(tollgate_limiter_policy(limiter, &policy));
    REQUIRE_OK(tollgate_policy_lane_name(policy, lane.lane, name, sizeof name, &len));
    tollgate_policy_free(policy);
    set(answer, "lane", json_string(name));
    set(answer, "known", json_boolean(lane.known));
    set(answer, "first_seen", json_boolean(lane.first_seen));
    return status;
}

static tollgate_status unknown_actions(tollgate_limiter *limiter, json_t *answer)
{
    tollgate_unknown_actions *actions = NULL;
    uint64_t total = 0, not_listed = 0;
    size_t count = 0, len = 0;
    char channel[TOLLGATE_NAME_BYTES_MAX + 1], name[TOLLGATE_NAME_BYTES_MAX + 1];
    json_t *names = json_array();
    REQUIRE_OK(tollgate_limiter_unknown_actions(limiter, &actions));
    REQUIRE_OK(tollgate_unknown_actions_total(actions, &total));
    REQUIRE_OK(tollgate_unknown_actions_not_listed(actions, &not_listed));
    REQUIRE_OK(tollgate_unknown_actions_count(actions, &count));
    for (size_t i = 0; i < count; i++) {
        REQUIRE_OK(tollgate_unknown_actions_channel(actions, i, channel, sizeof channel, &len));
        REQUIRE_OK(tollgate_unknown_actions_name(actions, i, name, sizeof name, &len));
        json_array_append_new(names, json_pack("[s, s]", channel, name));
    }
    tollgate_unknown_actions_free(actions);
    set(answer, "total", integer(total));
    set(answer, "not_listed", integer(not_listed));
    set(answer, "names", names);
    return TOLLGATE_STATUS_OK;
}

static tollgate_status assignments(tollgate_limiter *limiter, json_t *answer)
{
    tollgate_assignments *all = NULL;
    size_t count = 0, len = 0;
    char id[TOLLGATE_ID_BYTES_MAX];
    json_t *list = json_array();
    REQUIRE_OK(tollgate_limiter_assignments(limiter, &all));
    REQUIRE_OK(tollgate_assignments_count(all, &count));
    for (size_t i = 0; i < count; i++) {
        REQUIRE_OK(tollgate_assignments_id(all, i, id, sizeof id, &len));
        json_array_append_new(list, id_value(id, len));
    }
    tollgate_assignments_free(all);
    set(answer, "agents", list);
    return TOLLGATE_STATUS_OK;
}

/* Makes the call, and fills in the answer if it succeeds. */
static tollgate_status run_call(tollgate_limiter *limiter, const char *op, fields *step, json_t *answer)
{
    tollgate_verdict verdict = verdict_new();
    tollgate_admission admission = admission_new();
    tollgate_violation violation = violation_new();
    tollgate_conduct conduct = conduct_new();
    tollgate_lane_status lane_status = lane_status_new();
    tollgate_status status;
    bool yes = false;
#define IS(name) (strcmp(op, name) == 0)
    if (IS("assignments"))
        return assignments(limiter, answer);
    if (IS("unknown_actions"))
        return unknown_actions(limiter, answer);
    if (IS("assignable"))
        return assignable(limiter, step, answer);
    if (IS("lane_for"))
        return lane_for(limiter, step, answer);
    if (IS("check_all") || IS("admit_all"))
        return all_or_none(limiter, step, answer, IS("admit_all"));
    if (IS("reserve"))
        return reserve(limiter, step, answer);
    if (IS("commit") || IS("commit_part"))
        return settle(limiter, step, answer, IS("commit") ? tollgate_limiter_commit : tollgate_limiter_commit_part);
    if (IS("cancel"))
        return settle(limiter, step, answer, NULL);
    if (IS("extend"))
        return tollgate_limiter_extend(limiter, reservation(step), number_of(get(step, "ttl_ms"), "ttl_ms") * 1000000);
    if (IS("sweep")) {
        uint64_t swept = 0;
        status = tollgate_limiter_sweep(limiter, number_of(get(step, "idle_for_ms"), "idle_for_ms") * 1000000, &swept);
        set(answer, "swept", integer(swept));
        return status;
    }
    if (IS("replace_policy")) {
        tollgate_policy *policy = NULL;
        status = make_policy(get(step, "policy"), &policy);
        if (status == TOLLGATE_STATUS_OK)
            status = tollgate_limiter_replace_policy(limiter, policy, NULL);
        tollgate_policy_free(policy);
        return status;
    }
    const id_bytes made = agent(step);
    const char *id = made.bytes;
    const size_t len = made.len;
    if (IS("check")) {
        status = tollgate_limiter_check(limiter, id, len, LANE, COST, &verdict);
        if (status == TOLLGATE_STATUS_OK)
            set_verdict(answer, &verdict);
        return status;
    }
    if (IS("check_as")) {
        uint32_t plan = PLAN;
        status = tollgate_limiter_check_as(limiter, id, len, plan, LANE, COST, &verdict);
        if (status == TOLLGATE_STATUS_OK)
            set_verdict(answer, &verdict);
        return status;
    }
    if (IS("admit") || IS("admit_as")) {
        uint32_t plan = IS("admit_as") ? PLAN : 0;
        status = IS("admit") ? tollgate_limiter_admit(limiter, id, len, LANE, COST, &admission)
                             : tollgate_limiter_admit_as(limiter, id, len, plan, LANE, COST, &admission);
        if (status == TOLLGATE_STATUS_OK)
            set_admission(answer, &admission);
        return status;
    }
    if (IS("acquire")) {
        status = tollgate_limiter_acquire(limiter, id, len, LANE, &verdict);
        if (status == TOLLGATE_STATUS_OK)
            set_verdict(answer, &verdict);
        return status;
    }
    if (IS("status") || IS("refund") || IS("release")) {
        status = IS("status")   ? tollgate_limiter_status(limiter, id, len, LANE, &lane_status)
                 : IS("refund") ? tollgate_limiter_refund(limiter, id, len, LANE, COST, &lane_status)
                                : tollgate_limiter_release(limiter, id, len, LANE, &lane_status);
        if (status == TOLLGATE_STATUS_OK)
            set_status(answer, &lane_status);
        return status;
    }
    if (IS("reset"))
        return tollgate_limiter_reset(limiter, id, len);
    if (IS("reset_lane"))
        return tollgate_limiter_reset_lane(limiter, id, len, LANE);
    if (IS("forget") || IS("reset_violations")) {
        status = IS("forget") ? tollgate_limiter_forget(limiter, id, len, &yes)
                              : tollgate_limiter_reset_violations(limiter, id, len, &yes);
        set(answer, "known", json_boolean(yes));
        return status;
    }
    if (IS("limit_of")) {
        char limit[256];
        size_t written = 0;
        status = tollgate_limiter_limit_of(limiter, id, len, LANE, limit, sizeof limit, &written);
        if (status == TOLLGATE_STATUS_OK)
            set(answer, "limit", written > 0 ? json_string(limit) : json_null());
        return status;
    }
    if (IS("assign"))
        return tollgate_limiter_assign(limiter, id, len, PLAN, NULL);
    if (IS("unassign"))
        return tollgate_limiter_unassign(limiter, id, len, NULL);
    if (IS("set_override")) {
        json_t *lane = text(step, "lane_or_tier"), *limit = text(step, "limit");
        return tollgate_limiter_set_override(limiter, id, len, TEXT(lane), TEXT(limit), NULL);
    }
    if (IS("remove_override")) {
        json_t *lane = text(step, "lane_or_tier");
        return tollgate_limiter_remove_override(limiter, id, len, TEXT(lane), NULL);
    }
    if (IS("remove_overrides"))
        return tollgate_limiter_remove_overrides(limiter, id, len, NULL);
    if (IS("exempt"))
        return tollgate_limiter_exempt(limiter, id, len, NULL);
    if (IS("unexempt"))
        return tollgate_limiter_unexempt(limiter, id, len, NULL);
    if (IS("is_exempt") || IS("rate_limited")) {
        status = IS("is_exempt") ? tollgate_limiter_is_exempt(limiter, id, len, &yes)
                                 : tollgate_limiter_rate_limited(limiter, id, len, &yes);
        set(answer, IS("is_exempt") ? "exempt" : "rate_limited", json_boolean(yes));
        return status;
    }
    if (IS("assignment")) {
        tollgate_assignment *assignment = NULL;
        status = tollgate_limiter_assignment(limiter, id, len, &assignment);
        if (status == TOLLGATE_STATUS_OK)
            set_assignment(answer, assignment);
        tollgate_assignment_free(assignment);
        return status;
    }
    if (IS("record_violation")) {
        status = tollgate_limiter_record_violation(limiter, id, len, &violation);
        set_violation(answer, violation.step_ns, violation.wait_ns, violation.consecutive, violation.sustained_abuse);
        return status;
    }
    if (IS("violations")) {
        status = tollgate_limiter_violations(limiter, id, len, &conduct);
        set(answer, "violations", integer(conduct.violations));
        set(answer, "consecutive", integer(conduct.consecutive));
        set(answer, "window_start_ns", unless_never(conduct.window_start_ns));
        set(answer, "last_violation_ns", unless_never(conduct.last_violation_ns));
        set(answer, "wait_ns", integer(conduct.wait_ns));
        return status;
    }
#undef IS
    fail("there is no op \"%s\"", op);
}

/* --- Steps, cases, files. */

static void run_step(tollgate_limiter *limiter, tollgate_clock *clock, json_t *object)
{
    fields step = { object, 0 };
    json_t *at_ms = optional(&step, "at_ms"), *at_ns = optional(&step, "at_ns");
    if (at_ms != NULL && at_ns != NULL)
        fail("at_ms and at_ns; give one of them");
    if (at_ms != NULL)
        REQUIRE_OK(tollgate_clock_set(clock, number_of(at_ms, "at_ms") * 1000000));
    if (at_ns != NULL)
        REQUIRE_OK(tollgate_clock_set(clock, number_of(at_ns, "at_ns")));
    uint64_t times = number(&step, "times", 1), every = number(&step, "every_ms", 0) * 1000000;
    json_t *expected = optional(&step, "expect"), *answer = NULL, *counts = json_object();
    const char *op = json_string_value(text(&step, "op"));
    const size_t used = step.used;
    if (times == 0)
        fail("times is 0");
    for (uint64_t time = 0; time < times; time++) {
        if (time > 0)
            REQUIRE_OK(tollgate_clock_advance(clock, every));
        step.used = used;
        json_decref(answer);
        answer = json_object();
        tollgate_status status = run_call(limiter, op, &step, answer);
        if (status != TOLLGATE_STATUS_OK) {
            json_object_clear(answer);
            set(answer, "error", json_string(error_name(status)));
            if (time + 1 < times)
                fail("call %" PRIu64 " was refused: %s", time + 1, error_name(status));
        }
        const char *decision = json_string_value(json_object_get(answer, "decision"));
        if (decision != NULL)
            set(counts, decision, json_integer(json_integer_value(json_object_get(counts, decision)) + 1));
    }
    all_used(&step);
    if (json_object_size(counts) > 0)
        set(answer, "counts", json_incref(counts));
    const char *name;
    json_t *value;
    bool agrees = (json_object_get(answer, "error") != NULL) == (json_object_get(expected, "error") != NULL);
    json_object_foreach(expected, name, value)
        agrees &= json_equal(value, json_object_get(answer, name));
    if (!agrees) {
        char *wanted = json_dumps(expected, JSON_SORT_KEYS), *got = json_dumps(answer, JSON_SORT_KEYS);
        fail("expected %s, got %s\n  %s", wanted != NULL ? wanted : "success", got, json_dumps(object, 0));
    }
    json_decref(counts);
    json_decref(answer);
}

static size_t run_file(const char *path)
{
    json_error_t error;
    json_t *file = json_load_file(path, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error), *object, *step;
    file_name = path;
    if (file == NULL)
        fail("line %d: %s", error.line, error.text);
    size_t steps = 0, index, number;
    fields from = { file, 0 };
    text(&from, "about");
    json_t *cases = get(&from, "cases");
    json_array_foreach(cases, index, object) {
        fields made = { object, 0 };
        step_number = 0;
        case_name = json_string_value(text(&made, "name"));
        tollgate_policy *policy = NULL;
        tollgate_status status = make_policy(get(&made, "policy"), &policy);
        if (status == TOLLGATE_STATUS_NOT_BUILT_IN) {
            printf("%s: case \"%s\" NOT RUN: this library reads no policy files\n", file_name, case_name);
            continue;
        }
        REQUIRE_OK(status);
        tollgate_clock *clock = NULL;
        tollgate_limiter *limiter = NULL;
        REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &clock));
        tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, clock);
        options.reservations = 16;
        reservations = json_object();
        REQUIRE_OK(tollgate_limiter_new(policy, &options, &limiter));
        json_t *all = get(&made, "steps");
        json_array_foreach(all, number, step) {
            step_number = number + 1;
            run_step(limiter, clock, step);
            steps++;
        }
        all_used(&made);
        json_decref(reservations);
        tollgate_limiter_free(limiter);
        tollgate_clock_free(clock);
        tollgate_policy_free(policy);
    }
    all_used(&from);
    json_decref(file);
    return steps;
}

int main(int count, char **paths)
{
    size_t steps = 0;
    for (int i = 1; i < count; i++)
        steps += run_file(paths[i]);
    printf("vectors ok: %zu steps in %d files\n", steps, count - 1);
    return count < 2 || steps == 0;
}
