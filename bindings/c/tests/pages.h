/* What the snippets in README.md and docs/c.md take for granted. */
#ifdef __cplusplus
#include "tollgate.hpp"

void refuse(std::uint32_t violations, std::optional<tollgate::span> wait);
extern "C" {
#else
#include "tollgate_redis.h"

#include <string.h>

extern tollgate_policy *policy;
extern tollgate_limiter *limiter;
extern tollgate_verdict verdict;
extern uint32_t api, heavy, requests, tokens, jwt;
extern uint64_t ttl_ns;
extern bool is_jwt;
extern const void *id;
extern size_t id_len;
extern const char *secret, *password;
extern size_t secret_len;
extern tollgate_engine *engine;
extern tollgate_error error;
void answer(int status, uint64_t number);
void die(const char *message);
void refuse(uint32_t blocking, uint64_t wait_ns);
#endif
void serve(void);
#ifdef __cplusplus
}
#endif
