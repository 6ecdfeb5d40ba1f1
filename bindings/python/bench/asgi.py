"""What the ASGI middleware adds to a request, beside slowapi's: `make python-bench-asgi`.

Apps are called in process, without a server: what is measured is the CPU time of one request through the app. Every row
is timed in every round, in turn, so that what else the machine does falls on all of them alike. A number is the median
over the rounds, and what a row adds is the median of the rounds' differences to the app without it.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from statistics import median
from typing import Any

from slowapi import Limiter as SlowLimiter
from slowapi.middleware import SlowAPIASGIMiddleware
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tollgate_limiter import Limiter
from tollgate_limiter.asgi import TollgateMiddleware

QUICK = "--quick" in sys.argv
ROUNDS, REQUESTS = (7, 100) if QUICK else (51, 300)

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]

HEADERS = [
    (b"host", b"api.example.org"),
    (b"user-agent", b"agent/1.0"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"authorization", b"Bearer 0123456789abcdef0123456789abcdef"),
    (b"content-type", b"application/json"),
    (b"x-request-id", b"7d0b6a6e-54ad-4b0e-9a0f-1d7f3c1e4a55"),
]


async def raw(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def starlette(middleware: Any = None, **settings: Any) -> Starlette:
    app = Starlette(routes=[Route("/agents/{id}", hello)])
    if middleware is not None:
        app.add_middleware(middleware, **settings)
    return app


class Nothing:
    """A middleware that does nothing."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


async def pass_on(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    return response


def limiter(limit: str) -> Limiter:
    return Limiter({"lanes": {"api": limit}}, agents=100_000)


def slow(headers: bool) -> App:
    app = starlette(SlowAPIASGIMiddleware)
    default_limits = ["1000000000/second"]
    app.state.limiter = SlowLimiter(get_remote_address, default_limits=default_limits, headers_enabled=headers)
    return app


OURS, THEIRS = "Starlette + tollgate", "Starlette + slowapi's ASGI middleware"
OFF = ", headers off"
PLENTY, NONE = "1000000000/second", "deny"
APPS: dict[str, tuple[App, str | None]] = {
    "raw ASGI app": (raw, None),
    "+ a middleware that does nothing": (Nothing(raw), "raw ASGI app"),
    "+ tollgate": (TollgateMiddleware(raw, limiter(PLENTY)), "raw ASGI app"),
    "+ tollgate, headers off": (TollgateMiddleware(raw, limiter(PLENTY), headers="off"), "raw ASGI app"),
    "+ tollgate, refused": (TollgateMiddleware(raw, limiter(NONE)), "raw ASGI app"),
    "Starlette": (starlette(), None),
    OURS: (starlette(TollgateMiddleware, limiter=limiter(PLENTY)), "Starlette"),
    OURS + OFF: (starlette(TollgateMiddleware, limiter=limiter(PLENTY), headers="off"), "Starlette"),
    "Starlette + tollgate, refused": (starlette(TollgateMiddleware, limiter=limiter(NONE)), "Starlette"),
    "Starlette + a BaseHTTPMiddleware that does nothing": (starlette(BaseHTTPMiddleware, dispatch=pass_on), "Starlette"),
    THEIRS: (slow(headers=True), "Starlette"),
    THEIRS + OFF: (slow(headers=False), "Starlette"),
}


async def send(message: Message) -> None: ...


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def request(app: App) -> None:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/agents/7",
        "raw_path": b"/agents/7",
        "query_string": b"",
        "root_path": "",
        "headers": HEADERS,
        "client": ("192.0.2.7", 4711),
        "server": ("127.0.0.1", 8000),
    }
    await app(scope, receive, send)


async def measure() -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in APPS}
    for _ in range(ROUNDS + 1):
        for name, (app, _) in APPS.items():
            start = time.thread_time_ns()
            for _ in range(REQUESTS):
                await request(app)
            times[name].append((time.thread_time_ns() - start) / REQUESTS / 1_000)
    # The first round warms up.
    return {name: one[1:] for name, one in times.items()}


def main() -> None:
    times = asyncio.run(measure())
    added: dict[str, list[float]] = {}
    version = sys.version.split()[0]
    print(f"Python {version}, medians of {ROUNDS} rounds of {REQUESTS} requests, CPU time:\n")
    print("| app | us a request | added |\n|---|---:|---:|")
    for name, (_, base) in APPS.items():
        if base is None:
            print(f"| {name} | {median(times[name]):.1f} | |")
            continue
        added[name] = [one - without for one, without in zip(times[name], times[base], strict=True)]
        print(f"| {name} | {median(times[name]):.1f} | {median(added[name]):.1f} |")
    print()
    bar(f"tollgate adds {median(added[OURS]):.1f} us to a request in Starlette; at most 6", median(added[OURS]) <= 6)
    for what, which in ((", both with headers", ""), (", both without", OFF)):
        ratio = median(slow / fast for slow, fast in zip(added[THEIRS + which], added[OURS + which], strict=True))
        bar(f"slowapi's ASGI middleware adds {ratio:.0f} times as much{what}; at least 15", ratio >= 15)


def bar(text: str, met: bool) -> None:
    print(f"- {text}: {'met' if met else 'missed'}")


main()
