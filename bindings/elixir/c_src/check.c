/* Checks: the question, single and in batches. */

#include "nif.h"

#define NS_PER_MS 1000000u

term make_wait(ErlNifEnv *env, const instance *limiter, uint64_t wait_ns)
{
    if (limiter->whole_seconds) {
        return enif_make_uint64(env, tollgate_hub_retry_after_ms(wait_ns));
    }
    return wait_ns == TOLLGATE_NEVER ? atom_infinity
        : enif_make_uint64(env, wait_ns / NS_PER_MS + (wait_ns % NS_PER_MS != 0));
}

static term make_answer(ErlNifEnv *env, const instance *limiter, tollgate_decision decision, uint64_t remaining,
    uint64_t wait_ns)
{
    switch (decision) {
    case TOLLGATE_DECISION_ALLOW:
        return enif_make_tuple2(env, atom_allow, enif_make_uint64(env, remaining));
    case TOLLGATE_DECISION_WARN:
        return enif_make_tuple2(env, atom_warn, enif_make_uint64(env, remaining));
    case TOLLGATE_DECISION_EXEMPT:
        return enif_make_tuple2(env, atom_allow, atom_exempt);
    default:
        return enif_make_tuple2(env, atom_deny, make_wait(env, limiter, wait_ns));
    }
}

term make_verdict(ErlNifEnv *env, const instance *limiter, const tollgate_verdict *verdict)
{
    uint64_t remaining = verdict->decision == TOLLGATE_DECISION_ALLOW || verdict->decision == TOLLGATE_DECISION_WARN
        ? tollgate_verdict_remaining(verdict) : 0;
    return make_answer(env, limiter, verdict->decision, remaining, verdict->retry_after_ns);
}

/* (reference, agent, channel, tier[, plan | nil, cost]) -> {:allow | :warn, remaining} | {:deny, ms} | {:allow, :exempt} */
NIF(nif_check)
{
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane, plan;
    uint64_t cost = 1;
    bool has_plan = false;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    if (!find_lane(limiter, argv[2], argv[3], &lane)) {
        return bad_lane(env, limiter, argv[2], argv[3]);
    }
    if (argc == 6
        && (!read_plan(env, limiter, argv[4], &has_plan, &plan, &raised) || !read_cost(env, argv[5], &cost, &raised))) {
        return raised;
    }
    tollgate_verdict verdict = {.struct_size = sizeof verdict};
    tollgate_status status = has_plan
        ? tollgate_limiter_check_as(limiter->limiter, id.data, id.size, plan, lane, cost, &verdict)
        : tollgate_limiter_check(limiter->limiter, id.data, id.size, lane, cost, &verdict);
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    return make_verdict(env, limiter, &verdict);
}

term make_decision(tollgate_decision decision)
{
    switch (decision) {
    case TOLLGATE_DECISION_ALLOW: return atom_allow;
    case TOLLGATE_DECISION_WARN: return atom_warn;
    case TOLLGATE_DECISION_EXEMPT: return atom_exempt;
    default: return atom_deny;
    }
}

/* (reference, agent, lane, plan | nil, cost, now_ns | nil) -> {decision, remaining, capacity, retry_after_ns, full_in_ns} */
NIF(nif_verdict)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint32_t lane, plan;
    uint64_t cost, now_ns;
    bool has_plan;
    term raised;
    if (!read_agent_and_lane(env, argv, &limiter, &id, &lane, &raised)
        || !read_plan(env, limiter, argv[3], &has_plan, &plan, &raised) || !read_cost(env, argv[4], &cost, &raised)) {
        return raised;
    }
    tollgate_verdict verdict = {.struct_size = sizeof verdict};
    tollgate_status status;
    if (argv[5] == atom_nil) {
        status = has_plan ? tollgate_limiter_check_as(limiter->limiter, id.data, id.size, plan, lane, cost, &verdict)
                          : tollgate_limiter_check(limiter->limiter, id.data, id.size, lane, cost, &verdict);
    } else if (get_u64(env, argv[5], &now_ns)) {
        status = has_plan
            ? tollgate_limiter_check_as_at(limiter->limiter, id.data, id.size, plan, lane, cost, now_ns, &verdict)
            : tollgate_limiter_check_at(limiter->limiter, id.data, id.size, lane, cost, now_ns, &verdict);
    } else {
        return bad_argument(env, "an instant is a whole number of nanoseconds, got: %.60T", argv[5]);
    }
    if (status != TOLLGATE_STATUS_OK) {
        return not_answered(env, status, argv[1]);
    }
    return enif_make_tuple5(env, make_decision(verdict.decision),
        enif_make_uint64(env, tollgate_verdict_remaining(&verdict)), enif_make_uint64(env, verdict.capacity),
        make_span(env, verdict.retry_after_ns), make_span(env, verdict.full_in_ns));
}

