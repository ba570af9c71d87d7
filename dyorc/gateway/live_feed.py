"""What the live page reads: the state of the whole server, every second, and its history.

Each process records its own history all the time. The state of the whole server is collected on request, and once a second for
all listeners; a client that reads slowly gets fewer of these snapshots, never a queue of them. On the event loop's thread.
"""

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Generator, Mapping
from functools import reduce
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog

from dyorc.engine.tallies import ModelStatistics
from dyorc.errors import CapacityError
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live_report import BatchCounts, CellReport, RetainedCounts, Snapshot, snapshot_of, sum_batches
from dyorc.gateway.service import InferenceService
from dyorc.system.log_throttle import LogThrottle
from dyorc.system.wall_clock import wait_for_period
from dyorc.telemetry.graph_weights import GraphWeights
from dyorc.telemetry.series import History, SeriesWindow
from dyorc.telemetry.workflow_graph import WINDOW_S, WorkflowGraphs

_log = structlog.get_logger("dyorc.gateway")

_LIVE, _HISTORY, _GRAPH = "live", "history", "graph"
_LISTENERS_AT_RATIO = 0.1
"""Listeners get their snapshot this part of a period after the full second, when every process has taken its sample."""
_RETRY_AFTER_S = 10.0
_MAX_LISTENERS = 64


class _Past(msgspec.Struct):
    """What one process has recorded of a program or workflow."""

    span: SeriesWindow | None
    decisions: list[dict[str, Any]]


