/* Reads the question that every verb takes: agent, lane, cost, plan, instant, counted, limit. */

#include "nif.h"

#include <string.h>

bool find_lane(const instance *of, term channel, term tier, uint32_t *lane)
{
    for (uint32_t at = 0; at < of->lanes; at++) {
        if (of->lane[at].tier == tier && of->lane[at].channel == channel) {
            *lane = at;
            return true;
        }
    }
    return false;
}

term bad_lane(ErlNifEnv *env, const instance *of, term channel, term tier)
{
    char known[256] = "";
    size_t length = 0;
    for (uint32_t lane = 0; lane < of->lanes && length < sizeof known - 1; lane++) {
        int written = enif_snprintf(known + length, sizeof known - length, "%s%T %T", lane == 0 ? "" : ", ",
            of->lane[lane].channel, of->lane[lane].tier);
        if (written < 0) {
            break;
        }
        length += (size_t)written;
    }
    return bad_argument(env, "the policy has no lane of channel %.60T and tier %.60T; it has: %s", channel, tier,
        known);
}

bool read_lane(ErlNifEnv *env, const instance *of, term given, uint32_t *lane)
{
    const term *names;
    int arity;
    ErlNifBinary name;
    if (enif_get_tuple(env, given, &arity, &names) && arity == 2) {
        if (!find_lane(of, names[0], names[1], lane)) {
            bad_lane(env, of, names[0], names[1]);
            return false;
        }
        return true;
    }
    if (enif_inspect_binary(env, given, &name)) {
        if (tollgate_limiter_lane(of->limiter, (const char *)name.data, name.size, lane) == TOLLGATE_STATUS_OK) {
            return true;
        }
        bad_argument(env, "the policy has no lane %.80T", given);
        return false;
    }
    if (enif_get_uint(env, given, lane)) {
        return true;
    }
    bad_argument(env, "a lane is {channel, tier} or its name, got: %.60T", given);
    return false;
}

bool read_plan(ErlNifEnv *env, const instance *of, term given, uint32_t *plan)
{
    ErlNifBinary text;
    char atom[TOLLGATE_NAME_BYTES_MAX + 1];
    const char *name;
    size_t length;
    *plan = TOLLGATE_NONE;
    if (given == atom_nil || enif_get_uint(env, given, plan)) {
        return true;
    }
    if (enif_inspect_binary(env, given, &text)) {
        name = (const char *)text.data;
        length = text.size;
    } else if (enif_get_atom(env, given, atom, sizeof atom, ERL_NIF_LATIN1) != 0) {
        name = atom;
        length = strlen(atom);
    } else {
        bad_argument(env, "a plan is given by its name, got: %.60T", given);
        return false;
    }
    tollgate_status status = tollgate_limiter_plan(of->limiter, name, length, plan);
    if (status != TOLLGATE_STATUS_OK) {
        bad_argument(env, "the policy has no plan %.80T", given);
        return false;
    }
    return true;
}

bool read_agent(ErlNifEnv *env, const term argv[], question *asked)
{
    ErlNifBinary id;
    if (!read_instance(env, argv[0], &asked->of)) {
        return false;
    }
    if (!enif_inspect_binary(env, argv[1], &id)) {
        bad_agent(env, argv[1]);
        return false;
    }
    asked->request = (tollgate_request){
        .id = id.data, .id_len = id.size, .cost = 1, .lane = TOLLGATE_NONE, .plan = TOLLGATE_NONE};
    asked->now_ns = TOLLGATE_NOW;
    asked->flags = 0;
    return true;
}

/* Sets a flag if the option is true. */
static bool read_flag(ErlNifEnv *env, term name, term given, uint32_t flag, uint32_t *flags)
{
    if (given != atom_true && given != atom_false) {
        bad_argument(env, "%T: has to be true or false, got: %.60T", name, given);
        return false;
    }
    *flags |= given == atom_true ? flag : 0;
    return true;
}

bool read_cost(ErlNifEnv *env, term given, uint64_t *cost)
{
    ErlNifUInt64 number;
    if (!enif_get_uint64(env, given, &number) || number == 0) {
        bad_argument(env, "the cost has to be a whole number from 1 to 2^64 - 1, got: %.60T", given);
        return false;
    }
    *cost = number;
    return true;
}

/* A limit as a text, or as {capacity, count, period in nanoseconds}. */
static bool read_limit(ErlNifEnv *env, term given, tollgate_call_limit *limit)
{
    const term *part;
    int arity;
    ErlNifBinary text;
    if (enif_get_tuple(env, given, &arity, &part) && arity == 3) {
        return read_u64(env, part[0], "the capacity of a limit", &limit->capacity)
            && read_u64(env, part[1], "the count of a limit", &limit->count)
            && read_u64(env, part[2], "the period of a limit in nanoseconds", &limit->period_ns);
    }
    if (!enif_inspect_binary(env, given, &text)) {
        bad_argument(env, "a limit is a text or {capacity, count, period_ns}, got: %.60T", given);
        return false;
    }
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_status status = tollgate_call_limit_read((const char *)text.data, text.size, &error, limit);
    if (status != TOLLGATE_STATUS_OK) {
        bad_argument(env, "the limit of a call: %s", error.message);
    }
    return status == TOLLGATE_STATUS_OK;
}

