/* The verbs that take a question, and those about all lanes of an agent. */

#include "nif.h"

term make_decision(tollgate_decision decision)
{
    switch (decision) {
    case TOLLGATE_DECISION_ALLOW: return atom_allow;
    case TOLLGATE_DECISION_WARN: return atom_warn;
    case TOLLGATE_DECISION_EXEMPT: return atom_exempt;
    default: return atom_deny;
    }
}

term make_verdict(ErlNifEnv *env, const instance *of, const tollgate_verdict *verdict, uint32_t flags)
{
    switch (verdict->decision) {
    case TOLLGATE_DECISION_ALLOW:
        return enif_make_tuple2(env, atom_allow, enif_make_uint64(env, tollgate_verdict_remaining(verdict)));
    case TOLLGATE_DECISION_WARN:
        return enif_make_tuple2(env, atom_warn, enif_make_uint64(env, tollgate_verdict_remaining(verdict)));
    case TOLLGATE_DECISION_EXEMPT:
        return enif_make_tuple2(env, atom_allow, atom_exempt);
    default:
        break;
    }
    term wait = make_wait(env, of, verdict->retry_after_ns);
    return (flags & TOLLGATE_COUNTED) == 0 ? enif_make_tuple2(env, atom_deny, wait)
        : enif_make_tuple4(env, atom_deny, wait, enif_make_uint(env, verdict->violations_in_a_row),
            make_bool(verdict->sustained_abuse != 0));
}

term make_verdict_map(ErlNifEnv *env, const instance *of, const tollgate_verdict *verdict, uint32_t flags)
{
    const pair fields[] = {
        {atom_decision, make_decision(verdict->decision)},
        {atom_remaining, enif_make_uint64(env, tollgate_verdict_remaining(verdict))},
        {atom_capacity, enif_make_uint64(env, verdict->capacity)},
        {atom_retry_after_ms, make_wait(env, of, verdict->retry_after_ns)},
        {atom_retry_after_ns, make_span(env, verdict->retry_after_ns)},
        {atom_lane_wait_ns, make_span(env, verdict->lane_wait_ns)},
        {atom_conduct_wait_ns, make_span(env, verdict->conduct_wait_ns)},
        {atom_full_in_ns, make_span(env, verdict->full_in_ns)},
        {atom_counted, make_bool((flags & TOLLGATE_COUNTED) != 0)},
        {atom_in_a_row, enif_make_uint(env, verdict->violations_in_a_row)},
        {atom_sustained_abuse, make_bool(verdict->sustained_abuse != 0)},
        {atom_source, make_source(env, verdict->source)},
    };
    return MAKE_MAP(env, fields);
}

/* (reference, agent, channel, tier) -> verdict: the shortest way */
NIF(nif_check)
{
    question asked;
    tollgate_verdict verdict;
    if (!read_agent(env, argv, &asked)) {
        return atom_nil;
    }
    if (!find_lane(asked.of, argv[2], argv[3], &asked.request.lane)) {
        return bad_lane(env, asked.of, argv[2], argv[3]);
    }
    tollgate_status status = tollgate_check(asked.of->limiter, &asked.request, TOLLGATE_NOW, 0, &verdict);
    return status == TOLLGATE_STATUS_OK ? make_verdict(env, asked.of, &verdict, 0) : failed(env, status, NULL, argv[1]);
}

typedef tollgate_status (*verb)(tollgate_limiter *, const tollgate_request *, uint64_t, uint32_t, tollgate_verdict *);
typedef term (*maker)(ErlNifEnv *, const instance *, const tollgate_verdict *, uint32_t);

static term ask(ErlNifEnv *env, const term argv[], verb call, maker make)
{
    question asked;
    tollgate_verdict verdict;
    if (!read_question(env, argv, &asked)) {
        return atom_nil;
    }
    tollgate_status status = call(asked.of->limiter, &asked.request, asked.now_ns, asked.flags, &verdict);
    return status == TOLLGATE_STATUS_OK ? make(env, asked.of, &verdict, asked.flags)
                                        : failed(env, status, NULL, argv[1]);
}

/* (reference, agent, lane, options) -> verdict */
NIF(nif_ask)
{
    return ask(env, argv, tollgate_check, make_verdict);
}

/* (reference, agent, lane, options) -> verdict as a map */
NIF(nif_verdict)
{
    return ask(env, argv, tollgate_check, make_verdict_map);
}

/* The lane of an action; an action that is no valid text is found by none. Returns whether there is one. */
static bool find_action(ErlNifEnv *env, const term argv[], question *asked, bool *is_new)
{
    ErlNifBinary channel, action;
    tollgate_action_lane found = {.struct_size = sizeof found};
    if (!read_text(env, argv[2], "a channel", &channel) || !read_text(env, argv[3], "an action", &action)) {
        return false;
    }
    tollgate_status status = tollgate_lane_for(asked->of->limiter, (const char *)channel.data, channel.size,
        (const char *)action.data, action.size, &found);
    if (status != TOLLGATE_STATUS_OK && status != TOLLGATE_STATUS_UNKNOWN_LANE) {
        failed(env, status, NULL, argv[1]);
        return false;
    }
    asked->request.lane = found.lane;
    *is_new = found.first_seen != 0;
    return status == TOLLGATE_STATUS_OK && found.lane < asked->of->lanes;
}

