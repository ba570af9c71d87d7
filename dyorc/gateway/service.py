"""What HTTP, gRPC and jobs all call: finds models for tenants, and runs their requests.

It does not read or write: the shells take a `Ticket` before they read a body, turn it into an `InferRequest`, and say how to
convert the outputs.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from dyorc.config import GatewayConfig
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver, RequestFacts, Terms
from dyorc.errors import AnswerTooLargeError, InvalidInputError, UnsupportedError
from dyorc.gateway.access import Access
from dyorc.gateway.admission import Admission, Ticket
from dyorc.gateway.backend import Backend, Deployments, Started
from dyorc.gateway.catalog import Catalog, Model
from dyorc.gateway.client_memory import ClientMemory
from dyorc.gateway.infer_request import InferRequest
from dyorc.gateway.origins import Origins
from dyorc.gateway.peer_processes import NoPeers, PeerProcesses
from dyorc.gateway.readiness import repository_index
from dyorc.gateway.request_memory import RequestMemory
from dyorc.gateway.request_senders import facts_of
from dyorc.gateway.server_view import ServerView
from dyorc.gateway.shadow_requests import ShadowRequests
from dyorc.gateway.shedding import LoopLag, Shedding
from dyorc.gateway.tenants import Tenant
from dyorc.gateway.version_watch import VersionWatch, WatchedReceiver, WatchedRequest, watch_parts
from dyorc.models.submission import Submission
from dyorc.protocol.header_names import Header
from dyorc.system.thread_offload import ThreadOffload
from dyorc.telemetry.record import Origin
from dyorc.transport.arena import ArenaBody
from dyorc.transport.outbox import num_bytes_of

T = TypeVar("T")

_LONG_BYTES = 64 * 2**10


class InferenceService:
    """Runs requests.

    Attributes:
        catalog: The models on offer.
        backend: Runs them.
        access: Finds tenants by their keys.
        admission: Limits what is in flight.
        clients: Memory that clients share.
        shedding: Refuses what cannot be answered in time; None: nothing is refused for that.
        shadows: Runs copies of requests.
        versions: Counts the requests of versions, where there are several, and has some copied.
        off_loop: Decodes large requests.
        origins: Decides which requests are recorded.
        peers: The other processes of the server.
        server_view: What concerns all processes of the server.
        deployments: Changes which versions are served; None if that is impossible.
        shown_headers: Names of headers that code may see.
    """

    def __init__(
        self,
        backend: Backend,
        config: GatewayConfig,
        peers: PeerProcesses | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.catalog = Catalog(backend.offers, config.max_image_pixels)
        self.backend = backend
        self.config = config
        self.access = Access(config.keys_file)
        self.peers = peers or NoPeers()
        self.admission = Admission(config.max_requests, config.max_bytes_in_flight, counts=self.peers.tenant_counts)
        self.clients = ClientMemory(config.allow_client_shm)
        self.off_loop = ThreadOffload("dyorc-requests")
        self.origins = origins or Origins()
        self._recorder = self.origins.recorder
        self.shown_headers = frozenset(name.encode() for name in config.shown_headers)
        self.server_view = ServerView(backend, self.clients, self.peers, self.catalog.tallies)
        self.deployments: Deployments | None = None
        self.shedding = Shedding(LoopLag()) if config.shed else None
        self.shadows = ShadowRequests(backend, config.shadow, self.off_loop, self._is_busy)
        self.versions = VersionWatch(self.catalog, self.shadows, self.server_view, self.peers)

    def close(self) -> None:
        """Releases what clients share, and ends the threads and copies of requests."""
        self.shadows.close()
        self.off_loop.close()
        self.clients.close()

    def _is_busy(self) -> bool:
        """Returns whether requests that nobody waits for would be too much."""
        return (
            self.shedding is not None and self.shedding.is_behind
        ) or self.admission.num_requests > self.config.max_requests // 2

    def model(self, tenant: Tenant, name: str, version: str | None = None, headers: Iterable[Header] = ()) -> Model:
        """Returns a model, for a tenant that may use it.

        Args:
            version: None: the default, or another with a share of the requests.
            headers: Of the request, which may pick the version. Iterated only if several versions share the requests.

        Raises:
            UnknownModelError: If the model or the version is unknown.
            PermissionDeniedError: If the tenant may not use it.
        """
        tenant.check_model(name)
        return self.catalog.model(name, version, tenant.name, headers)

    def managed(self, tenant: Tenant) -> Deployments:
        """Returns what changes the served versions, for a tenant that may do that.

        Raises:
            PermissionDeniedError: If it may not.
            UnsupportedError: If this server cannot change them.
        """
        tenant.check_managing("load and unload models")
        if self.deployments is None:
            raise UnsupportedError("models cannot be loaded or unloaded here")
        return self.deployments

    def repository_index(self, tenant: Tenant, *, only_ready: bool) -> list[dict[str, Any]]:
        """Returns all versions of the models that a tenant may use, with their states."""
        deployed = {} if self.deployments is None else self.deployments.report()
        return repository_index(self.catalog, self.server_view.status, deployed, tenant, only_ready=only_ready)

    def memory(self) -> RequestMemory:
        """Returns the memory of one request; enter it until the answer is made."""
        return RequestMemory(self.backend.tensors, self.clients, self.config.max_request_bytes)

    async def decoded(self, num_bytes: int, decode: Callable[..., T], *arguments: object) -> T:
        """Returns what `decode` makes of a body of JSON, or a form, of so many bytes; a long one is decoded on a thread, where it
        would keep the event loop busy for milliseconds.

        Raises:
            InvalidInputError: If it is nested too deeply.
            DyOrcError: What `decode` raises.
        """
        try:
            return await self.off_loop.run(decode, *arguments) if num_bytes > _LONG_BYTES else decode(*arguments)
        except RecursionError:
            raise InvalidInputError("the request's JSON is nested too deeply") from None

    async def infer(
        self,
        ticket: Ticket,
        model: Model,
        request: InferRequest,
        memory: RequestMemory,
        *,
        timeout_s: float | None = None,
        priority: int = 0,
        origin: Origin | None = None,
        started: Started | None = None,
        waits_for_effects: bool = False,
        effect_begins: Callable[[], None] | None = None,
        take: Callable[[list[Array]], T],
    ) -> T:
        """Runs a request.

        Args:
            ticket: The request's admission.
            timeout_s: The transport's own limit; the smaller of it and the request's applies.
            priority: The transport's own; it applies if the request names none.
            origin: Where it comes from, if it is recorded (`Origins`).
            started: Called with the future of the answer; cancelling that cancels the request.
            waits_for_effects: See `Terms`.
            effect_begins: See `Submission`.
            take: Turns the outputs, which are in the order of the model's signature and may be views of memory that is reused
                afterwards, into the answer.

        Returns:
            What `take` returns.

        Raises:
            UnsupportedError: If the model streams.
            AnswerTooLargeError: If the outputs together are larger than the server sends.
            OverloadedError: If the server is too busy to answer within the request's own limit.
            DyOrcError: See the tree in `dyorc.errors`.
        """
        _refuse_streaming(model)
        terms = self._terms(ticket, request, timeout_s, priority)
        if waits_for_effects:
            terms = replace(terms, waits_for_effects=True)
        facts = self._facts(ticket)
        submission = Submission(
            model.key, request.arrays, request.statics, terms, origin, memory.body, self._recorder, facts, effect_begins
        )
        take = self._limited(model, take)
        if self.catalog.watched and (watched := self.versions.begin(model, submission)) is not None:
            return await self._infer_watched(submission, take, started, watched)
        return await self.backend.infer(submission, take=take, started=started)

    async def _infer_watched(
        self, submission: Submission, take: Callable[[list[Array]], T], started: Started | None, watched: WatchedRequest
    ) -> T:
        try:
            answer = await self.backend.infer(submission, take=_taking(take, watched.take_outputs), started=started)
        except BaseException as error:
            watched.failed(error)
            raise
        watched.done()
        return answer

    def submit(
        self,
        ticket: Ticket,
        model: Model,
        arrays: Sequence[Array],
        request: InferRequest,
        receiver: Receiver[Any],
        *,
        timeout_s: float | None,
        priority: int,
        origin: Origin | None,
        body: ArenaBody | None,
    ) -> int:
        """Runs a request of a model that does not stream, for a receiver; see `Backend.submit`.

        Args:
            arrays: Its inputs, instead of those in `request`.
            receiver: Checks the size of the outputs (`check_answer`) before it copies them.
            (others): See `infer`.
        """
        _refuse_streaming(model)
        terms = self._terms(ticket, request, timeout_s, priority)
        facts = self._facts(ticket)
        submission = Submission(model.key, arrays, request.statics, terms, origin, body, self._recorder, facts)
        if self.catalog.watched and (watched := self.versions.begin(model, submission)) is not None:
            return self._submit_watched(submission, receiver, watched)
        return self.backend.submit(submission, receiver)

    def _submit_watched(self, submission: Submission, receiver: Receiver[Any], watched: WatchedRequest) -> int:
        try:
            number = self.backend.submit(submission, WatchedReceiver(receiver, watched))
        except Exception as error:
            watched.failed(error)
            raise
        self.versions.note_submitted(number, watched)
        return number

    def cancel(self, request_id: int) -> bool:
        """Gives up a request that was submitted; see `Backend.cancel`."""
        if is_cancelled := self.backend.cancel(request_id):
            self.versions.note_cancelled(request_id)
        return is_cancelled

    def stream(
        self,
        ticket: Ticket,
        model: Model,
        request: InferRequest,
        memory: RequestMemory,
        *,
        timeout_s: float | None = None,
        priority: int = 0,
        origin: Origin | None = None,
        started: Started | None = None,
        take: Callable[[list[Array]], T],
    ) -> AsyncGenerator[list[T]]:
        """Runs a request and yields its parts in order; parts that are ready at the same time come together.

        A model that does not stream has one part. Arguments and errors are those of `infer`. Close it if you stop early.
        """
        terms = self._terms(ticket, request, timeout_s, priority)
        facts = self._facts(ticket)
        submission = Submission(model.key, request.arrays, request.statics, terms, origin, memory.body, self._recorder, facts)
        take = self._limited(model, take)
        if not self.catalog.watched:
            return self.backend.stream(submission, take=take, started=started)

        def open_parts(keep: Callable[[list[Array]], object]) -> AsyncGenerator[list[T]]:
            return self.backend.stream(submission, take=_taking(take, keep), started=started)

        return watch_parts(open_parts, partial(self.versions.begin, model, submission))

    def _facts(self, ticket: Ticket) -> Callable[[], RequestFacts] | None:
        return None if ticket.sender is None else partial(facts_of, ticket.sender, self.shown_headers)

    def _terms(self, ticket: Ticket, request: InferRequest, timeout_s: float | None, priority: int) -> Terms:
        limit_s = request.timeout_s
        if limit_s is None or (timeout_s is not None and timeout_s <= limit_s):
            limit_s = timeout_s  # checked when the request arrived
        elif self.shedding is not None and ticket.arrived_ns is not None:
            self.shedding.check_once_read(ticket.arrived_ns, limit_s)
        if limit_s is None and ticket.arrived_ns is not None and self.shedding is not None and self.shedding.is_behind:
            limit_s = self.backend.default_timeout_s  # counted from its first byte: under load, much of it may have passed
            self.shedding.check_once_read(ticket.arrived_ns, limit_s)
        return ticket.terms(timeout_s=limit_s, priority=request.priority or priority)

    def check_answer(self, model: Model, arrays: Sequence[Array]) -> None:
        """Checks the size of an answer.

        Raises:
            AnswerTooLargeError: If the outputs together are larger than the server sends.
        """
        num_bytes = sum(map(num_bytes_of, arrays))
        if num_bytes > self.config.max_answer_bytes:
            raise AnswerTooLargeError(
                f"the outputs of model {model.name!r} have {num_bytes} bytes, the server sends at most "
                f"{self.config.max_answer_bytes} (the setting GATEWAY__MAX_ANSWER_BYTES)"
            )

    def _limited(self, model: Model, take: Callable[[list[Array]], T]) -> Callable[[list[Array]], T]:
        """Wraps `take` to refuse outputs that are too large before anything is copied."""

        def take_limited(arrays: list[Array]) -> T:
            self.check_answer(model, arrays)
            return take(arrays)

        return take_limited


def _taking(take: Callable[[list[Array]], T], keep: Callable[[list[Array]], object]) -> Callable[[list[Array]], T]:
    """Wraps `take` to keep the outputs as well, once they are taken."""

    def take_and_keep(arrays: list[Array]) -> T:
        taken = take(arrays)
        keep(arrays)
        return taken

    return take_and_keep


def _refuse_streaming(model: Model) -> None:
    if model.is_streaming:
        raise UnsupportedError(
            f"model {model.name!r} answers in parts; ask by client.stream, infer_stream, generate_stream or ModelStreamInfer "
            f"(`dyorc load` by --stream)"
        )
