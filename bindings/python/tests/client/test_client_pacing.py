"""Many requests at once, on a loop whose time does not pass by itself."""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import virtual

from tollgate_limiter.client import Pacer, RateLimited, carry_async

Answer = tuple[int, dict[str, str]]


@dataclass
class Bucket:
    """A server with a token bucket that answers as tollgate does, after the time a network takes."""

    capacity: int
    rate: float
    latency: Callable[[], float] = lambda: 0.0
    answers: list[int] = field(default_factory=list)
    tokens: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = float(self.capacity)

    async def send(self) -> Answer:
        await asyncio.sleep(self.latency())
        answer = self.decide()
        await asyncio.sleep(self.latency())
        return answer

    def decide(self) -> Answer:
        now = asyncio.get_running_loop().time()
        self.tokens = min(self.capacity, self.tokens + (now - self.at) * self.rate)
        self.at = now
        allowed = self.tokens >= 1
        self.tokens -= allowed
        self.answers.append(200 if allowed else 429)
        next_in = math.ceil((math.floor(self.tokens) + 1 - self.tokens) / self.rate)
        headers = {
            "RateLimit-Policy": f'"x";q={self.capacity};w={math.ceil(self.capacity / self.rate)}',
            "RateLimit": f'"x";r={math.floor(self.tokens)};t={next_in}',
        }
        return (200, headers) if allowed else (429, headers | {"Retry-After": str(next_in)})


@dataclass
class Window:
    """A server that lets `limit` requests through in each window, and answers with `X-RateLimit`."""

    limit: int
    seconds: int
    answers: list[int] = field(default_factory=list)
    window: int = -1
    used: int = 0

    async def send(self) -> Answer:
        await asyncio.sleep(0.01)
        now = asyncio.get_running_loop().time()
        if int(now / self.seconds) != self.window:
            self.window, self.used = int(now / self.seconds), 0
        allowed = self.used < self.limit
        self.used += allowed
        self.answers.append(200 if allowed else 429)
        headers = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.limit - self.used),
            "X-RateLimit-Reset": str(int(virtual.START) + (self.window + 1) * self.seconds),
        }
        return 200 if allowed else 429, headers


async def work(server: Bucket | Window, pacer: Pacer, requests: int, workers: int) -> float:
    """Sends requests from several workers. Returns how long it took."""
    left = iter(range(requests))

    async def discard(answer: Answer) -> None:
        pass

    async def worker() -> None:
        for _ in left:
            status, _ = await carry_async(pacer.call("POST"), server.send, lambda answer: answer, discard)
            assert status == 200

    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*(worker() for _ in range(workers)))
    assert pacer.is_idle
    return loop.time() - started


def test_a_paced_client_meets_no_429_and_loses_no_time() -> None:
    async def main() -> None:
        server = Bucket(20, 20.0, latency=lambda: 0.002)
        took = await work(server, virtual.pacer(), 200, 8)
        assert server.answers == [200] * 200
        assert took <= 1.02 * (200 - 20) / 20

    virtual.run(main())


@pytest.mark.parametrize("seed", range(60))
def test_no_bucket_and_no_network_makes_a_lone_client_meet_a_429(seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        capacity, slowest = chance.randint(1, 60), chance.choice([0.0, 0.01, 0.3, 2.0])
        # In whole seconds, so that the window says exactly how fast the bucket fills.
        rate = capacity / chance.randint(1, 60)
        server = Bucket(capacity, rate, latency=lambda: chance.uniform(0, slowest))
        workers = chance.choice([1, 2, 8, 30])
        took = await work(server, virtual.pacer(max_wait=math.inf), 150, workers)
        assert server.answers.count(429) == 0, (capacity, rate, slowest, workers)
        ideal = max(0, 150 - capacity) / rate + 150 / workers * slowest + 4 * slowest
        # With a bucket this small nothing else can be sent while a request is on its way.
        alone = 150 * 2 * slowest if capacity < 4 else 0.0
        assert took <= 1.1 * ideal + alone + 1 / rate + 1, (capacity, rate, slowest, workers, took / ideal)

    virtual.run(main())


def test_two_clients_of_one_agent_share_what_there_is() -> None:
    async def main() -> None:
        server = Bucket(20, 20.0, latency=lambda: 0.002)
        times = await asyncio.gather(work(server, virtual.pacer(), 150, 8), work(server, virtual.pacer(), 150, 8))
        assert server.answers.count(200) == 300
        assert server.answers.count(429) <= 60, "neither knows of the other, and each learns from what is left"
        assert max(times) <= 2 * (300 - 20) / 20

    virtual.run(main())


def test_a_window_is_used_up_and_then_waited_for() -> None:
    async def main() -> None:
        server = Window(30, 60)
        took = await work(server, virtual.pacer(max_wait=90), 100, 8)
        assert server.answers == [200] * 100
        assert 180 <= took <= 182

    virtual.run(main())


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    async def main() -> None:
        server, pacer = Bucket(2, 0.5, latency=lambda: 0.1), virtual.pacer()
        await work(server, pacer, 1, 1)
        tasks = [asyncio.create_task(work(server, pacer, 1, 1)) for _ in range(8)]
        await asyncio.sleep(0.15)
        # One is on its way, and the others wait.
        for task in tasks:
            task.cancel()
        gone = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in gone)
        assert pacer.is_idle
        await work(server, pacer, 3, 2)
        assert server.answers.count(429) == 0

    virtual.run(main())


def test_requests_for_which_the_queue_is_too_long_are_not_kept_waiting() -> None:
    async def main() -> None:
        server, pacer = Bucket(1, 0.1), virtual.pacer(max_wait=25)
        asked = [asyncio.create_task(work(server, pacer, 1, 1)) for _ in range(6)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        late = [error for error in done if isinstance(error, RateLimited)]
        assert len(late) == 3 and server.answers == [200] * 3
        assert sorted(round(error.retry_after) for error in late) == [30, 40, 50]
        assert pacer.is_idle

    virtual.run(main())


def test_a_lone_client_that_is_refused_comes_back_once_for_all() -> None:
    """Nothing is known of the limit: of eight waiting workers one goes first, and the others follow it."""

    async def main() -> None:
        answers: list[int] = []
        until = 30.0

        async def send() -> Answer:
            await asyncio.sleep(0.01)
            allowed = asyncio.get_running_loop().time() >= until
            answers.append(200 if allowed else 429)
            return (200, {}) if allowed else (429, {})

        async def discard(answer: Answer) -> None:
            pass

        pacer = virtual.pacer()
        calls = [carry_async(pacer.call(), send, lambda answer: answer, discard) for _ in range(8)]
        assert [status for status, _ in await asyncio.gather(*calls)] == [200] * 8
        assert answers.count(429) == 5, "after 1, 2, 4, 8 and 16 s, and not 8 times as often"

    virtual.run(main())
