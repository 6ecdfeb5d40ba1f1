"""The ASGI middleware behind a real uvicorn: HTTP, streams, uploads, WebSockets."""

import json
import socket
from collections.abc import Iterator

import httpx
import pytest
from serving import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

BODY = 10_000_000


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with uvicorn("apps:app") as port:
        yield port


def client(port: int, agent: str) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"x-agent-id": agent}, timeout=60)


def websocket(port: int, path: str, agent: str) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{port}{path}", additional_headers={"x-agent-id": agent}, open_timeout=60)


def test_every_request_is_limited_and_says_so_once(port: int) -> None:
    with client(port, "plain") as limited:
        served = limited.get("/agents/1")
        assert (served.status_code, served.json()) == (200, {"id": 1})
        assert served.headers.get_list("ratelimit") == ['"api";r=1;t=43200']
        # Another URL of the route, an unknown path, and methods that no route has: all of the one limit.
        assert limited.get("/agents/2").status_code == 200
        for method, path in [("GET", "/agents/3"), ("GET", "/nowhere"), ("HEAD", "/agents/1"), ("OPTIONS", "/agents/1")]:
            refused = limited.request(method, path)
            assert refused.status_code == 429, (method, path)
            assert int(refused.headers["retry-after"]) > 43_000
            assert refused.headers.get_list("ratelimit-policy") == ['"api";q=2;w=86400']
            assert refused.headers.get_list("content-type") == ["application/problem+json"]
        assert refused.json()["agent_id"] == "plain"


def test_an_unknown_path_is_charged(port: int) -> None:
    with client(port, "lost") as limited:
        assert [limited.get("/nowhere").status_code for _ in range(3)] == [404, 404, 429]


def test_a_request_without_an_id_is_a_mistake_and_health_is_free(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as stranger:
        assert stranger.get("/agents/1").status_code == 400
        healthy = stranger.get("/health")
        assert healthy.json()["started"] == "yes", "lifespan reaches the app"
        assert "ratelimit" not in healthy.headers


def test_an_upload_is_refused_before_its_body_is_read(port: int) -> None:
    with client(port, "uploader") as admitted:
        assert [admitted.get("/agents/1").status_code for _ in range(2)] == [200, 200]
        before = admitted.get("/health").json()["read"]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        head = f"POST /upload HTTP/1.1\r\nhost: localhost\r\nx-agent-id: uploader\r\ncontent-length: {BODY}\r\n\r\n"
        raw.sendall(head.encode())  # And not a byte of the body.
        assert raw.recv(12) == b"HTTP/1.1 429"
    with client(port, "uploader") as admitted:
        assert admitted.get("/health").json()["read"] == before
        assert admitted.post("/many/upload", content=b"a" * BODY).json() == before + BODY


def test_a_stream_arrives_in_pieces(port: int) -> None:
    with client(port, "reader") as reader, client(port, "other") as other:
        with reader.stream("GET", "/many/stream") as response:
            pieces = response.iter_raw()
            # The app sends the rest when the first piece has arrived here.
            assert next(pieces) == b"first"
            assert other.post("/many/go").status_code == 200
            assert b"".join(pieces) == b"last"
            assert response.headers["ratelimit-policy"] == '"many";q=1000;w=86400'


def test_a_websocket_over_the_limit_gets_a_response(port: int) -> None:
    for _ in range(2):
        with websocket(port, "/once", "opener") as session:
            assert session.response is not None and "ratelimit" in session.response.headers
    with pytest.raises(InvalidStatus) as refused, websocket(port, "/once", "opener"):
        pass
    response = refused.value.response
    assert (response.status_code, response.headers["content-type"]) == (429, "application/problem+json")
    assert int(response.headers["retry-after"]) > 43_000


def test_a_message_over_the_limit_becomes_a_frame_and_the_connection_stays(port: int) -> None:
    with websocket(port, "/ws", "talker") as session:
        said = []
        for message in ["one", "two", "three", "four"]:
            session.send(message)
            said.append(session.recv(60))
        assert said[:2] == ["one", "two"]
        for frame in said[2:]:
            told = json.loads(frame)
            assert (told["type"], told["tier"]) == ("rate_limited", "messages")
            assert 43_000_000 < told["retry_after_ms"] <= 43_200_000
        session.ping().wait(60)


def opens(port: int, path: str, agent: str) -> bool:
    try:
        with websocket(port, path, agent):
            return True
    except InvalidStatus as refused:
        assert refused.response.status_code == 429
        return False


def opens_at_last(port: int, path: str, agent: str) -> bool:
    """The server hears a little later that a client has left."""
    return any(opens(port, path, agent) for _ in range(200))


@pytest.mark.parametrize("end", ["closes", "vanishes", "crashes"])
def test_a_slot_is_free_again_however_the_connection_ends(port: int, end: str) -> None:
    agent = f"holder who {end}".replace(" ", "-")
    with websocket(port, "/crash" if end == "crashes" else "/ws", agent) as session:
        if end == "crashes":
            with pytest.raises(ConnectionClosed):
                session.recv(60)
        else:
            assert not opens(port, "/ws", agent), "the one slot is taken"
            assert opens(port, "/ws", f"{agent}-too"), "by this agent alone"
        if end == "vanishes":
            session.socket.shutdown(socket.SHUT_RDWR)
        elif end == "closes":
            session.close()
        assert opens_at_last(port, "/ws", agent)


def test_odd_requests_are_limited_like_others(port: int) -> None:
    head = b"GET /%ff%00%2e%2e HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-agent-id: odd \xff\xfe\r\n\r\n"
    answers = []
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
            raw.sendall(head)
            answers.append(b"".join(iter(lambda raw=raw: raw.recv(65_536), b"")))  # type: ignore[misc]
    assert [answer[9:12] for answer in answers] == [b"404", b"404", b"429"]
    # An id that is not UTF-8 is shown as its bytes.
    assert b'"agent_id":{"base64":"b2RkIP/+"}' in answers[2]
