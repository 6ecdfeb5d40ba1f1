/*
 * Runs tests/vectors through the C ABI: vectors FILE... The README beside the
 * vectors defines every field. Needs jansson, for tests alone.
 */
#include "vectors_answers.h"
#include "vectors_policy.h"

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

/* The limit that a request brings along; NULL for none. */
static const tollgate_call_limit *call_limit(fields *of, tollgate_call_limit *limit, tollgate_status *status)
{
    *status = TOLLGATE_STATUS_OK;
    if (!has(of, "limit"))
        return NULL;
    json_t *given = text(of, "limit");
    *status = tollgate_call_limit_read(TEXT(given), NULL, limit);
    return limit;
}

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
    tollgate_status status = tollgate_assignable(limiter, given, count, TOLLGATE_NOW, may);
    for (size_t i = 0; i < count; i++)
        if (status == TOLLGATE_STATUS_OK && may[i])
            json_array_append_new(list, id_value(ids[i].bytes, ids[i].len));
    set(answer, "agents", list);
    return status;
}

/* Reservations by the names that the case gives them. */
static json_t *reservations;

/* The number of a reservation; a made-up one if it has no name. */
static uint64_t reservation(fields *step)
{
    const json_t *known = json_object_get(reservations, json_string_value(text(step, "reservation")));
    return known != NULL ? (uint64_t)json_integer_value(known) : UINT64_MAX;
}

static tollgate_status reserve(tollgate_limiter *limiter, fields *step, json_t *answer)
{
    const id_bytes id = agent(step);
    const uint64_t estimate = number_of(get(step, "estimate"), "estimate");
    const uint64_t ttl = number_of(get(step, "ttl_ms"), "ttl_ms") * 1000000;
    json_t *name = text(step, "reservation");
    tollgate_verdict verdict;
    uint64_t made = 0;
    tollgate_request request = *REQUEST(id.bytes, id.len, LANE, estimate);
    tollgate_call_limit limit;
    tollgate_status status;
    request.limit = call_limit(step, &limit, &status);
    if (status == TOLLGATE_STATUS_OK)
        status = tollgate_reserve(limiter, &request, ttl, TOLLGATE_NOW, 0, &verdict, &made);
    if (status != TOLLGATE_STATUS_OK)
        return status;
    set_verdict(answer, &verdict);
    if (verdict.decision != TOLLGATE_DECISION_DENY)
        set(reservations, json_string_value(name), integer(made));
    return status;
}

static tollgate_status settle(tollgate_limiter *limiter, fields *step, json_t *answer)
{
    tollgate_settlement settled = SIZED(tollgate_settlement);
    const uint64_t used = number_of(get(step, "used"), "used");
    const uint32_t flags = flag(step, "so_far") ? TOLLGATE_SETTLE_SO_FAR : 0;
    tollgate_status status = tollgate_settle(limiter, reservation(step), used, TOLLGATE_NOW, flags, &settled);
    set(answer, "unused", integer(settled.unused));
    set(answer, "overspent", integer(settled.overspent));
    set(answer, "left", integer(settled.left));
    return status;
}

static tollgate_status all_or_none(tollgate_limiter *limiter, fields *step, json_t *answer, uint32_t flags)
{
    static id_bytes ids[TOLLGATE_PARTS_MAX];
    static tollgate_call_limit limits[TOLLGATE_PARTS_MAX];
    tollgate_request requests[TOLLGATE_PARTS_MAX];
    tollgate_status status;
    tollgate_verdict verdicts[TOLLGATE_PARTS_MAX];
    tollgate_all_verdict all = SIZED(tollgate_all_verdict);
    size_t index, count = 0;
    json_t *value, *parts = get(step, "parts"), *decisions = json_array(), *blocking = json_array();
    json_array_foreach(parts, index, value) {
        if (index >= TOLLGATE_PARTS_MAX)
            fail("more parts than any vector needs");
        fields part = { value, 0 };
        ids[index] = agent(&part);
        const uint32_t lane = numbered(&part, "lane", limiter, tollgate_limiter_lane);
        requests[index] = *REQUEST(ids[index].bytes, ids[index].len, lane, number(&part, "cost", 1));
        requests[index].limit = call_limit(&part, &limits[index], &status);
        all_used(&part);
        count++;
    }
    status = tollgate_check_all(limiter, requests, count, TOLLGATE_NOW, flags, verdicts, &all);
    for (size_t i = 0; status == TOLLGATE_STATUS_OK && i < count; i++) {
        json_array_append_new(decisions, json_string(DECISIONS[verdicts[i].decision]));
        if ((all.blocking >> i & 1) != 0)
            json_array_append_new(blocking, integer(i));
    }
    set(answer, "decisions", decisions);
    set(answer, "blocking", blocking);
    if (status == TOLLGATE_STATUS_OK)
        set(answer, "decision", json_string(DECISIONS[all.decision]));
    if (all.decision == TOLLGATE_DECISION_DENY)
        set(answer, "retry_after_ns", unless_never(all.retry_after_ns));
    return status;
}

