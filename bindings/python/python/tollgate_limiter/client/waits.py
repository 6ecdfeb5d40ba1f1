"""How long to wait where the server does not say."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """Exponential waits, with jitter.

    They count if a refusal has no usable `Retry-After`. Jitter is added to every wait, also to
    one that the server asked for, and never taken off it.
    """

    first: float = 1.0
    """Seconds to wait after the first refusal."""
    factor: float = 2.0
    """Each further refusal multiplies the wait by this."""
    longest: float = 300.0
    """The longest wait, without its jitter. A longer one that the server asks for is honoured."""
    jitter: float = 0.1
    """At most this part of a wait is added to it, at random."""
    after_success: float = 0.0
    """What a success leaves of the wait; never less than `first`."""
    spacing: float = 0.0
    """Seconds between one request and the next."""

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.longest < float("inf")):
            raise ValueError(f"first is {self.first} and longest {self.longest}: use 0 < first <= longest")
        if not (1 <= self.factor < float("inf")):
            raise ValueError(f"factor is {self.factor}: use 1 or more")
        if not (0 <= self.jitter <= 1 and 0 <= self.after_success <= 1):
            raise ValueError("jitter and after_success are parts of a wait: use 0 to 1")
        if not (0 <= self.spacing < float("inf")):
            raise ValueError(f"spacing is {self.spacing}: use seconds, 0 or more")

    def grown(self, wait: float) -> float:
        """The wait after this one."""
        return min(self.longest, wait * self.factor)

    def shrunk(self, wait: float) -> float:
        """The wait after a success."""
        return max(self.first, wait * self.after_success)


GENTLE = Waits(longest=60.0, after_success=0.9, spacing=0.5)
"""For a client in no hurry: waits of at most a minute, which successes shorten by a tenth each,
and half a second between requests."""
