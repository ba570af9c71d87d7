"""All operations on a server's models, without I/O: each is a generator of effects."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from dyorc.client.effects import BrokenExchange, Emit, Flow, Parts, Read, Reply, Sleep
from dyorc.client.frame_reader import FrameReader
from dyorc.client.plain_values import EventReader, check_events, run_answer, run_request
from dyorc.client.retries import Retries, RetryingSender
from dyorc.errors import CapacityError, ClientError, DeadlineError, DyOrcError, InvalidInputError, TransportError
from dyorc.protocol import api_paths, media_types
from dyorc.protocol.api_paths import model_path
from dyorc.protocol.header_names import JSON_LENGTH
from dyorc.protocol.inference_answer import Answer, parse_answer
from dyorc.protocol.inference_request import Options, PreparedRequest, infer_request
from dyorc.protocol.metadata import ModelMetadata
from dyorc.protocol.wire_errors import A_PAGE, is_page, malformed

T = TypeVar("T")

Inputs: TypeAlias = Mapping[str, Any]
"""Inputs and parameters by name."""

_PAUSE_S = 5.0
"""A reader that pauses for so long between two parts may have been cut off for that."""
_POLL_S = 0.05
_MAX_POLL_S = 1.0
_MAX_LENGTH_DIGITS = 18


class Operations:
    """Operations on models.

    Args:
        delivery: Sends requests.
        timeout_s: Default of operations; infinity for no limit.
        retries: Default of operations.
        max_part_bytes: The longest part of a stream that is accepted.
    """

    def __init__(self, delivery: RetryingSender, timeout_s: float, retries: Retries, max_part_bytes: int) -> None:
        self.delivery = delivery
        self.retries = retries
        self._timeout_s = timeout_s
        self._max_part_bytes = max_part_bytes
        self._metadata: dict[tuple[str, str | None], ModelMetadata] = {}

    def deadline_s(self, timeout_s: float | None) -> float:
        """Returns when an operation that begins now must end."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if not isinstance(limit_s, int | float) or math.isnan(limit_s):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"timeout_s is {limit_s!r}, expected seconds, or math.inf for no limit")
        return self.delivery.clock_s() + limit_s

    def infer(self, model: str, inputs: Mapping[str, Any], options: Options, retries: Retries | None) -> Flow[Answer]:
        """Runs a model."""

        def request(metadata: ModelMetadata) -> PreparedRequest:
            return infer_request(model_path(model, options.version, api_paths.INFER), metadata, inputs, options)

        reply = yield from self._ask(model, options, self.deadline_s(options.timeout_s), retries, request)
        return answer_of(reply)

    def stream(self, model: str, inputs: Mapping[str, Any], options: Options, retries: Retries | None) -> Parts:
        """Runs a model that answers in parts. Once it has begun to answer, the request is not sent again."""

        def request(metadata: ModelMetadata) -> PreparedRequest:
            return infer_request(model_path(model, options.version, api_paths.INFER_STREAM), metadata, inputs, options)

        deadline_s = self.deadline_s(options.timeout_s)
        reply = yield from self._ask(model, options, deadline_s, retries, request, media_types.FRAMES)
        if (kind := reply.headers.get("content-type", "").partition(";")[0].strip()) != media_types.FRAMES:
            raise malformed(f"the server answered a stream with {kind!r}, expected {media_types.FRAMES!r}")
        yield from self._read_parts(FrameReader(self._max_part_bytes), deadline_s, lambda part: part.value)

    def run(self, model: str, values: Mapping[str, Any], options: Options, retries: Retries | None) -> Flow[Any]:
        """Runs a model on plain values."""

        def request(metadata: ModelMetadata) -> PreparedRequest:
            return run_request(model, metadata, values, options)

        reply = yield from self._ask(model, options, self.deadline_s(options.timeout_s), retries, request)
        return run_answer(reply)

    def run_stream(self, model: str, values: Mapping[str, Any], options: Options, retries: Retries | None) -> Parts:
        """Runs a model on plain values, and emits the parts of its answer."""

        def request(metadata: ModelMetadata) -> PreparedRequest:
            return run_request(model, metadata, values, options)

        deadline_s = self.deadline_s(options.timeout_s)
        reply = yield from self._ask(model, options, deadline_s, retries, request, media_types.EVENTS)
        check_events(reply)
        yield from self._read_parts(EventReader(self._max_part_bytes), deadline_s, lambda part: part)

    def _ask(
        self,
        model: str,
        options: Options,
        deadline_s: float,
        retries: Retries | None,
        request_for: Callable[[ModelMetadata], PreparedRequest],
        stream_as: str | None = None,
    ) -> Flow[Reply]:
        """Sends the request that fits a model's metadata. These are read again after an error of the client's.

        Args:
            stream_as: The media type of the answer, if it is to come in parts.
        """
        try:
            metadata = yield from self.metadata_by(model, options.version, deadline_s)
            request = request_for(metadata)
            if stream_as is not None:
                request = request.with_header("accept", stream_as)
            return (yield from self._run(request, metadata, deadline_s, retries, is_streamed=stream_as is not None))
        except ClientError:
            self._forget(model, options.version)
            raise

    def _read_parts(self, reader: FrameReader | EventReader, deadline_s: float, value_of: Callable[[Any], Any]) -> Parts:
        """Emits the parts of an answer that has begun."""
        pause_s = 0.0
        while True:
            chunk: bytes | BrokenExchange = yield Read(deadline_s)
            if isinstance(chunk, BrokenExchange):
                raise _perhaps_cut_off(chunk.error, pause_s)
            for part in reader.feed(chunk):
                emitted_s = self.delivery.clock_s()
                yield Emit(value_of(part))
                pause_s = max(pause_s, self.delivery.clock_s() - emitted_s)
            if not chunk:
                return reader.finish()

    def _run(
        self,
        request: PreparedRequest,
        metadata: ModelMetadata,
        deadline_s: float,
        retries: Retries | None,
        *,
        is_streamed: bool = False,
    ) -> Flow[Reply]:
        return (
            yield from self.delivery.send(
                request,
                deadline_s,
                retries or self.retries,
                is_repeatable=metadata.is_repeatable,
                is_timed=True,
                is_streamed=is_streamed,
            )
        )

    def metadata(self, model: str, version: str | None) -> Flow[ModelMetadata]:
        """Returns a model's current metadata."""
        self._forget(model, version)
        return (yield from self.metadata_by(model, version, self.deadline_s(None)))

    def metadata_by(self, model: str, version: str | None, deadline_s: float) -> Flow[ModelMetadata]:
        """Returns a model's metadata, which is fetched once."""
        metadata = self._metadata.get((model, version))
        if metadata is None:
            metadata = yield from self.get(model_path(model, version), _metadata_decoder, deadline_s)
            self._metadata[model, version] = metadata
        return metadata

    def _forget(self, model: str, version: str | None) -> None:
        """Forgets a model's metadata, which may have changed, so that the next request asks for it again."""
        self._metadata.pop((model, version), None)

    def models(self) -> Flow[list[str]]:
        """Returns the names of all models."""
        return (yield from self.get(api_paths.MODELS, _models_decoder)).models

    def get_object(self, path: str) -> Flow[dict[str, Any]]:
        """Returns a JSON object."""
        return (yield from self.get(path, _object_decoder))

    def requests(self, workflow: str | None, order: str, outcome: str, limit: int) -> Flow[list[dict[str, Any]]]:
        """Returns summaries of requests that have ended."""
        query: dict[str, str | int] = {"order": order, "outcome": outcome, "limit": limit}
        if workflow is not None:
            query["workflow"] = workflow
        return (yield from self.get(f"{api_paths.REQUESTS}?{urlencode(query)}", _requests_decoder)).requests

    def tail(self, workflow: str | None, share: float, seconds: float | None) -> Flow[dict[str, Any]]:
        """Returns where the time of the slowest requests went."""
        query: dict[str, str | float] = {"share": share}
        if workflow is not None:
            query["workflow"] = workflow
        if seconds is not None:
            query["seconds"] = seconds
        return self.get_object(f"{api_paths.TAIL}?{urlencode(query)}")

    def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> Flow[dict[str, Any]]:
        """Sets how many replicas a program has, and returns the state after that."""
        body = msgspec.json.encode({"num_warm": num_warm, "num_parked": num_parked})
        request = PreparedRequest(
            "POST", f"{api_paths.SCALING}/{quote(program, safe='')}", (("content-type", "application/json"),), (body,)
        )
        return read_json((yield from self.send(request)), _object_decoder)

    def change(self, path: str, order: dict[str, Any]) -> Flow[dict[str, Any]]:
        """Changes what the server serves. Sent once: the server may have carried it out although its answer was lost."""
        request = PreparedRequest("POST", path, (("content-type", "application/json"),), (msgspec.json.encode(order),))
        return read_json((yield from self.send(request, is_repeatable=False)), _object_decoder)

    def get(self, path: str, decoder: msgspec.json.Decoder[T], deadline_s: float | None = None) -> Flow[T]:
        """Returns JSON of a known form. Without a deadline, the client's timeout applies."""
        return read_json((yield from self.send(PreparedRequest("GET", path), deadline_s)), decoder)

    def send(self, request: PreparedRequest, deadline_s: float | None = None, *, is_repeatable: bool = True) -> Flow[Reply]:
        """Sends a request, with the client's retries. Without a deadline, the client's timeout applies."""
        deadline_s = self.deadline_s(None) if deadline_s is None else deadline_s
        return (yield from self.delivery.send(request, deadline_s, self.retries, is_repeatable=is_repeatable))

    def is_healthy(self, path: str) -> Flow[bool]:
        """Returns whether a health route says yes. A server that cannot be reached says no.

        Raises:
            ClientError: If the request is wrong.
        """
        return (yield from self._complaint(path, self.deadline_s(None))) is None

    def why_unhealthy(self, path: str) -> Flow[str]:
        """Returns why a health route says no; empty if it says yes.

        Raises:
            ClientError: If the request is wrong.
        """
        complaint = yield from self._complaint(path, self.deadline_s(None))
        return "" if complaint is None else str(complaint)

    def wait_until_ready(self, path: str, timeout_s: float | None) -> Flow[None]:
        """Returns once a health route says yes.

        Raises:
            DeadlineError: If that takes too long; says why.
        """
        deadline_s = self.deadline_s(timeout_s)
        pause_s = _POLL_S
        reason: DyOrcError | None = None
        while (complaint := (yield from self._complaint(path, deadline_s))) is not None:
            if reason is None or not isinstance(complaint, DeadlineError):  # the last try may be cut short, which says nothing
                reason = complaint
            if self.delivery.clock_s() + pause_s >= deadline_s:
                raise DeadlineError(f"not ready in time: {reason}") from reason
            yield Sleep(pause_s)
            pause_s = min(_MAX_POLL_S, pause_s * 2)

    def _complaint(self, path: str, deadline_s: float) -> Flow[DyOrcError | None]:
        try:
            yield from self.delivery.send(PreparedRequest("GET", path), deadline_s, Retries(max_attempts=1))
        except (CapacityError, TransportError, DeadlineError) as error:
            return error
        return None


