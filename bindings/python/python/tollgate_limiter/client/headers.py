"""What a response says of the caller's limits: header fields in, `Limits` out.

| fields | sent by |
|---|---|
| `RateLimit`, `RateLimit-Policy`: `"api";r=3;t=6`, `"api";q=10;w=60` | tollgate, and drafts 8 to 10 of the IETF |
| `RateLimit: limit=10, remaining=3, reset=6`; `RateLimit-Limit`, `-Remaining`, `-Reset` | drafts 7 and 6 |
| `X-RateLimit-Limit`, `-Remaining`, `-Reset`, `-Reset-After`, `-Resource`; `X-Rate-Limit-*` | GitHub and many others |
| `X-RateLimit-Remaining-Requests` and so on, with resets such as `6m0s` | OpenAI, Groq and servers like them |
| `Anthropic-RateLimit-Requests-Remaining` and so on, with resets in RFC 3339 | Anthropic |
| `Retry-After`: seconds, a fraction, a date; `Retry-After-Ms` | everybody |

Nothing here raises: a field that cannot be understood counts as absent. A wait is never shorter
than the server says. An instant is compared with the response's own `Date`, so that a wrong clock
on this side makes no wait shorter.
"""

import calendar
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

SECONDS_MAX = 1e15
"""No wait is longer: 15 digits, as many as an Integer of a Structured Field has."""
_FIELD_MAX = 8192
_QUOTAS_MAX = 32


@dataclass(frozen=True)
class Quota:
    """One limit, as a response reports it."""

    name: str
    """Its name; empty if the fields have none."""
    remaining: float
    limit: float | None = None
    """How much there is in all."""
    window: float | None = None
    """Seconds in which an empty quota fills, if it fills steadily."""
    more_in: float | None = None
    """Seconds until more is left."""
    counts_requests: bool = True
    """False for tokens, bytes and whatever else a request takes an unknown amount of."""


@dataclass(frozen=True)
class Limits:
    """What a response says of the caller's limits."""

    quotas: tuple[Quota, ...] = ()
    retry_after: float | None = None
    """Seconds that a refused caller should wait, from the arrival of the response."""
    is_used_up: bool = False
    """Whether `X-RateLimit-Remaining` is 0, which makes a 403 a refusal."""


def read(headers: Mapping[str, str] | Iterable[tuple[str, str]], unix_now: float) -> Limits:
    """Reads the limits out of a response's header fields."""
    fields: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        name = name.lower()
        if len(value) <= _FIELD_MAX:
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    date = _http_date(fields.get("date", ""))
    now = unix_now if date is None else date
    quotas = _draft_10(fields) or _draft_7(fields) or _draft_6(fields) or _legacy(fields, now)
    quotas = [*quotas, *_by_suffix(fields, now)]
    # A reset that has passed is now, not in the past.
    quotas = [replace(q, more_in=None if q.more_in is None else max(0.0, q.more_in)) for q in quotas]
    used_up = _number(fields.get("x-ratelimit-remaining", "")) == 0
    return Limits(tuple(quotas[:_QUOTAS_MAX]), _retry_after(fields, now), used_up)


# --- Waits and instants.

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|us|µs|ns|s|m|h|d)", re.ASCII)
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _number(text: str) -> float | None:
    """A plain number, the first of a list."""
    text = text.split(",")[0].split(";")[0].strip()
    return min(float(text), SECONDS_MAX) if _NUMBER.fullmatch(text) else None


def _duration(text: str) -> float | None:
    """`6m0s`, `1.5s`, `20ms`."""
    seconds, end = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != end:
            return None
        seconds, end = seconds + float(part[1]) * _UNITS[part[2]], part.end()
    return min(seconds, SECONDS_MAX) if end and end == len(text) else None


