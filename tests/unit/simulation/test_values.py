"""Values depend only on their inputs, wherever they are computed."""

import numpy as np
import pytest

import dyorc
from dyorc.authoring.decisions import when
from dyorc.authoring.workflow import workflow
from dyorc.core.arrays import inline
from dyorc.engine.events import RequestArrived
from dyorc.engine.model.journal import BranchPoint
from dyorc.engine.model.request_tree import Task
from dyorc.errors import InternalError
from dyorc.simulation.ledger import Ledger
from dyorc.simulation.plain_evaluation import OraclePredictor, evaluate, tensor_of
from dyorc.simulation.policies import POLICIES, policy
from dyorc.simulation.value_draws import draw, request_value, value_of
from dyorc.simulation.workload import Number
from dyorc.simulation.workloads import WORKLOADS, workload
from dyorc.simulation.workloads.single_decisions import embed, guard_program
from dyorc.simulation.workloads.trees import detect
from tests.unit.simulation.tiny import flow, net, run_world

VALUES = [request_value(0, at) for at in range(200)]


def test_one_call_and_a_batch_compute_the_same() -> None:
    assert [value_of(net, [value]) for value in VALUES] == draw("net", np.array(VALUES)).tolist()

    pages = draw("detect", np.array(VALUES), size=25)
    assert pages.shape == (200, 25)
    np.testing.assert_array_equal(np.stack([value_of(detect, [value]) for value in VALUES]), pages)
    assert [value_of(net, [page]) for page in pages] == draw("net", pages).tolist()


def test_values_are_spread_evenly() -> None:
    values = draw("net", np.array([request_value(1, at) for at in range(20_000)]))

    assert len(set(values.tolist())) == 20_000
    counts, _ = np.histogram(values, bins=20, range=(0, 1))
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_plain_answer_is_that_of_the_real_programs(name: str) -> None:
    for value in VALUES[:10]:
        assert evaluate(workload(name).workflow, [value]).answer == dyorc.run(workload(name).workflow, value)


@pytest.mark.parametrize("name", WORKLOADS)
def test_answers_do_not_depend_on_policy_or_time(name: str) -> None:
    num_requests = 40
    expected = {at: evaluate(workload(name).workflow, [at / 1000]).answer for at in range(1, num_requests + 1)}

    for policy_name in POLICIES:
        for gap_ms in (0.0, 5.0):
            assert run_world(workload(name), policy_name, [at * gap_ms for at in range(num_requests)]).answers == expected


def test_the_ledger_refuses_a_wrong_answer() -> None:
    ledger = Ledger(["net"], num_warmup=0)
    ledger.arrived(RequestArrived(1, flow, (tensor_of(0.5),)), 0)

    with pytest.raises(InternalError, match=r"answered 0\.75, expected"):
        ledger.answered(1, (tensor_of(0.75),), 10)


def test_the_ledger_tells_waste_from_work() -> None:
    ledger = Ledger(["net"], num_warmup=1)
    for request_id in (1, 2):
        ledger.arrived(RequestArrived(request_id, flow, (tensor_of(request_id / 10),)), 0)

    outputs = {x: (tensor_of(value_of(net, [x])),) for x in (0.1, 0.2, 0.3)}
    ledger.dispatched("net", list(outputs.values()), 30)
    ledger.dispatched("net", [outputs[0.2]], 12)

    account = ledger.programs["net"]
    assert (account.num_calls, account.num_wasted) == (1, 2)  # that of the first request is not measured
    assert account.device_ns == pytest.approx(10 + 10 + 12)
    assert account.wasted_ns == pytest.approx(10 + 12)  # a guess, and a call that was made before
    assert account.num_batches == pytest.approx(2 / 3 + 1)


@workflow
async def inner(text: Number) -> Number:
    """Decides within a task of its own."""
    return embed(text) if await when(guard_program(text), lambda harm: harm < 0.5) else text


@workflow
async def outer(text: Number) -> Number:
    """Decides on the result of a task."""
    if await when(inner(text), lambda score: score < 0.5):
        return net(text)
    return text


def first_decision(task: Task) -> BranchPoint:
    """Returns the decision that a task without results waits for."""
    assert isinstance(task.journal.end, BranchPoint)
    return task.journal.end


@pytest.mark.parametrize("name", [*WORKLOADS, "task"])
def test_the_oracle_knows_first_outcomes(name: str) -> None:
    """Nothing has run; the truth is what the workflow decides when it is evaluated."""
    subject = outer if name == "task" else workload(name).workflow
    programs = subject.programs
    outcomes = set()
    for at, value in enumerate(VALUES, 1):
        engine = policy("greedy")(programs, 0)
        engine.handle([RequestArrived(at, subject, (tensor_of(value),))], 0)
        root = engine.tasks.requests[at].root
        assert root is not None
        point = first_decision(root)
        assert not point.is_resolved
        told = OraclePredictor().outcome(point.decision)
        assert told is not None
        if name == "task":
            assert told == (evaluate(inner, [value]).answer < 0.5,)
        else:
            called = evaluate(subject, [value]).calls
            (ref,) = point.decision.refs
            array = next(output for program, output in called if program is ref.future.producer.callee)  # the first such call
            expected = array[0] if ref.views else array
            assert told == (point.decision.decide([expected]),)
        outcomes.add(told)
    assert len(outcomes) > 1


def test_the_oracle_knows_nothing_of_a_missing_value() -> None:
    engine = policy("greedy")([net], 0)
    stored = inline(np.asarray(0.5))
    stored = type(stored)(dtype=stored.dtype, shape=(), num_bytes=8, node="a", block=3)
    engine.handle([RequestArrived(1, flow, (stored,))], 0)
    root = engine.tasks.requests[1].root
    assert root is not None

    assert OraclePredictor().value(next(root.entries()).future) is None
