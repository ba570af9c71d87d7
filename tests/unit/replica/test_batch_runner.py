"""What a replica answers when its arena is full, when its inputs are gone, and when its outputs are its inputs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.program import Program
from dyorc.core.arrays import Array
from dyorc.engine.request_trace import Move
from dyorc.replica.batch_runner import BatchRunner, RoomWait
from dyorc.replica.executor import ProgramExecutor
from dyorc.transport.column_codec import Frame
from dyorc.transport.messages import BatchFailure, BatchReply, InputsLost, Message, decode
from tests.exchanges import ARENA_BYTES, Call, TensorPath, over_the_wire, tensor_path

SIZE = 4096

Batch = Float[np.ndarray, "batch n"]


@dyorc.program(max_batch_size=8)
def same(x: Batch) -> Batch:
    return x


@dyorc.program(max_batch_size=8)
def backwards(x: Batch) -> Float[np.ndarray, "batch m"]:
    return x[:, ::-2]


@dyorc.program(max_batch_size=8)
def twice(x: Batch) -> tuple[Batch, Batch]:
    return x, x


@dyorc.program(max_batch_size=8)
def both(x: Batch, y: Batch) -> tuple[Batch, Batch]:
    return y, x


@dyorc.program(max_batch_size=8)
def grow(x: Batch) -> Float[np.ndarray, "batch m"]:
    return np.zeros((len(x), ARENA_BYTES // 4), np.float32)


@dyorc.program(max_batch_size=8)
def start(x: Batch) -> Float[np.ndarray, "batch 4"]:
    x += 1
    return x[:, :4]


@dyorc.program(max_batch_size=8)
def fail(x: Batch) -> Batch:
    raise ValueError("no")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[TensorPath]:
    """Opens a tensor path that stores every tensor, whatever its size. The consumer runs the batches."""
    with tensor_path(str(tmp_path)) as opened:
        yield opened


class Replica:
    """Runs batches on the consumer's end of the path. Its clock does not move unless its program or `wait` takes time."""

    def __init__(
        self, path: TensorPath, program: Program, wait: Callable[[], None] = lambda: None, arena_wait_s: float = 60.0
    ) -> None:
        self.path = path
        self.executor = ProgramExecutor.load(program)
        self.num_waits = 0
        self._wait = wait
        self._runner = BatchRunner(
            "consumer", self.executor, path.inbox, path.consumer.outbox, RoomWait(self._wait_for_room, arena_wait_s)
        )

    def before_return(self, act: Callable[[], object]) -> None:
        """Has the program do something before it returns."""
        function = self.executor._function

        def acting(**inputs: Any) -> Any:
            result = function(**inputs)
            act()
            return result

        self.executor._function = acting

    def answer(self, calls: list[Call], room_share: float = 1.0) -> tuple[Message, list[Frame]]:
        request, frames = self.path.request(calls)
        request = msgspec.structs.replace(request, room_share=room_share)
        sent: list[list[Frame]] = []
        self._runner.answer(request, frames, lambda frames: sent.append(over_the_wire(frames)))
        (reply,) = sent
        return decode(reply[0]), reply[1:]

    def _wait_for_room(self) -> None:
        self.num_waits += 1
        self._wait()


def numbers(num_calls: int, size: int = SIZE) -> Array:
    """Returns rows that all differ."""
    return np.arange(num_calls * size, dtype=np.float32).reshape(num_calls, size)


def outputs_of(path: TensorPath, reply: tuple[Message, list[Frame]]) -> list[Array]:
    """Returns the outputs that a reply points to, each as one array."""
    message, frames = reply
    assert isinstance(message, BatchReply), message
    calls = path.tensors.refs("consumer", message.columns, frames)
    return [np.stack([array.copy() for array in path.tensors.read(column)]) for column in zip(*calls, strict=True)]


# Room


def fill(path: TensorPath, left_bytes: int) -> int:
    """Fills the consumer's arena except for a few bytes, and returns the block."""
    block = path.consumer.arena.allocate(path.consumer.arena.max_block_bytes - left_bytes)
    assert block is not None
    return block.block_id


