"""All planners together: deadlines, Ctrl-C, and what is next if the quickest plan is not proved."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster
from dyorc.planner.plan import Plan, SearchEnd
from dyorc.planner.planners import PLANNERS, auto
from dyorc.planner.planners.auto import Attempt, plan, plans
from dyorc.planner.planners.ending import DeadlineReached, check_deadline, deadline
from tests.unit.planner.examples import example

_CLUSTER = even_cluster(2, flops_per_s=1e9)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts other planners into the table, beside two that search nothing."""

    def put(**planners: Callable[..., Plan]) -> None:
        table: Mapping[str, Any] = {name: PLANNERS[name] for name in ("dp_even", "zero")} | planners
        monkeypatch.setattr(auto, "PLANNERS", table)

    return put


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Also where the tests run in a process that began with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _endless(*_: object, **options: object) -> Plan:
    while True:
        time.sleep(0.001)


def test_a_deadline_interrupts_a_planner_that_does_not_listen(others: Callable[..., None]) -> None:
    others(endless=_endless)
    heard: list[Attempt] = []
    found = plan(example("net").program, _CLUSTER, report=heard.append, among=["dp_even", "endless", "zero"], deadline_s=2.0)
    assert found.provenance.planner == "dp_even"
    assert found.provenance.ended is SearchEnd.DEADLINE
    assert found.provenance.notes == {"not finished": "endless", "not tried": "zero"}
    assert [(attempt.planner, attempt.error) for attempt in heard if attempt.error] == [
        ("endless", "not finished: the deadline of 2 s was reached"),
        ("zero", "not tried: the deadline of 2 s was reached"),
    ]


def test_a_deadline_before_any_plan_is_an_error(others: Callable[..., None]) -> None:
    others(endless=_endless)
    with pytest.raises(PlanError, match=r"within 0\.05 s:\n  endless: not finished\n  zero: not tried"):
        plan(example("net").program, _CLUSTER, among=["endless", "zero"], deadline_s=0.05)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(PlanError, match="the deadline must be a number of seconds above 0"):
            plan(example("net").program, _CLUSTER, deadline_s=wrong)


def test_a_planner_returns_what_it_has_at_the_deadline(others: Callable[..., None]) -> None:
    def hap(*arguments: Any, progress: Callable[[float, float | None], None], **options: Any) -> Plan:
        def heard(done_ratio: float, cost_s: float | None) -> None:
            progress(done_ratio, cost_s)
            raise DeadlineReached

        return PLANNERS["hap"](*arguments, progress=heard, **options)

    others(hap=hap)
    early = plan(example("net").program, _CLUSTER, among=["hap", "zero"])
    assert early.provenance.planner == "hap"
    assert early.provenance.ended is SearchEnd.DEADLINE
    assert early.provenance.notes["not finished"] == "hap"
    assert early.provenance.notes["not tried"] == "zero"


@pytest.mark.parametrize("name", ["hap", "duplex_hap", "hidup", "tag"])
def test_ctrl_c_in_a_planner_ends_the_whole_search(name: str, others: Callable[..., None]) -> None:
    def interrupted(program: Any, cluster: Any, *, progress: Any, known: Any = None) -> Plan:
        def heard(done_ratio: float, cost_s: float | None) -> None:
            if cost_s is not None:
                raise KeyboardInterrupt

        options = {} if known is None or name == "tag" else {"known": known}
        return PLANNERS[name](program, cluster, progress=heard, **options)

    others(searching=interrupted, after=PLANNERS["dp_proportional"])
    found = plan(example("net").program, _CLUSTER, among=["dp_even", "searching", "after"])
    assert found.provenance.ended is SearchEnd.INTERRUPTED
    assert found.provenance.notes["not tried"] == "after"
    assert found.provenance.notes["not finished"] == "searching"


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_before_any_plan_is_passed_on(others: Callable[..., None]) -> None:
    def interrupted(*_: object, **options: object) -> Plan:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was heard")

    others(interrupted=interrupted)
    with pytest.raises(KeyboardInterrupt):
        plan(example("net").program, _CLUSTER, among=["interrupted", "zero"])


def test_all_plans_come_the_quickest_first(others: Callable[..., None]) -> None:
    def same(*arguments: Any) -> Plan:
        made = PLANNERS["dp_even"](*arguments)
        return replace(made, provenance=replace(made.provenance, planner="same"))

    others(same=same)
    found = plans(example("net").program, _CLUSTER, among=["zero", "dp_even", "same"])
    costs = [each.provenance.cost_s or 0.0 for each in found]
    assert costs == sorted(costs)
    assert {each.provenance.planner for each in found} == {"zero", "dp_even"}, "a plan that another planner found is no other"


def test_a_deadline_comes_once_and_leaves_the_timer_as_it_was() -> None:
    before = signal.getsignal(signal.SIGALRM)
    had_timer = signal.getitimer(signal.ITIMER_REAL)[0] > 0  # the one that limits the time of tests
    with pytest.raises(DeadlineReached), deadline(time.monotonic() + 0.01):
        _endless()
    assert signal.getsignal(signal.SIGALRM) is before
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == had_timer
    with deadline(None) as check:
        check()
    with pytest.raises(DeadlineReached), deadline(time.monotonic() - 1):
        pass
    check_deadline(None)
