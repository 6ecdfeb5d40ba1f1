/* Requests. Part of tollgate.hpp. */
#ifndef TOLLGATE_REQUEST_HPP
#define TOLLGATE_REQUEST_HPP

#include "error.hpp"

#include <cstdint>
#include <string_view>

namespace tollgate {

/// The question: who, which lane, how much, under which plan or limit, when, and
/// whether a denial counts as a violation. A value: each call returns a changed copy.
///
/// It does not copy the id, which has to live until the request is made.
class [[nodiscard]] request {
public:
    request(std::string_view agent, lane_id lane) noexcept
        : raw_{agent.data(), agent.size(), 1, lane, TOLLGATE_NONE, nullptr}
    {
    }

    /// How many tokens; 1 by default.
    request cost(std::uint64_t cost) const noexcept { return changed(&tollgate_request::cost, cost); }

    /// The plan that applies if the agent is not assigned to one.
    request plan(plan_id plan) const noexcept { return changed(&tollgate_request::plan, plan); }

    /// The limit, if the lane is "dynamic". It is not copied either.
    request limit(const tollgate_call_limit &limit) const noexcept { return changed(&tollgate_request::limit, &limit); }

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

    template <class T, class U> request changed(T tollgate_request::*member, U to) const noexcept
    {
        request changed = *this;
        changed.raw_.*member = to;
        return changed;
    }

    tollgate_request raw_;
    instant at_ = TOLLGATE_NOW;
    std::uint32_t flags_ = 0;
};

} // namespace tollgate

#endif
