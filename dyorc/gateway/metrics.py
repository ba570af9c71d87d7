"""Metrics of the whole server: all processes report the sum of all."""

import platform
from typing import Any

from dyorc.gateway.service import InferenceService
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.exposition import exposition
from dyorc.telemetry.metrics.metric_sources import read_own
from dyorc.telemetry.metrics.readings import Readings, Source
from dyorc.version import version

_METRICS = "metrics"


class Metrics:
    """Reads what this process has counted, asks the others, and adds up.

    The counts of a process that ended are kept: its successor continues from them, and until then the supervisor reports them.
    So counters never go back.

    Args:
        service: Runs requests.
        sources: Further sources.
    """

    def __init__(self, service: InferenceService, *sources: Source) -> None:
        self._peers = service.peers
        self._off_loop = service.off_loop
        self._sources: list[Source] = [read_own, read_process_facts, service.backend.measure, service.admission.measure]
        self._sources += [service.catalog.measure, service.versions.measure, *sources]
        if service.shedding is not None:
            self._sources.append(service.shedding.measure)
        if service.origins.tracing is not None:
            self._sources.append(service.origins.tracing.measure)
        inherited = service.server_view.add_counts(_METRICS, lambda: self._own(only_counted=True).as_values())
        self._inherited: dict[str, Any] = inherited or {}
        self._peers.answer(_METRICS, lambda _: self._answer())
        self._peers.count()  # this start counts even if the process ends before the first scrape

    def add(self, source: Source) -> None:
        self._sources.append(source)

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """Returns the metrics as text, and its content type.

        Args:
            accept: The client's ``Accept`` header.
        """
        return await self._off_loop.run(exposition, await self.readings(), accept)  # takes milliseconds

    async def readings(self) -> Readings:
        self._peers.count()  # counts that others see must not be lost
        readings = self._own()
        replies = await self._peers.ask(_METRICS)
        for values in replies.values.values():
            readings.merge(values)
        for counted in replies.counted.values():
            readings.merge(counted.get(_METRICS, {}))
        return readings

    def _answer(self) -> dict[str, Any]:
        self._peers.count()
        return self._own().as_values()

    def _own(self, *, only_counted: bool = False) -> Readings:
        readings = Readings(only_counted=only_counted)
        readings.merge(self._inherited)
        for source in self._sources:
            source(readings)
        return readings


def read_process_facts(readings: Readings) -> None:
    """Adds this process, its start and its version."""
    readings.add(catalogue.BUILD_INFO, 1, version(), platform.python_version())
    readings.add(catalogue.CELLS, 1)
    readings.add(catalogue.CELL_STARTS, 1)
