"""Parameters that clients may not have sent have, in a replay, the default of the version that is tried."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import read_histories
from tests.unit.replay.histories import Vector, double, recorded, recording, tried, vector, workflow_like

pytestmark = pytest.mark.anyio

SMALL = vector(1, 1)


def scaled_by(default: int) -> Workflow:
    @workflow_like("scaled")
    async def flow(x: Vector, times: int = default) -> Vector:
        for _ in range(times):
            x = double(x)
        return x

    return flow


async def recorded_as_sent(workflow: Workflow, folder: Path, *requests: Sequence[Any]) -> list[RequestHistory]:
    """Returns the histories of requests with these arguments, which need not be all."""
    async with recording(workflow, folder) as cell:
        for arguments in requests:
            tensors, statics = workflow.signature.bind(tuple(arguments), {})
            specs = workflow.signature.inputs
            await cell.ask(
                *[
                    value if isinstance(value, np.ndarray) else spec.array_of(value, spec.name)
                    for spec, value in zip(specs, tensors, strict=True)
                ],
                statics=statics,
            )
    return list(read_histories(folder))


async def test_who_did_not_send_a_parameter_gets_the_default_of_the_version(tmp_path: Path) -> None:
    histories = await recorded_as_sent(scaled_by(2), tmp_path, [SMALL], [SMALL, 3])
    assert tried(scaled_by(2), histories).num_different == 0
    assert tried(scaled_by(1), histories).num_different == 1, "the other has sent 3"


def limited_by(default: dict[str, int]) -> Workflow:
    @workflow_like("limited")
    async def flow(x: Vector, limits: dict[str, int] = default) -> Vector:
        if limits["times"] > 1:
            return double(double(x))
        return double(x)

    return flow


async def test_who_did_not_send_a_structured_value_gets_the_default_of_the_version(tmp_path: Path) -> None:
    histories = await recorded_as_sent(limited_by({"times": 2}), tmp_path, [SMALL], [SMALL, {"times": 3}])
    assert tried(limited_by({"times": 2}), histories).num_different == 0
    assert tried(limited_by({"times": 1}), histories).num_different == 1


async def test_an_input_that_is_new_has_its_default(tmp_path: Path) -> None:
    @workflow_like("limited")
    async def unlimited(x: Vector) -> Vector:
        return double(x)

    histories = await recorded(unlimited, tmp_path, [SMALL])
    report = tried(limited_by({"times": 1}), histories)
    assert (report.num_same, report.num_different) == (1, 0)
