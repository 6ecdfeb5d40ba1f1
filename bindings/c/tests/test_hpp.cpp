// The C++ header: every function once, owners, durations and exceptions.
#include "tollgate.hpp"

#include "expect.h"

#include <unistd.h>

using namespace std::chrono_literals;
using tollgate::request;

static tollgate::policy lanes()
{
    return tollgate::policy::from_toml("[lanes]\n"
                                       "heavy = '10/minute burst 3'\n"
                                       "light = '120/minute'\n"
                                       "[conduct]\n"
                                       "curve = ['1s', '2s', '5s', '10s', '30s']\n"
                                       "every_denial = true\n");
}

static tollgate_limiter_options options(const tollgate::clock &clock)
{
    auto options = tollgate::options();
    options.agents = 100;
    options.on_full = TOLLGATE_ON_FULL_DENY;
    options.clock = clock.get();
    return options;
}

// What a call throws.
template <class Call> static tollgate_status thrown(Call call)
{
    try {
        call();
    } catch (const tollgate::error &error) {
        EXPECT(error.what()[0] != '\0');
        return error.status();
    }
    return TOLLGATE_STATUS_OK;
}

static void a_limiter_answers()
{
    auto clock = tollgate::clock::manual();
    clock.set(5);
    clock.advance(1000s);
    EXPECT_EQ(clock.now(), 1000 * SECOND + 5);
    tollgate::limiter limiter(lanes(), options(clock));
    const auto heavy = limiter.lane("heavy");
    const auto now = limiter.now();
    EXPECT_EQ(now, clock.now());

    EXPECT_EQ(limiter.check("agent-7", heavy).remaining(), 2);
    EXPECT_EQ(limiter.check(request("agent-7", heavy).cost(2)).decision(), TOLLGATE_DECISION_WARN);
    const auto denied = limiter.check(request("agent-7", heavy).at(now));
    EXPECT(!denied && !denied.allowed() && denied.status() == TOLLGATE_STATUS_OK);
    EXPECT(denied.retry_after() == 6s && denied.lane_wait() == 6s && denied.conduct_wait() == 0s);
    EXPECT(denied.full_in() == 18s && denied.capacity() == 3 && denied.raw().token_ns == 6 * SECOND);
    EXPECT_EQ(tollgate::wait_in(denied.retry_after(), 5s, 60s).count(), 10000);
    EXPECT_EQ(tollgate::wait_in(std::nullopt, 5s, 60s).count(), 60000);

    auto state = limiter.refund({"agent-7", heavy});
    EXPECT_EQ(state.remaining, 1);
    EXPECT_EQ(state.next_in_ns, 6 * SECOND);
    state = limiter.refund(request("agent-7", heavy).cost(2).at(now));
    EXPECT_EQ(state.remaining, 3);
    EXPECT_EQ(state.next_in_ns, TOLLGATE_NEVER);
    (void)limiter.check(request("agent-7", heavy).cost(3));
    EXPECT_EQ(limiter.peek({"agent-7", heavy}).remaining, 0);
    EXPECT_EQ(limiter.peek(request("agent-7", heavy).at(now + 6 * SECOND)).full_in_ns, 12 * SECOND);
    limiter.reset("agent-7", heavy);
    limiter.reset("agent-7", heavy, now);
    limiter.reset("agent-7");
    limiter.reset("agent-7", tollgate::none, now);
    EXPECT_EQ(limiter.peek({"agent-7", heavy}).remaining, 3);
    EXPECT(limiter.forget("agent-7") && !limiter.forget("agent-7", now));

    EXPECT_EQ(limiter.sweep(0s), 0);
    (void)limiter.check("idle", heavy);
    EXPECT_EQ(limiter.sweep(-1s, now + 60 * SECOND), 1);
    EXPECT(tollgate_limiter_now(limiter.get(), nullptr) == TOLLGATE_STATUS_NULL_POINTER);
}

