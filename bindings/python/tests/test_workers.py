"""Four workers of uvicorn with one slab: one limit, whatever happens to the workers."""

import http.client
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving import get, uvicorn

CAPACITY = 100
CLIENTS = 12
REQUESTS = 50
RUNS = int(os.environ.get("TOLLGATE_RUNS", "2"))


def flood(port: int, agent: str, at_start: Callable[[], None] = lambda: None) -> tuple[int, set[int], int]:
    """All clients at once: how many requests were admitted, by which workers, and how many got no answer."""
    barrier = threading.Barrier(CLIENTS, action=at_start)

    def client(_: int) -> tuple[list[int], int]:
        admitted, lost = [], 0
        barrier.wait()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(REQUESTS):
            try:
                response = get(connection, "/", agent)
            except OSError:
                # Its worker was killed: the next request opens another connection.
                lost += 1
                connection.close()
                continue
            except http.client.HTTPException:
                lost += 1
                connection.close()
                continue
            # 503: another worker was making the agent's record and waited for a processor.
            assert response.status in (200, 429, 503)
            if response.status == 200:
                admitted.append(int(response.body))  # type: ignore[attr-defined]
        connection.close()
        return admitted, lost

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(client, range(CLIENTS)))
    admitted = [worker for workers, _ in answers for worker in workers]
    return len(admitted), set(admitted), sum(lost for _, lost in answers)


def worker(port: int) -> int:
    """The process id of one of the workers; retried while a killed one's connections are refused."""
    for _ in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            return int(get(connection, "/", f"who-{time.monotonic_ns()}").body)  # type: ignore[attr-defined]
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise AssertionError("no worker answers")


@pytest.fixture
def slab() -> Iterator[str]:
    """A shared slab belongs in memory, and a test's folder may be on a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield f"{folder}/api.slab"


def test_four_workers_admit_what_one_limit_allows(slab: str) -> None:
    seen: set[int] = set()
    with uvicorn("apps:workers", 4, TOLLGATE_SHARED=slab) as port:
        for run in range(RUNS):
            admitted, workers, lost = flood(port, f"agent-{run}")
            assert (admitted, lost) == (CAPACITY, 0), f"run {run}, by {len(workers)} workers"
            seen |= workers
            # In between one of them dies; uvicorn starts another, which joins the slab.
            os.kill(worker(port), signal.SIGKILL)
            worker(port)
    assert len(seen) >= 2, "more than one worker has to answer, or nothing was shared"


def test_a_worker_that_is_killed_amid_requests_admits_nothing_twice(slab: str) -> None:
    with uvicorn("apps:workers", 4, TOLLGATE_SHARED=slab) as port:
        for run in range(RUNS):
            victim = worker(port)
            admitted, _, lost = flood(port, f"agent-{run}", at_start=lambda pid=victim: os.kill(pid, signal.SIGKILL))  # type: ignore[misc]
            # A request without an answer may have been charged.
            assert CAPACITY - lost <= admitted <= CAPACITY, f"run {run}, {lost} lost"
            worker(port)


def test_four_workers_without_a_slab_admit_four_times_as_much() -> None:
    """What the others are measured against: the requests do spread over the workers."""
    with uvicorn("apps:workers", 4, TOLLGATE_SHARED="") as port:
        admitted, workers, _ = flood(port, "agent")
    assert admitted > CAPACITY and len(workers) > 1
