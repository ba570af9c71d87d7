"""The messages between a rank's process and its parent, over a pair of sockets.

A message is two lengths, the message as msgpack with its kind and the names of the tensors that come along, and the tensors as
safetensors. Nothing is pickled, and nothing goes through shared memory.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, get_args

import msgspec
import torch

from dyorc.planner.plan import Region
from dyorc.planner.runtime.egress import Egress
from dyorc.planner.runtime.job_turns import JobTurns
from dyorc.planner.runtime.region_moves import Key
from dyorc.planner.runtime.shaping import LinkShape
from dyorc.planner.runtime.shared_devices import DeviceSharing

Pieces: TypeAlias = Mapping[Key, torch.Tensor]

Paces: TypeAlias = tuple[tuple[int, int, float], ...]
"""How long emulated devices take: a step of a plan, a rank, and the seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMessage:
    """Meet the others.

    Attributes:
        rank: Which one this is.
        num_ranks: How many there are.
        folder: Of this group of ranks: where they meet, and where each says how far it is.
        device: `cpu`, or `cuda`, which means the GPU of the rank's number.
        slowness: How often work is done.
        shapes: Of slower links, by source and target.
        egress: Machines whose ways out are limited; then shapes are not used.
        crowd: Other jobs that use the same emulated devices; None if there are none.
        timeout_s: How long a rank waits for another.
    """

    rank: int
    num_ranks: int
    folder: str
    device: str
    slowness: float
    shapes: Mapping[tuple[int, int], LinkShape]
    egress: Egress | None
    crowd: DeviceSharing | None
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """After each step, a source becomes what a step has made, or is moved against its gradient.

    Attributes:
        source: The placed tensor of the source.
        made: The placed tensor of its new value, or of its gradient.
        learning_rate: Of plain gradient descent; None where the new value is made.
    """

    source: str
    made: str
    learning_rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMessage:
    """Prepare to run a plan. The sources that stay from step to step come along, unless they are in a checkpoint.

    Attributes:
        plan: What will run, as the JSON of its file.
        overlap: Whether communication runs during computation.
        updates: What is done after each step.
        checkpoint: The folder of a checkpoint to read the lasting sources from, or empty.
        weights: A safetensors file to read those from that do not come along, or empty.
        paces: How long an emulated device takes for a step: the step, the rank, and the seconds.
        turns: Of all jobs that use the same devices; None if there is no other.
    """

    plan: str
    overlap: bool
    updates: tuple[Update, ...] = ()
    checkpoint: str = ""
    weights: str = ""
    paces: Paces = ()
    turns: JobTurns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMessage:
    """Run the plan once. The inputs come along.

    Attributes:
        answer: The placed tensors whose pieces are sent back.
        is_timed: Whether the seconds of each instruction are sent back.
        num_samples: How many samples come; 0 for as many as the plan was made for.
        is_guarded: Whether the rank goes on, with zeros, after an operation that raised: the others wait for what it sends.
    """

    answer: tuple[str, ...]
    is_timed: bool = False
    num_samples: int = 0
    is_guarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveMessage:
    """Write the lasting sources that this rank is the first to hold.

    Attributes:
        path: The file.
    """

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMessage:
    """Send the lasting sources that this rank is the first to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMessage:
    """End."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneMessage:
    """A rank has finished a message's work.

    Attributes:
        seconds: How long that took.
        peak_bytes: The most that its pieces took at a time.
        sent_bytes: What it sent in messages.
        copied_bytes: What it copied to send over a plan's edges, or to keep what came.
        timings: The plan's step of each instruction, and its seconds.
        saved: For each region that it wrote: the value, the region, and the name in the file.
        error: What the first operation raised that did, as type and text, if the step is guarded.
    """

    seconds: float = 0.0
    peak_bytes: int = 0
    sent_bytes: int = 0
    copied_bytes: int = 0
    timings: tuple[tuple[int, float], ...] = ()
    saved: tuple[tuple[str, Region, str], ...] = ()
    error: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMessage:
    """A rank raised.

    Attributes:
        error: The error's type and text.
        is_of_link: Whether it could not reach another rank: then that one is to blame.
    """

    error: str
    is_of_link: bool


Message: TypeAlias = (
    StartMessage | LoadMessage | StepMessage | SaveMessage | FetchMessage | StopMessage | DoneMessage | FailedMessage
)
_KINDS = {kind.__name__: kind for kind in get_args(Message)}
_LENGTHS = struct.Struct("<QQ")
"""Of the message, and of the tensors."""
_envelopes = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw, list[Key]])


@dataclass(slots=True)
class Wire:
    """One end of the pair."""

    end: socket.socket = field(repr=False)

    def send(self, message: Message, pieces: Pieces | None = None) -> None:
        """Sends a message with pieces.

        Raises:
            OSError: The other end is gone, or does not read.
        """
        from safetensors.torch import save

        tensors = {str(number): tensor.detach().cpu().clone() for number, tensor in enumerate((pieces or {}).values())}
        packed = save({name: tensor.contiguous() for name, tensor in tensors.items()}) if tensors else b""
        envelope = msgspec.msgpack.encode((type(message).__name__, message, list(pieces or {})))
        self.end.sendall(_LENGTHS.pack(len(envelope), len(packed)) + envelope)
        self.end.sendall(packed)

    def receive(self) -> tuple[Message, dict[Key, torch.Tensor]]:
        """Waits for a message.

        Raises:
            EOFError: The other end is gone.
            OSError: So it is.
        """
        from safetensors.torch import load

        num_told, num_packed = _LENGTHS.unpack(self._read(_LENGTHS.size))
        kind, envelope, keys = _envelopes.decode(self._read(num_told))
        packed = self._read(num_packed)
        tensors = load(packed) if packed else {}
        message = msgspec.msgpack.decode(envelope, type=_KINDS[kind])
        return message, {key: tensors[str(number)] for number, key in enumerate(keys)}

    def _read(self, num_bytes: int) -> bytes:
        data, left = bytearray(num_bytes), num_bytes
        while left:
            num = self.end.recv_into(memoryview(data)[num_bytes - left :])
            if not num:
                raise EOFError
            left -= num
        return bytes(data)


def wire_over(end: socket.socket, send_timeout_s: float | None = None) -> Wire:
    """Takes over a socket.

    Args:
        end: The wire's from now on.
        send_timeout_s: How long to send before giving up on the other end.
    """
    if send_timeout_s is not None:
        limit = struct.pack("ll", int(send_timeout_s), int(send_timeout_s % 1 * 1e6))
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return Wire(end)
