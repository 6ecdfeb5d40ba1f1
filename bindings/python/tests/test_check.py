"""May the agent do this?"""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

import tollgate_limiter
from tollgate_limiter import Lane, Limiter, ManualClock, PolicyError, RequestError


def one_lane(limit: str) -> tuple[Lane, ManualClock]:
    clock = ManualClock()
    return Limiter({"lanes": {"api": limit}}, agents=100, clock=clock).lane("api"), clock


def test_a_burst_passes_and_then_the_wait_is_exact() -> None:
    lane, clock = one_lane("10/minute burst 3")
    assert [lane.check("agent-7").remaining for _ in range(3)] == [2, 1, 0]
    denied = lane.check("agent-7")
    assert not denied and denied.decision == "deny" and not denied.allowed
    assert denied.retry_after == 6.0 and denied.retry_after_ns == 6_000_000_000
    clock.set(clock.now() + 5_999_999_999)
    assert not lane.allow("agent-7")
    clock.advance(timedelta(microseconds=1))
    assert lane.allow("agent-7")
    assert lane.check("agent-8").remaining == 2


def test_a_verdict_has_what_a_response_needs() -> None:
    lane, _ = one_lane("10/minute burst 20")
    verdict = lane.check("a", 5)
    assert (verdict.decision, verdict.remaining, verdict.limit, verdict.capacity) == ("allow", 15, 20, 20)
    assert (verdict.retry_after, verdict.retry_after_ns) == (None, None)
    assert (verdict.full_in, verdict.full_in_ns, verdict.next_in, verdict.window) == (30.0, 30 * 10**9, 6.0, 120.0)
    assert verdict.reset_at == pytest.approx(time.time() + 30, abs=5)
    assert repr(verdict) == "<Verdict allow: 15 of 20 left>"
    assert repr(lane.check("a", 16)) == "<Verdict deny: 15 of 20 left, retry after 6 s>"
    with pytest.raises(AttributeError):
        verdict.remaining = 3  # type: ignore[misc]


def test_denied_answers_only_a_denial() -> None:
    lane, _ = one_lane("1/minute")
    assert lane.denied("a") is None
    verdict = lane.denied("a")
    assert verdict is not None and verdict.retry_after == 60.0


def test_text_and_bytes_of_the_same_id_are_the_same_agent() -> None:
    lane, _ = one_lane("2/minute")
    assert lane.allow("grüße") and lane.allow("grüße".encode()) and not lane.allow("grüße")
    assert lane.allow(b"\xff\x00")


def test_a_refund_gives_back_and_a_peek_charges_nothing() -> None:
    lane, _ = one_lane("10/minute")
    assert lane.check("a", 4)
    assert lane.refund("a", 3).remaining == 9
    assert lane.peek("a").remaining == 9 and lane.peek("a").capacity == 10


def test_a_plan_is_given_by_name_or_as_an_object() -> None:
    limiter = Limiter({"lanes": {"api": "2/s"}, "plans": {"pro": {"api": "5/s"}}}, agents=10, clock=ManualClock())
    lane = limiter.lane("api")
    assert lane.check("a", plan="pro").limit == 5
    assert lane.check("a", plan=limiter.plan("pro")).remaining == 3
    assert (limiter.plans, limiter.plan("pro").name) == (["default", "pro"], "pro")
    with pytest.raises(ValueError, match=r'there is no plan "por"; the plans are "default", "pro"'):
        lane.check("a", plan="por")
    other = Limiter("standard", agents=10).plan("trusted")
    with pytest.raises(ValueError, match="another limiter"):
        lane.check("a", plan=other)


def test_policies_come_from_a_preset_text_a_file_or_a_dict(tmp_path: Path) -> None:
    text = '[lanes]\n"http/heavy" = "10/minute burst 5"\n'
    file = tmp_path / "policy.toml"
    file.write_text(text)
    for policy in (text, file, {"lanes": {"http/heavy": "10/minute burst 5"}}):
        limiter = Limiter(policy, agents=10)
        assert limiter.lanes == ["http/heavy"] and limiter.lane("http/heavy").check("a").limit == 5
    assert Limiter("standard", agents=10).lanes[:2] == ["http/read", "http/write"]


