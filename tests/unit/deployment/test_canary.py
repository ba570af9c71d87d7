"""When a version that is judged gets more of the requests, and when it is rolled back."""

from typing import Any

import msgspec
import pytest

from dyorc.deployment.canary_judge import Verdict, judge
from dyorc.deployment.state import DeploymentState, ModelHistory, TrafficAssignment
from dyorc.errors import ConflictError, InvalidInputError
from dyorc.protocol.canary_rules import CanaryRules, read_rules
from dyorc.telemetry.version_counts import DIFFERENT, DROPPED, FAILED, SAME, VersionCounts
from tests.unit.deployment.test_state import FIRST, version

MS = 1_000_000


def counted(num_ok: int = 0, num_failed: int = 0, ms: float = 5.0, **copies: int) -> VersionCounts:
    """Returns the counts of a version whose requests all take as long."""
    counts = VersionCounts()
    for _ in range(num_ok):
        counts.count_ok(int(ms * MS))
    for _ in range(num_failed):
        counts.count_failure("execution")
    for outcome, number in copies.items():
        for _ in range(number):
            counts.count_copy(outcome)
    return counts


def refusing(number: int, counts: VersionCounts | None = None) -> VersionCounts:
    """Returns the same counts with so many refused requests."""
    counts = counts or counted()
    for _ in range(number):
        counts.count_refusal("invalid_input")
    return counts


def rules(**values: Any) -> CanaryRules:
    """Returns rules that judge by 100 requests."""
    return read_rules({"min_requests": 100, **values})


DEFAULT = counted(1000, 10)


@pytest.mark.parametrize(
    ("values", "counts", "verdict", "reason"),
    [
        ({"errors": {"max_ratio": 0.02}}, counted(99), "wait", "99 of 100 requests (min_requests)"),
        ({"errors": {"max_ratio": 0.02}}, counted(98, 2), "go_on", "100 requests, 2 failed, 0 refused, p50 "),
        ({"errors": {"max_ratio": 0.02}}, counted(0, 2), "wait", "2 of 100 requests"),
        ({"errors": {"max_ratio": 0.02}}, counted(0, 3), "roll_back", "3 of 3 requests failed (execution 3), allowed are 2.000%"),
        ({"errors": {"max_ratio": 0.0}}, counted(0, 1), "roll_back", "errors.max_ratio"),
        ({"errors": {"max_increase": 0.01}}, counted(199, 3), "go_on", "202 requests, 3 failed"),
        ({"errors": {"max_increase": 0.01}}, counted(195, 5), "roll_back", "0.990% of the default's, allowed are 1.000% more"),
        ({"latency": {"max_p99_s": 0.01}}, refusing(11, counted(100)), "go_on", "111 requests, 0 failed, 11 refused"),
        (
            {"latency": {"max_p99_s": 0.01}},
            refusing(12, counted(100)),
            "roll_back",
            "12 of 112 requests were refused (invalid_input",
        ),
        (
            {"errors": {"max_ratio": 0.02}},
            refusing(11),
            "roll_back",
            "0.000% of the default's, allowed are 10.000% more (refusals.",
        ),
        ({"refusals": {"max_increase": 0.5}}, refusing(90, counted(100)), "go_on", ""),
        ({"refusals": {"max_ratio": 0.01}}, refusing(2), "roll_back", "allowed are 1.000% (refusals.max_ratio)"),
        ({"latency": {"max_p99_s": 0.01}}, counted(100), "go_on", ""),
        ({"latency": {"max_p99_s": 0.004}}, counted(100), "roll_back", "ms, allowed are 4 ms (latency.max_p99_s)"),
        ({"latency": {"max_p50_s": 0.004}}, counted(99), "wait", "99 of 100"),
        ({"latency": {"max_p50_s": 0.004}}, counted(99, 900), "wait", "99 of 100 requests"),
        ({"latency": {"max_p99_factor": 1.5}}, counted(100, ms=7.0), "go_on", ""),
        ({"latency": {"max_p99_factor": 1.5}}, counted(100, ms=8.0), "roll_back", "1.66 times the default's"),
        ({"latency": {"max_p50_factor": 1.5}}, counted(100, ms=100), "roll_back", "(latency.max_p50_factor)"),
        ({"differences": {"max_ratio": 0.01}}, counted(100, same=98, different=1), "wait", "99 of 100 compared copies"),
        ({"differences": {"max_ratio": 0.01}}, counted(100, same=99, different=1, dropped=50), "go_on", "1 of 100 copies unlike"),
        ({"differences": {"max_ratio": 0.01}}, counted(3, different=1, failed=1), "roll_back", "2 of 2 copies"),
        ({"differences": {"max_ratio": 0, "min_compared": 5}}, counted(100, same=5), "go_on", ""),
    ],
)
def test_a_version_is_judged_by_what_was_counted(
    values: dict[str, Any], counts: VersionCounts, verdict: str, reason: str
) -> None:
    judgement = judge(rules(**values), counts, DEFAULT, step_s=1.0)
    assert (judgement.verdict, reason in judgement.reason) == (verdict, True), judgement


