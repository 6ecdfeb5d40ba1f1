"""A pacer for each server and credential."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

from .pacer import Pacer

_CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-agent-id")


class Pacers:
    """Makes a `Pacer` for each server and credential, since each has limits of its own.

    The credential is what stands in `Authorization`, `X-Api-Key`, `Api-Key` and `X-Agent-Id`; its
    hash is kept. Beyond `pacers_max` the one that was used least recently is forgotten.
    """

    def __init__(self, make: Callable[[], Pacer] = Pacer, *, pacers_max: int = 1024) -> None:
        if pacers_max < 1:
            raise ValueError(f"pacers_max is {pacers_max}: use 1 or more")
        self._make, self._pacers_max = make, pacers_max
        self._pacers: OrderedDict[bytes, Pacer] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, origin: str, headers: Mapping[str, str]) -> Pacer:
        """The pacer of requests to this server with these header fields."""
        parts = [origin, *(str(headers.get(name, "")) for name in _CREDENTIALS)]
        key = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).digest()
        with self._lock:
            if key not in self._pacers:
                self._pacers[key] = self._make()
                self._forget_one()
            self._pacers.move_to_end(key)
            return self._pacers[key]

    def _forget_one(self) -> None:
        # One that is in use stays: its requests would find another, and go past its wait.
        if len(self._pacers) > self._pacers_max:
            idle = next((key for key, pacer in self._pacers.items() if pacer.is_idle), None)
            if idle is not None:
                del self._pacers[idle]
