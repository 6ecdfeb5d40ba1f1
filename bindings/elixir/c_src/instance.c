/* Instances: a limiter and its clock, kept alive by the references to them. */

#include "nif.h"

#include <pthread.h>
#include <string.h>

/*
 * Unmapping takes about a millisecond for every 20 MB that were touched, and a
 * destructor runs on a scheduler. So larger ones go to a thread.
 */
#define UNMAP_HERE_BYTES (1 << 20)

static ErlNifResourceType *instances;

static void *free_limiter(void *limiter)
{
    tollgate_limiter_free(limiter);
    return NULL;
}

/* The thread may outlive the module: the library is linked never to be unloaded. */
static bool free_elsewhere(tollgate_limiter *limiter)
{
    pthread_t thread;
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0) {
        return false;
    }
    bool started = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0
        && pthread_create(&thread, &detached, free_limiter, limiter) == 0;
    pthread_attr_destroy(&detached);
    return started;
}

static void drop(ErlNifEnv *env, void *object)
{
    (void)env;
    instance *limiter = object;
    uint64_t bytes = 0;
    tollgate_clock_free(limiter->clock);
    tollgate_log_throttle_free(limiter->log);
    (void)tollgate_limiter_memory(limiter->limiter, &bytes);
    if (bytes < UNMAP_HERE_BYTES || !free_elsewhere(limiter->limiter)) {
        tollgate_limiter_free(limiter->limiter);
    }
}

bool open_instances(ErlNifEnv *env)
{
    ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
    instances = enif_open_resource_type(env, NULL, "instance", drop, flags, NULL);
    return instances != NULL;
}

bool get_instance(ErlNifEnv *env, term given, instance **limiter)
{
    return enif_get_resource(env, given, instances, (void **)limiter);
}

bool find_lane(const instance *limiter, term channel, term tier, uint32_t *lane)
{
    for (uint32_t at = 0; at < limiter->lanes; at++) {
        if (limiter->lane[at].tier == tier && limiter->lane[at].channel == channel) {
            *lane = at;
            return true;
        }
    }
    return false;
}

bool get_lane(ErlNifEnv *env, const instance *limiter, term given, uint32_t *lane)
{
    const term *pair;
    int arity;
    if (enif_get_uint(env, given, lane)) {
        return true;
    }
    return enif_get_tuple(env, given, &arity, &pair) && arity == 2 && find_lane(limiter, pair[0], pair[1], lane);
}

bool read_agent(ErlNifEnv *env, const term argv[], instance **limiter, ErlNifBinary *id, term *raised)
{
    if (!get_instance(env, argv[0], limiter)) {
        return refuse(raised, bad_instance(env, argv[0]));
    }
    return enif_inspect_binary(env, argv[1], id) || refuse(raised, bad_agent(env, argv[1]));
}

bool read_agent_and_lane(ErlNifEnv *env, const term argv[], instance **limiter, ErlNifBinary *id, uint32_t *lane,
    term *raised)
{
    return read_agent(env, argv, limiter, id, raised)
        && (get_lane(env, *limiter, argv[2], lane) || refuse(raised, bad_lane_term(env, *limiter, argv[2])));
}

bool read_plan(ErlNifEnv *env, const instance *limiter, term given, bool *has_plan, uint32_t *plan, term *raised)
{
    ErlNifBinary name;
    *has_plan = given != atom_nil;
    if (!*has_plan || enif_get_uint(env, given, plan)) {
        return true;
    }
    if (!enif_inspect_binary(env, given, &name)) {
        return refuse(raised, bad_argument(env, "a plan is given by its name, got: %.60T", given));
    }
    tollgate_status status = tollgate_limiter_plan(limiter->limiter, (const char *)name.data, name.size, plan);
    return status == TOLLGATE_STATUS_OK
        || refuse(raised, bad_argument(env, "the policy has no plan %.80T", given));
}

bool read_cost(ErlNifEnv *env, term given, uint64_t *cost, term *raised)
{
    return (get_u64(env, given, cost) && *cost != 0) || refuse(raised, bad_cost(env, given));
}

/* An option by its name; false if the map lacks it. */
static bool option(ErlNifEnv *env, term options, const char *name, term *value)
{
    return enif_get_map_value(env, options, enif_make_atom(env, name), value);
}

