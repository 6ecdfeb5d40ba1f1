"""What a client thinks is left of one quota."""

from .headers import Quota

_DRIFT = 0.001
"""Two clocks differ by less than this, and so does our pace from the server's."""
_DUST = 1e-9
"""What is lost when floats are added up."""


class Mirror:
    """A token bucket that follows the server's, and has at most as much left.

    A request takes its token here when it is sent, and there when it arrives, so on the way
    this one is ahead. A response cannot say which of the requests on their way it has counted
    already: what is left lies between its number less all of them, and its number. While our own
    count lies in between, it is the better one; else somebody else uses the quota too, or
    requests cost more than one, and the lower bound takes its place.
    """

    def __init__(self) -> None:
        self._left = float("-inf")
        self._at = 0.0
        self._rate = 0.0
        """Tokens a second; 0 if they come back all at once, or nobody knows when."""
        self._limit: float | None = None
        self._more_at: float | None = None
        self._counts = True

    def heard(self, quota: Quota, now: float, latency: float, others: int, in_flight: int) -> None:
        """A response has reported the quota.

        `others` is how many other requests the server may have counted after it wrote this.
        """
        self.refill(now, in_flight)
        rate = quota.limit / quota.window if quota.limit and quota.window else 0.0
        more_in = quota.more_in
        if more_in is not None and (more_in - 1) * rate > 1:
            rate = 0.0  # More than one token will come by then, so they come all at once.
        least = most = quota.remaining
        if rate:
            # Whole tokens are reported, and whole seconds, rounded up.
            most += 1 + rate * latency
            least = max(least, least + 1 - more_in * rate) if more_in is not None else least
        if not quota.counts_requests:
            self._left = quota.remaining
        elif not least - others <= self._left <= most:
            self._left = least - others
        self._rate, self._limit, self._counts = rate * (1 - _DRIFT), quota.limit, quota.counts_requests
        self._more_at = None if rate or more_in is None else now + more_in

    def refill(self, now: float, in_flight: int) -> None:
        """Adds what has come since the last call; until now `in_flight` requests were on their way."""
        passed, self._at = max(0.0, now - self._at), now
        if self._rate and self._limit is not None:
            # What is on its way has still to be taken from the server's bucket, even from a full one.
            self._left = max(self._left, min(self._limit - in_flight, self._left + passed * self._rate))
        elif self._more_at is not None and now >= self._more_at:
            # One goes and sees how much it is.
            self._left, self._more_at = max(self._left, 1.0), None

    def taken(self, now: float, in_flight: int) -> None:
        """A request was sent."""
        self.refill(now, in_flight)
        if self._counts:
            self._left -= 1

    def given_back(self) -> None:
        """That request turned out to count for other quotas."""
        if self._counts:
            self._left += 1

    def delay(self, place: int, now: float, in_flight: int) -> float | None:
        """Seconds until there is a token for the request at this place of the queue, from 0.

        `None` if nobody knows: one request may go and see.
        """
        self.refill(now, in_flight)
        needed = place + 1 if self._counts else 1
        if self._left >= needed - _DUST:
            return 0.0
        if self._rate:
            return (needed - self._left) / self._rate
        return None if self._more_at is None else self._more_at - now
