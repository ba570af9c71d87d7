"""Histories of a test's own workflows, recorded in a cell."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import HistoriesConfig
from dyorc.core.request import RequestFacts, Terms
from dyorc.errors import DyOrcError
from dyorc.models.submission import Submission
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replay.replay_report import ReplayReport, replay_all
from dyorc.replay.replayer import Replayer
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import read_histories
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from dyorc.telemetry.record import Origin
from tests.asking import submission
from tests.unit.cells.celled import celled

Vectors = Float[np.ndarray, "batch n"]
Vector = Float[np.ndarray, "n"]
Numbers = Float[np.ndarray, "batch"]

ran: list[str] = []
"""The programs that have run, in order."""


@dyorc.program
def double(x: Vectors) -> Vectors:
    ran.append("double")
    return 2 * x


@dyorc.program
def halve(x: Vectors) -> Vectors:
    ran.append("halve")
    return x / 2


@dyorc.program
def total(x: Vectors) -> Numbers:
    ran.append("total")
    return x.sum(axis=1)


@dyorc.program
def refuse_negative(x: Vectors) -> Vectors:
    if (x < 0).any():
        raise ValueError("a number is negative")
    return x


@dyorc.program(pure=False)
def note(x: Vectors) -> Numbers:
    ran.append("note")
    return x[:, 0]


def vector(*values: float) -> np.ndarray[Any, Any]:
    """Returns an input."""
    return np.array(values, np.float32)


@contextlib.asynccontextmanager
async def recording(target: Program | Workflow, folder: Path, **config: Any) -> AsyncGenerator["RecordedCell"]:
    """Serves a target in a cell, and records what it is asked while entered."""
    with HistoryRecorder(HistoriesConfig(folder=str(folder), **config)) as recorder:
        async with celled(target) as orchestrator:
            yield RecordedCell(target, orchestrator, recorder)
            await orchestrator.finish_effects(10)


class RecordedCell:
    """A served target whose requests are recorded."""

    def __init__(self, target: Program | Workflow, orchestrator: Orchestrator, recorder: HistoryRecorder) -> None:
        self._target = target
        self._orchestrator = orchestrator
        self._num_requests = 0
        self.recorder = recorder

    async def ask(self, *arrays: np.ndarray[Any, Any], statics: Sequence[Any] = (), terms: Terms | None = None) -> Any:
        """Makes a request, and returns its outputs, a list of them for each part of an answer in parts, or its error."""
        asked = self._submission(arrays, statics, terms)
        try:
            if self._target.is_streaming:
                return [part async for parts in self._orchestrator.stream(asked) for part in parts]
            return await self._orchestrator.infer(asked)
        except DyOrcError as error:
            return error

    def stream(self, *arrays: np.ndarray[Any, Any]) -> AsyncGenerator[list[Any]]:
        """Makes a request that is answered in parts, and yields them as they come."""
        return self._orchestrator.stream(self._submission(arrays, (), None))

    def _submission(self, arrays: Sequence[np.ndarray[Any, Any]], statics: Sequence[Any], terms: Terms | None) -> Submission:
        self._num_requests += 1
        facts = RequestFacts(f"r{self._num_requests}")
        origin = Origin(request_id=facts.request_id, transport="http", histories=self.recorder)
        others: Mapping[str, Any] = {"origin": origin, "terms": terms or Terms(), "facts": lambda: facts}
        return submission(self._target, list(arrays), tuple(statics), **others)


async def recorded(
    target: Program | Workflow, folder: Path, *requests: Sequence[np.ndarray[Any, Any]], **config: Any
) -> list[RequestHistory]:
    """Returns the histories of requests with these inputs."""
    async with recording(target, folder, **config) as cell:
        for arrays in requests:
            await cell.ask(*arrays)
    ran.clear()
    return list(read_histories(folder))


def workflow_like(name: str, **options: Any) -> Callable[[Any], Workflow]:
    """Declares a workflow under a name, as another version of it has."""
    return dyorc.workflow(name=name, **options)


def tried(target: Program | Workflow, histories: Sequence[RequestHistory], **options: Any) -> ReplayReport:
    """Replays histories on a version."""
    tolerance = options.pop("tolerance", 0.0)
    return replay_all(Replayer(target, **options), histories, tolerance=tolerance)
