/* Verdicts: on one request, on several, on a reservation. Part of tollgate.hpp. */
#ifndef TOLLGATE_VERDICT_HPP
#define TOLLGATE_VERDICT_HPP

#include "call.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tollgate {

/// The answer to a request.
class [[nodiscard]] verdict {
public:
    explicit verdict(const tollgate_verdict &raw) noexcept : raw_(raw) {}

    tollgate_decision decision() const noexcept { return raw_.decision; }
    bool allowed() const noexcept { return raw_.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }

    /// Of check_many: why this request could not be answered, or TOLLGATE_STATUS_OK.
    tollgate_status status() const noexcept { return raw_.status; }

    std::uint64_t remaining() const noexcept { return tollgate_verdict_remaining(&raw_); }
    std::uint64_t capacity() const noexcept { return raw_.capacity; }
    span full_in() const noexcept { return detail::to_span(raw_.full_in_ns); }

    /// How long a denied agent has to wait: the longer of the two below. Empty
    /// if no wait helps, and if it was allowed.
    std::optional<span> retry_after() const noexcept { return wait(raw_.retry_after_ns); }
    std::optional<span> lane_wait() const noexcept { return wait(raw_.lane_wait_ns); }
    std::optional<span> conduct_wait() const noexcept { return wait(raw_.conduct_wait_ns); }

    /// Of a counted denial: how many violations in a row; 0 if it is not one.
    std::uint32_t violations_in_a_row() const noexcept { return raw_.violations_in_a_row; }
    bool sustained_abuse() const noexcept { return raw_.sustained_abuse != 0; }

    /// Of a lane that machines share, where the answer came from: a tollgate_source of tollgate_redis.h. Else 0.
    std::int32_t source() const noexcept { return raw_.source; }

    const tollgate_verdict &raw() const noexcept { return raw_; }

private:
    std::optional<span> wait(std::uint64_t nanoseconds) const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(nanoseconds);
    }

    tollgate_verdict raw_;
};

/// The answer to several requests at once: all were charged, or none.
struct [[nodiscard]] all_verdict {
    tollgate_all_verdict raw;

    /// One for each part. In a denial, those of the parts that do not block say what would have been.
    std::vector<verdict> verdicts;

    tollgate_decision decision() const noexcept { return raw.decision; }
    bool allowed() const noexcept { return raw.decision != TOLLGATE_DECISION_DENY; }
    explicit operator bool() const noexcept { return allowed(); }

    /// Whether the part at this index blocks the others.
    bool blocks(std::size_t part) const noexcept { return part < verdicts.size() && (raw.blocking >> part & 1) != 0; }

    /// The longest wait of the parts that block; empty if no wait helps, and if it was allowed.
    std::optional<span> retry_after() const noexcept
    {
        return allowed() ? std::nullopt : detail::unless_never(raw.retry_after_ns);
    }
};

/// The answer to reserve. The number is 0 if the verdict is a denial.
struct [[nodiscard]] reserved {
    tollgate::verdict verdict;
    std::uint64_t reservation;

    explicit operator bool() const noexcept { return verdict.allowed(); }
};

} // namespace tollgate

#endif