def test_an_invalid_policy_says_what_and_where(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[lanes]\n"api" = "10/fortnight"\n')
    with pytest.raises(PolicyError, match=r"policy.toml: .*2.*fortnight") as raised:
        Limiter(file)
    assert isinstance(raised.value, ValueError) and raised.value.code == "bad_policy"
    with pytest.raises(ValueError, match="there is no preset .standrad.*standard"):
        Limiter("standrad")
    with pytest.raises(ValueError, match="pathlib.Path"):
        Limiter("policy.toml")
    with pytest.raises(OSError, match=f"cannot read {tmp_path}"):
        Limiter(tmp_path / "none.toml")
    with pytest.raises(TypeError, match="dict, not int"):
        Limiter(7)  # type: ignore[arg-type]


def test_a_dict_is_what_a_policy_file_reads_as() -> None:
    policy = {
        "version": 3,
        "warn_below_percent": 10,
        "lanes": {'odd"näme\\': "1/s", "http/a": "2/s"},
        "plans": {"pro": {"http/a": "5/s"}},
        "conduct": {"curve": ["1s", "2s"], "abuse": {"violations": 5, "within": "1m"}, "every_denial": True},
        "actions": {"http": {"a": ["get", "put"]}},
        "unknown_actions_to": "a",
    }
    limiter = Limiter(policy, agents=10)
    assert limiter.lanes == ['odd"näme\\', "http/a"] and "version = 3" in limiter.policy
    assert Limiter(limiter.policy, agents=10).policy == limiter.policy
    with pytest.raises(PolicyError, match=r"line 1, .*lans.*lanes"):
        Limiter({"lans": {"a": "1/s"}})
    with pytest.raises(PolicyError, match=r'lane name "a\\u\{7\}b"'):
        Limiter({"lanes": {"a\x07b": "1/s"}})


def test_bad_arguments_are_value_errors_and_type_errors_and_charge_nothing() -> None:
    lane, _ = one_lane("10/minute")
    for wrong, code in (("", "empty_id"), ("x" * 257, "id_too_long")):
        with pytest.raises(ValueError) as raised:
            lane.check(wrong)
        assert isinstance(raised.value, RequestError) and raised.value.code == code
    for cost, code in ((0, "zero_cost"), (11, "cost_above_capacity")):
        with pytest.raises(RequestError) as refused:
            lane.check("a", cost)
        assert refused.value.code == code
    for number in (-1, 2**64):
        with pytest.raises(ValueError, match="whole number"):
            lane.check("a", number)
    with pytest.raises(ValueError, match="surrogates"):
        lane.check("\ud800")
    for id in (7, None, bytearray(b"a"), ["a"]):
        with pytest.raises(TypeError, match="str or bytes, not"):
            lane.allow(id)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lane.check("a", 1.5)  # type: ignore[arg-type]
    assert lane.peek("a").remaining == 10


def test_a_lane_is_found_by_name_or_number() -> None:
    limiter = Limiter({"lanes": {"a": "1/s", "b": "1/s"}}, agents=10)
    assert limiter.lane(1).name == "b" and limiter.lane("b").number == 1
    with pytest.raises(RequestError, match=r'there is no lane "c"; the lanes are "a", "b"'):
        limiter.lane("c")
    with pytest.raises(RequestError, match="there is no lane 2"):
        limiter.lane(2)


def test_an_exempt_agent_has_no_numbers() -> None:
    limiter = Limiter({"lanes": {"a": "1/s"}, "exempt": ["probe"]}, agents=10)
    verdict = limiter.lane("a").check("probe")
    assert verdict and verdict.decision == "exempt"
    assert (verdict.remaining, verdict.limit, verdict.reset_at) == (None, None, None)
    assert limiter.lane("a").peek("probe").is_exempt


def test_a_limiter_refuses_options_that_it_does_not_know() -> None:
    policy = {"lanes": {"a": "1/s"}}
    for options, message in (
        ({"agents": 0}, "0 agents"),
        ({"clock": "sundial"}, 'a clock is one of "auto", "os", "coarse", "boottime", not "sundial"'),
        ({"on_full": "grow"}, "on_full is one of"),
        ({"roster": 10}, "observe=True"),
    ):
        with pytest.raises(ValueError, match=message):
            Limiter(policy, **options)


def test_the_package_names_what_it_exports() -> None:
    assert sorted(tollgate_limiter.__all__) == tollgate_limiter.__all__
    for name in tollgate_limiter.__all__:
        assert getattr(tollgate_limiter, name).__doc__, name
    listed = [sys.executable, "-c", "import tollgate_limiter; print('Limiter' in dir(tollgate_limiter))"]
    assert subprocess.run(listed, check=True, capture_output=True, text=True).stdout == "True\n", "before it is loaded"
