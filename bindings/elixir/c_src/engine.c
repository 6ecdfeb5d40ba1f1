/*
 * The engine: the thread through which an instance shares lanes with other machines. It is of the library, and no
 * scheduler waits for it: it is started and stopped on dirty ones.
 */

#include "nif.h"

#include <string.h>

#ifdef TOLLGATE_REDIS

/* The key of a map; false and no exception if it is nil or not there. */
static bool given_option(ErlNifEnv *env, term options, const char *name, term *value)
{
    return enif_get_map_value(env, options, enif_make_atom(env, name), value) && *value != atom_nil;
}

/* A text, or nothing; false after an exception. */
static bool text_option(ErlNifEnv *env, term options, const char *name, const char **text, size_t *length)
{
    term given;
    ErlNifBinary bytes;
    if (!given_option(env, options, name, &given)) {
        return true;
    }
    if (!enif_inspect_binary(env, given, &bytes)) {
        /* What was given may be a secret, so it is not shown. */
        bad_argument(env, "%s: of redis: has to be a text", name);
        return false;
    }
    *text = (const char *)bytes.data;
    *length = bytes.size;
    return true;
}

static bool number_option(ErlNifEnv *env, term options, const char *name, uint32_t most, uint32_t *value)
{
    term given;
    unsigned number;
    if (!given_option(env, options, name, &given)) {
        return true;
    }
    if (!enif_get_uint(env, given, &number) || number == 0 || number > most) {
        bad_argument(env, "%s: of redis: has to be a whole number from 1 to %u, got: %.60T", name, most, given);
        return false;
    }
    *value = number;
    return true;
}

static bool when_lost_option(ErlNifEnv *env, term options, int32_t *value)
{
    term given;
    if (!given_option(env, options, "when_lost", &given)) {
        return true;
    }
    const char *const names[] = {"share", "closed", "open", "alone"};
    for (int32_t at = 0; at < 4; at++) {
        if (enif_is_identical(given, enif_make_atom(env, names[at]))) {
            *value = TOLLGATE_WHEN_LOST_SHARE + at;
            return true;
        }
    }
    bad_argument(env, "when_lost: of redis: has to be :share, :closed, :open or :alone, got: %.60T", given);
    return false;
}

/* Lanes come as maps with a name. */
static bool read_lanes(ErlNifEnv *env, term options, sharing *shared)
{
    term rest, lane, given;
    if (!given_option(env, options, "lanes", &rest)) {
        return true;
    }
    for (uint32_t count = 0; enif_get_list_cell(env, rest, &lane, &rest); shared->cluster.lanes_count = ++count) {
        if (count == TOLLGATE_LANES_MAX) {
            bad_argument(env, "lanes: of redis: has more than %d lanes", TOLLGATE_LANES_MAX);
            return false;
        }
        tollgate_cluster_lane *made = &shared->lanes[count];
        if (!text_option(env, lane, "name", &made->name, &made->name_len)
            || !number_option(env, lane, "slack", 100, &made->slack_percent)
            || !when_lost_option(env, lane, &made->when_lost)) {
            return false;
        }
        made->own = given_option(env, lane, "own", &given) && given == atom_true;
        made->exact = given_option(env, lane, "exact", &given) && given == atom_true;
    }
    shared->cluster.lanes = shared->lanes;
    return true;
}

bool read_redis(ErlNifEnv *env, term given, sharing *shared)
{
    uint32_t timeout_ms = 0, servers = TOLLGATE_SERVERS_ONE + 1;
    const char *secret = NULL;
    shared->cluster.struct_size = sizeof shared->cluster;
    shared->engine.struct_size = sizeof shared->engine;
#define TEXT(name, to) text_option(env, given, name, &shared->engine.to, &shared->engine.to##_len)
    if (!text_option(env, given, "secret", &secret, &shared->cluster.secret_len)
        || !number_option(env, given, "slack", 100, &shared->cluster.slack_percent)
        || !when_lost_option(env, given, &shared->cluster.when_lost) || !read_lanes(env, given, shared)
        || !number_option(env, given, "servers", 3, &servers) || !TEXT("urls", urls) || !TEXT("master", master)
        || !TEXT("user", user) || !TEXT("password", password) || !TEXT("sentinel_user", sentinel_user)
        || !TEXT("sentinel_password", sentinel_password) || !TEXT("ca", tls_ca)
        || !TEXT("certificate", tls_certificate) || !TEXT("key", tls_key)
        || !number_option(env, given, "nodes", UINT16_MAX, &shared->engine.nodes_at_least)
        || !number_option(env, given, "timeout", 1000, &timeout_ms)) {
        return false;
    }
#undef TEXT
    shared->cluster.secret = secret;
    shared->engine.servers = (int32_t)servers - 1;
    shared->engine.timeout_ns = UINT64_C(1000000) * timeout_ms;
    return true;
}

