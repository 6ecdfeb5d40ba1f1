/* The table of functions, and what happens when the library is loaded. */

#include "nif.h"

#include <string.h>

/* Costs nothing but the call: the floor of the bench. */
NIF(nif_nothing)
{
    (void)env;
    (void)argv;
    return atom_ok;
}

#ifdef TOLLGATE_TEST_HOOKS
void tollgate_test_panic_next(void);

/* The next call into the limiter panics inside. Only the tests' library has this. */
static NIF(nif_panic_next)
{
    (void)env;
    (void)argv;
    tollgate_test_panic_next();
    return atom_ok;
}
#endif

#define HERE 0
#define CPU ERL_NIF_DIRTY_JOB_CPU_BOUND
#define IO ERL_NIF_DIRTY_JOB_IO_BOUND
#define ENTRY(name, arity, where) {#name, arity, nif_##name, where},

static ErlNifFunc functions[] = {
    NIFS(ENTRY)
#ifdef TOLLGATE_TEST_HOOKS
    {"panic_next", 0, nif_panic_next, 0},
#endif
};

/*
 * What was compiled, all of it: see Tollgate.Build. What an instance keeps, the limiter included, is laid out alike in
 * two libraries only if they are of one build.
 */
static const char build[] = "tollgate build " TOLLGATE_BUILD;

/* () -> the id of the build that is loaded */
NIF(nif_build)
{
    (void)argv;
    return make_text(env, TOLLGATE_BUILD, strlen(TOLLGATE_BUILD));
}

static int load(ErlNifEnv *env, void **private_data, term info)
{
    (void)info;
    *private_data = (void *)build;
    make_atoms(env);
    return open_instances(env, build) ? 0 : 1;
}

/*
 * The module is loaded over itself. The same build takes over the instances. Another one cannot read them, so it is
 * refused, and the old code goes on serving them. The libraries of every version keep the text of their build as their
 * private data; those before there was such a text keep none.
 */
static int upgrade(ErlNifEnv *env, void **private_data, void **old_private_data, term info)
{
    if (*old_private_data == NULL || strcmp(*old_private_data, build) != 0) {
        return 2;
    }
    return load(env, private_data, info);
}

ERL_NIF_INIT(Elixir.Tollgate.Native, functions, load, NULL, upgrade, NULL)
