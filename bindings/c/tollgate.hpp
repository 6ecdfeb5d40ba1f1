/*
 * tollgate for C++17: the C library with owners, values and exceptions.
 *
 *     tollgate::limiter limiter(tollgate::policy::from_toml("[lanes]\n\"http/heavy\" = \"10/minute burst 3\""));
 *     const auto heavy = limiter.lane("http/heavy");
 *     if (limiter.check("agent-7", heavy))
 *         serve();
 *     limiter.check(tollgate::request("agent-7", heavy).cost(5).plan(jwt).counted());
 *
 * Everything is inline and thin. Handles free themselves and can be moved. A
 * status other than TOLLGATE_STATUS_OK is thrown as a tollgate::error; a denial
 * is a verdict. Lanes and plans are numbers, as in C; ask for them once, by
 * name. tollgate.h is the manual of every call, and its rules on threads, forks
 * and ids hold here too.
 */
#ifndef TOLLGATE_HPP
#define TOLLGATE_HPP

#include "tollgate.h"

#include "tollgate/clock.hpp"
#include "tollgate/error.hpp"
#include "tollgate/limiter.hpp"
#include "tollgate/log_throttle.hpp"
#include "tollgate/policy.hpp"
#include "tollgate/request.hpp"
#include "tollgate/verdict.hpp"
#include "tollgate/views.hpp"

#endif
