"""The time of a call is without its waits for parts of the streams that it reads."""

import time
from collections.abc import AsyncIterator, Iterator, Sequence

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.authoring.program import Program
from dyorc.transport.column_codec import Rows
from tests.deadlines import wait_until
from tests.unit.replica.ongoing import Received, hosted

Number = Int[np.ndarray, ""]

PASSES_S = 0.2


@dyorc.program(batched=False)
def passes_on(numbers: Iterator[Number]) -> Iterator[Number]:
    yield from numbers


@dyorc.program(batched=False)
async def passes_on_async(numbers: AsyncIterator[Number]) -> AsyncIterator[Number]:
    async for number in numbers:
        yield number


@dyorc.program(batched=False)
async def adds_up(numbers: AsyncIterator[Number]) -> Number:
    return np.array(sum([int(number) async for number in numbers]))


class _Timed(Received):
    execute_s = -1.0

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        self.execute_s = execute_s
        return super().done(outputs, execute_s)


@pytest.mark.parametrize("program", [passes_on, passes_on_async, adds_up])
def test_a_wait_for_a_part_is_not_the_program_s_time(program: Program) -> None:
    with hosted(program) as found:
        received = _Timed()
        started_s = time.perf_counter()
        found.calls.start(1, lambda: found.executor.arguments([], ()), received, max_parts=10)
        waited_s = 0.0
        for number in range(2):
            wait_until(lambda: found.calls.is_starved(1), "the call waits for a part")
            since_s = time.perf_counter()
            wait_until(lambda since_s=since_s: time.perf_counter() > since_s + PASSES_S / 2, "time passes")
            waited_s += time.perf_counter() - since_s
            found.feed(1, number)
            received.until_taken(number + 1)
        found.calls.end_stream(1, 0)
        received.until_over()
        assert received.error is None
        assert 0 <= received.execute_s <= time.perf_counter() - started_s - waited_s
