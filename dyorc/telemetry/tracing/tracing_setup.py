"""Switches tracing on, if the settings say so: without an endpoint, nothing is imported, made or started."""

import importlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from dyorc.config import TelemetryConfig
from dyorc.errors import ConfigurationError
from dyorc.telemetry.tracing.destination import Destination, destination_of
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.telemetry.tracing.tracer import Export, Tracer


class TraceOutput(NamedTuple):
    """What a process that traces has.

    Attributes:
        destination: Where spans go, for replicas.
        tracer: Makes spans of requests.
        spans: For programs in this process.
    """

    destination: Destination
    tracer: Tracer
    spans: ProgramSpans


@contextmanager
def tracing(config: TelemetryConfig, environment: Mapping[str, str]) -> Generator[TraceOutput | None]:
    """Traces requests while entered; yields None if nothing is to be traced. At the end, sends what is left, for a few seconds.

    Args:
        environment: Where OpenTelemetry's own settings are.

    Raises:
        ConfigurationError: If the settings for traces are wrong, or packages are missing.
    """
    destination = destination_of(config.traces, environment)
    if destination is None:
        yield None
        return
    export = _export_to(destination)
    with Tracer(export, config.traces, config.records.slow_s) as tracer:
        yield TraceOutput(destination, tracer, ProgramSpans(lambda: export))


def _export_to(destination: Destination) -> Export:
    try:
        return importlib.import_module("dyorc.telemetry.tracing.otlp").SpanExport(destination)
    except ImportError as error:
        raise ConfigurationError(
            f"traces go to {destination.url}, but OpenTelemetry is not complete here ({error}): pip install 'dyorc[traces]'"
        ) from error
