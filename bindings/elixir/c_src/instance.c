/* Instances: a limiter and its clock, kept alive by the references to them. */

#include "nif.h"

#include <pthread.h>
#include <string.h>

/*
 * Unmapping takes about a millisecond for every 20 MB that were touched, and a
 * destructor runs on a scheduler. So larger ones go to a thread.
 */
#define UNMAP_HERE_BYTES (1 << 20)

#define NS_PER_MS 1000000u

/* An agent for which no wait helps comes back in a minute: perhaps an operator has changed its limits. */
#define NEVER_MS 60000u

static ErlNifResourceType *instances;

static void *free_limiter(void *limiter)
{
    tollgate_limiter_free(limiter);
    return NULL;
}

static void *stop_engine(void *engine)
{
    free_engine(engine);
    return NULL;
}

/* The thread may outlive the module: the library is linked never to be unloaded. */
static bool run_elsewhere(void *(*call)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0) {
        return false;
    }
    bool started = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0
        && pthread_create(&thread, &detached, call, argument) == 0;
    pthread_attr_destroy(&detached);
    return started;
}

static void drop(ErlNifEnv *env, void *object)
{
    (void)env;
    instance *of = object;
    tollgate_clock_free(of->clock);
    tollgate_log_throttle_free(of->log);
    /* One that was not stopped in order. It keeps the limiter's memory until it has ended. */
    tollgate_engine *engine = take_engine(of);
    if (engine != NULL && !run_elsewhere(stop_engine, engine)) {
        free_engine(engine);
    }
    if (of->engine_lock != NULL) {
        enif_mutex_destroy(of->engine_lock);
    }
    if (of->memory_bytes < UNMAP_HERE_BYTES || !run_elsewhere(free_limiter, of->limiter)) {
        tollgate_limiter_free(of->limiter);
    }
}

bool open_instances(ErlNifEnv *env, const char *build)
{
    ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
    instances = enif_open_resource_type(env, NULL, build, drop, flags, NULL);
    return instances != NULL;
}

bool read_instance(ErlNifEnv *env, term given, instance **of)
{
    if (!enif_get_resource(env, given, instances, (void **)of)) {
        bad_argument(env,
            "%.60T is not a limiter: it has to come from Tollgate.Native.new/2, and from this load of the NIF", given);
        return false;
    }
    return true;
}

term make_wait(ErlNifEnv *env, const instance *of, uint64_t wait_ns)
{
    if (of->whole_seconds) {
        return enif_make_uint64(env, tollgate_wait_ms(wait_ns, 1000, NEVER_MS));
    }
    return wait_ns == TOLLGATE_NEVER ? atom_infinity
        : enif_make_uint64(env, wait_ns / NS_PER_MS + (wait_ns % NS_PER_MS != 0));
}

/* An option of a map, which has to be there. */
static bool option(ErlNifEnv *env, term options, const char *name, term *value)
{
    if (!enif_get_map_value(env, options, enif_make_atom(env, name), value)) {
        bad_argument(env, "the option %s is missing in %.200T", name, options);
        return false;
    }
    return true;
}

static bool number_option(ErlNifEnv *env, term options, const char *name, uint64_t least, uint64_t most,
    uint64_t *value)
{
    term given;
    ErlNifUInt64 number;
    if (!option(env, options, name, &given)) {
        return false;
    }
    if (!enif_get_uint64(env, given, &number) || number < least || number > most) {
        bad_argument(env, "%s has to be a whole number from %lu to %lu, got: %.60T", name, (unsigned long)least,
            (unsigned long)most, given);
        return false;
    }
    *value = number;
    return true;
}

typedef struct {
    term name;
    int32_t value;
} choice;

/* One of a few atoms; `known` names them for the message. */
static bool choice_option(ErlNifEnv *env, term options, const char *name, const char *known, const choice choices[],
    size_t count, int32_t *value)
{
    term given;
    if (!option(env, options, name, &given)) {
        return false;
    }
    for (size_t at = 0; at < count; at++) {
        if (choices[at].name == given) {
            *value = choices[at].value;
            return true;
        }
    }
    bad_argument(env, "%s has to be %s, got: %.60T", name, known, given);
    return false;
}

