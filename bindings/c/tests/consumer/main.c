#include <stdio.h>
#include <tollgate.h>

int main(int argc, char **argv)
{
    printf("%s: tollgate %s\n", argc > 1 ? argv[1] : "consumer", tollgate_version());
    tollgate_limiter *limiter = NULL;
    return tollgate_default(&limiter) != TOLLGATE_STATUS_OK || limiter == NULL;
}
