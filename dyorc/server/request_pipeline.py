"""What takes requests in, whatever carries them: the service behind HTTP, gRPC and jobs, and what is kept of each request."""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass

from dyorc.config import Settings
from dyorc.gateway.backend import Backend
from dyorc.gateway.codec.http_errors import status_of_outcome
from dyorc.gateway.log_control import LogControl
from dyorc.gateway.origins import Origins
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.gateway.request_records import Records
from dyorc.gateway.service import InferenceService
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from dyorc.telemetry.request_log import RequestLog
from dyorc.telemetry.tracing.tracing_setup import TraceOutput


@dataclass(frozen=True, slots=True)
class RequestPipeline:
    """Where requests come in.

    Attributes:
        service: Runs them.
        recording: Gets the record of each that has ended, and hands it on.
        settings: All of the process.
    """

    service: InferenceService
    recording: Recording
    settings: Settings

    def records(self) -> Records | None:
        """Keeps records of requests, if the settings give them memory."""
        config = self.settings.telemetry.records
        if not config.max_bytes:
            return None
        store = RecordStore(config)
        self.recording.add(store)
        return Records(store, self.service.peers)


@contextlib.contextmanager
def request_pipeline(
    backend: Backend, settings: Settings, siblings: PeerProcesses | None, traces: TraceOutput | None
) -> Generator[RequestPipeline]:
    """Takes requests in while entered.

    Args:
        backend: Runs them.
        siblings: The other processes of the same server; None if there are none.
        traces: Where spans go; None if nothing is traced.

    Raises:
        ConfigurationError: If the file of tenants cannot be used.
    """
    config = settings.telemetry
    recording = Recording(config.records)
    if traces is not None:
        recording.add(traces.tracer)
    requests = RequestLog(config.logs.requests, config.records.slow_s, status_of_outcome)
    origins = Origins(recording, None if traces is None else traces.tracer)
    service = InferenceService(backend, settings.gateway, siblings, origins)
    with contextlib.closing(service):
        service.server_view.control_logs(LogControl(config.logs, requests, recording, backend.set_logs))
        yield RequestPipeline(service, recording, settings)
