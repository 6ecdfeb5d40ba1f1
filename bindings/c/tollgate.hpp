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

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tollgate {

/// A span of time.
using span = std::chrono::nanoseconds;

/// Nanoseconds on a limiter's clock: limiter::now, or the present instant if it is `now`.
using instant = std::uint64_t;
inline constexpr instant now = TOLLGATE_NOW;

/// The number of a lane, and of a plan: see limiter::lane and limiter::plan.
using lane_id = std::uint32_t;
using plan_id = std::uint32_t;

/// As a plan: the default. As a lane: all of them.
inline constexpr std::uint32_t none = TOLLGATE_NONE;

inline std::string_view version() noexcept { return tollgate_version(); }

/// A call that could not be answered; nothing was charged.
class error : public std::runtime_error {
public:
    explicit error(tollgate_status status) : std::runtime_error(tollgate_status_text(status)), status_(status) {}

    explicit error(const tollgate_error &raw)
        : std::runtime_error(raw.message), status_(raw.status), line_(raw.line), column_(raw.column)
    {
    }

    tollgate_status status() const noexcept { return status_; }

    /// Where in a text, counted from 1; 0 if it is not about a text.
    std::uint32_t line() const noexcept { return line_; }
    std::uint32_t column() const noexcept { return column_; }

private:
    tollgate_status status_;
    std::uint32_t line_ = 0;
    std::uint32_t column_ = 0;
};

namespace detail {

inline void require(tollgate_status status)
{
    if (status != TOLLGATE_STATUS_OK)
        throw error(status);
}

inline void require(tollgate_status status, const tollgate_error &raw)
{
    if (status != TOLLGATE_STATUS_OK && raw.message[0] != '\0')
        throw error(raw);
    require(status);
}

template <class T, class = void> struct has_size : std::false_type {};
template <class T> struct has_size<T, std::void_t<decltype(T::struct_size)>> : std::true_type {};

/// All zero, but for the size of a struct that knows it.
template <class T> T zero() noexcept
{
    T value = {};
    if constexpr (has_size<T>::value)
        value.struct_size = sizeof value;
    return value;
}

template <class T> std::tuple<T> spread(T value) noexcept { return {value}; }
inline std::tuple<const char *, std::size_t> spread(std::string_view text) noexcept
{
    return {text.data(), text.size()};
}

/// Calls a function of C, a text being two arguments of it.
template <class Function, class... Args> tollgate_status call(Function function, Args... args)
{
    return std::apply(function, std::tuple_cat(spread(args)...));
}

/// Calls a function, and returns what it writes through its last argument.
template <class T, class Function, class... Args> T out(Function function, Args... args)
{
    T value = zero<T>();
    require(call(function, args..., &value));
    return value;
}

/// The same, of a function that explains its failure.
template <class T, class Function, class... Args> T explained(Function function, Args... args)
{
    auto raw = zero<tollgate_error>();
    T value = zero<T>();
    require(call(function, args..., &raw, &value), raw);
    return value;
}

/// Reads a text, whose length it asks for first. A report may grow in between.
template <class Function, class... Args> std::string text(Function function, Args... args)
{
    tollgate_status status = TOLLGATE_STATUS_BUFFER_TOO_SMALL;
    std::string text;
    for (std::size_t tries = 0; tries < 8 && status == TOLLGATE_STATUS_BUFFER_TOO_SMALL; tries++) {
        std::size_t len = 0;
        require(call(function, args..., static_cast<char *>(nullptr), std::size_t(0), &len));
        text.resize(len + 1 + tries * len);
        status = call(function, args..., &text[0], text.size(), &len);
        text.resize(len);
    }
    require(status);
    return text;
}

/// A negative span is 0.
inline std::uint64_t nanoseconds(span time) noexcept
{
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

inline span to_span(std::uint64_t nanoseconds) noexcept
{
    constexpr auto most = static_cast<std::uint64_t>(span::max().count());
    return span(static_cast<span::rep>(nanoseconds < most ? nanoseconds : most));
}

inline std::optional<span> unless_never(std::uint64_t nanoseconds) noexcept
{
    return nanoseconds == TOLLGATE_NEVER ? std::nullopt : std::optional<span>(to_span(nanoseconds));
}

struct freed {
    void operator()(tollgate_clock *handle) const noexcept { tollgate_clock_free(handle); }
    void operator()(tollgate_policy *handle) const noexcept { tollgate_policy_free(handle); }
    void operator()(tollgate_limiter *handle) const noexcept { tollgate_limiter_free(handle); }
    void operator()(tollgate_log_throttle *handle) const noexcept { tollgate_log_throttle_free(handle); }
};

template <class T> using owner = std::unique_ptr<T, freed>;

/// Owns the handle that a function hands out.
template <class T, class Function, class... Args> owner<T> take(Function function, Args... args)
{
    return owner<T>(out<T *>(function, args...));
}

} // namespace detail

/// Where a limiter's time comes from.
class clock {
public:
    explicit clock(tollgate_clock_source source = TOLLGATE_CLOCK_SOURCE_AUTO)
        : handle_(detail::take<tollgate_clock>(tollgate_clock_new, source))
    {
    }

    /// A clock that stands still until it is moved, for tests.
    static clock manual() { return clock(TOLLGATE_CLOCK_SOURCE_MANUAL); }

    instant now() const { return detail::out<instant>(tollgate_clock_now, handle_.get()); }

    void advance(span by) { detail::require(tollgate_clock_advance(handle_.get(), detail::nanoseconds(by))); }
    void set(instant to) { detail::require(tollgate_clock_set(handle_.get(), to)); }

    const tollgate_clock *get() const noexcept { return handle_.get(); }

private:
    detail::owner<tollgate_clock> handle_;
};

/// The names of the presets.
inline std::vector<std::string_view> presets()
{
    std::vector<std::string_view> names;
    while (const char *name = tollgate_preset_name(names.size()))
        names.emplace_back(name);
    return names;
}

/// Lanes, plans, actions and conduct rules. It never changes, so threads may share it.
class policy {
public:
    static policy preset(std::string_view name)
    {
        auto *made = detail::explained<tollgate_policy *>(tollgate_policy_preset, name);
        return policy(detail::owner<tollgate_policy>(made));
    }

    /// Reads a policy file. The error has its line and column.
    static policy from_toml(std::string_view toml)
    {
        auto *made = detail::explained<tollgate_policy *>(tollgate_policy_from_toml, toml);
        return policy(detail::owner<tollgate_policy>(made));
    }

    std::string to_toml() const { return detail::text(tollgate_policy_to_toml, get()); }

    lane_id lane(std::string_view name) const { return detail::out<lane_id>(tollgate_policy_lane, get(), name); }
    std::string lane_name(lane_id lane) const { return detail::text(tollgate_policy_lane_name, get(), lane); }
    plan_id plan(std::string_view name) const { return detail::out<plan_id>(tollgate_policy_plan, get(), name); }
    std::string plan_name(plan_id plan) const { return detail::text(tollgate_policy_plan_name, get(), plan); }

    /// The limit of a lane in a plan, as text; plan 0 is the default.
    std::string limit(plan_id plan, lane_id lane) const
    {
        return detail::text(tollgate_policy_limit, get(), plan, lane);
    }

    const tollgate_policy *get() const noexcept { return handle_.get(); }

private:
    friend class limiter;
    explicit policy(detail::owner<tollgate_policy> handle) noexcept : handle_(std::move(handle)) {}

    detail::owner<tollgate_policy> handle_;
};

/// The question: who, which lane, how much, under which plan, when, and whether
/// a denial counts as a violation. A value: each call returns a changed copy.
///
/// It does not copy the id, which has to live until the request is made.
class [[nodiscard]] request {
public:
    request(std::string_view agent, lane_id lane) noexcept
        : raw_{agent.data(), agent.size(), 1, lane, TOLLGATE_NONE}
    {
    }

    /// How many tokens; 1 by default.
    request cost(std::uint64_t cost) const noexcept { return changed(&tollgate_request::cost, cost); }

    /// The plan that applies if the agent is not assigned to one.
    request plan(plan_id plan) const noexcept { return changed(&tollgate_request::plan, plan); }

    /// The instant; by default the limiter reads its clock.
    request at(instant at) const noexcept { return request(raw_, at, flags_); }

    /// A denial counts as a violation, and enforced waits apply.
    request counted(bool counted = true) const noexcept { return request(raw_, at_, counted ? TOLLGATE_COUNTED : 0u); }

private:
    friend class limiter;
    request(const tollgate_request &raw, instant at, std::uint32_t flags) noexcept
        : raw_(raw), at_(at), flags_(flags)
    {
    }

    template <class T> request changed(T tollgate_request::*member, T to) const noexcept
    {
        request changed = *this;
        changed.raw_.*member = to;
        return changed;
    }

    tollgate_request raw_;
    instant at_ = TOLLGATE_NOW;
    std::uint32_t flags_ = 0;
};

/// The answer to a request.
class [[nodiscard]] verdict {
public:
    explicit verdict(const tollgate_verdict &raw) noexcept : raw_(raw) {}

    tollgate_decision decision() const noexcept { return raw_.decision; }
    bool allowed() const noexcept { return raw_.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }

    /// Of check_many: why this request could not be answered, or TOLLGATE_STATUS_OK.
    tollgate_status status() const noexcept { return raw_.status; }

    std::uint64_t remaining() const noexcept { return tollgate_verdict_remaining(&raw_); }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    span full_in() const noexcept { return detail::to_span(raw_.full_in_ns); }

    /// How long a denied agent has to wait: the longer of the two below. Empty
    /// if no wait helps, and if it was allowed.
    std::optional<span> retry_after() const noexcept { return wait(raw_.retry_after_ns); }
    std::optional<span> lane_wait() const noexcept { return wait(raw_.lane_wait_ns); }
    std::optional<span> conduct_wait() const noexcept { return wait(raw_.conduct_wait_ns); }

    /// Of a counted denial: how many violations in a row; 0 if it is not one.
    std::uint32_t violations_in_a_row() const noexcept { return raw_.violations_in_a_row; }
    bool sustained_abuse() const noexcept { return raw_.sustained_abuse != 0; }

    const tollgate_verdict &raw() const noexcept { return raw_; }

private:
    std::optional<span> wait(std::uint64_t nanoseconds) const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(nanoseconds);
    }

    tollgate_verdict raw_;
};

/// The answer to several requests at once: all were charged, or none.
struct [[nodiscard]] all_verdict {
    tollgate_all_verdict raw;

    /// One for each part. In a denial, those of the parts that do not block say what would have been.
    std::vector<verdict> verdicts;

    tollgate_decision decision() const noexcept { return raw.decision; }
    bool allowed() const noexcept { return raw.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }

    /// Whether the part at this index blocks the others.
    bool blocks(std::size_t part) const noexcept { return part < verdicts.size() && (raw.blocking >> part & 1) != 0; }

    /// The longest wait of the parts that block; empty if no wait helps, and if it was allowed.
    std::optional<span> retry_after() const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(raw.retry_after_ns);
    }
};

