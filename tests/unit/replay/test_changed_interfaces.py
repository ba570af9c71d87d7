"""Replays on versions that take or return something else: what a client would notice before the workflow begins, or after."""

from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.telemetry.histories.history_files import read_histories
from tests.unit.replay.histories import Numbers, Vector, Vectors, double, note, recorded, recording, tried, vector, workflow_like

pytestmark = pytest.mark.anyio

SMALL = vector(1, 1)


async def test_what_a_version_refuses_is_another_error(tmp_path: Path) -> None:
    """As the server does, before the workflow begins."""

    @workflow_like("taken")
    async def flow(x: Vector, text: str = "", number: float = 0.0) -> Vector:
        return double(x)

    async with recording(flow, tmp_path) as cell:
        await cell.ask(vector(1, np.nan), statics=["no number", 2.5])
    histories = list(read_histories(tmp_path))
    assert tried(flow, histories).num_same == 1

    @workflow_like("taken")
    async def of_matrices(x: Float[np.ndarray, "n m"], text: str, number: float) -> Float[np.ndarray, "n m"]:
        return x

    @workflow_like("taken")
    async def of_two(x: Vector, y: Vector, text: str, number: float) -> Vector:
        return double(x)

    @workflow_like("taken")
    async def finite(x: Annotated[Vector, dyorc.Finite], text: str, number: float) -> Vector:
        return double(x)

    @workflow_like("taken")
    async def of_whole_numbers(x: Vector, text: str, number: int) -> Vector:
        return double(x)

    @workflow_like("taken")
    async def without_text(x: Vector, number: float) -> Vector:
        return double(x)

    @workflow_like("taken")
    async def of_a_text(x: str, text: str, number: float) -> Vector:
        return double(np.zeros(2, np.float32))

    @workflow_like("taken")
    async def of_a_tensor(x: Vector, text: Vector, number: float) -> Vector:
        return double(x)

    for version, expected in (
        (of_matrices, "'x' has rank 1 (shape [2]), expected rank 2"),
        (of_two, "'y' is missing"),
        (finite, "'x' holds nan at [1], expected finite numbers"),
        (of_whole_numbers, "parameter 'number' is float 2.5, expected int"),
        (without_text, "has no parameter ['text']"),
        (of_a_text, "'x' is a parameter, and was sent as the other"),
        (of_a_tensor, "'text' is a tensor, and was sent as the other"),
    ):
        report = tried(version, histories)
        assert (report.num_replayed, report.num_other_errors, report.num_different) == (1, 1, 1)
        (text,) = report.errors
        assert text.startswith("it was answered, and now it fails: ")
        assert expected in text


async def test_a_parameter_with_its_default_may_not_have_been_sent(tmp_path: Path) -> None:
    @workflow_like("taken")
    async def flow(x: Vector, text: str = "as usual") -> Vector:
        return double(x)

    @workflow_like("taken")
    async def without(x: Vector) -> Vector:
        return double(x)

    async with recording(flow, tmp_path) as cell:
        await cell.ask(SMALL, statics=["as usual"])
    assert tried(without, list(read_histories(tmp_path))).num_same == 1


async def test_an_output_of_another_name_is_another_answer(tmp_path: Path) -> None:
    class Tagged(TypedDict):
        tag: Vector

    class Labelled(TypedDict):
        label: Vector

    @workflow_like("named")
    async def flow(x: Vector) -> Tagged:
        return {"tag": double(x)}

    @workflow_like("named")
    async def other(x: Vector) -> Labelled:
        return {"label": double(x)}

    histories = await recorded(flow, tmp_path, [SMALL])
    assert tried(flow, histories).num_same == 1
    assert tried(other, histories).answer == "the outputs are ['label'], they were ['tag']"


async def test_effects_in_another_order_are_a_difference(tmp_path: Path) -> None:
    @dyorc.program(pure=False)
    def pay(x: Vectors) -> Numbers:
        return x[:, 0]

    def in_order(*programs: Program) -> Workflow:
        @workflow_like("ordered", programs=[pay, note])
        async def flow(x: Vector) -> Vector:
            for program in programs:
                await program(x)
            return double(x)

        return flow

    histories = await recorded(in_order(pay, note), tmp_path, [SMALL])
    assert tried(in_order(pay, note), histories).num_same == 1
    report = tried(in_order(note, pay), histories)
    assert (report.num_other_orders, report.num_other_calls) == (1, 0)
    assert report.examples[0].first() == "effects in another order: 'note' comes before 'pay'"


async def test_a_text_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    @workflow_like("written")
    async def flow(x: Vector, text: str, other: str) -> Vector:
        return double(x)

    @workflow_like("written")
    async def shorter(x: Vector, other: str) -> Vector:
        return double(x)

    async with recording(flow, tmp_path, max_value_bytes=100) as cell:
        await cell.ask(SMALL, statics=["x" * 101, "y" * 100])
    (history,) = read_histories(tmp_path)
    assert (history.statics, history.unkept) == ({"other": "y" * 100}, ("text",))
    assert list(tried(flow, [history]).num_not_replayed) == ["its parameter 'text' was too large to be kept"]
    assert tried(shorter, [history]).num_other_errors == 1
