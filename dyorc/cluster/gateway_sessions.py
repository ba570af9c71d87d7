"""The gateways that are connected to an orchestrator, and their requests. Used on the event loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from dyorc.answering.input_identity import InputsIdentity
from dyorc.answering.tensor_exchange import Tensors
from dyorc.authoring.signature import StaticValue
from dyorc.cluster.cluster_messages import GatewayHello
from dyorc.core.arrays import Array
from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.engine.request_trace import RequestTrace
from dyorc.telemetry.histories.history_recorder import HistoryKeeper


@dataclass(frozen=True, slots=True, eq=False)
class GatewaySession:
    """A gateway.

    Attributes:
        peer: Its connection.
        numbers: The orchestrator's numbers of its requests, by the gateway's numbers.
    """

    peer: bytes
    gateway_id: str
    numbers: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(slots=True, eq=False)
class RemoteRequest:
    """A request of a gateway.

    Attributes:
        request_id: The gateway's number for it.
        arrived: The request as the engine has it.
        identity: The identity of its inputs.
        is_explained: Whether its gateway gets its trace.
        history: Gets its journal; None: nothing does.
        has_effect: Whether it may have had an effect that must not happen twice.
        is_running: Whether the engine has it: it was not answered, cancelled, or suspended.
    """

    session: GatewaySession
    request_id: int
    arrived: RequestArrived
    identity: InputsIdentity
    is_explained: bool = False
    history: HistoryKeeper | None = None
    has_effect: bool = False
    is_running: bool = True

    @property
    def number(self) -> int:
        """The orchestrator's number for it."""
        return self.arrived.request_id

    @property
    def story(self) -> RequestTrace | None:
        """Its trace, if its gateway gets it."""
        return self.arrived.story if self.is_explained else None

    @property
    def can_begin_again(self) -> bool:
        """Whether it may run once more. Not if it streams: its gateway would mix up the parts of both runs."""
        return not self.has_effect and not self.arrived.workflow.is_streaming


class GatewaySessions:
    """All connected gateways and their requests."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, GatewaySession] = {}
        self._requests: dict[int, RemoteRequest] = {}

    def all(self) -> Sequence[GatewaySession]:
        """Returns the connected gateways."""
        return list(self._sessions.values())

    def of_peer(self, peer: bytes) -> GatewaySession | None:
        """Returns the gateway at a connection."""
        return self._sessions.get(peer)

    def named(self, gateway_id: str) -> GatewaySession | None:
        """Returns the gateway with a name."""
        return next((session for session in self._sessions.values() if session.gateway_id == gateway_id), None)

    def add(self, peer: bytes, hello: GatewayHello) -> GatewaySession:
        """Adds a gateway."""
        session = self._sessions[peer] = GatewaySession(peer, hello.gateway_id)
        return session

    def remove(self, session: GatewaySession) -> None:
        """Removes a gateway, which has no requests left."""
        self._sessions.pop(session.peer, None)

    def add_request(self, request: RemoteRequest) -> None:
        """Adds a request."""
        request.session.numbers[request.request_id] = request.number
        self._requests[request.number] = request

    def request_of(self, number: int) -> RemoteRequest | None:
        """Returns a request by the orchestrator's number."""
        return self._requests.get(number)

    def end_request(self, session: GatewaySession, request_id: int) -> RemoteRequest | None:
        """Forgets a request."""
        number = session.numbers.pop(request_id, None)
        request = None if number is None else self._requests.pop(number)
        if request is not None:
            request.identity.close()
            request.is_running = False
        return request


class _StoredInputs(Sequence[Array]):
    """Inputs that are read in place at each access."""

    def __init__(self, refs: Sequence[TensorRef], tensors: Tensors) -> None:
        self._refs = refs
        self._tensors = tensors

    def __iter__(self) -> Iterator[Array]:
        return iter(self._tensors.read(self._refs))

    def __len__(self) -> int:
        return len(self._refs)

    @overload
    def __getitem__(self, at: int) -> Array: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Array]: ...
    def __getitem__(self, at: Any) -> Any:
        return self._tensors.read(self._refs)[at]


def identity_of(workflow: str, inputs: Sequence[TensorRef], statics: tuple[StaticValue, ...], tensors: Tensors) -> InputsIdentity:
    """Returns the identity of a request. If inputs are on another machine, it equals only itself: comparing would fetch them."""
    if tensors.is_near(inputs):
        return InputsIdentity(workflow, _StoredInputs(inputs, tensors), statics)
    identity = InputsIdentity(workflow, (), statics)
    identity.close()
    return identity
