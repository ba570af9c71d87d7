"""`dyorc.map`: a call for each item, as a list of calls would make them."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import EngineConfig
from dyorc.errors import WorkflowError, WorkflowLimitError
from tests.unit.engine.driver import World

Row = Float[np.ndarray, "2"]
Rows = Float[np.ndarray, "batch 2"]


@dyorc.program(max_batch_size=8)
def double(x: Rows) -> Rows:
    return 2 * x


@dyorc.program(max_batch_size=8)
def scale(x: Rows, y: Rows, by: float = 1.0) -> Rows:
    return by * (x + y)


@dyorc.program(max_batch_size=8, pure=False)
def record(x: Rows) -> Rows:
    """Has an effect, so that its calls run though nothing awaits them."""
    return x


@dyorc.workflow
async def twice(x: Row) -> Row:
    return double(double(x))


Items = Float[np.ndarray, "n 2"]
FOUR = np.arange(8, dtype=np.float32).reshape(4, 2)


def test_one_call_for_each_item_in_one_batch() -> None:
    @dyorc.workflow
    async def mapped(x: Items) -> Items:
        return np.array(await dyorc.gather(*dyorc.map(double, [x[at] for at in range(4)])))

    world = World([double])
    world.join(double)
    request_id = world.submit(mapped, FOUR)
    world.finish_all()
    assert world.sizes(double) == [4]
    assert np.array_equal(world.result(request_id), 2 * FOUR)


def test_rows_of_arrays_several_items_and_shared_arguments() -> None:
    @dyorc.workflow
    async def mapped(x: Items) -> Items:
        rows = await x
        refs = dyorc.map(scale, rows, dyorc.map(double, rows), by=2.0)
        refs += dyorc.map(scale, rows[:1], y=refs[0])
        return np.array(await dyorc.gather(*refs))

    assert np.array_equal(dyorc.run(mapped, FOUR), np.vstack([6 * FOUR, 7 * FOUR[:1]]))


def test_items_for_parameters_that_are_no_tensors() -> None:
    @dyorc.workflow
    async def mapped(x: Items) -> Items:
        rows = await x
        return np.array(await dyorc.gather(*dyorc.map(scale, rows, rows, [1.0, 2.0, 3.0, 4.0])))

    assert np.array_equal(dyorc.run(mapped, FOUR), 2 * FOUR * np.array([[1], [2], [3], [4]], np.float32))


def test_tasks_of_a_workflow() -> None:
    @dyorc.workflow
    async def mapped(x: Items) -> Items:
        return np.array(await dyorc.gather(*dyorc.map(twice, [x[at] for at in range(4)])))

    assert np.array_equal(dyorc.run(mapped, FOUR), 4 * FOUR)


def test_no_items_make_no_calls() -> None:
    @dyorc.workflow
    async def mapped(x: Row) -> Row:
        assert dyorc.map(double, []) == []
        return x

    assert np.array_equal(dyorc.run(mapped, FOUR[0]), FOUR[0])


def test_calls_before_an_item_that_does_not_fit_are_made() -> None:
    @dyorc.workflow
    async def mapped(x: Row) -> Row:
        with pytest.raises(WorkflowError, match="'x'"):
            dyorc.map(record, [x, x, "a text", x])
        return record(x)

    world = World([record])
    world.join(record)
    request_id = world.submit(mapped, FOUR[1])
    world.finish_all()
    assert world.sizes(record) == [3]
    assert np.array_equal(world.result(request_id), FOUR[1])


def test_more_calls_than_a_request_may_make() -> None:
    @dyorc.workflow
    async def mapped(x: Row) -> Row:
        return dyorc.map(double, [x] * 5)[0]

    world = World([double], EngineConfig(max_calls_per_request=4))
    world.join(double)
    request_id = world.submit(mapped, FOUR[0])
    with pytest.raises(WorkflowLimitError, match="more than 4 calls"):
        world.result(request_id)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((), "no items were given"),
        (([1], [1, 2]), r"there are \[1, 2\] items, expected equally many"),
        ((3,), "items 0 are of type int, expected a list"),
    ],
)
def test_wrong_items(items: tuple[object, ...], message: str) -> None:
    @dyorc.workflow(programs=[scale])
    async def mapped(x: Row) -> Row:
        return dyorc.map(scale, *items)[0]

    with pytest.raises(WorkflowError, match=message):
        dyorc.run(mapped, FOUR[0])


def test_a_ref_is_no_list() -> None:
    @dyorc.workflow
    async def mapped(x: Items) -> Row:
        return dyorc.map(double, x)[0]

    with pytest.raises(WorkflowError, match="items 0 are of type Ref, expected a list; await it"):
        dyorc.run(mapped, FOUR)


@pytest.mark.parametrize("endless", [itertools.repeat(FOUR[0]), (FOUR[0] for _ in itertools.count())])
def test_items_without_end_are_too_many(endless: Iterator[object]) -> None:
    @dyorc.workflow
    async def mapped(x: Row) -> Row:
        return dyorc.map(double, endless)[0]

    with pytest.raises(WorkflowLimitError, match="made more than 10000 calls"):
        dyorc.run(mapped, FOUR[0])


def test_an_iterator_may_give_the_same_array_again() -> None:
    def rows() -> Iterator[np.ndarray]:
        row = np.zeros(2, np.float32)
        for number in range(3):
            row[:] = number
            yield row

    @dyorc.workflow
    async def mapped(x: Row) -> Items:
        return np.stack(await dyorc.gather(*dyorc.map(double, rows())))

    np.testing.assert_array_equal(dyorc.run(mapped, FOUR[0]), [[0, 0], [2, 2], [4, 4]])


def test_an_iterator_that_is_longer_than_a_list() -> None:
    @dyorc.workflow
    async def mapped(x: Row) -> Row:
        return dyorc.map(scale, [FOUR[0]], itertools.repeat(x))[0]

    with pytest.raises(WorkflowError, match=r"of items \[0\] there are only 1, of others more"):
        dyorc.run(mapped, FOUR[0])


def test_what_it_calls() -> None:
    with pytest.raises(RuntimeError, match=r"dyorc.map\(double, ...\) was called outside a workflow"):
        dyorc.map(double, [FOUR[0]])
    with pytest.raises(TypeError, match="calls a program or a workflow, got builtin_function_or_method"):
        dyorc.map(len, [FOUR[0]])  # pyright: ignore[reportArgumentType]