#define CHOICE(env, options, name, known, choices, value) \
    choice_option(env, options, name, known, choices, sizeof(choices) / sizeof *(choices), value)

static bool read_limiter_options(ErlNifEnv *env, term given, tollgate_limiter_options *options, int32_t *source,
    bool *whole_seconds)
{
    const choice flags[] = {{atom_true, 1}, {atom_false, 0}};
    const choice on_full[] = {{atom_evict, TOLLGATE_ON_FULL_EVICT}, {atom_deny, TOLLGATE_ON_FULL_DENY}};
    const choice hashes[] = {
        {atom_multilinear, TOLLGATE_ID_HASH_MULTILINEAR}, {atom_siphash13, TOLLGATE_ID_HASH_SIPHASH13}};
    const choice clocks[] = {
        {atom_automatic, TOLLGATE_CLOCK_SOURCE_AUTO}, {atom_os, TOLLGATE_CLOCK_SOURCE_OS},
        {atom_coarse, TOLLGATE_CLOCK_SOURCE_COARSE}, {atom_boottime, TOLLGATE_CLOCK_SOURCE_BOOTTIME},
        {atom_manual, TOLLGATE_CLOCK_SOURCE_MANUAL},
    };
    int32_t full, hash, seconds, observe, prefault;
    uint64_t per_agent;
    if (!number_option(env, given, "agents", 1, TOLLGATE_AGENTS_MAX, &options->agents)
        || !number_option(env, given, "roster", 0, UINT64_MAX, &options->roster)
        || !number_option(env, given, "reservations", 1, TOLLGATE_RESERVATIONS_MAX, &options->reservations)
        || !number_option(env, given, "reservations_per_agent", 0, TOLLGATE_RESERVATIONS_MAX, &per_agent)
        || !CHOICE(env, given, "clock", ":automatic, :os, :coarse, :boottime or :manual", clocks, source)
        || !CHOICE(env, given, "on_full", ":evict or :deny", on_full, &full)
        || !CHOICE(env, given, "id_hash", ":multilinear or :siphash13", hashes, &hash)
        || !CHOICE(env, given, "whole_seconds", "true or false", flags, &seconds)
        || !CHOICE(env, given, "observe", "true or false", flags, &observe)
        || !CHOICE(env, given, "prefault", "true or false", flags, &prefault)) {
        return false;
    }
    if (options->roster != 0 && observe == 0) {
        bad_argument(env, "roster has to be 0 without observe: true, got: %lu", (unsigned long)options->roster);
        return false;
    }
    options->reservations_per_agent = (uint32_t)per_agent;
    options->on_full = full;
    options->id_hash = hash;
    options->prefault = prefault != 0;
    options->observe = observe != 0 ? TOLLGATE_OBSERVE_ON : TOLLGATE_OBSERVE_OFF;
    *whole_seconds = seconds != 0;
    return true;
}

/* The path of a shared instance, or nil; it has to live as long as the terms of the call. */
static bool read_sharing(ErlNifEnv *env, term given, tollgate_limiter_options *options)
{
    term shared;
    ErlNifBinary path;
    uint64_t mode;
    if (!option(env, given, "shared", &shared) || !number_option(env, given, "shared_mode", 0, 0777, &mode)) {
        return false;
    }
    if (shared == atom_nil) {
        return true;
    }
    if (!read_text(env, shared, "shared", &path)) {
        return false;
    }
    options->shared_path = (const char *)path.data;
    options->shared_path_len = path.size;
    options->shared_mode = (uint32_t)mode;
    return true;
}

