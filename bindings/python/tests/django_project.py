"""A Django project in one file, for WSGI and for ASGI."""

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tollgate_limiter import Key, Limiter

settings.configure(
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="for tests",
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["tollgate_limiter.django.TollgateMiddleware"],
    TOLLGATE={
        "limiter": Limiter({"lanes": {"api": "2/day", "ünlaut": "1/day"}}, agents=100),
        "lane": "api",
        "routes": {"/straße/{id}": "ünlaut"},
        "key": [Key.function("a user", lambda request: request.GET.get("user")), Key.address()],
    },
)
django.setup()


def hello(request: HttpRequest, id: int = 0) -> HttpResponse:
    return HttpResponse("hello")


async def hello_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


urlpatterns = [path("", hello), path("async", hello_async), path("straße/<int:id>", hello)]
asgi = get_asgi_application()
wsgi = get_wsgi_application()