static bool read_clock(term given, int32_t *source)
{
    const struct {
        term name;
        int32_t source;
    } known[] = {
        {atom_automatic, TOLLGATE_TIME_SOURCE_AUTO}, {atom_os, TOLLGATE_TIME_SOURCE_OS},
        {atom_coarse, TOLLGATE_TIME_SOURCE_COARSE}, {atom_boottime, TOLLGATE_TIME_SOURCE_BOOTTIME},
        {atom_manual, TOLLGATE_TIME_SOURCE_MANUAL},
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++) {
        if (known[at].name == given) {
            *source = known[at].source;
            return true;
        }
    }
    return false;
}

/* (policy, %{agents, on_full, id_hash, clock, whole_seconds, sight, roster, reservations,
   reservations_per_agent, commit_memory}) -> reference */
NIF(nif_new)
{
    (void)argc;
    tollgate_limiter_options options = {.struct_size = sizeof options};
    term agents, on_full, id_hash, clock_name, whole_seconds, sight, roster, reservations, per_agent, commit_memory, raised;
    int32_t source;
    uint64_t most;
    if (!option(env, argv[1], "agents", &agents) || !option(env, argv[1], "on_full", &on_full)
        || !option(env, argv[1], "id_hash", &id_hash) || !option(env, argv[1], "clock", &clock_name)
        || !option(env, argv[1], "whole_seconds", &whole_seconds) || !option(env, argv[1], "sight", &sight)
        || !option(env, argv[1], "roster", &roster) || !option(env, argv[1], "reservations", &reservations)
        || !option(env, argv[1], "reservations_per_agent", &per_agent)
        || !option(env, argv[1], "commit_memory", &commit_memory)) {
        return bad_argument(env, "an option is missing in %.200T", argv[1]);
    }
    if (!get_u64(env, agents, &options.agents) || options.agents == 0 || options.agents > TOLLGATE_AGENTS_MAX) {
        return bad_argument(env, "agents has to be a whole number from 1 to %d, got: %.60T", TOLLGATE_AGENTS_MAX, agents);
    }
    if (!get_u64(env, roster, &options.roster) || (options.roster != 0 && sight != atom_true)) {
        return bad_argument(env, "roster has to be a whole number, and 0 without sight: true, got: %.60T", roster);
    }
    if (!get_u64(env, reservations, &options.reservations) || options.reservations == 0
        || options.reservations > TOLLGATE_RESERVATIONS_MAX) {
        return bad_argument(env, "reservations has to be a whole number from 1 to %d, got: %.60T",
            TOLLGATE_RESERVATIONS_MAX, reservations);
    }
    if (!get_u64(env, per_agent, &most) || most > TOLLGATE_RESERVATIONS_MAX) {
        return bad_argument(env, "reservations_per_agent has to be a whole number from 1 to %d, or 0 for one in 64 of all, got: %.60T",
            TOLLGATE_RESERVATIONS_MAX, per_agent);
    }
    options.reservations_per_agent = (uint32_t)most;
    if (!read_clock(clock_name, &source)) {
        return bad_argument(env, "clock has to be :automatic, :os, :coarse, :boottime or :manual, got: %.60T", clock_name);
    }
    if (on_full != atom_evict && on_full != atom_deny) {
        return bad_argument(env, "on_full has to be :evict or :deny, got: %.60T", on_full);
    }
    if (id_hash != atom_multilinear && id_hash != atom_siphash13) {
        return bad_argument(env, "id_hash has to be :multilinear or :siphash13, got: %.60T", id_hash);
    }
    if (commit_memory != atom_true && commit_memory != atom_false) {
        return bad_argument(env, "commit_memory has to be true or false, got: %.60T", commit_memory);
    }
    options.on_full = on_full == atom_deny ? TOLLGATE_ON_FULL_DENY : TOLLGATE_ON_FULL_EVICT;
    options.id_hash = id_hash == atom_siphash13 ? TOLLGATE_ID_HASH_SIPHASH13 : TOLLGATE_ID_HASH_MULTILINEAR;

    options.commit_memory = commit_memory == atom_true;
    options.sight = sight == atom_true ? TOLLGATE_SIGHT_ON : TOLLGATE_SIGHT_OFF;

    tollgate_policy *policy = NULL;
    if (!read_policy(env, argv[0], &policy, &raised)) {
        return raised;
    }
    tollgate_clock *clock = NULL;
    tollgate_limiter *made = NULL;
    tollgate_log_throttle *log = NULL;
    tollgate_status status = tollgate_log_throttle_new(&log);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_clock_new(source, &clock);
    }
    if (status == TOLLGATE_STATUS_OK) {
        options.clock = clock;
        status = tollgate_limiter_new(policy, &options, &made);
    }
    tollgate_policy_free(policy);
    if (status != TOLLGATE_STATUS_OK) {
        tollgate_clock_free(clock);
        tollgate_log_throttle_free(log);
        return failed(env, status, NULL);
    }
    instance *limiter = enif_alloc_resource(instances, sizeof *limiter);
    memset(limiter, 0, sizeof *limiter);
    limiter->limiter = made;
    limiter->clock = clock;
    limiter->log = log;
    limiter->whole_seconds = whole_seconds == atom_true;
    term reference = enif_make_resource(env, limiter);
    enif_release_resource(limiter);
    return reference;
}

