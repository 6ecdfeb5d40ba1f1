"""Carries a request through its `Call`, for transports: once for threads, once for asyncio."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from .pacer import Call, Pacer

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
Response = TypeVar("Response")


class HasPacer(Protocol):
    """A `Pacer`, or `Pacers`."""

    def of(self, origin: str, headers: Mapping[str, str], /) -> Pacer:
        """The pacer of requests to this server with these header fields."""


def carry(
    call: Call,
    send: Callable[[], Response],
    read: Callable[[Response], tuple[int, Headers]],
    discard: Callable[[Response], object],
    sleep: Callable[[float], object] = time.sleep,
) -> Response:
    """Waits, sends, and sends again what was refused.

    `read` takes status and header fields out of a response; `discard` ends one that is not handed on.
    """
    with call:
        # Ends: `answered` is true for `retries` refusals at most, and each wait for `max_wait` at most.
        while True:
            while (delay := call.delay()) > 0:
                sleep(delay)
            response = send()
            if not call.answered(*read(response)):
                return response
            discard(response)


async def carry_async(
    call: Call,
    send: Callable[[], Awaitable[Response]],
    read: Callable[[Response], tuple[int, Headers]],
    discard: Callable[[Response], Awaitable[object]],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Response:
    """The same for coroutines. One that is cancelled leaves the queue."""
    with call:
        # Ends as `carry` does.
        while True:
            while (delay := call.delay()) > 0:
                await sleep(delay)
            response = await send()
            if not call.answered(*read(response)):
                return response
            await discard(response)
