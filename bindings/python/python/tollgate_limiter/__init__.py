"""An exact rate limiter for services that many agents call.

>>> from tollgate_limiter import Limiter
>>> limiter = Limiter(policy={"lanes": {"http/heavy": "10/minute burst 5"}}, agents=100_000)
>>> heavy = limiter.lane("http/heavy")
>>> heavy.allow("agent-7")
True
>>> heavy.check("agent-7").remaining
3
"""

from typing import TYPE_CHECKING

from ._errors import BusyError, FileError, FullError, PolicyError, RequestError, TollgateError

if TYPE_CHECKING:
    from ._native import (
        ActionLane,
        AgentPage,
        AgentView,
        AllVerdict,
        Assignment,
        BudgetsLoaded,
        BudgetsSaved,
        CallLimit,
        Conduct,
        DecisionsStatus,
        EngineStatus,
        Event,
        Gate,
        Hold,
        Key,
        Lane,
        LaneCounts,
        LaneState,
        LaneView,
        Limiter,
        ListedAgent,
        LogLine,
        LogThrottle,
        ManualClock,
        Offender,
        Offenders,
        Plan,
        Process,
        Redis,
        Request,
        Reservation,
        Settlement,
        SharedLane,
        Sharing,
        Snapshot,
        Stats,
        UnknownActions,
        Verdict,
        Violation,
    )
else:

    def __getattr__(name: str) -> object:
        """Loads the native module when something of it is first used: `client` needs none of it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _native

        return globals().setdefault(name, getattr(_native, name))

    def __dir__() -> list[str]:
        """With the names that are not loaded yet: a console completes them."""
        return sorted({*globals(), *__all__})

__all__ = [
    "ActionLane",
    "AgentPage",
    "AgentView",
    "AllVerdict",
    "Assignment",
    "BudgetsLoaded",
    "BudgetsSaved",
    "BusyError",
    "CallLimit",
    "Conduct",
    "DecisionsStatus",
    "EngineStatus",
    "Event",
    "FileError",
    "FullError",
    "Gate",
    "Hold",
    "Key",
    "Lane",
    "LaneCounts",
    "LaneState",
    "LaneView",
    "Limiter",
    "ListedAgent",
    "LogLine",
    "LogThrottle",
    "ManualClock",
    "Offender",
    "Offenders",
    "Plan",
    "PolicyError",
    "Process",
    "Redis",
    "Request",
    "RequestError",
    "Reservation",
    "Settlement",
    "SharedLane",
    "Sharing",
    "Snapshot",
    "Stats",
    "TollgateError",
    "UnknownActions",
    "Verdict",
    "Violation",
]
