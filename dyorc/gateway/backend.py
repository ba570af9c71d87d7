"""The gateway's interfaces to what runs workflows and what deploys them: in this process, in another one, or on another host."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from dyorc.config import LogsConfig
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver
from dyorc.engine.tallies import ModelStatistics
from dyorc.models.offers import Offers
from dyorc.models.status import StatusBoard
from dyorc.models.submission import Submission
from dyorc.protocol.deployment_changes import DeploymentChange
from dyorc.telemetry.levels import Levels
from dyorc.telemetry.metrics.readings import Readings
from dyorc.transport.arena import ArenaBody

T = TypeVar("T")
Started: TypeAlias = Callable[[asyncio.Future[Any]], None]


class BodyMemory(Protocol):
    """Where large inputs are received, so that programs read them there.

    Attributes:
        inline_limit_bytes: Inputs up to this size need no room here.
    """

    inline_limit_bytes: int

    def body(self, num_bytes: int, align_at: int) -> ArenaBody:
        """Returns room for a request's body, placed so that its byte `align_at` is aligned.

        Raises:
            CapacityError: If there is no room now.
            PayloadTooLargeError: If there never will be enough.
        """
        ...

    def drop(self, body: ArenaBody) -> None:
        """Frees a body that holds no input; others are freed by the component that runs the request."""
        ...


class Backend(Protocol):
    """Runs workflows."""

    @property
    def offers(self) -> Offers:
        """The models that it runs, which may change."""
        ...

    @property
    def default_timeout_s(self) -> float:
        """The time limit of requests that name none."""
        ...

    @property
    def tensors(self) -> BodyMemory:
        """Memory for requests."""
        ...

    @property
    def status(self) -> StatusBoard:
        """What each program is doing, and so which ones are ready."""
        ...

    def submit(self, submission: Submission, receiver: Receiver[Any]) -> int:
        """Runs a workflow. Its receiver may be called before this returns.

        Returns:
            The request's number, for `cancel`.

        Raises:
            DyOrcError: If the request is not taken; its receiver is not called.
        """
        ...

    def cancel(self, request_id: int) -> bool:
        """Gives a request up, unless its answer is being made. Returns True if its receiver will not be called again."""
        ...

    async def infer(self, submission: Submission, *, take: Callable[[list[Array]], T], started: Started | None) -> T:
        """Runs a workflow as `submit` does, and returns its answer.

        Cancelling it cancels the request; so does cancelling the future passed to `started`.

        Args:
            take: `Receiver.take`.

        Raises:
            DyOrcError: See the tree in `dyorc.errors`.
        """
        ...

    def stream(
        self, submission: Submission, *, take: Callable[[list[Array]], T], started: Started | None
    ) -> AsyncGenerator[list[T]]:
        """Runs a workflow and yields its parts in order, parts that are ready at the same time together; a workflow that does not
        stream has one. A part counts as taken when the caller asks for more. Closing the generator cancels the request."""
        ...

    async def refresh(self) -> None:
        """Updates what `statistics`, `report`, `levels` and `scaling` return. Await it before these; in one process it has
        nothing to do."""
        ...

    def statistics(self, name: str) -> ModelStatistics:
        """Returns the statistics of a workflow's requests, or of a program's calls, since the start."""
        ...

    def measure(self, readings: Readings) -> None: ...

    def report(self) -> dict[str, Any]:
        """Returns the current state as plain values."""
        ...

    def levels(self) -> Levels:
        """Returns what every program and workflow is doing now, in numbers."""
        ...

    def scaling(self) -> dict[str, Any]:
        """Returns how many replicas each program has and should have, and why, as plain values."""
        ...

    def set_logs(self, config: LogsConfig) -> None:
        """Applies the settings of logs to its other processes."""
        ...

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Fixes how many replicas a program keeps, regardless of the forecast; None leaves that number to the forecast again.

        Raises:
            UnknownModelError: If there is no such program.
            InvalidInputError: If the program's bounds or the budget do not allow it.
            NotReadyError: If the component that scales it cannot be reached now.
        """
        ...


class Deployments(Protocol):
    """Changes which versions are deployed."""

    async def change(self, change: DeploymentChange) -> dict[str, Any]:
        """Deploys, undeploys or rolls back. Returns the model's versions after that, as plain values, once requests get them.

        Raises:
            DyOrcError: If it is not possible; nothing has changed then.
        """
        ...

    def report(self) -> dict[str, Any]:
        """Returns what is deployed, by model."""
        ...
