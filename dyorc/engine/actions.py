"""Actions: everything that the engine asks its shell to do."""

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from dyorc.authoring.program import Program
from dyorc.authoring.resident import ChainLink
from dyorc.authoring.signature import StaticValue
from dyorc.core.request import RequestInfo
from dyorc.core.tensor import BlockId, TensorRef
from dyorc.core.trace_context import TraceContext
from dyorc.errors import DyOrcError


class FormReason(Enum):
    """Why a batch was formed with the size it has."""

    QUEUE_EMPTIED = "a replica was free and took all that could share a batch"
    FULL = "max_batch_size was reached"
    ALONE = "its program takes one call at a time, in no batch"
    SIDE_BY_SIDE = "its program runs up to max_ongoing calls side by side, in no batch, and a place was free"
    COSTS_ENOUGH = "max_batch_cost was reached"
    SHARED = "several replicas were free and split the queue"
    HELD = "it was held for calls that were about to be ready"
    GUESSED = "a replica was idle and took calls that are not certain yet"
    RETRY = "it repeats a part of a batch that failed"


class DispatchBatch(msgspec.Struct, frozen=True):
    """Send a batch to a replica.

    Attributes:
        operands: The input tensors of each call.
        room_share: For which part of `TransportConfig.arena_wait_s` its results may wait for room.
        inputs: The identities of its requests, as long as a `SuspectsReported` asks for them; else empty.
        is_suspect: Whether its only call may crash the process that runs it.
        span: Its own, if any of its requests is traced; the parent of the spans that the program's code makes.
        requests: The numbers of the requests that its calls belong to, if the program must not be run twice for a call.
        max_parts: For a program that yields: how many parts it may send before `GrantParts` allows more.
        chain: If not empty, the program's ``rebuild`` runs instead, for a chain of these calls. The batch has one call then: its
            operands are the inputs of all of them, in order, without residents; its outputs are the residents alone.
        seen: The request of each of its calls, if the program asks for it (`sees_requests`).
    """

    replica_id: str
    batch_id: int
    program: Program
    operands: Sequence[tuple[TensorRef, ...]]
    statics: tuple[StaticValue, ...]
    reason: FormReason
    room_share: float = 1.0
    inputs: Sequence[Hashable] = ()
    is_suspect: bool = False
    span: TraceContext | None = None
    requests: Sequence[int] = ()
    max_parts: int = 0
    chain: Sequence[ChainLink] = ()
    seen: Sequence[RequestInfo] = ()


class GrantParts(msgspec.Struct, frozen=True):
    """Let a batch of a program that yields send more: up to `max_parts` parts, in all since its start."""

    replica_id: str
    batch_id: int
    max_parts: int


class FeedPart(msgspec.Struct, frozen=True):
    """Give a running batch the next part of a stream that it reads; it answers with `InputPartsTaken` as it reads on.

    Attributes:
        stream: Which of the program's streams, in the order of its parameters.
        index: The part's; parts come in order, from 0.
        tensors: The part's. They may be read until the batch ends.
        is_end: Whether no part comes with this message, and none follows.
        error: Why the stream ended, if it has failed; the program gets it where it waits for the next part.
    """

    replica_id: str
    batch_id: int
    stream: int
    index: int
    tensors: tuple[TensorRef, ...] = ()
    is_end: bool = False
    error: DyOrcError | None = None


class CancelBatch(msgspec.Struct, frozen=True):
    """End a batch of a program that waits or yields: nothing needs its result. Its ``finally`` blocks run; then it answers like
    any other, with `BatchDone` or `BatchFailed`."""

    replica_id: str
    batch_id: int


BatchControl: TypeAlias = GrantParts | FeedPart | CancelBatch
"""What goes to a batch that runs."""


class AnswerRequest(msgspec.Struct, frozen=True):
    """The request is done. `tensors` are in the order of the workflow's outputs.

    If any tensor is stored, answer with `AnswerTaken` once its bytes were read: they are kept until then.

    Attributes:
        effects_follow: Whether effects of the request have yet to happen. If its client cannot get the answer, and may ask again,
            cancel it: then these effects do not happen.
    """

    request_id: int
    tensors: tuple[TensorRef, ...]
    effects_follow: bool = False


class AnswerPart(msgspec.Struct, frozen=True):
    """A part of the answer of a streaming request; `tensors` stand in the order of its workflow's outputs.

    Parts are numbered from 0 and come in order. Answer each with `PartTaken` once its bytes were read: they are kept until
    then. A lost part comes again, perhaps before the loss was noticed. When all were taken, `AnswerRequest` without tensors
    follows, or `FailRequest`.
    """

    request_id: int
    index: int
    tensors: tuple[TensorRef, ...]


class FailRequest(msgspec.Struct, frozen=True):
    """The request failed. Parts of it that were not taken are void."""

    request_id: int
    error: DyOrcError


class EffectFailed(msgspec.Struct, frozen=True):
    """An effect of a request that has ended has failed, and neither its client nor its workflow learned of it.

    Attributes:
        workflow: The request's.
        callee: The program, or the workflow that the request's called.
    """

    request_id: int
    workflow: str
    callee: str
    error: DyOrcError


class SetTimer(msgspec.Struct, frozen=True):
    """Send `TimerFired` at this time; it replaces the timer that was set before."""

    at_ns: int


class FetchValue(msgspec.Struct, frozen=True):
    """Fetch tensors as arrays, because a workflow reads them; answer with `ValueFetched`."""

    fetch_id: int
    tensors: tuple[TensorRef, ...]


class ReleaseTensors(msgspec.Struct, frozen=True):
    """Free these blocks: their tensors are no longer read."""

    blocks: Sequence[BlockId]


class StageTensors(msgspec.Struct, frozen=True):
    """A replica will need these tensors, which are on another node: it may fetch them ahead of its batch."""

    replica_id: str
    tensors: Sequence[TensorRef]


class ProgramStarved(msgspec.Struct, frozen=True):
    """The last calls of a program all failed for want of memory, the latest with this error. Without an error: a call has run."""

    program: str
    error: str


class RebuildFailed(msgspec.Struct, frozen=True):
    """A program's `rebuild` has failed for the first time. The calls of the chain run again, one by one."""

    program: str
    workflow: str
    error: str


class ReplaceReplica(msgspec.Struct, frozen=True):
    """A replica hangs: replace it. The engine has already forgotten it."""

    replica_id: str
    reason: str


class ParkReplica(msgspec.Struct, frozen=True):
    """A replica is not wanted now, and holds no batch: it may drop its program. It gets no batch before it joins again.

    The tensors in its memory stay readable until they are released.
    """

    replica_id: str


Action: TypeAlias = (
    DispatchBatch
    | GrantParts
    | FeedPart
    | CancelBatch
    | AnswerRequest
    | AnswerPart
    | FailRequest
    | EffectFailed
    | SetTimer
    | FetchValue
    | StageTensors
    | ReleaseTensors
    | ReplaceReplica
    | ParkReplica
    | ProgramStarved
    | RebuildFailed
)
