/* How C functions are called: a status becomes an exception, an output a value. Part of tollgate.hpp. */
#ifndef TOLLGATE_CALL_HPP
#define TOLLGATE_CALL_HPP

#include "error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace tollgate::detail {

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

} // namespace tollgate::detail

#endif