tollgate_status start_engine(instance *made, const sharing *shared, tollgate_error *error)
{
    made->engine_lock = enif_mutex_create("tollgate.engine");
    return made->engine_lock == NULL ? TOLLGATE_STATUS_OUT_OF_MEMORY
        : tollgate_engine_new(made->limiter, &shared->engine, error, &made->engine);
}

/* From now on nobody else finds it. */
tollgate_engine *take_engine(instance *of)
{
    if (of->engine_lock == NULL) {
        return NULL;
    }
    enif_mutex_lock(of->engine_lock);
    tollgate_engine *engine = of->engine;
    of->engine = NULL;
    enif_mutex_unlock(of->engine_lock);
    return engine;
}

void free_engine(tollgate_engine *engine)
{
    tollgate_engine_free(engine);
}

/* (reference): gives back the credit that was not spent, which takes a few round trips, or four time-outs */
NIF(nif_stop_engine)
{
    instance *of;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_engine_free(take_engine(of));
    return atom_ok;
}

static term number(ErlNifEnv *env, uint64_t value)
{
    return enif_make_uint64(env, value);
}

static term make_lines(ErlNifEnv *env, const char *text)
{
    term lines = enif_make_list(env, 0);
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        lines = enif_make_list_cell(env, make_text(env, text, length), lines);
        text += length + (text[length] != 0);
    }
    enif_make_reverse_list(env, lines, &lines);
    return lines;
}

static term make_when_lost(ErlNifEnv *env, tollgate_when_lost when_lost)
{
    switch (when_lost) {
    case TOLLGATE_WHEN_LOST_CLOSED: return enif_make_atom(env, "closed");
    case TOLLGATE_WHEN_LOST_OPEN: return enif_make_atom(env, "open");
    case TOLLGATE_WHEN_LOST_ALONE: return enif_make_atom(env, "alone");
    default: return enif_make_atom(env, "share");
    }
}

static term make_engine_lane(ErlNifEnv *env, const tollgate_engine_lane *lane)
{
    term answers = enif_make_new_map(env);
    for (tollgate_source source = TOLLGATE_SOURCE_CREDIT; source < TOLLGATE_SOURCES; source++) {
        enif_make_map_put(env, answers, make_source(env, source), number(env, lane->answers[source]), &answers);
    }
    const pair fields[] = {
        {atom_capacity, number(env, lane->capacity)}, {enif_make_atom(env, "exact"), make_bool(lane->exact != 0)},
        {enif_make_atom(env, "slack_percent"), number(env, lane->slack_percent)},
        {enif_make_atom(env, "when_lost"), make_when_lost(env, lane->when_lost)},
        {enif_make_atom(env, "bound"), number(env, lane->bound_tokens)},
        {enif_make_atom(env, "credit"), number(env, lane->credit)},
        {enif_make_atom(env, "advance"), number(env, lane->advance)}, {enif_make_atom(env, "answers"), answers},
    };
    return MAKE_MAP(env, fields);
}

static term make_losses(ErlNifEnv *env, const tollgate_engine_view *view)
{
    const char *const names[TOLLGATE_LOSSES] = {"timeout", "connection", "read_only", "loading", "out_of_memory",
        "no_auth", "cluster_down", "no_script", "other"};
    term losses = enif_make_new_map(env);
    for (size_t at = 0; at < TOLLGATE_LOSSES; at++) {
        enif_make_map_put(env, losses, enif_make_atom(env, names[at]), number(env, view->losses_by_reason[at]),
            &losses);
    }
    return losses;
}

static term make_problem(ErlNifEnv *env, const char *problem)
{
    return problem[0] == 0 ? atom_nil : make_text(env, problem, strlen(problem));
}

