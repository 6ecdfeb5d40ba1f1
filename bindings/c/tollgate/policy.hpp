/* Policies. Part of tollgate.hpp. */
#ifndef TOLLGATE_POLICY_HPP
#define TOLLGATE_POLICY_HPP

#include "call.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tollgate {

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

} // namespace tollgate

#endif
