"""The settings of a gate, for type checkers: every middleware takes them as keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from ._native import Key

Found = str | int | None
"""What a key's function finds: the agent's id, or ``None``."""

Keys = Key | Callable[[Any], Found] | Sequence[Key | Callable[[Any], Found]]
"""Where a request has its agent's id: the first key that finds one wins."""


class Settings(TypedDict, total=False):
    """What a gate does; each has a default."""

    key: Keys | None
    lane: str | None
    routes: Mapping[str, str] | None
    path_contains: Mapping[str, str] | None
    pass_others: bool
    cost: int | Callable[[Any], int] | None
    plan: Callable[[Any], str | None] | None
    count_violations: bool
    answer_head: bool
    trusted_proxies: Sequence[str]
    allow_networks: Sequence[str]
    allow_routes: Sequence[str]
    allow_prefixes: Sequence[str]
    profile: Literal["standard", "hub", "platform", "adr", "citizen"]
    headers: Literal["draft-10", "legacy", "off"] | None
    headers_only_when_low: bool
    wall_clock: float | None
