"""Limits for Django, under WSGI and under ASGI.

In settings.py, behind the middleware that signs users in if keys need them:

    MIDDLEWARE = [..., "tollgate_limiter.django.TollgateMiddleware"]
    TOLLGATE = {"limiter": Limiter({"lanes": {"api": "100/minute"}})}
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django import conf
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse

from ._adapter import gate_of, with_limits

if TYPE_CHECKING:
    from ._settings import Settings

__all__ = ["TollgateMiddleware"]


class TollgateMiddleware:
    """Limits the requests of a project, as ``settings.TOLLGATE`` says: ``limiter`` and the settings of ``Gate``, or
    ``gate``. Functions are called with the request."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        given = dict(getattr(conf.settings, "TOLLGATE", {}))
        try:
            self.gate = gate_of(given.pop("limiter", None), given.pop("gate", None), cast("Settings", given))
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"settings.TOLLGATE: {error}") from error
        self._single = self.gate.headers == "legacy"
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self._is_async:
            return self._call_async(request)
        ruling = self._rule(request)
        if isinstance(ruling, HttpResponse):
            return ruling
        return self._with_limits(self.get_response(request), ruling)

    async def _call_async(self, request: HttpRequest) -> HttpResponse:
        try:
            ruling = self._rule(request)
        except SynchronousOnlyOperation:
            # A function asks the database, as `request.user` does for a signed-in user. Nothing was charged yet.
            ruling = await sync_to_async(self._rule)(request)
        if isinstance(ruling, HttpResponse):
            return ruling
        return self._with_limits(await self.get_response(request), ruling)

    def _rule(self, request: HttpRequest) -> HttpResponse | list[tuple[str, str]] | None:
        ruling = self.gate.wsgi(request.META, request, path=request.path_info)
        if ruling is None or isinstance(ruling, list):
            return ruling
        status, headers, body = ruling
        response = HttpResponse(body, status=status)
        del response["content-type"]  # Django's own.
        for name, value in headers:
            response[name] = value
        return response

    def _with_limits(self, response: HttpResponse, limits: list[tuple[str, str]] | None) -> HttpResponse:
        if limits:
            # Django has one value for each name: the values of a list are joined.
            joined: dict[str, str] = {}
            for name, value in with_limits(response.items(), limits, self._single):
                key = next((key for key in joined if key.lower() == name.lower()), name)
                joined[key] = f"{joined[key]}, {value}" if key in joined else value
            for name, value in joined.items():
                response[name] = value
        return response
