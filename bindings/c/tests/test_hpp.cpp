// The C++ header: every function once, owners, durations and exceptions.
#include "tollgate.hpp"

#include "expect.h"

#include <thread>

using namespace std::chrono_literals;

static tollgate::policy lanes()
{
    auto rules = tollgate::conduct_rules();
    rules.curve_steps = 0;
    for (const auto seconds : {1u, 2u, 5u, 10u, 30u})
        rules.curve_ns[rules.curve_steps++] = seconds * SECOND;
    rules.every_denial = 1;
    return tollgate::policy::builder().lane("heavy", "10/minute burst 3").lane("light", 120, 1min, 120).conduct(rules).build();
}

static void a_limiter_answers()
{
    auto clock = tollgate::clock::manual();
    clock.set(5);
    clock.advance(1000s);
    EXPECT_EQ(clock.now(), 1000 * SECOND + 5);
    EXPECT_EQ(clock.source(), TOLLGATE_CLOCK_SOURCE_MANUAL);
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
        tollgate::clock(TOLLGATE_CLOCK_SOURCE_OS).advance(1s);
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

static void plans_and_overrides_are_decided()
{
    auto clock = tollgate::clock::manual();
    tollgate::options options;
    options.agents = 100;
    options.clock = &clock;
    const auto policy = tollgate::policy::builder()
                            .lane("ws/heavy", "10/minute")
                            .lane("http/heavy", "20/minute")
                            .plan("pro")
                            .plan_lane("pro", "ws/heavy", "100/minute")
                            .plan_lane("pro", "http/heavy", 200, 1min, 50)
                            .action("ws", "heavy", "identify")
                            .unknown_actions_to("heavy")
                            .outside_total("ws/heavy")
                            .conduct(tollgate::conduct_rules())
                            .on_change(TOLLGATE_ON_CHANGE_RESET)
                            .build();
    EXPECT_EQ(policy.plan_count(), 2);
    EXPECT_EQ(policy.plan("pro"), 1);
    EXPECT(policy.plan_name(1) == "pro" && policy.plan_limit(1, 1) == "200/minute burst 50");
    EXPECT_EQ(policy.capacity(1, 0), 100);
    EXPECT_EQ(policy.on_change(), TOLLGATE_ON_CHANGE_RESET);
    EXPECT_EQ(policy.conduct().curve_steps, 0);
    EXPECT(policy.lanes_of("heavy") == std::vector<std::uint32_t>({0, 1}));
    EXPECT(policy.actions() == (std::vector<std::pair<std::string, std::uint32_t>>{{"identify", 0}}));
    EXPECT(policy.unknown_actions_tier() == "heavy" && policy.lane_for("ws", "identify").known);

    tollgate::limiter limiter(policy, options);
    const auto pro = limiter.plan("pro");
    EXPECT_EQ(limiter.check_as("a", pro, 0, 60).remaining(), 40);
    EXPECT_EQ(limiter.check_as_at("a", pro, 0, 10, 0).remaining(), 30);
    EXPECT_EQ(limiter.status_as("a", pro, 0).remaining(), limiter.status_as_at("a", pro, 0, 0).remaining());
    EXPECT_EQ(limiter.refund_as("a", pro, 0, 5).remaining(), 35);
    EXPECT_EQ(limiter.refund_as_at("a", pro, 0, 5, 0).remaining(), 40);
    limiter.assign("a", pro);
    limiter.set_override("a", "heavy", "7/minute");
    limiter.set_override("a", "ws/heavy", 8, 1min, 8);
    EXPECT(limiter.limit_of("a", 0) == "8/minute" && limiter.limit_of("a", 1) == "7/minute");
    limiter.remove_override("a", "ws/heavy");
    EXPECT(limiter.assignment("a").overrides.size() == 1 && limiter.assignment("a").plan == "pro");
    limiter.exempt("a");
    EXPECT(limiter.is_exempt("a") && limiter.status("a", 0).exempt() && !limiter.limit_of("a", 0));
    limiter.unexempt("a");
    limiter.remove_overrides("a");
    limiter.unassign("a");
    EXPECT(limiter.assignments().empty());

    tollgate::assignment decided;
    decided.plan = "pro";
    decided.overrides["http/heavy"] = "5/minute";
    decided.exempt = true;
    limiter.set_assignments({{std::string("b\0", 2), decided}});
    const auto all = limiter.assignments();
    EXPECT(all.size() == 1 && all[0].first == std::string("b\0", 2) && all[0].second.exempt);
    EXPECT(all[0].second.plan == "pro" && all[0].second.overrides == decided.overrides);
    limiter.replace_policy(policy);
    EXPECT(limiter.lane_for("ws", "dance").first_seen);
    const auto unknown = limiter.unknown_actions();
    EXPECT(unknown.total == 1 && unknown.not_listed == 0 && unknown.names[0].second == "dance");

    try {
        limiter.set_override("a", "huge", "1/s");
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_UNKNOWN_LANE);
        EXPECT(std::string_view(error.what()).find("the lanes are ws/heavy, http/heavy") != std::string_view::npos);
    }
    try {
        limiter.keep_assignments_in("");
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT(error.status() == TOLLGATE_STATUS_FILE || error.status() == TOLLGATE_STATUS_NOT_BUILT_IN);
    }
    try {
        (void)limiter.save_budgets();
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT(error.status() == TOLLGATE_STATUS_NO_FILE || error.status() == TOLLGATE_STATUS_NOT_BUILT_IN);
    }
    try {
        (void)limiter.keep_budgets_in("");
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT(error.status() == TOLLGATE_STATUS_FILE || error.status() == TOLLGATE_STATUS_NOT_BUILT_IN);
    }
    try {
        limiter.reload_assignments();
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT(error.status() == TOLLGATE_STATUS_NO_FILE || error.status() == TOLLGATE_STATUS_NOT_BUILT_IN);
    }
}

