/* Clocks and waits. Part of tollgate.hpp. */
#ifndef TOLLGATE_CLOCK_HPP
#define TOLLGATE_CLOCK_HPP

#include "call.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace tollgate {

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

/// The wait of a denial in whole steps, rounded up, at least one; `never` if no wait helps.
inline std::chrono::milliseconds wait_in(std::optional<span> wait, std::chrono::milliseconds step,
                                         std::chrono::milliseconds never) noexcept
{
    const auto raw = wait ? detail::nanoseconds(*wait) : TOLLGATE_NEVER;
    return std::chrono::milliseconds(
        tollgate_wait_ms(raw, static_cast<std::uint64_t>(step.count()), static_cast<std::uint64_t>(never.count())));
}

} // namespace tollgate

#endif
