"""Replays of requests that answer in parts, whose programs yield and read streams, or keep residents."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.telemetry.histories.history import RequestHistory
from dyorc.telemetry.histories.history_files import read_histories
from tests.unit.replay.histories import (
    Vector,
    Vectors,
    double,
    halve,
    ran,
    recorded,
    recording,
    refuse_negative,
    total,
    tried,
    vector,
    workflow_like,
)

pytestmark = pytest.mark.anyio

SMALL, LARGE = vector(1, 1), vector(4, 1)
Number = Float[np.ndarray, "1"]
Numbers = Float[np.ndarray, "batch 1"]


@dyorc.program(batched=False)
def count_up(x: Vector) -> Iterator[Vector]:
    """Yields x, x + 1, ... as often as its first number says; fails before a 13."""
    for number in range(int(x[0])):
        if x[0] + number == 13:
            raise ValueError("unlucky")
        ran.append("count_up")
        yield x + number


@dyorc.program(batched=False)
async def sums(parts: AsyncIterator[Vector]) -> AsyncIterator[Vector]:
    """Yields the sum so far."""
    whole = np.zeros(2, np.float32)
    async for part in parts:
        whole = whole + part
        yield whole


@dyorc.program(batched=False)
async def first_of(parts: AsyncIterator[Vector], x: Vector) -> Vector:
    """Reads one part, if there is one."""
    return await anext(parts, x)


def doubling_above(threshold: float, *, end: float = 99) -> Workflow:
    """Answers in parts, each doubled or not."""

    @workflow_like("spoken")
    async def flow(x: Vector) -> AsyncIterator[Vector]:
        async for part in count_up(x):
            if await dyorc.when(part, lambda value: value[0] > end):
                break
            yield double(part) if await dyorc.when(part, lambda value: value[0] > threshold) else part

    return flow


async def test_an_answer_in_parts_is_the_same_again(tmp_path: Path) -> None:
    histories = await recorded(doubling_above(5), tmp_path, [SMALL], [LARGE], [vector(0, 0)])
    assert [len(history.parts or ()) for history in histories] == [1, 4, 0]
    report = tried(doubling_above(5), histories)
    assert (report.num_replayed, report.num_same) == (3, 3)
    assert report.recorded == report.expected
    assert ran == []


async def test_the_part_that_differs_is_named(tmp_path: Path) -> None:
    histories = await recorded(doubling_above(5), tmp_path, [SMALL], [LARGE])
    report = tried(doubling_above(6), histories)
    assert (report.num_same, report.num_other_outcomes, report.num_other_answers) == (1, 1, 1)
    assert report.answer == "part 2: output 'output' differs in 2 of 2 elements, by up to 6; the first was 12.0, it is 6.0"
    assert report.fewer_calls == {"double": 1}


async def test_fewer_parts_are_a_difference(tmp_path: Path) -> None:
    histories = await recorded(doubling_above(99), tmp_path, [LARGE])
    report = tried(doubling_above(99, end=5), histories)
    assert report.answer == "the answer has 2 parts, it had 4"
    assert (report.more_calls, report.fewer_calls, report.missing) == ({}, {}, {})


async def test_a_version_that_reads_on_needs_what_had_not_come(tmp_path: Path) -> None:
    @dyorc.program(name="count_up", batched=False, max_ongoing=1)
    def endless(x: Vector) -> Iterator[Vector]:
        number = 0
        while True:
            yield x + number
            number += 1

    def up_to(last: int) -> Workflow:
        @workflow_like("reading")
        async def flow(x: Vector) -> Vector:
            async for part in endless(x):
                if await dyorc.when(part, lambda value: value[0] >= last):
                    return part
            return x

        return flow

    histories = await recorded(up_to(5), tmp_path, [SMALL])
    assert tried(up_to(5), histories).num_same == 1
    assert tried(up_to(4), histories).num_other_answers == 1
    (history,) = histories
    num_parts = len(history.calls[0].parts or ())
    report = tried(up_to(1000), histories)
    assert report.missing == {f"part {num_parts} of 'count_up', which had not come when the request was recorded": 1}


async def test_a_stream_that_fails_fails_again(tmp_path: Path) -> None:
    @workflow_like("caught")
    async def flow(x: Vector) -> AsyncIterator[Vector]:
        try:
            async for part in sums(count_up(x)):
                yield part
        except dyorc.ProgramError:
            yield x
        yield halve(x)

    @workflow_like("caught")
    async def uncaught(x: Vector) -> AsyncIterator[Vector]:
        async for part in sums(count_up(x)):
            yield part
        yield halve(x)

    histories = await recorded(flow, tmp_path, [vector(10, 0)], [SMALL])
    assert tried(flow, histories).num_same == 2
    report = tried(uncaught, histories)
    assert (report.num_same, report.num_other_errors) == (1, 1)
    (text,) = report.errors
    assert text.startswith(
        "it was answered, and now it fails: program 'count_up' failed: ValueError: unlucky; it reached program"
    )
    others = await recorded(uncaught, tmp_path / "others", [vector(10, 0)])
    assert others[0].error[0] == "program"
    assert tried(uncaught, others).num_same == 1


def summing(step: float) -> Workflow:
    @dyorc.workflow
    async def shifted(x: Vector) -> AsyncIterator[Vector]:
        async for part in count_up(x):
            yield (await part) + np.float32(step)

    @workflow_like("summed")
    async def flow(x: Vector) -> Vector:
        last = x
        async for part in sums(shifted(x)):
            last = part
        return last

    return flow


async def test_a_call_is_known_by_the_stream_that_it_reads(tmp_path: Path) -> None:
    histories = await recorded(summing(1), tmp_path, [LARGE], [SMALL])
    assert [[len(stream.parts) for stream in call.streams] for call in histories[0].calls if call.streams] == [[4]]
    assert tried(summing(1), histories).num_same == 2
    report = tried(summing(2), histories)
    assert report.missing == {"a call of 'sums' that is in no history": 2}
    with_programs = tried(summing(2), histories, run_programs=True)
    reason = "a call of 'sums' that is in no history, and has streams or residents, so it does not run in a replay"
    assert with_programs.missing == {reason: 2}


async def test_what_a_workflow_does_ahead_of_its_reader_is_no_difference(tmp_path: Path) -> None:
    """How far it comes, before it is ended, is a matter of time."""

    def with_program(program: dyorc.Program) -> Workflow:
        @dyorc.workflow
        async def ahead(x: Vector) -> AsyncIterator[Vector]:
            for _ in range(8):
                x = program(x)
                yield x

        @workflow_like("read")
        async def flow(x: Vector) -> Vector:
            async for part in ahead(x):
                return part
            return x

        return flow

    histories = await recorded(with_program(double), tmp_path, [LARGE])
    (history,) = histories
    assert [call.is_ahead for call in history.calls][:2] == [False, True]
    for num_calls in (1, 2, len(history.calls)):
        part = RequestHistory(**{name: getattr(history, name) for name in history.__struct_fields__})
        part.calls = history.calls[:num_calls]
        assert tried(with_program(double), [part]).num_same == 1
    assert tried(with_program(halve), histories).more_calls == {"halve": 1}


async def test_a_workflow_that_nobody_needs_may_be_ended_anywhere(tmp_path: Path) -> None:
    @dyorc.workflow
    async def unneeded(x: Vector) -> Vector:
        for _ in range(4):
            x = double(x)
            if await dyorc.when(total(x), lambda value: value < 0):
                return x
        return halve(x)

    @workflow_like("dropped")
    async def flow(x: Vector) -> Vector:
        dropped = unneeded(x)
        late = total(dropped)
        assert late is not None
        return double(x)

    @workflow_like("dropped")
    async def without(x: Vector) -> Vector:
        return double(x)

    (history,) = await recorded(flow, tmp_path, [SMALL])
    (run,) = history.nested
    assert tried(flow, [history]).num_same == 1
    whole = RequestHistory(**{name: getattr(history, name) for name in history.__struct_fields__})
    whole.nested = [type(run)(run.workflow, run.arguments, run.statics, run.caller, is_cut=not run.is_cut)]
    assert tried(flow, [whole]).num_same == 1
    assert tried(without, [history]).fewer_calls == ({} if run.is_cut else {"double": 4, "halve": 1, "total": 5})


@dyorc.program(group="chat", max_batch_size=4)
class Prefill:
    def __call__(self, x: Numbers) -> dyorc.Resident[list[float]]:
        return [[float(each[0])] for each in x]


@dyorc.program(group="chat", max_batch_size=4)
class Decode:
    def __call__(
        self, x: Numbers, state: dyorc.Resident[list[float], dyorc.Consumed]
    ) -> tuple[Numbers, dyorc.Resident[list[float]]]:
        ran.append("decode")
        states = [[*old, float(each[0])] for old, each in zip(state, x, strict=True)]
        return np.array([[sum(each) % 31] for each in states], np.float32), states


prefill, decode = Prefill(), Decode()


def chatting(last: float, *, factor: int = 1) -> Workflow:
    @workflow_like("chat")
    async def flow(question: Number) -> AsyncIterator[Number]:
        x: Any = question
        state = prefill(x)
        for _ in range(20):
            x, state = decode(x[::factor], state)
            yield x
            if await dyorc.when(x, lambda value: value[0] > last):
                return

    return flow


async def test_a_chat_with_residents_is_replayed(tmp_path: Path) -> None:
    histories = await recorded(chatting(15), tmp_path, [vector(1)], [vector(2)])
    assert [len(history.parts or ()) for history in histories] == [4, 3]
    assert tried(chatting(15), histories).num_same == 2
    assert tried(chatting(15, factor=-1), histories).num_same == 2
    shorter = tried(chatting(7), histories)
    assert shorter.num_other_outcomes == 2
    assert shorter.answer == "the answer has 3 parts, it had 4"
    assert list(tried(chatting(30), histories).missing) == ["a call of 'decode' that is in no history"]
    assert ran == []


async def test_a_part_that_was_too_large_passes_through_and_is_not_read(tmp_path: Path) -> None:
    @workflow_like("passed")
    async def flow(x: Vector) -> AsyncIterator[Vector]:
        async for part in count_up(x):
            yield double(part)

    @workflow_like("passed")
    async def reading(x: Vector) -> AsyncIterator[Vector]:
        async for part in count_up(x):
            await part
            yield double(part)

    histories = await recorded(flow, tmp_path, [LARGE], max_value_bytes=4)
    assert [part[0].data for part in histories[0].calls[0].parts or ()] == [None] * 4
    assert tried(flow, histories).num_same == 1
    assert list(tried(reading, histories).num_not_replayed) == [
        "it needs the value that 'count_up' returned, which is not in the history"
    ]


async def test_a_client_that_leaves_is_no_measure(tmp_path: Path) -> None:
    async with recording(doubling_above(99), tmp_path) as cell:
        answer = cell.stream(LARGE)
        assert await anext(answer)
        await answer.aclose()
    (history,) = read_histories(tmp_path)
    (reason,) = tried(doubling_above(99), [history]).num_not_replayed
    assert reason == f"it failed for a reason outside of its workflow: {history.error[0]}"


async def test_a_program_that_yields_now_has_no_recorded_call(tmp_path: Path) -> None:
    @dyorc.program(name="double")
    def plain(x: Vectors) -> Vectors:
        return 2 * x

    @dyorc.program(name="double", batched=False)
    def in_parts(x: Vector) -> Iterator[Vector]:
        yield x

    @workflow_like("changed")
    async def flow(x: Vector) -> Vector:
        return plain(x)

    @workflow_like("changed")
    async def other(x: Vector) -> Vector:
        async for part in in_parts(x):
            x = part
        return x

    histories = await recorded(flow, tmp_path, [SMALL])
    assert tried(other, histories).missing == {"a call of 'double' that is in no history": 1}
    histories = await recorded(other, tmp_path / "other", [SMALL])
    assert tried(flow, histories).missing == {"a result of 'double' with 1 outputs: it has 0 in the history": 1}


async def test_a_part_that_fails_is_none(tmp_path: Path) -> None:
    @dyorc.workflow
    async def failing(x: Vector) -> Vector:
        return refuse_negative((await x) * np.float32(-1))

    def flow_of(program: dyorc.Program) -> Workflow:
        @workflow_like("broken")
        async def flow(x: Vector) -> AsyncIterator[Vector]:
            yield program(x)
            yield failing(x)
            yield x

        return flow

    histories = await recorded(flow_of(double), tmp_path, [SMALL])
    assert (len(histories[0].parts or ()), histories[0].error[0]) == (1, "program")
    assert tried(flow_of(double), histories).num_same == 1
    assert tried(flow_of(halve), histories).missing == {"a call of 'halve' that is in no history": 1}
