"""Threads, forks, spawned processes: one limit, exactly."""

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tollgate_limiter import BusyError, FileError, Lane, Limiter, ManualClock

POLICY = {"lanes": {"api": "100/day", "ws": "held 3"}, "plans": {"pro": {"api": "200/day"}}}
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def slab() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "slab"


def shared(path: Path) -> Limiter:
    return Limiter(POLICY, agents=1_000, shared=path)


def made(slab: Path) -> Path:
    """The file: its name ends in the version of its layout, so that two versions of this package keep apart."""
    (file,) = slab.parent.glob("slab.v*[0-9]")
    return file


def in_child(work: Any) -> Any:
    """What `work` returns in a forked child: a number below 250."""
    child = os.fork()
    if child == 0:
        status = 251
        try:
            status = work()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert 0 <= code < 250, f"the child ended with {code}"
    return code


def allows(lane: Lane, agent: str) -> bool:
    """Asks again while another process that is making the agent's record waits for a processor."""
    for _ in range(1_000):
        try:
            return lane.allow(agent)
        except BusyError:
            pass
    raise AssertionError("busy for seconds")


def ask(path: Path, asked: int, results: Any, start: Any) -> None:
    api = shared(path).lane("api")
    start.wait(60)
    results.put(sum(allows(api, "agent-7") for _ in range(asked)))


def test_four_spawned_processes_admit_one_limit(slab: Path) -> None:
    results, start = SPAWN.Queue(), SPAWN.Barrier(4)
    workers = [SPAWN.Process(target=ask, args=(slab, 150, results, start)) for _ in range(4)]
    for worker in workers:
        worker.start()
    admitted = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(admitted) == 100, admitted
    limiter = shared(slab)
    sharing = limiter.sharing()
    assert sharing is not None and sharing.path == made(slab)
    assert [process.is_this for process in sharing.processes] == [True]
    assert limiter.audit() == [] and not sharing.is_detached and sharing.processes[0].pid == os.getpid()


def hold_and_die(path: Path) -> None:
    limiter = shared(path)
    limiter.set_override("agent-8", "api", "7/day")
    held = limiter.lane("ws").hold("agent-7", 2)
    assert held and limiter.lane("api").check("agent-7", 40)
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_held_comes_back_and_what_it_charged_stays(slab: Path) -> None:
    limiter = shared(slab)
    worker = SPAWN.Process(target=hold_and_die, args=(slab,))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    limiter.sweep(0)
    assert limiter.lane("ws").peek("agent-7").remaining == 3
    assert limiter.lane("api").peek("agent-7").remaining == 60
    assert limiter.lane("api").check("agent-8").limit == 7 and limiter.audit() == []


def test_a_forked_child_shares_a_shared_limiter_and_has_a_copy_of_a_private_one(slab: Path) -> None:
    of_all, own = shared(slab), Limiter(POLICY, agents=10)
    assert own.lane("api").check("a", 10)
    code = in_child(lambda: sum(of_all.lane("api").allow("a") + own.lane("api").allow("a") for _ in range(60)))
    assert code == 120
    assert of_all.lane("api").peek("a").remaining == 40
    assert own.lane("api").peek("a").remaining == 90


def test_a_forked_child_closes_nothing_of_its_parent(slab: Path) -> None:
    limiter = shared(slab)
    with limiter.lane("ws").hold("a") as hold, limiter.lane("api").reserve("a", 50, ttl=60) as reservation:

        def leave() -> int:
            hold.__exit__(None, None, None)
            reservation.__exit__(None, None, None)
            return 1

        assert hold and in_child(leave) == 1
        assert limiter.lane("ws").peek("a").remaining == 2
        assert reservation.settle(30).unused == 20
    assert limiter.lane("ws").peek("a").remaining == 3 and limiter.lane("api").peek("a").remaining == 70


def test_a_process_joins_with_the_policy_that_is_there(slab: Path) -> None:
    with pytest.raises(FileError) as raised:
        Limiter.join(slab)
    assert raised.value.code == "shared" and isinstance(raised.value, OSError)
    first = Limiter(POLICY, agents=1_000, shared=str(slab), shared_mode=0o600)
    assert made(slab).stat().st_mode & 0o777 == 0o600
    joined = Limiter.join(slab)
    assert joined.lanes == first.lanes and joined.lane("api").check("a", 99)
    assert first.lane("api").check("a").remaining == 0
    with pytest.raises(FileError, match='has.*"100/day".*this process.*"held 5"|lane'):
        Limiter({"lanes": {"api": "held 5", "ws": "held 3"}}, agents=1_000, shared=slab)


def test_threads_admit_one_limit() -> None:
    limiter = Limiter({"lanes": {"api": "1000/day"}}, agents=100, clock=ManualClock())
    api, admitted, start = limiter.lane("api"), [0] * 8, threading.Barrier(9)

    def work(number: int) -> None:
        start.wait()
        admitted[number] = sum(api.allow("a") for _ in range(400))

    def change() -> None:
        start.wait()
        for round in range(200):
            limiter.set_override("b", "api", f"{round + 1}/s")
            limiter.sweep(0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    threads.append(threading.Thread(target=change))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(admitted) == 1000
    assert api.limit_of("b") == "200/second"


def pool_worker(path: Path) -> int:
    return sum(allows(shared(path).lane("api"), "pool") for _ in range(30))


def test_a_pool_of_forked_workers_admits_one_limit(slab: Path) -> None:
    limiter = shared(slab)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert sum(pool.map(pool_worker, [slab] * 8)) == 100
    assert limiter.lane("api").peek("pool").remaining == 0
