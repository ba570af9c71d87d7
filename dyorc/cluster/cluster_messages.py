"""The messages between gateways and orchestrators.

A message is one header frame (msgpack, tagged) and the raw frames of its small tensors. Large tensors stay where they are, and
references travel. Deadlines travel as the time that is left, since clocks differ.
"""

from collections.abc import Callable
from typing import Any, Self, TypeAlias

import msgspec
from pydantic import ValidationError

from dyorc.authoring.signature import StaticValue
from dyorc.config import LogsConfig
from dyorc.core.request import RequestFacts
from dyorc.core.tensor import BlockId
from dyorc.core.trace_context import TraceContext
from dyorc.errors import InvalidInputError, TransportError
from dyorc.models.offers import Offer
from dyorc.protocol.deployment_changes import Deploy, DeploymentChange, Rollback, Undeploy
from dyorc.transport.column_codec import ColumnHeader
from dyorc.transport.header_codec import HeaderCodec, encode_header
from dyorc.transport.tiers import TensorHolder

PROTOCOL_VERSION = 2

_CHANGES: dict[str, type[DeploymentChange]] = {"deploy": Deploy, "undeploy": Undeploy, "rollback": Rollback}


class GatewayHello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Gateway: I register. `holder` is where my inputs are, `fence` the highest of the group that I know."""

    gateway_id: str
    holder: TensorHolder
    fence: int
    version: int = PROTOCOL_VERSION


class SubmitRequest(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Gateway: run this model. `timeout_s` is the time that is left. `is_recorded`: send its trace with the answer.
    `facts`: what code may know of it. The other fields are those of `Terms`."""

    request_id: int
    model: str
    version: str
    columns: tuple[ColumnHeader, ...]
    statics: tuple[StaticValue, ...] = ()
    timeout_s: float | None = None
    priority: int = 0
    tenant: str = ""
    weight: float = 1.0
    is_recorded: bool = False
    span: TraceContext | None = None
    waits_for_effects: bool = False
    is_shadow: bool = False
    facts: RequestFacts = RequestFacts()