def test_a_comparison_waits_for_the_default_version() -> None:
    for values in ({"latency": {"max_p50_factor": 1.5}}, {"errors": {"max_increase": 0.0}}):
        judgement = judge(rules(**values), counted(100, 0, 900), counted(99), step_s=1.0)
        assert judgement == (Verdict.WAIT, "99 of 100 requests of the default version (min_requests)")


def test_refusals_are_compared_with_enough_requests_of_the_default_version() -> None:
    limits = rules(errors={"max_ratio": 0.1})
    judgement = judge(limits, refusing(100, counted(100)), refusing(50, counted(49)), 1)
    assert judgement == (Verdict.WAIT, "99 of 100 requests of the default version, to compare refusals (min_requests)")
    assert judge(limits, refusing(100, counted(100)), refusing(50, counted(50)), 1).verdict is Verdict.GO_ON, "both refuse half"
    assert judge(limits, refusing(5, counted(100)), counted(), 1).verdict is Verdict.GO_ON


def test_a_step_has_a_shortest_and_a_longest_time() -> None:
    limits = rules(errors={"max_ratio": 0.1}, min_step_s=60, max_step_s=600)
    assert judge(limits, counted(500), DEFAULT, 59) == (Verdict.WAIT, "59 of 60 s (min_step_s)")
    assert judge(limits, counted(500), DEFAULT, 60).verdict is Verdict.GO_ON
    assert judge(limits, counted(99), DEFAULT, 599).verdict is Verdict.WAIT
    judgement = judge(limits, counted(99), DEFAULT, 600)
    assert judgement == (Verdict.ROLL_BACK, "only 99 of 100 requests (min_requests) after 600 s (max_step_s)")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"latency": {"max_p98_s": 1}}, "'latency.max_p98_s' is no rule; known are latency.max_p50_factor, "),
        ({"stepps": [10]}, "'stepps' is no rule; known are steps, min_requests, "),
        ({"latency": {"max_p99_factor": "fast"}}, "latency.max_p99_factor is 'fast', expected a number"),
        ({"latency": {"max_p99_factor": -1}}, "latency.max_p99_factor is -1, expected a number > 0"),
        ({"latency": {"max_p99_factor": float("nan")}}, "latency.max_p99_factor is nan, expected"),
        ({"latency": {"max_p50_factor": float("inf")}}, "latency.max_p50_factor is inf, expected a finite number"),
        ({"max_step_s": float("inf"), "errors": {"max_ratio": 0.1}}, "max_step_s is inf, expected a finite number"),
        ({"latency": 3}, "latency is 3, expected a table"),
        ({"errors": {"max_ratio": 2}}, "errors.max_ratio is 2, expected a number <= 1"),
        ({"errors": {"max_ratio": True}}, "errors.max_ratio is True, expected"),
        ({"min_requests": 0, "errors": {"max_ratio": 0.1}}, "min_requests is 0, expected a whole number >= 1"),
        ({"steps": [], "errors": {"max_ratio": 0.1}}, r"steps is [], expected per cents that grow"),
        ({"steps": [50, 10], "errors": {"max_ratio": 0.1}}, "steps is [50.0, 10.0], expected per cents that grow"),
        ({"steps": [10, 110], "errors": {"max_ratio": 0.1}}, "steps is [10, 110], expected a number <= 100"),
        ({"min_step_s": 9, "max_step_s": 5, "errors": {"max_ratio": 0.1}}, "min_step_s is 9, expected at most max_step_s, 5"),
        ({}, "there is nothing to judge by; expected at least one of latency.max_p50_factor, "),
        ({"differences": {"min_compared": 5}}, "there is nothing to judge by"),
    ],
)
def test_bad_rules_name_the_key(values: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_rules(values)
    assert f"canary rules: {text}" in str(caught.value)
    assert "null" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "key"), [({"latency": {"max_p50_factor": None}}, "latency.max_p50_factor"), ({"max_step_s": None}, "max_step_s")]
)
def test_a_rule_that_is_null_is_refused(values: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidInputError, match=f"canary rules: {key} is None, expected a finite number"):
        read_rules(msgspec.json.decode(msgspec.json.encode(values)))


# What is deployed


def canary(share: float = 0.1) -> ModelHistory:
    """Returns a model whose second version is judged."""
    return FIRST.with_version(version("2"), share, sticky="x-user", rules=rules(errors={"max_ratio": 0.1}, steps=[10, 50, 100]))


def shares_of(history: ModelHistory) -> Any:
    """Returns the shares of versions besides the default."""
    assert history.now is not None
    return history.now.shares


