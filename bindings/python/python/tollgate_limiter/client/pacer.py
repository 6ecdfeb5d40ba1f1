"""A client's pace: when the next request may be sent.

`Pacer` keeps what all requests of one agent to one server have in common, and `Call` is one
request. Neither sends, sleeps or starts anything: a transport asks `Call.delay`, sleeps that
long, asks again, sends, and reports what came back. So threads, asyncio and tests on a clock of
their own share these rules:

- Until the first response one request goes alone, and the others wait for what it learns.
- Requests queue for the tokens that the server has left, and go when theirs is there.
- A refusal makes all of them wait, once: as long as the server says, else exponentially.
"""

import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import TracebackType

from .breaker import Breaker
from .errors import CircuitOpen, RateLimited
from .headers import Limits, read
from .mirror import Mirror
from .waits import Waits

_LOOK_AGAIN = 0.02
"""Seconds after which a request that waits for another's response looks again."""
_ALONE_MAX = 5.0
"""Seconds after which the next request goes, even if the one that went alone has no response yet."""
_ROUTES_MAX = 1024
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})

_deadline: ContextVar[float | None] = ContextVar("tollgate_deadline", default=None)


@contextmanager
def deadline(seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Within this block no request waits beyond this time from now: it raises `RateLimited`.

    Of two blocks inside each other the earlier deadline counts.
    """
    outer, own = _deadline.get(), clock() + seconds
    token = _deadline.set(own if outer is None else min(own, outer))
    try:
        yield
    finally:
        _deadline.reset(token)


class Pacer:
    """The pace of one agent at one server. Threads and tasks may share it."""

    def __init__(
        self,
        *,
        waits: Waits = Waits(),
        max_wait: float = 60.0,
        retries: int = 5,
        breaker: Breaker | None = None,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        """
        `max_wait` is the longest wait in seconds; a longer one raises `RateLimited`. A refused
        request is sent again up to `retries` times. Without `breaker` it has one of 5 failures
        and 60 s. `clock`, `unix_clock` and `uniform` stand in for the time and for chance.
        """
        if not max_wait >= 0 or retries < 0:
            raise ValueError(f"max_wait is {max_wait} and retries {retries}: use 0 or more")
        self._waits, self._max_wait, self._retries = waits, max_wait, retries
        self._breaker = Breaker() if breaker is None else replace(breaker)
        self._clock, self._unix_clock, self._uniform = clock, unix_clock, uniform
        self._lock = threading.Lock()
        self._mirrors: dict[str, Mirror] = {}
        self._routes: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._names: tuple[str, ...] = ()
        self._queue: deque[Call] = deque()
        self._in_flight = 0
        self._answered = 0
        self._alone = True
        self._sent_at = self._refused_at = self._wait_until = self._asked_until = float("-inf")
        self._spaced_until = float("-inf")
        self._wait = waits.first

    def call(self, method: str = "GET", *, route: str = "", may_repeat: bool = True) -> "Call":
        """A request. `route` is what its limits depend on, such as its path.

        With `may_repeat=False`, for a body that cannot be sent twice, a refusal is handed on.
        """
        return Call(self, method.upper(), route, may_repeat)

    def of(self, origin: str, headers: Mapping[str, str]) -> "Pacer":
        """This one, whatever the server and the credential: `Pacers` tells them apart."""
        return self

    @property
    def is_idle(self) -> bool:
        """Whether no request is on its way or waits."""
        return not self._in_flight and not self._queue

    # --- What `Call` does, under the lock.

    def _delay(self, call: "Call") -> float:
        now = self._clock()
        if call not in self._queue:
            self._queue.append(call)
        open_for = self._breaker.delay(now)
        if open_for > 0:
            raise CircuitOpen("the server keeps failing", open_for, self._unix_clock() + open_for)
        if now < self._wait_until:
            self._allow_wait(max(0.0, self._asked_until - now), now)
            return self._wait_until - now
        delay = self._token_in(call, now)
        if delay > 0:
            self._allow_wait(delay, now)
            return delay
        self._queue.remove(call)
        taken = self._of(call)
        for mirror in taken:
            mirror.taken(now, self._in_flight)
        call._sent(now, taken, self._answered)
        self._in_flight += 1
        self._sent_at, self._spaced_until = now, now + self._waits.spacing
        self._breaker.sent(call)
        return 0.0

    def _token_in(self, call: "Call", now: float) -> float:
        """Seconds until the request may be sent, or should look again."""
        is_alone = self._in_flight == 0 or now - self._sent_at >= _ALONE_MAX
        longest = max(0.0, self._spaced_until - now)
        if self._alone and not is_alone:
            longest = max(longest, _LOOK_AGAIN)
        mirrors = self._of(call)
        place = self._queue.index(call) if mirrors else 0
        for mirror in mirrors:
            delay = mirror.delay(place, now, self._in_flight)
            longest = max(longest, (0.0 if is_alone else _LOOK_AGAIN) if delay is None else delay)
        return longest

    def _allow_wait(self, wait: float, now: float) -> None:
        latest = _deadline.get()
        if wait > self._max_wait:
            why = f"the wait is longer than max_wait, {self._max_wait:g} s"
        elif latest is not None and now + wait > latest:
            why = "the wait ends after the deadline"
        else:
            return
        raise RateLimited(why, wait, self._unix_clock() + wait)

    def _of(self, call: "Call") -> list[Mirror]:
        names = self._routes.get(call.route, self._names)
        return [self._mirrors[name] for name in names if name in self._mirrors]

    def _came_back(self, call: "Call", status: int, limits: Limits) -> bool:
        """Learns from a response. Returns whether to send the request again."""
        now = self._clock()
        self._landed(call, now)
        others = self._in_flight + self._answered - 1 - call._answered_before
        heard = [self._mirrors.setdefault(quota.name, Mirror()) for quota in limits.quotas]
        for mirror, quota in zip(heard, limits.quotas):
            mirror.heard(quota, now, now - call._sent_at, others, self._in_flight)
        for mirror in call._taken if heard else []:
            if mirror not in heard:
                mirror.given_back()
        if status < 500:
            self._remember(call, tuple(quota.name for quota in limits.quotas))
        self._breaker.came_back(call, status >= 500, now)
        if not _is_refusal(status, limits):
            if status < 500 and call._sent_at > self._refused_at:
                self._wait = self._waits.shrunk(self._wait)
                self._spaced_until = now + self._waits.spacing
            self._alone = False
            return False
        asked = _asked(limits)
        # Requests that were on their way when the first was refused belong to the same moment.
        if call._sent_at > self._refused_at:
            grown, self._wait = self._wait, self._waits.grown(self._wait)
            self._refused_at = now
        else:
            grown = 0.0
        wait = asked or grown
        self._asked_until = max(self._asked_until, now + wait)
        self._wait_until = max(self._wait_until, now + wait * (1 + self._waits.jitter * self._uniform()))
        # What is left after that wait is not known: one request goes first.
        self._alone = True
        not_done = status in (403, 429) or call.method in _IDEMPOTENT
        return not_done and call.may_repeat and call._refusals <= self._retries

    def _failed(self, call: "Call", now: float) -> None:
        self._landed(call, now)
        self._breaker.came_back(call, True, now)

    def _given_up(self, call: "Call", now: float) -> None:
        self._landed(call, now)
        self._breaker.given_up(call)

    def _landed(self, call: "Call", now: float) -> None:
        for mirror in call._taken:
            mirror.refill(now, self._in_flight)
        self._in_flight -= 1
        self._answered += 1

    def _remember(self, call: "Call", names: tuple[str, ...]) -> None:
        if len(self._mirrors) > _ROUTES_MAX:
            self._mirrors.clear()  # No server has as many limits; this one makes up names.
        self._names = names
        self._routes[call.route] = names
        self._routes.move_to_end(call.route)
        if len(self._routes) > _ROUTES_MAX:
            self._routes.popitem(last=False)


class Call:
    """One request: when to send it, and whether to send it again.

    ```
    with pacer.call("POST") as call:
        while True:
            while (delay := call.delay()) > 0:
                sleep(delay)
            response = send()
            if not call.answered(response.status, response.headers):
                return response
    ```

    Leaving the block forgets the request, however it ended.
    """

    def __init__(self, pacer: Pacer, method: str, route: str, may_repeat: bool) -> None:
        self._pacer, self.method, self.route, self.may_repeat = pacer, method, route, may_repeat
        self._sent_at = 0.0
        self._taken: list[Mirror] = []
        self._answered_before = 0
        self._refusals = 0
        self._is_sent = False

    def delay(self) -> float:
        """Seconds to sleep before asking again; 0 if the request has to be sent now.

        Raises `RateLimited` if the wait is too long, and `CircuitOpen` if the server keeps failing.
        """
        with self._pacer._lock:
            return 0.0 if self._is_sent else self._pacer._delay(self)

    def answered(self, status: int, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> bool:
        """A response came. Returns whether to send the request again, once `delay` allows it."""
        pacer = self._pacer
        limits = read(headers, pacer._unix_clock())
        with pacer._lock:
            if not self._is_sent:
                return False
            self._is_sent = False
            self._refusals += 1
            return pacer._came_back(self, status, limits)

    def failed(self) -> None:
        """No response came: the connection broke."""
        with self._pacer._lock:
            if self._is_sent:
                self._is_sent = False
                self._pacer._failed(self, self._pacer._clock())

    def close(self) -> None:
        """The request is over. If it was cancelled on its way, that is no failure of the server."""
        with self._pacer._lock:
            if self._is_sent:
                self._is_sent = False
                self._pacer._given_up(self, self._pacer._clock())
            if self in self._pacer._queue:
                self._pacer._queue.remove(self)

    def _sent(self, now: float, taken: list[Mirror], answered: int) -> None:
        self._is_sent, self._sent_at = True, now
        self._taken, self._answered_before = taken, answered

    def __enter__(self) -> "Call":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self._is_sent:
            self.failed()
        self.close()


def _is_refusal(status: int, limits: Limits) -> bool:
    """429, and what GitHub and busy servers answer in its place."""
    if status == 403:
        return limits.retry_after is not None or limits.is_used_up
    return status == 429 or (status in (503, 529) and limits.retry_after is not None)


def _asked(limits: Limits) -> float:
    """The wait that a refusal asks for; 0 if it does not say."""
    if limits.retry_after:
        return limits.retry_after
    return max((quota.more_in or 0.0 for quota in limits.quotas if quota.remaining < 1), default=0.0)
