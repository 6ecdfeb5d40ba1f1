/*
 * tollgate for C++17 over Redis or Valkey: tollgate.hpp, and an engine.
 *
 *     auto cluster = tollgate::cluster(secret);
 *     auto options = tollgate::options();
 *     options.cluster = &cluster;
 *     tollgate::limiter limiter(policy, options);
 *     tollgate::engine engine(limiter, "redis://10.0.0.5");
 *     limiter.check("agent-7", heavy);
 *
 * tollgate_redis.h is the manual. Link libtollgate_redis in place of libtollgate.
 */
#ifndef TOLLGATE_REDIS_HPP
#define TOLLGATE_REDIS_HPP

#include "tollgate_redis.h"

#include "tollgate.hpp"
#include "tollgate/engine.hpp"

#endif
