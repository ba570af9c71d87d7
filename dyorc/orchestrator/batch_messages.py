"""Batches as messages: what goes to a replica for one, and what its answers mean to the engine."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from dyorc.answering.tensor_exchange import Tensors
from dyorc.core.request import shifted
from dyorc.core.tensor import DType, TensorRef, is_resident
from dyorc.engine.actions import BatchControl, CancelBatch, DispatchBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken, TensorsLost
from dyorc.errors import TransportError
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.column_codec import Frame
from dyorc.transport.error_codec import pack_error
from dyorc.transport.inbox import InputsLostError
from dyorc.transport.message_packing import Framed
from dyorc.transport.messages import (
    BatchColumn,
    BatchFailure,
    BatchReply,
    BatchRequest,
    Cancel,
    InputsLost,
    PartFeed,
    PartGrant,
    PartReply,
    PartsTaken,
    ResidentColumn,
    encode,
)
from dyorc.transport.tiers import TensorHolder

_log = structlog.get_logger("dyorc.orchestrator")

BatchAnswer = BatchReply | BatchFailure | InputsLost | PartReply | PartsTaken
"""What replicas say of batches."""


class ControlMessages(NamedTuple):
    """What a replica gets for batches that run.

    Attributes:
        messages: Each with its frames.
        failed: What to post for batches that cannot go on. They are cancelled, too.
    """

    messages: Sequence[Framed]
    failed: Sequence[TensorsLost | BatchFailed]


class BatchMessages:
    """Turns actions into messages, and answers into events. Sends nothing itself."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._inputs_lost = LogThrottle(_log, "inputs_lost")

    def request(self, action: DispatchBatch) -> Sequence[Frame] | TensorsLost | BatchFailed:
        """Returns the message that starts a batch; or what to post if there is none."""
        try:
            headers: Sequence[BatchColumn]
            if action.program.signature.residents and not action.chain:
                headers, frames, holders = self._pack_beside(action.operands)
            else:
                headers, frames, holders = self._tensors.pack(action.operands)
            request = BatchRequest(
                action.batch_id, tuple(headers), action.statics, holders, action.room_share, action.span, action.max_parts,
                tuple(action.chain), shifted(action.seen, -time.monotonic_ns()),
            )  # fmt: skip
            return [encode(request), *frames]
        except InputsLostError as error:
            return TensorsLost(action.replica_id, action.batch_id, error.blocks)
        except Exception as error:  # for example a parameter beyond 64 bits; the replica is not to blame
            return BatchFailed(action.replica_id, action.batch_id, type(error).__name__, str(error))

    def _pack_beside(
        self, operands: Sequence[tuple[TensorRef, ...]]
    ) -> tuple[list[BatchColumn], list[Frame], tuple[TensorHolder, ...]]:
        """Packs the columns of a batch, some of which are residents."""
        tensors = [tuple(tensor for tensor in row if not is_resident(tensor)) for row in operands]
        packed, frames, holders = self._tensors.pack(tensors)
        left = iter(packed)
        headers: list[BatchColumn] = [
            ResidentColumn(column[0].holder, tuple(tensor.block for tensor in column)) if is_resident(column[0]) else next(left)
            for column in zip(*operands, strict=True)
        ]
        return headers, frames, holders

    def _refs(self, replica_id: str, columns: Sequence[BatchColumn], frames: Sequence[Frame]) -> list[tuple[TensorRef, ...]]:
        """Returns references to the outputs of a batch, call by call.

        Raises:
            TransportError: If a header contradicts itself, the others, or its frames.
        """
        tensors = [column for column in columns if not isinstance(column, ResidentColumn)]
        rows = self._tensors.refs(replica_id, tensors, frames)
        if len(tensors) == len(columns):
            return rows
        left = zip(*rows, strict=True)
        outputs = [_residents(column) if isinstance(column, ResidentColumn) else next(left) for column in columns]
        if len({len(column) for column in outputs}) > 1:
            raise TransportError(f"outputs of {[len(column) for column in outputs]} calls in one batch")
        return list(zip(*outputs, strict=True))

    def controls(self, actions: Sequence[BatchControl]) -> ControlMessages:
        """Returns the messages for batches of one replica that run, in order. Parts of a stream share one."""
        messages: list[Framed] = []
        failed: dict[int, TensorsLost | BatchFailed] = {}
        feeds: dict[tuple[int, int], list[FeedPart]] = {}
        for action in actions:
            if isinstance(action, FeedPart):
                feeds.setdefault((action.batch_id, action.stream), []).append(action)
        for action in actions:
            match action:
                case GrantParts(batch_id=batch_id, max_parts=max_parts):
                    messages.append((PartGrant(batch_id, max_parts), ()))
                case CancelBatch(batch_id=batch_id):
                    messages.append((Cancel(batch_id), ()))
                case FeedPart(batch_id=batch_id):
                    for run in _runs(feeds.pop((batch_id, action.stream), ())):
                        message = self._feed(run)
                        if not isinstance(message, tuple):
                            failed.setdefault(batch_id, message)
                            messages.append((Cancel(batch_id), ()))
                            break
                        messages.append(message)
        return ControlMessages(messages, list(failed.values()))

    def _feed(self, feeds: Sequence[FeedPart]) -> tuple[PartFeed, Sequence[Frame]] | TensorsLost | BatchFailed:
        """Returns one message for parts of a stream that follow each other, and perhaps its end."""
        first, last = feeds[0], feeds[-1]
        try:
            headers, frames, holders = self._tensors.pack([feed.tensors for feed in feeds if feed.tensors])
        except InputsLostError as lost:
            return TensorsLost(first.replica_id, first.batch_id, lost.blocks)
        except TransportError as failure:
            return BatchFailed(first.replica_id, first.batch_id, type(failure).__name__, str(failure))
        error = None if last.error is None else pack_error(last.error)
        is_end = last.is_end or error is not None
        num_parts = len(feeds) - is_end
        return PartFeed(first.batch_id, first.stream, first.index, num_parts, tuple(headers), holders, is_end, error), frames

    def events(self, answer: BatchAnswer, frames: Sequence[Frame]) -> Sequence[Event]:
        """Returns what a replica's answer means to the engine: several events, if it has several parts."""
        replica_id, batch_id = answer.replica_id, answer.batch_id
        match answer:
            case BatchReply() | PartReply():
                try:
                    outputs = self._refs(replica_id, answer.columns, frames)
                except TransportError as error:
                    return [BatchFailed(replica_id, batch_id, "TransportError", str(error))]
                return [_done(answer, outputs)] if isinstance(answer, BatchReply) else _parts(answer, outputs)
            case BatchFailure(error_type=kind, message=text, traceback=trace, is_capacity=is_capacity, input_at=input_at):
                return [BatchFailed(replica_id, batch_id, kind, text, trace, is_capacity, input_at)]
            case InputsLost(blocks=blocks, reason=reason):
                self._inputs_lost.report(replica=replica_id, reason=reason)
                return [TensorsLost(replica_id, batch_id, blocks)]
            case PartsTaken(stream=stream, num_taken=num_taken):
                return [InputPartsTaken(replica_id, batch_id, stream, num_taken)]


