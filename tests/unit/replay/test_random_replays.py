"""Random workflows, recorded in a cell that guesses at every decision, and replayed: the same version shows no difference."""

import types
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.telemetry.histories.history_files import read_histories
from tests.effort import examples
from tests.random_workflows.cases import load, source_of
from tests.random_workflows.trial import generated
from tests.unit.replay.histories import recording, tried

pytestmark = pytest.mark.anyio

_noted: list[str] = []


async def _pause() -> None:
    """Waits for nothing."""


_programs = load(
    "programs", source_of("programs"), {"dyorc": dyorc, "effects": types.SimpleNamespace(note=_noted.extend, pause=_pause)}
)


async def test_random_workflows_are_the_same_again(tmp_path: Path) -> None:
    num_replayed = num_calls = num_decisions = 0
    for number, expected in enumerate(generated(20_000, examples(100, 0.3), num_requests=4)):
        case = expected.case
        flow: Workflow = getattr(load(case.name, case.source, {"dyorc": dyorc, "programs": _programs}), case.name)
        async with recording(flow, tmp_path / str(number)) as cell:
            for request in case.requests:
                values, statics = flow.signature.bind((request.x, np.int64(request.ticket)), dict(request.statics))
                await cell.ask(*[np.asarray(value) for value in values], statics=statics)
        num_noted = len(_noted)
        histories = list(read_histories(tmp_path / str(number)))
        assert len(histories) == len(case.requests)
        report = tried(flow, histories)
        assert report.num_different == 0, (report, case.source)
        assert len(_noted) == num_noted
        num_replayed += report.num_replayed
        num_calls += sum(len(history.calls) for history in histories)
        num_decisions += sum(len(history.decisions) for history in histories)
    assert num_replayed
    assert num_calls > num_replayed
    assert num_decisions
