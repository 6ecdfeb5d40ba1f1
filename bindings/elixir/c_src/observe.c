/* Observing: what the limiter holds and has done, its agents, its events, and lines for a log. */

#include "nif.h"

#include <string.h>

/* Longer than any line: a summary names five agents, each byte of whose ids may take four. */
#define LINE_BYTES 8192

static term number(ErlNifEnv *env, uint64_t value)
{
    return enif_make_uint64(env, value);
}

static term make_agent(ErlNifEnv *env, const tollgate_agent_id *id)
{
    return make_text(env, (const char *)id->bytes, id->len);
}

static term make_clock_source(tollgate_clock_source source)
{
    switch (source) {
    case TOLLGATE_CLOCK_SOURCE_TSC: return atom_tsc;
    case TOLLGATE_CLOCK_SOURCE_COARSE: return atom_coarse;
    case TOLLGATE_CLOCK_SOURCE_BOOTTIME: return atom_boottime;
    case TOLLGATE_CLOCK_SOURCE_MANUAL: return atom_manual;
    default: return atom_os;
    }
}

static term make_lane(ErlNifEnv *env, const instance *of, uint32_t lane)
{
    return enif_make_tuple2(env, of->lane[lane].channel, of->lane[lane].tier);
}

/* (reference) -> a map, in which lanes is a map from {channel, tier} */
NIF(nif_snapshot)
{
    instance *of;
    tollgate_limiter_view view = {.struct_size = sizeof view};
    tollgate_lane_counts counts[TOLLGATE_LANES_MAX];
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_snapshot(of->limiter, &view, counts, TOLLGATE_LANES_MAX);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, atom_nil);
    }
    term lanes = enif_make_new_map(env);
    for (uint32_t lane = 0; lane < of->lanes && lane < view.lane_count; lane++) {
        const pair fields[] = {
            {atom_allowed, number(env, counts[lane].allowed)}, {atom_warned, number(env, counts[lane].warned)},
            {atom_denied, number(env, counts[lane].denied)}, {atom_exempt, number(env, counts[lane].exempt)},
        };
        enif_make_map_put(env, lanes, make_lane(env, of, lane), MAKE_MAP(env, fields), &lanes);
    }
#define NUMBER(name) {enif_make_atom(env, #name), number(env, view.name)}
    const pair fields[] = {
        {enif_make_atom(env, "observed"), make_bool(view.observed != 0)}, {enif_make_atom(env, "lanes"), lanes},
        {enif_make_atom(env, "clock"), make_clock_source(view.clock_source)},
        NUMBER(allowed), NUMBER(warned), NUMBER(denied), NUMBER(exempt), NUMBER(errors), NUMBER(full),
        NUMBER(violations), NUMBER(violations_last_hour), NUMBER(sustained_abuse),
        NUMBER(agents), NUMBER(records), NUMBER(claims), NUMBER(retries), NUMBER(idle_evictions),
        NUMBER(lossy_evictions),
        NUMBER(reservations), NUMBER(reservations_expired), NUMBER(reservations_refused),
        NUMBER(agents_assigned), NUMBER(agents_overridden), NUMBER(agents_exempt),
        NUMBER(unknown_actions), NUMBER(events_dropped), NUMBER(memory), NUMBER(clock_fallbacks),
        NUMBER(processes), NUMBER(takeovers), NUMBER(busy),
        {enif_make_atom(env, "policy_differs"), make_bool(view.policy_differs != 0)},
        {enif_make_atom(env, "detached"), make_bool(view.detached != 0)},
    };
    return MAKE_MAP(env, fields);
}

/* {{channel, tier}, limit | nil, overridden, remaining, capacity, used_percent, level, full_in_ns} */
static term make_lane_view(ErlNifEnv *env, const question *asked, uint32_t lane, const tollgate_lane_view *view)
{
    const term levels[] = {atom_green, atom_yellow, atom_red};
    char limit[TOLLGATE_LIMIT_BYTES];
    size_t length = 0;
    tollgate_status status = tollgate_limit_of(asked->of->limiter, asked->request.id, asked->request.id_len, lane,
        limit, sizeof limit, &length);
    bool is_limited = status == TOLLGATE_STATUS_OK && length > 0;
    return enif_make_tuple8(env, make_lane(env, asked->of, lane),
        is_limited ? make_text(env, limit, length) : atom_nil, make_bool(view->overridden != 0),
        number(env, view->remaining), number(env, view->capacity), enif_make_double(env, view->used_percent),
        levels[view->level < 2 ? view->level : 2], make_span(env, view->full_in_ns));
}

