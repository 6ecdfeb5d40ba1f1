"""Limits for the routes of FastAPI and Starlette.

    from tollgate_limiter.fastapi import limit

    @app.get("/agents/{id}", dependencies=[Depends(limit("100/minute;1000/hour"))])
    def agent(id: str): ...

A limit is a dependency, of a route, a router or an app, and a decorator too: ``@limit("5/minute")`` below the route's
own. Each is one bucket for every agent, whatever the URL: routes that use the same object share it.
"""

# No `from __future__ import annotations`: FastAPI reads those of a dependency.
import functools
import inspect
import json
import os
import re
import threading
from collections.abc import Callable, Generator, Set
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from fastapi import Depends, HTTPException, WebSocketException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from ._errors import PolicyError
from ._native import Gate, Lanes, Limiter

if TYPE_CHECKING:
    from ._settings import Keys

__all__ = ["Limit", "Limits", "limit", "limits"]

LANES_MAX = 62
"""The most lanes that a limiter has; each part of ``"100/minute;1000/hour"`` is one."""

PARTS_MAX = 16
"""The most parts that are charged together."""

_NAME_MAX = 56
_NOBODY = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.1", 0)}
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_Cost = int | Callable[[HTTPConnection], int]
_Told = list[tuple[bytes, bytes]]


class _Done:
    """What a dependency returns: it can be awaited, and its value is ready."""

    __slots__ = ("told",)

    def __init__(self, told: _Told | None) -> None:
        self.told = told

    def __await__(self) -> Generator[None, None, _Told | None]:
        return self.told
        yield  # A generator, which ends at once.


async def _dependency(connection: HTTPConnection, response: Response) -> None:
    """What FastAPI takes a limit for: its signature, and that it need not run in a thread."""


class Limit:
    """A limit for each agent, made by ``Limits.limit``: a dependency and a decorator."""

    def __init__(
        self, limits: "Limits", group: "_Group", lanes: list[str], key: "Keys | None", cost: _Cost | None
    ) -> None:
        self._limits, self._group, self._lanes, self._key, self._cost = limits, group, lanes, key, cost
        self._gate: tuple[Gate, Lanes] | None = None
        self.__wrapped__ = _dependency

    @property
    def limiter(self) -> Limiter:
        """The limiter that has its lanes, built now if it was not yet."""
        return self._limits._limiter(self._group)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The names of its lanes."""
        return tuple(self._lanes)

    def __call__(self, endpoint: Any = None, /, *, connection: Any = None, response: Any = None) -> Any:
        if connection is None:
            return self._decorate(endpoint)
        # Decided here and now, whether the caller awaits the result or runs this in a thread.
        told = self.check(connection)
        for name, value in told or ():
            response.headers.append(name.decode(), value.decode())
        return _Done(told)

    def check(self, connection: HTTPConnection) -> _Told | None:
        """Checks a request: the headers for its response. Raises ``HTTPException`` if it is over the limit."""
        gate, lanes = self._gate or self._open()
        ruling = gate.asgi(connection.scope, connection, lanes=lanes)
        if isinstance(ruling, tuple):
            raise _refusal(connection, *ruling)
        return ruling

    def _open(self) -> tuple[Gate, Lanes]:
        gate = self._limits._gate(self._group, self._key, self._cost)
        self._gate = gate, gate.lanes(*self._lanes)
        return self._gate

    def _decorate(self, endpoint: _Endpoint) -> _Endpoint:
        if not callable(endpoint):
            raise TypeError(f"a limit decorates a function, not {type(endpoint).__name__}")
        signature = _signature(endpoint)
        name = f"tollgate_limit_{len(signature.parameters)}"
        parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Depends(self), annotation=Any)

        def begin(args: tuple[Any, ...], given: dict[str, Any]) -> _Told | None:
            if name in given:  # FastAPI has checked it.
                told = given.pop(name)
                return told.told if isinstance(told, _Done) else cast("_Told | None", told)
            # Starlette passes the request. Whoever calls the function without one is no client.
            connection = next((arg for arg in args if isinstance(arg, HTTPConnection)), None)
            return None if connection is None else self.check(connection)

        def end(result: Any, told: _Told | None) -> Any:
            # FastAPI adds a dependency's headers to what it makes a response of, and to no ready one.
            if told and isinstance(result, Response):
                result.raw_headers.extend(told)
            return result

        # An object that is called is as its method is.
        if inspect.iscoroutinefunction(endpoint) or inspect.iscoroutinefunction(getattr(endpoint, "__call__")):

            @functools.wraps(endpoint)
            async def limited(*args: Any, **given: Any) -> Any:
                told = begin(args, given)
                return end(await endpoint(*args, **given), told)

        else:

            @functools.wraps(endpoint)
            def limited(*args: Any, **given: Any) -> Any:
                told = begin(args, given)
                return end(endpoint(*args, **given), told)

        parameters = list(signature.parameters.values())
        at = len(parameters) - any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
        parameters.insert(at, parameter)
        limited.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return cast(_Endpoint, limited)

    def __repr__(self) -> str:
        return f"<Limit on {', '.join(self._lanes)}>"


class _Group:
    """Limits that one limiter has: up to 62 lanes, declared before it is built."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lanes: dict[str, str] = {}
        self.limiter: Limiter | None = None

    def lanes_of(self, parts: list[str], name: str | None) -> dict[str, str]:
        """The lanes that a limit of these parts would add, under names that are free."""
        added: dict[str, str] = {}
        for part in parts:
            wanted = part if name is None else name if len(parts) == 1 else f"{name}/{part}"
            added[_lane_name(wanted, self.lanes.keys() | added.keys())] = part
        return added

    def has_room_for(self, added: dict[str, str]) -> bool:
        if self.limiter is not None or len(self.lanes) + len(added) > LANES_MAX:
            return False
        try:
            # Windows need more room in a record than buckets do.
            Limiter({"lanes": self.lanes | added}, agents=1)
        except PolicyError:
            return False
        return True