/// The answer to reserve. The number is 0 if the verdict is a denial.
struct [[nodiscard]] reserved {
    tollgate::verdict verdict;
    std::uint64_t reservation;

    explicit operator bool() const noexcept { return verdict.allowed(); }
};

/// What an operator decided about an agent. Overrides are limits as text, by lane.
struct assignment {
    std::optional<plan_id> plan = std::nullopt;
    std::map<lane_id, std::string> overrides = {};
    bool exempt = false;
};

/// What a limiter holds and has done, and the counts of each lane.
struct snapshot {
    tollgate_limiter_view totals;
    std::vector<tollgate_lane_counts> lanes;
};

/// How an agent stands, and each of its lanes.
struct agent_view {
    tollgate_agent_view agent;
    std::vector<tollgate_lane_view> lanes;
};

/// A page of a list of agents.
struct agent_page {
    tollgate_agent_page totals;
    std::vector<tollgate_agent_row> rows;
};

/// The bytes of an id.
inline std::string to_string(const tollgate_agent_id &id)
{
    return std::string(reinterpret_cast<const char *>(id.bytes), id.len);
}

/// The first page of all agents by id, to be changed.
inline tollgate_agent_query agent_query() noexcept { return detail::zero<tollgate_agent_query>(); }

/// An id as it is safe to show somewhere.
inline std::string shown(std::string_view id, tollgate_shown where = TOLLGATE_SHOWN_TEXT)
{
    return detail::text(tollgate_id_shown, id, where);
}

