"""Limits for any ASGI app: FastAPI, Starlette, Litestar, Quart.

    app.add_middleware(TollgateMiddleware, limiter=Limiter({"lanes": {"api": "100/minute"}}))

It decides from the head of a request, before a byte of the body is read. Every response carries the client's limits in
headers, and a request over its limit is answered 429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from ._adapter import gate_of, with_limits
from ._native import Connection, Gate, Limiter

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._settings import Settings

__all__ = ["TollgateMiddleware"]

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
_Headers = list[tuple[bytes, bytes]]


class TollgateMiddleware:
    """Limits the HTTP requests and the WebSockets of an app. Other scopes, ``lifespan`` among them, pass untouched.

    ``messages`` is the lane of the messages that arrive on a WebSocket: one over the limit becomes a ``rate_limited``
    frame, and the connection stays. ``connections`` is a held lane: each WebSocket holds a slot of it until it ends.
    The settings are those of ``Gate``; functions are called with the scope.
    """

    def __init__(
        self,
        app: _App,
        limiter: Limiter | None = None,
        *,
        gate: Gate | None = None,
        connections: str | None = None,
        messages: str | None = None,
        message_warnings: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        self.app = app
        self.gate = gate_of(limiter, gate, settings)
        self._connections = None if connections is None else self.gate.lanes(connections)
        self._messages = None if messages is None else self.gate.lanes(messages)
        self._message_warnings = message_warnings
        self._single = self.gate.headers == "legacy"

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "http":
            ruling = self.gate.asgi(scope)
            if ruling is None:
                await self.app(scope, receive, send)
            elif isinstance(ruling, list):
                await self.app(scope, receive, self._telling(send, "http.response.start", ruling))
            else:
                await _answer(send, "http.response", *ruling)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _telling(self, send: _Send, start: str, limits: _Headers) -> _Send:
        """``send``, with the limits on the message that starts the response."""

        # Not a coroutine: a stream pays one call for each chunk, and nothing else.
        def answer(message: _Message) -> Awaitable[None]:
            if message["type"] == start:
                has = message.get("headers", ())
                # A copy: an app may send the same message again.
                message = {**message, "headers": with_limits(has, limits, True) if self._single else [*has, *limits]}
            return send(message)

        return answer

    async def _websocket(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        ruling, connection = self.gate.connect(scope, connections=self._connections, messages=self._messages)
        if isinstance(ruling, tuple):
            await _refuse_websocket(scope, receive, send, ruling)
            return
        try:
            telling = send if ruling is None else self._telling(send, "websocket.accept", ruling)
            if connection is not None and self._messages is not None:
                receive = self._checking(connection, receive, send)
            await self.app(scope, receive, telling)
        finally:
            if connection is not None:
                connection.release()

    def _checking(self, connection: Connection, receive: _Receive, send: _Send) -> _Receive:
        """``receive``, without the messages that are over the limit."""

        async def checked() -> _Message:
            # Ends when the client sends a message within its limit, or leaves.
            while True:
                message = await receive()
                if message["type"] != "websocket.receive":
                    return message
                ruling = connection.message()
                if ruling is None:
                    return message
                delivered, frame = ruling
                if not delivered or self._message_warnings:
                    await send({"type": "websocket.send", "text": frame})
                if delivered:
                    return message

        return checked


async def _answer(send: _Send, kind: str, status: int, headers: _Headers, body: bytes) -> None:
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})


async def _refuse_websocket(
    scope: _Scope, receive: _Receive, send: _Send, ruling: tuple[int, _Headers, bytes]
) -> None:
    await receive()  # websocket.connect
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _answer(send, "websocket.http.response", *ruling)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": "rate limited"})