/* (reference, agent, options) -> a map */
NIF(nif_agent)
{
    question asked;
    tollgate_agent_view view = {.struct_size = sizeof view};
    tollgate_lane_view views[TOLLGATE_LANES_MAX];
    tollgate_policy *policy = NULL;
    term plan;
    if (!read_agent(env, argv, &asked) || !read_options(env, argv[2], OPTION_AT, &asked)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_agent(asked.of->limiter, asked.request.id, asked.request.id_len, asked.now_ns,
        &view, views, TOLLGATE_LANES_MAX);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_limiter_policy(asked.of->limiter, &policy);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = make_plan(env, policy, view.plan, &plan);
    }
    tollgate_policy_free(policy);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, argv[1]);
    }
    term lanes = enif_make_list(env, 0);
    uint32_t count = view.lane_count < asked.of->lanes ? view.lane_count : asked.of->lanes;
    for (uint32_t lane = view.exempt != 0 ? 0 : count; lane-- > 0;) {
        lanes = enif_make_list_cell(env, make_lane_view(env, &asked, lane, &views[lane]), lanes);
    }
    const pair fields[] = {
        {atom_plan, plan},
        {atom_exempt, make_bool(view.exempt != 0)},
        {atom_rate_limited, make_bool(view.rate_limited != 0)},
        {atom_in_window, enif_make_uint(env, view.violations_in_window)},
        {atom_in_a_row, enif_make_uint(env, view.violations_in_a_row)},
        {atom_lanes, lanes},
        /* Its place among the lanes. */
        {atom_dominant, view.dominant_lane < count ? enif_make_uint(env, view.dominant_lane) : atom_nil},
    };
    return MAKE_MAP(env, fields);
}

static bool read_part(ErlNifEnv *env, term given, const void **start, size_t *length)
{
    ErlNifBinary part;
    if (!enif_inspect_binary(env, given, &part) || part.size > TOLLGATE_ID_BYTES_MAX) {
        bad_argument(env, "a part of an id is a binary of up to %d bytes, got: %.60T", TOLLGATE_ID_BYTES_MAX, given);
        return false;
    }
    *start = part.data;
    *length = part.size;
    return true;
}

/* (reference, prefix, contains, sort, page, per_page) -> {[agent], matched, not_listed} */
NIF(nif_agents)
{
    instance *of;
    tollgate_agent_query query = {.struct_size = sizeof query};
    tollgate_agent_page page = {.struct_size = sizeof page};
    uint64_t per_page;
    if (!read_instance(env, argv[0], &of) || !read_part(env, argv[1], &query.prefix, &query.prefix_len)
        || !read_part(env, argv[2], &query.part, &query.part_len) || !read_u64(env, argv[4], "page", &query.page)
        || !read_u64(env, argv[5], "per_page", &per_page)) {
        return atom_nil;
    }
    if (argv[3] != atom_id && argv[3] != atom_usage && argv[3] != atom_violations) {
        return bad_argument(env, "agents are sorted by :id, :usage or :violations, got: %.60T", argv[3]);
    }
    if (per_page == 0) {
        return bad_argument(env, "per_page has to be at least 1");
    }
    query.sort = argv[3] == atom_usage ? TOLLGATE_AGENT_SORT_USAGE
        : argv[3] == atom_violations ? TOLLGATE_AGENT_SORT_VIOLATIONS : TOLLGATE_AGENT_SORT_ID;
    size_t room = per_page < TOLLGATE_PAGE_MAX ? per_page : TOLLGATE_PAGE_MAX;
    tollgate_agent_row *rows = enif_alloc(room * sizeof *rows);
    tollgate_status status = tollgate_agents(of->limiter, &query, rows, room, &page);
    term agents = enif_make_list(env, 0);
    for (uint32_t at = status == TOLLGATE_STATUS_OK ? page.count : 0; at-- > 0;) {
        agents = enif_make_list_cell(env, make_agent(env, &rows[at].id), agents);
    }
    enif_free(rows);
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL, atom_nil)
        : enif_make_tuple3(env, agents, number(env, page.matched), number(env, page.not_listed));
}

/* (reference, most) -> {violations of all, [{agent, violations, error}]}, the worst first */
NIF(nif_top_offenders)
{
    instance *of;
    uint64_t most;
    tollgate_offender offenders[TOLLGATE_OFFENDERS_MAX];
    tollgate_offender_totals totals = {.struct_size = sizeof totals};
    if (!read_instance(env, argv[0], &of) || !read_u64(env, argv[1], "the number of offenders", &most)) {
        return atom_nil;
    }
    size_t room = most < TOLLGATE_OFFENDERS_MAX ? most : TOLLGATE_OFFENDERS_MAX;
    tollgate_status status = tollgate_top_offenders(of->limiter, offenders, room, &totals);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL, atom_nil);
    }
    term all = enif_make_list(env, 0);
    for (size_t at = totals.count < room ? totals.count : room; at-- > 0;) {
        all = enif_make_list_cell(env, enif_make_tuple3(env, make_agent(env, &offenders[at].id),
            number(env, offenders[at].violations), number(env, offenders[at].error)), all);
    }
    return enif_make_tuple2(env, number(env, totals.violations), all);
}

