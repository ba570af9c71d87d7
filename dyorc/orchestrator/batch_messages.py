"""Batches as messages: what goes to a replica for one, and what its answers mean to the engine."""

from collections.abc import Sequence

import structlog

from dyorc.answering.tensor_exchange import Tensors
from dyorc.core.tensor import DType, TensorRef, is_resident
from dyorc.engine.actions import BatchControl, CancelBatch, DispatchBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken, TensorsLost
from dyorc.errors import TransportError
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.column_codec import Frame
from dyorc.transport.error_codec import pack_error
from dyorc.transport.inbox import InputsLostError
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
                tuple(action.chain),
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

    def control(self, action: BatchControl) -> Sequence[Frame] | TensorsLost | BatchFailed:
        """Returns the message for a batch that runs; or what to post if it cannot go on. Then it has to be cancelled, too."""
        match action:
            case GrantParts(batch_id=batch_id, max_parts=max_parts):
                return [encode(PartGrant(batch_id, max_parts))]
            case CancelBatch(batch_id=batch_id):
                return [encode(Cancel(batch_id))]
            case FeedPart():
                return self._feed(action)

    def _feed(self, action: FeedPart) -> Sequence[Frame] | TensorsLost | BatchFailed:
        error = None if action.error is None else pack_error(action.error)
        try:
            headers, frames, holders = self._tensors.pack([action.tensors] if action.tensors else [])
        except InputsLostError as lost:
            return TensorsLost(action.replica_id, action.batch_id, lost.blocks)
        except TransportError as failure:
            return BatchFailed(action.replica_id, action.batch_id, type(failure).__name__, str(failure))
        is_end = action.is_end or error is not None
        return [encode(PartFeed(action.batch_id, action.stream, action.index, tuple(headers), holders, is_end, error)), *frames]

    def event(self, answer: BatchAnswer, frames: Sequence[Frame]) -> Event:
        """Returns what a replica's answer means to the engine."""
        replica_id, batch_id = answer.replica_id, answer.batch_id
        match answer:
            case BatchReply() | PartReply():
                try:
                    outputs = self._refs(replica_id, answer.columns, frames)
                except TransportError as error:
                    return BatchFailed(replica_id, batch_id, "TransportError", str(error))
                return _done(answer, outputs) if isinstance(answer, BatchReply) else _part(answer, outputs)
            case BatchFailure(error_type=error_type, message=text, traceback=trace, is_capacity=is_capacity):
                return BatchFailed(replica_id, batch_id, error_type, text, trace, is_capacity)
            case InputsLost(blocks=blocks, reason=reason):
                self._inputs_lost.report(replica=replica_id, reason=reason)
                return TensorsLost(replica_id, batch_id, blocks)
            case PartsTaken(stream=stream, num_taken=num_taken):
                return InputPartsTaken(replica_id, batch_id, stream, num_taken)


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


def _part(reply: PartReply, outputs: Sequence[tuple[TensorRef, ...]]) -> BatchPart | BatchFailed:
    if len(outputs) != 1:
        text = f"part {reply.index} came as {len(outputs)} calls, expected one"
        return BatchFailed(reply.replica_id, reply.batch_id, "TransportError", text)
    return BatchPart(reply.replica_id, reply.batch_id, reply.index, outputs[0], reply.digest)
