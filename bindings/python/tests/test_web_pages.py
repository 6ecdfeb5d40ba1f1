"""The apps of docs/python do what the pages say, and so do those that they replace."""

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from flask import Flask

import tollgate_limiter
import tollgate_limiter.fastapi
from tollgate_limiter import Limiter, ManualClock

DOCS = Path(__file__).parents[3] / "docs" / "python"
Ask = Callable[[str], int]


@pytest.fixture(autouse=True)
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine no token comes back before a test has sent its requests."""
    clock = ManualClock()

    def limiter(*given: Any, **keywords: Any) -> Limiter:
        return Limiter(*given, clock=clock, **keywords)

    monkeypatch.setattr(tollgate_limiter, "Limiter", limiter)
    monkeypatch.setattr(tollgate_limiter.fastapi, "Limiter", limiter)


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Other packages' own.
        exec(compile(code, "page", "exec", dont_inherit=True), names)
    return names


def ask(app: Any, **headers: str) -> Ask:
    """The status of GET."""
    if isinstance(app, Flask):
        flask = app.test_client()
        return lambda path: flask.get(path, headers=headers).status_code
    client = TestClient(app)

    def get(path: str) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return client.get(path, headers=headers).status_code

    return get


FIVE = [200] * 5 + [429]


def test_the_first_app_of_the_fastapi_page() -> None:
    app = run(blocks("fastapi.md")[0])["app"]
    client = TestClient(app)
    assert [client.get(f"/agents/{id}").status_code for id in range(5)] == [200] * 5
    refused = client.get("/agents/6")
    shown = (DOCS / "fastapi.md").read_text().split("```text\n")[1].split("```")[0]
    status, *told = shown.split("\n\n")[0].splitlines()
    assert status.endswith("429 Too Many Requests") and refused.status_code == 429
    assert told == [f"{name}: {refused.headers[name]}" for name in ("retry-after", "ratelimit-policy", "ratelimit")]
    assert json.loads(shown.split("\n\n")[1]) == refused.json()


def test_the_limits_of_the_fastapi_page() -> None:
    names = run(blocks("fastapi.md")[1])
    client = TestClient(names["app"])
    served = client.post("/complete", headers={"x-tokens": "49000"})
    assert served.headers.get_list("ratelimit-policy") == [
        '"100-per-minute";q=100;w=60',
        '"1000-per-hour";q=1000;w=3600',
        '"tokens";q=50000;w=60',
    ]
    assert client.post("/complete", headers={"x-tokens": "2000"}).status_code == 429


def test_the_middleware_of_the_fastapi_page() -> None:
    app: FastAPI = run(blocks("fastapi.md")[2])["app"]
    get = ask(app, **{"x-agent-id": "agent-7"})
    assert [get("/files/a/b") for _ in range(21)] == [404] * 20 + [429]
    assert get("/") == 404 and ask(app)("/") == 400 and ask(app)("/health") == 404


def test_the_flask_page() -> None:
    app = run(blocks("flask.md")[0])["app"]
    assert [ask(app)("/") for _ in range(6)] == FIVE
    assert [ask(app, **{"x-api-key": "s3cret"})("/") for _ in range(6)] == FIVE
    assert ask(app)("/health") == 404


def test_the_django_page() -> None:
    from django.test import RequestFactory
    from test_conformance import configured

    from tollgate_limiter.django import TollgateMiddleware

    settings, HttpResponse = configured()
    settings.TOLLGATE = run(blocks("django.md")[0])["TOLLGATE"]
    app: Callable[[Any], Any] = TollgateMiddleware(lambda request: HttpResponse("hello"))

    def answer(method: str, path: str) -> int:
        status: int = app(RequestFactory().generic(method, path)).status_code
        return status

    assert [answer("POST", "/accounts/login/") for _ in range(3)] == [200, 200, 429]
    assert [answer("GET", "/") for _ in range(6)] == FIVE
    assert [answer("GET", "/static/a.css") for _ in range(7)] == [200] * 7


def move(title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of both blocks of a section: before, after."""
    section = (DOCS / "migrate.md").read_text().split(f"## From {title}\n")[1].split("\n## ")[0]
    before, after = re.findall(r"^```python\n(# (?:before|after)\n.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert before.startswith("# before") and after.startswith("# after")
    return run(before), run(after)


def test_moving_from_slowapi() -> None:
    before, after = (ask(names["app"]) for names in move("slowapi"))
    assert [before("/agents/1") for _ in range(6)] == FIVE
    # Each URL has a limit of its own there, and one that varies the id has none.
    assert [before(f"/agents/{id}") for id in range(2, 9)] == [200] * 7
    assert [after(f"/agents/{id}") for id in range(6)] == FIVE


def test_moving_from_limits() -> None:
    for names in move("limits"):
        assert [names["allowed"]("agent-7") for _ in range(6)] == [True] * 5 + [False]
        assert names["allowed"]("agent-8")


def test_moving_from_fastapi_limiter() -> None:
    before, after = (names["app"] for names in move("fastapi-limiter"))
    assert [ask(before)("/agents/1") for _ in range(6)] == FIVE
    # One bucket for all clients.
    assert TestClient(before, client=("192.0.2.7", 1)).get("/agents/1").status_code == 429
    assert [ask(after)(f"/agents/{id}") for id in range(6)] == FIVE
    assert TestClient(after, client=("192.0.2.7", 1)).get("/agents/1").status_code == 200


def test_moving_from_flask_limiter() -> None:
    before, after = (ask(names["app"]) for names in move("flask-limiter"))
    for get in (before, after):
        assert [get("/agents/1") for _ in range(6)] == FIVE
        assert [get("/health") for _ in range(6)] == [200] * 6
    assert (before("/nowhere"), after("/nowhere")) == (404, 429)


def test_what_the_tables_of_the_moving_page_name_can_be_called() -> None:
    limiter = Limiter({"lanes": {"api": "10/minute"}}, agents=10, clock=ManualClock())
    names = {"limiter": limiter, "lane": limiter.lane("api"), "id": "agent-7"}
    called = re.findall(r"`((?:lane|limiter)\.[a-z_]+\([^`]*)`", (DOCS / "migrate.md").read_text())
    assert len(called) >= 4
    for code in called:
        eval(code, dict(names))


def test_all_blocks_were_run() -> None:
    counts = {page.name: len(blocks(page.name)) for page in DOCS.glob("*.md")}
    assert counts == {"fastapi.md": 3, "flask.md": 1, "django.md": 1, "migrate.md": 8}
