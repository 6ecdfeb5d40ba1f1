"""What the transports for httpx and for httpx2 have in common: each package has classes of its own."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

from .carry import HasPacer
from .pacer import Call


class _Url(Protocol):
    @property
    def scheme(self) -> str: ...
    @property
    def netloc(self) -> bytes: ...
    @property
    def path(self) -> str: ...


class _Request(Protocol):
    method: str
    stream: Any

    @property
    def url(self) -> _Url: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class _Response(Protocol):
    status_code: int

    @property
    def headers(self) -> Mapping[str, str]: ...


def call_of(pacer: HasPacer, request: _Request, package: ModuleType) -> Call:
    """The call of a request. Only a body in memory can be sent twice."""
    if not isinstance(request, package.Request):
        ours, theirs = package.__name__, type(request).__module__.partition(".")[0]
        use = f"use tollgate_limiter.client.{theirs}"
        raise TypeError(f"this transport is for {ours}, and the client is of {theirs}: {use}")
    url = request.url
    of_server = pacer.of(f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}", request.headers)
    may_repeat = isinstance(request.stream, package.ByteStream)
    return of_server.call(request.method, route=f"{request.method} {url.path}", may_repeat=may_repeat)


def head(response: _Response) -> tuple[int, Mapping[str, str]]:
    """The status and the header fields of a response."""
    return response.status_code, response.headers