def test_a_good_version_takes_its_steps_and_one_rollback_undoes_all_of_them() -> None:
    first = canary()
    second = first.settle_canary(goes_on=True, reason="fine", now_s=1.0)
    assert (shares_of(second), second.verdict) == ({"2": 0.5}, None)
    assert second.now is not None
    assert (second.now.sticky, second.past) == ("x-user", first.past)
    third = second.settle_canary(goes_on=True, reason="fine", now_s=2.0)
    assert third.now == TrafficAssignment("2")
    assert third.verdict is not None
    assert (third.verdict.is_promoted, third.verdict.share, third.verdict.at_s) == (True, 0.5, 2.0)
    assert third.roll_back().now == FIRST.now


def test_a_bad_version_leads_back_to_what_was_before_the_first_step() -> None:
    history = canary().settle_canary(goes_on=True, reason="fine", now_s=1.0)
    back = history.settle_canary(goes_on=False, reason="too slow", now_s=2.0)
    assert (back.now, back.past, set(back.versions)) == (FIRST.now, (), {"1"})
    assert back.verdict is not None
    assert (back.verdict.version, back.verdict.is_promoted, back.verdict.reason) == ("2", False, "too slow")


def test_it_begins_where_it_is_told_and_any_other_change_ends_the_judging() -> None:
    history = canary(0.3)
    assert history.now is not None
    assert history.now.canary is not None
    assert history.now.canary.steps == (0.3, 0.5)
    for changed in (
        history.with_version(version("2"), 0.4),
        history.with_version(version("2"), 1.0),
        history.without_version("2"),
    ):
        assert changed.now is not None
        assert changed.now.canary is None


RULES = rules(errors={"max_ratio": 0.1}, steps=[10, 50, 100])


def test_a_rollback_begins_no_judging() -> None:
    by_hand = canary().with_version(version("2"), 0.3)
    assert by_hand.roll_back().now == TrafficAssignment("1", {"2": 0.1}, sticky="x-user")
    undeployed = canary().without_version("2")
    assert undeployed.roll_back().now == TrafficAssignment("1", {"2": 0.1}, sticky="x-user")
    judged_again = by_hand.with_version(version("2"), 0.2, rules=RULES)
    back = judged_again.settle_canary(goes_on=False, reason="too slow", now_s=1.0)
    assert (back.now, back.roll_back().now) == (by_hand.now, undeployed.roll_back().now)


def test_one_rollback_undoes_a_judging_that_began_again() -> None:
    again = canary(0.9).with_version(version("2"), 0.6, rules=RULES).with_version(version("2"), 0.2, rules=RULES)
    assert again.past == (FIRST.now,)
    promoted = again.settle_canary(goes_on=True, reason="", now_s=1.0).settle_canary(goes_on=True, reason="", now_s=2.0)
    assert promoted.now == TrafficAssignment("2")
    assert promoted.roll_back().now == FIRST.now
    assert again.settle_canary(goes_on=False, reason="too slow", now_s=1.0).now == FIRST.now


def test_the_verdict_is_of_the_judging_that_ended_last() -> None:
    failed = canary().settle_canary(goes_on=False, reason="too slow", now_s=2.0)
    assert failed.with_version(version("3"), 0.1).verdict == failed.verdict
    assert failed.with_version(version("3"), 0.1, rules=RULES).verdict is None, "who waits for the next does not see the last"


def test_it_is_the_only_one_with_a_share() -> None:
    with pytest.raises(ConflictError, match="cannot be judged while version '3' has a share; undeploy that first"):
        FIRST.with_version(version("3"), 0.1).with_version(version("2"), 0.1, rules=rules(errors={"max_ratio": 0.1}))


def test_it_outlives_the_server() -> None:
    state = DeploymentState().with_history("flow", canary())
    assert DeploymentState.of_json(state.to_json()) == state
    old = msgspec.json.decode(state.to_json())
    for name in ("shadows", "sticky", "canary"):
        del old["lines"]["flow"]["now"][name]
    read = DeploymentState.of_json(msgspec.json.encode(old)).lines["flow"].now
    assert read == TrafficAssignment("1", {"2": 0.1}), "what an earlier server has noted"


# Counts


def test_counts_add_up_over_processes_and_begin_anew_with_each_step() -> None:
    before = counted(10, 1, same=2)
    now = counted(30, 4, ms=7.0, same=3, different=1)
    total = VersionCounts()
    for part in (before, now):
        total.add(part)
    assert (total.num_requests, total.num_failed, total.num_compared, total.num_unlike) == (45, 5, 6, 1)
    later = total.since(before)
    refused = refusing(3)
    refused.add(refusing(2))
    assert (refused.num_refused, refused.num_ended, refused.num_requests) == (5, 5, 0)
    assert refused.since(refusing(2)).refusals == {"invalid_input": 3}
    assert (later.num_ok, later.failures, later.copies) == (30, {"execution": 4}, {SAME: 3, DIFFERENT: 1})
    assert later.latency_ms(0.5) == pytest.approx(7, rel=0.05)
    assert (before.num_ok, before.latency_ms(0.99)) == (10, pytest.approx(5, rel=0.05))
    assert VersionCounts().latency_ms(0.5) is None
    assert counted(failed=1, dropped=7).num_compared == 1 == counted(**{FAILED: 1, DROPPED: 7}).num_unlike
