// The C++ header over a real store: every function once, owners and exceptions.
#include "tollgate_redis.hpp"

#include "expect.h"
#include "store.h"

#include <string>

static const std::string SECRET = "0f6f4c0d9d1e7e4a0a2b";

static tollgate::limiter limiter_new()
{
    auto login = tollgate::cluster_lane("login");
    login.exact = 1;
    const std::vector<tollgate_cluster_lane> lanes = {tollgate::own_lane("ws"), login};
    const auto cluster = tollgate::cluster(SECRET, lanes);
    auto options = tollgate::options();
    options.agents = 100;
    options.cluster = &cluster;
    return tollgate::limiter(tollgate::policy::from_toml("[lanes]\n"
                                                         "http = '60/minute'\n"
                                                         "login = '10/hour'\n"
                                                         "ws = 'held 3'\n"),
                             options);
}

// Two machines in one process: the second one denies what the first has spent.
static void machines_share_a_limit(const store &at)
{
    auto first = limiter_new(), second = limiter_new();
    tollgate::engine one(first, at.url);
    auto options = tollgate::engine_options(at.url);
    options.nodes_at_least = 2;
    tollgate::engine two(second, options);
    for (int tries = 0; !one.connected() || !two.connected(); tries++) {
        if (tries > 30000) {
            fprintf(stderr, "waited in vain: %s\n", one.status().last_problem);
            exit(1);
        }
        usleep(1000);
    }
    const auto http = first.lane("http");
    int spent = 0;
    for (int i = 0; i < 1000; i++, usleep(1000))
        spent += first.check("agent-7", http).allowed();
    EXPECT(spent >= 58);
    const auto verdict = second.check(tollgate::request("agent-7", http).cost(30));
    EXPECT(!verdict);
    EXPECT(verdict.source() == TOLLGATE_SOURCE_PENDING || verdict.source() == TOLLGATE_SOURCE_VIEW);
    EXPECT_EQ(second.check("agent-8", first.lane("login")).source(), TOLLGATE_SOURCE_PENDING);

    const auto lanes = one.lanes();
    EXPECT_EQ(lanes.size(), 2);
    EXPECT_EQ(lanes[0].lane, http);
    EXPECT(lanes[0].answers[TOLLGATE_SOURCE_VIEW] > 0);
    EXPECT_EQ(lanes[1].exact, 1);
    EXPECT(two.status().nodes == 2 && two.get() != nullptr);
    tollgate::engine moved = std::move(two);
    EXPECT(moved.connected());
}

int main(int count, char **programs)
{
    auto limiter = limiter_new();
    try {
        tollgate::engine engine(limiter, "http://10.0.0.5");
        EXPECT(!"an engine without a server");
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_INVALID_OPTION);
        EXPECT(std::string(error.what()).find("redis://host:port") != std::string::npos);
    }
    store made;
    if (store_start(&made, count > 1 ? programs[1] : "redis-server")) {
        machines_share_a_limit(made);
        store_stop(&made);
    }
    return expectations_end("test_engine_hpp");
}
