"""The requests of bindings/gate/conformance, and the responses that every adapter gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import django
import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from tollgate_limiter import Gate, Key, Limiter, ManualClock
from tollgate_limiter.asgi import TollgateMiddleware as AsgiMiddleware
from tollgate_limiter.django import TollgateMiddleware as DjangoMiddleware
from tollgate_limiter.wsgi import TollgateMiddleware as WsgiMiddleware

FOLDER = Path(__file__).parents[2] / "gate" / "conformance"
CASES = [case for file in sorted(FOLDER.glob("*.json")) for case in json.loads(file.read_text())["cases"]]
WALL_CLOCK = 1_000.25

Read = Callable[[Any, str], str | None]
"""Reads a header of what an adapter calls functions with."""

Send = Callable[[dict[str, Any]], tuple[int, list[tuple[str, str]], bytes]]
"""Sends a step's request."""


def key(given: dict[str, Any], read: Read) -> Key:
    (kind, value), *_ = given.items()
    made = {
        "header": lambda: Key.header(value),
        "secret_header": lambda: Key.secret_header(value),
        "address": lambda: Key.address(ipv6_prefix=value),
        "shared": lambda: Key.shared(value),
        "function": lambda: Key.function(value, lambda request: read(request, given["reads"])),
    }[kind]()
    return made.prefix(given["prefix"]) if "prefix" in given else made


def gate(limiter: Limiter, given: dict[str, Any], read: Read) -> Gate:
    keywords: dict[str, Any] = {}
    for name, value in given.items():
        if name == "keys":
            keywords["key"] = [key(one, read) for one in value]
        elif name in ("routes", "path_contains"):
            keywords[name] = dict(value)
        elif name == "cost":
            keywords["cost"] = lambda request, name=value["reads"]: int(read(request, name) or 1)
        elif name == "plans":
            (one,) = value
            keywords["plan"] = lambda request, one=one: one["plan"] if read(request, one["reads"]) else None
        else:
            keywords[{"style": "headers"}.get(name, name)] = value
    return Gate(limiter, wall_clock=WALL_CLOCK, **keywords)


def parts(step: dict[str, Any]) -> tuple[str, str, str, list[list[str]]]:
    method, target = step["request"].split(" ", 1)
    path, _, query = target.partition("?")
    return method, path, query, step.get("headers", [])


def asgi(made: Gate) -> Send:
    async def hello(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    app = AsgiMiddleware(hello, gate=made)

    def send(step: dict[str, Any]) -> tuple[int, list[tuple[str, str]], bytes]:
        method, path, query, headers = parts(step)
        sent: list[Any] = []
        scope = {
            "type": "http",
            "method": method,
            "path": unquote_to_bytes(path).decode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers],
            "client": (step["peer"], 4711) if "peer" in step else None,
        }

        async def keep(message: Any) -> None:
            sent.append(message)

        asyncio.run(app(scope, None, keep))  # type: ignore[arg-type]
        start, body = sent
        return start["status"], [(name.decode(), value.decode()) for name, value in start["headers"]], body["body"]

    return send


def asgi_header(scope: Any, wanted: str) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == wanted.encode()), None)


def joined(headers: list[list[str]]) -> dict[str, str]:
    """As WSGI servers and Django have them."""
    found: dict[str, str] = {}
    for name, value in headers:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def variable(name: str) -> str:
    name = name.upper().replace("-", "_")
    return name if name == "CONTENT_TYPE" else f"HTTP_{name}"


def wsgi(made: Gate) -> Send:
    def hello(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"hello"]

    app = WsgiMiddleware(hello, gate=made)

    def send(step: dict[str, Any]) -> tuple[int, list[tuple[str, str]], bytes]:
        method, path, query, headers = parts(step)
        environ = {"REQUEST_METHOD": method, "PATH_INFO": unquote_to_bytes(path).decode("latin-1"), "QUERY_STRING": query}
        environ |= {variable(name): value for name, value in joined(headers).items()}
        if "peer" in step:
            environ["REMOTE_ADDR"] = step["peer"]
        started: list[Any] = []
        body = b"".join(app(environ, lambda *given: started.append(given)))  # type: ignore[arg-type]
        ((status, sent),) = started
        return int(status.split()[0]), sent, body

    return send


def wsgi_header(environ: dict[str, str], name: str) -> str | None:
    return environ.get(variable(name))


def django_response(response: HttpResponse) -> tuple[int, list[tuple[str, str]], bytes]:
    pairs = [(name.lower(), value) for name, value in response.items()]
    if response.content == b"hello":
        pairs.remove(("content-type", "text/html; charset=utf-8"))
    return response.status_code, pairs, response.content


def django_request(factory: Any, step: dict[str, Any]) -> HttpRequest:
    method, path, query, headers = parts(step)
    request: HttpRequest = factory.generic(method, path, QUERY_STRING=query)
    request.META.pop("REMOTE_ADDR", None)
    request.META.pop("CONTENT_TYPE", None)
    request.META |= {variable(name): value for name, value in joined(headers).items()}
    if "peer" in step:
        request.META["REMOTE_ADDR"] = step["peer"]
    return request


@pytest.fixture(scope="module", autouse=True)
def project() -> None:
    configured()


def configured() -> tuple[Any, Any]:
    """Django's settings, and what a view returns."""
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="for tests")
        django.setup()
    return settings, HttpResponse


def django_sync(made: Gate) -> Send:
    settings.TOLLGATE = {"gate": made}
    app = DjangoMiddleware(lambda request: HttpResponse("hello"))
    return lambda step: django_response(app(django_request(RequestFactory(), step)))


def django_async(made: Gate) -> Send:
    settings.TOLLGATE = {"gate": made}

    async def hello(request: HttpRequest) -> HttpResponse:
        return HttpResponse("hello")

    app: Callable[[HttpRequest], Awaitable[HttpResponse]] = DjangoMiddleware(hello)

    async def answer(step: dict[str, Any]) -> HttpResponse:
        return await app(django_request(AsyncRequestFactory(), step))

    return lambda step: django_response(asyncio.run(answer(step)))


def django_header(request: HttpRequest, name: str) -> str | None:
    found: str | None = request.headers.get(name)
    return found


ADAPTERS: list[tuple[Callable[[Gate], Send], Read]] = [
    (asgi, asgi_header),
    (wsgi, wsgi_header),
    (django_sync, django_header),
    (django_async, django_header),
]


def steps(case: dict[str, Any], adapter: Callable[[Gate], Send], read: Read) -> Iterator[tuple[Any, Any]]:
    clock = ManualClock()
    limiter = Limiter("\n".join(case["policy"]), agents=100, clock=clock)
    send = adapter(gate(limiter, case["gate"], read))
    for step in case["steps"]:
        clock.advance(step.get("advance_ms", 0) / 1000)
        for _ in range(step.get("times", 1) - 1):
            assert send(step)[2] == b"hello"
        status, headers, body = send(step)
        shown: dict[str, Any] = {}
        for name, value in headers:
            if name.lower() != "content-length":
                assert name not in shown, "the cases have no header twice"
                shown[name] = value
        yield {"status": status, "headers": shown, "body": body.decode()}, step["response"]


@pytest.mark.parametrize(("adapter", "read"), ADAPTERS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
def test_an_adapter_answers_as_every_adapter_does(
    case: dict[str, Any], adapter: Callable[[Gate], Send], read: Read
) -> None:
    for answer, expected in steps(case, adapter, read):
        assert answer == expected


def test_the_cases_were_found() -> None:
    assert len(CASES) >= 30
