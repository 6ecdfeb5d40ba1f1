"""An exact rate limiter for services that many agents call.

>>> from tollgate_limiter import Limiter
>>> limiter = Limiter(policy={"lanes": {"http/heavy": "10/minute burst 5"}}, agents=100_000)
>>> heavy = limiter.lane("http/heavy")
>>> heavy.allow("agent-7")
True
>>> heavy.check("agent-7").remaining
3
"""

from ._errors import BusyError, FileError, FullError, PolicyError, RequestError, TollgateError
from ._native import (
    Lane,
    LaneState,
    Limiter,
    ManualClock,
    Plan,
    Verdict,
)

__all__ = [
    "BusyError",
    "FileError",
    "FullError",
    "Lane",
    "LaneState",
    "Limiter",
    "ManualClock",
    "Plan",
    "PolicyError",
    "RequestError",
    "TollgateError",
    "Verdict",
]
