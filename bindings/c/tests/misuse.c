/*
 * Mistakes that no library can answer with a status: a handle used after it was
 * freed, or freed twice. AddressSanitizer names them; the Makefile expects it to.
 */
#include "expect.h"

int main(int argc, char **argv)
{
    const char *mistake = argc > 1 ? argv[1] : "";
    rig made = rig_new(10, TOLLGATE_ON_FULL_DENY);
    tollgate_verdict verdict;
    if (strcmp(mistake, "none") == 0) {
        rig_free(&made);
    } else if (strcmp(mistake, "double-free") == 0) {
        tollgate_policy_free(made.policy);
        tollgate_policy_free(made.policy);
    } else if (strcmp(mistake, "use-after-free") == 0) {
        tollgate_limiter_free(made.limiter);
        return (int)tollgate_check(made.limiter, REQUEST("a", 1, HEAVY, 1), TOLLGATE_NOW, 0, &verdict);
    } else if (strcmp(mistake, "leak") == 0) {
        made.policy = NULL;
        made.limiter = NULL;
    }
    return 0;
}