/// The wait of a denial in whole steps, rounded up, at least one; `never` if no wait helps.
inline std::chrono::milliseconds wait_in(std::optional<span> wait, std::chrono::milliseconds step,
                                         std::chrono::milliseconds never) noexcept
{
    const auto raw = wait ? detail::nanoseconds(*wait) : TOLLGATE_NEVER;
    return std::chrono::milliseconds(
        tollgate_wait_ms(raw, static_cast<std::uint64_t>(step.count()), static_cast<std::uint64_t>(never.count())));
}

/// Turns denials into few lines of a log. Any number of threads may use one at once.
class log_throttle {
public:
    log_throttle() : handle_(detail::take<tollgate_log_throttle>(tollgate_log_throttle_new)) {}

    /// Reports a denial, and returns the lines that are due.
    std::vector<std::string> denied(std::string_view agent, instant at)
    {
        const bool line = detail::out<bool>(tollgate_log_throttle_denied, handle_.get(), agent, at);
        return line ? due(at) : std::vector<std::string>();
    }

    /// The lines that are due. Call it every few seconds.
    std::vector<std::string> due(instant at)
    {
        std::vector<std::string> lines;
        const auto next = [&] { return detail::text(tollgate_log_throttle_line, handle_.get(), at); };
        for (auto line = next(); !line.empty(); line = next()) // Each line is given out once.
            lines.push_back(std::move(line));
        return lines;
    }

private:
    detail::owner<tollgate_log_throttle> handle_;
};

