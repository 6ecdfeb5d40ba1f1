"""Limits that machines share over Redis or Valkey: a machine is a process here."""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stores import PATIENCE, Store, running
from tollgate_limiter import Gate, Limiter, Redis, RequestError, TollgateError

SECRET = "0f6f4c0d9d1e7e4a0a2b"
POLICY = {"lanes": {"api": "100/day"}}
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def store() -> Iterator[Store]:
    with running() as store:
        yield store


def eventually(what: Callable[[], Any]) -> Any:
    """What it answers once that is true."""
    until = time.monotonic() + PATIENCE
    while not (answer := what()):
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)
    return answer


def machine(url: str, nodes: int = 1, **options: Any) -> Limiter:
    return Limiter(POLICY, agents=1_000, redis=Redis(url, secret=SECRET, nodes=nodes, **options))


def state(limiter: Limiter) -> str | None:
    status = limiter.engine()
    return status and status.state


def connected(limiter: Limiter, nodes: int = 1) -> Limiter:
    def is_there() -> bool:
        status = limiter.engine()
        return status is not None and status.state == "connected" and status.nodes_seen >= nodes

    eventually(is_there)
    return limiter


def out(limiter: Limiter) -> int:
    status = limiter.engine()
    assert status is not None
    return status.lanes[0].credit


def ask(url: str, start: Any, results: Any) -> None:
    limiter = connected(machine(url, nodes=2), nodes=2)
    api, allowed = limiter.lane("api"), 0
    start.wait(60)
    for _ in range(600):
        allowed += api.allow("agent-7")
        time.sleep(0.001)
    status = limiter.engine()
    assert status is not None
    results.put((allowed, status.lanes[0].bound, status.nodes))
    limiter.close()


def test_two_spawned_machines_admit_one_limit_within_the_stated_bound(store: Store) -> None:
    results, start = SPAWN.Queue(), SPAWN.Barrier(2)
    machines = [SPAWN.Process(target=ask, args=(store.url, start, results)) for _ in range(2)]
    for process in machines:
        process.start()
    counted = [results.get(timeout=90) for _ in machines]
    for process in machines:
        process.join()
    assert all(process.exitcode == 0 for process in machines)
    bound = counted[0][1]
    assert 0 < bound <= 20 and all(nodes == 2 for _, _, nodes in counted)
    total = sum(allowed for allowed, _, _ in counted)
    # Nearly all is admitted, since they asked far more; 100 a day refill none while they run.
    assert 90 <= total <= 100 + bound, counted


def test_checks_go_on_by_the_machines_share_when_the_store_is_killed(store: Store) -> None:
    limiter = connected(machine(store.url, nodes=4))
    api = limiter.lane("api")
    first = api.check("agent-7")
    assert first and first.source in ("advance", "credit")
    store.kill()
    eventually(lambda: state(limiter) == "lost")
    answers = [api.check("agent-8") for _ in range(60)]
    assert {answer.source for answer in answers} == {"share"}
    assert sum(map(bool, answers)) == 25
    status = limiter.engine()
    assert status is not None and sum(status.losses.values()) == 1 and status.last_problem
    assert status.lanes[0].answers["share"] == 60
    store.start()
    connected(limiter)
    assert api.check("agent-9").source in ("advance", "credit")


def test_lanes_may_differ_and_may_be_left_to_each_machine() -> None:
    policy = {"lanes": {"login": "5/min", "api": "60/min", "free": "9/min", "ws": "held 2"}}
    shared = Redis(
        "redis://127.0.0.1:1",
        secret=SECRET.encode(),
        slack=20,
        when_lost="open",
        lanes={"login": {"exact": True, "when_lost": "closed", "slack": 5}, "api": {"exact": False}},
        excepted=["free", "ws"],
    )
    limiter = Limiter(policy, agents=10, redis=shared)
    check = {name: limiter.lane(name).check("a") for name in ("login", "api", "free")}
    assert [(bool(verdict), verdict.source) for verdict in check.values()] == [
        (False, "closed"),
        (True, "open"),
        (True, None),
    ]
    assert limiter.lane("ws").hold("a")
    status = limiter.engine()
    assert status is not None and status.state == "lost" and status.nodes_seen == 0
    lanes = {lane.name: (lane.slack, lane.exact, lane.when_lost) for lane in status.lanes}
    assert lanes == {"login": (5, True, "closed"), "api": (20, False, "open")}
    assert status.since <= time.time() and "EngineStatus(state='lost'" in repr(status)