def test_the_reply_says_where_the_time_went(path: TensorPath) -> None:
    replica = Replica(path, same)
    reply, _ = replica.answer(path.publish([numbers(4)]))
    assert isinstance(reply, BatchReply)
    assert reply.infer_s is not None
    assert reply.gather_s > 0
    assert 0 < reply.infer_s < reply.execute_s < reply.gather_s + reply.infer_s + reply.publish_s


def test_the_reply_says_how_inputs_came_to_this_batch_alone(path: TensorPath) -> None:
    replica = Replica(path, same)
    for num_calls in (4, 2):
        reply, _ = replica.answer(path.publish([numbers(num_calls)]))
        assert isinstance(reply, BatchReply)
        assert reply.moves == (Move("shm", numbers(num_calls).nbytes),)


def test_results_wait_for_room(path: TensorPath) -> None:
    block = fill(path, 2 * SIZE)

    def release() -> None:
        if replica.num_waits == 3:
            path.consumer.arena.free(block)

    replica = Replica(path, same, release)
    (outputs,) = outputs_of(path, replica.answer(path.publish([numbers(2)])))
    assert replica.num_waits == 3
    assert np.array_equal(outputs, numbers(2))


def test_results_that_find_no_room_in_time_are_a_capacity_error(path: TensorPath) -> None:
    fill(path, 4 * SIZE)
    replica = Replica(path, twice, arena_wait_s=0.0)
    failure, frames = replica.answer(path.publish([numbers(1)]))
    assert isinstance(failure, BatchFailure)
    assert failure.is_capacity
    assert f"no room for {4 * SIZE} bytes within 0 s" in failure.message
    assert frames == []
    assert path.consumer.arena.num_blocks == 1, "the first of the two outputs had room, and was taken back"


def test_results_wait_for_room_no_longer_than_their_share(path: TensorPath) -> None:
    fill(path, 0)
    replica = Replica(path, same, arena_wait_s=1e9)
    failure, _ = replica.answer(path.publish([numbers(1)]), room_share=0.0)
    assert isinstance(failure, BatchFailure)
    assert failure.is_capacity
    assert replica.num_waits == 0
    assert "none was waited for" in failure.message


def test_results_that_waited_for_a_share_say_so(path: TensorPath) -> None:
    fill(path, 0)
    failure, _ = Replica(path, same, arena_wait_s=0.0).answer(path.publish([numbers(1)]), room_share=0.25)
    assert isinstance(failure, BatchFailure)
    assert "within 0 s, this attempt's share of transport.arena_wait_s (0 s)" in failure.message


def test_a_column_larger_than_the_arena_names_sizes_and_setting(path: TensorPath) -> None:
    replica = Replica(path, grow)
    failure, _ = replica.answer(path.publish([numbers(2)]))
    assert isinstance(failure, BatchFailure)
    assert not failure.is_capacity
    assert str(ARENA_BYTES) in failure.message
    assert str(path.consumer.arena.max_block_bytes) in failure.message
    assert "DYORC_TRANSPORT__ARENA_BYTES" in failure.message
    assert (replica.num_waits, path.consumer.arena.num_blocks) == (0, 0)


# Inputs that are freed


def check_lost(path: TensorPath, message: Message, calls: list[Call]) -> None:
    assert isinstance(message, InputsLost), message
    assert message.blocks == (("producer", calls[0][0].block),)
    assert path.consumer.arena.num_blocks == 0


orders = pytest.mark.parametrize("order", [[0, 1], [1, 0]], ids=["viewed", "gathered"])


@orders
def test_inputs_that_are_gone_before_the_batch_are_lost(path: TensorPath, order: list[int]) -> None:
    calls = path.publish([numbers(2)])
    path.release(calls)
    message, _ = Replica(path, same).answer([calls[at] for at in order])
    check_lost(path, message, calls)