static void denials_are_violations()
{
    auto clock = tollgate::clock::manual();
    clock.advance(1000s);
    tollgate::options options;
    options.agents = 100;
    options.clock = &clock;
    tollgate::limiter limiter(lanes(), options);
    EXPECT(limiter.admit("a", 0, 3));
    const auto denied = limiter.admit_at("a", 0, 1, limiter.now());
    EXPECT(!denied && denied.retry_after() == 6s && denied.lane_retry_after() == 6s);
    EXPECT(denied.step() == 1s && denied.wait() == 1s && denied.consecutive() == 1 && !denied.sustained_abuse());
    EXPECT_EQ(limiter.admit_as("a", 0, 0).consecutive(), 2);
    EXPECT_EQ(limiter.admit_as_at("a", 0, 0, 1, limiter.now()).consecutive(), 3);
    EXPECT(limiter.record_violation("a").step == 10s);
    EXPECT(limiter.record_violation_at("a", limiter.now()).step == 30s);
    EXPECT(limiter.violations("a").consecutive == 5 && limiter.violations_at("a", limiter.now()).violations == 5);
    EXPECT(limiter.violations("a").last_violation == limiter.now() && !limiter.violations("b").window_start);
    EXPECT(limiter.rate_limited("a") && !limiter.rate_limited_at("a", limiter.now() + 100 * SECOND));
    EXPECT(limiter.assignable({"a", "b", ""}) == std::vector<std::string_view>{"b"});
    EXPECT(limiter.reset_violations("a") && !limiter.rate_limited("a"));
}

static void policies_are_texts_and_presets()
{
    EXPECT_EQ(tollgate::presets().size(), 5);
    const auto hub = tollgate::policy::preset("hub");
    try {
        EXPECT(tollgate::policy::from_toml(hub.to_toml()).to_toml() == hub.to_toml());
        (void)tollgate::policy::from_toml("\nlanes = 1");
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT(error.line() == 2 || error.status() == TOLLGATE_STATUS_NOT_BUILT_IN);
    }
}

static void what_happens_is_seen()
{
    auto clock = tollgate::clock::manual();
    tollgate::options options;
    options.agents = 100;
    options.clock = &clock;
    options.sight = TOLLGATE_SIGHT_ON;
    options.roster = 1000;
    options.sample_every = 1;
    tollgate::limiter limiter(lanes(), options);
    (void)limiter.admit("a", 0, 3);
    EXPECT(limiter.snapshot().totals.warned == 1 && limiter.snapshot().lanes[0].warned == 1);
    EXPECT(limiter.agent("a").agent.dominant_lane == 0 && limiter.agent_at("a", 0).lanes.size() == 2);
    const auto page = limiter.agents();
    EXPECT(page.matched == 1 && page.not_listed == 0 && page.agents[0].first == "a");
    EXPECT(page.agents[0].second.lanes[0].remaining == 0);
    const auto event = limiter.poll_event();
    EXPECT(event && event->kind == TOLLGATE_EVENT_TYPE_CHECKED && !limiter.poll_event());
    (void)limiter.record_violation("a");
    EXPECT(limiter.top_offenders(5).size() == 1 && limiter.top_offenders(5)[0].violations == 1);
    tollgate::log_throttle log;
    EXPECT(log.denied("a", 0).size() == 1 && log.denied("a", 0).empty());
    EXPECT_EQ(log.due(60 * SECOND).size(), 1);
    EXPECT(tollgate::shown("<", TOLLGATE_SHOWN_HTML) == "&lt;");
}

