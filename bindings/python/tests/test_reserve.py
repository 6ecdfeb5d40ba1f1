"""Charges that are settled later, and slots that are held: nothing stays held, however a block ends."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tollgate_limiter import FullError, Hold, Lane, Limiter, ManualClock, RequestError, Reservation

POLICY = {"lanes": {"llm": "budget 10_000/day", "ws": "held 2", "api": "10/minute"}}


def limiter(**options: Any) -> tuple[Limiter, ManualClock]:
    clock = ManualClock()
    return Limiter(POLICY, agents=100, clock=clock, **options), clock


def left(lane: Lane, agent: str = "a") -> int | None:
    return lane.peek(agent).remaining


def test_an_estimate_is_settled_by_what_was_used() -> None:
    llm = limiter()[0].lane("llm")
    with llm.reserve("a", 4_000, ttl=60) as reservation:
        assert reservation and reservation.verdict.remaining == 6_000
        assert reservation.settle(500, so_far=True).left == 3_500
        settled = reservation.settle(700)
        assert (settled.unused, settled.overspent, settled.left) == (2_800, 0, 0)
    assert left(llm) == 10_000 - 1_200
    with pytest.raises(RequestError, match="settled already") as raised:
        reservation.settle(1)
    assert raised.value.code == "unknown_reservation"


def test_a_block_that_fails_gives_back_what_was_not_reported() -> None:
    llm = limiter()[0].lane("llm")
    with pytest.raises(ZeroDivisionError), llm.reserve("a", 4_000, ttl=60) as reservation:
        reservation.settle(500, so_far=True)
        raise ZeroDivisionError
    assert left(llm) == 9_500
    with llm.reserve("a", 4_000, 60):
        pass
    assert left(llm) == 9_500


def test_an_estimate_that_nobody_settles_stays_charged() -> None:
    limiter_, clock = limiter()
    llm = limiter_.lane("llm")
    reservation = llm.reserve("a", 4_000, ttl=60)
    reservation.extend(90)
    clock.advance(61)
    assert limiter_.stats().reservations == 1
    clock.advance(30)
    with pytest.raises(RequestError, match="has expired"):
        reservation.settle(1)
    with reservation:
        pass
    assert left(llm) == 6_000


def test_a_denied_estimate_is_false_and_has_nothing_to_settle() -> None:
    llm = limiter()[0].lane("llm")
    with llm.reserve("a", 9_000, 60), llm.reserve("a", 2_000, 60) as denied:
        assert not denied and denied.id is None and denied.verdict.decision == "deny"
        with pytest.raises(RequestError, match="was denied"):
            denied.settle(1)
    assert left(llm) == 10_000


def test_a_reservation_is_settled_by_its_number_elsewhere() -> None:
    limiter_, _ = limiter()
    id = limiter_.lane("llm").reserve("a", 100, 60).id
    assert id is not None
    limiter_.extend(id, 120)
    assert limiter_.settle(id, 30).unused == 70


def test_reservations_are_bounded() -> None:
    llm = limiter(reservations=2)[0].lane("llm")
    kept = [llm.reserve("a", 1, 60) for _ in range(2)]
    with pytest.raises(FullError, match="settle some"):
        llm.reserve("b", 1, 60)
    assert all(kept) and left(llm, "b") == 10_000


def test_a_slot_is_held_until_the_block_ends() -> None:
    ws = limiter()[0].lane("ws")
    assert ws.is_held
    with ws.hold("a") as first, ws.hold("a") as second:
        assert first and second and second.verdict.remaining == 0
        denied = ws.hold("a")
        assert not denied and denied.verdict.retry_after is None
        with denied:
            pass
        assert left(ws) == 0
        first.release()
        first.release()
        assert left(ws) == 1
    assert left(ws) == 2


def test_a_slot_that_nothing_refers_to_is_released() -> None:
    ws = limiter()[0].lane("ws")
    hold = ws.hold("a")
    assert hold and left(ws) == 1
    del hold
    gc.collect()
    assert left(ws) == 2


def test_slots_that_no_object_stands_for_are_released_by_hand() -> None:
    limiter_, _ = limiter()
    ws = limiter_.lane("ws")
    assert ws.hold_until_released("a", 2).remaining == 0
    assert ws.release("a", 2).remaining == 2
    with pytest.raises(RequestError) as raised:
        ws.release("a")
    assert raised.value.code == "not_held"
    with pytest.raises(RequestError) as refused:
        limiter_.lane("api").hold("a")
    assert refused.value.code == "wrong_kind" and not limiter_.lane("api").is_held


Enter = Callable[[Lane], Reservation | Hold]
ENTERED: list[Enter] = [lambda lane: lane.reserve("a", 2, ttl=60), lambda lane: lane.hold("a", 2)]


@pytest.mark.parametrize(("lane", "enter"), list(zip(["api", "ws"], ENTERED, strict=True)), ids=["reserve", "hold"])
@pytest.mark.parametrize("steps", range(12))
def test_a_task_that_is_cancelled_anywhere_leaves_nothing_held(lane: str, enter: Enter, steps: int) -> None:
    """The task is cancelled after each number of turns of the loop in turn, from before it starts to after it ends."""
    of = limiter()[0].lane(lane)
    full = left(of)

    async def work() -> None:
        await asyncio.sleep(0)
        async with enter(of) as entered:
            assert entered
            await asyncio.sleep(0)
            async with enter(of):
                await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def cancel() -> bool:
        task = asyncio.ensure_future(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        was_running = task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return was_running

    was_running = asyncio.run(cancel())
    assert was_running == (steps < 6)
    assert left(of) == full


def test_a_timeout_inside_a_reservation_gives_it_back() -> None:
    llm = limiter()[0].lane("llm")

    async def stream() -> None:
        async with llm.reserve("a", 4_000, ttl=60) as reservation:
            reservation.settle(10, so_far=True)
            await asyncio.Event().wait()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(stream(), timeout=0.01)

    asyncio.run(main())
    assert left(llm) == 9_990


def test_the_end_of_an_async_block_releases_what_is_still_referred_to() -> None:
    ws = limiter()[0].lane("ws")

    async def main() -> Hold:
        async with ws.hold("a") as hold:
            assert hold and left(ws) == 1
        return hold

    hold = asyncio.run(main())
    assert hold and left(ws) == 2


def test_many_tasks_share_slots() -> None:
    ws = limiter()[0].lane("ws")
    most = 0

    async def connection() -> bool:
        nonlocal most
        async with ws.hold("a") as hold:
            if not hold:
                return False
            most = max(most, 2 - (left(ws) or 0))
            await asyncio.sleep(0)
            return True

    async def main() -> list[bool]:
        tasks: list[Coroutine[Any, Any, bool]] = [connection() for _ in range(50)]
        return await asyncio.gather(*tasks)

    assert sum(asyncio.run(main())) >= 2 and most <= 2
    assert left(ws) == 2