/* (reference) -> the report, JSON */
NIF(nif_report)
{
    instance *of;
    ErlNifBinary json;
    size_t length = 0;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_report(of->limiter, NULL, 0, &length);
    /* It may grow from one call to the next; with twice the room, not three times in a row. */
    for (int tries = 0; tries < 3; tries++) {
        if ((status != TOLLGATE_STATUS_OK && status != TOLLGATE_STATUS_BUFFER_TOO_SMALL)
            || !enif_alloc_binary(2 * length + LINE_BYTES, &json)) {
            break;
        }
        status = tollgate_report(of->limiter, (char *)json.data, json.size, &length);
        if (status == TOLLGATE_STATUS_OK && enif_realloc_binary(&json, length)) {
            return enif_make_binary(env, &json);
        }
        enif_release_binary(&json);
        length *= 2;
    }
    return failed(env, status == TOLLGATE_STATUS_OK ? TOLLGATE_STATUS_OUT_OF_MEMORY : status, NULL, atom_nil);
}

/* (agent, where) -> the id, safe to show there */
NIF(nif_shown)
{
    const struct {
        term name;
        int32_t where;
    } known[] = {
        {atom_text, TOLLGATE_SHOWN_TEXT}, {atom_html, TOLLGATE_SHOWN_HTML}, {atom_label, TOLLGATE_SHOWN_LABEL},
        {atom_url, TOLLGATE_SHOWN_URL}, {atom_json, TOLLGATE_SHOWN_JSON},
    };
    ErlNifBinary id;
    char text[LINE_BYTES];
    size_t length;
    if (!enif_inspect_binary(env, argv[0], &id)) {
        return bad_agent(env, argv[0]);
    }
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        if (known[at].name == argv[1]) {
            tollgate_status status = tollgate_id_shown(id.data, id.size, known[at].where, text, sizeof text, &length);
            return status == TOLLGATE_STATUS_OK ? make_text(env, text, length) : failed(env, status, NULL, argv[0]);
        }
    }
    return bad_argument(env, "an id is shown in :text, :html, a :label, a :url or :json, got: %.60T", argv[1]);
}

static term make_event(ErlNifEnv *env, const tollgate_event *event)
{
    switch (event->kind) {
    case TOLLGATE_EVENT_TYPE_UNKNOWN_ACTION:
        return enif_make_tuple3(env, atom_unknown_action, make_text(env, event->channel, strlen(event->channel)),
            make_text(env, event->action, strlen(event->action)));
    case TOLLGATE_EVENT_TYPE_SATURATED:
        return enif_make_tuple3(env, atom_saturated, number(env, event->lossy_evictions), number(env, event->refused));
    case TOLLGATE_EVENT_TYPE_CLOCK_FELL_BACK:
        return enif_make_tuple1(env, atom_clock_fell_back);
    default:
        /* Elixir knows of it from the call that caused it. */
        return enif_make_tuple2(env, atom_other, enif_make_int(env, event->kind));
    }
}

/* (reference) -> [event], the oldest first, up to BATCH_MAX of them; each is given out once */
NIF(nif_poll_events)
{
    instance *of;
    term polled[BATCH_MAX];
    unsigned count = 0;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    while (count < BATCH_MAX) {
        tollgate_event event = {.struct_size = sizeof event};
        tollgate_status status = tollgate_poll_event(of->limiter, &event);
        if (status != TOLLGATE_STATUS_OK) {
            return failed(env, status, NULL, atom_nil);
        }
        if (event.kind == TOLLGATE_EVENT_TYPE_NONE) {
            break;
        }
        polled[count++] = make_event(env, &event);
    }
    return enif_make_list_from_array(env, polled, count);
}

/* The lines that are due, up to BATCH_MAX of them. */
static term take_lines(ErlNifEnv *env, tollgate_log_throttle *log, uint64_t now_ns)
{
    term lines[BATCH_MAX];
    char line[LINE_BYTES];
    size_t length;
    unsigned count = 0;
    while (count < BATCH_MAX) {
        tollgate_status status = tollgate_log_throttle_line(log, now_ns, line, sizeof line, &length);
        if (status != TOLLGATE_STATUS_OK) {
            return failed(env, status, NULL, atom_nil);
        }
        if (length == 0) {
            break;
        }
        lines[count++] = make_text(env, line, length);
    }
    return enif_make_list_from_array(env, lines, count);
}

/* (reference, agent, now_ns) -> [line]: reports a denial to the instance's throttle */
NIF(nif_log_denied)
{
    question asked;
    bool is_due;
    if (!read_agent(env, argv, &asked) || !read_u64(env, argv[2], "an instant in nanoseconds", &asked.now_ns)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_log_throttle_denied(asked.of->log, asked.request.id, asked.request.id_len,
        asked.now_ns, &is_due);
    return status != TOLLGATE_STATUS_OK ? failed(env, status, NULL, argv[1])
        : is_due ? take_lines(env, asked.of->log, asked.now_ns) : enif_make_list(env, 0);
}

/* (reference, now_ns) -> [line] */
NIF(nif_log_due)
{
    instance *of;
    uint64_t now_ns;
    if (!read_instance(env, argv[0], &of) || !read_u64(env, argv[1], "an instant in nanoseconds", &now_ns)) {
        return atom_nil;
    }
    return take_lines(env, of->log, now_ns);
}