class CancelRequest(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Gateway: the client no longer wants this answer."""

    request_id: int


class AnswerRead(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Gateway: I have read the answer, except for these lost blocks (holder, block)."""

    request_id: int
    lost: tuple[BlockId, ...] = ()


class PartRead(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Gateway: I have used this part, except for these lost blocks."""

    request_id: int
    index: int
    lost: tuple[BlockId, ...] = ()


class EffectAck(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Gateway: I know of the effect that you announced with this number."""

    number: int


class Refresh(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Gateway: send me your current figures, with the statistics of these models."""

    number: int
    names: tuple[str, ...] = ()


class Scale(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Gateway: keep this many replicas of a program."""

    number: int
    program: str
    num_warm: int | None
    num_parked: int | None


class SetLogs(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Gateway: apply these log settings (`LogsConfig`) to your replicas."""

    values: dict[str, Any]

    def unpack(self) -> LogsConfig:
        """Returns the settings.

        Raises:
            TransportError: If they are none.
        """
        try:
            return LogsConfig.model_validate(self.values)
        except ValidationError as error:
            raise TransportError(f"a gateway sent settings of logs that are none: {error}") from error


class Change(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Gateway: change what is deployed. `action` is deploy, undeploy or rollback; `values` are the fields of that change."""

    number: int
    action: str
    values: dict[str, Any]

    @classmethod
    def of(cls, number: int, change: DeploymentChange) -> Self:
        """Packs a change."""
        action = next(action for action, kind in _CHANGES.items() if isinstance(change, kind))
        return cls(number, action, msgspec.to_builtins(change))

    def unpack(self) -> DeploymentChange:
        """Returns the change.

        Raises:
            InvalidInputError: If the action is unknown, or the values are not those of such a change.
        """
        kind = _CHANGES.get(self.action)
        if kind is None:
            raise InvalidInputError(f"action is {self.action!r}, expected deploy, undeploy or rollback")
        try:
            return msgspec.convert(self.values, kind)
        except msgspec.ValidationError as error:
            raise InvalidInputError(f"the change {self.action!r} is malformed: {error}") from error


class DrainReply(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Gateway: the answer to the `DrainQuery` with this number is yes."""

    number: int


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Orchestrator: I lead with this fence. Requests without a time limit get `default_timeout_s`."""

    group: str
    fence: int
    default_timeout_s: float
    clock_ns: int
    version: int = PROTOCOL_VERSION


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Orchestrator: I do not serve you."""

    reason: str


class OffersUpdate(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Orchestrator: these are the current offers, and what is deployed, by model."""

    offers: tuple[Offer, ...]
    deployed: dict[str, Any] = {}


class StatusUpdate(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Orchestrator: these are the programs' states (`StatusBoard.as_values`)."""

    programs: dict[str, Any]


class AnswerMessage(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Orchestrator: the answer. If any of it is stored, or effects follow, send `AnswerRead` once you have read it."""

    request_id: int
    columns: tuple[ColumnHeader, ...]
    holders: tuple[TensorHolder, ...] = ()
    story: dict[str, Any] | None = None
    effects_follow: bool = False


class PartMessage(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Orchestrator: a part of the answer. Send `PartRead` once you have used it."""

    request_id: int
    index: int
    columns: tuple[ColumnHeader, ...]
    holders: tuple[TensorHolder, ...] = ()


class RequestFailed(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Orchestrator: the request failed. `code` names the class of the error (`dyorc.errors`), `facts` are its attributes."""

    request_id: int
    code: str
    text: str
    facts: dict[str, Any] = {}
    story: dict[str, Any] | None = None


class GatewayBlocksReleased(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Orchestrator: nothing reads these blocks of yours now."""

    blocks: tuple[int, ...]


class EffectAhead(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """Orchestrator: these requests of yours are about to have an effect. I wait for your `EffectAck`."""

    number: int
    requests: tuple[int, ...]


class Refreshed(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """Orchestrator: these are my current figures."""

    number: int
    report: dict[str, Any]
    levels: dict[str, Any]
    scaling: dict[str, Any]
    statistics: dict[str, Any]


class HolderGone(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """Orchestrator: this holder is gone, and so are the tensors in its arena."""

    holder_id: str


class ChangeDone(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Orchestrator: the change is done. After a `Change`, `line` has the model's versions now."""

    number: int
    line: dict[str, Any]


class ChangeRefused(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Orchestrator: the change was not possible, and nothing has changed. For the error see `RequestFailed`."""

    number: int
    code: str
    text: str
    facts: dict[str, Any] = {}


class DrainQuery(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """Orchestrator: send `DrainReply` now; or, `with_requests`, once all your present requests have ended."""

    number: int
    with_requests: bool


FromGateway: TypeAlias = (
    GatewayHello | SubmitRequest | CancelRequest | AnswerRead | PartRead | EffectAck | Refresh | Scale | SetLogs | Change
    | DrainReply
)  # fmt: skip
FromOrchestrator: TypeAlias = (
    Welcome | Refused | OffersUpdate | StatusUpdate | AnswerMessage | PartMessage | RequestFailed | GatewayBlocksReleased
    | EffectAhead | Refreshed | HolderGone | ChangeDone | ChangeRefused | DrainQuery
)  # fmt: skip

_from_gateway = HeaderCodec[FromGateway](FromGateway, (GatewayHello,), PROTOCOL_VERSION, lambda _: "a gateway")
_from_orchestrator = HeaderCodec[FromOrchestrator](FromOrchestrator, (Welcome,), PROTOCOL_VERSION, lambda _: "an orchestrator")
encode: Callable[[FromGateway | FromOrchestrator], bytes] = encode_header
decode_from_gateway = _from_gateway.decode
decode_from_orchestrator = _from_orchestrator.decode
