"""The models know what the documentation promises of versions, leases, effects and streams, and what it forbids."""

import math
from collections import Counter
from typing import Any

import pytest

from tests.histories.deploy_model import DeployModel
from tests.histories.effects import faults_of_effects
from tests.histories.lease_model import LeaseModel, faults_of_acts, faults_of_followers
from tests.histories.linearizability import check
from tests.histories.operation import Operation
from tests.histories.part_streams import Part, faults_of_stream


def operation(at: int, kind: str, argument: Any, outcome: list[Any] | None, subject: str = "x") -> Operation:
    """Returns an operation of half a second; without an outcome, nobody knows when it ended."""
    ended_s = math.inf if outcome is None else at + 0.5
    return Operation(client=0, kind=kind, subject=subject, argument=argument, outcome=outcome, began_s=at, ended_s=ended_s)


def row(*steps: tuple[str, Any, list[Any] | None]) -> list[Operation]:
    """Returns operations one after another, a second each."""
    return [operation(at, *step) for at, step in enumerate(steps)]


def version(name: str) -> list[str]:
    return ["version", name]


_DEPLOY = ("deploy", "2", version("2"))


@pytest.mark.parametrize(
    "history",
    [
        row(("ask", None, version("1")), _DEPLOY, ("ask", None, version("2")), ("list", None, version("2"))),
        row(_DEPLOY, ("deploy", "3", version("3")), ("rollback", None, version("2")), ("rollback", None, version("1"))),
        row(
            ("rollback", None, ["conflict", ""]), ("deploy", "2", None), ("ask", None, version("1")), ("ask", None, version("2"))
        ),
        row(_DEPLOY, ("rollback", None, None), ("ask", None, version("1"))),
    ],
)
def test_what_versions_may_do(history: list[Operation]) -> None:
    assert str(check(history, DeployModel())) == "linearizable"


@pytest.mark.parametrize(
    "history",
    [
        row(_DEPLOY, ("ask", None, version("1"))),  # a request after the deployment got the version before
        row(_DEPLOY, ("ask", None, version("2")), ("list", None, version("1"))),  # it went back
        row(("ask", None, version("2"))),  # nobody deployed it
        row(_DEPLOY, ("rollback", None, ["conflict", ""])),
        row(_DEPLOY, ("deploy", "3", version("3")), ("rollback", None, version("1"))),  # a deployment is lost
        row(("deploy", "2", None), ("ask", None, version("2")), ("ask", None, version("1"))),
    ],
)
def test_what_versions_may_not_do(history: list[Operation]) -> None:
    assert check(history, DeployModel()).is_linearizable is False


_ACQUIRE = ("acquire", ["a"], ["fence", 1])


@pytest.mark.parametrize(
    "history",
    [
        row(
            _ACQUIRE, ("renew", ["a", 1], ["ours", ""]), ("release", ["a", 1], ["released", ""]), ("acquire", ["b"], ["fence", 2])
        ),
        [operation(0, *_ACQUIRE), operation(3, "acquire", ["b"], ["fence", 2]), operation(4, "renew", ["a", 1], ["lost", ""])],
        [operation(0, *_ACQUIRE), operation(4, "renew", ["a", 1], ["ours", ""]), operation(7, "acquire", ["b"], ["fence", 2])],
        row(("acquire", ["a"], None), ("acquire", ["a"], ["fence", 1])),
    ],
)
def test_what_a_lease_may_do(history: list[Operation]) -> None:
    assert str(check(history, LeaseModel(2.0))) == "linearizable"


@pytest.mark.parametrize(
    "history",
    [
        row(_ACQUIRE, ("acquire", ["b"], ["fence", 2])),  # while another held it
        [operation(0, *_ACQUIRE), operation(3, "acquire", ["b"], ["fence", 1])],  # the same fence
        [operation(0, *_ACQUIRE), operation(3, "acquire", ["b"], ["fence", 2]), operation(4, "renew", ["a", 1], ["ours", ""])],
        row(_ACQUIRE, ("renew", ["a", 1], ["lost", ""])),  # to nobody
    ],
)
def test_what_a_lease_may_not_do(history: list[Operation]) -> None:
    assert check(history, LeaseModel(2.0)).is_linearizable is False


def test_a_leader_acts_only_until_the_next_fence_is_given_unless_it_is_cut_off() -> None:
    leases = [operation(0, *_ACQUIRE), operation(3, "acquire", ["b"], ["fence", 2])]
    assert not faults_of_acts([operation(3, "act", False, ["fence", 1]), operation(4, "act", False, ["fence", 2])], leases)
    assert len(faults_of_acts([operation(4, "act", False, ["fence", 1])], leases)) == 1
    assert not faults_of_acts([operation(4, "act", True, ["fence", 1])], leases)


def test_a_gateway_follows_no_lower_fence() -> None:
    taken = [operation(at, "take", None, ["fence", fence], "gateway") for at, fence in enumerate((1, 1, 2))]
    late = operation(3, "take", None, ["fence", 1], "gateway")
    assert not faults_of_followers(taken)
    assert len(faults_of_followers([late, *taken])) == 1
    late.subject = "another"
    assert not faults_of_followers([late, *taken]), "which has not met the second leader"


@pytest.mark.parametrize(
    ("outcome", "times", "is_right"),
    [
        (["answered", ""], 1, True),
        (["answered", ""], 0, False),
        (["answered", ""], 2, False),
        (["failed", "effect_lost"], 0, True),
        (["failed", "effect_lost"], 1, True),
        (["failed", "effect_lost"], 2, False),
        (None, 2, False),
    ],
)
def test_effects(outcome: list[str] | None, times: int, is_right: bool) -> None:
    assert bool(faults_of_effects([operation(0, "effect", None, outcome, "7")], Counter({7: times}))) is not is_right


def test_an_effect_that_nobody_asked_for_is_noticed() -> None:
    assert faults_of_effects([], Counter({7: 1})) == ["effect 7 happened, and nobody asked for it"]


def parts_of(*places: int) -> list[Part]:
    return [Part(at=at, made_by="1", version="1", pid=5) for at in places]


@pytest.mark.parametrize(
    ("parts", "has_effect", "is_right"),
    [
        (parts_of(0, 1, 2), True, True),
        (parts_of(0, 1), False, False),  # it ended early
        (parts_of(0, 1, 1, 2), False, False),
        (parts_of(0, 2, 1), False, False),
        (parts_of(0, 1, 2, 3), False, False),
        ([*parts_of(0, 1), Part(at=2, made_by="2", version="1", pid=5)], False, False),
        ([*parts_of(0, 1), Part(at=2, made_by="1", version="1", pid=6)], False, True),
        ([*parts_of(0, 1), Part(at=2, made_by="1", version="1", pid=6)], True, False),
    ],
)
def test_streams(parts: list[Part], has_effect: bool, is_right: bool) -> None:
    assert bool(faults_of_stream(operation(0, "read", [3, has_effect], ["ended", ""]), parts)) is not is_right


def test_a_stream_that_fails_may_be_short() -> None:
    assert not faults_of_stream(operation(0, "read", [3, True], ["failed", "effect_lost"]), parts_of(0, 1))