static tollgate_status lane_for(tollgate_limiter *limiter, fields *step, json_t *answer)
{
    json_t *channel = text(step, "channel"), *action = text(step, "action");
    tollgate_action_lane lane = SIZED(tollgate_action_lane);
    tollgate_status status = tollgate_lane_for(limiter, TEXT(channel), TEXT(action), &lane);
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
    static tollgate_unknown_action actions[TOLLGATE_UNKNOWN_ACTIONS_MAX];
    tollgate_unknown_action_totals totals = SIZED(tollgate_unknown_action_totals);
    json_t *names = json_array();
    REQUIRE_OK(tollgate_unknown_actions(limiter, actions, TOLLGATE_UNKNOWN_ACTIONS_MAX, &totals));
    for (uint32_t i = 0; i < totals.count; i++)
        json_array_append_new(names, json_pack("[s, s]", actions[i].channel, actions[i].name));
    set(answer, "total", integer(totals.total));
    set(answer, "not_listed", integer(totals.not_listed));
    set(answer, "names", names);
    return TOLLGATE_STATUS_OK;
}

/* Two at a time, so that there are pages. */
static tollgate_status assigned(tollgate_limiter *limiter, json_t *answer)
{
    tollgate_agent_id page[2] = { 0 };
    size_t behind = 2;
    json_t *list = json_array();
    for (bool first = true; behind >= 2; first = false) {
        const tollgate_agent_id last = page[1];
        REQUIRE_OK(tollgate_assigned(limiter, first ? NULL : last.bytes, last.len, page, 2, &behind));
        for (size_t i = 0; i < behind && i < 2; i++)
            json_array_append_new(list, id_value((const char *)page[i].bytes, page[i].len));
    }
    set(answer, "agents", list);
    return TOLLGATE_STATUS_OK;
}

#define IS(name) (strcmp(op, name) == 0)

/* Calls that ask about one lane of an agent. */
static tollgate_status run_request(tollgate_limiter *limiter, const char *op, const id_bytes *id, fields *step,
                                   json_t *answer)
{
    const bool is_counted = IS("check") && flag(step, "counted");
    tollgate_request request = { id->bytes, id->len, 1, 0, TOLLGATE_NONE, NULL };
    tollgate_lane_state state = SIZED(tollgate_lane_state);
    tollgate_verdict verdict = { 0 };
    tollgate_status status = TOLLGATE_STATUS_OK;
    tollgate_call_limit limit;
    if (IS("check") && has(step, "plan"))
        request.plan = PLAN;
    request.lane = LANE;
    if (IS("check") || IS("refund"))
        request.cost = COST;
    if (IS("check") || IS("peek") || IS("refund"))
        request.limit = call_limit(step, &limit, &status);
    if (status != TOLLGATE_STATUS_OK)
        return status;
    if (IS("peek") || IS("refund") || IS("release")) {
        status = IS("peek")     ? tollgate_peek(limiter, &request, TOLLGATE_NOW, &state)
                 : IS("refund") ? tollgate_refund(limiter, &request, TOLLGATE_NOW, &state)
                                : tollgate_release(limiter, &request, TOLLGATE_NOW, &state);
        set_state(answer, &state);
    } else if (is_counted) {
        status = tollgate_check(limiter, &request, TOLLGATE_NOW, TOLLGATE_COUNTED, &verdict);
        set_counted(answer, &verdict);
    } else {
        status = IS("hold") ? tollgate_hold(limiter, &request, TOLLGATE_NOW, 0, &verdict)
                            : tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict);
        set_verdict(answer, &verdict);
    }
    return status;
}

/* Calls of an operator about an agent. */
static tollgate_status run_control(tollgate_limiter *limiter, const char *op, const id_bytes *made, fields *step)
{
    const char *id = made->bytes;
    const size_t len = made->len;
    json_t *lane, *limit;
    if (IS("assign"))
        return tollgate_assign(limiter, id, len, PLAN, NULL);
    if (IS("unassign"))
        return tollgate_assign(limiter, id, len, TOLLGATE_NONE, NULL);
    if (IS("set_override")) {
        lane = text(step, "lane_or_tier"), limit = text(step, "limit");
        return tollgate_set_override(limiter, id, len, TEXT(lane), TEXT(limit), NULL);
    }
    if (IS("remove_override")) {
        lane = text(step, "lane_or_tier");
        return tollgate_set_override(limiter, id, len, TEXT(lane), NULL, 0, NULL);
    }
    if (IS("remove_overrides"))
        return tollgate_set_override(limiter, id, len, NULL, 0, NULL, 0, NULL);
    if (IS("exempt") || IS("unexempt"))
        return tollgate_set_exempt(limiter, id, len, IS("exempt"), NULL);
    fail("there is no op \"%s\"", op);
}