/* (policy, a map of the options in Tollgate.Options.native) -> reference */
NIF(nif_new)
{
    tollgate_limiter_options options = {.struct_size = sizeof options};
    tollgate_error error = {.struct_size = sizeof error};
    tollgate_limiter_view snapshot = {.struct_size = sizeof snapshot};
    tollgate_policy *policy = NULL;
    instance made = {0};
    sharing shared = {0};
    int32_t source;
    term redis;
    if (!read_limiter_options(env, argv[1], &options, &source, &made.whole_seconds)
        || !read_sharing(env, argv[1], &options) || !option(env, argv[1], "redis", &redis)
        || (redis != atom_nil && !read_redis(env, redis, &shared))
        || !read_policy(env, argv[0], &policy)) {
        return atom_nil;
    }
    options.cluster = redis != atom_nil ? &shared.cluster : NULL;
    tollgate_status status = tollgate_log_throttle_new(&made.log);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_clock_new(source, &made.clock);
    }
    if (status == TOLLGATE_STATUS_OK) {
        options.clock = made.clock;
        status = tollgate_limiter_new(policy, &options, &error, &made.limiter);
    }
    tollgate_policy_free(policy);
    if (status == TOLLGATE_STATUS_OK) {
        status = tollgate_snapshot(made.limiter, &snapshot, NULL, 0);
    }
    if (status == TOLLGATE_STATUS_OK && redis != atom_nil) {
        status = start_engine(&made, &shared, &error);
    }
    if (status != TOLLGATE_STATUS_OK) {
        tollgate_limiter_free(made.limiter);
        tollgate_clock_free(made.clock);
        tollgate_log_throttle_free(made.log);
        if (made.engine_lock != NULL) {
            enif_mutex_destroy(made.engine_lock);
        }
        return failed(env, status, &error, atom_nil);
    }
    made.memory_bytes = snapshot.memory;
    made.is_shared = snapshot.processes > 0;
    instance *of = enif_alloc_resource(instances, sizeof *of);
    *of = made;
    term reference = enif_make_resource(env, of);
    enif_release_resource(of);
    return reference;
}

/* (reference, [{channel, tier}]): Elixir's names of the lanes, in their order. Once, by whoever made the instance. */
NIF(nif_name_lanes)
{
    instance *of;
    term rest = argv[1], pair;
    uint32_t lanes = 0;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    if (of->lanes != 0) {
        return bad_argument(env, "the lanes are named already");
    }
    for (; enif_get_list_cell(env, rest, &pair, &rest); lanes++) {
        const term *names;
        int arity;
        if (lanes == TOLLGATE_LANES_MAX || !enif_get_tuple(env, pair, &arity, &names) || arity != 2
            || !enif_is_atom(env, names[0]) || !enif_is_atom(env, names[1])) {
            return bad_argument(env, "lanes are named by pairs of atoms, got: %.60T", pair);
        }
        of->lane[lanes].channel = names[0];
        of->lane[lanes].tier = names[1];
    }
    of->lanes = lanes;
    return atom_ok;
}

/* (reference, idle_for_ns) -> how many records were given up */
NIF(nif_sweep)
{
    instance *of;
    uint64_t idle_for_ns, swept;
    if (!read_instance(env, argv[0], &of) || !read_u64(env, argv[1], "the idle time in nanoseconds", &idle_for_ns)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_limiter_sweep(of->limiter, idle_for_ns, TOLLGATE_NOW, &swept);
    return status == TOLLGATE_STATUS_OK ? enif_make_uint64(env, swept) : failed(env, status, NULL, atom_nil);
}

/* (reference) -> nanoseconds on the instance's clock */
NIF(nif_now)
{
    instance *of;
    uint64_t now_ns;
    if (!read_instance(env, argv[0], &of)) {
        return atom_nil;
    }
    tollgate_status status = tollgate_limiter_now(of->limiter, &now_ns);
    return status == TOLLGATE_STATUS_OK ? enif_make_uint64(env, now_ns) : failed(env, status, NULL, atom_nil);
}

static term move_clock(ErlNifEnv *env, const term argv[], tollgate_status (*move)(tollgate_clock *, uint64_t))
{
    instance *of;
    uint64_t ns;
    if (!read_instance(env, argv[0], &of) || !read_u64(env, argv[1], "what moves a clock, in nanoseconds,", &ns)) {
        return atom_nil;
    }
    tollgate_status status = move(of->clock, ns);
    if (status == TOLLGATE_STATUS_NOT_MANUAL) {
        return bad_argument(env, "only the clock of an instance that was started with clock: :manual can be moved");
    }
    return status == TOLLGATE_STATUS_OK ? atom_ok : failed(env, status, NULL, atom_nil);
}

/* (reference, by_ns) */
NIF(nif_advance_clock)
{
    return move_clock(env, argv, tollgate_clock_advance);
}

/* (reference, now_ns) */
NIF(nif_set_clock)
{
    return move_clock(env, argv, tollgate_clock_set);
}
