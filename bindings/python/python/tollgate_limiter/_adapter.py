"""What the middlewares share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, AnyStr

from ._native import Gate, Limiter

if TYPE_CHECKING:
    from ._settings import Settings

_REMAINING = "x-ratelimit-remaining"


def gate_of(limiter: Limiter | None, gate: Gate | None, settings: Settings) -> Gate:
    """The gate that a middleware is given, or one over the limiter."""
    if limiter is not None and gate is None:
        return Gate(limiter, **settings)
    if limiter is not None or gate is None:
        raise TypeError("the middleware needs a limiter and settings, or a gate")
    if settings:
        raise TypeError(f"the gate has its settings already: {', '.join(settings)}")
    return gate


def with_limits(
    headers: Iterable[tuple[AnyStr, AnyStr]], limits: list[tuple[AnyStr, AnyStr]], is_single: bool
) -> list[tuple[AnyStr, AnyStr]]:
    """The headers with the limits.

    The fields of draft-10 are lists, so a second gate adds to those of the first. Those of ``legacy`` have room for one
    limit: the tighter one, or that of a refusal.
    """
    has = list(headers)
    if is_single and has:
        inner = {_text(name): value for name, value in has}
        if _REMAINING in inner:
            own = next(value for name, value in limits if _text(name) == _REMAINING)
            if "retry-after" in inner or int(inner[_REMAINING]) <= int(own):
                return has
            has = [(name, value) for name, value in has if not _text(name).startswith("x-ratelimit-")]
    return has + limits


def _text(name: str | bytes) -> str:
    return (name if isinstance(name, str) else name.decode("latin-1")).lower()
