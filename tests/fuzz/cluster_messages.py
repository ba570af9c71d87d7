"""What gateways and orchestrators say to each other, and requests for chunks of tensors between nodes: headers in msgpack."""

from dyorc.cluster.cluster_messages import (
    AnswerMessage,
    AnswerRead,
    Change,
    ChangeRefused,
    FromGateway,
    FromOrchestrator,
    GatewayHello,
    OffersUpdate,
    PartMessage,
    Refreshed,
    RequestFailed,
    Scale,
    SetLogs,
    StatusUpdate,
    SubmitRequest,
    Welcome,
    decode_from_gateway,
    decode_from_orchestrator,
    encode,
)
from dyorc.core.request import RequestFacts
from dyorc.core.tensor import DType
from dyorc.core.trace_context import TraceContext
from dyorc.errors import DyOrcError, InvalidInputError, TransportError
from dyorc.transport.column_codec import Column
from dyorc.transport.error_codec import unpack_error
from dyorc.transport.tiers import TensorHolder
from tests.fuzz.contract import FuzzTarget, InputForm, check
from tests.fuzz.request_bodies import models

_HOLDER = TensorHolder("gateway", "here", "dyorc-arena-0123456789abcdef")
_COLUMN = Column(DType.FP32, ((2,),), 1)


def _read_from_gateway(data: bytes) -> None:
    message = decode_from_gateway(data)
    packed = encode(message)
    check(encode(decode_from_gateway(packed)) == packed, f"{message} came back otherwise")
    if isinstance(message, Change | SetLogs):
        message.unpack()


def build_from_gateways() -> FuzzTarget:
    """Returns the target for messages of gateways."""
    trace = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", True)
    messages: list[FromGateway] = [
        GatewayHello("g", _HOLDER, 1),
        SubmitRequest(1, "m", "1", (_COLUMN,), (1, 2.0, "a", True), 0.5, 1, "t", 2.0, True, trace, True, False, RequestFacts()),
        AnswerRead(1, (("g", 1),)),
        Scale(1, "p", 2, None),
        SetLogs({"level": "debug", "format": "json"}),
        Change(1, "deploy", {"target": "app.py:a", "share": 0.5}),
        Change(1, "rollback", {"model": "m"}),
        Change(1, "undeploy", {"model": "m", "version": "1"}),
    ]
    return FuzzTarget(
        name="messages_of_gateways",
        read=_read_from_gateway,
        errors=(TransportError, InvalidInputError),
        seeds=tuple(map(encode, messages)),
        form=InputForm.MSGPACK,
        words=(b"deploy", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xcb\x7f\xf8\0\0\0\0\0\0", b"\x91" * 3000),
    )


def _read_from_orchestrator(data: bytes) -> None:
    message = decode_from_orchestrator(data)
    encode(message)
    if isinstance(message, RequestFailed | ChangeRefused):
        error = unpack_error(message.code, message.text, message.facts)
        check(isinstance(error, DyOrcError) and isinstance(str(error), str), "the error has no text")
    elif isinstance(message, OffersUpdate):
        for offer in message.offers:
            offer.signature.signature()


def build_from_orchestrators() -> FuzzTarget:
    """Returns the target for messages of orchestrators."""
    offers = tuple(model.offer for name, model in models().items() if name in ("repeat", "judge", "parcel", "echo"))
    messages: list[FromOrchestrator] = [
        Welcome("default", 1, 30.0, 123),
        *[OffersUpdate((offer,), {"m": {"versions": ["1"]}}) for offer in offers],
        StatusUpdate({"p": {"state": "ready", "num": 1}}),
        AnswerMessage(1, (_COLUMN,), (_HOLDER,), {"number": 1, "batches": [], "calls": []}),
        PartMessage(1, 0, (_COLUMN,)),
        RequestFailed(1, "program", "it failed", {"program": "p", "retry_after_s": 1.0}),
        ChangeRefused(1, "invalid_input", "bad", {"a": None}),
        Refreshed(1, {}, {"queued": 1}, {}, {"m": {}}),
    ]
    return FuzzTarget(
        name="messages_of_orchestrators",
        read=_read_from_orchestrator,
        errors=(TransportError,),
        seeds=tuple(map(encode, messages)),
        form=InputForm.MSGPACK,
        words=(b"args", b"__class__", b"\x91" * 3000, b"\xc7\xff\xff", b"\xd9\xff"),
    )
