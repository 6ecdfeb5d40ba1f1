/* Sight: what the limiter holds and has done, who offends, what happened, and lines for a log. */

#include "nif.h"

#include <string.h>

/* Longer than any line: a summary names five agents, each byte of whose ids may take four. */
#define LINE_BYTES 8192

static term number(ErlNifEnv *env, uint64_t value)
{
    return enif_make_uint64(env, value);
}

/* (reference) -> {counting, [number], [{allowed, warned, denied, exempt}]}; Tollgate.Sight names the numbers */
NIF(nif_snapshot)
{
    (void)argc;
    instance *limiter;
    tollgate_snapshot seen = {.struct_size = sizeof seen};
    tollgate_lane_counts lanes[TOLLGATE_LANES_MAX];
    size_t count;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_snapshot(limiter->limiter, &seen, lanes, TOLLGATE_LANES_MAX, &count);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    const uint64_t values[] = {seen.allowed, seen.warned, seen.denied, seen.exempt, seen.errors, seen.full,
        seen.violations, seen.violations_last_hour, seen.sustained_abuse, seen.agents, seen.records, seen.claims,
        seen.idle_evictions, seen.lossy_evictions, seen.retries, seen.agents_assigned, seen.agents_overridden,
        seen.agents_exempt, seen.unknown_actions, seen.events_dropped, seen.clock_fallbacks};
    term numbers = enif_make_list(env, 0), verdicts = enif_make_list(env, 0);
    for (size_t at = sizeof values / sizeof *values; at-- > 0;) {
        numbers = enif_make_list_cell(env, number(env, values[at]), numbers);
    }
    for (size_t at = count; at-- > 0;) {
        term lane = enif_make_tuple4(env, number(env, lanes[at].allowed), number(env, lanes[at].warned),
            number(env, lanes[at].denied), number(env, lanes[at].exempt));
        verdicts = enif_make_list_cell(env, lane, verdicts);
    }
    return enif_make_tuple3(env, make_bool(seen.counting != 0), numbers, verdicts);
}

static bool read_part(ErlNifEnv *env, term given, const void **start, size_t *length, term *raised)
{
    ErlNifBinary part;
    if (!enif_inspect_binary(env, given, &part) || part.size > TOLLGATE_ID_BYTES_MAX) {
        return refuse(raised, bad_argument(env, "a part of an id is a binary of up to %d bytes, got: %.60T",
            TOLLGATE_ID_BYTES_MAX, given));
    }
    *start = part.data;
    *length = part.size;
    return true;
}

/* (reference, prefix, part, sort, page, per_page) -> {[agent], matched, not_listed} */
NIF(nif_agents)
{
    (void)argc;
    instance *limiter;
    tollgate_agent_query query = {.struct_size = sizeof query};
    term raised;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!read_part(env, argv[1], &query.prefix, &query.prefix_len, &raised)
        || !read_part(env, argv[2], &query.part, &query.part_len, &raised)) {
        return raised;
    }
    if (argv[3] != atom_id && argv[3] != atom_usage && argv[3] != atom_violations) {
        return bad_argument(env, "agents are sorted by :id, :usage or :violations, got: %.60T", argv[3]);
    }
    if (!get_u64(env, argv[4], &query.page) || !get_u64(env, argv[5], &query.per_page) || query.per_page == 0) {
        return bad_argument(env, "page is a whole number from 0, and per_page one from 1, got: %.60T and %.60T", argv[4],
            argv[5]);
    }
    query.sort = argv[3] == atom_usage ? TOLLGATE_AGENT_SORT_USAGE
        : argv[3] == atom_violations ? TOLLGATE_AGENT_SORT_VIOLATIONS : TOLLGATE_AGENT_SORT_ID;
    tollgate_agent_page *page = NULL;
    size_t count = 0;
    uint64_t matched = 0, not_listed = 0;
    tollgate_status status = tollgate_limiter_agents(limiter->limiter, &query, &page);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_agent_page_count(page, &count);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_agent_page_matched(page, &matched);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_agent_page_not_listed(page, &not_listed);
    }
    term agents = enif_make_list(env, 0);
    for (size_t at = count; status == TOLLGATE_STATUS_OK && at-- > 0;) {
        char id[TOLLGATE_ID_BYTES_MAX];
        size_t length;
        status = tollgate_agent_page_id(page, at, id, sizeof id, &length);
        if (status == TOLLGATE_STATUS_OK) {
            agents = enif_make_list_cell(env, make_text(env, id, length), agents);
        }
    }
    tollgate_agent_page_free(page);
    return status == TOLLGATE_STATUS_OK ? enif_make_tuple3(env, agents, number(env, matched), number(env, not_listed))
                                        : failed(env, status, NULL);
}

