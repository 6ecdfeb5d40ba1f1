/* Used budgets, kept in a file across restarts. */

#include "nif.h"

#include <string.h>

/* What the file or the system refused is for the caller to handle: {:error, message}. */
static term refused(ErlNifEnv *env, tollgate_status status, const tollgate_error *error)
{
    return status == TOLLGATE_STATUS_FILE || status == TOLLGATE_STATUS_NO_FILE
        ? enif_make_tuple2(env, atom_error, make_text(env, error->message, strlen(error->message)))
        : failed(env, status, error);
}

/* (reference, path) -> {loaded, ended, unknown, full, ahead_ns} | {:error, message} */
NIF(nif_keep_budgets_in)
{
    (void)argc;
    instance *limiter;
    ErlNifBinary path;
    tollgate_budgets_loaded told = {.struct_size = sizeof told};
    tollgate_error error = {.struct_size = sizeof error};
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    if (!enif_inspect_binary(env, argv[1], &path)) {
        return bad_argument(env, "a path is a binary, got: %.60T", argv[1]);
    }
    tollgate_status status
        = tollgate_limiter_keep_budgets_in(limiter->limiter, (const char *)path.data, path.size, &told, &error);
    return status != TOLLGATE_STATUS_OK ? refused(env, status, &error)
        : enif_make_tuple5(env, enif_make_uint64(env, told.loaded), enif_make_uint64(env, told.ended),
            enif_make_uint64(env, told.unknown), enif_make_uint64(env, told.full), enif_make_uint64(env, told.ahead_ns));
}

/* (reference) -> {saved, unsaved} | {:error, message} */
NIF(nif_save_budgets)
{
    (void)argc;
    instance *limiter;
    tollgate_budgets_saved told = {.struct_size = sizeof told};
    tollgate_error error = {.struct_size = sizeof error};
    if (!get_instance(env, argv[0], &limiter)) {
        return bad_instance(env, argv[0]);
    }
    tollgate_status status = tollgate_limiter_save_budgets(limiter->limiter, &told, &error);
    return status != TOLLGATE_STATUS_OK ? refused(env, status, &error)
        : enif_make_tuple2(env, enif_make_uint64(env, told.saved), enif_make_uint64(env, told.unsaved));
}
