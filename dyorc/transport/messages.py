"""What the orchestrator and its replicas say to each other.

A message is one header frame (msgpack, tagged and versioned) and the raw frames of its columns. A batch is one message.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from dyorc.authoring.signature import StaticValue
from dyorc.errors import TransportError
from dyorc.transport.codec import Column, Frame, Rows, decode_column, encode_column

PROTOCOL_VERSION = 1


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Replica: I have loaded my program. Said when it connects, and again while it is idle."""

    replica_id: str
    program: str
    node: str
    pid: int
    version: int = PROTOCOL_VERSION


class LoadFailure(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Replica: I could not load my program."""

    program: str
    error_type: str
    message: str
    traceback: str
    version: int = PROTOCOL_VERSION


class Loading(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Replica: my process is up, I am loading my program."""

    replica_id: str
    program: str
    version: int = PROTOCOL_VERSION


class BatchRequest(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Orchestrator: run this batch. The frames of its input columns follow."""

    batch_id: int
    columns: tuple[Column, ...]
    statics: tuple[StaticValue, ...] = ()


class BatchReply(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Replica: this is what the batch gave. The frames of its output columns follow."""

    replica_id: str
    batch_id: int
    columns: tuple[Column, ...]
    execute_s: float


class BatchFailure(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Replica: the program raised."""

    replica_id: str
    batch_id: int
    error_type: str
    message: str
    traceback: str


Message: TypeAlias = Hello | LoadFailure | Loading | BatchRequest | BatchReply | BatchFailure

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The header frame of a message."""
    return _encoder.encode(message)


def decode(frame: Frame) -> Message:
    """Reads a header frame.

    Raises:
        TransportError: If it is no message of this version.
    """
    try:
        message = _decoder.decode(frame)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise TransportError(f"a header of {len(frame)} bytes is no message: {error}") from error
    if isinstance(message, Hello | LoadFailure | Loading) and message.version != PROTOCOL_VERSION:
        raise TransportError(f"a replica of {message.program!r} speaks version {message.version}, expected {PROTOCOL_VERSION}")
    return message


def encode_columns(columns: Sequence[Rows]) -> tuple[tuple[Column, ...], list[Frame]]:
    """Headers and frames of all columns of a batch."""
    headers: list[Column] = []
    frames: list[Frame] = []
    for rows in columns:
        header, parts = encode_column(rows)
        headers.append(header)
        frames.extend(parts)
    return tuple(headers), frames


def decode_columns(headers: Sequence[Column], frames: Sequence[Frame]) -> list[Rows]:
    """The arrays of all columns.

    Raises:
        TransportError: If frames are missing, left over, or of another length than their header says.
    """
    num_frames = sum(len(header.shapes) for header in headers)
    if num_frames != len(frames):
        raise TransportError(f"a message announces {num_frames} frames and has {len(frames)}")
    columns: list[Rows] = []
    at = 0
    for header in headers:
        columns.append(decode_column(header, frames[at : at + len(header.shapes)]))
        at += len(header.shapes)
    return columns