static void a_batch_has_one_instant()
{
    const auto clock = tollgate::clock::manual();
    tollgate::limiter limiter(lanes(), options(clock));
    const std::string id("\0\xff", 2);
    const auto verdicts = limiter.check_many({request(id, 0).cost(3), request(id, 0), request("", 0)});
    EXPECT_EQ(verdicts.size(), 3);
    EXPECT_EQ(verdicts[0].decision(), TOLLGATE_DECISION_WARN);
    EXPECT(verdicts[1].retry_after() == 6s);
    EXPECT(!verdicts[2] && verdicts[2].status() == TOLLGATE_STATUS_EMPTY_ID);
    EXPECT(limiter.check_many({}).empty());
    EXPECT(limiter.check_many({request(id, 0).counted().at(0)})[0].violations_in_a_row() == 1);
    EXPECT_EQ(thrown([&] { (void)limiter.check_many({request(id, 0), request(id, 0).at(1)}); }),
              TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(thrown([&] { (void)limiter.check_all({request(id, 0), request(id, 0).counted()}); }),
              TOLLGATE_STATUS_INVALID_OPTION);
}

static void a_policy_shows_what_it_holds()
{
    EXPECT_EQ(tollgate::presets().size(), 5);
    const auto hub = tollgate::policy::preset("hub");
    EXPECT(tollgate::policy::from_toml(hub.to_toml()).to_toml() == hub.to_toml());
    const auto policy = tollgate::policy::from_toml("[lanes]\na = '1/s'\n[plans.pro]\na = '2/s'");
    EXPECT_EQ(policy.lane("a"), 0);
    EXPECT_EQ(policy.plan("pro"), 1);
    EXPECT(policy.lane_name(0) == "a" && policy.plan_name(1) == "pro");
    EXPECT(policy.limit(0, 0) == "1/second" && policy.limit(1, 0) == "2/second");
    tollgate::limiter limiter(policy);
    auto moved = std::move(limiter);
    EXPECT(moved.policy().limit(0, 0) == "1/second");
    EXPECT(tollgate::version() == TOLLGATE_VERSION);
}

static void mistakes_are_thrown()
{
    try {
        (void)tollgate::policy::from_toml("[lanes]\nhttp = '0/min'");
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_INVALID_POLICY);
        EXPECT(std::string_view(error.what()).find("lane \"http\": a rate or burst of 0") == 0);
        EXPECT(error.line() == 2 && error.column() == 8);
    }
    tollgate::limiter limiter(lanes());
    EXPECT_EQ(thrown([&] { (void)limiter.check("", 0); }), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(thrown([&] { (void)limiter.lane("nowhere"); }), TOLLGATE_STATUS_UNKNOWN_LANE);
    EXPECT_EQ(thrown([&] { (void)tollgate::policy::preset("hubs"); }), TOLLGATE_STATUS_UNKNOWN_PRESET);
    EXPECT_EQ(thrown([&] { tollgate::clock(TOLLGATE_CLOCK_SOURCE_OS).advance(1s); }), TOLLGATE_STATUS_NOT_MANUAL);
    auto too_many = tollgate::options();
    too_many.agents = TOLLGATE_AGENTS_MAX + UINT64_C(1);
    EXPECT_EQ(thrown([&] { tollgate::limiter(lanes(), too_many); }), TOLLGATE_STATUS_AGENTS_OUT_OF_RANGE);
}

static void plans_and_overrides_are_decided()
{
    const auto clock = tollgate::clock::manual();
    const auto policy = tollgate::policy::from_toml("on_change = 'reset'\n"
                                                    "unknown_actions_to = 'heavy'\n"
                                                    "[lanes]\n"
                                                    "'ws/heavy' = '10/minute'\n"
                                                    "'http/heavy' = '20/minute'\n"
                                                    "[plans.pro]\n"
                                                    "'ws/heavy' = '100/minute'\n"
                                                    "[actions.ws]\n"
                                                    "heavy = ['identify']\n");
    tollgate::limiter limiter(policy, options(clock));
    const auto pro = limiter.plan("pro");
    EXPECT_EQ(limiter.check(request("a", 0).plan(pro).cost(60)).remaining(), 40);
    EXPECT_EQ(limiter.peek(request("a", 0).plan(pro)).remaining, 40);
    limiter.assign("a", pro);
    limiter.set_override("a", "heavy", "7/minute");
    limiter.set_override("a", "ws/heavy", "8/minute");
    EXPECT(limiter.limit_of("a", 0) == "8/minute" && limiter.limit_of("a", 1) == "7/minute");
    limiter.remove_override("a", "ws/heavy");
    EXPECT(limiter.assignment("a").overrides.size() == 1 && limiter.assignment("a").plan == pro);
    limiter.set_exempt("a", true);
    EXPECT(limiter.assignment("a").exempt && limiter.limit_of("a", 0).empty());
    limiter.set_exempt("a", false);
    limiter.remove_overrides("a");
    limiter.assign("a", tollgate::none);
    EXPECT(limiter.assigned().empty() && !limiter.assignment("a").plan);

    std::map<std::string, tollgate::assignment> decided;
    decided[std::string("b\0", 2)] = {pro, {{1, "5/minute"}}, true};
    for (int i = 0; i < 2000; i++) // More than one page of them.
        decided["agent-" + std::to_string(i)] = {pro};
    limiter.set_assignments(decided);
    const auto assigned = limiter.assigned();
    EXPECT(assigned.size() == 2001 && assigned.back() == std::string("b\0", 2));
    const auto seen = limiter.assignment(assigned.back());
    EXPECT(seen.exempt && seen.plan == pro && seen.overrides == decided[assigned.back()].overrides);
    EXPECT_EQ(thrown([&] { limiter.set_assignments({{"c", {{}, {{0, std::string(200, '1')}}}}}); }),
              TOLLGATE_STATUS_INVALID_LIMIT);
    limiter.replace_policy(policy);

    EXPECT(limiter.lane_for("ws", "identify").known == 1 && limiter.lane_for("ws", "dance").first_seen == 1);
    EXPECT(limiter.unknown_actions() == (std::vector<std::pair<std::string, std::string>>{{"ws", "dance"}}));
    try {
        limiter.set_override("a", "huge", "1/s");
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_UNKNOWN_LANE);
        EXPECT(std::string_view(error.what()).find("the lanes are ws/heavy, http/heavy") != std::string_view::npos);
    }
}