static term make_decisions(ErlNifEnv *env, const tollgate_engine_view *view)
{
    const pair fields[] = {
        {enif_make_atom(env, "current"), make_bool(view->decisions_current != 0)},
        {enif_make_atom(env, "agents"), number(env, view->agents_decided)},
        {enif_make_atom(env, "waiting"), number(env, view->decisions_waiting)},
        {enif_make_atom(env, "refused"), number(env, view->decisions_refused)},
        {enif_make_atom(env, "written"), number(env, view->decisions_written)},
        {enif_make_atom(env, "followed"), number(env, view->decisions_followed)},
        {enif_make_atom(env, "put_back"), number(env, view->decisions_put_back)},
        {enif_make_atom(env, "last_problem"), make_problem(env, view->decisions_problem)},
    };
    return MAKE_MAP(env, fields);
}

/* (reference) -> a map, in which lanes is a map from {channel, tier}; nil if no engine runs */
NIF(nif_engine)
{
    instance *of;
    tollgate_engine_view view = {.struct_size = sizeof view};
    tollgate_engine_lane shared[TOLLGATE_LANES_MAX];
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    if (of->engine_lock == NULL) {
        return atom_nil;
    }
    enif_mutex_lock(of->engine_lock);
    bool runs = of->engine != NULL;
    tollgate_status status = runs ? tollgate_engine_status(of->engine, &view, shared, TOLLGATE_LANES_MAX)
                                  : TOLLGATE_STATUS_OK;
    enif_mutex_unlock(of->engine_lock);
    if (!runs || status != TOLLGATE_STATUS_OK) {
        return runs ? failed(env, status, NULL, atom_nil) : atom_nil;
    }
    term lanes = enif_make_new_map(env);
    for (uint32_t at = 0; at < view.lane_count; at++) {
        if (shared[at].lane < of->lanes) {
            term name = enif_make_tuple2(env, of->lane[shared[at].lane].channel, of->lane[shared[at].lane].tier);
            enif_make_map_put(env, lanes, name, make_engine_lane(env, &shared[at]), &lanes);
        }
    }
    const char *const states[] = {"lost", "seeding", "connected"};
#define NUMBER(name) {enif_make_atom(env, #name), number(env, view.name)}
    const pair fields[] = {
        {enif_make_atom(env, "state"), enif_make_atom(env, states[view.state])},
        {enif_make_atom(env, "since_ms"), number(env, view.state_for_ns / 1000000)},
        {enif_make_atom(env, "lost_ms"), number(env, view.lost_for_ns / 1000000)},
        {enif_make_atom(env, "round_trip_us"), number(env, view.round_trip_ns / 1000)},
        {enif_make_atom(env, "round_trip_us_max"), number(env, view.round_trip_max_ns / 1000)},
        {enif_make_atom(env, "losses"), make_losses(env, &view)},
        {enif_make_atom(env, "last_problem"), make_problem(env, view.last_problem)},
        {enif_make_atom(env, "warnings"), make_lines(env, view.warnings)},
        {enif_make_atom(env, "settled"), number(env, view.settlements)},
        NUMBER(nodes), NUMBER(nodes_seen), NUMBER(granted), NUMBER(given), NUMBER(paid), NUMBER(seeded),
        NUMBER(asks), NUMBER(asks_dropped), {atom_lanes, lanes},
        {enif_make_atom(env, "decisions"), make_decisions(env, &view)},
    };
    return MAKE_MAP(env, fields);
}

#else

/* Built without an engine: no instance has one. */
bool read_redis(ErlNifEnv *env, term given, sharing *shared)
{
    (void)given;
    (void)shared;
    bad_argument(env, "redis: is not built in: leave `config :tollgate, redis: false` out, and compile tollgate again");
    return false;
}

tollgate_status start_engine(instance *made, const sharing *shared, tollgate_error *error)
{
    (void)made;
    (void)shared;
    (void)error;
    return TOLLGATE_STATUS_NOT_BUILT_IN;
}

tollgate_engine *take_engine(instance *of)
{
    (void)of;
    return NULL;
}

void free_engine(tollgate_engine *engine)
{
    (void)engine;
}

NIF(nif_stop_engine)
{
    (void)env;
    (void)argv;
    return atom_ok;
}

NIF(nif_engine)
{
    (void)env;
    (void)argv;
    return atom_nil;
}

#endif

term make_source(ErlNifEnv *env, tollgate_source source)
{
    const char *const names[] = {"nil", "credit", "advance", "view", "pending", "share", "closed", "open", "alone"};
    return enif_make_atom(env, names[source >= 0 && source < TOLLGATE_SOURCES ? source : 0]);
}