/// The default options of a limiter, to be changed: options.clock = clock.get(), say.
inline tollgate_limiter_options options() noexcept { return detail::zero<tollgate_limiter_options>(); }

/// An exact rate limiter. Any number of threads may use one at once.
class limiter {
public:
    explicit limiter(const tollgate::policy &policy, const tollgate_limiter_options &options = tollgate::options())
        : handle_(detail::explained<tollgate_limiter *>(tollgate_limiter_new, policy.get(), &options))
    {
    }

    /// A copy of the policy in force.
    tollgate::policy policy() const
    {
        return tollgate::policy(detail::take<tollgate_policy>(tollgate_limiter_policy, get()));
    }

    lane_id lane(std::string_view name) const { return ask<lane_id>(tollgate_limiter_lane, name); }
    plan_id plan(std::string_view name) const { return ask<plan_id>(tollgate_limiter_plan, name); }
    instant now() const { return ask<instant>(tollgate_limiter_now); }

    /// Gives up the records of agents that were idle for this long, and returns how many.
    std::uint64_t sweep(span idle_for, instant at = tollgate::now)
    {
        return ask<std::uint64_t>(tollgate_limiter_sweep, detail::nanoseconds(idle_for), at);
    }

    // --- Asking.

    verdict check(std::string_view agent, lane_id lane) { return check(request(agent, lane)); }

    verdict check(const request &request)
    {
        tollgate_verdict raw = {};
        detail::require(tollgate_check(get(), &request.raw_, request.at_, request.flags_, &raw));
        return verdict(raw);
    }

    /// A verdict for each request, in the same order. One that cannot be
    /// answered has a status of its own. All have the same `at` and `counted`,
    /// else it throws TOLLGATE_STATUS_INVALID_OPTION.
    std::vector<verdict> check_many(const std::vector<request> &requests)
    {
        std::vector<tollgate_verdict> verdicts(requests.size());
        if (!requests.empty())
            detail::require(tollgate_check_many(get(), raw(requests).data(), requests.size(), requests[0].at_,
                                                requests[0].flags_, verdicts.data()));
        return {verdicts.begin(), verdicts.end()};
    }

    /// Charges every part, or none; `at` and `counted` as in check_many.
    all_verdict check_all(const std::vector<request> &parts)
    {
        if (parts.empty())
            throw error(TOLLGATE_STATUS_PARTS);
        std::vector<tollgate_verdict> verdicts(parts.size());
        const auto all = ask<tollgate_all_verdict>(tollgate_check_all, raw(parts).data(), parts.size(), parts[0].at_,
                                                   parts[0].flags_, verdicts.data());
        return {all, {verdicts.begin(), verdicts.end()}};
    }

