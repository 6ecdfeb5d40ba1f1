"""Each transport against a server on loopback; the clients sleep on a clock of their own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
from scripted import Scripted
from virtual import Time

import tollgate_limiter.client.aiohttp as paced_aiohttp
import tollgate_limiter.client.httpx as paced_httpx
import tollgate_limiter.client.httpx2 as paced_httpx2
import tollgate_limiter.client.requests as paced_requests
from tollgate_limiter.client import CircuitOpen, Pacer, Pacers, RateLimited, deadline

Sent = tuple[int, str]
Body = bytes | None
Send = Callable[[str, Body, bool], Sent]
"""Posts a body, in pieces if the last argument says so; without a body, gets."""


def pieces(body: bytes) -> Iterator[bytes]:
    yield body[:2]
    yield body[2:]


async def pieces_async(body: bytes) -> AsyncIterator[bytes]:
    for piece in pieces(body):
        yield piece


def with_httpx(package: Any, paced: Any, time: Time, pacer: Pacer) -> Send:
    def send(url: str, body: Body, in_pieces: bool) -> Sent:
        with package.Client(transport=paced.PacedTransport(pacer=pacer, sleep=time.sleep)) as client:
            content = pieces(body) if body and in_pieces else body
            response = client.request("POST" if body else "GET", url, content=content)
            return response.status_code, response.text

    return send


def with_async_httpx(package: Any, paced: Any, time: Time, pacer: Pacer) -> Send:
    async def send(url: str, body: Body, in_pieces: bool) -> Sent:
        transport = paced.AsyncPacedTransport(pacer=pacer, sleep=time.sleep_async)
        async with package.AsyncClient(transport=transport) as client:
            content = pieces_async(body) if body and in_pieces else body
            response = await client.request("POST" if body else "GET", url, content=content)
            return response.status_code, response.text

    return blocking(send)


def with_requests(time: Time, pacer: Pacer) -> Send:
    def send(url: str, body: Body, in_pieces: bool) -> Sent:
        with requests.Session() as session:
            session.mount("http://", paced_requests.PacedAdapter(pacer=pacer, sleep=time.sleep))
            data = pieces(body) if body and in_pieces else body
            response = session.request("POST" if body else "GET", url, data=data)
            return response.status_code, response.text

    return send


def with_aiohttp(time: Time, pacer: Pacer) -> Send:
    async def send(url: str, body: Body, in_pieces: bool) -> Sent:
        middleware = paced_aiohttp.paced(pacer=pacer, sleep=time.sleep_async)
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            data = pieces_async(body) if body and in_pieces else body
            async with session.request("POST" if body else "GET", url, data=data) as response:
                return response.status, await response.text()

    return blocking(send)


def blocking(send: Callable[[str, Body, bool], Awaitable[Sent]]) -> Send:
    async def wait(url: str, body: Body, in_pieces: bool) -> Sent:
        return await send(url, body, in_pieces)

    return lambda url, body, in_pieces: asyncio.run(wait(url, body, in_pieces))


TRANSPORTS: dict[str, Callable[[Time, Pacer], Send]] = {
    "httpx": lambda time, pacer: with_httpx(httpx, paced_httpx, time, pacer),
    "httpx, async": lambda time, pacer: with_async_httpx(httpx, paced_httpx, time, pacer),
    "httpx2": lambda time, pacer: with_httpx(httpx2, paced_httpx2, time, pacer),
    "httpx2, async": lambda time, pacer: with_async_httpx(httpx2, paced_httpx2, time, pacer),
    "requests": with_requests,
    "aiohttp": with_aiohttp,
}


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Callable[[Time, Pacer], Send]:
    return TRANSPORTS[request.param]


def test_a_refused_post_is_sent_again_with_its_body(transport: Callable[[Time, Pacer], Send]) -> None:
    time = Time()
    send = transport(time, time.pacer())
    with Scripted().then(429, "no", Retry_After="2").then(429, "no", Retry_After="3").then(200, "yes") as server:
        assert send(server.url + "/a", b"body", False) == (200, "yes")
    assert time.slept == [2, 3]
    assert [(asked.method, asked.path, asked.body) for asked in server.asked] == [("POST", "/a", b"body")] * 3


def test_a_body_in_pieces_is_sent_once(transport: Callable[[Time, Pacer], Send]) -> None:
    time = Time()
    send = transport(time, time.pacer())
    with Scripted().then(429, "no", Retry_After="2") as server:
        assert send(server.url, b"body", True) == (429, "no")
        assert time.slept == []
        assert send(server.url, None, False) == (200, "{}")
    assert time.slept == [2], "the next request waits for what the first has learned"
    assert [asked.body for asked in server.asked] == [b"body", b""]


def test_it_waits_for_the_tokens_that_headers_announce(transport: Callable[[Time, Pacer], Send]) -> None:
    time = Time()
    send = transport(time, time.pacer())
    with Scripted() as server:
        for left in (1, 0):
            server.then(200, RateLimit=f'"x";r={left};t=10', RateLimit_Policy='"x";q=2;w=20')
        for _ in range(3):
            assert send(server.url, None, False)[0] == 200
    assert sum(time.slept) == pytest.approx(10, rel=0.01)


def test_a_day_is_not_slept_through(transport: Callable[[Time, Pacer], Send]) -> None:
    time = Time()
    send = transport(time, time.pacer())
    with Scripted().then(429, Retry_After="86400") as server, pytest.raises(RateLimited) as raised:
        send(server.url, None, False)
    assert (raised.value.retry_after, time.slept) == (86400, [])


def test_a_deadline_ends_the_wait_before_it_begins(transport: Callable[[Time, Pacer], Send]) -> None:
    time = Time()
    send = transport(time, time.pacer())
    with Scripted().then(429, Retry_After="10") as server:
        with deadline(9, time.clock), pytest.raises(RateLimited):
            send(server.url, None, False)
        assert time.slept == []
        assert send(server.url, None, False)[0] == 200
    assert time.slept == [10]


def test_a_server_that_fails_gets_a_pause(transport: Callable[[Time, Pacer], Send]) -> None:
    time = Time()
    pacer = time.pacer()
    send = transport(time, pacer)
    with Scripted() as server:
        for status in (500, 0, 502, 0, 503):
            server.then(status)
            try:
                assert send(server.url, b"body", False)[0] == status
            except Exception as error:
                assert status == 0 and not isinstance(error, CircuitOpen)
        with pytest.raises(CircuitOpen):
            send(server.url, None, False)
        assert len(server.asked) == 5
        time.now += 60
        assert send(server.url, None, False)[0] == 200
    assert pacer.is_idle


def test_each_credential_has_a_pacer() -> None:
    time = Time()
    pacers = Pacers(time.pacer, pacers_max=2)
    first = pacers.of("https://a", {"authorization": "Bearer 1"})
    assert pacers.of("https://a", {"authorization": "Bearer 1", "accept": "x"}) is first
    assert pacers.of("https://a", {"authorization": "Bearer 2"}) is not first
    with first.call() as call:
        assert call.delay() == 0
        for name in "bcdef":
            pacers.of(f"https://{name}", {})
        assert pacers.of("https://a", {"authorization": "Bearer 1"}) is first, "it is in use"
    for name in "bcdef":
        pacers.of(f"https://{name}", {})
    assert pacers.of("https://a", {"authorization": "Bearer 1"}) is not first


def test_a_transport_for_the_other_httpx_says_so() -> None:
    transport: Any = paced_httpx2.PacedTransport()
    with httpx.Client(transport=transport) as client, pytest.raises(TypeError) as raised:
        client.get("http://127.0.0.1:1/")
    assert str(raised.value).endswith("the client is of httpx: use tollgate_limiter.client.httpx")
