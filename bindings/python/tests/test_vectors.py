"""The limiter's answers as data, which every language runs: tests/vectors of the repository, whose README says what
the files mean."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tollgate_limiter import (
    CallLimit,
    Conduct,
    Lane,
    LaneState,
    Limiter,
    ManualClock,
    Reservation,
    Settlement,
    TollgateError,
    Verdict,
    Violation,
)

FILES = sorted((Path(__file__).parents[3] / "tests" / "vectors").glob("*.json"))
Fields = dict[str, Any]


def toml(policy: Fields) -> Any:
    """The policy of a case in a form that the limiter takes."""
    if set(policy) == {"preset"}:
        return policy["preset"]
    if set(policy) == {"toml"}:
        return policy["toml"]
    policy = dict(policy)
    # As text: a list of pairs may name a lane twice, and a dict may not.
    lanes = "".join(f"{quoted(name)} = {quoted(limit)}\n" for name, limit in policy.pop("lanes"))
    tables = f"[lanes]\n{lanes}"
    for plan in policy.pop("plans", []):
        limits = "".join(f"{quoted(lane)} = {quoted(limit)}\n" for lane, limit in plan["limits"])
        tables += f"[plans.{quoted(plan['name'])}]\n{limits}"
    channels: dict[str, dict[str, list[str]]] = {}
    for line in policy.pop("actions", []):
        channels.setdefault(line["channel"], {}).setdefault(line["tier"], []).extend(line["names"])
    for channel, tiers in channels.items():
        tables += f"[actions.{quoted(channel)}]\n"
        tables += "".join(f"{quoted(tier)} = {quoted(names)}\n" for tier, names in tiers.items())
    if rules := policy.pop("conduct", None):
        tables += "[conduct]\n" + conduct(dict(rules))
    return "".join(f"{key} = {quoted(value)}\n" for key, value in policy.items()) + tables


def conduct(rules: Fields) -> str:
    if "curve_ms" in rules:
        rules["curve"] = [f"{ms}ms" for ms in rules.pop("curve_ms")]
    if "quiet_ms" in rules:
        rules["quiet"] = f"{rules.pop('quiet_ms')}ms"
    text = ""
    if "abuse_violations" in rules:
        within = rules.pop("abuse_within_ms")
        text = f'abuse = {{ violations = {rules.pop("abuse_violations")}, within = "{within}ms" }}\n'
    return text + "".join(f"{key} = {quoted(value)}\n" for key, value in rules.items())


def quoted(value: Any) -> str:
    """What JSON writes for strings, lists and numbers is TOML too."""
    return json.dumps(value)


def agent(id: Any) -> str | bytes:
    return base64.b64decode(id["base64"]) if isinstance(id, dict) else str(id)


def shown(id: str | bytes) -> Any:
    return id if isinstance(id, str) else {"base64": base64.b64encode(id).decode()}


def verdict(answer: Verdict, counted: bool = False) -> Fields:
    if answer.decision == "exempt":
        return {"decision": "exempt"}
    fields: Fields = {
        "decision": answer.decision,
        "remaining": answer.remaining,
        "capacity": answer.capacity,
        "full_in_ns": answer.full_in_ns,
    }
    if not answer:
        wait = answer.retry_after_ns
        # Worked out here, apart from the limiter.
        whole = 60_000 if wait is None else max(1, -(-wait // 10**9)) * 1_000
        fields |= {"retry_after_ns": wait, "whole_seconds_ms": whole}
        if counted:
            fields |= {
                "lane_wait_ns": answer.lane_wait_ns,
                "wait_ns": answer.conduct_wait_ns,
                "in_a_row": answer.violations_in_a_row,
                "sustained_abuse": answer.is_sustained_abuse,
            }
    return fields


def state(of: LaneState) -> Fields:
    if of.is_exempt:
        return {"exempt": True}
    names = ("remaining", "capacity", "next_in_ns", "full_in_ns")
    return {"exempt": False} | {name: getattr(of, name) for name in names}


def violation(seen: Violation) -> Fields:
    return {name: getattr(seen, name) for name in ("step_ns", "wait_ns", "in_a_row", "sustained_abuse")}


def settlement(settled: Settlement) -> Fields:
    return {"unused": settled.unused, "overspent": settled.overspent, "left": settled.left}


def of_conduct(seen: Conduct) -> Fields:
    return {
        "violations": seen.violations,
        "in_a_row": seen.in_a_row,
        "window_start_ns": seen.window_start,
        "last_violation_ns": seen.last_violation,
        "wait_ns": seen.wait_ns,
    }


def prepared(limit: str | None) -> CallLimit | None:
    """The limit of a call, read once; other calls pass the text."""
    return None if limit is None else CallLimit(limit)


class Case:
    """One limiter, and the calls that the steps name."""

    def __init__(self, policy: Fields) -> None:
        self.clock = ManualClock()
        options: Any = {"agents": 100, "reservations": 16, "on_full": "deny", "clock": self.clock}
        self.limiter = Limiter(toml(policy), **options)
        self.reservations: dict[str, Reservation] = {}

    def call(self, op: str, a: Fields) -> Fields:
        made: Callable[..., Fields] = getattr(self, op)
        return made(**{("id" if key == "agent" else key): value for key, value in a.items()})

    def lane(self, lane: str | int) -> Lane:
        return self.limiter.lane(lane)

    def plan(self, plan: str | int | None) -> str | None:
        if not isinstance(plan, int):
            return plan
        plans = self.limiter.plans
        return plans[plan] if plan < len(plans) else f"plan number {plan}"

    def check(
        self, id: Any, lane: Any, cost: int = 1, plan: Any = None, counted: bool = False, limit: Any = None
    ) -> Fields:
        answer = self.lane(lane).check(agent(id), cost, self.plan(plan), counted=counted, limit=limit)
        denied = self.lane(lane).peek(agent(id), limit=limit) if answer.decision == "exempt" else None
        assert denied is None or denied.is_exempt
        return verdict(answer, counted)

    def peek(self, id: Any, lane: Any, limit: Any = None) -> Fields:
        return state(self.lane(lane).peek(agent(id), limit=prepared(limit)))

    def refund(self, id: Any, lane: Any, cost: int = 1, limit: Any = None) -> Fields:
        return state(self.lane(lane).refund(agent(id), cost, limit=prepared(limit)))

    def hold(self, id: Any, lane: Any) -> Fields:
        answer = self.lane(lane).hold_until_released(agent(id))
        return {"decision": answer.decision} | ({"remaining": answer.remaining} if answer else {})

    def release(self, id: Any, lane: Any) -> Fields:
        return state(self.lane(lane).release(agent(id)))

    def check_all(self, parts: list[Fields], counted: bool = False) -> Fields:
        from tollgate_limiter import Request

        asked = [
            Request(
                agent(part["agent"]), part["lane"], part.get("cost", 1), counted=counted, limit=part.get("limit")
            )
            for part in parts
        ]
        answer = self.limiter.check_all(asked)
        fields: Fields = {
            "decision": answer.decision,
            "decisions": [part.decision for part in answer.verdicts],
            "blocking": list(answer.blocking),
        }
        return fields if answer else fields | {"retry_after_ns": answer.retry_after_ns}

    def reserve(
        self, id: Any, lane: Any, estimate: int, ttl_ms: int, reservation: str, limit: Any = None
    ) -> Fields:
        answer = self.lane(lane).reserve(agent(id), estimate, ttl_ms / 1_000, limit=limit)
        if answer:
            self.reservations[reservation] = answer
        return verdict(answer.verdict)

    def settle(self, reservation: str, used: int, so_far: bool = False) -> Fields:
        known = self.reservations.get(reservation)
        if known is None:
            return settlement(self.limiter.settle(2**64 - 1, used, so_far=so_far))
        return settlement(known.settle(used, so_far=so_far))

    def extend(self, reservation: str, ttl_ms: int) -> Fields:
        known = self.reservations.get(reservation)
        (known.extend if known else lambda ttl: self.limiter.extend(2**64 - 1, ttl))(ttl_ms / 1_000)
        return {}

    def reset(self, id: Any, lane: Any = None) -> Fields:
        (self.limiter.reset if lane is None else self.lane(lane).reset)(agent(id))
        return {}

    def forget(self, id: Any) -> Fields:
        return {"known": self.limiter.forget(agent(id))}

    def sweep(self, idle_for_ms: int) -> Fields:
        return {"swept": self.limiter.sweep(idle_for_ms / 1_000)}

    def limit_of(self, id: Any, lane: Any) -> Fields:
        return {"limit": self.lane(lane).limit_of(agent(id))}

    def assign(self, id: Any, plan: Any) -> Fields:
        self.limiter.assign(agent(id), self.plan(plan) or "")
        return {}

    def unassign(self, id: Any) -> Fields:
        self.limiter.unassign(agent(id))
        return {}

    def set_override(self, id: Any, lane_or_tier: str, limit: str) -> Fields:
        self.limiter.set_override(agent(id), lane_or_tier, limit)
        return {}

    def remove_override(self, id: Any, lane_or_tier: str) -> Fields:
        self.limiter.remove_override(agent(id), lane_or_tier)
        return {}

    def remove_overrides(self, id: Any) -> Fields:
        self.limiter.remove_overrides(agent(id))
        return {}

    def exempt(self, id: Any) -> Fields:
        self.limiter.exempt(agent(id))
        return {}

    def unexempt(self, id: Any) -> Fields:
        self.limiter.unexempt(agent(id))
        return {}

    def is_exempt(self, id: Any) -> Fields:
        return {"exempt": self.limiter.is_exempt(agent(id))}

    def assignment(self, id: Any) -> Fields:
        of = self.limiter.assignment(agent(id))
        return {"plan": of.plan, "overrides": [list(pair) for pair in of.overrides.items()], "exempt": of.exempt}

    def assignments(self) -> Fields:
        return {"agents": [shown(id) for id in self.limiter.assignments()]}

    def replace_policy(self, policy: Fields) -> Fields:
        self.limiter.replace_policy(toml(policy))
        return {}

    def record_violation(self, id: Any) -> Fields:
        return violation(self.limiter.record_violation(agent(id)))

    def violations(self, id: Any) -> Fields:
        return of_conduct(self.limiter.violations(agent(id)))

    def rate_limited(self, id: Any) -> Fields:
        return {"rate_limited": self.limiter.rate_limited(agent(id))}

    def assignable(self, agents: list[Any]) -> Fields:
        ids: list[str | bytes] = [agent(id) for id in agents]
        return {"agents": [shown(id) for id in self.limiter.assignable(ids)]}

    def reset_violations(self, id: Any) -> Fields:
        return {"known": self.limiter.reset_violations(agent(id))}

    def lane_for(self, channel: str, action: str) -> Fields:
        found = self.limiter.lane_for(channel, action)
        if found is None:
            return {"lane": None}
        return {"lane": found.lane.name, "known": found.is_known, "first_seen": found.is_first_seen}

    def unknown_actions(self) -> Fields:
        seen = self.limiter.unknown_actions()
        names = [list(pair) for pair in seen.names]
        return {"total": seen.total, "names": names, "not_listed": seen.not_listed}


def run(case: Case, step: Fields, where: str) -> None:
    step = dict(step)
    if "at_ms" in step:
        case.clock.set(step.pop("at_ms") * 10**6)
    if "at_ns" in step:
        case.clock.set(step.pop("at_ns"))
    op, times, every_ms = step.pop("op"), step.pop("times", 1), step.pop("every_ms", 0)
    expected: Fields | None = step.pop("expect", None)
    counts: Counter[str] = Counter()
    for left in reversed(range(times)):
        try:
            answer = case.call(op, step)
        except TollgateError as error:
            # A policy that cannot be read is one error to the vectors, whatever in it is wrong.
            code = error.code
            assert left == 0 and expected == {"error": code}, f"{where}: {code}: {error}; expected {expected}"
            return
        counts.update([answer["decision"]] if "decision" in answer else [])
        if left:
            case.clock.advance(every_ms / 1_000)
    compare(answer | {"counts": dict(counts)}, expected or {}, where)


def compare(answer: Fields, expected: Fields, where: str) -> None:
    for field, value in expected.items():
        # A verdict has the wait after the step of the curve, and not the step by itself.
        if field == "step_ns" and "lane_wait_ns" in answer:
            continue
        assert field in answer, f"{where}: the answer has no {field}"
        assert answer[field] == value, f"{where}: {field}: expected {value}, got {answer}"


def cases() -> Iterable[Any]:
    assert len(FILES) >= 24, "the vectors are missing"
    for file in FILES:
        for case in json.loads(file.read_text())["cases"]:
            yield pytest.param(case, id=f"{file.stem}: {case['name']}")


@pytest.mark.parametrize("case", list(cases()))
def test_the_answers_are_those_of_every_language(case: Fields) -> None:
    assert set(case) == {"name", "policy", "steps"}
    limiter = Case(case["policy"])
    for number, step in enumerate(case["steps"], 1):
        run(limiter, step, f"step {number}, {step['op']}")