    /// Looks at a lane. Charges nothing.
    tollgate_lane_state peek(const request &request) const { return state(tollgate_peek, request); }

    /// Gives the cost back, never beyond full.
    tollgate_lane_state refund(const request &request) { return state(tollgate_refund, request); }

    /// Takes a slot of a lane such as "held 3", until release gives it back.
    verdict hold(const request &request)
    {
        return verdict(ask<tollgate_verdict>(tollgate_hold, &request.raw_, request.at_, request.flags_));
    }

    tollgate_lane_state release(const request &request) { return state(tollgate_release, request); }

    /// Fills a lane of the agent; `none` fills all of them.
    void reset(std::string_view agent, lane_id lane = none, instant at = tollgate::now)
    {
        detail::require(tollgate_reset(get(), agent.data(), agent.size(), lane, at));
    }

    /// Gives the agent's record up. Returns whether it had one.
    bool forget(std::string_view agent, instant at = tollgate::now) { return ask<bool>(tollgate_forget, agent, at); }

    // --- Reservations: an estimate now, the real cost later.

    /// Charges the cost of the request as an estimate, to be settled within `ttl`.
    reserved reserve(const request &request, span ttl)
    {
        std::uint64_t reservation = 0;
        auto raw = detail::zero<tollgate_verdict>();
        detail::require(tollgate_reserve(get(), &request.raw_, detail::nanoseconds(ttl), request.at_, request.flags_,
                                         &raw, &reservation));
        return {verdict(raw), reservation};
    }

    /// Closes a reservation; 0 used cancels it.
    tollgate_settlement settle(std::uint64_t reservation, std::uint64_t used, instant at = tollgate::now)
    {
        return ask<tollgate_settlement>(tollgate_settle, reservation, used, at, 0u);
    }

    /// Reports what is used so far, as while an answer streams. The reservation stays open.
    tollgate_settlement settle_so_far(std::uint64_t reservation, std::uint64_t used, instant at = tollgate::now)
    {
        return ask<tollgate_settlement>(tollgate_settle, reservation, used, at, TOLLGATE_SETTLE_SO_FAR);
    }

    void extend(std::uint64_t reservation, span ttl, instant at = tollgate::now)
    {
        detail::require(tollgate_extend(get(), reservation, detail::nanoseconds(ttl), at));
    }

    // --- Conduct.

    tollgate_violation record_violation(std::string_view agent, instant at = tollgate::now)
    {
        return ask<tollgate_violation>(tollgate_record_violation, agent, at);
    }

    tollgate_conduct_state conduct(std::string_view agent, instant at = tollgate::now) const
    {
        return ask<tollgate_conduct_state>(tollgate_conduct, agent, at);
    }

    /// Forgives the agent its violations. Returns whether there were any.
    bool reset_violations(std::string_view agent) { return ask<bool>(tollgate_reset_violations, agent); }

    /// The agents of the list that may be given new work, in the same order.
    std::vector<std::string_view> assignable(const std::vector<std::string_view> &agents,
                                             instant at = tollgate::now) const
    {
        std::vector<tollgate_id> ids;
        for (const auto agent : agents)
            ids.push_back({agent.data(), agent.size()});
        const std::unique_ptr<bool[]> may(new bool[agents.size() + 1]());
        if (!ids.empty())
            detail::require(tollgate_assignable(get(), ids.data(), ids.size(), at, may.get()));
        std::vector<std::string_view> assignable;
        for (std::size_t i = 0; i < agents.size(); i++)
            if (may[i])
                assignable.push_back(agents[i]);
        return assignable;
    }

    // --- What an operator decides. It applies to the next check of every thread.

    /// Assigns the agent to a plan; `none` takes its plan away.
    void assign(std::string_view agent, plan_id plan) { decide(tollgate_assign, agent, plan); }

    /// Gives the agent a limit of its own for a lane, or for a tier in every channel.
    void set_override(std::string_view agent, std::string_view lane_or_tier, std::string_view limit)
    {
        override_with(agent, lane_or_tier, limit.data() != nullptr ? limit : std::string_view(""));
    }