/* (text) -> {capacity, count, period in nanoseconds} */
NIF(nif_call_limit)
{
    tollgate_call_limit limit;
    return !read_limit(env, argv[0], &limit) ? atom_nil
        : enif_make_tuple3(env, enif_make_uint64(env, limit.capacity), enif_make_uint64(env, limit.count),
            enif_make_uint64(env, limit.period_ns));
}

static bool bad_option(ErlNifEnv *env, unsigned allowed, term given)
{
    static const char *const names[] = {"cost:", "plan:", "at:", "counted:", "lane:", "so_far:", "limit:"};
    char known[80] = "";
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        if ((allowed >> at & 1) != 0) {
            strcat(known, known[0] == 0 ? "" : ", ");
            strcat(known, names[at]);
        }
    }
    bad_argument(env, "the options are %s, got: %.60T", known, given);
    return false;
}

static bool read_option(ErlNifEnv *env, term name, term value, unsigned allowed, question *asked)
{
    if (name == atom_cost && (allowed & OPTION_COST) != 0) {
        return read_cost(env, value, &asked->request.cost);
    }
    if (name == atom_plan && (allowed & OPTION_PLAN) != 0) {
        return read_plan(env, asked->of, value, &asked->request.plan);
    }
    if (name == atom_limit && (allowed & OPTION_LIMIT) != 0) {
        asked->request.limit = &asked->limit;
        return read_limit(env, value, &asked->limit);
    }
    if (name == atom_at && (allowed & OPTION_AT) != 0) {
        return read_u64(env, value, "at:, an instant in nanoseconds,", &asked->now_ns);
    }
    if (name == atom_counted && (allowed & OPTION_COUNTED) != 0) {
        return read_flag(env, name, value, TOLLGATE_COUNTED, &asked->flags);
    }
    if (name == atom_lane && (allowed & OPTION_LANE) != 0) {
        return read_lane(env, asked->of, value, &asked->request.lane);
    }
    if (name == atom_so_far && (allowed & OPTION_SO_FAR) != 0) {
        return read_flag(env, name, value, TOLLGATE_SETTLE_SO_FAR, &asked->flags);
    }
    return bad_option(env, allowed, name);
}

bool read_options(ErlNifEnv *env, term given, unsigned allowed, question *asked)
{
    term rest = given, option;
    /* Ends with the list. */
    while (enif_get_list_cell(env, rest, &option, &rest)) {
        const term *part;
        int arity;
        if (!enif_get_tuple(env, option, &arity, &part) || arity != 2) {
            return bad_option(env, allowed, option);
        }
        if (!read_option(env, part[0], part[1], allowed, asked)) {
            return false;
        }
    }
    return enif_is_empty_list(env, rest) || bad_option(env, allowed, given);
}

bool read_question(ErlNifEnv *env, const term argv[], question *asked)
{
    return read_agent(env, argv, asked) && read_lane(env, asked->of, argv[2], &asked->request.lane)
        && read_options(env, argv[3], OPTIONS_OF_QUESTION, asked);
}

static bool read_request(ErlNifEnv *env, instance *of, term given, tollgate_request *request,
    tollgate_call_limit *limit)
{
    const term *part;
    int arity;
    ErlNifBinary id;
    if (!enif_get_tuple(env, given, &arity, &part) || arity < 2 || arity > 3) {
        bad_argument(env, "a request has to be {agent, lane} or {agent, lane, options}, got: %.60T", given);
        return false;
    }
    if (!enif_inspect_binary(env, part[0], &id) || id.size == 0 || id.size > TOLLGATE_ID_BYTES_MAX) {
        bad_agent(env, part[0]);
        return false;
    }
    *request = (tollgate_request){.id = id.data, .id_len = id.size, .cost = 1, .plan = TOLLGATE_NONE};
    if (!read_lane(env, of, part[1], &request->lane)) {
        return false;
    }
    if (arity == 3) {
        question asked = {.of = of, .request = *request};
        bool is_read = read_options(env, part[2], OPTIONS_OF_REQUEST, &asked);
        *request = asked.request;
        if (request->limit != NULL) {
            *limit = asked.limit;
            request->limit = limit;
        }
        return is_read;
    }
    return true;
}

bool read_requests(ErlNifEnv *env, instance *of, term given, batch *read)
{
    term rest = given, request;
    for (read->count = 0; enif_get_list_cell(env, rest, &request, &rest); read->count++) {
        if (read->count == BATCH_MAX) {
            bad_argument(env, "a call takes up to %d requests", BATCH_MAX);
            return false;
        }
        if (!read_request(env, of, request, &read->requests[read->count], &read->limits[read->count])) {
            return false;
        }
    }
    if (!enif_is_empty_list(env, rest)) {
        bad_argument(env, "the requests have to be a list, got: %.60T", given);
        return false;
    }
    return true;
}

/* A request in a batch takes up to 200 ns; a timeslice is 1 ms. */
void count_time(ErlNifEnv *env, unsigned requests)
{
    unsigned percent = requests * 200 / 10000;
    enif_consume_timeslice(env, percent < 1 ? 1 : percent > 100 ? 100 : (int)percent);
}