static void what_is_kept_needs_a_file()
{
    tollgate::limiter limiter(lanes());
    const bool built_in = (tollgate_features() & TOLLGATE_FEATURE_PERSIST) != 0;
    const auto no_file = built_in ? TOLLGATE_STATUS_NO_FILE : TOLLGATE_STATUS_NOT_BUILT_IN;
    const auto file = built_in ? TOLLGATE_STATUS_FILE : TOLLGATE_STATUS_NOT_BUILT_IN;
    EXPECT_EQ(thrown([&] { limiter.keep_assignments_in(""); }), file);
    EXPECT_EQ(thrown([&] { limiter.reload_assignments(); }), no_file);
    EXPECT_EQ(thrown([&] { (void)limiter.keep_budgets_in(""); }), file);
    EXPECT_EQ(thrown([&] { (void)limiter.save_budgets(); }), no_file);
    EXPECT_EQ(thrown([&] { limiter.write_report(""); }), file);
}

static void counted_denials_are_violations()
{
    auto clock = tollgate::clock::manual();
    clock.advance(1000s);
    tollgate::limiter limiter(lanes(), options(clock));
    EXPECT(limiter.check(request("a", 0).cost(3).counted()));
    const auto denied = limiter.check(request("a", 0).counted());
    EXPECT(!denied && denied.retry_after() == 6s && denied.lane_wait() == 6s && denied.conduct_wait() == 1s);
    EXPECT(denied.violations_in_a_row() == 1 && !denied.sustained_abuse());
    EXPECT_EQ(limiter.check(request("a", 0).counted().counted(false)).violations_in_a_row(), 0);
    EXPECT_EQ(limiter.record_violation("a").step_ns, 2 * SECOND);
    EXPECT_EQ(limiter.record_violation("a", limiter.now()).step_ns, 5 * SECOND);
    EXPECT_EQ(limiter.conduct("a").violations_in_a_row, 3);
    EXPECT_EQ(limiter.conduct("a").last_violation_ns, limiter.now());
    EXPECT(limiter.conduct("a").rate_limited == 1);
    EXPECT(limiter.conduct("a", limiter.now() + 100 * SECOND).rate_limited == 0);
    EXPECT(limiter.assignable({"a", "b", ""}) == std::vector<std::string_view>{"b"});
    EXPECT(limiter.assignable({}).empty());
    EXPECT(limiter.reset_violations("a") && limiter.conduct("a").rate_limited == 0);
}