    void remove_override(std::string_view agent, std::string_view lane_or_tier)
    {
        override_with(agent, lane_or_tier.data() != nullptr ? lane_or_tier : std::string_view(""), {});
    }

    void remove_overrides(std::string_view agent) { override_with(agent, {}, {}); }

    void set_exempt(std::string_view agent, bool exempt) { decide(tollgate_set_exempt, agent, exempt); }

    /// The agent's limit for a lane, as text; empty if the agent is exempt.
    std::string limit_of(std::string_view agent, lane_id lane) const { return text(tollgate_limit_of, agent, lane); }

    tollgate::assignment assignment(std::string_view agent) const
    {
        std::vector<tollgate_override> overrides(TOLLGATE_LANES_MAX);
        auto raw = detail::zero<tollgate_assignment_state>();
        detail::require(detail::call(tollgate_assignment, get(), agent, &raw, overrides.data(), overrides.size()));
        tollgate::assignment decided;
        if (raw.plan != TOLLGATE_NONE)
            decided.plan = raw.plan;
        for (std::uint32_t i = 0; i < raw.override_count; i++)
            decided.overrides[overrides[i].lane] = overrides[i].limit;
        decided.exempt = raw.exempt != 0;
        return decided;
    }

    /// Every agent about which something was decided, in the order of the ids.
    std::vector<std::string> assigned() const
    {
        std::vector<std::string> agents;
        std::vector<tollgate_agent_id> page(1024);
        // It ends: each page begins behind the last id, and there are finitely many.
        for (std::size_t behind = page.size(); behind >= page.size();) {
            const bool first = agents.empty();
            detail::require(tollgate_assigned(get(), first ? nullptr : agents.back().data(),
                                              first ? 0 : agents.back().size(), page.data(), page.size(), &behind));
            for (std::size_t i = 0; i < page.size() && i < behind; i++)
                agents.push_back(to_string(page[i]));
        }
        return agents;
    }

    /// Replaces what was decided about these agents, all or none.
    void set_assignments(const std::map<std::string, tollgate::assignment> &assignments)
    {
        std::vector<std::vector<tollgate_override>> overrides;
        std::vector<tollgate_assignment_entry> entries;
        for (const auto &[agent, decided] : assignments) {
            auto &own = overrides.emplace_back();
            for (const auto &[lane, limit] : decided.overrides) {
                tollgate_override raw = {lane, {}};
                if (limit.copy(raw.limit, sizeof raw.limit - 1) < limit.size())
                    throw error(TOLLGATE_STATUS_INVALID_LIMIT);
                own.push_back(raw);
            }
            entries.push_back({agent.data(), agent.size(), own.data(), own.size(),
                               decided.plan.value_or(TOLLGATE_NONE), decided.exempt ? 1u : 0u});
        }
        decide(tollgate_set_assignments, entries.data(), entries.size());
    }

    void replace_policy(const tollgate::policy &policy) { decide(tollgate_replace_policy, policy.get()); }

    /// Keeps assignments in a file. Call it before the first check.
    void keep_assignments_in(std::string_view path) { decide(tollgate_keep_assignments_in, path); }
    void reload_assignments() { decide(tollgate_reload_assignments); }

    /// Keeps used budgets in a file. Call it before the first check.
    tollgate_budgets_loaded keep_budgets_in(std::string_view path)
    {
        return detail::explained<tollgate_budgets_loaded>(tollgate_keep_budgets_in, get(), path);
    }

    /// Call it every few seconds, and once before the process ends.
    tollgate_budgets_saved save_budgets()
    {
        return detail::explained<tollgate_budgets_saved>(tollgate_save_budgets, get());
    }

    // --- Actions.

    /// The lane that pays for an action. An unknown action is counted.
    tollgate_action_lane lane_for(std::string_view channel, std::string_view action)
    {
        return ask<tollgate_action_lane>(tollgate_lane_for, channel, action);
    }

    /// Channel and name of the unknown actions that were met, sorted.
    std::vector<std::pair<std::string, std::string>> unknown_actions() const
    {
        std::vector<tollgate_unknown_action> actions(TOLLGATE_UNKNOWN_ACTIONS_MAX);
        const auto totals = ask<tollgate_unknown_action_totals>(tollgate_unknown_actions, actions.data(),
                                                                actions.size());
        std::vector<std::pair<std::string, std::string>> names;
        for (std::uint32_t i = 0; i < totals.count; i++)
            names.emplace_back(actions[i].channel, actions[i].name);
        return names;
    }

