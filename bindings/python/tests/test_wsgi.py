"""Flask and Django behind real servers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
from flask import Flask, Response, request
from serving import uvicorn

from tollgate_limiter import Key, Limiter
from tollgate_limiter.wsgi import TollgateMiddleware


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def wsgi(app: Any) -> Iterator[int]:
    """Serves an app until the block ends; gives the port."""
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)


def test_flask() -> None:
    app = Flask(__name__)
    lanes = {"api": "2/day", "run": "1/day"}
    app.wsgi_app = TollgateMiddleware(  # type: ignore[method-assign]
        app.wsgi_app,
        Limiter({"lanes": lanes}, agents=100),
        key=[Key.secret_header("x-api-key"), Key.address()],
        lane="api",
        routes={"POST /agents/{id:int}/run": "run"},
        allow_routes=["GET /health"],
        cost=lambda environ: int(environ.get("HTTP_X_COST", 1)),
    )

    @app.get("/")
    def hello() -> str:
        return "hello"

    @app.post("/agents/<int:id>/run")
    def run(id: int) -> Response:
        return Response(iter([request.method, " ", str(id)]), headers={"x-inner": "1"})

    @app.get("/health")
    def health() -> str:
        return "well"

    with wsgi(app) as port, client(port) as limited:
        served = limited.post("/agents/7/run")
        assert (served.text, served.headers["x-inner"]) == ("POST 7", "1")
        assert served.headers["ratelimit-policy"] == '"run";q=1;w=86400'
        refused = limited.post("/agents/8/run")
        assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
        assert refused.json()["agent_id"] == "ip:127.0.0.1" and int(refused.headers["retry-after"]) > 86_000
        assert [limited.get("/nowhere").status_code for _ in range(3)] == [404, 404, 429]
        with_key = {"x-api-key": "s3cret"}
        assert limited.get("/", headers={**with_key, "x-cost": "2"}).status_code == 200
        hidden = limited.get("/", headers=with_key)
        assert hidden.status_code == 429 and "agent_id" not in hidden.json()
        assert limited.head("/").status_code == 429
        assert [limited.get("/health").status_code for _ in range(4)] == [200] * 4


@pytest.mark.parametrize("under", ["asgi", "wsgi"])
def test_django(under: str) -> None:
    # A process of its own: settings are for a whole process.
    with uvicorn(f"django_project:{under}", interface="asgi3" if under == "asgi" else "wsgi") as port, client(port) as limited:
        path = "/async" if under == "asgi" else "/"
        assert limited.get(path).headers["ratelimit-policy"] == '"api";q=2;w=86400'
        assert limited.get("/nowhere").status_code == 404
        refused = limited.get(path)
        assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
        assert refused.json()["agent_id"] == "ip:127.0.0.1" and int(refused.headers["retry-after"]) > 42_000
        assert limited.get(f"{path}?user=7").status_code == 200
        # A key that asks the database, which Django refuses to do in a coroutine, works under both; and charges once.
        signed_in = [limited.get(f"{path}?token=t-7") for _ in range(3)]
        assert [(one.status_code, one.headers["ratelimit"][:9]) for one in signed_in[:2]] == [(200, '"api";r=1'), (200, '"api";r=0')]
        assert (signed_in[2].status_code, signed_in[2].json()["agent_id"]) == (429, "signed-in:alice")
        # A route is matched decoded, as Django matches it.
        assert [limited.get(f"/straße/{id}?user=8").status_code for id in (1, 2)] == [200, 429]