static void a_slot_is_held()
{
    tollgate::limiter limiter(tollgate::policy::builder().lane("ws", "held 1").build());
    EXPECT(limiter.acquire("a", 0) && !limiter.acquire("a", 0));
    EXPECT_EQ(limiter.release("a", 0).remaining(), 1);
}

static void parts_are_charged_all_or_none()
{
    auto clock = tollgate::clock::manual();
    tollgate::options options;
    options.agents = 100;
    options.clock = &clock;
    tollgate::limiter limiter(lanes(), options);
    const auto parts = {tollgate::request("a", 0, 2), tollgate::request("b", 0)};
    const auto allowed = limiter.check_all(parts);
    EXPECT(allowed && !allowed.blocks(0) && !allowed.retry_after() && allowed.answers().size() == 2);
    const auto denied = limiter.check_all_at(parts, limiter.now());
    EXPECT(!denied && denied.decision() == TOLLGATE_DECISION_DENY);
    EXPECT(denied.blocks(0) && !denied.blocks(1) && !denied.blocks(99) && denied.retry_after() == 6s);
    EXPECT(!limiter.admit_all(parts) && !limiter.admit_all_at(parts, limiter.now()).sustained_abuse(0));
    EXPECT(limiter.violations("a").consecutive == 2 && limiter.violations("b").consecutive == 0);
    EXPECT_EQ(limiter.status("b", 0).remaining(), 2);
    try {
        (void)limiter.check_all({});
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_PARTS);
    }
}

static void an_estimate_is_settled()
{
    auto clock = tollgate::clock::manual();
    tollgate::options options;
    options.agents = 100;
    options.clock = &clock;
    options.reservations = 2;
    tollgate::limiter limiter(tollgate::policy::builder().lane("llm", "budget 100/day").build(), options);
    const auto first = limiter.reserve("a", 0, 60, 60s);
    EXPECT(first && first.verdict.remaining() == 40);
    EXPECT(!limiter.reserve_at("a", 0, 60, 60s, limiter.now()));
    limiter.extend(first.reservation, 120s);
    limiter.extend_at(first.reservation, 240s, limiter.now());
    clock.advance(200s);
    EXPECT_EQ(limiter.commit_part(first.reservation, 10).left, 50);
    EXPECT_EQ(limiter.commit_part_at(first.reservation, 10, limiter.now()).left, 40);
    const auto settled = limiter.commit(first.reservation, 45);
    EXPECT(settled.unused == 0 && settled.overspent == 5 && settled.left == 0);
    EXPECT_EQ(limiter.commit_at(limiter.reserve("a", 0, 30, 60s).reservation, 5, limiter.now()).unused, 25);
    EXPECT_EQ(limiter.cancel(limiter.reserve("a", 0, 30, 60s).reservation).unused, 30);
    EXPECT_EQ(limiter.cancel_at(limiter.reserve("a", 0, 30, 60s).reservation, limiter.now()).unused, 30);
    EXPECT_EQ(limiter.status("a", 0).remaining(), 30);
    try {
        (void)limiter.commit(first.reservation, 1);
        EXPECT(false); // It should have thrown.
    } catch (const tollgate::error &error) {
        EXPECT_EQ(error.status(), TOLLGATE_STATUS_UNKNOWN_RESERVATION);
    }
}

static void memory_is_committed_if_asked_for()
{
    tollgate::options options;
    options.agents = 200000;
    for (const bool commit : {false, true}) {
        options.commit_memory = commit;
        const auto before = resident_bytes();
        tollgate::limiter limiter(lanes(), options);
        EXPECT_EQ(resident_bytes() > before + options.agents * 48, commit);
        EXPECT(limiter.check("agent-7", 0));
    }
}

int main()
{
    memory_is_committed_if_asked_for();
    a_slot_is_held();
    parts_are_charged_all_or_none();
    an_estimate_is_settled();
    what_happens_is_seen();
    plans_and_overrides_are_decided();
    denials_are_violations();
    policies_are_texts_and_presets();
    a_limiter_answers();
    a_policy_tells_what_it_holds();
    mistakes_are_thrown();
    the_limiter_of_the_process_is_shared();
    return expectations_end("test_hpp");
}
