/*
 * tollgate for C++17: the C header with owners, durations and exceptions.
 *
 * Everything is inline and thin. Handles free themselves; a status other than
 * TOLLGATE_STATUS_OK is thrown as a tollgate::error; a denial is a verdict.
 * The rules of tollgate.h on threads, forks and ids hold here too.
 */
#ifndef TOLLGATE_HPP
#define TOLLGATE_HPP

#include "tollgate.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tollgate {

/* A span of time. */
using span = std::chrono::nanoseconds;

/* An instant: nanoseconds since the origin of a limiter's clock. */
using instant = std::uint64_t;

inline std::string_view version() noexcept
{
    return tollgate_version();
}

/* A call that could not be answered; nothing was charged. */
class error : public std::runtime_error {
public:
    explicit error(tollgate_status status) : error(status, tollgate_status_text(status), 0, 0) {}

    explicit error(const tollgate_error &told) : error(told.status, told.message, told.line, told.column) {}

    tollgate_status status() const noexcept { return status_; }

    /* Where in a text, counted from 1; 0 if nowhere. */
    std::uint32_t line() const noexcept { return line_; }
    std::uint32_t column() const noexcept { return column_; }

private:
    error(tollgate_status status, const char *message, std::uint32_t line, std::uint32_t column)
        : std::runtime_error(message), status_(status), line_(line), column_(column)
    {
    }

    tollgate_status status_;
    std::uint32_t line_;
    std::uint32_t column_;
};

namespace detail {

inline void require(tollgate_status status)
{
    if (status != TOLLGATE_STATUS_OK)
        throw error(status);
}

/* Negative spans are none. */
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
    void operator()(tollgate_policy_builder *handle) const noexcept { tollgate_policy_builder_free(handle); }
    void operator()(tollgate_limiter *handle) const noexcept { tollgate_limiter_free(handle); }
};

template <class T> using owner = std::unique_ptr<T, freed>;

/* Takes what a function hands out through its last argument. */
template <class T, class Make> owner<T> take(Make make)
{
    T *handle = nullptr;
    require(make(&handle));
    return owner<T>(handle);
}

/* Reads a text of a length that is asked for first. */
template <class Read> std::string text(Read read)
{
    std::size_t len = 0;
    require(read(static_cast<char *>(nullptr), std::size_t(0), &len));
    std::string text(len + 1, '\0');
    require(read(&text[0], text.size(), &len));
    text.resize(len);
    return text;
}

} // namespace detail

/* Where a limiter's time comes from. */
class clock {
public:
    explicit clock(tollgate_time_source source = TOLLGATE_TIME_SOURCE_AUTO)
        : handle_(detail::take<tollgate_clock>([&](auto out) { return tollgate_clock_new(source, out); }))
    {
    }

    /* One that moves when it is told to. */
    static clock manual() { return clock(TOLLGATE_TIME_SOURCE_MANUAL); }

    instant now() const
    {
        instant now = 0;
        detail::require(tollgate_clock_now(handle_.get(), &now));
        return now;
    }

    tollgate_time_source source() const
    {
        tollgate_time_source source = TOLLGATE_TIME_SOURCE_AUTO;
        detail::require(tollgate_clock_source(handle_.get(), &source));
        return source;
    }

    std::uint64_t fallbacks() const
    {
        std::uint64_t fallbacks = 0;
        detail::require(tollgate_clock_fallbacks(handle_.get(), &fallbacks));
        return fallbacks;
    }

    void advance(span by) { detail::require(tollgate_clock_advance(handle_.get(), detail::nanoseconds(by))); }
    void set(instant now) { detail::require(tollgate_clock_set(handle_.get(), now)); }

    const tollgate_clock *get() const noexcept { return handle_.get(); }

private:
    detail::owner<tollgate_clock> handle_;
};

/* Named lanes, each with its limit. */
class policy {
public:
    class builder;

    std::uint32_t lane(std::string_view name) const
    {
        std::uint32_t lane = 0;
        detail::require(tollgate_policy_lane(handle_.get(), name.data(), name.size(), &lane));
        return lane;
    }

    std::uint32_t lane_count() const
    {
        std::uint32_t count = 0;
        detail::require(tollgate_policy_lane_count(handle_.get(), &count));
        return count;
    }

    std::string lane_name(std::uint32_t lane) const
    {
        return detail::text([&](auto... to) { return tollgate_policy_lane_name(handle_.get(), lane, to...); });
    }

    std::string limit(std::uint32_t lane) const
    {
        return detail::text([&](auto... to) { return tollgate_policy_limit(handle_.get(), lane, to...); });
    }

