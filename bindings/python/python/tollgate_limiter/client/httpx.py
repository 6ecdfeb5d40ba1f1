"""Paces `httpx.Client` and `httpx.AsyncClient`.

>>> import httpx
>>> from tollgate_limiter.client.httpx import PacedTransport
>>> client = httpx.Client(transport=PacedTransport())
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx

from ._httpx import call_of, head
from .carry import HasPacer, carry, carry_async
from .pacers import Pacers


class PacedTransport(httpx.BaseTransport):
    """Sends requests through another transport, each when its limits allow it.

    By default that is an `HTTPTransport`, and each server and credential has a pacer. A refused
    request is sent again, unless its body is a stream.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        pacer: HasPacer | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._inner = httpx.HTTPTransport() if inner is None else inner
        self._pacer = Pacers() if pacer is None else pacer
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and again if it was refused."""
        call = call_of(self._pacer, request, httpx)
        return carry(call, lambda: self._inner.handle_request(request), head, httpx.Response.close, self._sleep)

    def close(self) -> None:
        """Closes the transport within."""
        self._inner.close()


class AsyncPacedTransport(httpx.AsyncBaseTransport):
    """`PacedTransport` for `httpx.AsyncClient`. With trio instead of asyncio, give it `sleep=trio.sleep`."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport | None = None,
        *,
        pacer: HasPacer | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._inner = httpx.AsyncHTTPTransport() if inner is None else inner
        self._pacer = Pacers() if pacer is None else pacer
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and again if it was refused."""
        call = call_of(self._pacer, request, httpx)
        send = self._inner.handle_async_request
        return await carry_async(call, lambda: send(request), head, httpx.Response.aclose, self._sleep)

    async def aclose(self) -> None:
        """Closes the transport within."""
        await self._inner.aclose()
