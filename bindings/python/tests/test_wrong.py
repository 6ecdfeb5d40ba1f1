"""Every method with wrong types and values: an exception of Python, no crash, and nothing leaks."""

import inspect
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tollgate_limiter import Assignment, Gate, Key, Limiter, LogThrottle, ManualClock, Redis, Request, TollgateError

POLICY = {
    "lanes": {"http/api": "10/minute", "ws": "held 2", "llm": "budget 1000/day", "exact": "exact 3/minute"},
    "plans": {"pro": {"http/api": "20/minute"}},
}
# What a wrong argument may raise. A panic of the native module is none of them: it is no Exception at all.
EXPECTED = (TypeError, ValueError, TollgateError)


class Evil:
    """Raises whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __index__(self) -> int:
        raise ValueError("index")

    def __fspath__(self) -> str:
        raise ValueError("path")

    def __iter__(self) -> Iterator[Any]:
        raise ValueError("iterator")

    def __len__(self) -> int:
        raise ValueError("length")

    def __hash__(self) -> int:
        raise ValueError("hash")


class Text(str):
    """A str and a subclass."""


def one_then_error() -> Iterator[Any]:
    yield ("a", "http/api")
    raise ValueError("iterator")


def limiter() -> Limiter:
    return Limiter(POLICY, agents=100, reservations=16, clock=ManualClock(), observe=True, roster=200)


def values(of: Limiter) -> list[Any]:
    lane, other = of.lane("http/api"), limiter()
    recursive: list[Any] = []
    recursive.append(recursive)
    nested: dict[str, Any] = {}
    nested["a"] = nested
    return [
        *(None, True, False, -1, 0, 1, 2, 7, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, -(2**70), 10**400),
        *(0.0, -0.0, 0.5, -1.5, 1e300, float("nan"), float("inf"), 1j),
        *("", "a", "http/api", "ws", "llm", "exact", "pro", "default", "10/minute", "deny", "standard", "lanes = 1"),
        *("x" * 256, "x" * 257, "\ud800", "\0", "ä" * 200, Text("a"), b"", b"a", b"\xff" * 256, b"x" * 257),
        *(bytearray(b"a"), memoryview(b"a"), [], (), {}, set(), [[]], [("a", "ws")], [("a", lane, 2)], recursive),
        *([("a", "http/api")] * 20, {"lanes": {"a": "1/s"}}, {"lanes": 3}, {3: 4}, {"a": Evil()}, nested),
        *(object(), Evil(), Evil, int, len, lambda: 1, one_then_error(), range(3), ...),
        *(timedelta(0), timedelta(-1), timedelta.max, timedelta.min, timedelta(seconds=60), Path("none"), Path("\0")),
        *(of, lane, of.plan("pro"), other.lane("ws"), other.plan("pro"), lane.peek("a"), lane.check("a")),
        *(ManualClock(), Request("a", "ws"), Assignment(overrides={"ws": "held 3"}), {"a": Assignment("pro")}),
        Redis("redis://127.0.0.1:1", secret="x" * 16),
        *(Request(1, 2, plan=3), ValueError("a")),  # type: ignore[arg-type]
    ]


def connection(of: Limiter) -> Any:
    gate = Gate(of, lane="exact")
    scope = {"type": "websocket", "path": "/", "headers": [], "client": ("192.0.2.7", 1)}
    return gate.connect(scope, connections=gate.lanes("ws"), messages=gate.lanes("http/api"))[1]


# Each makes the object anew, since calls change it.
OBJECTS: dict[str, Callable[[Limiter], Any]] = {
    "Limiter": lambda of: of,
    "Lane": lambda of: of.lane("http/api"),
    "Lane of slots": lambda of: of.lane("ws"),
    "Plan": lambda of: of.plan("pro"),
    "ManualClock": lambda of: ManualClock(),
    "Verdict": lambda of: of.lane("http/api").check("a"),
    "LaneState": lambda of: of.lane("http/api").peek("a"),
    "AllVerdict": lambda of: of.check_all([("a", "llm")]),
    "Reservation": lambda of: of.lane("llm").reserve("a", 1, 60),
    "Hold": lambda of: of.lane("ws").hold("a"),
    "Request": lambda of: Request("a", "ws"),
    "Assignment": lambda of: Assignment("pro"),
    "Snapshot": lambda of: of.snapshot(),
    "AgentView": lambda of: of.agent("a"),
    "LogThrottle": lambda of: LogThrottle(),
    "Redis": lambda of: Redis("redis://127.0.0.1:1", secret="x" * 16),
    "Key": lambda of: Key.header("x-agent-id"),
    "Gate": lambda of: Gate(of, lane="http/api"),
    "Lanes": lambda of: Gate(of, lane="http/api").lanes("ws"),
    "Connection": connection,
}


def methods(of: Any) -> list[str]:
    special = {f"__{name}__" for name in ("enter", "exit", "aenter", "aexit", "eq", "lt", "bool", "repr", "hash")}
    return [name for name in dir(of) if not name.startswith("__") or name in special]


def named(method: Any) -> list[str]:
    """What can be passed by name, and a name that nothing has."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in inspect.signature(method).parameters.values() if one.kind in kinds] + ["other"]


