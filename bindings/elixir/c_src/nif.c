/* The table of functions, and what happens when the library is loaded. */

#include "nif.h"

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

static int load(ErlNifEnv *env, void **private_data, term info)
{
    (void)private_data;
    (void)info;
    make_atoms(env);
    return open_instances(env) ? 0 : 1;
}

/* The module is loaded over itself: the instances live on. */
static int upgrade(ErlNifEnv *env, void **private_data, void **old_private_data, term info)
{
    (void)old_private_data;
    return load(env, private_data, info);
}

ERL_NIF_INIT(Elixir.Tollgate.Native, functions, load, NULL, upgrade, NULL)
