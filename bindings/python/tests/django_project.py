"""A Django project in one file, for WSGI and for ASGI."""

import sqlite3
import tempfile

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tollgate_limiter import Key, Limiter

FOLDER = tempfile.TemporaryDirectory()
DATABASE = f"{FOLDER.name}/users.sqlite3"
with sqlite3.connect(DATABASE) as made:
    made.execute("CREATE TABLE users (token TEXT, name TEXT)")
    made.execute("INSERT INTO users VALUES ('t-7', 'alice')")


def signed_in(request: HttpRequest) -> str | None:
    """The user of a token, from the database: as `request.user` does, and Django refuses to in a coroutine."""
    if "token" not in request.GET:
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM users WHERE token = %s", [request.GET["token"]])
        found = cursor.fetchone()
    return str(found[0]) if found else None


settings.configure(
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="for tests",
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}},
    MIDDLEWARE=["tollgate_limiter.django.TollgateMiddleware"],
    TOLLGATE={
        "limiter": Limiter({"lanes": {"api": "2/day", "ünlaut": "1/day"}}, agents=100),
        "lane": "api",
        "routes": {"/straße/{id}": "ünlaut"},
        "key": [
            Key.function("a user", lambda request: request.GET.get("user")),
            Key.function("a token", signed_in).prefix("signed-in:"),
            Key.address(),
        ],
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