/* (reference, [{channel, tier}]): how Elixir calls the lanes, in their order. Once, by whoever made the instance. */
NIF(nif_name_lanes)
{
    (void)argc;
    instance *limiter;
    term rest = argv[1], pair;
    uint32_t lanes = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (limiter->lanes != 0) {
        return bad_argument(env, "the lanes are named already");
    }
    while (enif_get_list_cell(env, rest, &pair, &rest)) {
        const term *names;
        int arity;
        if (lanes == TOLLGATE_LANES_MAX || !enif_get_tuple(env, pair, &arity, &names) || arity != 2
            || !enif_is_atom(env, names[0]) || !enif_is_atom(env, names[1])) {
            return bad_argument(env, "lanes are named by pairs of atoms, got: %.60T", pair);
        }
        limiter->lane[lanes].channel = names[0];
        limiter->lane[lanes].tier = names[1];
        lanes++;
    }
    limiter->lanes = lanes;
    return atom_ok;
}

/* (reference) -> [{name, limit}], the policy's lanes in their order */
NIF(nif_lanes)
{
    (void)argc;
    instance *limiter;
    tollgate_policy *policy = NULL;
    uint32_t count = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_policy(limiter->limiter, &policy);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_policy_lane_count(policy, &count);
    }
    term lanes = enif_make_list(env, 0);
    for (uint32_t lane = count; status == TOLLGATE_STATUS_OK && lane-- > 0;) {
        char name[TOLLGATE_LANE_NAME_BYTES_MAX + 1], limit[256];
        size_t name_length, limit_length;
        status = tollgate_policy_lane_name(policy, lane, name, sizeof name, &name_length);
        if (status == TOLLGATE_STATUS_OK) {
            status = tollgate_policy_limit(policy, lane, limit, sizeof limit, &limit_length);
        }
        if (status == TOLLGATE_STATUS_OK) {
            term pair = enif_make_tuple2(env, make_text(env, name, name_length), make_text(env, limit, limit_length));
            lanes = enif_make_list_cell(env, pair, lanes);
        }
    }
    tollgate_policy_free(policy);
    return status == TOLLGATE_STATUS_OK ? lanes : failed(env, status, NULL);
}

/* (reference) -> [name], the policy's plans in their order */
NIF(nif_plans)
{
    (void)argc;
    instance *limiter;
    tollgate_policy *policy = NULL;
    uint32_t count = 0;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_policy(limiter->limiter, &policy);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_policy_plan_count(policy, &count);
    }
    term plans = enif_make_list(env, 0);
    for (uint32_t plan = count; status == TOLLGATE_STATUS_OK && plan-- > 0;) {
        char name[TOLLGATE_LANE_NAME_BYTES_MAX + 1];
        size_t length;
        status = tollgate_policy_plan_name(policy, plan, name, sizeof name, &length);
        if (status == TOLLGATE_STATUS_OK) {
            plans = enif_make_list_cell(env, make_text(env, name, length), plans);
        }
    }
    tollgate_policy_free(policy);
    return status == TOLLGATE_STATUS_OK ? plans : failed(env, status, NULL);
}