static void what_happens_is_observed()
{
    const auto clock = tollgate::clock::manual();
    auto observed = options(clock);
    observed.observe = TOLLGATE_OBSERVE_ON;
    observed.roster = 1000;
    observed.sample_every = 1;
    tollgate::limiter limiter(lanes(), observed);
    (void)limiter.check(request("a", 0).cost(3));
    EXPECT(limiter.snapshot().totals.warned == 1 && limiter.snapshot().lanes.at(0).warned == 1);
    EXPECT(limiter.agent("a").agent.dominant_lane == 0 && limiter.agent("a", 0).lanes.size() == 2);
    auto page = limiter.agents();
    EXPECT(page.totals.matched == 1 && page.totals.not_listed == 0 && tollgate::to_string(page.rows.at(0).id) == "a");
    auto query = tollgate::agent_query();
    query.page = 1;
    EXPECT(limiter.agents(query, 1).rows.empty());
    const auto event = limiter.poll_event();
    EXPECT(event && event->kind == TOLLGATE_EVENT_TYPE_CHECKED && !limiter.poll_event());
    (void)limiter.record_violation("a");
    EXPECT(limiter.top_offenders().size() == 1 && limiter.top_offenders(5)[0].violations == 1);
    EXPECT(limiter.top_offenders(0).empty() && limiter.report()[0] == '{');
    tollgate::log_throttle log;
    EXPECT(log.denied("a", 0).size() == 1 && log.denied("a", 0).empty());
    EXPECT_EQ(log.due(60 * SECOND).size(), 1);
    EXPECT(tollgate::shown("<", TOLLGATE_SHOWN_HTML) == "&lt;");
}

static void a_slot_is_held()
{
    tollgate::limiter limiter(tollgate::policy::from_toml("[lanes]\nws = 'held 1'"));
    EXPECT(limiter.hold({"a", 0}) && !limiter.hold({"a", 0}));
    EXPECT_EQ(limiter.release({"a", 0}).remaining, 1);
}

static void parts_are_charged_all_or_none()
{
    const auto clock = tollgate::clock::manual();
    tollgate::limiter limiter(lanes(), options(clock));
    const auto allowed = limiter.check_all({request("a", 0).cost(2), request("b", 0)});
    EXPECT(allowed && !allowed.blocks(0) && !allowed.retry_after() && allowed.verdicts.size() == 2);
    const auto denied = limiter.check_all({request("a", 0).cost(2).counted(), request("b", 0).counted()});
    EXPECT(!denied && denied.decision() == TOLLGATE_DECISION_DENY);
    EXPECT(denied.blocks(0) && !denied.blocks(1) && !denied.blocks(99) && denied.retry_after() == 6s);
    EXPECT(denied.verdicts[0].violations_in_a_row() == 1 && denied.verdicts[1].allowed());
    EXPECT(limiter.conduct("a").violations_in_a_row == 1 && limiter.conduct("b").violations_in_a_row == 0);
    EXPECT_EQ(limiter.peek({"b", 0}).remaining, 2);
    EXPECT_EQ(thrown([&] { (void)limiter.check_all({}); }), TOLLGATE_STATUS_PARTS);
}

