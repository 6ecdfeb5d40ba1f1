"""The real server, and clients of several kinds that send it requests from parallel workers."""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import urllib3
from urllib3.util import Retry

from tollgate_limiter.client import Pacers
from tollgate_limiter.client.httpx import PacedTransport

LANE = "http/read"
WORKERS = 8
RATE = 20
BURST = 20


@contextmanager
def tollgate(program: str) -> Iterator[str]:
    """Starts the server on a port of its own, yields its address, and stops it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tollgate.toml"
        file.write_text(f'[lanes]\n"{LANE}" = "{RATE}/second burst {BURST}"\n[server]\nlisten = "127.0.0.1:0"\n')
        env = {name: value for name, value in os.environ.items() if not name.startswith("TOLLGATE_")}
        command = [program, "serve", "--config", str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as server:
            try:
                yield _address(server)
            finally:
                server.terminate()


def _address(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"serves .* on (http://127\.0\.0\.1:[0-9]+)", line):
            return found[1]
    raise RuntimeError(f"the server stopped with status {server.wait()}")


@dataclass
class Took:
    """What a run of a client came to."""

    seconds: float
    answers: Counter[int]
    ideal: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.ideal


def work(requests: int, send: Callable[[], object], answers: Counter[int]) -> Took:
    """Sends requests from the workers; `answers` counts what `send` hears, retries included."""
    left = iter(range(requests))
    lock = threading.Lock()
    problems: list[Exception] = []

    def worker() -> None:
        try:
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                send()
        except Exception as error:
            problems.append(error)

    started = time.monotonic()
    workers = [threading.Thread(target=worker) for _ in range(WORKERS)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    if problems:
        raise problems[0]
    return Took(time.monotonic() - started, answers, (requests - BURST) / RATE)


class _Counting(httpx.HTTPTransport):
    def __init__(self, answers: Counter[int]) -> None:
        super().__init__()
        self._answers = answers

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        self._answers[response.status_code] += 1
        return response


def _check(agent: str) -> dict[str, str]:
    return {"agent": agent, "lane": LANE}


def paced(url: str, requests: int) -> Took:
    """Our transport, as it is by default."""
    answers: Counter[int] = Counter()
    with httpx.Client(transport=PacedTransport(_Counting(answers), pacer=Pacers())) as client:

        def send() -> None:
            client.post(f"{url}/v1/check", json=_check("paced")).raise_for_status()

        return work(requests, send, answers)


class _CountedRetry(Retry):
    def __init__(self, *args: object, answers: Counter[int], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._answers = answers

    def new(self, **options: object) -> "_CountedRetry":
        return super().new(answers=self._answers, **options)

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        self._answers[status_code] += 1
        return super().is_retry(method, status_code, has_retry_after)


def retrying(url: str, requests: int) -> Took:
    """urllib3 with `Retry`, which sleeps as long as `Retry-After` says, each request by itself."""
    answers: Counter[int] = Counter()
    retries = _CountedRetry(total=1000, status_forcelist=[429], allowed_methods=None, answers=answers)
    body = json.dumps(_check("retrying")).encode()
    with urllib3.PoolManager(maxsize=WORKERS, retries=retries) as pool:

        def send() -> None:
            response = pool.request("POST", f"{url}/v1/check", body=body)
            assert response.status == 200, response.status

        return work(requests, send, answers)


def row(name: str, took: Took) -> str:
    return f"| {name} | {took.answers[429]} | {took.seconds:.2f} s | {took.ratio:.2f} |"
