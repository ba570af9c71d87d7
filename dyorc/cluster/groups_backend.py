"""One backend over several groups of orchestrators, each with its own workflows, behind the same gateways."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import reduce
from typing import Any, Self, TypeVar

from dyorc.answering.tensor_exchange import Tensors
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.config import LogsConfig
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver
from dyorc.engine.tallies import ModelStatistics
from dyorc.errors import NotReadyError, UnknownModelError
from dyorc.models.offers import ModelKey, Offers
from dyorc.models.status import StatusBoard
from dyorc.models.submission import Submission
from dyorc.telemetry.levels import Levels
from dyorc.telemetry.metrics.readings import Readings

T = TypeVar("T")

_LOOK_S = 0.25
_PATIENCE_S = 10.0


class GroupsBackend:
    """Sends each request to the group that has its model; if several have it, to the first of them.

    Args:
        backends: One for each group; this enters them. All use the same arena.
        patience_s: How long a group that has never been reached keeps the gateway from being ready.

    Attributes:
        offers: The offers of all groups.
        tensors: The tensors of all groups.
        status: The states of the programs of all groups.
    """

    def __init__(self, backends: Sequence[RemoteBackend], tensors: Tensors, patience_s: float = _PATIENCE_S) -> None:
        self.offers = Offers(unheard=_unheard(backends))
        self.tensors = tensors
        self.status = StatusBoard((), stays_ready=True)
        self.status.board_of = lambda model: self._backend(model).status
        self._backends = backends
        self._patience_s = patience_s
        self._by_model: dict[ModelKey, int] = {}
        for backend in backends:
            backend.offers.watch(self._offer)

    @property
    def default_timeout_s(self) -> float:
        """The longest of all groups' limits."""
        return max([backend.default_timeout_s for backend in self._backends])

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._patient_until_s = time.monotonic() + self._patience_s
            self._show()
            for backend in self._backends:
                await stack.enter_async_context(backend)
            self._watching = [asyncio.create_task(self._watch(backend.status)) for backend in self._backends]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._watching:
            task.cancel()
        await self._stack.aclose()

    def _offer(self) -> None:
        offers = {
            offer.key: (at, offer) for at, backend in reversed(list(enumerate(self._backends))) for offer in backend.offers.all
        }
        self._by_model = {key: at for key, (at, _) in offers.items()}
        together = [offer for _, offer in sorted(offers.values(), key=lambda placed: placed[0])]
        self.offers.change(together, _unheard(self._backends))

    async def _watch(self, status: StatusBoard) -> None:
        while True:
            await status.wait_for_change(_LOOK_S)
            self._show()

    def _show(self) -> None:
        """Shows the states of all groups' programs, and which groups must be reached before the gateway is ready."""
        boards = [backend.status for backend in self._backends]
        self.status.unite(boards)
        is_patient = all(board.lacking for board in boards) or time.monotonic() < self._patient_until_s
        for backend in self._backends:
            self.status.lacks(backend.group, backend.status.lacking.get(backend.group, "") if is_patient else "")

    def _backend(self, model: ModelKey) -> RemoteBackend:
        at = self._by_model.get(model)
        if at is None:
            raise NotReadyError(f"no group has version {model.version!r} of model {model.name!r} now; send the request again")
        return self._backends[at]

    def submit(self, submission: Submission, receiver: Receiver[Any]) -> int:
        """Runs a workflow; see `Backend.submit`."""
        backend = self._backend(submission.model)
        return backend.submit(submission, receiver) * len(self._backends) + self._by_model[submission.model]

    def cancel(self, request_id: int) -> bool:
        """Gives a request up; see `Backend.cancel`."""
        number, at = divmod(request_id, len(self._backends))
        return self._backends[at].cancel(number)

    async def infer(
        self,
        submission: Submission,
        *,
        take: Callable[[list[Array]], T],
        started: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> T:
        """Runs a workflow and returns its answer; see `Backend.infer`."""
        return await self._backend(submission.model).infer(submission, take=take, started=started)

    def stream(
        self,
        submission: Submission,
        *,
        take: Callable[[list[Array]], T],
        started: Callable[[asyncio.Future[Any]], None] | None = None,
    ) -> AsyncGenerator[list[T]]:
        """Runs a workflow and yields its parts; see `Backend.stream`."""
        return self._backend(submission.model).stream(submission, take=take, started=started)

    async def refresh(self) -> None:
        """Fetches the current figures of all groups."""
        await asyncio.gather(*(backend.refresh() for backend in self._backends))

    def statistics(self, name: str) -> ModelStatistics:
        """Returns the statistics of a model in all groups together."""
        totals = ModelStatistics()
        for backend in self._backends:
            totals.add(backend.statistics(name))
        return totals

    def report(self) -> dict[str, Any]:
        """Returns the current state of all groups; `groups` has the report of each."""
        each = {backend.group or str(at): backend.report() for at, backend in enumerate(self._backends)}
        programs = {name: program for report in each.values() for name, program in report["programs"].items()}
        first = next(iter(each.values()))
        num_requests = sum(report["num_requests"] for report in each.values())
        return first | {"num_requests": num_requests, "programs": programs, "groups": each}

    def levels(self) -> Levels:
        """Returns the current levels of every program and workflow of all groups."""
        return reduce(Levels.plus, (backend.levels() for backend in self._backends))

    def scaling(self) -> dict[str, Any]:
        """Returns how many replicas each program has and should have."""
        each = [backend.scaling() for backend in self._backends]
        programs = {name: program for values in each for name, program in values.get("programs", {}).items()}
        decisions = [decision for values in each for decision in values.get("decisions", [])]
        decisions.sort(key=lambda decision: decision["at_s"])
        return next((values for values in each if values), {}) | {"programs": programs, "decisions": decisions}

    def measure(self, readings: Readings) -> None:
        """Adds nothing: each orchestrator has its own metrics."""

    def set_logs(self, config: LogsConfig) -> None:
        """Applies log settings to the replicas of all groups."""
        for backend in self._backends:
            backend.set_logs(config)

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Sets how many replicas a program keeps, in each group that has it; see `Backend.scale`."""
        having = [backend for backend in self._backends if program in backend.status.programs]
        if not having:
            raise UnknownModelError(f"there is no program {program!r}; there are {sorted(self.status.programs)}")
        for backend in having:
            await backend.scale(program, num_warm, num_parked)


def _unheard(backends: Sequence[RemoteBackend]) -> list[str]:
    return [group for backend in backends for group in backend.offers.unheard]
