"""A pause for a server that fails."""

from dataclasses import dataclass, field


@dataclass
class Breaker:
    """Opens after `failures` in a row, for `seconds`; then one request probes the server.

    A failure is a connection that breaks or a status of 500 and above. A 429 is not a failure:
    the server is well, and says when to come back.
    """

    failures: int = 5
    seconds: float = 60.0
    _in_a_row: int = field(default=0, init=False)
    _opened_at: float | None = field(default=None, init=False)
    _probe: object | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.failures < 1 or not (0 < self.seconds < float("inf")):
            raise ValueError(f"{self.failures} failures, {self.seconds} s: use at least 1, and more than 0 s")

    @property
    def is_open(self) -> bool:
        """Whether requests are refused, a probe aside."""
        return self._opened_at is not None

    def delay(self, now: float) -> float:
        """Seconds until a request may be sent; 0 if it may be sent now."""
        if self._opened_at is None:
            return 0.0
        left = self._opened_at + self.seconds - now
        return left if left > 0 else 1.0 if self._probe is not None else 0.0

    def sent(self, request: object) -> None:
        """A request was sent: the probe, if the breaker is open."""
        if self._opened_at is not None:
            self._probe = request

    def came_back(self, request: object, failed: bool, now: float) -> None:
        """How that request ended. While the breaker is open, the probe alone counts."""
        if self._opened_at is not None and self._probe is not request:
            return
        self._in_a_row = self._in_a_row + 1 if failed else 0
        if failed and (self._probe is request or self._in_a_row >= self.failures):
            self._opened_at = now
        elif not failed:
            self._opened_at = None
        self._probe = None

    def given_up(self, request: object) -> None:
        """That request was cancelled: if it was the probe, another may go."""
        if self._probe is request:
            self._probe = None
