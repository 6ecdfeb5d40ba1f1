"""Paces `requests.Session`.

>>> import requests
>>> from tollgate_limiter.client.requests import pace
>>> session = pace(requests.Session())
"""

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from .carry import HasPacer, carry
from .pacers import Pacers


class PacedAdapter(HTTPAdapter):
    """Sends requests, each when its limits allow it.

    A refused request is sent again, unless its body is a stream. Leave `max_retries` at 0: retries
    of urllib3 would not wait for the pacer.
    """

    def __init__(
        self,
        *,
        pacer: HasPacer | None = None,
        sleep: Callable[[float], object] = time.sleep,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._pacer = Pacers() if pacer is None else pacer
        self._sleep = sleep

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Sends a request, and again if it was refused."""
        url = urlsplit(str(request.url))
        method = request.method or "GET"
        may_repeat = request.body is None or isinstance(request.body, (bytes, str))
        pacer = self._pacer.of(f"{url.scheme}://{url.netloc}", _text(request.headers))
        call = pacer.call(method, route=f"{method} {url.path}", may_repeat=may_repeat)
        send = super().send
        return carry(call, lambda: send(request, *args, **options), _head, requests.Response.close, self._sleep)


def pace(session: requests.Session, *, pacer: HasPacer | None = None) -> requests.Session:
    """Mounts one `PacedAdapter` for all requests of a session, and returns the session."""
    adapter = PacedAdapter(pacer=pacer)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _text(headers: Mapping[str, str | bytes]) -> dict[str, str]:
    values = ((name, value.decode("latin-1") if isinstance(value, bytes) else value) for name, value in headers.items())
    return {name.lower(): value for name, value in values}


def _head(response: requests.Response) -> tuple[int, Mapping[str, str]]:
    return response.status_code, response.headers
