"""A collector of OpenTelemetry's, as far as tests need one: takes spans by OTLP, over gRPC or HTTP, and keeps them."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from tests.deadlines import TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A span as it came."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    started_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    events: list[str]
    is_error: bool
    service: dict[str, Any]

    @property
    def place(self) -> tuple[str, str]:
        """Its trace and its own id, as links name it."""
        return self.trace_id, self.span_id


class Collector:
    """Keeps what comes.

    Attributes:
        url: Where spans are to be sent.
    """

    def __init__(self) -> None:
        self.url = ""
        self._changed = threading.Condition()
        self._spans: list[Received] = []

    @property
    def spans(self) -> list[Received]:
        """What has come so far."""
        with self._changed:
            return list(self._spans)

    def wait_for(self, is_enough: Callable[[list[Received]], Any]) -> list[Received]:
        """Waits until what has come is enough, and returns it."""
        give_up_s = time.monotonic() + TIMEOUT_S
        with self._changed:
            while not is_enough(self._spans):
                left_s = give_up_s - time.monotonic()
                assert left_s > 0, f"not enough: {sorted(span.name for span in self._spans)}"
                self._changed.wait(left_s)
            return list(self._spans)

    def wait_for_trace(self, trace_id: str, *names: str) -> list[Received]:
        """Waits until a trace has spans of these names, and returns them."""

        def mine(spans: list[Received]) -> list[Received]:
            return [span for span in spans if span.trace_id == trace_id]

        return mine(self.wait_for(lambda spans: {*names} <= {span.name for span in mine(spans)}))

    def take(self, message: bytes) -> bytes:
        """Takes an `ExportTraceServiceRequest`."""
        found = trace_service_pb2.ExportTraceServiceRequest.FromString(message)
        spans = [
            _received(span, _values(resource.resource.attributes))
            for resource in found.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._changed:
            self._spans.extend(spans)
            self._changed.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse().SerializeToString()


@contextmanager
def collecting_by_grpc() -> Iterator[Collector]:
    collector = Collector()

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            collector.take(request.SerializeToString())
            return trace_service_pb2.ExportTraceServiceResponse()

    threads = ThreadPoolExecutor(4)
    server = grpc.server(threads)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
        threads.shutdown()


@contextmanager
def collecting_by_http() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces", self.path
            answer = collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _received(span: Any, service: dict[str, Any]) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=span.kind,
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        events=[event.name for event in span.events],
        is_error=span.status.code == 2,
        service=service,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def caller(*, is_sampled: bool = True) -> tuple[str, dict[str, str]]:
    """Returns a caller's new trace, and the header for it."""
    trace_id = secrets.token_hex(16)
    return trace_id, {"traceparent": f"00-{trace_id}-{'c' * 16}-0{int(is_sampled)}"}


def one(spans: list[Received], name: str) -> Received:
    """Returns the only span of that name."""
    (found,) = [span for span in spans if span.name == name]
    return found