@pytest.mark.parametrize("name", list(OBJECTS))
def test_a_method_with_wrong_arguments_raises_what_python_raises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Where methods that take a path leave files.
    chosen = random.Random(name)
    calls = raised = 0
    of = limiter()
    for round in range(40):
        of = limiter() if round % 8 == 0 else of
        pool, object_ = values(of), OBJECTS[name](of)
        for method in methods(object_):
            attribute = getattr(object_, method)
            if not callable(attribute):
                continue
            arguments = [chosen.choice(pool) for _ in range(chosen.choice((0, 1, 1, 2, 2, 3, 4)))]
            keywords = {chosen.choice(named(attribute)): chosen.choice(pool) for _ in range(chosen.choice((0, 0, 1, 2)))}
            calls += 1
            try:
                attribute(*arguments, **keywords)
            except EXPECTED:
                raised += 1
    assert calls >= 100 and raised > 0


def test_a_constructor_with_wrong_arguments_raises_what_python_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen, pool = random.Random(1), values(limiter())
    keywords: tuple[str, ...] = ("clock", "shared", "shared_mode", "on_full", "id_hash", "reservations_per_agent")
    keywords += ("observe", "roster", "redis")
    built = 0
    for _ in range(400):
        options = {chosen.choice(keywords): chosen.choice(pool) for _ in range(chosen.choice((0, 0, 1, 2)))}
        policy: Any = chosen.choice((POLICY, chosen.choice(pool)))
        agents: Any = chosen.choice((10, 10, 10, -1, 0, 1.5, "x"))
        try:
            Limiter(policy, agents=agents, **options)
            built += 1
        except (*EXPECTED, OSError):
            pass
        made: list[Callable[..., Any]] = [ManualClock, Request, Assignment, Redis, Limiter.join]
        for make in made:
            try:
                make(*[chosen.choice(pool) for _ in range(chosen.randrange(4))])
            except (*EXPECTED, OSError):
                pass
    assert built > 10


def test_no_object_of_an_answer_can_be_made_or_changed_by_hand() -> None:
    of = limiter()
    for name, make in OBJECTS.items():
        made = make(of)
        with pytest.raises((AttributeError, TypeError)):
            made.decision = "allow"
        if type(made) not in (Limiter, ManualClock, Request, Assignment, LogThrottle):
            with pytest.raises(TypeError):
                type(made)()
        with pytest.raises(TypeError):
            type("Sub", (type(made),), {})
        assert name and repr(made)


LEAKS = """
import gc, sys
from tollgate_limiter import *

policy = {"lanes": {"api": "10/minute", "ws": "held 2", "llm": "budget 1000/day"}, "plans": {"pro": {"api": "20/s"}}}
limiter = Limiter(policy, agents=1_000, clock=ManualClock(), observe=True, roster=2_000)
api, ws, llm, pro = limiter.lane("api"), limiter.lane("ws"), limiter.lane("llm"), limiter.plan("pro")

def wrong(call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except (TypeError, ValueError, OSError):
        return
    raise SystemExit(f"{call} was right")

def each():
    api.allow("a"), api.allow(b"a"), api.check("a"), api.denied("a"), api.check("a", cost=2, plan="pro", counted=True)
    api.check("a", plan=pro).retry_after, api.peek("a").full_in, api.refund("a"), api.limit_of("a"), api.name, repr(api)
    wrong(api.check, ""), wrong(api.check, 7), wrong(api.check, "a", -1), wrong(api.check, "a", plan="none")
    wrong(api.check, "\\ud800"), wrong(limiter.lane, "none"), wrong(Limiter, "none"), wrong(Limiter.join, "/dev/null/n")
    with ws.hold("a"), llm.reserve("a", 10, 60) as reservation:
        reservation.settle(3, so_far=True)
    llm.reset("a")
    limiter.check_many([("a", api), ("", api), Request("a", "ws", 9)]), limiter.check_all([("a", api), ("b", api)])
    limiter.assign("a", "pro"), limiter.set_override("b", "api", "7/s"), limiter.remove_overrides("b")
    limiter.assignments()
    limiter.snapshot(), limiter.agent("a"), limiter.agents(), limiter.top_offenders(), limiter.report(), limiter.stats()
    limiter.violations("a"), limiter.assignable(["a", "b"]), limiter.poll_event(), limiter.policy, limiter.lanes
    limiter.lane_for("http", "get"), limiter.unknown_actions(), repr(limiter.snapshot())
    Limiter({"lanes": {"api": "1/s"}}, agents=1).lane("api").allow("a")

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4_096

# What some hundred rounds leave behind.
def growth():
    gc.collect()
    blocks, bytes = sys.getallocatedblocks(), resident()
    for _ in range(300):
        each()
    gc.collect()
    return sys.getallocatedblocks() - blocks, resident() - bytes

# Caches fill up now and then, but what leaks does so in each window.
grown = [growth() for _ in range(8)]
blocks, bytes = (min(of) for of in zip(*grown))
# An object that leaks would be 300 blocks, and 200 bytes 60 kB.
assert blocks < 150 and bytes < 50_000, f"more objects of Python and more bytes: {grown}"
"""


def test_nothing_leaks() -> None:
    subprocess.run([sys.executable, "-c", LEAKS], check=True, timeout=300)
