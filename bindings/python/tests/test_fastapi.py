"""Limits on the routes of FastAPI and Starlette."""

import asyncio
import inspect
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Response, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import WebSocketDenialResponse

from tollgate_limiter import Key, ManualClock, PolicyError
from tollgate_limiter.fastapi import Limits


def declared(**settings: Any) -> tuple[Limits, ManualClock]:
    clock = ManualClock()
    return Limits(agents=100, clock=clock, **settings), clock


def statuses(client: TestClient, path: str, times: int, **given: Any) -> list[int]:
    return [client.get(path, **given).status_code for _ in range(times)]


def test_a_route_has_its_limit_and_says_so() -> None:
    limits, clock = declared()
    app = FastAPI()

    @app.get("/", dependencies=[Depends(limits.limit("2/minute"))])
    def hello() -> dict[str, str]:
        return {"hello": "world"}

    client = TestClient(app)
    served = client.get("/")
    assert (served.status_code, served.json()) == (200, {"hello": "world"})
    assert served.headers["ratelimit"] == '"2-per-minute";r=1;t=30'
    assert served.headers["ratelimit-policy"] == '"2-per-minute";q=2;w=60'
    assert client.get("/").status_code == 200
    refused = client.get("/")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    assert refused.headers["ratelimit"] == '"2-per-minute";r=0;t=30'
    assert refused.json() == {"detail": "2-per-minute has 0 of 2 left, too few for this request. Retry after 30 seconds."}
    clock.advance(30)
    assert statuses(client, "/", 2) == [200, 429]


def test_a_decorator_needs_no_request_and_does_not_show() -> None:
    limits, _ = declared()
    app = FastAPI()

    @app.get("/agents/{id}")
    @limits.limit("2/minute", name="agents")
    async def agent(id: int, verbose: bool = False) -> dict[str, Any]:
        return {"id": id, "verbose": verbose}

    @app.get("/plain")
    @limits.limit("1/minute")
    def plain() -> Response:
        return PlainTextResponse("plain")

    @app.get("/unlimited/{id}")
    async def unlimited(id: int, verbose: bool = False) -> dict[str, Any]:
        return {"id": id, "verbose": verbose}

    client = TestClient(app)
    # One limit for the route, whatever the URL is.
    assert [client.get(f"/agents/{id}?verbose=1").status_code for id in range(4)] == [200, 200, 429, 429]
    assert client.get("/agents/x").status_code == 429, "a malformed request is limited too"
    ready = client.get("/plain")
    assert (ready.text, ready.headers["ratelimit"]) == ("plain", '"1-per-minute";r=0;t=60'), "a ready response has them too"
    assert client.get("/plain").status_code == 429
    paths = client.get("/openapi.json").json()["paths"]
    limited, free = (json.dumps(paths[path]["get"]["parameters"]) for path in ("/agents/{id}", "/unlimited/{id}"))
    assert limited == free and "parameters" not in paths["/plain"]["get"]


POSTPONED = """
from __future__ import annotations
from fastapi import Request
from pydantic import BaseModel

class Item(BaseModel):
    name: str

async def make(item: Item, request: Request) -> Item:
    return item

def odd(item: OnlyForTypeCheckers) -> None: ...
"""


def test_annotations_that_are_text_are_known_outside_of_their_module() -> None:
    """Older FastAPI evaluates them with the globals of what it is given: of the decorator, that is."""
    limits, _ = declared()
    names: dict[str, Any] = {"__name__": "postponed"}
    exec(compile(POSTPONED, "postponed", "exec", dont_inherit=True), names)
    app = FastAPI()
    made = app.post("/items")(limits.limit("1/minute")(names["make"]))
    signature = inspect.signature(made)
    assert signature.parameters["item"].annotation is names["Item"] and signature.return_annotation is names["Item"]
    client = TestClient(app)
    assert [client.post("/items", json={"name": "a"}).status_code for _ in range(2)] == [200, 429]
    assert inspect.signature(limits.limit("1/minute")(names["odd"])).parameters["item"].annotation == "OnlyForTypeCheckers"


def test_an_endpoint_may_be_an_object_or_a_generator() -> None:
    limits, _ = declared()

    class Agent:
        async def __call__(self, id: int) -> int:
            return id

    limited = limits.limit("2/minute")(Agent())
    assert inspect.iscoroutinefunction(limited) and asyncio.run(limited(7)) == 7
    app = FastAPI()
    app.get("/agents/{id}")(limited)

    @app.get("/lines")
    @limits.limit("1/minute")
    async def lines() -> AsyncIterator[int]:
        yield 1
        yield 2

    client = TestClient(app)
    assert statuses(client, "/agents/7", 3) == [200, 200, 429]
    assert client.get("/lines").text.split() == ["1", "2"] and client.get("/lines").status_code == 429