_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_ZONE = r"(?: ?(?:GMT|UTC|Z|([+-])([0-9]{2}):?([0-9]{2})))?"
_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})"
_IMF = re.compile(rf"(?:[A-Za-z]+, ?)?([0-9]{{1,2}})[ -]([A-Z][a-z]{{2}})[ -]([0-9]{{4}}|[0-9]{{2}}) {_CLOCK}{_ZONE}")
_ASCTIME = re.compile(rf"[A-Za-z]{{3}} ([A-Z][a-z]{{2}}) +([0-9]{{1,2}}) {_CLOCK} ([0-9]{{4}})")
_RFC_3339 = re.compile(rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})[Tt ]{_CLOCK}(\.[0-9]+)?{_ZONE}", re.IGNORECASE)


def _unix(year: int, month: int, day: int, clock: tuple[str, str, str], zone: tuple[str | None, ...]) -> float | None:
    if year < 1970 or not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    hour, minute, second = (int(part) for part in clock)
    sign, hours, minutes = zone
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * (-60 if sign == "-" else 60)
    return float(calendar.timegm((year, month, day, hour, minute, second)) - offset)


def _http_date(text: str) -> float | None:
    """The three forms of RFC 9110."""
    text = text.strip()
    if found := _IMF.fullmatch(text):
        day, name, digits, *clock = found.groups()[:6]
        year = int(digits) + (0 if len(digits) == 4 else 2000 if int(digits) < 70 else 1900)
        zone = found.groups()[6:]
    elif found := _ASCTIME.fullmatch(text):
        name, day, *clock, digits = found.groups()
        year, zone = int(digits), (None, None, None)
    else:
        return None
    if name not in _MONTHS:
        return None
    return _unix(year, _MONTHS.index(name) + 1, int(day), (clock[0], clock[1], clock[2]), zone)


def _rfc_3339(text: str) -> float | None:
    found = _RFC_3339.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, *zone = found.groups()
    unix = _unix(int(year), int(month), int(day), (hour, minute, second), tuple(zone))
    return None if unix is None else unix + float(fraction or 0)


def _wait(text: str, now: float) -> float | None:
    """Seconds from now: a number, a duration, or an instant in any of its forms."""
    text = text.strip()
    number = _number(text)
    if number is None:
        duration = _duration(text)
        instant = _http_date(text) if duration is None else None
        instant = _rfc_3339(text) if instant is None else instant
        return duration if instant is None else instant - now
    # Nobody waits for thirty years: that is a Unix time, in seconds or in milliseconds.
    return number if number < 1e9 else number - now if number < 1e11 else number / 1000 - now


def _retry_after(fields: Mapping[str, str], now: float) -> float | None:
    waits = []
    if (ms := _number(fields.get("retry-after-ms", ""))) is not None:
        waits.append(ms / 1000)
    text = fields.get("retry-after", "")
    dated = _http_date(text)
    parts = [dated - now] if dated is not None else [_seconds(part) for part in text.split(",")]
    waits += [part for part in parts if part is not None]
    return max(waits) if waits and max(waits) >= 0 else None


def _seconds(text: str) -> float | None:
    number = _number(text)
    return _duration(text.strip()) if number is None else number


# --- Structured Fields: as much of RFC 9651 as these fields use.

_STRING = r'"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_TOKEN = r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
_INTEGER = r"-?[0-9]{1,15}(?:\.[0-9]{1,3})?"
_BARE = rf"{_STRING}|{_INTEGER}|{_TOKEN}|:[A-Za-z0-9+/=]*:|\?[01]"
_ITEM = re.compile(rf"[ \t]*({_BARE})")
_PARAMETER = re.compile(rf"[ \t]*;[ \t]*([a-z*][a-z0-9_.*-]*)(?:=({_BARE}))?")
_COMMA = re.compile(r"[ \t]*(?:,|$)")