/* One request of a batch: {agent, channel, tier} or {agent, channel, tier, cost}. */
static bool read_request(ErlNifEnv *env, const instance *limiter, term given, tollgate_request *request, term *raised)
{
    const term *part;
    int arity;
    ErlNifBinary id;
    if (!enif_get_tuple(env, given, &arity, &part) || arity < 3 || arity > 4) {
        return refuse(raised, bad_argument(env,
            "a request has to be {agent, channel, tier} or {agent, channel, tier, cost}, got: %.60T", given));
    }
    if (!enif_inspect_binary(env, part[0], &id) || id.size == 0 || id.size > TOLLGATE_ID_BYTES_MAX) {
        return refuse(raised, bad_agent(env, part[0]));
    }
    if (!find_lane(limiter, part[1], part[2], &request->lane)) {
        return refuse(raised, bad_lane(env, limiter, part[1], part[2]));
    }
    request->cost = 1;
    if (arity == 4 && (!get_u64(env, part[3], &request->cost) || request->cost == 0)) {
        return refuse(raised, bad_cost(env, part[3]));
    }
    request->id = id.data;
    request->id_len = id.size;
    return true;
}

static bool read_requests(ErlNifEnv *env, const instance *limiter, term given, tollgate_request requests[BATCH_MAX],
    unsigned *count, term *raised)
{
    term rest = given, request;
    unsigned read = 0;
    for (; enif_get_list_cell(env, rest, &request, &rest); read++) {
        if (read == BATCH_MAX) {
            return refuse(raised, bad_argument(env, "a call takes up to %d requests", BATCH_MAX));
        }
        if (!read_request(env, limiter, request, &requests[read], raised)) {
            return false;
        }
    }
    if (!enif_is_empty_list(env, rest)) {
        return refuse(raised, bad_argument(env, "the requests have to be a list, got: %.60T", given));
    }
    *count = read;
    return true;
}

/* A call on a scheduler gives back the time it took: a request in a batch takes up to 200 ns, a timeslice is 1 ms. */
void count_time(ErlNifEnv *env, unsigned requests)
{
    unsigned percent = requests * 200 / 10000;
    enif_consume_timeslice(env, percent < 1 ? 1 : percent > 100 ? 100 : (int)percent);
}

/* (reference, requests): raises if check_many would, and charges nothing */
NIF(nif_readable)
{
    (void)argc;
    instance *limiter;
    tollgate_request requests[BATCH_MAX];
    unsigned count;
    term raised;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!read_requests(env, limiter, argv[1], requests, &count, &raised)) {
        return raised;
    }
    count_time(env, count);
    return atom_ok;
}

/* (reference, requests, now_ns) -> an answer for each, in the same order */
NIF(nif_check_many)
{
    (void)argc;
    instance *limiter;
    tollgate_request requests[BATCH_MAX];
    tollgate_answer answers[BATCH_MAX];
    unsigned count;
    uint64_t now_ns;
    term raised;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!get_u64(env, argv[2], &now_ns)) {
        return bad_argument(env, "an instant is a whole number of nanoseconds, got: %.60T", argv[2]);
    }
    if (!read_requests(env, limiter, argv[1], requests, &count, &raised)) {
        return raised;
    }
    tollgate_status status = tollgate_limiter_check_many_at(limiter->limiter, requests, count, now_ns, answers);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    term all = enif_make_list(env, 0);
    for (unsigned at = count; at-- > 0;) {
        const tollgate_answer *answer = &answers[at];
        term made = answer->status == TOLLGATE_STATUS_OK
            ? make_answer(env, limiter, answer->decision, tollgate_answer_remaining(answer), answer->retry_after_ns)
            : failed(env, answer->status, NULL);
        if (enif_is_exception(env, made)) {
            return made;
        }
        all = enif_make_list_cell(env, made, all);
    }
    count_time(env, count);
    return all;
}

static term make_places(ErlNifEnv *env, uint32_t bits)
{
    term places = enif_make_list(env, 0);
    for (unsigned part = TOLLGATE_PARTS_MAX; part-- > 0;) {
        if ((bits >> part & 1) != 0) {
            places = enif_make_list_cell(env, enif_make_uint(env, part), places);
        }
    }
    return places;
}

/*
 * (reference, requests, admit?) -> {decision, answers, wait, retry_after_ns, blocking, sustained_abuse}: all are
 * charged or none; the last two are the places of parts, counted from 0
 */
NIF(nif_check_all)
{
    (void)argc;
    instance *limiter;
    tollgate_request requests[BATCH_MAX];
    tollgate_answer answers[TOLLGATE_PARTS_MAX];
    unsigned count;
    term raised;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!read_requests(env, limiter, argv[1], requests, &count, &raised)) {
        return raised;
    }
    if (count == 0 || count > TOLLGATE_PARTS_MAX) {
        return bad_argument(env, "all or none takes 1 to %d parts, got %u", TOLLGATE_PARTS_MAX, count);
    }
    tollgate_all_verdict verdict = {.struct_size = sizeof verdict};
    tollgate_status status = argv[2] == atom_true
        ? tollgate_limiter_admit_all(limiter->limiter, requests, count, answers, &verdict)
        : tollgate_limiter_check_all(limiter->limiter, requests, count, answers, &verdict);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    term all = enif_make_list(env, 0);
    for (unsigned at = count; at-- > 0;) {
        const tollgate_answer *answer = &answers[at];
        all = enif_make_list_cell(env, make_answer(env, limiter, answer->decision, tollgate_answer_remaining(answer),
            answer->retry_after_ns), all);
    }
    count_time(env, count);
    return enif_make_tuple6(env, make_decision(verdict.decision), all, make_wait(env, limiter, verdict.retry_after_ns),
        make_span(env, verdict.retry_after_ns), make_places(env, verdict.blocking),
        make_places(env, verdict.sustained_abuse));
}
