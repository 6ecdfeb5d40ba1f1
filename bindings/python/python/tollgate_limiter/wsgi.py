"""Limits for any WSGI app: Flask, Bottle, Pyramid.

    app.wsgi_app = TollgateMiddleware(app.wsgi_app, limiter=Limiter({"lanes": {"api": "100/minute"}}))
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ._adapter import gate_of, with_limits
from ._native import Gate, Limiter

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from typing_extensions import Unpack

    from ._settings import Settings

__all__ = ["TollgateMiddleware"]


class TollgateMiddleware:
    """Limits the requests of an app. The settings are those of ``Gate``; functions are called with the environ."""

    def __init__(
        self,
        app: WSGIApplication,
        limiter: Limiter | None = None,
        *,
        gate: Gate | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        self.app = app
        self.gate = gate_of(limiter, gate, settings)
        self._single = self.gate.headers == "legacy"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        ruling = self.gate.wsgi(environ)
        if ruling is None:
            return self.app(environ, start_response)
        if isinstance(ruling, list):
            limits = ruling

            def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
                return start_response(status, with_limits(headers, limits, self._single), *exc_info)

            return self.app(environ, start)
        status, headers, body = ruling
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]