/* Other calls about an agent. */
static tollgate_status run_agent(tollgate_limiter *limiter, const char *op, const id_bytes *made, fields *step,
                                 json_t *answer)
{
    const char *id = made->bytes;
    const size_t len = made->len;
    tollgate_status status;
    if (IS("reset"))
        return tollgate_reset(limiter, id, len, has(step, "lane") ? LANE : TOLLGATE_NONE, TOLLGATE_NOW);
    if (IS("forget") || IS("reset_violations")) {
        bool known = false;
        status = IS("forget") ? tollgate_forget(limiter, id, len, TOLLGATE_NOW, &known)
                              : tollgate_reset_violations(limiter, id, len, &known);
        set(answer, "known", json_boolean(known));
        return status;
    }
    if (IS("limit_of")) {
        char limit[TOLLGATE_LIMIT_BYTES] = "";
        size_t written = 0;
        status = tollgate_limit_of(limiter, id, len, LANE, limit, sizeof limit, &written);
        set(answer, "limit", written > 0 ? json_string(limit) : json_null());
        return status;
    }
    if (IS("assignment"))
        return set_assignment(limiter, made, answer);
    if (IS("is_exempt")) {
        tollgate_agent_view view = SIZED(tollgate_agent_view);
        status = tollgate_agent(limiter, id, len, TOLLGATE_NOW, &view, NULL, 0);
        set(answer, "exempt", json_boolean(view.exempt));
        return status;
    }
    if (IS("record_violation")) {
        tollgate_violation violation = SIZED(tollgate_violation);
        status = tollgate_record_violation(limiter, id, len, TOLLGATE_NOW, &violation);
        set(answer, "step_ns", integer(violation.step_ns));
        set(answer, "wait_ns", integer(violation.wait_ns));
        set(answer, "in_a_row", integer(violation.violations_in_a_row));
        set(answer, "sustained_abuse", json_boolean(violation.sustained_abuse));
        return status;
    }
    if (IS("violations") || IS("rate_limited")) {
        tollgate_conduct_state conduct = SIZED(tollgate_conduct_state);
        status = tollgate_conduct(limiter, id, len, TOLLGATE_NOW, &conduct);
        if (IS("rate_limited")) {
            set(answer, "rate_limited", json_boolean(conduct.rate_limited));
            return status;
        }
        set(answer, "violations", integer(conduct.violations_in_window));
        set(answer, "in_a_row", integer(conduct.violations_in_a_row));
        set(answer, "window_start_ns", unless_never(conduct.window_start_ns));
        set(answer, "last_violation_ns", unless_never(conduct.last_violation_ns));
        set(answer, "wait_ns", integer(conduct.wait_ns));
        return status;
    }
    return run_control(limiter, op, made, step);
}

/* Makes the call, and fills in the answer. */
static tollgate_status run_call(tollgate_limiter *limiter, const char *op, fields *step, json_t *answer)
{
    static const char *const requests[] = { "check", "peek", "refund", "hold", "release" };
    tollgate_status status;
    if (IS("assignments"))
        return assigned(limiter, answer);
    if (IS("unknown_actions"))
        return unknown_actions(limiter, answer);
    if (IS("assignable"))
        return assignable(limiter, step, answer);
    if (IS("lane_for"))
        return lane_for(limiter, step, answer);
    if (IS("check_all"))
        return all_or_none(limiter, step, answer, flag(step, "counted") ? TOLLGATE_COUNTED : 0);
    if (IS("reserve"))
        return reserve(limiter, step, answer);
    if (IS("settle"))
        return settle(limiter, step, answer);
    if (IS("extend")) {
        const uint64_t ttl = number_of(get(step, "ttl_ms"), "ttl_ms") * 1000000;
        return tollgate_extend(limiter, reservation(step), ttl, TOLLGATE_NOW);
    }
    if (IS("sweep")) {
        uint64_t swept = 0, idle_for = number_of(get(step, "idle_for_ms"), "idle_for_ms") * 1000000;
        status = tollgate_limiter_sweep(limiter, idle_for, TOLLGATE_NOW, &swept);
        set(answer, "swept", integer(swept));
        return status;
    }
    if (IS("replace_policy")) {
        tollgate_policy *policy = NULL;
        status = make_policy(get(step, "policy"), &policy);
        if (status == TOLLGATE_STATUS_OK)
            status = tollgate_replace_policy(limiter, policy, NULL);
        tollgate_policy_free(policy);
        return status;
    }
    const id_bytes id = agent(step);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (IS(requests[i]))
            return run_request(limiter, op, &id, step, answer);
    return run_agent(limiter, op, &id, step, answer);
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
    const bool is_counted = json_object_get(answer, "lane_wait_ns") != NULL;
    json_object_foreach(expected, name, value)
        agrees &= (is_counted && strcmp(name, "step_ns") == 0) || json_equal(value, json_object_get(answer, name));
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
        REQUIRE_OK(tollgate_limiter_new(policy, &options, NULL, &limiter));
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
