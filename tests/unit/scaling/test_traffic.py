"""What is foreseen from what requests have called."""

import itertools
import json
from collections.abc import Sequence

import numpy as np
import pytest

from dyorc.scaling.traffic import Traffic
from dyorc.scaling.workflow_visits import WorkflowVisits

NS = 1_000_000_000


class _Sender:
    """Sends requests through traffic, one call every `step_s`."""

    def __init__(self, traffic: Traffic, step_s: float = 0.1) -> None:
        self.traffic = traffic
        self.now_ns = 0
        self._step_ns = int(step_s * NS)
        self._ids = itertools.count()

    def send(self, route: Sequence[str], *, ends: bool = True, workflow: str = "flow") -> int:
        request = next(self._ids)
        self.traffic.arrived(request, workflow, self.now_ns)
        for program in route:
            self.now_ns += self._step_ns
            self.traffic.called(request, program, self.now_ns)
        if ends:
            self.now_ns += self._step_ns
            self.traffic.ended(request, self.now_ns)
        return request

    def ahead(self, program: str, end_s: float, start_s: float = 0.0) -> float:
        self.traffic.advance(self.now_ns)
        return self.traffic.ahead(program, start_s, end_s, self.now_ns).mean

    def idle(self, for_s: float) -> None:
        self.now_ns += int(for_s * NS)


@pytest.fixture
def sender() -> _Sender:
    return _Sender(Traffic())


def test_a_request_in_flight_goes_on_as_others_have(sender: _Sender) -> None:
    for k in range(100):
        sender.send(["a", "b"] if k % 4 == 0 else ["a", "c"])
    sender.idle(600)
    base = {program: sender.ahead(program, 1.0) for program in "abc"}
    sender.send(["a"], ends=False)
    assert sender.ahead("b", 1.0) - base["b"] == pytest.approx(0.25, abs=0.08)
    assert sender.ahead("c", 1.0) - base["c"] == pytest.approx(0.75, abs=0.08)
    assert sender.ahead("a", 1.0) - base["a"] == pytest.approx(0.0, abs=0.05)


def test_what_was_called_first_decides_what_follows(sender: _Sender) -> None:
    for k in range(200):
        sender.send(["a", "c"] if k % 2 else ["b", "d"])
    sender.idle(600)
    base = {program: sender.ahead(program, 1.0) for program in "cd"}
    sender.send(["a"], ends=False)
    assert sender.ahead("c", 1.0) - base["c"] == pytest.approx(1.0, abs=0.1)
    assert sender.ahead("d", 1.0) - base["d"] == pytest.approx(0.0, abs=0.1)


