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
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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

/* Of a call that tells its failure in words. */
template <class Call> void require_told(Call call)
{
    tollgate_error told = {};
    told.struct_size = sizeof told;
    const tollgate_status status = call(&told);
    if (status != TOLLGATE_STATUS_OK && told.message[0] != '\0')
        throw error(told);
    require(status);
}

/* What a function fills in through its last argument: a number, a flag, or a struct that knows its size. */
template <class T, class Ask> T value(Ask ask)
{
    T value = {};
    require(ask(&value));
    return value;
}

template <class T, class Ask> T tagged(Ask ask)
{
    T value = {};
    value.struct_size = sizeof value;
    require(ask(&value));
    return value;
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

inline std::optional<instant> instant_unless_never(std::uint64_t nanoseconds) noexcept
{
    return nanoseconds == TOLLGATE_NEVER ? std::nullopt : std::optional<instant>(nanoseconds);
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
    void operator()(tollgate_assignment *handle) const noexcept { tollgate_assignment_free(handle); }
    void operator()(tollgate_assignments *handle) const noexcept { tollgate_assignments_free(handle); }
    void operator()(tollgate_unknown_actions *handle) const noexcept { tollgate_unknown_actions_free(handle); }
    void operator()(tollgate_agent_page *handle) const noexcept { tollgate_agent_page_free(handle); }
    void operator()(tollgate_offenders *handle) const noexcept { tollgate_offenders_free(handle); }
    void operator()(tollgate_log_throttle *handle) const noexcept { tollgate_log_throttle_free(handle); }
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

/* The lane that pays for an action. */
struct action_lane {
    std::uint32_t lane;
    bool known;
    bool first_seen;
};

/* The names of the ready-made policies. */
inline std::vector<std::string_view> presets()
{
    std::vector<std::string_view> names;
    while (const char *name = tollgate_preset_name(names.size()))
        names.emplace_back(name);
    return names;
}

/* The rules of conduct as they are by default, to be changed and given to a builder. */
inline tollgate_conduct_rules conduct_rules() noexcept
{
    tollgate_conduct_rules rules = {};
    rules.struct_size = sizeof rules;
    return rules;
}

/* Named lanes, each with its limit; plans, actions and rules of conduct. */
class policy {
public:
    class builder;

    /* The ready-made policy of this name. */
    static policy preset(std::string_view name)
    {
        return made([&](auto... to) { return tollgate_policy_preset(name.data(), name.size(), to...); });
    }

    /* Needs TOLLGATE_FEATURE_CONFIG, like to_toml. The error says in which line and column. */
    static policy from_toml(std::string_view toml)
    {
        return made([&](auto... to) { return tollgate_policy_from_toml(toml.data(), toml.size(), to...); });
    }

    std::string to_toml() const
    {
        return detail::text([&](auto... to) { return tollgate_policy_to_toml(handle_.get(), to...); });
    }

    std::vector<std::uint32_t> lanes_of(std::string_view lane_or_tier) const
    {
        std::vector<std::uint32_t> lanes(TOLLGATE_LANES_MAX);
        std::size_t count = 0;
        detail::require(tollgate_policy_lanes_of(handle_.get(), lane_or_tier.data(), lane_or_tier.size(), lanes.data(),
                                                 lanes.size(), &count));
        lanes.resize(count);
        return lanes;
    }

    std::uint32_t plan(std::string_view name) const
    {
        return detail::value<std::uint32_t>(
            [&](auto out) { return tollgate_policy_plan(handle_.get(), name.data(), name.size(), out); });
    }

    std::uint32_t plan_count() const
    {
        return detail::value<std::uint32_t>([&](auto out) { return tollgate_policy_plan_count(handle_.get(), out); });
    }

    std::string plan_name(std::uint32_t plan) const
    {
        return detail::text([&](auto... to) { return tollgate_policy_plan_name(handle_.get(), plan, to...); });
    }

    std::string plan_limit(std::uint32_t plan, std::uint32_t lane) const
    {
        return detail::text([&](auto... to) { return tollgate_policy_plan_limit(handle_.get(), plan, lane, to...); });
    }

    std::uint64_t capacity(std::uint32_t plan, std::uint32_t lane) const
    {
        return detail::value<std::uint64_t>(
            [&](auto out) { return tollgate_policy_capacity(handle_.get(), plan, lane, out); });
    }

    tollgate_on_change on_change() const
    {
        tollgate_on_change on_change = TOLLGATE_ON_CHANGE_KEEP_DEBT;
        detail::require(tollgate_policy_on_change(handle_.get(), &on_change));
        return on_change;
    }

    tollgate_conduct_rules conduct() const
    {
        return detail::tagged<tollgate_conduct_rules>(
            [&](auto out) { return tollgate_policy_conduct(handle_.get(), out); });
    }

    /* Every action that the policy names, with its lane. */
    std::vector<std::pair<std::string, std::uint32_t>> actions() const
    {
        const auto count =
            detail::value<std::size_t>([&](auto out) { return tollgate_policy_action_count(handle_.get(), out); });
        std::vector<std::pair<std::string, std::uint32_t>> actions;
        for (std::size_t i = 0; i < count; i++)
            actions.emplace_back(
                detail::text([&](auto... to) { return tollgate_policy_action_name(handle_.get(), i, to...); }),
                detail::value<std::uint32_t>(
                    [&](auto out) { return tollgate_policy_action_lane(handle_.get(), i, out); }));
        return actions;
    }

    std::string unknown_actions_tier() const
    {
        return detail::text([&](auto... to) { return tollgate_policy_unknown_actions_tier(handle_.get(), to...); });
    }

    action_lane lane_for(std::string_view channel, std::string_view action) const
    {
        const auto lane = detail::tagged<tollgate_action_lane>([&](auto out) {
            return tollgate_policy_lane_for(handle_.get(), channel.data(), channel.size(), action.data(), action.size(),
                                            out);
        });
        return {lane.lane, lane.known != 0, lane.first_seen != 0};
    }

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

    template <class Make> static policy made(Make make)
    {
        tollgate_policy *made = nullptr;
        detail::require_told([&](tollgate_error *told) { return make(&made, told); });
        return policy(detail::owner<tollgate_policy>(made));
    }

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

    /* A plan in which every lane has its own limit, until plan_lane says otherwise. */
    builder &plan(std::string_view name)
    {
        detail::require(tollgate_policy_builder_plan(handle_.get(), name.data(), name.size()));
        return *this;
    }

    builder &plan_lane(std::string_view plan, std::string_view lane, std::string_view limit)
    {
        detail::require(tollgate_policy_builder_plan_lane(handle_.get(), plan.data(), plan.size(), lane.data(),
                                                          lane.size(), limit.data(), limit.size()));
        return *this;
    }

    builder &plan_lane(std::string_view plan, std::string_view lane, std::uint64_t tokens, span per,
                       std::uint64_t capacity)
    {
        detail::require(tollgate_policy_builder_plan_lane_bucket(handle_.get(), plan.data(), plan.size(), lane.data(),
                                                                 lane.size(), tokens, detail::nanoseconds(per),
                                                                 capacity));
        return *this;
    }

    builder &action(std::string_view channel, std::string_view tier, std::string_view action)
    {
        detail::require(tollgate_policy_builder_action(handle_.get(), channel.data(), channel.size(), tier.data(),
                                                       tier.size(), action.data(), action.size()));
        return *this;
    }

    builder &unknown_actions_to(std::string_view tier)
    {
        detail::require(tollgate_policy_builder_unknown_actions_to(handle_.get(), tier.data(), tier.size()));
        return *this;
    }

    builder &outside_total(std::string_view lane)
    {
        detail::require(tollgate_policy_builder_outside_total(handle_.get(), lane.data(), lane.size()));
        return *this;
    }

    builder &conduct(const tollgate_conduct_rules &rules)
    {
        detail::require(tollgate_policy_builder_conduct(handle_.get(), &rules));
        return *this;
    }

    builder &on_change(tollgate_on_change on_change)
    {
        detail::require(tollgate_policy_builder_on_change(handle_.get(), on_change));
        return *this;
    }

    builder &warn_below_percent(std::uint32_t percent)
    {
        detail::require(tollgate_policy_builder_warn_below_percent(handle_.get(), percent));
        return *this;
    }

    policy build() const
    {
        return policy::made([&](auto... to) { return tollgate_policy_builder_build(handle_.get(), to...); });
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

/* The answer to a check that counts violations. */
class [[nodiscard]] admission {
public:
    tollgate_decision decision() const noexcept { return raw_.decision; }
    bool allowed() const noexcept { return raw_.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }
    std::uint64_t remaining() const noexcept { return tollgate_admission_remaining(&raw_); }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    span full_in() const noexcept { return detail::to_span(raw_.full_in_ns); }

    /* How long to wait; nothing if it was allowed, or if no wait helps. */
    std::optional<span> retry_after() const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(raw_.retry_after_ns);
    }

    /* The wait of the lane by itself. */
    std::optional<span> lane_retry_after() const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(raw_.lane_retry_after_ns);
    }

    /* Of a denial: what follows from it; consecutive is 0 if it is not a violation. */
    std::uint32_t consecutive() const noexcept { return raw_.consecutive; }
    span wait() const noexcept { return detail::to_span(raw_.wait_ns); }
    span step() const noexcept { return detail::to_span(raw_.step_ns); }
    bool sustained_abuse() const noexcept { return raw_.sustained_abuse != 0; }

private:
    friend class limiter;
    explicit admission(const tollgate_admission &raw) noexcept : raw_(raw) {}

    tollgate_admission raw_;
};

/* The answer to several charges at once: all were made, or none. */
class [[nodiscard]] all_verdict {
public:
    tollgate_decision decision() const noexcept { return raw_.decision; }
    bool allowed() const noexcept { return raw_.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }

    /* Whether the part stands in the way, by its place. */
    bool blocks(std::size_t part) const noexcept { return part < answers_.size() && (raw_.blocking >> part & 1) != 0; }

    /* Whether with this denial of admit_all the conduct of the part's agent became sustained abuse. */
    bool sustained_abuse(std::size_t part) const noexcept
    {
        return part < answers_.size() && (raw_.sustained_abuse >> part & 1) != 0;
    }

    /* The longest wait of the parts in the way; nothing if it was allowed, or if no wait helps. */
    std::optional<span> retry_after() const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(raw_.retry_after_ns);
    }

    /* An answer to each part; of a denial, the others say what would have been. */
    const std::vector<tollgate_answer> &answers() const noexcept { return answers_; }

private:
    friend class limiter;
    explicit all_verdict(std::size_t parts) : raw_(), answers_(parts) { raw_.struct_size = sizeof raw_; }

    tollgate_all_verdict raw_;
    std::vector<tollgate_answer> answers_;
};

/* What became of a reservation. */
struct settlement {
    std::uint64_t unused;
    std::uint64_t overspent;
    std::uint64_t left;
};

/* The answer to reserve: a verdict, and the number of the reservation, which means nothing if it was denied. */
struct [[nodiscard]] reserved {
    tollgate::verdict verdict;
    std::uint64_t reservation;

    explicit operator bool() const noexcept { return verdict.allowed(); }
};

/* A violation as it was recorded. */
struct violation {
    std::uint32_t consecutive;
    span wait;
    span step;
    bool sustained_abuse;
};

/* An agent's conduct as it stands. */
struct conduct {
    std::uint32_t violations;
    std::uint32_t consecutive;
    std::optional<instant> window_start;
    std::optional<instant> last_violation;
    span wait;
};

/* What an operator has decided about one agent. Limits are texts, by lane. */
struct assignment {
    std::optional<std::string> plan;
    std::map<std::string, std::string> overrides;
    bool exempt = false;
};

/* The unknown actions that a limiter has met; names are channel and action. */
struct unknown_actions {
    std::uint64_t total;
    std::uint64_t not_listed;
    std::vector<std::pair<std::string, std::string>> names;
};

namespace detail {

inline assignment read(const tollgate_assignment *from)
{
    assignment read;
    auto plan = text([&](auto... to) { return tollgate_assignment_plan(from, to...); });
    if (!plan.empty())
        read.plan = std::move(plan);
    const auto count = value<std::size_t>([&](auto out) { return tollgate_assignment_override_count(from, out); });
    for (std::size_t i = 0; i < count; i++)
        read.overrides[text([&](auto... to) { return tollgate_assignment_override_lane(from, i, to...); })] =
            text([&](auto... to) { return tollgate_assignment_override_limit(from, i, to...); });
    read.exempt = value<bool>([&](auto out) { return tollgate_assignment_exempt(from, out); });
    return read;
}

inline owner<tollgate_assignment> write(const assignment &from)
{
    auto written = take<tollgate_assignment>(tollgate_assignment_new);
    if (from.plan)
        require(tollgate_assignment_set_plan(written.get(), from.plan->data(), from.plan->size()));
    for (const auto &[lane, limit] : from.overrides)
        require_told([&, &lane = lane, &limit = limit](auto told) {
            return tollgate_assignment_set_override(written.get(), lane.data(), lane.size(), limit.data(), limit.size(),
                                                    told);
        });
    require(tollgate_assignment_set_exempt(written.get(), from.exempt));
    return written;
}

} // namespace detail

/* A lane of an agent as it stands. */
class lane_status {
public:
    bool exempt() const noexcept { return raw_.exempt != 0; }
    std::uint64_t remaining() const noexcept { return raw_.remaining; }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    std::optional<span> next_in() const noexcept { return detail::unless_never(raw_.next_in_ns); }
    span full_in() const noexcept { return detail::to_span(raw_.full_in_ns); }

private:
    friend class limiter;
    lane_status() noexcept : raw_() { raw_.struct_size = sizeof raw_; }

    tollgate_lane_status raw_;
};

/* Counts of a limiter, in all and lane by lane. */
struct snapshot {
    tollgate_snapshot totals;
    std::vector<tollgate_lane_counts> lanes;
};

/* How an agent stands, and each of its lanes. */
struct agent_view {
    tollgate_agent_view agent;
    std::vector<tollgate_lane_view> lanes;
};

/* A page of a list of agents, by id. */
struct agent_page {
    std::vector<std::pair<std::string, agent_view>> agents;
    std::uint64_t matched;
    std::uint64_t not_listed;
};

/* Who violates limits; at most so many, and at least so many less the error. */
struct offender {
    std::string id;
    std::uint64_t violations;
    std::uint64_t error;
};

/* All agents by id, the first page of them, to be changed. */
inline tollgate_agent_query agent_query() noexcept
{
    tollgate_agent_query query = {};
    query.struct_size = sizeof query;
    return query;
}

/* An id as it is safely shown somewhere. */
inline std::string shown(std::string_view id, tollgate_shown where = TOLLGATE_SHOWN_TEXT)
{
    return detail::text([&](auto... to) { return tollgate_id_shown(id.data(), id.size(), where, to...); });
}

namespace detail {

/* Reads an id, whose length has a maximum. */
template <class Read> std::string id(Read read)
{
    char id[TOLLGATE_ID_BYTES_MAX];
    std::size_t len = 0;
    require(read(static_cast<void *>(id), sizeof id, &len));
    return std::string(id, len);
}

/* Reads a struct that knows its size and an array beside it. */
template <class Whole, class T, class Part, class Read> Whole with_lanes(Read read)
{
    T whole = {};
    whole.struct_size = sizeof whole;
    std::vector<Part> parts(TOLLGATE_LANES_MAX);
    std::size_t count = 0;
    require(read(&whole, parts.data(), parts.size(), &count));
    parts.resize(count);
    return {whole, std::move(parts)};
}

} // namespace detail

/* Denials as lines of a log, few of them. Any number of threads may use one at once. */
class log_throttle {
public:
    log_throttle() : handle_(detail::take<tollgate_log_throttle>(tollgate_log_throttle_new)) {}

    /* The line to log, if there is one. */
    std::vector<std::string> denied(std::string_view id, instant now)
    {
        bool line = false;
        detail::require(tollgate_log_throttle_denied(handle_.get(), id.data(), id.size(), now, &line));
        return lines(line ? 1 : 0);
    }

    std::vector<std::string> due(instant now)
    {
        return lines(detail::value<std::size_t>(
            [&](auto out) { return tollgate_log_throttle_due(handle_.get(), now, out); }));
    }

private:
    std::vector<std::string> lines(std::size_t count)
    {
        std::vector<std::string> lines;
        while (lines.size() < count)
            lines.push_back(
                detail::text([&](auto... to) { return tollgate_log_throttle_line(handle_.get(), to...); }));
        return lines;
    }

    detail::owner<tollgate_log_throttle> handle_;
};

/* How a limiter is made. */
struct options {
    std::uint64_t agents = TOLLGATE_AGENTS_DEFAULT;
    tollgate_on_full on_full = TOLLGATE_ON_FULL_EVICT;
    tollgate_id_hash id_hash = TOLLGATE_ID_HASH_MULTILINEAR;
    const tollgate::clock *clock = nullptr;
    tollgate_sight sight = TOLLGATE_SIGHT_OFF;
    std::uint32_t sample_every = 0;
    std::uint64_t roster = 0;
    std::uint64_t reservations = TOLLGATE_RESERVATIONS_DEFAULT;
    bool commit_memory = false;
};

/* One request of a batch, or a part of check_all. The id has to live until it is checked. */
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
        raw.sight = options.sight;
        raw.sample_every = options.sample_every;
        raw.roster = options.roster;
        raw.reservations = options.reservations;
        raw.commit_memory = options.commit_memory ? 1 : 0;
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

    std::uint32_t plan(std::string_view name) const
    {
        return detail::value<std::uint32_t>(
            [&](auto out) { return tollgate_limiter_plan(handle_.get(), name.data(), name.size(), out); });
    }

    /* The lane that pays for an action; an unknown one is counted. */
    action_lane lane_for(std::string_view channel, std::string_view action)
    {
        const auto lane = detail::tagged<tollgate_action_lane>([&](auto out) {
            return tollgate_limiter_lane_for(handle_.get(), channel.data(), channel.size(), action.data(),
                                             action.size(), out);
        });
        return {lane.lane, lane.known != 0, lane.first_seen != 0};
    }

    tollgate::unknown_actions unknown_actions() const
    {
        const auto seen = detail::take<tollgate_unknown_actions>(
            [&](auto out) { return tollgate_limiter_unknown_actions(handle_.get(), out); });
        tollgate::unknown_actions told = {
            detail::value<std::uint64_t>([&](auto out) { return tollgate_unknown_actions_total(seen.get(), out); }),
            detail::value<std::uint64_t>([&](auto out) { return tollgate_unknown_actions_not_listed(seen.get(), out); }),
            {},
        };
        const auto count =
            detail::value<std::size_t>([&](auto out) { return tollgate_unknown_actions_count(seen.get(), out); });
        for (std::size_t i = 0; i < count; i++)
            told.names.emplace_back(
                detail::text([&](auto... to) { return tollgate_unknown_actions_channel(seen.get(), i, to...); }),
                detail::text([&](auto... to) { return tollgate_unknown_actions_name(seen.get(), i, to...); }));
        return told;
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

    /* Takes a slot of a lane of the kind "held 3", until release gives it back. */
    verdict acquire(std::string_view id, std::uint32_t lane)
    {
        verdict verdict;
        detail::require(tollgate_limiter_acquire(handle_.get(), id.data(), id.size(), lane, &verdict.raw_));
        return verdict;
    }

    lane_status release(std::string_view id, std::uint32_t lane)
    {
        lane_status status;
        detail::require(tollgate_limiter_release(handle_.get(), id.data(), id.size(), lane, &status.raw_));
        return status;
    }

    /* Charges every part, or none. */
    all_verdict check_all(const std::vector<tollgate_request> &parts)
    {
        return all(parts, [&](auto... to) { return tollgate_limiter_check_all(handle_.get(), to...); });
    }

    all_verdict check_all_at(const std::vector<tollgate_request> &parts, instant now)
    {
        return all(parts, [&](auto requests, auto count, auto... to) {
            return tollgate_limiter_check_all_at(handle_.get(), requests, count, now, to...);
        });
    }

    /* As check_all, and a denial may be a violation of each agent that stands in the way. */
    all_verdict admit_all(const std::vector<tollgate_request> &parts)
    {
        return all(parts, [&](auto... to) { return tollgate_limiter_admit_all(handle_.get(), to...); });
    }

    all_verdict admit_all_at(const std::vector<tollgate_request> &parts, instant now)
    {
        return all(parts, [&](auto requests, auto count, auto... to) {
            return tollgate_limiter_admit_all_at(handle_.get(), requests, count, now, to...);
        });
    }

    /* Charges an estimate, to be settled by commit or cancel within this time. */
    reserved reserve(std::string_view id, std::uint32_t lane, std::uint64_t estimate, span ttl)
    {
        verdict verdict;
        std::uint64_t reservation = 0;
        detail::require(tollgate_limiter_reserve(handle_.get(), id.data(), id.size(), lane, estimate,
                                                 detail::nanoseconds(ttl), &verdict.raw_, &reservation));
        return {verdict, reservation};
    }

    reserved reserve_at(std::string_view id, std::uint32_t lane, std::uint64_t estimate, span ttl, instant now)
    {
        verdict verdict;
        std::uint64_t reservation = 0;
        detail::require(tollgate_limiter_reserve_at(handle_.get(), id.data(), id.size(), lane, estimate,
                                                    detail::nanoseconds(ttl), now, &verdict.raw_, &reservation));
        return {verdict, reservation};
    }

    settlement commit(std::uint64_t reservation, std::uint64_t used)
    {
        return settled([&](auto out) { return tollgate_limiter_commit(handle_.get(), reservation, used, out); });
    }

    settlement commit_at(std::uint64_t reservation, std::uint64_t used, instant now)
    {
        return settled(
            [&](auto out) { return tollgate_limiter_commit_at(handle_.get(), reservation, used, now, out); });
    }

    /* While an answer streams: so much was used, the rest stays reserved. */
    settlement commit_part(std::uint64_t reservation, std::uint64_t used)
    {
        return settled([&](auto out) { return tollgate_limiter_commit_part(handle_.get(), reservation, used, out); });
    }

    settlement commit_part_at(std::uint64_t reservation, std::uint64_t used, instant now)
    {
        return settled(
            [&](auto out) { return tollgate_limiter_commit_part_at(handle_.get(), reservation, used, now, out); });
    }

    settlement cancel(std::uint64_t reservation)
    {
        return settled([&](auto out) { return tollgate_limiter_cancel(handle_.get(), reservation, out); });
    }

    settlement cancel_at(std::uint64_t reservation, instant now)
    {
        return settled([&](auto out) { return tollgate_limiter_cancel_at(handle_.get(), reservation, now, out); });
    }

    void extend(std::uint64_t reservation, span ttl)
    {
        detail::require(tollgate_limiter_extend(handle_.get(), reservation, detail::nanoseconds(ttl)));
    }

    void extend_at(std::uint64_t reservation, span ttl, instant now)
    {
        detail::require(tollgate_limiter_extend_at(handle_.get(), reservation, detail::nanoseconds(ttl), now));
    }

    /* Under this plan, if the agent has no assignment of its own. */
    verdict check_as(std::string_view id, std::uint32_t plan, std::uint32_t lane, std::uint64_t cost = 1)
    {
        verdict verdict;
        detail::require(
            tollgate_limiter_check_as(handle_.get(), id.data(), id.size(), plan, lane, cost, &verdict.raw_));
        return verdict;
    }

    verdict check_as_at(std::string_view id, std::uint32_t plan, std::uint32_t lane, std::uint64_t cost, instant now)
    {
        verdict verdict;
        detail::require(
            tollgate_limiter_check_as_at(handle_.get(), id.data(), id.size(), plan, lane, cost, now, &verdict.raw_));
        return verdict;
    }

    /* As check, and a denial is recorded as a violation. */
    admission admit(std::string_view id, std::uint32_t lane, std::uint64_t cost = 1)
    {
        return admission(detail::tagged<tollgate_admission>([&](auto out) {
            return tollgate_limiter_admit(handle_.get(), id.data(), id.size(), lane, cost, out);
        }));
    }

    admission admit_at(std::string_view id, std::uint32_t lane, std::uint64_t cost, instant now)
    {
        return admission(detail::tagged<tollgate_admission>([&](auto out) {
            return tollgate_limiter_admit_at(handle_.get(), id.data(), id.size(), lane, cost, now, out);
        }));
    }

    admission admit_as(std::string_view id, std::uint32_t plan, std::uint32_t lane, std::uint64_t cost = 1)
    {
        return admission(detail::tagged<tollgate_admission>([&](auto out) {
            return tollgate_limiter_admit_as(handle_.get(), id.data(), id.size(), plan, lane, cost, out);
        }));
    }

    admission admit_as_at(std::string_view id, std::uint32_t plan, std::uint32_t lane, std::uint64_t cost, instant now)
    {
        return admission(detail::tagged<tollgate_admission>([&](auto out) {
            return tollgate_limiter_admit_as_at(handle_.get(), id.data(), id.size(), plan, lane, cost, now, out);
        }));
    }

    tollgate::violation record_violation(std::string_view id)
    {
        return told(detail::tagged<tollgate_violation>([&](auto out) {
            return tollgate_limiter_record_violation(handle_.get(), id.data(), id.size(), out);
        }));
    }

    tollgate::violation record_violation_at(std::string_view id, instant now)
    {
        return told(detail::tagged<tollgate_violation>([&](auto out) {
            return tollgate_limiter_record_violation_at(handle_.get(), id.data(), id.size(), now, out);
        }));
    }

    tollgate::conduct violations(std::string_view id) const
    {
        return told(detail::tagged<tollgate_conduct>(
            [&](auto out) { return tollgate_limiter_violations(handle_.get(), id.data(), id.size(), out); }));
    }

    tollgate::conduct violations_at(std::string_view id, instant now) const
    {
        return told(detail::tagged<tollgate_conduct>(
            [&](auto out) { return tollgate_limiter_violations_at(handle_.get(), id.data(), id.size(), now, out); }));
    }

    /* Whether a scheduler should give the agent no new work. */
    bool rate_limited(std::string_view id) const
    {
        return detail::value<bool>(
            [&](auto out) { return tollgate_limiter_rate_limited(handle_.get(), id.data(), id.size(), out); });
    }

    bool rate_limited_at(std::string_view id, instant now) const
    {
        return detail::value<bool>(
            [&](auto out) { return tollgate_limiter_rate_limited_at(handle_.get(), id.data(), id.size(), now, out); });
    }

    /* Those of the agents that may be given new work, in the same order. */
    std::vector<std::string_view> assignable(const std::vector<std::string_view> &ids) const
    {
        std::vector<tollgate_id> given;
        for (const auto id : ids)
            given.push_back({id.data(), id.size()});
        const std::unique_ptr<bool[]> may(new bool[ids.size() + 1]);
        if (!ids.empty())
            detail::require(tollgate_limiter_assignable(handle_.get(), given.data(), given.size(), may.get()));
        std::vector<std::string_view> assignable;
        for (std::size_t i = 0; i < ids.size(); i++)
            if (may[i])
                assignable.push_back(ids[i]);
        return assignable;
    }

    /* Whether there were violations that still mattered. */
    bool reset_violations(std::string_view id)
    {
        return detail::value<bool>(
            [&](auto out) { return tollgate_limiter_reset_violations(handle_.get(), id.data(), id.size(), out); });
    }

    void assign(std::string_view id, std::uint32_t plan)
    {
        detail::require_told(
            [&](auto told) { return tollgate_limiter_assign(handle_.get(), id.data(), id.size(), plan, told); });
    }

    void unassign(std::string_view id)
    {
        detail::require_told(
            [&](auto told) { return tollgate_limiter_unassign(handle_.get(), id.data(), id.size(), told); });
    }

    void set_override(std::string_view id, std::string_view lane_or_tier, std::string_view limit)
    {
        detail::require_told([&](auto told) {
            return tollgate_limiter_set_override(handle_.get(), id.data(), id.size(), lane_or_tier.data(),
                                                 lane_or_tier.size(), limit.data(), limit.size(), told);
        });
    }

    void set_override(std::string_view id, std::string_view lane_or_tier, std::uint64_t tokens, span per,
                      std::uint64_t capacity)
    {
        detail::require_told([&](auto told) {
            return tollgate_limiter_set_override_bucket(handle_.get(), id.data(), id.size(), lane_or_tier.data(),
                                                        lane_or_tier.size(), tokens, detail::nanoseconds(per), capacity,
                                                        told);
        });
    }

    void remove_override(std::string_view id, std::string_view lane_or_tier)
    {
        detail::require_told([&](auto told) {
            return tollgate_limiter_remove_override(handle_.get(), id.data(), id.size(), lane_or_tier.data(),
                                                    lane_or_tier.size(), told);
        });
    }

    void remove_overrides(std::string_view id)
    {
        detail::require_told(
            [&](auto told) { return tollgate_limiter_remove_overrides(handle_.get(), id.data(), id.size(), told); });
    }

    void exempt(std::string_view id)
    {
        detail::require_told(
            [&](auto told) { return tollgate_limiter_exempt(handle_.get(), id.data(), id.size(), told); });
    }

    void unexempt(std::string_view id)
    {
        detail::require_told(
            [&](auto told) { return tollgate_limiter_unexempt(handle_.get(), id.data(), id.size(), told); });
    }

    bool is_exempt(std::string_view id) const
    {
        return detail::value<bool>(
            [&](auto out) { return tollgate_limiter_is_exempt(handle_.get(), id.data(), id.size(), out); });
    }

    /* The agent's limit for a lane as text; nothing if it is exempt. */
    std::optional<std::string> limit_of(std::string_view id, std::uint32_t lane) const
    {
        auto limit = detail::text([&](auto... to) {
            return tollgate_limiter_limit_of(handle_.get(), id.data(), id.size(), lane, to...);
        });
        return limit.empty() ? std::nullopt : std::optional<std::string>(std::move(limit));
    }

    tollgate::assignment assignment(std::string_view id) const
    {
        return detail::read(detail::take<tollgate_assignment>([&](auto out) {
                                return tollgate_limiter_assignment(handle_.get(), id.data(), id.size(), out);
                            }).get());
    }

    /* Every agent about which something was decided, in the order of the ids. */
    std::vector<std::pair<std::string, tollgate::assignment>> assignments() const
    {
        const auto all = detail::take<tollgate_assignments>(
            [&](auto out) { return tollgate_limiter_assignments(handle_.get(), out); });
        const auto count =
            detail::value<std::size_t>([&](auto out) { return tollgate_assignments_count(all.get(), out); });
        std::vector<std::pair<std::string, tollgate::assignment>> read;
        for (std::size_t i = 0; i < count; i++) {
            char id[TOLLGATE_ID_BYTES_MAX];
            std::size_t id_len = 0;
            detail::require(tollgate_assignments_id(all.get(), i, id, sizeof id, &id_len));
            const auto of = detail::take<tollgate_assignment>(
                [&](auto out) { return tollgate_assignments_get(all.get(), i, out); });
            read.emplace_back(std::string(id, id_len), detail::read(of.get()));
        }
        return read;
    }

    /* All at once, or none of them. */
    void set_assignments(const std::vector<std::pair<std::string, tollgate::assignment>> &assignments)
    {
        const auto all = detail::take<tollgate_assignments>(tollgate_assignments_new);
        for (const auto &[id, decided] : assignments)
            detail::require(tollgate_assignments_add(all.get(), id.data(), id.size(), detail::write(decided).get()));
        detail::require_told(
            [&](auto told) { return tollgate_limiter_set_assignments(handle_.get(), all.get(), told); });
    }

    void replace_policy(const tollgate::policy &policy)
    {
        detail::require_told(
            [&](auto told) { return tollgate_limiter_replace_policy(handle_.get(), policy.get(), told); });
    }

    /* Needs TOLLGATE_FEATURE_PERSIST, like reload_assignments. */
    void keep_assignments_in(std::string_view path)
    {
        detail::require_told([&](auto told) {
            return tollgate_limiter_keep_assignments_in(handle_.get(), path.data(), path.size(), told);
        });
    }

    /* Needs TOLLGATE_FEATURE_PERSIST, like save_budgets. */
    tollgate_budgets_loaded keep_budgets_in(std::string_view path)
    {
        tollgate_budgets_loaded loaded = {};
        loaded.struct_size = sizeof loaded;
        detail::require_told([&](auto told) {
            return tollgate_limiter_keep_budgets_in(handle_.get(), path.data(), path.size(), &loaded, told);
        });
        return loaded;
    }

    /* Every few seconds, and last of all. */
    tollgate_budgets_saved save_budgets()
    {
        tollgate_budgets_saved saved = {};
        saved.struct_size = sizeof saved;
        detail::require_told([&](auto told) { return tollgate_limiter_save_budgets(handle_.get(), &saved, told); });
        return saved;
    }

    void reload_assignments()
    {
        detail::require_told([&](auto told) { return tollgate_limiter_reload_assignments(handle_.get(), told); });
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

    lane_status status_as(std::string_view id, std::uint32_t plan, std::uint32_t lane) const
    {
        lane_status status;
        detail::require(tollgate_limiter_status_as(handle_.get(), id.data(), id.size(), plan, lane, &status.raw_));
        return status;
    }

    lane_status status_as_at(std::string_view id, std::uint32_t plan, std::uint32_t lane, instant now) const
    {
        lane_status status;
        detail::require(
            tollgate_limiter_status_as_at(handle_.get(), id.data(), id.size(), plan, lane, now, &status.raw_));
        return status;
    }

    lane_status refund_as(std::string_view id, std::uint32_t plan, std::uint32_t lane, std::uint64_t cost)
    {
        lane_status status;
        detail::require(
            tollgate_limiter_refund_as(handle_.get(), id.data(), id.size(), plan, lane, cost, &status.raw_));
        return status;
    }

    lane_status refund_as_at(std::string_view id, std::uint32_t plan, std::uint32_t lane, std::uint64_t cost,
                             instant now)
    {
        lane_status status;
        detail::require(
            tollgate_limiter_refund_as_at(handle_.get(), id.data(), id.size(), plan, lane, cost, now, &status.raw_));
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

    tollgate::snapshot snapshot() const
    {
        return detail::with_lanes<tollgate::snapshot, tollgate_snapshot, tollgate_lane_counts>(
            [&](auto... to) { return tollgate_limiter_snapshot(handle_.get(), to...); });
    }

    agent_view agent(std::string_view id) const
    {
        return detail::with_lanes<agent_view, tollgate_agent_view, tollgate_lane_view>(
            [&](auto... to) { return tollgate_limiter_agent(handle_.get(), id.data(), id.size(), to...); });
    }

    agent_view agent_at(std::string_view id, instant now) const
    {
        return detail::with_lanes<agent_view, tollgate_agent_view, tollgate_lane_view>(
            [&](auto... to) { return tollgate_limiter_agent_at(handle_.get(), id.data(), id.size(), now, to...); });
    }

    agent_page agents(const tollgate_agent_query &query = agent_query()) const
    {
        const auto page = detail::take<tollgate_agent_page>(
            [&](auto out) { return tollgate_limiter_agents(handle_.get(), &query, out); });
        agent_page read = {
            {},
            detail::value<std::uint64_t>([&](auto out) { return tollgate_agent_page_matched(page.get(), out); }),
            detail::value<std::uint64_t>([&](auto out) { return tollgate_agent_page_not_listed(page.get(), out); }),
        };
        const auto count =
            detail::value<std::size_t>([&](auto out) { return tollgate_agent_page_count(page.get(), out); });
        for (std::size_t i = 0; i < count; i++)
            read.agents.emplace_back(
                detail::id([&](auto... to) { return tollgate_agent_page_id(page.get(), i, to...); }),
                detail::with_lanes<agent_view, tollgate_agent_view, tollgate_lane_view>(
                    [&](auto... to) { return tollgate_agent_page_agent(page.get(), i, to...); }));
        return read;
    }

    std::vector<offender> top_offenders(std::size_t most) const
    {
        const auto offenders = detail::take<tollgate_offenders>(
            [&](auto out) { return tollgate_limiter_top_offenders(handle_.get(), most, out); });
        const auto count =
            detail::value<std::size_t>([&](auto out) { return tollgate_offenders_count(offenders.get(), out); });
        std::vector<offender> read;
        for (std::size_t i = 0; i < count; i++) {
            std::uint64_t violations = 0, error = 0;
            detail::require(tollgate_offenders_violations(offenders.get(), i, &violations, &error));
            read.push_back({detail::id([&](auto... to) { return tollgate_offenders_id(offenders.get(), i, to...); }),
                            violations, error});
        }
        return read;
    }

    /* What an operator wants to know, as JSON. */
    std::string status_document() const
    {
        std::size_t len = 0;
        detail::require(tollgate_limiter_status_document(handle_.get(), nullptr, 0, &len));
        std::string json(2 * len + 4096, '\0'); /* It may have grown meanwhile. */
        detail::require(tollgate_limiter_status_document(handle_.get(), &json[0], json.size(), &len));
        json.resize(len);
        return json;
    }

    /* Needs TOLLGATE_FEATURE_PERSIST. */
    void write_status(std::string_view path) const
    {
        detail::require_told([&](auto told) {
            return tollgate_limiter_write_status(handle_.get(), path.data(), path.size(), told);
        });
    }

    /* The oldest event, if there is one. */
    std::optional<tollgate_event> poll_event()
    {
        tollgate_event event = {};
        event.struct_size = sizeof event;
        const bool polled = detail::value<bool>(
            [&](auto out) { return tollgate_limiter_poll_event(handle_.get(), &event, out); });
        return polled ? std::optional<tollgate_event>(event) : std::nullopt;
    }

    tollgate_limiter *get() noexcept { return handle_.get(); }

private:
    template <class Ask> static all_verdict all(const std::vector<tollgate_request> &parts, Ask ask)
    {
        if (parts.empty())
            throw error(TOLLGATE_STATUS_PARTS);
        all_verdict verdict(parts.size());
        detail::require(ask(parts.data(), parts.size(), verdict.answers_.data(), &verdict.raw_));
        return verdict;
    }

    template <class Ask> static settlement settled(Ask ask)
    {
        const auto raw = detail::tagged<tollgate_settlement>(ask);
        return {raw.unused, raw.overspent, raw.left};
    }

    static tollgate::violation told(const tollgate_violation &raw) noexcept
    {
        return {raw.consecutive, detail::to_span(raw.wait_ns), detail::to_span(raw.step_ns), raw.sustained_abuse != 0};
    }

    static tollgate::conduct told(const tollgate_conduct &raw) noexcept
    {
        return {raw.violations, raw.consecutive, detail::instant_unless_never(raw.window_start_ns),
                detail::instant_unless_never(raw.last_violation_ns), detail::to_span(raw.wait_ns)};
    }

    explicit limiter(detail::owner<tollgate_limiter> handle) noexcept : handle_(std::move(handle)) {}

    detail::owner<tollgate_limiter> handle_;
};

} // namespace tollgate

#endif