class _Models(msgspec.Struct):
    models: list[str]


class _Requests(msgspec.Struct):
    requests: list[dict[str, Any]]


_metadata_decoder = msgspec.json.Decoder(ModelMetadata)
_models_decoder = msgspec.json.Decoder(_Models)
_requests_decoder = msgspec.json.Decoder(_Requests)
_object_decoder = msgspec.json.Decoder(dict[str, Any])


def merge_inputs(inputs: Inputs | None, named: Inputs) -> Inputs:
    """Merges inputs from a mapping with inputs by keyword.

    Raises:
        InvalidInputError: If one was given twice.
        TypeError: If one is called `timeout`: the protocol has that, in microseconds, and people who write it mean seconds.
    """
    if "timeout" in named:
        raise TypeError("'timeout' is the protocol's parameter, in microseconds; pass timeout_s=..., in seconds")
    if inputs is None:
        return named
    if not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] -- an array, by mistake
        raise TypeError(f"inputs is {type(inputs).__name__}, expected a mapping, or inputs by their names")
    if twice := sorted(inputs.keys() & named.keys()):
        raise InvalidInputError(f"input {twice[0]!r} was given twice")
    return {**inputs, **named}


def health_path(model: str | None) -> str:
    """Returns the path that says whether a model, or the whole server, is ready."""
    return api_paths.READY if model is None else model_path(model, None, api_paths.MODEL_READY)