def _residents(column: ResidentColumn) -> list[TensorRef]:
    """Returns references to residents that a batch has made."""
    if len(column.numbers) != len(column.sizes) or any(number <= 0 for number in column.numbers):
        raise TransportError(f"a reply's residents have {len(column.numbers)} numbers and {len(column.sizes)} sizes")
    return [
        TensorRef(dtype=DType.RESIDENT, shape=(), num_bytes=max(0, num_bytes), holder=column.process, block=number)
        for number, num_bytes in zip(column.numbers, column.sizes, strict=True)
    ]


def _done(reply: BatchReply, outputs: Sequence[tuple[TensorRef, ...]]) -> BatchDone:
    times = reply.execute_s, reply.gather_s, reply.infer_s, reply.publish_s
    return BatchDone(reply.replica_id, reply.batch_id, outputs or [()], *times, reply.moves)  # nothing more than the parts before


def _parts(reply: PartReply, outputs: Sequence[tuple[TensorRef, ...]]) -> Sequence[BatchPart | BatchFailed]:
    replica_id, batch_id, index = reply.replica_id, reply.batch_id, reply.index
    digests = reply.digests or (b"",) * len(outputs)
    if not outputs or len(digests) != len(outputs):
        text = f"parts from {index} came as {len(outputs)} calls with {len(digests)} digests"
        return [BatchFailed(replica_id, batch_id, "TransportError", text)]
    return [
        BatchPart(replica_id, batch_id, at, tensors, digest)
        for at, (tensors, digest) in enumerate(zip(outputs, digests, strict=True), index)
    ]


def _runs(feeds: Sequence[FeedPart]) -> Iterator[Sequence[FeedPart]]:
    """Splits the parts of a stream where the types of their tensors change: a column has one type."""
    run: list[FeedPart] = []
    for feed in feeds:
        if run and not feed.is_end and not _are_alike(feed.tensors, run[-1].tensors):
            yield run
            run = []
        run.append(feed)
    if run:
        yield run


def _are_alike(tensors: Sequence[TensorRef], others: Sequence[TensorRef]) -> bool:
    """Returns whether the tensors of two parts have the same types."""
    for tensor, other in zip(tensors, others, strict=True):  # noqa: SIM110  a generator would cost more than all it looks at
        if tensor.dtype is not other.dtype:
            return False
    return True