class LiveFeed:
    """Samples, and publishes snapshots to listeners, while entered. At the end, all listeners are woken up.

    Args:
        jobs: The server's jobs; None if it takes none.
        period_s: How often it samples and publishes.

    Attributes:
        graphs: Learns the workflows' graphs from records.
    """

    def __init__(self, service: InferenceService, jobs: Jobs | None = None, period_s: float = 1.0) -> None:
        self._period_s = period_s
        self._service = service
        self._peers = service.peers
        self._jobs = jobs
        self._history = History()
        self.graphs = WorkflowGraphs()
        self._num_listeners = 0
        self._latest: Snapshot | None = None
        self._snapshot_task: asyncio.Task[Snapshot] | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_over = False
        self._inherited = RetainedCounts()
        if not self._peers.shares_backend:  # otherwise the backend goes on counting without this process
            before = service.server_view.add_counts(_LIVE, lambda: msgspec.to_builtins(self._own().counted()))
            self._inherited = _counted({_LIVE: before})
        self._peers.answer(_LIVE, lambda _: msgspec.to_builtins(self._report_for_peer()))
        self._peers.answer(_GRAPH, self._own_graph)
        self._peers.answer(_HISTORY, lambda query: msgspec.to_builtins(self._past_for_peer(*query)))

    async def __aenter__(self) -> Self:
        self._sampling = asyncio.create_task(self._sample_forever())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over = True
        self._publish()
        for task in (self._sampling, self._publishing, self._snapshot_task):
            if task is not None:
                task.cancel()

    # Now

    async def now(self) -> Snapshot:
        """Returns the state of the whole server, at most a second old. Concurrent callers share the answer."""
        if self._latest is not None and abs(time.time() - self._latest.at_s) < self._period_s:  # a clock may be set back
            return self._latest
        if self._snapshot_task is None or self._snapshot_task.done():
            self._snapshot_task = asyncio.create_task(self._take())
        return await asyncio.shield(self._snapshot_task)

    async def _take(self) -> Snapshot:
        self._peers.count()  # counts that others see must not be lost
        await self._service.backend.refresh()
        replies = await self._peers.ask(_LIVE)
        cells = {self._peers.number: self._own()}
        cells |= {number: msgspec.convert(value, CellReport, strict=False) for number, value in replies.values.items()}
        models = self._service.catalog.models
        workflows = [name for name, model in models.items() if not model.is_program]
        missing = {number: _counted(replies.counted.get(number)) for number in replies.missing}
        self._latest = snapshot_of(time.time(), cells, missing, self._service.server_view.status.programs, workflows)
        return self._latest

    def _report_for_peer(self) -> CellReport:
        """Returns what another process adds to its own report."""
        self._peers.count()
        return self._own().without_backend() if self._peers.shares_backend else self._own()

    def _own(self) -> CellReport:
        backend = self._service.backend
        levels = backend.levels()
        batches = {name: _batches(backend.statistics(name)) for name in levels.programs}
        tenants = self._service.admission.in_flight()
        if self._peers.shares_backend:
            in_flight = sum(num_requests for num_requests, _ in tenants.values())
        else:
            in_flight = sum(workflow.in_flight for workflow in levels.workflows.values())
        rates = self._history.rates()
        return CellReport(
            pid=os.getpid(),
            levels=levels.plus(self._inherited.levels),
            in_flight=in_flight,
            programs=rates["programs"],
            workflows=rates["workflows"],
            latencies={name: self._history.latencies[name] for name in rates["workflows"]},
            tenants=tenants,
            batches=sum_batches([batches, self._inherited.batches]),
            jobs={} if self._jobs is None else self._jobs.report(),
            refused=dict(self._service.origins.num_refused + Counter(self._inherited.refused)),
        )

    # Every second

    @property
    def is_publishing(self) -> bool:
        """Whether snapshots are taken, as there are listeners."""
        return self._publishing is not None

    @contextlib.contextmanager
    def listening(self) -> Generator[None]:
        """Takes snapshots while entered.

        Raises:
            CapacityError: If too many listen, or the server is stopping.
        """
        if self._is_over or self._num_listeners >= _MAX_LISTENERS:
            raise CapacityError(
                f"{self._num_listeners} clients listen to events, the server takes {_MAX_LISTENERS}", _RETRY_AFTER_S
            )
        self._num_listeners += 1
        if self._publishing is None:
            self._publishing = asyncio.create_task(self._publish_forever())
        try:
            yield
        finally:
            self._num_listeners -= 1
            if not self._num_listeners and self._publishing is not None:
                self._publishing.cancel()
                self._publishing = None

    async def next(self, after: Snapshot | None) -> Snapshot | None:
        """Waits for a newer snapshot than `after`.

        Returns:
            The latest; None once the server stops.
        """
        while not self._is_over and (self._latest is None or self._latest is after):
            await self._changed.wait()
        return None if self._is_over else self._latest

    async def _publish_forever(self) -> None:
        failing = LogThrottle(_log, "snapshot_failed", is_error=True)
        while True:
            try:
                await self._take()
            except Exception as error:
                failing.report(exc_info=error)  # the next may succeed
            self._publish()
            await wait_for_period(self._period_s, _LISTENERS_AT_RATIO * self._period_s)

    def _publish(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # The past

    async def past(self, kind: str, name: str, window_s: int) -> dict[str, Any]:
        """Returns the history of a program or workflow in all processes together, and the decisions about a program's replicas.

        Args:
            kind: ``program`` or ``workflow``.
        """
        replies = await self._peers.ask(_HISTORY, [kind, name, window_s])
        each = [self._own_past(kind, name, window_s), *(msgspec.convert(value, _Past) for value in replies.values.values())]
        spans = [entry.span for entry in each if entry.span is not None]
        span = reduce(SeriesWindow.plus, spans) if spans else SeriesWindow(from_s=0, step_s=0, values={})
        decisions = sorted((entry for past in each for entry in past.decisions), key=lambda entry: entry["at_s"])
        return {kind: name, **msgspec.to_builtins(span), "decisions": decisions}

    def _past_for_peer(self, kind: str, name: str, window_s: int) -> _Past:
        return _Past(span=None, decisions=[]) if self._peers.shares_backend else self._own_past(kind, name, window_s)

    def _own_past(self, kind: str, name: str, window_s: int) -> _Past:
        is_program = kind == "program"
        series = (self._history.programs if is_program else self._history.workflows).get(name)
        decided = self._service.backend.scaling().get("decisions", []) if is_program else []
        since_s = time.time() - window_s
        decisions = [entry for entry in decided if entry["program"] == name and entry["at_s"] >= since_s]
        return _Past(span=None if series is None else series.span(window_s), decisions=decisions)

    # What requests do

    async def graph(self, workflow: str) -> dict[str, Any]:
        """Returns the graph of a workflow, as learned by all processes. Shares count recorded requests, rates all requests."""
        replies = await self._peers.ask(_GRAPH, workflow)
        learned, rate = GraphWeights(), 0.0
        for values in (self._own_graph(workflow), *replies.values.values()):
            learned.merge(GraphWeights.of_values(values["learned"]))
            rate = max(rate, values["requests_per_s"]) if self._peers.shares_backend else rate + values["requests_per_s"]
        programs = [program.name for program in self._service.catalog.models[workflow].programs]
        return {"workflow": workflow, "window_s": WINDOW_S, **learned.report(programs, rate)}

    def _own_graph(self, workflow: str) -> dict[str, Any]:
        rate = self._history.rates()["workflows"].get(workflow, {}).get("requests_per_s", 0.0)
        return {"learned": self.graphs.of(workflow).as_values(), "requests_per_s": rate}

    async def _sample_forever(self) -> None:
        failing = LogThrottle(_log, "sample_failed", is_error=True)
        while True:
            await wait_for_period(self._period_s)
            try:
                await self._service.backend.refresh()
                self._history.sample(self._service.backend.levels(), int(time.time()), time.monotonic_ns())
                self.graphs.keep(self._service.catalog.tallies)
            except Exception as error:
                failing.report(exc_info=error)


def _counted(counted: Mapping[str, Any] | None) -> RetainedCounts:
    """Returns the part of a process's counts that the page needs."""
    values = (counted or {}).get(_LIVE)
    return RetainedCounts() if values is None else msgspec.convert(values, RetainedCounts, strict=False)


def _batches(statistics: ModelStatistics) -> dict[int, BatchCounts]:
    return {
        size: BatchCounts(count=tally.compute_infer.count, infer_ns=tally.compute_infer.ns)
        for size, tally in statistics.batches.items()
    }
