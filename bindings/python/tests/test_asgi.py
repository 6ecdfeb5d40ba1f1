"""The ASGI middleware without a server: what real servers do rarely."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tollgate_limiter import Gate, Key, Limiter, ManualClock
from tollgate_limiter.asgi import TollgateMiddleware
from tollgate_limiter.fastapi import Limits

AGENT = (b"x-agent-id", b"agent-7")


def limiter(**lanes: str) -> Limiter:
    return Limiter({"lanes": {name.replace("_", "/"): limit for name, limit in lanes.items()}}, agents=100, clock=ManualClock())


def scope(kind: str = "http", path: str = "/", **more: Any) -> dict[str, Any]:
    return {"type": kind, "method": "GET", "path": path, "headers": [AGENT], "client": ("192.0.2.7", 1), **more}


def call(app: Any, given: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
    """Calls an app, and gives what it sent."""
    sent: list[Any] = []
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(given, receive, send))
    return sent


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-inner", b"1")]})
    await send({"type": "http.response.body", "body": b"hel", "more_body": True})
    await send({"type": "http.response.body", "body": b"lo"})


async def chat(scope: Any, receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


CONNECT, LEAVE = {"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}


def say(text: str) -> dict[str, Any]:
    return {"type": "websocket.receive", "text": text}


def test_lifespan_and_unknown_scopes_pass_untouched() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, send))

    given = {"type": "lifespan"}
    middleware = TollgateMiddleware(app, limiter(api="1/minute"))
    call(middleware, given)
    assert seen[0][0] is given and seen[0][1].__qualname__.endswith("call.<locals>.send")


def test_headers_are_on_the_start_alone() -> None:
    start, first, last = call(TollgateMiddleware(hello, limiter(api="1/minute"), key=Key.header("x-agent-id")), scope())
    assert start["headers"] == [
        (b"x-inner", b"1"),
        (b"ratelimit-policy", b'"api";q=1;w=60'),
        (b"ratelimit", b'"api";r=0;t=60'),
    ]
    assert (first, last) == (
        {"type": "http.response.body", "body": b"hel", "more_body": True},
        {"type": "http.response.body", "body": b"lo"},
    )


def test_an_app_that_sends_the_same_message_again_collects_no_headers() -> None:
    start: dict[str, Any] = {"type": "http.response.start", "status": 204, "headers": []}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start)

    middleware = TollgateMiddleware(app, limiter(api="9/minute"))
    assert [len(call(middleware, scope())[0]["headers"]) for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(("inner", "outer", "left"), [("5/minute", "3/minute", b"2"), ("3/minute", "5/minute", b"2")])
def test_of_two_gates_the_tighter_limit_is_told_where_there_is_room_for_one(inner: str, outer: str, left: bytes) -> None:
    app = TollgateMiddleware(hello, limiter(inner=inner), headers="legacy")
    start = call(TollgateMiddleware(app, limiter(outer=outer), headers="legacy"), scope())[0]
    told = [value for name, value in start["headers"] if name == b"x-ratelimit-remaining"]
    assert told == [left] and (b"x-inner", b"1") in start["headers"]


def test_a_server_without_denial_responses_closes_with_1008() -> None:
    app = TollgateMiddleware(chat, limiter(api="1/minute"))
    assert call(app, scope("websocket"), CONNECT, LEAVE)[0]["type"] == "websocket.accept"
    assert call(app, scope("websocket"), CONNECT) == [{"type": "websocket.close", "code": 1008, "reason": "rate limited"}]


def test_messages_are_limited_where_connections_are_not() -> None:
    app = TollgateMiddleware(chat, limiter(ws_messages="10/minute burst 2"), pass_others=True, messages="ws/messages")
    sent = call(app, scope("websocket"), CONNECT, say("a"), say("b"), say("c"), LEAVE)
    frame = '{"type":"rate_limited","retry_after_ms":6000,"tier":"messages"}'
    assert [message.get("text") for message in sent] == [None, "a", "b", frame]
    # Another connection of the same agent has no other bucket.
    assert call(app, scope("websocket"), CONNECT, say("d"), LEAVE)[1]["text"] == frame


def test_warnings_are_frames_too_if_wanted() -> None:
    app = TollgateMiddleware(
        chat, limiter(ws_messages="10/minute burst 1"), pass_others=True, messages="ws/messages", message_warnings=True
    )
    sent = call(app, scope("websocket"), CONNECT, say("a"), LEAVE)
    warning = '{"type":"rate_limit_warning","tier":"messages","remaining":0,"capacity":1}'
    assert [message.get("text") for message in sent] == [None, warning, "a"]


def test_a_refused_connection_takes_no_slot() -> None:
    held = limiter(api="1/minute", ws="held 1")
    app = TollgateMiddleware(chat, held, lane="api", connections="ws")
    assert call(app, scope("websocket"), CONNECT, LEAVE)[0]["type"] == "websocket.accept"
    for _ in range(3):
        assert call(app, scope("websocket"), CONNECT)[0]["type"] == "websocket.close"
    assert held.lane("ws").peek("ip:192.0.2.7").remaining == 1


def test_a_connection_without_a_slot_is_told_that_one_has_to_be_released() -> None:
    gate = Gate(limiter(ws="held 1", api="9/minute"), lane="api")
    opened = gate.connect(scope("websocket"), connections=gate.lanes("ws"))[1]
    refused = gate.connect(scope("websocket"), connections=gate.lanes("ws"))[0]
    assert isinstance(refused, tuple) and refused[0] == 429 and b"retry-after" not in dict(refused[1])
    assert b"ws has 0 of 1 slots left, too few for this request. One has to be released first." in refused[2]
    assert opened is not None
    opened.release()
    assert gate.connect(scope("websocket"), connections=gate.lanes("ws"))[1] is not None


def test_a_cancelled_connection_gives_its_slot_back() -> None:
    held = limiter(ws="held 1", api="100/minute")
    app = TollgateMiddleware(chat, held, lane="api", connections="ws")

    async def run() -> None:
        opened = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not opened.is_set():
                opened.set()
                return CONNECT
            await asyncio.Event().wait()
            return LEAVE

        async def send(message: Any) -> None: ...

        task = asyncio.create_task(app(scope("websocket"), receive, send))
        await opened.wait()
        assert held.lane("ws").peek("ip:192.0.2.7").remaining == 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert held.lane("ws").peek("ip:192.0.2.7").remaining == 1


@pytest.mark.parametrize(
    "path", ["/agents/7/run", "/agents/a b/run", "/agents/é/run", "/agents/%2e/run", "/agents/a?b/run", "/agents/{x}/run"]
)
def test_a_path_is_matched_as_routers_match_it_decoded(path: str) -> None:
    # Else `/%61gents/7/run`, which a server decodes, would be a way around the route's limit.
    gate = Gate(limiter(run="1/minute", api="9/minute"), lane="api", routes={"/agents/{id:str}/run": "run"})
    assert dict(gate.asgi(scope(path=path)) or [])[b"ratelimit-policy"] == b'"run";q=1;w=60'  # type: ignore[arg-type]


def test_templates_of_starlette_are_understood() -> None:
    routes = {"GET /files/{rest:path}": "files", "/café/{id:int}": "files"}
    gate = Gate(limiter(files="9/minute", api="9/minute"), lane="api", routes=routes)
    for path, lane in [("/files/a/b", b"files"), ("/café/7", b"files"), ("/files", b"api"), ("/cafe/7", b"api")]:
        told = dict(gate.asgi(scope(path=path)) or [])  # type: ignore[arg-type]
        assert told[b"ratelimit"].startswith(b'"' + lane + b'"'), path


def test_the_prefix_at_which_an_app_is_mounted_does_not_count() -> None:
    gate = Gate(limiter(run="9/minute", api="9/minute"), lane="api", routes={"/run": "run"})
    for path, lane in [("/v1/run", b"run"), ("/run", b"run"), ("/v1run", b"api"), ("/v1", b"api")]:
        told = dict(gate.asgi(scope(path=path, root_path="/v1")) or [])  # type: ignore[arg-type]
        assert told[b"ratelimit"].startswith(b'"' + lane + b'"'), path


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lane": "nowhere"}, "there is no lane \"nowhere\""),
        ({"routes": {"get /": "api"}}, "the method has to be in capitals"),
        ({"allow_networks": ["10.0.0/8"]}, "is not a network"),
        ({"trusted_proxies": ["0.0.0.0/0"]}, "lets every client choose its address"),
        ({"profile": "loud"}, "there is no profile"),
        ({"headers": "draft-3"}, "there is no header style"),
        ({"key": Key.header("agent id")}, "is not a header name"),
        ({"lane": None}, 'matches with lane="...", or let them pass with pass_others=True'),
        ({"lane": "slots"}, "name it as the lane of connections, or take slots with Lane.hold"),
        ({"key": Key.address(ipv6_prefix=129)}, "addresses grouped by 129 bits; allowed: 1 to 128"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_advice(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gate(limiter(api="1/minute", more="1/minute", slots="held 1"), **{"lane": "api", **settings})


async def later(request: Any) -> str:
    return "agent-7"


class Later:
    async def __call__(self, request: Any) -> str:
        return "agent-7"


@pytest.mark.parametrize("function", [later, Later(), functools.partial(later)], ids=["def", "object", "partial"])
def test_a_function_that_nobody_would_await_is_refused(function: Any) -> None:
    one = limiter(api="1/minute")
    makes: list[tuple[Callable[[], Any], str]] = [
        (lambda: Gate(one, key=function), "a key"),
        (lambda: Gate(one, key=[Key.function("a user", function), Key.address()]), "a key's function"),
        (lambda: Gate(one, cost=function), "cost"),
        (lambda: Gate(one, plan=function), "plan"),
        (lambda: Limits().limit("1/minute", key=function), "a key"),
        (lambda: Limits().limit("1/minute", cost=function), "cost"),
        (lambda: Limits(key=function), "a key"),
        (lambda: Limits(plan=function), "plan"),
    ]
    for make, what in makes:
        with pytest.raises(TypeError, match=f"^{what} is an ordinary function, not one with async"):
            make()


@pytest.mark.parametrize("wrong", [{"cost": "many"}, {"cost": -1}, {"cost": 1.5}, {"plan": "pro"}, {"key": 7}])
def test_a_setting_of_the_wrong_type_is_refused_where_it_stands(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        Gate(limiter(api="1/minute"), **wrong)
    with pytest.raises((TypeError, ValueError)):
        Limits(**wrong) if "plan" in wrong else Limits().limit("1/minute", **wrong)
    with pytest.raises(TypeError, match="a key's function is a function of the request, not int"):
        Key.function("a user", 7)  # type: ignore[arg-type]


def test_a_middleware_has_a_limiter_or_a_gate() -> None:
    one = limiter(api="1/minute")
    for given, message in [
        ({}, "needs a limiter and settings, or a gate"),
        ({"limiter": one, "gate": Gate(one)}, "needs a limiter and settings, or a gate"),
        ({"gate": Gate(one), "lane": "api"}, "the gate has its settings already: lane"),
    ]:
        with pytest.raises(TypeError, match=message):
            TollgateMiddleware(hello, **given)  # type: ignore[arg-type]


def test_what_is_passed_around_shows_what_it_is() -> None:
    assert repr(Key.header("x-agent-id")) == "<Key: the header x-agent-id>"
    assert repr(Key.function("a signed-in user", str)) == "<Key: a signed-in user>"
    assert repr(Gate(limiter(api="1/minute"))) == '<Gate over the lanes "api">'


@pytest.mark.parametrize("number", [-1, 300, 2**64])
def test_a_number_out_of_range_is_a_value_error(number: int) -> None:
    with pytest.raises(ValueError):
        Key.address(ipv6_prefix=number)
    gate = Gate(limiter(api="9/minute"))
    _, connection = gate.connect(scope("websocket"), messages=gate.lanes("api"))
    assert connection is not None
    if number == 300:
        assert connection.message(number) == (False, '{"type":"rate_limited","retry_after_ms":60000,"tier":"api"}')
        return
    with pytest.raises(ValueError):
        connection.message(number)


def test_a_held_lane_is_for_connections_alone() -> None:
    gate = Gate(limiter(ws="held 1", api="9/minute"), lane="api")
    with pytest.raises(ValueError, match="name it as the lane of connections"):
        gate.asgi(scope(), lanes=gate.lanes("ws"))
    with pytest.raises(ValueError, match="name it as the lane of connections"):
        gate.connect(scope("websocket"), messages=gate.lanes("ws"))
    with pytest.raises(ValueError, match="each have one lane"):
        gate.connect(scope("websocket"), messages=gate.lanes("api", "api"))


def test_functions_that_fail_are_not_swallowed_and_charge_nothing() -> None:
    gate = Gate(limiter(api="1/minute"), key=[Key.function("a user", lambda scope: scope["user"]), Key.address()])
    with pytest.raises(KeyError, match="user"):
        gate.asgi(scope())
    with pytest.raises(TypeError, match="a key's function returns a str, an int or None, not list"):
        gate.asgi(scope(user=[]))
    assert isinstance(gate.asgi(scope(user=None)), list), "nothing was charged to the address before"
    assert isinstance(gate.asgi(scope(user=42)), list)
    assert isinstance(gate.asgi(scope(user="42")), tuple), "42 and \"42\" are one agent"


def test_a_client_without_an_address_is_told_what_to_do() -> None:
    answer = Gate(limiter(api="1/minute")).asgi(scope(client=None))
    assert isinstance(answer, tuple)
    assert answer[0] == 500 and b"--forwarded-allow-ips" in answer[2]


ODD: list[Any] = [None, 7, -1, "text", b"bytes", [], [1], [(1, 2)], [(b"x-agent-id",)], {}, object(), "\ud800", 1e300]


@pytest.mark.parametrize("name", ["method", "path", "headers", "client", "root_path"])
def test_no_scope_crashes_a_gate(name: str) -> None:
    gate = Gate(limiter(api="1000/minute"), key=[Key.header("x-agent-id"), Key.address()], routes={"/a/{b}": "api"})
    for odd in ODD:
        try:
            gate.asgi(scope(**{name: odd}) if name != "path" else scope(path=odd))
            gate.connect(scope("websocket") | {name: odd})
        except (TypeError, ValueError, IndexError, KeyError):
            pass


@pytest.mark.parametrize("name", ["REQUEST_METHOD", "PATH_INFO", "REMOTE_ADDR", "HTTP_X_AGENT_ID", "HTTP_ACCEPT"])
def test_no_environ_crashes_a_gate(name: str) -> None:
    gate = Gate(limiter(api="1000/minute"), key=[Key.header("x-agent-id"), Key.address()])
    for odd in [*ODD, "é\u20ac\x00\r\n", "a,b", ","]:
        try:
            gate.wsgi({"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.7", name: odd})
        except (TypeError, ValueError):
            pass


@pytest.mark.parametrize("name", ["key", "lane", "routes", "cost", "plan", "allow_networks", "profile", "wall_clock"])
def test_no_setting_crashes_a_gate(name: str) -> None:
    for odd in ODD:
        try:
            gate = Gate(limiter(api="1000/minute"), **{"key": Key.address(), name: odd})
            gate.asgi(scope())
        except (TypeError, ValueError):
            pass


def test_a_gate_leaks_nothing() -> None:
    gate = Gate(limiter(api="10/minute"), key=[Key.function("nobody", lambda scope: None), Key.header("x-agent-id")])
    given = scope()

    def resident() -> int:
        return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])

    def calls(count: int) -> None:
        for _ in range(count):
            gate.asgi(given)
            with pytest.raises(TypeError):
                gate.asgi({**given, "headers": [(1, 2)]})

    calls(2_000)
    before = resident()
    calls(8_000)
    # An object of a hundred bytes for each call would be 800 KB.
    assert resident() - before < 400