/* (reference, name) -> the plan's number | nil */
NIF(nif_plan)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary name;
    uint32_t plan;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!enif_inspect_binary(env, argv[1], &name)) {
        return bad_argument(env, "a plan is given by its name, got: %.60T", argv[1]);
    }
    tollgate_status status = tollgate_limiter_plan(limiter->limiter, (const char *)name.data, name.size, &plan);
    if (status == TOLLGATE_STATUS_OK) {
        return enif_make_uint(env, plan);
    }
    return status == TOLLGATE_STATUS_PANIC ? failed(env, status, NULL) : atom_nil;
}

/* (reference) -> bytes reserved */
NIF(nif_memory)
{
    (void)argc;
    instance *limiter;
    uint64_t bytes;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_memory(limiter->limiter, &bytes);
    return status == TOLLGATE_STATUS_OK ? enif_make_uint64(env, bytes) : failed(env, status, NULL);
}

/* (reference) -> {agents, records, claims, idle_evictions, lossy_evictions, retries} */
NIF(nif_stats)
{
    (void)argc;
    instance *limiter;
    tollgate_stats stats = {.struct_size = sizeof stats};
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_stats(limiter->limiter, &stats);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    return enif_make_tuple6(env, enif_make_uint64(env, stats.agents), enif_make_uint64(env, stats.records),
        enif_make_uint64(env, stats.claims), enif_make_uint64(env, stats.idle_evictions),
        enif_make_uint64(env, stats.lossy_evictions), enif_make_uint64(env, stats.retries));
}

/* (reference, idle_for_ns) -> how many agents were swept */
NIF(nif_sweep)
{
    (void)argc;
    instance *limiter;
    uint64_t idle_for_ns, swept;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!get_u64(env, argv[1], &idle_for_ns)) {
        return bad_argument(env, "the idle time has to be a whole number of nanoseconds, got: %.60T", argv[1]);
    }
    tollgate_status status = tollgate_limiter_sweep(limiter->limiter, idle_for_ns, &swept);
    return status == TOLLGATE_STATUS_OK ? enif_make_uint64(env, swept) : failed(env, status, NULL);
}

/* (reference) -> nanoseconds on the instance's clock */
NIF(nif_now)
{
    (void)argc;
    instance *limiter;
    uint64_t now_ns;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_now(limiter->limiter, &now_ns);
    return status == TOLLGATE_STATUS_OK ? enif_make_uint64(env, now_ns) : failed(env, status, NULL);
}

/* (reference) -> what its clock reads */
NIF(nif_clock_source)
{
    (void)argc;
    instance *limiter;
    tollgate_time_source source;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_clock_source(limiter->clock, &source);
    if (status != TOLLGATE_STATUS_OK) {
        return failed(env, status, NULL);
    }
    switch (source) {
    case TOLLGATE_TIME_SOURCE_TSC: return atom_tsc;
    case TOLLGATE_TIME_SOURCE_COARSE: return atom_coarse;
    case TOLLGATE_TIME_SOURCE_BOOTTIME: return atom_boottime;
    case TOLLGATE_TIME_SOURCE_MANUAL: return atom_manual;
    default: return atom_os;
    }
}

static term move_clock(ErlNifEnv *env, const term argv[], tollgate_status (*move)(tollgate_clock *, uint64_t))
{
    instance *limiter;
    uint64_t ns;
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!get_u64(env, argv[1], &ns)) {
        return bad_argument(env, "a clock is moved by a whole number of nanoseconds, got: %.60T", argv[1]);
    }
    tollgate_status status = move(limiter->clock, ns);
    if (status == TOLLGATE_STATUS_NOT_MANUAL) {
        return bad_argument(env, "only an instance that was started with clock: :manual has a clock that can be moved");
    }
    return status == TOLLGATE_STATUS_OK ? atom_ok : failed(env, status, NULL);
}

/* (reference, by_ns) */
NIF(nif_advance_clock)
{
    (void)argc;
    return move_clock(env, argv, tollgate_clock_advance);
}

/* (reference, now_ns) */
NIF(nif_set_clock)
{
    (void)argc;
    return move_clock(env, argv, tollgate_clock_set);
}
