"""A workflow that calls something with arguments that do not fit has made a mistake of its own: no fault of the request's."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Bool, Float, Int

import dyorc
from dyorc.errors import InvalidInputError, WorkflowError

B = Float[np.ndarray, "batch n"]
V = Float[np.ndarray, " n"]
X = np.array([1, 2, 3], np.float32)


@dyorc.program
def mean(x: B) -> Float[np.ndarray, " batch"]:
    return x.mean(axis=1)


@dyorc.program
def clip(x: B, limit: float = 1.0, times: int = 1, both: bool = False, tag: str = "") -> B:
    assert (type(limit), type(times), type(both), type(tag)) == (float, int, bool, str)
    return np.clip(x, -limit if both else x.min(), limit) * np.float32(times)


@dyorc.workflow
async def inner(x: V, limit: float) -> V:
    return clip(x, limit=limit)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": "2"}, "program 'clip': parameter 'limit' is str '2', expected float"),
        ({"times": 1.0}, "parameter 'times' is float 1.0, expected int"),
        ({"times": np.float64(2)}, "expected int"),
        ({"lmit": 1.0}, r"program 'clip' has no parameter \['lmit'\]"),
        ({"x": X}, "'x' was given twice"),
    ],
)
def test_it_names_the_workflow_the_call_and_the_line(arguments: dict[str, Any], message: str) -> None:
    @dyorc.workflow
    async def flow(x: V) -> V:
        return clip(x, **arguments)

    with pytest.raises(WorkflowError, match=rf"workflow 'flow': .*{message}.*\(test_mistakes_of_workflows\.py, line \d+\)"):
        dyorc.run(flow, X)


def test_the_same_holds_for_missing_arguments_for_tensors_and_for_workflows() -> None:
    @dyorc.workflow
    async def missing(x: V) -> V:
        return clip()

    @dyorc.workflow
    async def no_tensor(x: V) -> V:
        return clip(object())

    @dyorc.workflow
    async def other_workflow(x: V) -> V:
        return inner(x, limit=None)

    expected = {
        missing: "'x' is missing",
        no_tensor: "expected FP32",
        other_workflow: "'limit' is NoneType None",
    }
    for workflow, message in expected.items():
        with pytest.raises(WorkflowError, match=rf"workflow {workflow.name!r}: .*{message}.*line \d+"):
            dyorc.run(workflow, X)


def test_a_workflow_may_catch_its_mistake() -> None:
    @dyorc.workflow
    async def flow(x: V) -> V:
        try:
            return clip(x, limit="2")
        except WorkflowError:
            return clip(x, limit=2.0)

    assert dyorc.run(flow, X).tolist() == [1, 2, 2]


def test_a_value_that_a_request_sends_is_the_requests_fault() -> None:
    with pytest.raises(InvalidInputError):
        dyorc.run(inner, X, limit="2")


def test_scalars_and_tensors_of_rank_0_fit_parameters() -> None:
    @dyorc.program(batched=False)
    def of(x: V) -> tuple[Float[np.ndarray, ""], Int[np.ndarray, ""], Bool[np.ndarray, ""]]:
        return np.array(x.max() / 2, np.float32), np.array(2), np.array(True)

    @dyorc.workflow
    async def flow(x: V) -> V:
        limit, times, both = await dyorc.gather(*of(x))
        clipped = clip(x, limit=limit, times=times, both=both, tag=np.str_("a"))
        return clip(clipped, limit=np.array(9, np.int32), times=np.uint8(1))

    assert dyorc.run(flow, X).tolist() == [2, 3, 3]

    @dyorc.workflow
    async def averaged(x: V) -> V:
        return clip(x, limit=await mean(x))

    assert dyorc.run(averaged, X).tolist() == [1, 2, 2]


@dyorc.program(batched=False)
async def letters(x: V) -> AsyncIterator[V]:
    yield x


def test_awaiting_a_stream_names_the_workflow_and_the_line() -> None:
    @dyorc.workflow
    async def flow(x: V) -> V:
        return await letters(x)  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]

    with pytest.raises(WorkflowError, match=r"workflow 'flow' awaits a Stream, .*line \d+\)"):
        dyorc.run(flow, X)
