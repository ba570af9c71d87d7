"""Batches with residents as messages, to a replica and back."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from dyorc.authoring.program import Program
from dyorc.authoring.resident import ChainLink
from dyorc.core.arrays import inline
from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.actions import DispatchBatch, FormReason
from dyorc.engine.events import BatchDone, BatchFailed, Event, TensorsLost
from dyorc.orchestrator.batch_messages import BatchAnswer, BatchMessages
from dyorc.orchestrator.holding_processes import HoldingProcesses
from dyorc.replica.batch_runner import BatchRunner, RoomWait
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.resident_table import ResidentTable
from dyorc.transport.column_codec import Frame
from dyorc.transport.messages import BatchReply, BatchRequest, ResidentColumn, decode, encode
from tests.exchanges import TensorPath, over_the_wire, tensor_path
from tests.workflows import counting

PROCESS = "counters#1"


class Replicas:
    """The programs of a group in one process, at the consumer's end of a path."""

    def __init__(self, path: TensorPath, *programs: Program) -> None:
        self.residents = ResidentTable(PROCESS)
        self.messages = BatchMessages(path.tensors)
        room = RoomWait(lambda: None, 0.0)
        self._runners = {
            program: BatchRunner(
                "consumer", ProgramExecutor.load(program), path.inbox, path.consumer.outbox, room, self.residents
            )
            for program in programs
        }

    def run(self, program: Program, calls: Sequence[tuple[TensorRef, ...]], chain: Sequence[ChainLink] = ()) -> Event:
        """Runs a batch as it would run in another process, and returns what the engine learns."""
        action = DispatchBatch("consumer", 1, program, calls, (), FormReason.FULL, chain=chain)
        request = self.messages.request(action)
        if isinstance(request, TensorsLost | BatchFailed):
            return request
        header, *frames = over_the_wire(request)
        message = decode(header)
        assert isinstance(message, BatchRequest)
        sent: list[list[Frame]] = []
        self._runners[program].answer(message, frames, lambda frames: sent.append(over_the_wire(frames)))
        (answer,) = sent
        reply = decode(answer[0])
        assert isinstance(reply, BatchAnswer)
        (event,) = self.messages.events(reply, answer[1:])
        return event


@pytest.fixture
def path(tmp_path: Path) -> Iterator[TensorPath]:
    with tensor_path(str(tmp_path)) as opened:
        yield opened


def number(value: int) -> TensorRef:
    return inline(np.array(value))


def done(event: Event) -> Sequence[tuple[TensorRef, ...]]:
    assert isinstance(event, BatchDone), event
    return event.outputs


def test_residents_are_named_by_number_and_stay_where_they_are(path: TensorPath) -> None:
    replicas = Replicas(path, counting.begin, counting.count)
    begun = done(replicas.run(counting.begin, [(number(1),), (number(2),)]))
    assert [(ref.dtype, ref.holder) for (ref,) in begun] == [(DType.RESIDENT, PROCESS)] * 2
    counted = done(replicas.run(counting.count, [(number(10), begun[1][0]), (number(20), begun[0][0])]))
    totals = [int(path.tensors.read([total])[0]) for total, _ in counted]
    assert totals == [12, 21]
    assert len(replicas.residents) == 4
    assert [ref.num_bytes for _, ref in counted] == [16, 16]


def test_a_resident_that_is_gone_or_elsewhere_is_lost(path: TensorPath) -> None:
    replicas = Replicas(path, counting.begin, counting.count)
    ((begun,),) = done(replicas.run(counting.begin, [(number(1),)]))
    replicas.residents.release([begun.block])
    assert replicas.run(counting.count, [(number(1), begun)]) == TensorsLost("consumer", 1, ((PROCESS, begun.block),))
    stray = TensorRef(dtype=DType.RESIDENT, shape=(), holder="counters#2", block=1)
    assert replicas.run(counting.count, [(number(1), stray)]) == TensorsLost("consumer", 1, (("counters#2", 1),))


def test_a_chain_is_rebuilt_from_its_inputs_alone(path: TensorPath) -> None:
    replicas = Replicas(path, counting.recount)
    links = [ChainLink("begin", 1), ChainLink("recount", 1)]
    ((rebuilt,),) = done(replicas.run(counting.recount, [(number(3), number(4))], links))
    assert replicas.residents.get(rebuilt.block).counted.tolist() == [3, 4]


def test_a_reply_that_contradicts_itself_fails_its_batch(path: TensorPath) -> None:
    messages = BatchMessages(path.tensors)
    for column in (ResidentColumn(PROCESS, (1, 2), (0,)), ResidentColumn(PROCESS, (0,), (0,))):
        reply = decode(encode(BatchReply("consumer", 1, (column,), 0.0)))
        assert isinstance(reply, BatchReply)
        (event,) = messages.events(reply, [])
        assert isinstance(event, BatchFailed)


def test_a_process_is_reached_by_any_replica_that_is_left_in_it() -> None:
    processes = HoldingProcesses()
    for replica_id, process in (("begin#1", "p1"), ("count#1", "p1"), ("begin#2", "p2"), ("alone#3", "")):
        processes.join(replica_id, process)
    assert processes.replica_in("p1") == "begin#1"
    processes.leave("begin#1")
    processes.leave("alone#3")
    assert (processes.replica_in("p1"), processes.replica_in("p2")) == ("count#1", "begin#2")
    processes.leave("count#1")
    assert processes.replica_in("p1") is None