@orders
@pytest.mark.parametrize("program", [same, fail])
@pytest.mark.parametrize("is_reused", [False, True])
def test_inputs_freed_while_the_program_runs_are_lost(
    path: TensorPath, order: list[int], program: Program, is_reused: bool
) -> None:
    """Whatever the program returned, even an error: it may have read anything."""
    calls = path.publish([numbers(2)])
    replica = Replica(path, program)

    def free() -> None:
        path.release(calls)
        if is_reused:
            path.publish([numbers(2) + 1])

    if program is fail:
        replica.executor._function = lambda x: (free(), fail(x))
    else:
        replica.before_return(free)
    message, _ = replica.answer([calls[at] for at in order])
    check_lost(path, message, calls)


def test_inputs_freed_while_results_wait_for_room_are_lost(path: TensorPath) -> None:
    """The program returns its input, which is overwritten before it is copied."""
    calls = path.publish([numbers(2)])
    block = fill(path, 2 * SIZE)

    def release() -> None:
        path.release(calls)
        path.publish([numbers(2) + 1])
        path.consumer.arena.free(block)

    message, _ = Replica(path, same, release).answer(calls)
    check_lost(path, message, calls)


def test_a_holder_that_is_forgotten_while_results_wait_does_no_harm(path: TensorPath, tmp_path: Path) -> None:
    calls = path.publish([numbers(2)])
    block = fill(path, 2 * SIZE)

    def forget() -> None:
        path.inbox._routes.forget("producer")
        path.producer.__exit__(None, None, None)
        path.consumer.arena.free(block)

    message, _ = Replica(path, same, forget).answer(calls)
    check_lost(path, message, calls)
    assert all(path.producer.arena.name not in line for line in Path("/proc/self/maps").read_text().splitlines()), "mapped"


def test_a_holder_that_is_gone_is_lost(path: TensorPath) -> None:
    calls = path.publish([numbers(2)])
    request, frames = path.request(calls)
    path.producer.__exit__(None, None, None)
    sent: list[Message] = []
    runner = BatchRunner("consumer", ProgramExecutor.load(same), path.inbox, path.consumer.outbox, RoomWait(lambda: None, 0.0))
    runner.answer(request, frames, lambda frames: sent.append(decode(frames[0])))
    check_lost(path, sent[0], calls)


def test_the_batch_after_a_lost_one_is_right(path: TensorPath) -> None:
    lost, calls = path.publish([numbers(2)]), path.publish([numbers(2)])
    path.release(lost)
    replica = Replica(path, same)
    assert isinstance(replica.answer(lost)[0], InputsLost)
    assert np.array_equal(outputs_of(path, replica.answer(calls))[0], numbers(2))


# Outputs that are inputs


@orders
@pytest.mark.parametrize("limit", [0, 2**20], ids=["stored", "inline"])
def test_outputs_that_are_inputs_are_right(path: TensorPath, order: list[int], limit: int) -> None:
    path.limit(limit)
    batch = numbers(2)
    calls = path.publish([batch])
    chosen = [calls[at] for at in order]
    assert np.array_equal(outputs_of(path, Replica(path, same).answer(chosen))[0], batch[order])
    assert np.array_equal(outputs_of(path, Replica(path, backwards).answer(chosen))[0], batch[order][:, ::-2])
    for output in outputs_of(path, Replica(path, twice).answer(chosen)):
        assert np.array_equal(output, batch[order])
    pairs = [(*call, calls[0][0]) for call in chosen]
    first, second = outputs_of(path, Replica(path, both).answer(pairs))
    assert np.array_equal(first, np.stack([batch[0]] * 2))
    assert np.array_equal(second, batch[order])


def test_a_small_part_of_a_modified_input_travels_inline_as_the_program_left_it(path: TensorPath) -> None:
    calls = path.publish([numbers(1)])
    path.limit(64)
    message, frames = Replica(path, start).answer(calls)
    assert len(frames) == 1, "its bytes lie in the input, until they are sent"
    (outputs,) = outputs_of(path, (message, frames))
    assert np.array_equal(outputs, numbers(1)[:, :4] + 1)
