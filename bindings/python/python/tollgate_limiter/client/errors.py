"""What a request that was not sent, or not sent again, raises."""


class TryLater(Exception):
    """The request may be sent later: `RateLimited` or `CircuitOpen`."""

    retry_after: float
    """Seconds to wait, counted from when this was raised."""
    retry_at: float
    """The Unix time at which that wait is over."""

    def __init__(self, why: str, retry_after: float, retry_at: float) -> None:
        super().__init__(why, retry_after, retry_at)
        self.retry_after = retry_after
        self.retry_at = retry_at

    def __str__(self) -> str:
        return f"{self.args[0]}; try again in {self.retry_after:.3g} s"


class RateLimited(TryLater):
    """The wait is longer than `max_wait`, or than the caller's deadline."""


class CircuitOpen(TryLater):
    """The server has failed too often in a row, and gets a pause."""