static term make_decided(ErlNifEnv *env, const question *asked, const tollgate_verdict *verdict, bool is_new)
{
    term lane = enif_make_uint(env, asked->request.lane);
    if (verdict->decision == TOLLGATE_DECISION_EXEMPT) {
        return enif_make_tuple2(env, atom_exempt, lane);
    }
    const term parts[] = {
        make_decision(verdict->decision), lane, enif_make_uint64(env, tollgate_verdict_remaining(verdict)),
        enif_make_uint64(env, verdict->capacity), make_wait(env, asked->of, verdict->retry_after_ns),
        make_span(env, verdict->full_in_ns), enif_make_uint64(env, verdict->token_ns),
        verdict->conduct_wait_ns > verdict->lane_wait_ns ? atom_conduct : atom_lane,
        make_source(env, verdict->source),
        /* Of a denial only. */
        enif_make_uint(env, verdict->violations_in_a_row), make_bool(verdict->sustained_abuse != 0),
        make_bool(is_new),
    };
    return enif_make_tuple_from_array(env, parts, verdict->decision == TOLLGATE_DECISION_DENY ? 12 : 9);
}

/*
 * (reference, agent, channel, action, cost, plan, counted), or with nil and a lane instead of a channel and an action:
 * a check that answers with what Tollgate.Verdict.decide says; nil if the channel has no lane for the action. A plan in
 * a tuple applies if the policy has it.
 */
NIF(nif_decide)
{
    question asked;
    tollgate_verdict verdict;
    const term *wrapped;
    int arity;
    bool is_new = false;
    term reason, made;
    if (!read_agent(env, argv, &asked) || !read_cost(env, argv[4], &asked.request.cost)) {
        return atom_nil;
    }
    if (enif_get_tuple(env, argv[5], &arity, &wrapped) && arity == 1) {
        ErlNifBinary name;
        if (!read_text(env, wrapped[0], "the name of a plan", &name)) {
            return atom_nil;
        }
        if (tollgate_limiter_plan(asked.of->limiter, (const char *)name.data, name.size, &asked.request.plan)
            != TOLLGATE_STATUS_OK) {
            asked.request.plan = TOLLGATE_NONE;
        }
    } else if (!read_plan(env, asked.of, argv[5], &asked.request.plan)) {
        return atom_nil;
    }
    if (argv[2] == atom_nil ? !read_lane(env, asked.of, argv[3], &asked.request.lane)
                            : !find_action(env, argv, &asked, &is_new)) {
        return atom_nil;
    }
    uint32_t flags = argv[6] == atom_true ? TOLLGATE_COUNTED : 0;
    tollgate_status status = tollgate_check(asked.of->limiter, &asked.request, asked.now_ns, flags, &verdict);
    if (status == TOLLGATE_STATUS_OK) {
        made = make_decided(env, &asked, &verdict, is_new);
    } else if (is_answer(status, &reason)) {
        made = enif_make_tuple3(env, atom_error, reason, enif_make_uint(env, asked.request.lane));
    } else {
        return failed(env, status, NULL, argv[1]);
    }
    bool is_denied = status == TOLLGATE_STATUS_OK && verdict.decision == TOLLGATE_DECISION_DENY;
    return is_new && !is_denied
        ? enif_make_tuple3(env, atom_unknown, enif_make_uint(env, asked.request.lane), made) : made;
}

/* (reference, agent, lane, options) -> verdict */
NIF(nif_hold)
{
    return ask(env, argv, tollgate_hold, make_verdict);
}

static tollgate_status peek(tollgate_limiter *limiter, const tollgate_request *request, uint64_t now_ns,
    tollgate_lane_state *state)
{
    return tollgate_peek(limiter, request, now_ns, state);
}

typedef tollgate_status (*look)(tollgate_limiter *, const tollgate_request *, uint64_t, tollgate_lane_state *);

/* {remaining, capacity, next_in_ns, full_in_ns} | :exempt */
static term state(ErlNifEnv *env, const term argv[], look call)
{
    question asked;
    tollgate_lane_state lane = {.struct_size = sizeof lane};
    if (!read_question(env, argv, &asked)) {
        return atom_nil;
    }
    tollgate_status status = call(asked.of->limiter, &asked.request, asked.now_ns, &lane);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, argv[1]);
    }
    return lane.exempt != 0 ? atom_exempt
        : enif_make_tuple4(env, enif_make_uint64(env, lane.remaining), enif_make_uint64(env, lane.capacity),
            make_span(env, lane.next_in_ns), make_span(env, lane.full_in_ns));
}

/* (reference, agent, lane, options) -> the state of the lane */
NIF(nif_peek)
{
    return state(env, argv, peek);
}

/* (reference, agent, lane, options) -> the state of the lane */
NIF(nif_refund)
{
    return state(env, argv, tollgate_refund);
}

/* (reference, agent, lane, options) -> the state of the lane */
NIF(nif_release)
{
    return state(env, argv, tollgate_release);
}

