"""A backend without orchestrator, engine and replicas: the test decides the outcome of each request."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from dyorc.authoring.workflow import Workflow
from dyorc.config import LogsConfig
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver, Terms
from dyorc.engine.request_trace import RequestTrace
from dyorc.engine.tallies import ModelStatistics
from dyorc.errors import UnknownModelError
from dyorc.gateway.backend import Started
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import StatusBoard
from dyorc.models.submission import Submission
from dyorc.telemetry.levels import Levels
from dyorc.telemetry.metrics.readings import Readings
from dyorc.transport.arena import ArenaBody

T = TypeVar("T")
MakeParts: TypeAlias = Callable[[Workflow, Sequence[Array]], AsyncGenerator[list[list[Array]]]]
"""Yields a request's parts; the parts of one list are ready at the same time."""


class NoRoom:
    """Memory that no request needs."""

    inline_limit_bytes = 2**62

    def body(self, num_bytes: int, align_at: int) -> ArenaBody:
        """Refuses: nothing asks for it."""
        raise AssertionError(f"{num_bytes} bytes need no room")

    def drop(self, body: ArenaBody) -> None:
        """Does nothing: there is no body."""
        raise AssertionError("there is no body")


class FakeBackend:
    """Runs a function for each request.

    Args:
        answer: Makes the outputs of a workflow of its inputs; one list of them for each part.
        stream: Makes the parts of streaming workflows, in its own time; by default they are those of `answer`, one by one.

    Attributes:
        seen: The terms of all requests, in order.
        now: What it says of what it is doing.
        scaled: How many replicas were asked for, warm and parked, by program.
        default_timeout_s: The time limit of requests that name none.
    """

    def __init__(
        self,
        repertoire: ModelRegistry,
        answer: Callable[[Workflow, Sequence[Array]], list[list[Array]]],
        stream: MakeParts | None = None,
    ) -> None:
        self.tensors = NoRoom()
        self.offers = repertoire.offers
        self._workflows = repertoire.workflows
        self.status = StatusBoard(repertoire.programs)
        self.seen: list[Terms] = []
        self.now = Levels()
        self.scaled: dict[str, tuple[int | None, int | None]] = {}
        self.default_timeout_s = 300.0
        self._answer = answer
        self._make_parts = stream or self._one_by_one

    def submit(self, submission: Submission, receiver: Receiver[Any]) -> int:
        """Answers with the only part at once."""
        try:
            taken = receiver.take(self._only_part(submission))
        except Exception as error:
            receiver.failed(error)
        else:
            receiver.done(taken)
        return len(self.seen)

    def cancel(self, request_id: int) -> bool:
        """Returns whether a request was ended: it is answered already."""
        return False

    def measure(self, readings: Readings) -> None:
        """Adds nothing: no engine counts."""

    async def infer(self, submission: Submission, *, take: Callable[[list[Array]], T], started: Started | None) -> T:
        """Returns the only part."""
        future: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        if started is not None:
            started(future)
        future.set_result(self._only_part(submission))
        return take(await future)

    def _only_part(self, submission: Submission) -> list[Array]:
        self.seen.append(submission.terms)
        if submission.origin is not None:
            story = submission.origin.story = RequestTrace(len(self.seen), 0)
            story.end(0, is_answered=True)
        (outputs,) = self._answer(self._workflows[submission.model], submission.inputs)
        return outputs

    async def stream(
        self, submission: Submission, *, take: Callable[[list[Array]], T], started: Started | None
    ) -> AsyncGenerator[list[T]]:
        """Yields the parts."""
        self.seen.append(submission.terms)
        workflow = self._workflows[submission.model]
        make_parts = self._make_parts if workflow.is_streaming else self._one_by_one
        async with aclosing(make_parts(workflow, submission.inputs)) as ready:
            async for parts in ready:
                yield [take(part) for part in parts]

    async def _one_by_one(self, workflow: Workflow, inputs: Sequence[Array]) -> AsyncGenerator[list[list[Array]]]:
        for part in self._answer(workflow, inputs):
            yield [part]

    async def refresh(self) -> None:
        """Does nothing: all is known here."""

    def statistics(self, name: str) -> ModelStatistics:
        """Counts what it has seen."""
        return ModelStatistics(inference_count=len(self.seen))

    def report(self) -> dict[str, Any]:
        """Says who it is."""
        return {"backend": "fake"}

    def levels(self) -> Levels:
        """Says what it does; the test sets it."""
        return self.now

    def set_logs(self, config: LogsConfig) -> None:
        """Does nothing: it has no other processes."""

    def scaling(self) -> dict[str, Any]:
        """Returns the numbers that were asked for last."""
        return {"programs": {name: {"num_warm": one[0], "num_parked": one[1]} for name, one in self.scaled.items()}}

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Notes the numbers, after a while as if another process was asked."""
        await asyncio.sleep(0)
        if program not in self.status.programs:
            raise UnknownModelError(f"there is no program {program!r}")
        self.scaled[program] = (num_warm, num_parked)
