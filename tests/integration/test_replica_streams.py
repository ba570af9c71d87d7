"""Programs that wait or yield, in replicas: parts and what feeds them, over real links, without an engine."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, Int

import dyorc
from dyorc.core.tensor import TensorRef
from dyorc.engine.events import BatchDone, BatchFailed, InputPartsTaken, ReplicaJoined, TensorsLost
from dyorc.errors import ProgramError
from tests.deadlines import wait_until_async
from tests.integration.bare_fleet import BareFleet, bare_fleet
from tests.integration.stack import FAST_TRANSPORT
from tests.workflows import relayed

Number = Int[np.ndarray, ""]

schemes = pytest.mark.parametrize("scheme", ["unix", "ipc"])


@schemes
async def test_parts_come_in_order_as_far_as_they_are_granted(scheme: str) -> None:
    async with bare_fleet([relayed.numbers], scheme=scheme) as fleet:
        replica = await fleet.start(relayed.numbers)
        batch = fleet.run(replica, relayed.numbers, [7], (5, 0.0), max_parts=2)
        await fleet.until_parts(batch, 2)
        fleet.grant(replica, batch, 3)
        await fleet.until_parts(batch, 3)
        await asyncio.sleep(0.1)
        assert fleet.values(batch) == [7, 8, 9], "it waits for more"
        fleet.grant(replica, batch, 100)
        end = await fleet.until_over(batch)
        assert isinstance(end, BatchDone)
        assert end.outputs == [()]
        assert end.execute_s < 0.1, "the time that it waited does not count"
        assert fleet.values(batch) == [7, 8, 9, 10, 11]
        assert len({part.digest for part in fleet.parts(batch)}) == 5


async def test_several_run_side_by_side_and_the_replica_says_that_it_takes_no_core() -> None:
    @dyorc.program(batched=False, max_ongoing=3)
    class Meet:
        def __init__(self) -> None:
            self.barrier = asyncio.Barrier(3)

        async def __call__(self, x: Number) -> Number:
            return x + 0 * await self.barrier.wait()

    meet = Meet()
    async with bare_fleet([meet]) as fleet:
        replica = await fleet.start(meet)
        (joined,) = [event for event in fleet.events if isinstance(event, ReplicaJoined)]
        assert joined.num_cores == 0
        batches = [fleet.run(replica, meet, [number]) for number in range(3)]
        for number, batch in enumerate(batches):
            end = await fleet.until_over(batch)
            assert isinstance(end, BatchDone)
            assert fleet.arrays(end.outputs[0])[0] == number


@schemes
async def test_a_stream_is_fed_while_it_grows_and_the_replica_says_how_far_it_has_read(scheme: str) -> None:
    async with bare_fleet([relayed.doubled], scheme=scheme) as fleet:
        replica = await fleet.start(relayed.doubled)
        batch = fleet.run(replica, relayed.doubled)
        for index in range(3):
            fleet.feed(replica, batch, index, *fleet.keep(index + 1))
            await fleet.until_parts(batch, index + 1)
        assert fleet.values(batch) == [2, 4, 6]
        assert [event.num_taken for event in fleet.answers(batch, InputPartsTaken)] == [1, 2, 3]
        fleet.feed(replica, batch, 3)
        assert isinstance(await fleet.until_over(batch), BatchDone)


async def test_a_stream_that_fails_raises_where_the_program_reads_on() -> None:
    async with bare_fleet([relayed.doubled]) as fleet:
        replica = await fleet.start(relayed.doubled)
        batch = fleet.run(replica, relayed.doubled)
        fleet.feed(replica, batch, 0, *fleet.keep(1))
        fleet.fail_stream(replica, batch, 1, ProgramError("numbers", "ValueError", "13 is not allowed"))
        end = await fleet.until_over(batch)
        assert isinstance(end, BatchFailed)
        assert end.error_type == "ProgramError"
        assert "13 is not allowed" in end.message
        assert fleet.values(batch) == [2], "the part before"


async def test_large_parts_are_in_the_replicas_memory_and_each_is_what_was_yielded() -> None:
    """Though the program goes on writing to the same buffer, and a reader to what it was given."""
    async with bare_fleet([relayed.pictures, relayed.brighter]) as fleet:
        source, reader = await fleet.start(relayed.pictures), await fleet.start(relayed.brighter)
        made, read = fleet.run(source, relayed.pictures, [5], (3,)), fleet.run(reader, relayed.brighter)
        for part in await fleet.until_parts(made, 3):
            assert part.tensors[0].block
            fleet.feed(reader, read, part.index, *part.tensors)
        fleet.feed(reader, read, 3)
        await fleet.until_over(read)
        assert fleet.values(made) == [5, 6, 7]
        assert fleet.values(read) == [6, 7, 8]
        for part in (*fleet.parts(made), *fleet.parts(read)):
            fleet.release(part.tensors)
        arenas = [worker.exchange.arena for worker in fleet.workers]
        await wait_until_async(lambda: not any(arena.num_blocks for arena in arenas), "the arenas are empty")


async def test_parts_wait_for_room_and_then_fail_their_batch_alone() -> None:
    transport = FAST_TRANSPORT.model_copy(update={"arena_bytes": 20 * 2**20})
    async with bare_fleet([relayed.pictures], transport) as fleet:
        replica = await fleet.start(relayed.pictures)
        batch = fleet.run(replica, relayed.pictures, [0], (6,))
        parts = await fleet.until_parts(batch, 2)
        fleet.release(parts[0].tensors)
        fleet.release((await fleet.until_parts(batch, 3))[1].tensors)
        await fleet.until_parts(batch, 4)
        end = await fleet.until_over(batch)
        assert isinstance(end, BatchFailed)
        assert end.is_capacity
        assert "no room for 8000000 bytes within 1 s" in end.message
        assert len(fleet.parts(batch)) == 4, "those before stay"
        for part in parts[2:]:
            fleet.release(part.tensors)


async def test_cancelling_runs_finally_blocks_and_the_batch_answers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(relayed.NOTES, str(notes))
    async with bare_fleet([relayed.numbers, relayed.doubled]) as fleet:
        replica, reader = await fleet.start(relayed.numbers), await fleet.start(relayed.doubled)
        waiting_for_leave = fleet.run(replica, relayed.numbers, [1], (1000, 0.0), max_parts=2)
        waiting_for_parts = fleet.run(reader, relayed.doubled)
        await fleet.until_parts(waiting_for_leave, 2)
        fleet.cancel(replica, waiting_for_leave)
        fleet.cancel(reader, waiting_for_parts)
        for batch in (waiting_for_leave, waiting_for_parts):
            assert isinstance(await fleet.until_over(batch), BatchFailed)
        assert sorted(notes.read_text().splitlines()) == ["doubled closed", "numbers from 1 closed"]
        fleet.cancel(replica, waiting_for_leave)
        fleet.grant(replica, waiting_for_leave, 10)
        again = fleet.run(replica, relayed.numbers, [1], (1, 0.0))
        assert isinstance(await fleet.until_over(again), BatchDone), "what came for a batch that has ended did no harm"


async def lose(fleet: BareFleet) -> TensorRef:
    """Returns a reference to a large tensor that is gone."""
    (tensor,) = fleet.keep(np.zeros(2_000_000, np.float32))
    fleet.tensors.exchange.arena.free(tensor.block)
    return tensor


async def test_a_part_that_cannot_be_read_ends_the_batch_as_lost_inputs() -> None:
    async with bare_fleet([relayed.brighter]) as fleet:
        replica = await fleet.start(relayed.brighter)
        batch = fleet.run(replica, relayed.brighter)
        tensor = await lose(fleet)
        fleet.feed(replica, batch, 0, tensor)
        end = await fleet.until_over(batch)
        assert isinstance(end, TensorsLost)
        assert list(end.blocks) == [("", tensor.block)]
        again = fleet.run(replica, relayed.brighter)
        fleet.feed(replica, again, 0)
        assert isinstance(await fleet.until_over(again), BatchDone)


async def test_a_part_whose_holder_is_gone_ends_the_batch_too() -> None:
    async with bare_fleet([relayed.pictures, relayed.brighter]) as fleet:
        source, reader = await fleet.start(relayed.pictures), await fleet.start(relayed.brighter)
        (part,) = await fleet.until_parts(fleet.run(source, relayed.pictures, [5], (1,)), 1)
        await asyncio.to_thread(fleet.workers[0].stop)
        await wait_until_async(lambda: source not in fleet.status.programs["pictures"].replica_pids, "it has left")
        batch = fleet.run(reader, relayed.brighter)
        fleet.feed(reader, batch, 0, *part.tensors)
        await wait_until_async(lambda: fleet.answers(batch, BatchFailed), "it was cancelled")
        (lost,) = fleet.answers(batch, TensorsLost)
        (failed,) = fleet.answers(batch, BatchFailed)
        assert fleet.events.index(lost) < fleet.events.index(failed), "the engine learns first what was lost"


@schemes
async def test_a_new_engine_gets_nothing_of_the_batches_of_the_last_one(
    scheme: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(relayed.NOTES, str(notes))
    async with bare_fleet([relayed.numbers], scheme=scheme) as fleet:
        replica = await fleet.start(relayed.numbers)
        old = fleet.run(replica, relayed.numbers, [1], (10_000, 0.001), max_parts=10_000)
        await fleet.until_parts(old, 3)
        fleet.fleet.start_over()
        num_joined = sum(isinstance(event, ReplicaJoined) for event in fleet.events)
        await fleet.until_joined(replica, num_joined + 1)
        new = fleet.run(replica, relayed.numbers, [1], (2, 0.0))
        assert isinstance(await fleet.until_over(new), BatchDone)
        num_parts = len(fleet.parts(old))
        await wait_until_async(lambda: notes.exists() and "numbers from 1 closed" in notes.read_text(), "it was closed")
        await asyncio.sleep(0.05)
        assert len(fleet.parts(old)) == num_parts
        assert not fleet.has_ended(old)


async def test_a_replica_whose_link_is_never_silent_announces_itself_again() -> None:
    """Parts wake it all the time, and it gets no message: perhaps another orchestrator listens."""
    async with bare_fleet([relayed.numbers]) as fleet:
        replica = await fleet.start(relayed.numbers)
        batch = fleet.run(replica, relayed.numbers, [1], (100_000, 0.002), max_parts=100_000)
        await fleet.until_parts(batch, 3)
        num_joined = sum(isinstance(event, ReplicaJoined) for event in fleet.events)
        await fleet.until_joined(replica, num_joined + 2)
        fleet.cancel(replica, batch)
        await fleet.until_over(batch)


async def test_a_batch_that_hangs_is_found_by_the_health_check_though_others_go_on() -> None:
    @dyorc.program(batched=False, max_ongoing=8, execution_timeout_s=0.5)
    async def sometimes(parts: AsyncIterator[Number], x: Number) -> AsyncIterator[Number]:
        yield x
        if x == 0:
            await asyncio.Event().wait()
        async for part in parts:
            yield part

    async with bare_fleet([sometimes]) as fleet:
        replica = await fleet.start(sometimes)
        (worker,) = fleet.workers
        reading, full = (fleet.run(replica, sometimes, [1], max_parts=max_parts) for max_parts in (10, 1))
        fleet.feed(replica, full, 0, *fleet.keep(5))
        await fleet.until_parts(reading, 1)
        await fleet.until_parts(full, 1)
        await asyncio.sleep(0.8)
        worker.check()  # one waits for a part, one for leave to send another
        hanging = fleet.run(replica, sometimes, [0], max_parts=10)
        fleet.feed(replica, hanging, 0, *fleet.keep(5))
        await fleet.until_parts(hanging, 1)
        worker.check()
        await asyncio.sleep(0.8)
        with pytest.raises(RuntimeError, match=r"for more than 0\.5 s"):
            worker.check()
        for batch in (reading, full, hanging):
            fleet.cancel(replica, batch)
            await fleet.until_over(batch)
        worker.check()


async def test_a_replica_that_stops_lets_calls_finish_and_closes_those_that_take_longer(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(relayed.NOTES, str(notes))
    async with bare_fleet([relayed.numbers]) as fleet:
        replica = await fleet.start(relayed.numbers)
        long = fleet.run(replica, relayed.numbers, [1], (100_000, 0.01), max_parts=100_000)
        short = fleet.run(replica, relayed.numbers, [2], (20, 0.01))
        await fleet.until_parts(long, 2)
        await asyncio.to_thread(fleet.workers[0].stop, 3.0)
        assert isinstance(await fleet.until_over(short), BatchDone)
        assert not fleet.has_ended(long)
        assert sorted(notes.read_text().splitlines()) == ["numbers from 1 closed", "numbers from 2 closed"]


async def test_a_parked_replica_has_dropped_its_program_and_loads_it_again() -> None:
    @dyorc.program(batched=False)
    class Counting:
        num_loaded = 0

        def __init__(self) -> None:
            type(self).num_loaded += 1

        def __call__(self) -> Iterator[Number]:
            yield np.array(self.num_loaded)

    counting = Counting()
    async with bare_fleet([counting]) as fleet:
        replica = await fleet.start(counting)
        assert isinstance(await fleet.until_over(fleet.run(replica, counting)), BatchDone)
        fleet.fleet.want("counting", 0, 1)
        fleet.fleet.park(replica)
        await wait_until_async(lambda: fleet.status.programs["counting"].counts().parked == 1, "it is parked")
        fleet.fleet.want("counting", 1, 0)
        await wait_until_async(lambda: fleet.status.programs["counting"].counts().warm == 1, "it has loaded it again")
        batch = fleet.run(replica, counting)
        await fleet.until_over(batch)
        assert fleet.values(batch) == [2]


async def test_a_part_of_a_wrong_type_fails_its_batch_alone() -> None:
    @dyorc.program(batched=False, max_ongoing=8)
    def odd(x: Number) -> Iterator[Float[np.ndarray, "2"]]:
        yield np.zeros(2, np.float32)
        yield np.zeros(3 if x else 2, np.float32)

    async with bare_fleet([odd]) as fleet:
        replica = await fleet.start(odd)
        good, bad = fleet.run(replica, odd, [0]), fleet.run(replica, odd, [1])
        assert isinstance(await fleet.until_over(good), BatchDone)
        end = await fleet.until_over(bad)
        assert isinstance(end, BatchFailed)
        assert "'odd' yielded" in end.message
        assert len(fleet.parts(bad)) == 1
