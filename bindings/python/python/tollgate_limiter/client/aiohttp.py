"""Paces `aiohttp.ClientSession`, from aiohttp 3.12 on.

>>> import aiohttp
>>> from tollgate_limiter.client.aiohttp import paced
>>> async def main():
...     async with aiohttp.ClientSession(middlewares=[paced()]) as session:
...         ...
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import ClientHandlerType, ClientMiddlewareType, ClientRequest, ClientResponse
from aiohttp.payload import BytesPayload, StringPayload

from .carry import HasPacer, carry_async
from .pacers import Pacers


def paced(
    *, pacer: HasPacer | None = None, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> ClientMiddlewareType:
    """A middleware that sends each request when its limits allow it.

    A refused request is sent again, unless its body is a stream.
    """
    pacers = Pacers() if pacer is None else pacer

    async def middleware(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        url = request.url
        may_repeat = not request.body or isinstance(request.body, (bytes, BytesPayload, StringPayload))
        of_server = pacers.of(str(url.origin()), request.headers)
        call = of_server.call(request.method, route=f"{request.method} {url.raw_path}", may_repeat=may_repeat)
        return await carry_async(call, lambda: handler(request), _head, _discard, sleep)

    return middleware


def _head(response: ClientResponse) -> tuple[int, list[tuple[str, str]]]:
    return response.status, list(response.headers.items())


async def _discard(response: ClientResponse) -> None:
    response.close()