static void an_estimate_is_settled()
{
    auto clock = tollgate::clock::manual();
    auto few = options(clock);
    few.reservations = 2;
    few.reservations_per_agent = 2;
    tollgate::limiter limiter(tollgate::policy::from_toml("[lanes]\nllm = 'budget 100/day'"), few);
    const auto first = limiter.reserve(request("a", 0).cost(60), 60s);
    EXPECT(first && first.verdict.remaining() == 40);
    EXPECT(!limiter.reserve(request("a", 0).cost(60), 60s));
    limiter.extend(first.reservation, 120s);
    limiter.extend(first.reservation, 240s, limiter.now());
    clock.advance(200s);
    EXPECT_EQ(limiter.settle_so_far(first.reservation, 20).left, 40);
    const auto settled = limiter.settle(first.reservation, 45);
    EXPECT(settled.unused == 0 && settled.overspent == 5 && settled.left == 0);
    const auto second = limiter.reserve(request("a", 0).cost(30), 60s);
    EXPECT_EQ(limiter.settle(second.reservation, 5, limiter.now()).unused, 25);
    EXPECT_EQ(limiter.peek({"a", 0}).remaining, 30);
    EXPECT_EQ(thrown([&] { (void)limiter.settle(first.reservation, 1); }), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
}

static void memory_is_prefaulted_on_request()
{
    auto options = tollgate::options();
    options.agents = 200000;
    for (const bool prefault : {false, true}) {
        options.prefault = prefault ? 1 : 0;
        const auto before = resident_bytes();
        tollgate::limiter limiter(lanes(), options);
        EXPECT_EQ(resident_bytes() > before + options.agents * 48, prefault);
        EXPECT(limiter.check("agent-7", 0));
    }
}

static void processes_share_one_limiter()
{
    const std::string path = "/dev/shm/tollgate-test-hpp-" + std::to_string(getpid());
    auto options = tollgate::shared_at(path, 0660);
    options.agents = 100;
    tollgate::limiter limiter(lanes(), options);
    EXPECT(limiter.check(request("agent-7", 0).cost(3)));
    options.agents = 0;
    tollgate::limiter joined = tollgate::limiter::join(options);
    EXPECT_EQ(joined.policy().limit(0, 0) == "10/minute burst 3", true);
    EXPECT(!joined.check("agent-7", 0));
    EXPECT_EQ(joined.snapshot().totals.processes, 2);
    char made_at[256] = {}; // The number of the layout is behind the path.
    const auto descriptor = "/proc/self/fd/" + std::to_string(joined.snapshot().totals.shared_fd);
    EXPECT(readlink(descriptor.c_str(), made_at, sizeof made_at - 1) > 0);
    EXPECT_EQ(unlink(made_at), 0);
    EXPECT_EQ(limiter.snapshot().totals.detached, 1);
    EXPECT_EQ(thrown([&] { tollgate::limiter::join(options); }), TOLLGATE_STATUS_SHARED);
    EXPECT_EQ(thrown([&] { tollgate::limiter(lanes(), tollgate::shared_at("")); }), TOLLGATE_STATUS_INVALID_OPTION);

    options = tollgate::shared_with_children();
    options.agents = 100;
    tollgate::limiter of_family(lanes(), options);
    EXPECT_EQ(of_family.snapshot().totals.processes, 1);
    EXPECT(of_family.snapshot().totals.shared_fd >= 0);
}

int main()
{
    processes_share_one_limiter();
    memory_is_prefaulted_on_request();
    a_limiter_answers();
    a_batch_has_one_instant();
    a_policy_shows_what_it_holds();
    mistakes_are_thrown();
    plans_and_overrides_are_decided();
    what_is_kept_needs_a_file();
    counted_denials_are_violations();
    what_happens_is_observed();
    a_slot_is_held();
    parts_are_charged_all_or_none();
    an_estimate_is_settled();
    return expectations_end("test_hpp");
}
