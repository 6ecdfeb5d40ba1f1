// The C++ header: every function once, owners, durations and exceptions.
#include "tollgate.hpp"

#include "expect.h"

#include <thread>

using namespace std::chrono_literals;

static tollgate::policy lanes()
{
    return tollgate::policy::builder().lane("heavy", "10/minute burst 3").lane("light", 120, 1min, 120).build();
}

static void a_limiter_answers()
{
    auto clock = tollgate::clock::manual();
    clock.set(5);
    clock.advance(1000s);
    EXPECT_EQ(clock.now(), 1000 * SECOND + 5);
    EXPECT_EQ(clock.source(), TOLLGATE_TIME_SOURCE_MANUAL);
    EXPECT_EQ(clock.fallbacks(), 0);

    tollgate::options options;
    options.agents = 100;
    options.on_full = TOLLGATE_ON_FULL_DENY;
    options.clock = &clock;
    tollgate::limiter limiter(lanes(), options);
    const auto heavy = limiter.lane("heavy");
    const auto now = limiter.now();
    EXPECT_EQ(now, clock.now());

    EXPECT_EQ(limiter.check("agent-7", heavy).remaining(), 2);
    EXPECT_EQ(limiter.check("agent-7", heavy, 2).decision(), TOLLGATE_DECISION_WARN);
    const auto denied = limiter.check_at("agent-7", heavy, 1, now);
    EXPECT(!denied && !denied.allowed());
    EXPECT(denied.retry_after() == 6s);
    EXPECT(denied.full_in() == 18s);
    EXPECT_EQ(denied.capacity(), 3);

    auto status = limiter.refund("agent-7", heavy, 1);
    EXPECT_EQ(status.remaining(), 1);
    EXPECT(status.next_in() == 6s);
    status = limiter.refund_at("agent-7", heavy, 2, now);
    EXPECT_EQ(status.remaining(), 3);
    EXPECT(!status.next_in());
    (void)limiter.check("agent-7", heavy, 3);
    EXPECT_EQ(limiter.status("agent-7", heavy).remaining(), 0);
    EXPECT(limiter.status_at("agent-7", heavy, now + 6 * SECOND).full_in() == 12s);
    limiter.reset_lane("agent-7", heavy);
    limiter.reset_lane_at("agent-7", heavy, now);
    limiter.reset("agent-7");
    limiter.reset_at("agent-7", now);
    EXPECT_EQ(limiter.status("agent-7", heavy).remaining(), limiter.status("agent-7", heavy).capacity());
    EXPECT(limiter.forget("agent-7"));
    EXPECT(!limiter.forget_at("agent-7", now));

    const std::string id("\0\xff", 2);
    const auto answers = limiter.check_many(
        {tollgate::request(id, heavy, 3), tollgate::request(id, heavy), tollgate::request("", heavy)});
    EXPECT_EQ(answers.size(), 3);
    EXPECT_EQ(answers[0].decision, TOLLGATE_DECISION_WARN);
    EXPECT_EQ(answers[1].retry_after_ns, 6 * SECOND);
    EXPECT_EQ(answers[2].status, TOLLGATE_STATUS_EMPTY_ID);
    EXPECT(limiter.check_many_at({}, now).empty());

    EXPECT_EQ(limiter.stats().agents, 1);
    EXPECT(limiter.memory() > 0);
    EXPECT_EQ(limiter.sweep(0s), 0);
    EXPECT_EQ(limiter.sweep_at(-1s, now + 60 * SECOND), 1);
    EXPECT(tollgate_limiter_now(limiter.get(), nullptr) == TOLLGATE_STATUS_NULL_POINTER);
}

static void a_policy_tells_what_it_holds()
{
    auto builder = tollgate::policy::builder();
    const auto policy = builder.lane("a", "1/s").warn_below_percent(7).build();
    EXPECT_EQ(policy.lane("a"), 0);
    EXPECT_EQ(policy.lane_count(), 1);
    EXPECT(policy.lane_name(0) == "a");
    EXPECT(policy.limit(0) == "1/second");
    EXPECT_EQ(policy.warn_below_percent(), 7);
    tollgate::limiter limiter(policy);
    auto moved = std::move(limiter);
    EXPECT(moved.policy().limit(0) == "1/second");
    EXPECT(tollgate::version() == TOLLGATE_VERSION);
}

static void mistakes_are_thrown()
{
    try {
        (void)tollgate::policy::builder().lane("http", "0/min").build();
        EXPECT(false);
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_INVALID_POLICY);
        EXPECT(std::string_view(error.what()).find("lane \"http\": a rate or burst of 0") == 0);
        EXPECT_EQ(error.line() + error.column(), 0);
    }
    try {
        tollgate::limiter limiter(lanes());
        (void)limiter.check("", 0);
        EXPECT(false);
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_EMPTY_ID);
    }
    try {
        tollgate::clock(TOLLGATE_TIME_SOURCE_OS).advance(1s);
        EXPECT(false);
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_NOT_MANUAL);
    }
}

// Both owners go; the limiter stays.
static void the_limiter_of_the_process_is_shared()
{
    tollgate_limiter *first = tollgate::limiter::process().get();
    std::thread([&] { EXPECT(tollgate::limiter::process().get() == first); }).join();
    EXPECT(tollgate::limiter::process().check("a", 0).allowed());
}

int main()
{
    a_limiter_answers();
    a_policy_tells_what_it_holds();
    mistakes_are_thrown();
    the_limiter_of_the_process_is_shared();
    return expectations_end("test_hpp");
}
