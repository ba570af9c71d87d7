"""What a turn of the engine has for running batches of one replica."""

from collections.abc import Iterator

import numpy as np
import pytest

from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import BatchControl, CancelBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchFailed, BatchPart, TensorsLost
from dyorc.errors import ExecutionError
from dyorc.orchestrator.batch_messages import BatchMessages
from dyorc.transport.messages import Cancel, PartFeed, PartGrant, PartReply
from tests.exchanges import TensorPath, tensor_path


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPath]:
    with tensor_path(str(tmp_path_factory.mktemp("arenas"))) as opened:
        opened.limit(1000)
        yield opened


def feed(path: TensorPath, batch_id: int, index: int, value: object, stream: int = 0) -> FeedPart:
    return FeedPart("consumer", batch_id, stream, index, (path.tensors.keep(np.asarray(value)),))


def test_parts_of_a_stream_and_its_end_share_one_message(path: TensorPath) -> None:
    actions: list[BatchControl] = []
    for index in range(16):
        actions += [feed(path, 1, index, index), feed(path, 2, 5 + index, [index] * 2, stream=1)]
    actions += [GrantParts("consumer", 2, 40), FeedPart("consumer", 1, 0, 16, is_end=True), CancelBatch("consumer", 2)]
    messages, failed = BatchMessages(path.tensors).controls(actions)
    assert not failed
    first, second, grant, cancel = [message for message, _ in messages]
    assert isinstance(first, PartFeed)
    assert (first.batch_id, first.index, first.num_parts, first.is_end) == (1, 0, 16, True)
    assert isinstance(second, PartFeed)
    assert (second.batch_id, second.stream, second.index, second.num_parts, second.is_end) == (2, 1, 5, 16, False)
    assert (grant, cancel) == (PartGrant(2, 40), Cancel(2))
    (columns,) = path.inbox.read(first.columns, [bytes(frame) for frame in messages[0][1]], [])
    assert [int(row) for row in columns] == list(range(16))


def test_an_end_with_an_error_follows_the_parts_before_it(path: TensorPath) -> None:
    actions = [feed(path, 1, 0, 7), FeedPart("consumer", 1, 0, 1, is_end=True, error=ExecutionError("it raised"))]
    (((message, _),), _) = BatchMessages(path.tensors).controls(actions)
    assert isinstance(message, PartFeed)
    assert (message.num_parts, message.is_end) == (1, True)
    assert message.error is not None


def test_a_column_has_one_type(path: TensorPath) -> None:
    actions = [feed(path, 1, 0, np.float32(1)), feed(path, 1, 1, np.float32(1)), feed(path, 1, 2, np.int32(1))]
    messages, _ = BatchMessages(path.tensors).controls(actions)
    assert [(message.index, message.num_parts) for message, _ in messages if isinstance(message, PartFeed)] == [(0, 2), (2, 1)]


def test_a_batch_whose_part_is_lost_is_cancelled_and_reported_once(path: TensorPath) -> None:
    gone = TensorRef(dtype=path.tensors.keep(np.array(1)).dtype, shape=(), num_bytes=8, holder="gone", block=3)
    lost = [FeedPart("consumer", 1, stream, 0, (gone,)) for stream in (0, 1)]
    messages, failed = BatchMessages(path.tensors).controls([*lost, feed(path, 2, 0, 1)])
    assert failed == [TensorsLost("consumer", 1, (("gone", 3),))]
    assert [type(message) for message, _ in messages] == [Cancel, Cancel, PartFeed]


def test_parts_that_came_together_are_events_one_by_one(path: TensorPath) -> None:
    headers, frames = path.producer.outbox.write([np.arange(3)])
    reply = PartReply("producer", 4, 10, headers, (b"a", b"b", b"c"))
    events = BatchMessages(path.tensors).events(reply, [bytes(frame) for frame in frames])
    parts = [event for event in events if isinstance(event, BatchPart)]
    assert [(part.index, part.digest, int(part.tensors[0].data)) for part in parts] == [
        (10, b"a", 0),
        (11, b"b", 1),
        (12, b"c", 2),
    ]
    (event,) = BatchMessages(path.tensors).events(PartReply("producer", 4, 10, headers, (b"a",)), [bytes(f) for f in frames])
    assert isinstance(event, BatchFailed)
    assert "3 calls with 1 digests" in event.message