class Limits:
    """The limits of an app.

    They are declared where routes are, at import, and their limiter is built at the first request: all its lanes are
    known then. A limiter has 62 lanes, so the next limit begins another limiter, with memory of its own; so does one
    that is declared after the first request.

    ``shared`` names the slab that all workers use; by default the environment variable ``TOLLGATE_SHARED`` does. Then a
    limit may not be declared after the first request, since the workers have to agree on the lanes; further limiters
    add ``.2``, ``.3`` to the name. The key is the client's address unless another is given; functions get the
    ``HTTPConnection``. Other keywords are those of ``Limiter``.
    """

    def __init__(
        self,
        *,
        key: "Keys | None" = None,
        plan: Callable[[Any], str | None] | None = None,
        plans: dict[str, dict[str, str]] | None = None,
        agents: int = 100_000,
        shared: str | None = None,
        trusted_proxies: list[str] | None = None,
        profile: Literal["standard", "hub", "platform", "adr", "citizen"] = "standard",
        headers: Literal["draft-10", "legacy", "off"] | None = None,
        **limiter: Any,
    ) -> None:
        self._key = key
        self._settings: dict[str, Any] = {"plan": plan, "profile": profile, "headers": headers, "pass_others": True}
        self._settings["trusted_proxies"] = trusted_proxies or []
        self._plans = plans or {}
        self._shared = shared or os.environ.get("TOLLGATE_SHARED")
        self._options = {"agents": agents, **limiter}
        # An earlier group belongs to its limits alone, and goes with them.
        self._group = _Group(1)
        self._declared: set[str] = set()
        self._lock = threading.RLock()
        # Raises here what is wrong with the settings, and not at the first request.
        Gate(Limiter({"lanes": {"any": "1/s"}}, agents=1), key=key, **self._settings)

    def limit(
        self, text: str, /, *, name: str | None = None, key: "Keys | None" = None, cost: _Cost | None = None
    ) -> Limit:
        """Declares a limit: ``"5/minute"``, or ``"100/minute;1000/hour"`` for both, of which a request is charged to
        all or to none. ``name`` is what its lane is called in headers, plans and metrics."""
        parts = [part.strip() for part in re.split("[;,|]", text)]
        if len(parts) > PARTS_MAX:
            raise ValueError(f"{text!r} has {len(parts)} parts; at most {PARTS_MAX} are charged together")
        with self._lock:
            if self._group.limiter is not None and self._shared:
                raise RuntimeError(
                    f"the limit {text!r} comes too late: declare the limits that workers share before the first request"
                )
            added = self._group.lanes_of(parts, name)
            # A mistake is raised here, where the limit stands, and not at the first request.
            tried = Limiter({"lanes": added}, agents=1)
            Gate(tried, key=key, cost=cost, pass_others=True)
            gate = Gate(tried, pass_others=True)
            gate.asgi(_NOBODY, lanes=gate.lanes(*added))
            if not self._group.has_room_for(added):
                self._group = _Group(self._group.number + 1)
                added = self._group.lanes_of(parts, name)
            self._group.lanes.update(added)
            self._declared.update(added)
            return Limit(self, self._group, list(added), key, cost)

    @property
    def limiter(self) -> Limiter:
        """The limiter of the limits that were declared last, built now if it was not yet."""
        return self._limiter(self._group)

    def _limiter(self, group: _Group) -> Limiter:
        with self._lock:
            if group.limiter is None:
                plans = {plan: self._of_group(plan, lanes, group) for plan, lanes in self._plans.items()}
                shared = self._shared and (self._shared if group.number == 1 else f"{self._shared}.{group.number}")
                group.limiter = Limiter({"lanes": group.lanes, "plans": plans}, shared=shared, **self._options)
            return group.limiter

    def _of_group(self, plan: str, lanes: dict[str, str], group: _Group) -> dict[str, str]:
        unknown = lanes.keys() - self._declared
        if unknown:
            known = ", ".join(sorted(self._declared))
            raise ValueError(f"the plan {plan!r} names {', '.join(sorted(unknown))}; the limits are {known}")
        return {lane: limit for lane, limit in lanes.items() if lane in group.lanes}

    def _gate(self, group: _Group, key: "Keys | None", cost: _Cost | None) -> Gate:
        return Gate(self._limiter(group), key=key if key is not None else self._key, cost=cost, **self._settings)


