"""The vectors of `tests/vectors/client`: the TypeScript client runs the same."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tollgate_limiter.client import GENTLE, Call, CircuitOpen, Pacer, RateLimited, TryLater, Waits, deadline, read

VECTORS = Path(__file__).parents[4] / "tests/vectors/client"
START = 1_800_000_000.0
ERRORS = {"RateLimited": RateLimited, "CircuitOpen": CircuitOpen}


def cases(name: str) -> list[Any]:
    found = json.loads((VECTORS / name).read_text())["cases"]
    assert len(found) > 30
    return [pytest.param(case, id=case["name"]) for case in found]


def close(number: float | None) -> Any:
    return None if number is None else pytest.approx(number, abs=1e-4, rel=0)


@pytest.mark.parametrize("case", cases("headers.json"))
def test_headers(case: dict[str, Any]) -> None:
    assert set(case) <= {"name", "now", "headers", "quotas", "retry_after", "is_used_up"}
    limits = read([(name, value) for name, value in case["headers"]], case.get("now", START))
    assert limits.retry_after == close(case["retry_after"])
    assert limits.is_used_up == case.get("is_used_up", False)
    assert [quota.name for quota in limits.quotas] == [quota["name"] for quota in case["quotas"]]
    for quota, expected in zip(limits.quotas, case["quotas"], strict=True):
        assert set(expected) <= set(vars(quota))
        for field in ("remaining", "limit", "window", "more_in"):
            assert getattr(quota, field) == close(expected.get(field)), field
        assert quota.counts_requests == expected.get("counts_requests", True)


class Run:
    def __init__(self, options: dict[str, Any]) -> None:
        assert set(options) <= {"max_wait", "retries", "uniform", "gentle"}
        chance = options.pop("uniform", 0.0)
        waits = GENTLE if options.pop("gentle", False) else Waits()
        self.now = 0.0
        self.calls: dict[str, Call] = {}
        self.pacer = Pacer(
            waits=waits, clock=lambda: self.now, unix_clock=lambda: START + self.now, uniform=lambda: chance, **options
        )

    def step(self, step: dict[str, Any]) -> None:
        self.now = step.pop("at", self.now)
        if "ask" in step:
            self.ask(**step)
        elif "answer" in step:
            again = step.pop("again")
            name, status, headers = step.pop("answer"), step.pop("status"), step.pop("headers")
            assert (self.calls[name].answered(status, headers), step) == (again, {})
        elif "fail" in step:
            self.calls[step.pop("fail")].failed()
        else:
            self.calls[step.pop("close")].close()

    def ask(
        self,
        ask: str,
        delay: float | None = None,
        raises: str | None = None,
        retry_after: float | None = None,
        within: float | None = None,
        **call: Any,
    ) -> None:
        if ask not in self.calls:
            self.calls[ask] = self.pacer.call(**call)
        with nullcontext() if within is None else deadline(within, lambda: self.now):
            if raises is None:
                assert self.calls[ask].delay() == close(delay)
                return
            with pytest.raises(ERRORS[raises]) as raised:
                self.calls[ask].delay()
        error = raised.value
        assert isinstance(error, TryLater) and error.retry_after == close(retry_after)
        assert error.retry_at == close(START + self.now + error.retry_after)
        self.calls[ask].close()


@pytest.mark.parametrize("case", cases("paces.json"))
def test_paces(case: dict[str, Any]) -> None:
    assert set(case) <= {"name", "options", "steps"}
    run = Run(case.get("options", {}))
    for number, step in enumerate(case["steps"], 1):
        shown = json.dumps(step)
        try:
            run.step(step)
        except AssertionError as error:
            raise AssertionError(f"step {number}: {shown}: {error}") from error