def _list(text: str) -> list[tuple[str, dict[str, str]]]:
    """The items of a list with their parameters; empty if any of it is malformed."""
    items: list[tuple[str, dict[str, str]]] = []
    at = 0
    # Ends: each round takes at least one character, or returns.
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None:
            return []
        at, parameters = item.end(), {}
        while parameter := _PARAMETER.match(text, at):
            parameters[parameter[1]] = parameter[2] or ""
            at = parameter.end()
        comma = _COMMA.match(text, at)
        if comma is None:
            return []
        at = comma.end()
        items.append((_text(item[1]), parameters))
    return items


def _text(bare: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", bare[1:-1]) if bare.startswith('"') else bare


def _draft_10(fields: Mapping[str, str]) -> list[Quota]:
    policies = dict(_list(fields.get("ratelimit-policy", "")))
    quotas = []
    for name, parameters in _list(fields.get("ratelimit", "")):
        remaining = _number(parameters.get("r", ""))
        if remaining is None:
            continue
        policy = policies.get(name, {})
        limit, window = _number(policy.get("q", "")), _number(policy.get("w", ""))
        unit = _text(policy.get("qu", "requests"))
        if unit == "concurrent-requests":
            continue
        more_in = _number(parameters.get("t", ""))
        quotas.append(Quota(name, remaining, limit or None, window or None, more_in, unit == "requests"))
    return quotas


def _draft_7(fields: Mapping[str, str]) -> list[Quota]:
    pairs = (part.partition("=") for part in fields.get("ratelimit", "").split(","))
    values = {key.strip(): value for key, _, value in pairs}
    return _windowed("", values.get("limit"), values.get("remaining"), _number(values.get("reset", "")))


def _draft_6(fields: Mapping[str, str]) -> list[Quota]:
    reset = _number(fields.get("ratelimit-reset", ""))
    return _windowed("", fields.get("ratelimit-limit"), fields.get("ratelimit-remaining"), reset)


def _windowed(
    name: str, limit: str | None, remaining: str | None, more_in: float | None, counts_requests: bool = True
) -> list[Quota]:
    """A quota that may come back all at once: the fields do not say how it fills."""
    left = _number(remaining or "")
    if left is None:
        return []
    return [Quota(name, left, _number(limit or ""), None, more_in, counts_requests)]


def _legacy(fields: Mapping[str, str], now: float) -> list[Quota]:
    found = []
    for prefix in ("x-ratelimit", "x-rate-limit"):
        after = _number(fields.get(f"{prefix}-reset-after", ""))
        more_in = _wait(fields.get(f"{prefix}-reset", ""), now) if after is None else after
        name = fields.get(f"{prefix}-resource", "").strip()
        found += _windowed(name, fields.get(f"{prefix}-limit"), fields.get(f"{prefix}-remaining"), more_in)
    return found


_SUFFIXED = re.compile(r"x-ratelimit-remaining-([a-z0-9-]+)")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-([a-z0-9-]+)-remaining")


def _by_suffix(fields: Mapping[str, str], now: float) -> list[Quota]:
    found = []
    for field, remaining in fields.items():
        if match := _SUFFIXED.fullmatch(field):
            limit, reset = fields.get(f"x-ratelimit-limit-{match[1]}"), fields.get(f"x-ratelimit-reset-{match[1]}", "")
        elif match := _ANTHROPIC.fullmatch(field):
            limit, reset = (fields.get(f"anthropic-ratelimit-{match[1]}-{part}", "") for part in ("limit", "reset"))
        else:
            continue
        is_requests = "tokens" not in match[1]
        for quota in _windowed(match[1], limit, remaining, _wait(reset, now), is_requests):
            found.append(_steady(quota, _duration(reset.strip())))
    return found


def _steady(quota: Quota, full_in: float | None) -> Quota:
    """A reset such as `6m0s` says when the quota will be full again, and that it fills steadily."""
    used = (quota.limit or 0.0) - quota.remaining
    if full_in is None or quota.limit is None or used <= 0 or full_in <= 0:
        return quota
    window = full_in * quota.limit / used
    return replace(quota, window=window, more_in=min(full_in, window / quota.limit))
