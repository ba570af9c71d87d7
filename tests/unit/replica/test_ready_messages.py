"""What batches make between two looks of the worker's thread leaves as one message."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from dyorc.replica.batch_receiver import BatchReceiver, ReadyMessages
from dyorc.transport.column_codec import Frame
from dyorc.transport.message_packing import unpack
from dyorc.transport.messages import BatchReply, BatchRequest, Message, PartReply, PartsTaken, decode
from dyorc.transport.wake_up import WakeUp
from tests.exchanges import TensorPath, tensor_path


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPath]:
    with tensor_path(str(tmp_path_factory.mktemp("arenas"))) as opened:
        yield opened


class Sender:
    """A replica's side of its batches."""

    def __init__(self, path: TensorPath) -> None:
        path.limit(1000)
        self.ready = ReadyMessages("producer", path.producer.outbox, WakeUp())
        self.num_messages = 0

    def batch(self, batch_id: int, num_streams: int = 0) -> BatchReceiver:
        """Begins a batch."""
        return BatchReceiver(
            BatchRequest(batch_id, (), max_parts=1000), self.ready, num_streams, lambda batch_id: None,
            is_streaming=True, room_wait_s=1.0,
        )  # fmt: skip

    def sent(self) -> list[tuple[Message, Sequence[Frame]]]:
        """Sends all that is there, and returns it."""
        messages = list(self.ready.take())
        self.num_messages += len(messages)
        return [each for frames in messages for each in unpack(decode(frames[0]), frames[1:])]


def rows(value: int) -> list[list[np.ndarray]]:
    return [[np.array([value, value])]]


def test_all_that_is_ready_leaves_as_one_message_with_one_entry_for_the_parts_of_a_batch(path: TensorPath) -> None:
    sender = Sender(path)
    batches = [sender.batch(number, num_streams=1) for number in range(3)]
    for index in range(10):
        for number, batch in enumerate(batches):
            batch.fed(0, 1)
            batch.taken(0, index + 1)
            assert batch.part(index, rows(100 * number + index), bytes([index]))
    assert batches[1].done((), 0.5)
    sent = sender.sent()
    assert sender.num_messages == 1
    assert [(message.batch_id, message.num_taken) for message, _ in sent if isinstance(message, PartsTaken)] == [
        (0, 10), (1, 10), (2, 10),
    ]  # fmt: skip
    parts = [(message, frames) for message, frames in sent if isinstance(message, PartReply)]
    assert [(part.batch_id, part.index, part.digests) for part, _ in parts] == [
        (number, 0, tuple(bytes([index]) for index in range(10))) for number in range(3)
    ]
    for number, (part, frames) in enumerate(parts):
        calls = path.tensors.refs("producer", part.columns, list(frames))
        assert [call[0].data.tolist() for call in calls] == [[100 * number + index] * 2 for index in range(10)]
    assert isinstance(sent[-1][0], BatchReply), "nothing follows the end"
    assert sender.sent() == []


def test_parts_of_different_types_stay_in_order(path: TensorPath) -> None:
    sender = Sender(path)
    batch = sender.batch(1)
    for index in range(4):
        assert batch.part(index, [[np.zeros(1, np.float32 if index < 2 else np.int32)]], b"")
    sent = [message for message, _ in sender.sent()]
    assert [message.index for message in sent if isinstance(message, PartReply)] == [0, 1, 2, 3]
    assert sender.num_messages == 1


def num_reports(sender: Sender) -> list[int]:
    return [message.num_taken for message, _ in sender.sent() if isinstance(message, PartsTaken)]


def test_reading_is_reported_after_half_of_what_is_fed_ahead_and_before_a_wait(
    path: TensorPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dyorc.replica.batch_receiver._REPORT_S", 1e9)
    sender = Sender(path)
    batch = sender.batch(1, num_streams=2)
    batch.fed(0, 16)
    reports: list[int] = []
    for number in range(1, 17):
        batch.taken(0, number)
        reports += num_reports(sender)
    assert reports == [8, 16]
    batch.fed(0, 1)
    batch.fed(1, 1)
    batch.taken(0, 17)
    assert num_reports(sender) == [17], "it has nothing more to read, so the limit of its time stops"
    batch.fed(1, 0, is_end=True)
    batch.taken(1, 1)
    assert num_reports(sender) == [1]


def test_a_program_that_takes_its_time_reports_each_part(path: TensorPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dyorc.replica.batch_receiver._REPORT_S", 0.0)
    sender = Sender(path)
    batch = sender.batch(1, num_streams=1)
    batch.fed(0, 16)
    reports: list[int] = []
    for number in range(1, 4):
        batch.taken(0, number)
        reports += num_reports(sender)
    assert reports == [1, 2, 3]