def test_several_limits_are_charged_together_or_not_at_all() -> None:
    limits, clock = declared()
    app = FastAPI()

    @app.get("/", dependencies=[Depends(limits.limit("2/minute;3/hour", name="api"))])
    def hello() -> str:
        return "hello"

    client = TestClient(app)
    served = client.get("/")
    assert served.headers.get_list("ratelimit") == ['"api/2-per-minute";r=1;t=30', '"api/3-per-hour";r=2;t=1200']
    assert statuses(client, "/", 2) == [200, 429]
    # The refusal took nothing from the hour: one is left.
    clock.advance(60)
    assert statuses(client, "/", 2) == [200, 429]
    assert client.get("/").headers["retry-after"] == "1140"


def test_a_router_shares_one_limit_and_a_request_is_charged_once() -> None:
    limits, _ = declared()
    shared = limits.limit("3/minute")
    router = APIRouter(prefix="/v1", dependencies=[Depends(shared)])

    @router.get("/a", dependencies=[Depends(shared)])
    def a() -> str:
        return "a"

    @router.get("/b")
    def b() -> str:
        return "b"

    app = FastAPI()
    app.include_router(router)
    client = TestClient(app)
    assert [client.get(path).status_code for path in ("/v1/a", "/v1/b", "/v1/a", "/v1/b")] == [200, 200, 200, 429]


def test_limits_on_one_route_add_up() -> None:
    limits, _ = declared()
    app = FastAPI()

    @app.get("/")
    @limits.limit("5/minute")
    @limits.limit("3/hour")
    def hello() -> str:
        return "hello"

    assert statuses(TestClient(app), "/", 4) == [200, 200, 200, 429]


def test_keys_and_costs_are_functions() -> None:
    limits, _ = declared(key=lambda connection: connection.headers.get("x-user"))
    app = FastAPI()

    def tokens(connection: HTTPConnection) -> int:
        return int(connection.query_params.get("tokens", 1))

    @app.get("/mine")
    @limits.limit("10/minute", cost=tokens)
    def mine() -> str:
        return "mine"

    @app.get("/everybody")
    @limits.limit("1/minute", key=Key.shared("everybody"))
    def everybody() -> str:
        return "everybody"

    client = TestClient(app)
    alice, bob = {"x-user": "alice"}, {"x-user": "bob"}
    assert client.get("/mine?tokens=8", headers=alice).headers["ratelimit"] == '"10-per-minute";r=2;t=6'
    assert client.get("/mine?tokens=8", headers=alice).status_code == 429
    assert client.get("/mine?tokens=8", headers=bob).status_code == 200
    assert client.get("/mine?tokens=11", headers=bob).status_code == 429
    assert client.get("/mine").status_code == 400, "nobody is limited as nobody"
    assert [client.get("/everybody", headers=who).status_code for who in (alice, bob)] == [200, 429]


@pytest.mark.parametrize("wrong", [lambda _: 1 / 0, lambda _: -1, lambda _: "many"])
def test_a_function_that_fails_charges_nothing(wrong: Callable[[Any], Any]) -> None:
    limits, _ = declared()
    app = FastAPI()
    costs: list[Callable[[Any], Any]] = [wrong, lambda _: 1]

    @app.get("/")
    @limits.limit("1/minute", cost=lambda connection: costs[0](connection))
    def hello() -> str:
        return "hello"

    client = TestClient(app, raise_server_exceptions=False)
    assert client.get("/").status_code == 500
    costs.pop(0)
    assert statuses(client, "/", 2) == [200, 429]


def test_plans_have_their_own_limits() -> None:
    limits, _ = declared(
        plans={"pro": {"1-per-minute": "3/minute"}}, plan=lambda connection: connection.headers.get("x-plan")
    )
    app = FastAPI()

    @app.get("/")
    @limits.limit("1/minute")
    def hello() -> str:
        return "hello"

    assert statuses(TestClient(app, client=("192.0.2.7", 1)), "/", 2) == [200, 429]
    pro = TestClient(app, client=("192.0.2.8", 1))
    assert statuses(pro, "/", 4, headers={"x-plan": "pro"}) == [200, 200, 200, 429]