def _signature(endpoint: Callable[..., Any]) -> inspect.Signature:
    """The endpoint's, with annotations that are text evaluated: older FastAPI looks for their names where this module
    has its own."""
    try:
        return inspect.signature(endpoint, eval_str=True)
    except NameError:  # A name that only type checkers know. FastAPI says so itself, if it needs it.
        return inspect.signature(endpoint)


def _lane_name(wanted: str, taken: Set[str]) -> str:
    """A name for a lane: a slash would divide it into channel and tier, and spaces may not be."""
    name = re.sub(r"\s+", "-", re.sub(r"\s*/\s*(?=[\d\s]*[a-z]+(\s|$))", "-per-", wanted.strip()))[:_NAME_MAX]
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, LANES_MAX + 2))
    return next((one for one in names if one not in taken), name)


def _refusal(connection: HTTPConnection, status: int, headers: _Told, body: bytes) -> Exception:
    is_websocket = connection.scope["type"] == "websocket"
    if is_websocket and "websocket.http.response" not in (connection.scope.get("extensions") or {}):
        return WebSocketException(code=1008, reason="rate limited")
    said = json.loads(body) if body else {}
    detail = said.get("detail", said) if isinstance(said, dict) else said
    told = {name.decode(): value.decode() for name, value in headers if name not in (b"content-type", b"content-length")}
    return HTTPException(status, detail=detail, headers=told)


limits = Limits()
"""The limits that ``limit`` declares. To configure them, make ``Limits(...)`` and use its ``limit``."""

limit = limits.limit