def _take(paths: WorkflowVisits, route: Sequence[str], now_ns: int, *, ends: bool = True) -> int:
    walk = paths.enter(now_ns)
    for number, program in enumerate(route):
        walk.call(program, now_ns + number * NS // 10)
    now_ns += len(route) * NS // 10
    if ends:
        walk.end(now_ns)
    return now_ns


def test_loops_go_on_as_often_as_they_have() -> None:
    rng = np.random.default_rng(0)
    paths = WorkflowVisits()
    now_ns = 0
    for _ in range(300):
        now_ns = _take(paths, ["a"] * int(rng.geometric(0.25)), now_ns)
    assert paths.due("a", now_ns) == []
    now_ns = _take(paths, ["a", "a"], now_ns, ends=False)
    (due,) = paths.due("a", now_ns)
    assert due.mean == pytest.approx(3.0, abs=1.2)
    assert due.lasts_s == pytest.approx(due.mean * 0.1, rel=0.1)


def test_a_fan_that_has_been_called_is_over() -> None:
    paths = WorkflowVisits()
    now_ns = 0
    for _ in range(50):
        now_ns = _take(paths, ["a"] * 8, now_ns)
    _take(paths, ["a"] * 8, now_ns, ends=False)
    assert paths.due("a", now_ns) == []
    _take(paths, ["a"] * 3, now_ns, ends=False)
    assert [due.mean for due in paths.due("a", now_ns)] == [pytest.approx(5.0)]


def test_a_call_is_expected_when_it_is_due() -> None:
    sender = _Sender(Traffic(), step_s=5.0)
    for _ in range(30):
        sender.send(["a", "b"])
    sender.idle(2000)
    base = sender.ahead("b", 1.0)
    sender.send(["a"], ends=False)
    assert sender.ahead("b", 1.0) - base < 0.2
    sender.idle(4.5)
    assert sender.ahead("b", 1.0) - base > 0.8


def test_drifting_probabilities_are_followed(sender: _Sender) -> None:
    for _ in range(300):
        sender.send(["a", "b"])
    for _ in range(150):
        sender.send(["a", "c"])
    sender.idle(600)
    base = sender.ahead("c", 1.0)
    sender.send(["a"], ends=False)
    assert sender.ahead("c", 1.0) - base > 0.9


def test_arrivals_reach_a_program_after_its_usual_delay() -> None:
    traffic = Traffic()
    for request in range(6000):  # 10 per second, b half a minute after the arrival
        at_ns = request * NS // 10
        traffic.arrived(request, "flow", at_ns)
        if request >= 300:
            traffic.called(request - 300, "b", at_ns)
            traffic.ended(request - 300, at_ns)
    now_ns = 600 * NS
    traffic.advance(now_ns)
    assert traffic.ahead("b", 0.0, 10.0, now_ns).mean == pytest.approx(100, rel=0.25)
    assert traffic.ahead("b", 30.0, 40.0, now_ns).mean == pytest.approx(100, rel=0.25)


def test_what_leads_to_a_program_that_is_not_ready_is_urgent(sender: _Sender) -> None:
    for _ in range(20):
        sender.send(["a", "b"])
        sender.send(["c"], workflow="other")
    assert not sender.traffic.is_urgent
    sender.traffic.watch({"b": 3.0})
    sender.send(["c"], workflow="other")
    assert not sender.traffic.is_urgent
    sender.send([])
    assert sender.traffic.is_urgent
    sender.traffic.is_urgent = False
    sender.send(["new"], workflow="other")
    assert not sender.traffic.is_urgent
    sender.traffic.watch({"new": 3.0})
    sender.send(["new"], workflow="third")
    assert sender.traffic.is_urgent


def test_what_leads_there_later_than_a_start_takes_is_not_urgent() -> None:
    sender = _Sender(Traffic(), step_s=5.0)
    for _ in range(10):
        sender.send(["a", "b", "c"])
    sender.traffic.watch({"c": 6.0})
    request = sender.send(["a"], ends=False)
    assert not sender.traffic.is_urgent
    sender.traffic.called(request, "b", sender.now_ns)
    assert sender.traffic.is_urgent


def test_memory_is_bounded(sender: _Sender) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        sender.send([f"p{number}" for number in rng.permutation(12)[:4]])
    state = sender.traffic.to_state(sender.now_ns)
    assert len(state["flow"]["paths"]["stages"]) <= 256
    assert sender.traffic.num_in_flight == 0
    assert len(json.dumps(state)) < 500_000


def test_unknown_requests_do_no_harm(sender: _Sender) -> None:
    sender.traffic.called(99, "a", 5)
    sender.traffic.ended(99, 5)
    sender.send(["a"], ends=False)
    sender.traffic.arrived(0, "flow", 7)  # again, and earlier
    sender.traffic.called(0, "a", 3)
    sender.traffic.ended(0, 1)
    sender.traffic.ended(0, 1)
    assert sender.ahead("a", 1.0) >= 0


def test_what_was_learned_survives(sender: _Sender) -> None:
    for k in range(400):
        sender.send(["a", "b", "b"] if k % 2 else ["a", "c"])
    state = json.loads(json.dumps(sender.traffic.to_state(sender.now_ns)))
    again = Traffic()
    again.restore(state, 5 * NS)
    again.advance(5 * NS)
    for program in "abc":
        before = sender.ahead(program, 20.0)
        assert before > 1
        assert again.ahead(program, 0.0, 20.0, 5 * NS).mean == pytest.approx(before, rel=0.01)
