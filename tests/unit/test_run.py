"""`dyorc.run` on workflows that test its limits. A mistake in one request affects no other."""

import asyncio
import contextlib
import signal
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import numpy as np
import pytest
from jaxtyping import Bool, Float, Int

import dyorc
from dyorc.errors import DefinitionError, ForeignAwaitError, InvalidInputError, ProgramError, ProgramLoadError, WorkflowError
from tests.workflows import faulty


@dyorc.program
def inc(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    return x + 1


class Pair(TypedDict):
    a: Float[np.ndarray, "batch n"]
    b: Float[np.ndarray, "batch n"]


class ItemPair(TypedDict):
    a: Float[np.ndarray, " n"]
    b: Float[np.ndarray, " n"]


@dyorc.program
def two(x: Float[np.ndarray, "batch n"]) -> Pair:
    return {"a": x, "b": x}


X = np.array([1, 2, 3, 4], np.float32)


def test_a_slice_with_step_0_or_two_ellipses_is_the_workflows_error() -> None:
    @dyorc.workflow
    async def step(x: Float[np.ndarray, " n"], k: int = 0) -> Float[np.ndarray, " n"]:
        return inc(x[::k])

    @dyorc.workflow
    async def dots(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return inc(x[..., ...])

    for workflow, words in ((step, "step 0"), (dots, "more than one ellipsis")):
        with pytest.raises(WorkflowError, match=words):
            dyorc.run(workflow, X)


def test_a_result_that_is_not_a_tensor_is_the_workflows_error() -> None:
    @dyorc.workflow
    async def group_in_a_field(x: Float[np.ndarray, " n"]) -> ItemPair:
        return {"a": two(x), "b": x}

    class Raises:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise ZeroDivisionError("not an array")

    @dyorc.workflow
    async def unconvertible(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return Raises()

    for workflow in (group_in_a_field, unconvertible):
        with pytest.raises(WorkflowError):
            dyorc.run(workflow, X)


def test_a_value_that_was_looked_at_cannot_be_changed() -> None:
    @dyorc.workflow
    async def in_place(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        value = await inc(x)
        value *= 10
        return inc(value)

    with pytest.raises(WorkflowError, match="read-only"):
        dyorc.run(in_place, X)


def test_a_program_may_use_its_buffer_again() -> None:
    buffer = np.zeros((1, 4), np.float32)

    @dyorc.program(max_batch_size=1)
    def reuse(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
        buffer[:] = x + 1
        return buffer

    @dyorc.workflow
    async def twice(x: Float[np.ndarray, "4"]) -> ItemPair:
        a = reuse(x)
        return {"a": a, "b": reuse(a)}

    got = dyorc.run(twice, X)
    np.testing.assert_array_equal(got["a"], X + 1)
    np.testing.assert_array_equal(got["b"], X + 2)


def test_a_result_does_not_share_memory_with_the_input() -> None:
    @dyorc.workflow
    async def same(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return x

    got = dyorc.run(same, X)
    got[:] = 0
    assert X[0] == 1


def test_a_program_may_run_a_workflow_while_it_is_loaded() -> None:
    @dyorc.program
    class Nested:
        def __init__(self) -> None:
            self.offset = dyorc.run(inc, np.zeros(1, np.float32))[0]

        def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
            return x + self.offset

    np.testing.assert_array_equal(dyorc.run(Nested(), X), X + 1)


def test_exit_in_user_code_fails_the_request_and_not_the_process() -> None:
    @dyorc.workflow
    async def leaves(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        raise SystemExit(3)

    @dyorc.program
    def quits(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        raise SystemExit(3)

    with pytest.raises(WorkflowError, match="SystemExit"):
        dyorc.run(leaves, X)
    with pytest.raises(ProgramError, match="SystemExit"):
        dyorc.run(quits, X)


@pytest.mark.parametrize("what", faulty.RAISED)
def test_whatever_a_program_raises_is_its_error(what: str) -> None:
    with pytest.raises(ProgramError) as caught:
        dyorc.run(faulty.raising, X, what)
    assert str(caught.value).endswith(faulty.TOLD[what])
    assert len(caught.value.message) < 10_000
    assert len(caught.value.remote_traceback) < 70_000
    assert "raise RAISED[what]" in caught.value.remote_traceback


@pytest.mark.parametrize("what", faulty.RAISED)
def test_whatever_a_workflow_or_a_predicate_raises_is_its_error(what: str) -> None:
    def leave(_: object) -> bool:
        raise faulty.RAISED[what]

    @dyorc.workflow
    async def leaves(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        leave(x)
        return x

    @dyorc.workflow
    async def decides(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return x if await dyorc.when(x, leave) else inc(x)

    for workflow in (leaves, decides):
        with pytest.raises(WorkflowError) as caught:
            dyorc.run(workflow, X)
        if what != "stop":  # Python itself makes a RuntimeError of that where it leaves a coroutine
            assert faulty.TOLD[what] in str(caught.value)
        assert "test_run.py, line" in str(caught.value)
        assert len(str(caught.value)) < 10_000


def test_whatever_a_program_raises_while_it_loads_is_its_error() -> None:
    with pytest.raises(ProgramLoadError, match="KeyboardInterrupt: while it was loading"):
        dyorc.run(faulty.interrupted, X)


@pytest.fixture
def interrupt_handler() -> Iterator[Any]:
    """Yields Python's handler of SIGINT, which a process that runs in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_from_outside_is_not_an_error_of_the_running_code(interrupt_handler: Any) -> None:
    num_runs = 0

    @dyorc.program
    def is_interrupted(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        nonlocal num_runs
        num_runs += 1
        signal.raise_signal(signal.SIGINT)
        return x

    @dyorc.workflow
    async def goes_on(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        try:
            return await is_interrupted(x)
        except ProgramError:
            return x

    @dyorc.workflow
    async def is_interrupted_itself(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        signal.raise_signal(signal.SIGINT)
        return inc(x)

    for workflow in (goes_on, is_interrupted_itself):
        with pytest.raises(KeyboardInterrupt):
            dyorc.run(workflow, X)
    assert num_runs == 1
    assert signal.getsignal(signal.SIGINT) is interrupt_handler


def check_told_what_it_may_await(seconds: float) -> None:
    @dyorc.workflow
    async def sleeps(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        await asyncio.sleep(seconds)
        return inc(x)

    with pytest.raises(ForeignAwaitError, match=r"\(test_run\.py, line \d+\); a workflow may await Refs, dyorc\.when"):
        dyorc.run(sleeps, X)


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_the_error_of_awaiting_something_foreign_says_what_may_be_awaited(seconds: float) -> None:
    check_told_what_it_may_await(seconds)


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_the_error_of_awaiting_something_foreign_is_the_same_where_a_loop_runs(seconds: float) -> None:
    """A notebook, for example, runs a loop."""

    async def in_loop() -> None:
        check_told_what_it_may_await(seconds)

    with contextlib.closing(asyncio.new_event_loop()) as loop:  # `asyncio.run` would leave the thread without one
        loop.run_until_complete(in_loop())


def test_a_predicate_calls_no_program() -> None:
    @dyorc.workflow
    async def asks(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        if await dyorc.when(inc(x), lambda value: inc(value) is not None):
            return x
        return inc(x)

    with pytest.raises(WorkflowError, match="outside a workflow"):
        dyorc.run(asks, X)


def test_lists_of_other_numbers_are_not_converted() -> None:
    @dyorc.workflow
    async def whole(x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        return x

    @dyorc.workflow
    async def flag(x: Bool[np.ndarray, ""]) -> Bool[np.ndarray, ""]:
        return x

    assert dyorc.run(whole, [1, 2]).tolist() == [1, 2]
    for value in ([1.7, 2.9], ["1", "2"], [2, True], (np.bool_(False), 0)):
        with pytest.raises(InvalidInputError, match="expected INT64"):
            dyorc.run(whole, value)
    with pytest.raises(InvalidInputError, match="expected BOOL"):
        dyorc.run(flag, "no")


def test_arrays_of_another_byte_order_are_converted() -> None:
    """As inputs, as constants of a workflow, and as results of a program."""

    @dyorc.program
    def swapped(x: Float[np.ndarray, "batch n"], y: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return (x + y).astype(">f4")

    @dyorc.workflow
    async def adds(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return swapped(x, np.array([1, 1, 1, 1], ">f4"))

    for x in (X.astype(">f4"), X.astype(">f4")[::-1][::-1], X):
        found = dyorc.run(adds, x)
        assert found.tolist() == [2, 3, 4, 5]
        assert found.dtype == np.float32
    with pytest.raises(InvalidInputError, match="is FP64, expected FP32"):
        dyorc.run(adds, X.astype(">f8"))


def test_a_class_takes_its_programs_name() -> None:
    @dyorc.program(name="renamed")
    class Something:
        def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
            return x

    assert Something().name == "renamed"
    with pytest.raises(DefinitionError, match="positional-only"):

        @dyorc.program
        def hidden(x: Float[np.ndarray, "batch n"], /) -> Float[np.ndarray, "batch n"]:
            return x


def test_texts_are_cut_back_to_their_own_length() -> None:
    @dyorc.program(pad=dyorc.pad(n=(8,)))
    def letters(x: Float[np.ndarray, "batch n"]) -> dyorc.Bytes[np.ndarray, "batch n"]:
        return np.full(x.shape, b"a", object)

    assert dyorc.run(letters, X).tolist() == [b"a"] * 4


# Streams

_noted: list[str] = []


@dyorc.workflow
async def count_up(x: Float[np.ndarray, " n"], num_parts: int) -> AsyncIterator[ItemPair]:
    try:
        for number in range(num_parts):
            _noted.append(f"part {number}")
            x = inc(x)
            yield {"a": x, "b": two(x)["b"]}
    finally:
        _noted.append("closed")


@pytest.fixture(autouse=True)
def _note_anew() -> None:
    _noted.clear()


def test_a_streaming_workflow_returns_an_iterator_of_parts() -> None:
    parts = list(dyorc.run(count_up, X, 3))
    assert [part["a"].tolist() for part in parts] == [[2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]]
    assert all(np.array_equal(part["a"], part["b"]) for part in parts)


def test_a_stream_runs_as_far_as_it_is_asked_and_is_closed_with_its_iterator() -> None:
    parts = dyorc.run(count_up, X, num_parts=1000)
    assert not _noted
    assert next(parts)["a"][0] == 2
    assert _noted == ["part 0", "part 1"]
    assert next(parts)["a"][0] == 3
    assert _noted == ["part 0", "part 1", "part 2"]
    parts.close()
    assert _noted[3:] == ["closed"]


def test_wrong_inputs_of_a_stream_are_refused_before_parts_are_asked_for() -> None:
    with pytest.raises(InvalidInputError, match="'num_parts' is missing"):
        dyorc.run(count_up, X)


def test_an_error_of_a_stream_comes_after_its_parts() -> None:
    @dyorc.workflow
    async def raises(x: Float[np.ndarray, " n"]) -> AsyncIterator[Float[np.ndarray, " n"]]:
        yield x
        raise ValueError("enough")

    parts = dyorc.run(raises, X)
    assert next(parts).tolist() == X.tolist()
    with pytest.raises(WorkflowError, match="enough"):
        next(parts)


@dyorc.program(pure=False)
def noting(x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
    if (x < 0).any():
        raise ValueError("a number is negative")
    noted.extend(x[:, 0].tolist())
    return x


noted: list[float] = []


@dyorc.workflow
async def with_effect(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    noting(inc(inc(x)))
    return inc(x)


@dyorc.workflow
async def parts_with_effect(x: Float[np.ndarray, " n"]) -> AsyncIterator[Float[np.ndarray, " n"]]:
    noting(inc(inc(x)))
    yield inc(x)


def test_effects_that_nobody_awaits_have_happened_when_it_returns() -> None:
    noted.clear()
    assert dyorc.run(with_effect, X)[0] == 2
    assert [part[0] for part in dyorc.run(parts_with_effect, X)] == [2]
    assert noted == [3, 3]


def test_an_effect_that_fails_and_that_nobody_awaits_is_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="an effect of 'noting' failed: .*a number is negative"):
        assert dyorc.run(with_effect, -9 * X)[0] == -8


def _count(x: Any, past: Any) -> Any:
    for each, value in zip(past, x, strict=True):
        each += value
    return np.float32([each[0] for each in past])


@dyorc.program(group="counts")
def first_count(x: Float[np.ndarray, " batch"]) -> dyorc.Resident[np.ndarray]:
    return [np.float32([each]) for each in x]


@dyorc.program(group="counts")
def count_in_place(x: Float[np.ndarray, " batch"], past: dyorc.Resident[np.ndarray]) -> Float[np.ndarray, " batch"]:
    return _count(x, past)


@dyorc.program(group="counts")
def consume(x: Float[np.ndarray, " batch"], past: dyorc.Resident[np.ndarray, dyorc.Consumed]) -> Float[np.ndarray, " batch"]:
    return _count(x, past)


@pytest.mark.parametrize(("step", "is_warned"), [(count_in_place, True), (consume, False)])
def test_a_resident_that_is_changed_and_not_consumed_is_a_warning(step: dyorc.Program, is_warned: bool) -> None:
    @dyorc.workflow(programs=[step])
    async def counted(x: Float[np.ndarray, ""]) -> Float[np.ndarray, ""]:
        return step(x, first_count(x))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dyorc.run(counted, np.float32(2)) == 4
    texts = [str(each.message) for each in caught]
    assert bool(texts) is is_warned
    assert all("'count_in_place' changed the resident 'past'" in text for text in texts)