/* (reference) -> the status document, JSON */
NIF(nif_status_document)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary json;
    size_t length = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_status_document(limiter->limiter, NULL, 0, &length);
    /* It may grow from one call to the next; with twice the room, not three times in a row. */
    for (int tries = 0; tries < 3; tries++) {
        if ((status != TOLLGATE_STATUS_OK && status != TOLLGATE_STATUS_BUFFER_TOO_SMALL)
            || !enif_alloc_binary(2 * length + LINE_BYTES, &json)) {
            break;
        }
        status = tollgate_limiter_status_document(limiter->limiter, (char *)json.data, json.size, &length);
        if (status == TOLLGATE_STATUS_OK && enif_realloc_binary(&json, length)) {
            return enif_make_binary(env, &json);
        }
        enif_release_binary(&json);
        length *= 2;
    }
    return failed(env, status == TOLLGATE_STATUS_OK ? TOLLGATE_STATUS_OUT_OF_MEMORY : status, NULL);
}

/* (agent, where) -> the id as it is safely shown there */
NIF(nif_shown)
{
    (void)argc;
    const struct {
        term name;
        int32_t shown;
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
            tollgate_status status = tollgate_id_shown(id.data, id.size, known[at].shown, text, sizeof text, &length);
            return status == TOLLGATE_STATUS_OK ? make_text(env, text, length) : not_answered(env, status, argv[0]);
        }
    }
    return bad_argument(env, "an id is shown in :text, :html, a :label, a :url or :json, got: %.60T", argv[1]);
}

/* (reference, most) -> {violations of all, [{agent, violations, error}]}, the worst first */
NIF(nif_top_offenders)
{
    (void)argc;
    instance *limiter;
    tollgate_offenders *offenders = NULL;
    uint64_t most, total = 0;
    size_t count = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!get_u64(env, argv[1], &most)) {
        return bad_argument(env, "how many offenders is a whole number, got: %.60T", argv[1]);
    }
    tollgate_status status = tollgate_limiter_top_offenders(limiter->limiter, most, &offenders);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_offenders_total(offenders, &total);
    }
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_offenders_count(offenders, &count);
    }
    term all = enif_make_list(env, 0);
    for (size_t at = count; status == TOLLGATE_STATUS_OK && at-- > 0;) {
        char id[TOLLGATE_ID_BYTES_MAX];
        size_t length;
        uint64_t violations, error;
        status = tollgate_offenders_id(offenders, at, id, sizeof id, &length);
        if (status == TOLLGATE_STATUS_OK) {
            status = tollgate_offenders_violations(offenders, at, &violations, &error);
        }
        if (status == TOLLGATE_STATUS_OK) {
            term one = enif_make_tuple3(env, make_text(env, id, length), number(env, violations), number(env, error));
            all = enif_make_list_cell(env, one, all);
        }
    }
    tollgate_offenders_free(offenders);
    return status == TOLLGATE_STATUS_OK ? enif_make_tuple2(env, number(env, total), all) : failed(env, status, NULL);
}

