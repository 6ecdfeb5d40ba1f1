/* Answers, as the objects that vectors expect. */
#ifndef VECTORS_ANSWERS_H
#define VECTORS_ANSWERS_H

#include "vectors_json.h"

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
        set(answer, "whole_seconds_ms", integer(tollgate_wait_ms(verdict->retry_after_ns, 1000, 60000)));
    }
}

/* A denial that counts also has its violation. The step of the curve by itself is not part of a verdict. */
static void set_counted(json_t *answer, const tollgate_verdict *verdict)
{
    set_verdict(answer, verdict);
    if (verdict->decision == TOLLGATE_DECISION_DENY) {
        set(answer, "wait_ns", integer(verdict->conduct_wait_ns));
        set(answer, "in_a_row", integer(verdict->violations_in_a_row));
        set(answer, "sustained_abuse", json_boolean(verdict->sustained_abuse));
        set(answer, "lane_wait_ns", unless_never(verdict->lane_wait_ns));
    }
}

static void set_state(json_t *answer, const tollgate_lane_state *state)
{
    set(answer, "exempt", json_boolean(state->exempt));
    if (state->exempt)
        return;
    set(answer, "remaining", integer(state->remaining));
    set(answer, "capacity", integer(state->capacity));
    set(answer, "next_in_ns", unless_never(state->next_in_ns));
    set(answer, "full_in_ns", integer(state->full_in_ns));
}

static tollgate_status set_assignment(tollgate_limiter *limiter, const id_bytes *id, json_t *answer)
{
    tollgate_assignment_state assignment = SIZED(tollgate_assignment_state);
    tollgate_override overrides[TOLLGATE_LANES_MAX];
    tollgate_status status =
        tollgate_assignment(limiter, id->bytes, id->len, &assignment, overrides, TOLLGATE_LANES_MAX);
    if (status != TOLLGATE_STATUS_OK)
        return status;
    tollgate_policy *policy = NULL;
    char name[TOLLGATE_NAME_BYTES_MAX + 1] = "";
    size_t len = 0;
    json_t *list = json_array();
    REQUIRE_OK(tollgate_limiter_policy(limiter, &policy));
    if (assignment.plan != TOLLGATE_NONE)
        REQUIRE_OK(tollgate_policy_plan_name(policy, assignment.plan, name, sizeof name, &len));
    set(answer, "plan", assignment.plan != TOLLGATE_NONE ? json_string(name) : json_null());
    for (uint32_t i = 0; i < assignment.override_count; i++) {
        REQUIRE_OK(tollgate_policy_lane_name(policy, overrides[i].lane, name, sizeof name, &len));
        json_array_append_new(list, json_pack("[s, s]", name, overrides[i].limit));
    }
    set(answer, "overrides", list);
    set(answer, "exempt", json_boolean(assignment.exempt));
    tollgate_policy_free(policy);
    return status;
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
        { TOLLGATE_STATUS_NO_LIMIT, "no_limit" },
        { TOLLGATE_STATUS_LIMIT_GIVEN, "limit_given" },
        { TOLLGATE_STATUS_LIMITS_DIFFER, "limits_differ" },
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

#endif