/* Whether a change has to move to a dirty scheduler: it may wait for another VM, for two seconds if that is stopped. */
static bool has_to_move(const instance *of)
{
    return of->is_shared && enif_thread_type() == ERL_NIF_THR_NORMAL_SCHEDULER;
}

/* (reference, agent, options) */
NIF(nif_reset)
{
    question asked;
    if (!read_agent(env, argv, &asked) || !read_options(env, argv[2], OPTION_LANE | OPTION_AT, &asked)) {
        return atom_nil;
    }
    if (has_to_move(asked.of)) {
        return enif_schedule_nif(env, "reset", ERL_NIF_DIRTY_JOB_CPU_BOUND, nif_reset, argc, argv);
    }
    tollgate_status status = tollgate_reset(asked.of->limiter, asked.request.id, asked.request.id_len,
        asked.request.lane, asked.now_ns);
    return status == TOLLGATE_STATUS_OK ? atom_ok : failed(env, status, NULL, argv[1]);
}

/* (reference, agent, options) -> whether anything was known of it */
NIF(nif_forget)
{
    question asked;
    bool forgotten;
    if (!read_agent(env, argv, &asked) || !read_options(env, argv[2], OPTION_AT, &asked)) {
        return atom_nil;
    }
    if (has_to_move(asked.of)) {
        return enif_schedule_nif(env, "forget", ERL_NIF_DIRTY_JOB_CPU_BOUND, nif_forget, argc, argv);
    }
    tollgate_status status = tollgate_forget(asked.of->limiter, asked.request.id, asked.request.id_len, asked.now_ns,
        &forgotten);
    return status == TOLLGATE_STATUS_OK ? make_bool(forgotten) : failed(env, status, NULL, argv[1]);
}

/* (reference, requests): raises if check_many would, and charges nothing */
NIF(nif_validate)
{
    instance *of;
    batch read;
    if (!read_instance(env, argv[0], &of) || !read_requests(env, of, argv[1], &read)) {
        return atom_nil;
    }
    count_time(env, read.count);
    return atom_ok;
}

static term make_verdicts(ErlNifEnv *env, const question *asked, const tollgate_verdict verdicts[], unsigned count)
{
    term list = enif_make_list(env, 0);
    for (unsigned at = count; at-- > 0;) {
        const tollgate_verdict *verdict = &verdicts[at];
        term made = verdict->status == TOLLGATE_STATUS_OK ? make_verdict(env, asked->of, verdict, asked->flags)
                                                          : failed(env, verdict->status, NULL, atom_nil);
        if (enif_has_pending_exception(env, NULL)) {
            return atom_nil;
        }
        list = enif_make_list_cell(env, made, list);
    }
    count_time(env, count);
    return list;
}

/* (reference, requests, options) */
static bool read_many(ErlNifEnv *env, const term argv[], question *asked, batch *read)
{
    *asked = (question){.now_ns = TOLLGATE_NOW};
    return read_instance(env, argv[0], &asked->of) && read_options(env, argv[2], OPTIONS_OF_CALL, asked)
        && read_requests(env, asked->of, argv[1], read);
}

/* (reference, requests, options) -> a verdict or an error for each, in the same order */
NIF(nif_check_many)
{
    question asked;
    batch read;
    tollgate_verdict verdicts[BATCH_MAX];
    if (!read_many(env, argv, &asked, &read)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_check_many(asked.of->limiter, read.requests, read.count, asked.now_ns,
        asked.flags, verdicts);
    return status == TOLLGATE_STATUS_OK ? make_verdicts(env, &asked, verdicts, read.count)
                                        : failed(env, status, NULL, atom_nil);
}

static term make_indexes(ErlNifEnv *env, uint32_t bits)
{
    term indexes = enif_make_list(env, 0);
    for (unsigned part = TOLLGATE_PARTS_MAX; part-- > 0;) {
        if ((bits >> part & 1) != 0) {
            indexes = enif_make_list_cell(env, enif_make_uint(env, part), indexes);
        }
    }
    return indexes;
}

/* (reference, requests, options) -> {decision, wait_ms, wait_ns, indexes of the blocking parts, verdicts} */
NIF(nif_check_all)
{
    question asked;
    batch read;
    tollgate_verdict verdicts[TOLLGATE_PARTS_MAX];
    tollgate_all_verdict all = {.struct_size = sizeof all};
    if (!read_many(env, argv, &asked, &read)) {
        return atom_nil;
    }
    if (read.count == 0 || read.count > TOLLGATE_PARTS_MAX) {
        return bad_argument(env, "all or none takes 1 to %d parts, got %u", TOLLGATE_PARTS_MAX, read.count);
    }
    tollgate_status status = tollgate_check_all(asked.of->limiter, read.requests, read.count, asked.now_ns,
        asked.flags, verdicts, &all);
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL, atom_nil)
        : enif_make_tuple5(env, make_decision(all.decision), make_wait(env, asked.of, all.retry_after_ns),
            make_span(env, all.retry_after_ns), make_indexes(env, all.blocking),
            make_verdicts(env, &asked, verdicts, read.count));
}
