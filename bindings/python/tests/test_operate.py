"""What operators do: plans, overrides, exemptions, conduct, lists, events, files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tollgate_limiter import (
    Assignment,
    FileError,
    Limiter,
    LogThrottle,
    ManualClock,
    PolicyError,
    Request,
    RequestError,
    TollgateError,
    Verdict,
)

POLICY: dict[str, Any] = {
    "lanes": {"http/light": "10/minute", "http/heavy": "2/minute", "llm/tokens": "budget 1000/day"},
    "plans": {"pro": {"http/light": "100/minute"}},
    "actions": {"http": {"light": ["get"], "heavy": ["post"]}},
    "unknown_actions_to": "heavy",
    "conduct": {"every_denial": True, "curve": ["1s", "5s"]},
}


def made(**options: Any) -> tuple[Limiter, ManualClock]:
    clock = ManualClock()
    return Limiter(POLICY, agents=1_000, clock=clock, **options), clock


def test_a_plan_and_an_override_hold_for_the_next_check() -> None:
    limiter, _ = made()
    light, heavy = limiter.lane("http/light"), limiter.lane("http/heavy")
    limiter.assign("a", "pro")
    assert light.check("a").limit == 100 and light.limit_of("a") == "100/minute"
    limiter.set_override("a", "heavy", "7/minute")
    assert heavy.check("a").limit == 7
    limiter.assign("b", limiter.plan("pro"))
    limiter.exempt("b")
    assert limiter.is_exempt("b") and light.limit_of("b") is None
    one, other = limiter.assignment("a"), limiter.assignment("b")
    assert (one.plan, one.overrides, one.exempt) == ("pro", {"http/heavy": "7/minute"}, False)
    assert repr(other) == 'Assignment(plan="pro", overrides={}, exempt=True)'
    assert list(limiter.assignments()) == ["a", "b"]
    limiter.unassign("a")
    limiter.remove_override("a", "heavy")
    limiter.unexempt("b")
    assert (light.check("a").limit, heavy.check("a").limit) == (10, 2) and not limiter.is_exempt("b")
    with pytest.raises(RequestError, match="there is no lane or tier .heavi"):
        limiter.set_override("a", "heavi", "1/s")
    with pytest.raises(PolicyError, match="fortnight"):
        limiter.set_override("a", "heavy", "1/fortnight")


def test_many_assignments_change_at_once_or_not_at_all() -> None:
    limiter, _ = made()
    decided: dict[str | bytes, Assignment] = {
        "a": Assignment(plan="pro"),
        b"\xff": Assignment(overrides={"http/light": "1/s"}),
    }
    limiter.set_assignments(decided)
    assert limiter.assignments() == decided
    with pytest.raises(RequestError, match="no plan"):
        limiter.set_assignments({"c": Assignment(exempt=True), "d": Assignment(plan="none")})
    assert len(limiter.assignments()) == 2
    limiter.set_assignments({"a": Assignment()})
    limiter.remove_overrides(b"\xff")
    assert limiter.assignments() == {}


def test_a_policy_is_replaced_while_it_runs() -> None:
    limiter, _ = made()
    limiter.replace_policy(POLICY | {"lanes": POLICY["lanes"] | {"http/light": "50/minute"}})
    assert limiter.lane("http/light").check("a").limit == 50 and '"50/minute"' in limiter.policy
    with pytest.raises(PolicyError) as raised:
        limiter.replace_policy({"lanes": {"other": "1/s"}})
    assert raised.value.code == "other_lanes"


def test_conduct_counts_and_forgives() -> None:
    limiter, clock = made(observe=True)
    heavy = limiter.lane("http/heavy")
    answers = [heavy.check("a", counted=True) for _ in range(4)]
    assert [answer.violations_in_a_row for answer in answers] == [0, 0, 1, 2]
    assert limiter.rate_limited("a") and limiter.assignable(["a", "b"]) == ["b"]
    seen = limiter.violations("a")
    assert (seen.violations, seen.in_a_row, seen.is_rate_limited) == (2, 2, True)
    third = limiter.record_violation("a")
    assert (third.in_a_row, third.step, third.wait, third.sustained_abuse) == (3, 5.0, 5.0, False)
    top = limiter.top_offenders()
    assert [(worst.agent, worst.violations) for worst in top.list] == [("a", 3)]
    assert limiter.reset_violations("a") and not limiter.rate_limited("a")
    clock.advance(60)
    assert not limiter.reset_violations("a")


def test_many_requests_are_decided_by_themselves_and_several_all_or_none() -> None:
    limiter, _ = made()
    heavy = limiter.lane("http/heavy")
    answers = limiter.check_many(
        [("a", heavy), ("a", "http/heavy", 2), ("", heavy), Request("a", heavy, plan="pro"), (b"a", 2, 1_000)]
    )
    shown = [answer.decision if isinstance(answer, Verdict) else answer.code for answer in answers]
    assert shown == ["allow", "deny", "empty_id", "warn", "warn"]
    assert isinstance(answers[2], ValueError) and isinstance(answers[2], TollgateError)
    denied = limiter.check_all([("b", heavy, 2), ("a", "llm/tokens")])
    assert not denied and denied.decision == "deny" and denied.blocking == (1,) and denied.retry_after
    assert [verdict.decision for verdict in denied.verdicts] == ["warn", "deny"]
    assert heavy.peek("b").remaining == 2
    assert limiter.check_all((("b", lane) for lane in (heavy, "llm/tokens")))
    with pytest.raises(RequestError) as raised:
        limiter.check_all([])
    assert raised.value.code == "parts"
    for wrong in ([("a",)], ["a"], [("a", made()[0].lane("http/heavy"))], 7):
        with pytest.raises((TypeError, ValueError)):
            limiter.check_many(wrong)  # type: ignore[arg-type]


def test_what_it_does_is_counted_and_listed() -> None:
    limiter, _ = made(observe=True, roster=2_000)
    light = limiter.lane("http/light")
    for agent, cost in (("user:1", 2), ("user:2", 9), (b"\xffip", 5)):
        assert light.check(agent, cost)
    assert not light.check("user:2", 9)
    snapshot = limiter.snapshot()
    counts = snapshot.lanes[0]
    assert (counts.name, counts.allowed, counts.warned, counts.denied) == ("http/light", 2, 1, 1)
    assert snapshot.is_counting and snapshot.stats.agents == 3 and snapshot.clock == "manual"
    page = limiter.agents(prefix="user:", sort="usage", per_page=1)
    assert (page.matched, page.listed, page.not_listed) == (2, 3, 0)
    assert [listed.agent for listed in page.agents] == ["user:2"]
    assert [listed.agent for listed in limiter.agents(contains=b"\xff").agents] == [b"\xffip"]
    view = limiter.agent("user:2")
    assert view.dominant is not None and (view.dominant.used_percent, view.dominant.level) == (90.0, "red")
    assert view.dominant.limit == "10/minute" and view.dominant.state.remaining == 1
    assert json.loads(limiter.report())["agents"]
    assert limiter.forget("user:2") and not limiter.agent("user:2").is_known
    limiter.reset("user:1")
    light.reset(b"\xffip")
    assert light.peek(b"\xffip").remaining == light.peek("user:1").remaining == 10
    assert limiter.sweep(0) == 2
    assert "lossy_evictions=0" in repr(limiter.stats()) and limiter.memory() > 1_000


def test_events_are_polled_once() -> None:
    limiter, _ = made(observe=True)
    for _ in range(12):
        limiter.lane("http/heavy").check("a", counted=True)
    limiter.assign("b", "pro")
    dance = limiter.lane_for("http", "dance")
    assert dance is not None and (dance.lane.name, dance.is_known, dance.is_first_seen) == ("http/heavy", False, True)
    events = [event for event in iter(limiter.poll_event, None) if event is not None]
    assert [(event.kind, event.agent) for event in events] == [
        ("sustained_abuse", "a"),
        ("assignment_changed", "b"),
        ("unknown_action", None),
    ]
    assert events[0].details == {"in_a_row": 10} and events[2].details == {"channel": "http", "action": "dance"}
    assert limiter.unknown_actions().names == [("http", "dance")]
    assert limiter.lane_for("smoke", "signal") is None


def test_a_flood_of_denials_is_no_flood_of_lines() -> None:
    log, minute = LogThrottle(), 60 * 10**9
    first = log.denied("agent-7\n", 0)
    assert first is not None and (first.level, first.text) == ("INFO", "Rate limit hit by agent agent-7\\n")
    assert [log.denied("agent-7\n", 1) for _ in range(47)] == [None] * 47
    assert [line.text for line in log.due(minute)] == ["Suppressed 47 similar messages from agent-7\\n in last minute"]
    assert [line.level for line in log.due(5 * minute)] == ["SUMMARY"]


def test_a_sampled_check_is_an_event() -> None:
    limiter, _ = made(observe=True, sample_every=1)
    limiter.lane("http/heavy").check("a")
    event = limiter.poll_event()
    assert event is not None and event.kind == "checked"
    assert event.details == {"lane": "http/heavy", "decision": "allow", "remaining": 1}


def test_assignments_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "assignments.json"
    limiter, _ = made()
    limiter.keep_assignments_in(file)
    limiter.assign("a", "pro")
    limiter.save_assignments()
    with pytest.raises(FileError, match="locked") as raised:
        made()[0].keep_assignments_in(file)
    assert isinstance(raised.value, OSError)
    del limiter
    again, _ = made()
    again.keep_assignments_in(str(file))
    assert again.assignment("a").plan == "pro"
    file.write_text(file.read_text().replace('"a"', '"z"'))
    again.reload_assignments()
    assert list(again.assignments()) == ["z"]
    with pytest.raises(FileError, match="name one first"):
        made()[0].reload_assignments()


def test_used_budgets_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "budgets.json"
    limiter, _ = made()
    assert limiter.keep_budgets_in(file).loaded == 0
    assert limiter.lane("llm/tokens").check("a", 300)
    assert limiter.save_budgets().saved == 1
    del limiter
    again, _ = made()
    assert again.keep_budgets_in(file).loaded == 1
    assert again.lane("llm/tokens").peek("a").remaining == 700
    with pytest.raises(FileError, match="does not keep used budgets"):
        made()[0].save_budgets()


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    limiter, _ = made(observe=True)
    limiter.write_report(tmp_path / "status.json")
    assert "agents" in json.loads((tmp_path / "status.json").read_text())
    with pytest.raises(FileError, match="create the directory"):
        limiter.write_report(tmp_path / "none" / "status.json")


WAITS = """
import os, sys, threading
from pathlib import Path
from tollgate_limiter import Limiter

def write():
    with open(sys.argv[1], "w") as pipe:
        pipe.write('[lanes]\\napi = "1/s"')

threading.Thread(target=write).start()
assert Limiter(Path(sys.argv[1]), agents=10).lanes == ["api"]
"""


def test_reading_a_file_lets_other_threads_run(tmp_path: Path) -> None:
    """The policy is read from a pipe that another thread of the same process writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    subprocess.run([sys.executable, "-c", WAITS, str(pipe)], check=True, timeout=60)
