#include <stdio.h>
#include <tollgate.h>

int main(int argc, char **argv)
{
    printf("%s: tollgate %s\n", argc > 1 ? argv[1] : "consumer", tollgate_version());
    tollgate_policy *policy = NULL;
    tollgate_status status = tollgate_policy_preset(TOLLGATE_LITERAL("standard"), NULL, &policy);
    tollgate_policy_free(policy);
    return status != TOLLGATE_STATUS_OK;
}