def test_the_engine_ends_with_the_last_of_what_can_check_and_gives_credit_back(store: Store) -> None:
    before = engines()
    other = connected(machine(store.url))
    limiter = connected(machine(store.url))
    api, gate = limiter.lane("api"), Gate(limiter, lane="api")
    allowed = 0

    def has_credit() -> bool:
        nonlocal allowed
        allowed += api.allow("agent-7")
        time.sleep(0.04)
        return out(limiter) > 0

    eventually(has_credit)
    eventually(lambda: len(engines() - before) == 4)
    del limiter, api
    gc.collect()
    assert len(engines() - before) == 4, "the gate can check"
    del gate
    eventually(lambda: len(engines() - before) == 2)
    eventually(lambda: (status := other.engine()) and status.nodes_seen == 1)
    rest = other.lane("api")

    def all_the_rest() -> bool:
        nonlocal allowed
        allowed += rest.allow("agent-7")
        return allowed == 100  # Not if the credit were lost: a token takes a quarter of an hour.

    eventually(all_the_rest)
    other.close()
    eventually(lambda: engines() <= before)


def engines() -> set[str]:
    """The threads of engines in this process: a limiter of an earlier test may not be collected yet."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        try:
            if Path(f"/proc/self/task/{task}/comm").read_text().startswith("tollgate-"):
                found.add(task)
        except OSError:
            pass  # It has just ended.
    return found


KEPT: list[Limiter] = []


def leave(url: str) -> None:
    KEPT.append(connected(machine(url)))
    assert KEPT[0].lane("api").allow("agent-7")


def test_a_machine_that_just_ends_leaves_the_list_of_machines(store: Store) -> None:
    process = SPAWN.Process(target=leave, args=(store.url,))
    process.start()
    process.join()
    assert process.exitcode == 0
    seen = connected(machine(store.url)).engine()
    assert seen is not None and seen.nodes_seen == 1


def test_close_and_attach(store: Store) -> None:
    before = engines()
    limiter = connected(machine(store.url))
    limiter.close()
    limiter.close()
    assert limiter.engine() is None and limiter.lane("api").check("a").source == "share"
    limiter.attach()
    limiter.attach()
    connected(limiter)
    eventually(lambda: len(engines() - before) == 2)
    private = Limiter(POLICY, agents=10)
    private.close()
    assert private.engine() is None and private.lane("api").check("a").source is None
    with pytest.raises(RequestError, match="redis=Redis") as raised:
        private.attach()
    assert raised.value.code == "not_clustered"


def test_a_forked_child_says_so_and_attaches_an_engine_of_its_own(store: Store) -> None:
    before = engines()
    limiter = connected(machine(store.url, nodes=2))
    api = limiter.lane("api")
    assert api.allow("a")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            seen = limiter.engine()
            assert seen is not None and seen.state == "lost" and "forked" in (seen.last_problem or "")
            assert api.check("b").source == "share" and not engines()
            limiter.attach()
            connected(limiter)
            eventually(lambda: api.check("c").source in ("advance", "credit"))
            limiter.close()
            status = 0
        finally:
            os._exit(status)
    _, code = os.waitpid(child, 0)
    assert code == 0
    assert state(limiter) == "connected" and len(engines() - before) == 2


def test_a_user_and_a_password_and_neither_is_shown() -> None:
    with running("--requirepass", "pass-word") as store:
        shared = Redis(store.url, secret=SECRET, password="pass-word")
        limiter = connected(Limiter(POLICY, agents=10, redis=shared))
        wrong = machine(store.url, password="wrong-word")
        eventually(lambda: (status := wrong.engine()) and status.last_problem)
        seen = wrong.engine()
        assert seen is not None and seen.state == "lost"
        shown = repr((shared, limiter, limiter.engine(), seen))
        assert "pass-word" not in shown and "wrong-word" not in shown and SECRET not in shown
        assert repr(shared) == "<Redis: one server, nodes=1>"


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "needs a url, or sentinels and their master, or a cluster"),
    ({"url": "redis://a", "cluster": ["redis://b"]}, ValueError, "one of these"),
    ({"sentinels": ["redis://a"]}, ValueError, "sentinels and their master"),
    ({"url": "http://hidden-word@a"}, ValueError, "write redis://host:port"),
    ({"url": "redis://a:hidden-word@b#c"}, ValueError, "a URL ends before its #"),
    ({"url": "redis://a", "secret": "hidden-word"}, ValueError, "secret has 11 bytes, and 16 at least are needed"),
    ({"url": "redis://a", "secret": 7}, TypeError, "a secret is a str or bytes, not int"),
    ({"url": "redis://a", "password": "hidden-word\ud800"}, ValueError, "lone surrogate"),
    ({"url": "redis://a", "password": b"hidden-word"}, TypeError, "a str is expected, not bytes"),
    ({"url": "redis://a", "password": ""}, ValueError, "password is empty"),
    ({"url": "redis://a:hidden-word@b", "password": "hidden-word"}, ValueError, "given apart from it"),
    ({"url": "redis://a", "user": "u"}, ValueError, "a user needs a password"),
    ({"url": "redis://a", "tls_ca": "hidden-word"}, ValueError, "write rediss:// instead"),
    ({"url": "rediss://a", "tls_ca": "hidden-word"}, ValueError, "the CA is not PEM"),
    ({"url": "rediss://a", "tls_key": "hidden-word"}, ValueError, "tls_certificate and tls_key go together"),
    ({"url": "redis://a", "nodes": 0}, ValueError, "nodes of 0; allowed: 1 to 65535"),
    ({"url": "redis://a", "nodes": 65_536}, ValueError, "nodes of 65536 is too large"),
    ({"url": "redis://a", "timeout": 2}, ValueError, "notices a lost server too late"),
    ({"url": "redis://a", "when_lost": "maybe"}, ValueError, 'one of "share", "closed", "open", "alone"'),
    ({"url": "redis://a", "lanes": {"api": True}}, TypeError, 'such as {"exact": True}, not bool'),
    ({"url": "redis://a", "lanes": {"api": {"exact": 1}}}, TypeError, 'exact of lane "api": True or False.*not int'),
    ({"url": "redis://a", "lanes": {"api": {"slack": "1"}}}, TypeError, 'slack of lane "api"'),
    ({"url": "redis://a", "lanes": {"api": {"exac": True}}}, ValueError, "exact, slack and when_lost, not 'exac'"),
    ({"url": "redis://a", "node": 3}, TypeError, "node"),
]


@pytest.mark.parametrize("options, error, message", WRONG)
def test_a_wrong_setting_is_named_and_no_secret_is_shown(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        Redis(**{"secret": SECRET, **options})
    assert "hidden-word" not in repr(raised.value) and raised.value.__cause__ is None


def test_what_only_the_policy_shows_to_be_wrong_is_named_by_the_limiter() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"slack": 0}, 'lane "api": a slack of 0 percent; allowed: 1 to 100'),
        ({"excepted": ["none"]}, 'the policy has no lane "none" to share'),
    ]
    for options, message in wrong:
        with pytest.raises(RequestError, match=message) as raised:
            machine("redis://127.0.0.1:1", **options)
        assert raised.value.code == "cluster" and isinstance(raised.value, ValueError)
    with pytest.raises(TollgateError, match="machines share only buckets"):
        Limiter({"lanes": {"ws": "held 2"}}, agents=10, redis=Redis("redis://127.0.0.1:1", secret=SECRET))
    with pytest.raises(TollgateError, match="processes share cannot be shared by machines"):
        Limiter(POLICY, agents=10, shared="/dev/shm/none", redis=Redis("redis://127.0.0.1:1", secret=SECRET))


def test_sentinels_and_a_cluster_are_named_as_such() -> None:
    urls = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"]
    assert repr(Redis(sentinels=urls, master="main", secret=SECRET, nodes=3)) == "<Redis: sentinels, nodes=3>"
    assert repr(Redis(cluster=urls, secret=SECRET)) == "<Redis: a cluster, nodes=1>"
    assert repr(Redis("rediss://127.0.0.1:1", secret=SECRET)) == "<Redis: one server, nodes=1>"