def statistics_path(model: str | None, version: str | None) -> str:
    """Returns the path of the statistics of a model, or of all of them."""
    return api_paths.STATISTICS if model is None else model_path(model, version, api_paths.MODEL_STATISTICS)


def read_json(reply: Reply, decoder: msgspec.json.Decoder[T]) -> T:
    """Parses JSON of a known form.

    Args:
        decoder: Made when its module is imported. Two threads that decode a type for the first time at the same moment crash the
            process (msgspec 0.22: a type's description can be found before it is filled).

    Raises:
        TransportError: If it has another form.
    """
    try:
        return decoder.decode(reply.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"the server answered with {A_PAGE}" if is_page(reply.headers) else f"the answer's JSON is malformed: {error}"
        raise malformed(text) from error


def answer_of(reply: Reply) -> Answer:
    """Parses an inference's answer.

    Raises:
        TransportError: If it is malformed.
    """
    json_bytes = json_bytes_of(reply.headers)
    return parse_answer(reply.content, len(reply.content) if json_bytes is None else json_bytes)


def json_bytes_of(headers: Mapping[str, str]) -> int | None:
    """Returns how many bytes of an answer are JSON; None if all are.

    Raises:
        TransportError: If the header is not a number.
    """
    length = headers.get(JSON_LENGTH)
    if length is None:
        return None
    if not (length.isascii() and length.isdigit()) or len(length) > _MAX_LENGTH_DIGITS:
        raise malformed(f"Inference-Header-Content-Length is {length[:_MAX_LENGTH_DIGITS]!r}, expected a number of bytes")
    return int(length)


def _perhaps_cut_off(error: DyOrcError, pause_s: float) -> DyOrcError:
    """Returns the error of a stream that broke; it says so if the server may have cut off a reader that paused."""
    if pause_s < _PAUSE_S or type(error) is not TransportError:
        return error
    told = TransportError(
        f"{error}; this client had read nothing for {pause_s:.0f} s, and the server ends the stream of a client that does not "
        f"read (after gateway.write_timeout_s, 30 s by default)"
    )
    told.__cause__ = error
    return told
