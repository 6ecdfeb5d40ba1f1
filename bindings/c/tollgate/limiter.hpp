/* Limiters. Part of tollgate.hpp. */
#ifndef TOLLGATE_LIMITER_HPP
#define TOLLGATE_LIMITER_HPP

#include "call.hpp"
#include "policy.hpp"
#include "request.hpp"
#include "verdict.hpp"
#include "views.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tollgate {

/// The default options of a limiter, to be changed: options.clock = clock.get(), say.
inline tollgate_limiter_options options() noexcept { return detail::zero<tollgate_limiter_options>(); }

/// The same, of a limiter that is one for all processes that name this path; see "Sharing" in tollgate.h. The path has
/// to live until the limiter is built.
inline tollgate_limiter_options shared_at(std::string_view path, std::uint32_t mode = 0) noexcept
{
    auto options = tollgate::options();
    options.shared_path = path.data();
    options.shared_path_len = path.size();
    options.shared_mode = mode;
    return options;
}

/// The same, of a limiter that is one for this process and those that it forks.
inline tollgate_limiter_options shared_with_children() noexcept
{
    auto options = tollgate::options();
    options.shared_by = TOLLGATE_SHARED_BY_MEMFD;
    return options;
}

/// An exact rate limiter. Any number of threads may use one at once.
class limiter {
public:
    explicit limiter(const tollgate::policy &policy, const tollgate_limiter_options &options = tollgate::options())
        : handle_(detail::explained<tollgate_limiter *>(tollgate_limiter_new, policy.get(), &options))
    {
    }

    /// Joins a limiter that another process has made, with its policy.
    static limiter join(const tollgate_limiter_options &options)
    {
        return limiter(detail::explained<tollgate_limiter *>(tollgate_limiter_new, nullptr, &options));
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
    explicit limiter(tollgate_limiter *made) noexcept : handle_(made) {}

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
