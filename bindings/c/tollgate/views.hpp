/* What an operator decides and sees, as values. Part of tollgate.hpp. */
#ifndef TOLLGATE_VIEWS_HPP
#define TOLLGATE_VIEWS_HPP

#include "call.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tollgate {

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

} // namespace tollgate

#endif
