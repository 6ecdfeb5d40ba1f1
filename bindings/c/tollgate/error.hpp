/* What the other parts are written in, and the exception that they throw. Part of tollgate.hpp. */
#ifndef TOLLGATE_ERROR_HPP
#define TOLLGATE_ERROR_HPP

#include <tollgate.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string_view>

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

} // namespace tollgate

#endif
