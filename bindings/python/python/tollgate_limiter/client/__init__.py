"""A client that keeps to its limits: it paces itself before the first 429, and waits as long as it is asked to.

>>> import httpx
>>> from tollgate_limiter.client import Pacer
>>> from tollgate_limiter.client.httpx import PacedTransport
>>> client = httpx.Client(transport=PacedTransport(pacer=Pacer(max_wait=30)))

Pure Python, without dependencies. `client.httpx`, `client.httpx2`, `client.requests` and
`client.aiohttp` need the package that they pace.
"""

from .breaker import Breaker
from .carry import carry, carry_async
from .errors import CircuitOpen, RateLimited, TryLater
from .headers import Limits, Quota, read
from .pacer import Call, Pacer, deadline
from .pacers import Pacers
from .waits import GENTLE, Waits

__all__ = [
    "GENTLE",
    "Breaker",
    "Call",
    "CircuitOpen",
    "Limits",
    "Pacer",
    "Pacers",
    "Quota",
    "RateLimited",
    "TryLater",
    "Waits",
    "carry",
    "carry_async",
    "deadline",
    "read",
]