static term make_event(ErlNifEnv *env, const tollgate_event *event)
{
    term agent = make_text(env, (const char *)event->agent, event->agent_len);
    term fields;
    switch (event->kind) {
    case TOLLGATE_EVENT_TYPE_SUSTAINED_ABUSE:
        fields = enif_make_tuple3(env, atom_sustained_abuse, agent, enif_make_uint(env, event->consecutive));
        break;
    case TOLLGATE_EVENT_TYPE_UNKNOWN_ACTION:
        fields = enif_make_tuple3(env, atom_unknown_action, make_text(env, event->channel, strlen(event->channel)),
            make_text(env, event->action, strlen(event->action)));
        break;
    case TOLLGATE_EVENT_TYPE_SATURATED:
        fields = enif_make_tuple3(env, atom_saturated, number(env, event->lossy_evictions), number(env, event->refused));
        break;
    case TOLLGATE_EVENT_TYPE_POLICY_REPLACED:
        fields = enif_make_tuple1(env, atom_policy_replaced);
        break;
    case TOLLGATE_EVENT_TYPE_ASSIGNMENT_CHANGED:
        fields = enif_make_tuple2(env, atom_assignment_changed, agent);
        break;
    case TOLLGATE_EVENT_TYPE_ASSIGNMENTS_CHANGED:
        fields = enif_make_tuple2(env, atom_assignments_changed, number(env, event->agents));
        break;
    case TOLLGATE_EVENT_TYPE_CLOCK_FELL_BACK:
        fields = enif_make_tuple1(env, atom_clock_fell_back);
        break;
    default:
        fields = enif_make_tuple2(env, atom_other, enif_make_int(env, event->kind));
    }
    return enif_make_tuple2(env, number(env, event->number), fields);
}

/* (reference) -> [{number, event}], the oldest first, up to BATCH_MAX of them; each is told once */
NIF(nif_poll_events)
{
    (void)argc;
    instance *limiter;
    term polled[BATCH_MAX];
    unsigned count = 0;
    bool more = true;
    tollgate_status status = TOLLGATE_STATUS_OK;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    while (count < BATCH_MAX && status == TOLLGATE_STATUS_OK) {
        tollgate_event event = {.struct_size = sizeof event};
        status = tollgate_limiter_poll_event(limiter->limiter, &event, &more);
        if (status != TOLLGATE_STATUS_OK || !more) {
            break;
        }
        polled[count++] = make_event(env, &event);
    }
    return status == TOLLGATE_STATUS_OK ? enif_make_list_from_array(env, polled, count) : failed(env, status, NULL);
}

/* The lines that a throttle has ready. */
static term take_lines(ErlNifEnv *env, tollgate_log_throttle *log, size_t count)
{
    term lines = enif_make_list(env, 0), in_order;
    char line[LINE_BYTES];
    size_t length;
    for (size_t at = 0; at < count; at++) {
        if (tollgate_log_throttle_line(log, line, sizeof line, &length) != TOLLGATE_STATUS_OK) {
            break;
        }
        lines = enif_make_list_cell(env, make_text(env, line, length), lines);
    }
    return enif_make_reverse_list(env, lines, &in_order) ? in_order : lines;
}

/* (reference, agent, now_ns) -> [line]: tells the instance's throttle of a denial */
NIF(nif_log_denied)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary id;
    uint64_t now_ns;
    bool line;
    term raised;
    if (!read_agent(env, argv, &limiter, &id, &raised)) {
        return raised;
    }
    if (!get_u64(env, argv[2], &now_ns)) {
        return bad_argument(env, "an instant is a whole number of nanoseconds, got: %.60T", argv[2]);
    }
    tollgate_status status = tollgate_log_throttle_denied(limiter->log, id.data, id.size, now_ns, &line);
    return status == TOLLGATE_STATUS_OK ? take_lines(env, limiter->log, line ? 1 : 0)
                                        : not_answered(env, status, argv[1]);
}

/* (reference, now_ns) -> [line]: what is due */
NIF(nif_log_due)
{
    (void)argc;
    instance *limiter;
    uint64_t now_ns;
    size_t count;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!get_u64(env, argv[1], &now_ns)) {
        return bad_argument(env, "an instant is a whole number of nanoseconds, got: %.60T", argv[1]);
    }
    tollgate_status status = tollgate_log_throttle_due(limiter->log, now_ns, &count);
    return status == TOLLGATE_STATUS_OK ? take_lines(env, limiter->log, count) : failed(env, status, NULL);
}
