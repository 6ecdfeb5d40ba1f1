"""Paces `httpx2.Client` and `httpx2.AsyncClient`.

>>> import httpx2
>>> from tollgate_limiter.client.httpx2 import PacedTransport
>>> client = httpx2.Client(transport=PacedTransport())
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx2

from ._httpx import call_of, head
from .carry import HasPacer, carry, carry_async
from .pacers import Pacers


class PacedTransport(httpx2.BaseTransport):
    """Sends requests through another transport, each when its limits allow it.

    By default that is an `HTTPTransport`, and each server and credential has a pacer. A refused
    request is sent again, unless its body is a stream.
    """

    def __init__(
        self,
        inner: httpx2.BaseTransport | None = None,
        *,
        pacer: HasPacer | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._inner = httpx2.HTTPTransport() if inner is None else inner
        self._pacer = Pacers() if pacer is None else pacer
        self._sleep = sleep

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request, and again if it was refused."""
        call = call_of(self._pacer, request, httpx2)
        return carry(call, lambda: self._inner.handle_request(request), head, httpx2.Response.close, self._sleep)

    def close(self) -> None:
        """Closes the transport within."""
        self._inner.close()


class AsyncPacedTransport(httpx2.AsyncBaseTransport):
    """`PacedTransport` for `httpx2.AsyncClient`. With trio instead of asyncio, give it `sleep=trio.sleep`."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport | None = None,
        *,
        pacer: HasPacer | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._inner = httpx2.AsyncHTTPTransport() if inner is None else inner
        self._pacer = Pacers() if pacer is None else pacer
        self._sleep = sleep

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends a request, and again if it was refused."""
        call = call_of(self._pacer, request, httpx2)
        send = self._inner.handle_async_request
        return await carry_async(call, lambda: send(request), head, httpx2.Response.aclose, self._sleep)

    async def aclose(self) -> None:
        """Closes the transport within."""
        await self._inner.aclose()
