"""The limits in the headers of a response that may have some already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import AnyStr

_REMAINING = "x-ratelimit-remaining"


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
