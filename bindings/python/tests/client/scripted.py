"""A server that answers as a test tells it to, and remembers what it was asked."""

import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

Answer = tuple[int, dict[str, str], str]


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """Answers in this order, then 200; a status of 0 breaks the connection."""

    answers: deque[Answer] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)

    def then(self, status: int, body: str = "{}", /, **headers: str) -> "Scripted":
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))
        return self

    def __enter__(self) -> "Scripted":
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                script._answer(self)

            do_POST = do_GET

            def log_message(self, format: str, *values: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            # Ends: the last chunk is empty.
            while size := int(handler.rfile.readline(), 16):
                body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
        else:
            body = handler.rfile.read(int(headers.get("content-length", "0")))
        self.asked.append(Asked(handler.command, handler.path, headers, body))
        status, fields, text = self.answers.popleft() if self.answers else (200, {}, "{}")
        if status == 0:
            handler.close_connection = True
            return
        handler.send_response(status)
        for name, value in fields.items():
            handler.send_header(name, value)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text.encode())