    // --- What an operator sees.

    tollgate::snapshot snapshot() const
    {
        tollgate::snapshot seen = {detail::zero<tollgate_limiter_view>(),
                                   std::vector<tollgate_lane_counts>(TOLLGATE_LANES_MAX)};
        detail::require(tollgate_snapshot(get(), &seen.totals, seen.lanes.data(), seen.lanes.size()));
        seen.lanes.resize(seen.totals.lane_count);
        return seen;
    }

    agent_view agent(std::string_view agent, instant at = tollgate::now) const
    {
        agent_view seen = {detail::zero<tollgate_agent_view>(), std::vector<tollgate_lane_view>(TOLLGATE_LANES_MAX)};
        detail::require(
            detail::call(tollgate_agent, get(), agent, at, &seen.agent, seen.lanes.data(), seen.lanes.size()));
        seen.lanes.resize(seen.agent.lane_count);
        return seen;
    }

    /// A page of agents that have a record; the roster of the options decides how many can be listed.
    agent_page agents(const tollgate_agent_query &query = agent_query(), std::size_t per_page = TOLLGATE_PAGE_MAX) const
    {
        agent_page page = {detail::zero<tollgate_agent_page>(), std::vector<tollgate_agent_row>(per_page)};
        detail::require(tollgate_agents(get(), &query, page.rows.data(), page.rows.size(), &page.totals));
        page.rows.resize(page.totals.count);
        return page;
    }

    /// The agents with the most violations in the last hour, worst first.
    std::vector<tollgate_offender> top_offenders(std::size_t most = TOLLGATE_OFFENDERS_MAX) const
    {
        std::vector<tollgate_offender> offenders(most);
        const auto totals = ask<tollgate_offender_totals>(tollgate_top_offenders, offenders.data(), most);
        offenders.resize(totals.count < most ? totals.count : most);
        return offenders;
    }

    /// The oldest event, if there is one.
    std::optional<tollgate_event> poll_event()
    {
        const auto event = ask<tollgate_event>(tollgate_poll_event);
        return event.kind != TOLLGATE_EVENT_TYPE_NONE ? std::optional<tollgate_event>(event) : std::nullopt;
    }

    /// Counts, offenders and busy agents as JSON.
    std::string report() const { return text(tollgate_report); }
    void write_report(std::string_view path) const { decide(tollgate_write_report, path); }

    /// The handle, for what is not here.
    tollgate_limiter *get() const noexcept { return handle_.get(); }

private:
    template <class T, class Function, class... Args> T ask(Function function, Args... args) const
    {
        return detail::out<T>(function, get(), args...);
    }

    template <class Function> tollgate_lane_state state(Function function, const request &request) const
    {
        return ask<tollgate_lane_state>(function, &request.raw_, request.at_);
    }

    template <class Function, class... Args> std::string text(Function function, Args... args) const
    {
        return detail::text(function, get(), args...);
    }

    /// A call that explains its failure.
    template <class Function, class... Args> void decide(Function function, Args... args) const
    {
        auto raw = detail::zero<tollgate_error>();
        detail::require(detail::call(function, get(), args..., &raw), raw);
    }

    /// A limit without an address removes; a lane without one stands for all.
    void override_with(std::string_view agent, std::string_view lane_or_tier, std::string_view limit)
    {
        decide(tollgate_set_override, agent, lane_or_tier, limit);
    }

    /// Requests that share one instant and one flag.
    static std::vector<tollgate_request> raw(const std::vector<request> &requests)
    {
        std::vector<tollgate_request> raw;
        raw.reserve(requests.size());
        for (const auto &request : requests) {
            if (request.at_ != requests[0].at_ || request.flags_ != requests[0].flags_)
                throw error(TOLLGATE_STATUS_INVALID_OPTION);
            raw.push_back(request.raw_);
        }
        return raw;
    }

    detail::owner<tollgate_limiter> handle_;
};

} // namespace tollgate

#endif
