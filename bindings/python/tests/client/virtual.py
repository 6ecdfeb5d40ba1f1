"""Time that tests move: for threads' clients a clock that sleeping advances, for asyncio a loop on such a clock."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from tollgate_limiter.client import Pacer

START = 1_800_000_000.0
Result = TypeVar("Result")


class Time:
    """A clock, and a sleep that advances it and remembers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def pacer(self, **options: Any) -> Pacer:
        """A pacer on this clock, without jitter."""
        return Pacer(clock=self.clock, unix_clock=lambda: START + self.now, uniform=lambda: 0.0, **options)


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the clock to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        assert ready or timeout is not None, "every task waits for another"
        return ready


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine on a loop whose time passes only while all tasks sleep."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(asyncio.wait_for(main, 1e6))
    finally:
        loop.close()


def pacer(**options: Any) -> Pacer:
    """A pacer on the running loop's clock."""
    time = asyncio.get_running_loop().time
    return Pacer(clock=time, unix_clock=lambda: START + time(), **options)
