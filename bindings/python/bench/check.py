"""What a check costs from Python, beside `limits`: `make python-bench`.

Every row is timed in every round, in turn, so that what else the machine does falls on all of them alike. A number is
the median over the rounds of the thread's CPU time per call, and a ratio is the median of the rounds' ratios. The loop
around the calls is measured too, and taken off.
"""

import sys
import time
from collections.abc import Callable
from itertools import repeat
from statistics import median

import limits
from limits.storage import MemoryStorage
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    RateLimiter,
    SlidingWindowCounterRateLimiter,
)

from tollgate_limiter import Limiter

QUICK = "--quick" in sys.argv
ROUNDS, CALLS = (7, 4_000) if QUICK else (31, 40_000)
AGENTS = [f"agent-{number}" for number in range(1_000)]

limiter = Limiter({"lanes": {"api": "1000000/second", "deny": "1/day"}}, agents=100_000)
api, deny = limiter.lane("api"), limiter.lane("deny")
batch = [(agent, api) for agent in AGENTS[:100]]
for agent in AGENTS:
    deny.allow(agent)

item = limits.parse("1000000/second")
fixed, moving = FixedWindowRateLimiter(MemoryStorage()), MovingWindowRateLimiter(MemoryStorage())
sliding = SlidingWindowCounterRateLimiter(MemoryStorage())


class Nothing:
    def allow(self, agent: str) -> bool:
        return True


def asked(calls: int) -> list[str]:
    return AGENTS * (calls // len(AGENTS))


def each(call: Callable[[str], object], calls: int) -> float:
    """Nanoseconds of CPU for a call and the loop around it."""
    agents = asked(calls)
    start = time.thread_time_ns()
    for agent in agents:
        call(agent)
    return (time.thread_time_ns() - start) / len(agents)


def empty(calls: int) -> float:
    agents = asked(calls)
    start = time.thread_time_ns()
    for _ in agents:
        pass
    return (time.thread_time_ns() - start) / len(agents)


def many(calls: int) -> float:
    start = time.thread_time_ns()
    for _ in repeat(None, calls // len(batch)):
        limiter.check_many(batch)
    return (time.thread_time_ns() - start) / (calls // len(batch) * len(batch))


def with_cost(calls: int) -> float:
    agents = asked(calls)
    start = time.thread_time_ns()
    for agent in agents:
        api.check(agent, cost=2)
    return (time.thread_time_ns() - start) / len(agents)


def hits(strategy: RateLimiter, calls: int) -> float:
    hit, agents = strategy.hit, asked(calls // 4)
    start = time.thread_time_ns()
    for agent in agents:
        hit(item, agent)
    return (time.thread_time_ns() - start) / len(agents)


FIXED = "limits, fixed window"
ROWS: dict[str, Callable[[int], float]] = {
    "a method in Python that does nothing": lambda calls: each(Nothing().allow, calls),
    "allow": lambda calls: each(api.allow, calls),
    "allow, denied": lambda calls: each(deny.allow, calls),
    "denied, and it is not": lambda calls: each(api.denied, calls),
    "check": lambda calls: each(api.check, calls),
    "check, denied": lambda calls: each(deny.check, calls),
    "check(agent, cost=2)": with_cost,
    "check_many, 100 at once": many,
    FIXED: lambda calls: hits(fixed, calls),
    "limits, moving window": lambda calls: hits(moving, calls),
    "limits, sliding window": lambda calls: hits(sliding, calls),
}


def main() -> None:
    times: dict[str, list[float]] = {row: [] for row in ROWS}
    for round in range(ROUNDS + 1):
        took = {row: measure(CALLS) for row, measure in ROWS.items()}
        around = empty(CALLS)
        if round:  # The first one warms up.
            for row, nanos in took.items():
                times[row].append(nanos - around)

    def ratio(row: str, base: str) -> float:
        return median(own / other for own, other in zip(times[row], times[base], strict=True))

    version = sys.version.split()[0]
    print(f"Python {version}, {len(AGENTS):,} agents in turn, medians of {ROUNDS} rounds of {CALLS:,} calls:\n")
    print("| call | ns | of `check` |\n|---|---:|---:|")
    for row, nanos in times.items():
        print(f"| {row} | {median(nanos):,.0f} | {ratio(row, 'check'):.2f} |")
    check, peer, allow = median(times["check"]), ratio(FIXED, "check"), ratio("allow", "check")
    print()
    bar(f"`check` takes {check:.0f} ns; at most 150", check <= 150)
    bar(f"`limits` takes {peer:.1f} times as long as `check`; at least 25", peer >= 25)
    bar(f"`allow` takes {allow:.2f} of `check`; at most 0.6", allow <= 0.6)


def bar(text: str, met: bool) -> None:
    print(f"- {text}: {'met' if met else 'missed'}")


main()
