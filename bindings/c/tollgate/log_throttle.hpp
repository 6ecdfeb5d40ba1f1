/* Log lines about denials, rate-limited. Part of tollgate.hpp. */
#ifndef TOLLGATE_LOG_THROTTLE_HPP
#define TOLLGATE_LOG_THROTTLE_HPP

#include "call.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tollgate {

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

} // namespace tollgate

#endif
