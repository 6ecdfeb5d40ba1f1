"""What no header field can do: raise, or make a wait shorter than it says."""

import math
import random

from virtual import START, Time

from tollgate_limiter.client import RateLimited, TryLater, read

NAMES = """
Retry-After Retry-After-Ms Date RateLimit RateLimit-Policy RateLimit-Limit RateLimit-Remaining RateLimit-Reset
X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset X-RateLimit-Reset-After X-RateLimit-Resource
X-RateLimit-Remaining-Requests X-RateLimit-Limit-Requests X-RateLimit-Reset-Requests X-Rate-Limit-Remaining
Anthropic-RateLimit-Requests-Remaining Anthropic-RateLimit-Requests-Reset Anthropic-RateLimit-Requests-Limit
""".split()
PIECES = [
    *'" \\ ; , = . - : ? * / % ( ) \t \n \x00 é'.split(" "),
    *"10 0 7 1800000060 1800000060000 99999999999999999999 0.5 -1 1e9 NaN inf".split(" "),
    *'q= w= r= t= pk= qu= "api" api ?1 :YQ==: limit= remaining= reset= requests content-bytes GMT Z'.split(" "),
    *["Fri, 15 Jan 2027 08:00:30 GMT", "2027-01-15T08:00:30Z", "0000-00-00T99:99:99Z", "Mon, 31 Feb 0000 00:00:00 GMT"],
    *["6m0s", "20ms", "1h", "µs", "s", " ", '"x";r=0;t=6', '"x";q=10;w=60', "9" * 400, "soon"],
]


def fields(chance: random.Random) -> list[tuple[str, str]]:
    some = chance.choices(NAMES, k=chance.randint(1, 6))
    return [(name, "".join(chance.choices(PIECES, k=chance.choice([0, 1, 1, 1, 1, 2, 3, 5])))) for name in some]


def test_no_fields_make_it_raise() -> None:
    chance = random.Random(0)
    understood = 0
    for _ in range(10_000):
        headers = fields(chance)
        limits = read(headers, START)
        understood += bool(limits.quotas) + (limits.retry_after is not None)
        assert limits.retry_after is None or 0 <= limits.retry_after < math.inf, headers
        for quota in limits.quotas:
            numbers = (quota.remaining, quota.limit or 0.0, quota.window or 0.0, quota.more_in or 0.0)
            assert all(0 <= number < math.inf for number in numbers), headers
    assert understood > 500, "too few fields made sense for this to say anything"


def test_no_field_is_so_long_that_reading_it_takes_long() -> None:
    for piece in ('"', '"a";', "a,", ";a=", "1.", "1m", " ", "\\"):
        for name in NAMES:
            read([(name, piece * 4_000), (name, piece * 4_000)], START)


def test_no_wait_is_shorter_than_retry_after() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        asked = chance.choice([chance.randint(1, 50), round(chance.uniform(0.001, 50), 3)])
        time = Time()
        pacer = time.pacer()
        pacer._uniform = chance.random
        with pacer.call() as call:
            assert call.delay() == 0
            rubbish = [field for field in fields(chance) if field[0] not in ("Retry-After", "Date")]
            assert call.answered(429, [*rubbish, ("Retry-After", f"{asked}")])
            try:
                # Ends: each delay ends at the end of the wait, or raises.
                while (delay := call.delay()) > 0:
                    time.sleep(delay)
            except TryLater as error:
                assert isinstance(error, RateLimited) and error.retry_after >= asked - time.now
                continue
        assert time.now >= asked


def test_no_rubbish_ends_in_a_tight_loop() -> None:
    chance = random.Random(2)
    for _ in range(1_000):
        time = Time()
        pacer = time.pacer(max_wait=math.inf, retries=3)
        with pacer.call() as call:
            sent = 1
            assert call.delay() == 0
            headers = [field for field in fields(chance) if field[0] not in ("Retry-After", "Retry-After-Ms")]
            while call.answered(429, [*headers, ("Retry-After", chance.choice(["", "soon", "-1", "0"]))]):
                sent += 1
                while (delay := call.delay()) > 0:
                    time.sleep(delay)
            assert sent == 4
        # A quota may say that more comes in a moment; then that is the wait.
        assert time.now >= 7 or any(quota.more_in for quota in read(headers, START).quotas), headers