    std::uint32_t warn_below_percent() const
    {
        std::uint32_t percent = 0;
        detail::require(tollgate_policy_warn_below_percent(handle_.get(), &percent));
        return percent;
    }

    const tollgate_policy *get() const noexcept { return handle_.get(); }

private:
    friend class limiter;
    explicit policy(detail::owner<tollgate_policy> handle) noexcept : handle_(std::move(handle)) {}

    detail::owner<tollgate_policy> handle_;
};

/* Collects lanes: policy::builder().lane("http", "10/second burst 20").build(). */
class policy::builder {
public:
    builder() : handle_(detail::take<tollgate_policy_builder>(tollgate_policy_builder_new)) {}

    builder &lane(std::string_view name, std::string_view limit)
    {
        detail::require(
            tollgate_policy_builder_lane(handle_.get(), name.data(), name.size(), limit.data(), limit.size()));
        return *this;
    }

    builder &lane(std::string_view name, std::uint64_t tokens, span per, std::uint64_t capacity)
    {
        detail::require(tollgate_policy_builder_lane_bucket(handle_.get(), name.data(), name.size(), tokens,
                                                            detail::nanoseconds(per), capacity));
        return *this;
    }

    builder &warn_below_percent(std::uint32_t percent)
    {
        detail::require(tollgate_policy_builder_warn_below_percent(handle_.get(), percent));
        return *this;
    }

    policy build() const
    {
        tollgate_error told = {};
        told.struct_size = sizeof told;
        tollgate_policy *made = nullptr;
        const tollgate_status status = tollgate_policy_builder_build(handle_.get(), &made, &told);
        if (status == TOLLGATE_STATUS_INVALID_POLICY)
            throw error(told);
        detail::require(status);
        return policy(detail::owner<tollgate_policy>(made));
    }

private:
    detail::owner<tollgate_policy_builder> handle_;
};

/* The answer to a check. */
class [[nodiscard]] verdict {
public:
    tollgate_decision decision() const noexcept { return raw_.decision; }
    bool allowed() const noexcept { return raw_.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }
    std::uint64_t remaining() const noexcept { return tollgate_verdict_remaining(&raw_); }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    span full_in() const noexcept { return detail::to_span(raw_.full_in_ns); }

    /* How long to wait; nothing if it was allowed, or if no wait helps. */
    std::optional<span> retry_after() const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(raw_.retry_after_ns);
    }

private:
    friend class limiter;
    verdict() noexcept : raw_() { raw_.struct_size = sizeof raw_; }

    tollgate_verdict raw_;
};

/* A lane of an agent as it stands. */
class lane_status {
public:
    std::uint64_t remaining() const noexcept { return raw_.remaining; }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    std::optional<span> next_in() const noexcept { return detail::unless_never(raw_.next_in_ns); }
    span full_in() const noexcept { return detail::to_span(raw_.full_in_ns); }

private:
    friend class limiter;
    lane_status() noexcept : raw_() { raw_.struct_size = sizeof raw_; }

    tollgate_lane_status raw_;
};

/* How a limiter is made. */
struct options {
    std::uint64_t agents = TOLLGATE_AGENTS_DEFAULT;
    tollgate_on_full on_full = TOLLGATE_ON_FULL_EVICT;
    tollgate_id_hash id_hash = TOLLGATE_ID_HASH_MULTILINEAR;
    const tollgate::clock *clock = nullptr;
};

/* One request of a batch. The id has to live until the batch is checked. */
inline tollgate_request request(std::string_view id, std::uint32_t lane, std::uint64_t cost = 1) noexcept
{
    return {id.data(), id.size(), cost, lane, 0};
}

/* An exact rate limiter. Any number of threads may use one at once. */
class limiter {
public:
    explicit limiter(const policy &policy, const options &options = {})
    {
        tollgate_limiter_options raw = {};
        raw.struct_size = sizeof raw;
        raw.agents = options.agents;
        raw.on_full = options.on_full;
        raw.id_hash = options.id_hash;
        raw.clock = options.clock != nullptr ? options.clock->get() : nullptr;
        handle_ = detail::take<tollgate_limiter>([&](auto out) { return tollgate_limiter_new(policy.get(), &raw, out); });
    }

    /* The limiter of the whole process. */
    static limiter process() { return limiter(detail::take<tollgate_limiter>(tollgate_default)); }

    std::uint32_t lane(std::string_view name) const
    {
        std::uint32_t lane = 0;
        detail::require(tollgate_limiter_lane(handle_.get(), name.data(), name.size(), &lane));
        return lane;
    }

    tollgate::policy policy() const
    {
        return tollgate::policy(
            detail::take<tollgate_policy>([&](auto out) { return tollgate_limiter_policy(handle_.get(), out); }));
    }

