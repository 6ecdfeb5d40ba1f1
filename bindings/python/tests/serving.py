"""Real servers for the tests, on a free port, ended by their process id."""

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
STARTED = re.compile(r"Uvicorn running on http://127\.0\.0\.1:(\d+)")


@contextmanager
def uvicorn(app: str, workers: int = 1, interface: str = "auto", **environment: str) -> Iterator[int]:
    """Serves an app until the block ends; gives the port."""
    command = [sys.executable, "-m", "uvicorn", app, "--app-dir", str(HERE), "--port", "0", "--no-access-log"]
    command += ["--workers", str(workers), "--interface", interface]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stderr=log, stdout=log, env=os.environ | environment)
        try:
            yield _port(server, log.fileno(), workers)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _port(server: "subprocess.Popen[bytes]", log: int, workers: int) -> int:
    """The port, once all workers answer there."""
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        said = os.pread(log, 100_000, 0).decode()
        started = STARTED.search(said)
        # One server says that it runs when it does; the parent of several says it before they do.
        if started is not None and (workers == 1 or said.count("Application startup complete") >= workers):
            return int(started[1])
        if server.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"the server did not start: {os.pread(log, 100_000, 0).decode()}")


def get(connection: http.client.HTTPConnection, path: str, agent: str, method: str = "GET") -> http.client.HTTPResponse:
    """Sends a request, and reads its response to the end."""
    connection.request(method, path, headers={"x-agent-id": agent})
    response = connection.getresponse()
    response.body = response.read()  # type: ignore[attr-defined]
    return response