def test_a_websocket_is_refused_before_it_opens() -> None:
    limits, _ = declared()
    app = FastAPI()

    @app.websocket("/ws")
    async def talk(websocket: WebSocket, _: Any = Depends(limits.limit("1/minute"))) -> None:
        await websocket.accept()
        await websocket.send_text("hello")
        await websocket.close()

    client = TestClient(app)
    with client.websocket_connect("/ws") as session:
        assert session.receive_text() == "hello"
    with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("/ws"):
        pass
    assert (refused.value.status_code, refused.value.headers["retry-after"]) == (429, "60")


def test_a_decorator_limits_starlette_too() -> None:
    limits, _ = declared()

    @limits.limit("1/minute")
    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    client = TestClient(Starlette(routes=[Route("/", hello)]))
    assert client.get("/").headers["ratelimit"] == '"1-per-minute";r=0;t=60'
    assert client.get("/").status_code == 429


def test_a_dependency_that_runs_in_a_thread_limits_as_well() -> None:
    """Older FastAPI runs what is no coroutine function in a thread, and awaits nothing."""
    limits, _ = declared()
    limit = limits.limit("1/minute")
    connection = HTTPConnection({"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.7", 1)})
    response = Response()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(limit, connection=connection, response=response).result()
        assert response.headers["ratelimit"] == '"1-per-minute";r=0;t=60'
        with pytest.raises(HTTPException):
            thread.submit(limit, connection=connection, response=response).result()


def test_a_mistake_is_raised_where_the_limit_stands() -> None:
    limits, _ = declared()
    with pytest.raises(PolicyError, match="5/fortnight"):
        limits.limit("5/fortnight")
    with pytest.raises(ValueError, match="slots of the lane \"held-5\" are held until they are released"):
        limits.limit("held 5")
    with pytest.raises(TypeError, match="decorates a function"):
        limits.limit("5/minute")("hello")


def test_beyond_62_lanes_another_limiter_is_built() -> None:
    limits, _ = declared(plans={"pro": {"first": "2/minute", "last": "2/minute"}}, plan=lambda _: "pro")
    app = FastAPI()
    first = limits.limit("1/minute", name="first")
    for _ in range(60):
        limits.limit("5/minute")
    # Its two lanes are charged together, so they are in one limiter: the second.
    both = limits.limit("3/minute;4/hour", name="both")
    last = limits.limit("1/minute", name="last")
    assert len(first.limiter.lanes) == 61 and last.limiter.lanes == ["both/3-per-minute", "both/4-per-hour", "last"]
    assert first.limiter is not both.limiter is last.limiter is limits.limiter
    for number, limit in enumerate((first, both, last)):
        app.get(f"/{number}", dependencies=[Depends(limit)])(lambda: "hello")
    client = TestClient(app)
    assert [statuses(client, f"/{number}", 4) for number in range(3)] == [
        [200, 200, 429, 429],
        [200, 200, 200, 429],
        [200, 200, 429, 429],
    ]
    wide = [declared()[0].limit] * 3
    one, two, three = (limit("exact 100/minute", name=f"wide-{number}") for number, limit in enumerate(wide))
    assert one.limiter is two.limiter is not three.limiter, "an exact window fills a record sooner"
    with pytest.raises(ValueError, match="has 17 parts; at most 16"):
        limits.limit(";".join(["1/minute"] * 17))


def test_a_limit_that_comes_late_is_a_limit() -> None:
    limits, _ = declared()
    for _ in range(3):  # As the tests of a user's app factory do.
        app = FastAPI()
        app.get("/", dependencies=[Depends(limits.limit("1/minute"))])(lambda: "hello")
        assert statuses(TestClient(app), "/", 2) == [200, 429]


def test_limits_that_workers_share_are_declared_before_the_first_request() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        limits, _ = declared(shared=f"{folder}/api.slab")
        names = [limits.limit("5/minute").lanes[0] for _ in range(63)]
        assert names[-2:] == ["5-per-minute-62", "5-per-minute"]
        assert limits.limiter.lanes == ["5-per-minute"]
        assert sorted(os.listdir(folder)) == ["api.slab.2.v1"]
        with pytest.raises(RuntimeError, match="'5/minute' comes too late"):
            limits.limit("5/minute")


def test_a_plan_that_names_no_limit_is_a_mistake() -> None:
    limits, _ = declared(plans={"pro": {"runn": "2/minute"}})
    limits.limit("1/minute", name="run")
    with pytest.raises(ValueError, match="the plan 'pro' names runn; the limits are run"):
        limits.limiter  # noqa: B018
