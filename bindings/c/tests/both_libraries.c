/*
 * A mistake: both libraries are linked, so one makes the limiter and the other is to
 * start an engine for it. It is refused, and nothing of the limiter is read.
 */
#include "tollgate_redis.h"

#include "expect.h"

int main(void)
{
    rig made = rig_new(10, TOLLGATE_ON_FULL_DENY);
    tollgate_engine_options options = SIZED(tollgate_engine_options);
    options.urls = "redis://127.0.0.1";
    options.urls_len = strlen(options.urls);
    tollgate_error error = SIZED(tollgate_error);
    tollgate_engine *engine = NULL;
    EXPECT_EQ(tollgate_engine_new(made.limiter, &options, &error, &engine), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(strstr(error.message, "in place of libtollgate") != NULL && engine == NULL);
    rig_free(&made);
    return expectations_end("both_libraries");
}