    instant now() const
    {
        instant now = 0;
        detail::require(tollgate_limiter_now(handle_.get(), &now));
        return now;
    }

    std::uint64_t memory() const
    {
        std::uint64_t bytes = 0;
        detail::require(tollgate_limiter_memory(handle_.get(), &bytes));
        return bytes;
    }

    tollgate_stats stats() const
    {
        tollgate_stats stats = {};
        stats.struct_size = sizeof stats;
        detail::require(tollgate_limiter_stats(handle_.get(), &stats));
        return stats;
    }

    verdict check(std::string_view id, std::uint32_t lane, std::uint64_t cost = 1)
    {
        verdict verdict;
        detail::require(tollgate_limiter_check(handle_.get(), id.data(), id.size(), lane, cost, &verdict.raw_));
        return verdict;
    }

    verdict check_at(std::string_view id, std::uint32_t lane, std::uint64_t cost, instant now)
    {
        verdict verdict;
        detail::require(tollgate_limiter_check_at(handle_.get(), id.data(), id.size(), lane, cost, now, &verdict.raw_));
        return verdict;
    }

    /* An answer for each request; see tollgate_answer. */
    std::vector<tollgate_answer> check_many(const std::vector<tollgate_request> &requests)
    {
        return check_many_at(requests, now());
    }

    std::vector<tollgate_answer> check_many_at(const std::vector<tollgate_request> &requests, instant now)
    {
        std::vector<tollgate_answer> answers(requests.size());
        if (!requests.empty())
            detail::require(tollgate_limiter_check_many_at(handle_.get(), requests.data(), requests.size(), now,
                                                           answers.data()));
        return answers;
    }

    lane_status status(std::string_view id, std::uint32_t lane) const
    {
        lane_status status;
        detail::require(tollgate_limiter_status(handle_.get(), id.data(), id.size(), lane, &status.raw_));
        return status;
    }

    lane_status status_at(std::string_view id, std::uint32_t lane, instant now) const
    {
        lane_status status;
        detail::require(tollgate_limiter_status_at(handle_.get(), id.data(), id.size(), lane, now, &status.raw_));
        return status;
    }

    lane_status refund(std::string_view id, std::uint32_t lane, std::uint64_t cost)
    {
        lane_status status;
        detail::require(tollgate_limiter_refund(handle_.get(), id.data(), id.size(), lane, cost, &status.raw_));
        return status;
    }

    lane_status refund_at(std::string_view id, std::uint32_t lane, std::uint64_t cost, instant now)
    {
        lane_status status;
        detail::require(
            tollgate_limiter_refund_at(handle_.get(), id.data(), id.size(), lane, cost, now, &status.raw_));
        return status;
    }

    void reset(std::string_view id) { detail::require(tollgate_limiter_reset(handle_.get(), id.data(), id.size())); }

    void reset_at(std::string_view id, instant now)
    {
        detail::require(tollgate_limiter_reset_at(handle_.get(), id.data(), id.size(), now));
    }

    void reset_lane(std::string_view id, std::uint32_t lane)
    {
        detail::require(tollgate_limiter_reset_lane(handle_.get(), id.data(), id.size(), lane));
    }

    void reset_lane_at(std::string_view id, std::uint32_t lane, instant now)
    {
        detail::require(tollgate_limiter_reset_lane_at(handle_.get(), id.data(), id.size(), lane, now));
    }

    /* Whether anything was known of the agent. */
    bool forget(std::string_view id)
    {
        bool known = false;
        detail::require(tollgate_limiter_forget(handle_.get(), id.data(), id.size(), &known));
        return known;
    }

    bool forget_at(std::string_view id, instant now)
    {
        bool known = false;
        detail::require(tollgate_limiter_forget_at(handle_.get(), id.data(), id.size(), now, &known));
        return known;
    }

    /* How many records of agents that were idle for so long are vacant now. */
    std::uint64_t sweep(span idle_for)
    {
        std::uint64_t swept = 0;
        detail::require(tollgate_limiter_sweep(handle_.get(), detail::nanoseconds(idle_for), &swept));
        return swept;
    }

    std::uint64_t sweep_at(span idle_for, instant now)
    {
        std::uint64_t swept = 0;
        detail::require(tollgate_limiter_sweep_at(handle_.get(), detail::nanoseconds(idle_for), now, &swept));
        return swept;
    }

    tollgate_limiter *get() noexcept { return handle_.get(); }

private:
    explicit limiter(detail::owner<tollgate_limiter> handle) noexcept : handle_(std::move(handle)) {}

    detail::owner<tollgate_limiter> handle_;
};

} // namespace tollgate

#endif
