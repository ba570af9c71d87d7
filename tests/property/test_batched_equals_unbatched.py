"""A result depends neither on the other calls of its batch nor on how its inputs came: stacked or one by one, as frames or
stored.
"""

from collections.abc import Iterator
from typing import Any, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import Float, Int, Int32

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import same_array
from dyorc.replica.batch_results import BatchResult
from dyorc.replica.executor import ProgramExecutor
from dyorc.transport.column_codec import Rows
from tests.exchanges import TensorPath, tensor_path


class Parts(TypedDict):
    shifted: Float[np.ndarray, "batch height width"]
    row_sums: Float[np.ndarray, "batch height"]
    num_bytes: Int[np.ndarray, " batch"]


@dyorc.program(pad=dyorc.pad(height=(2, 5), width=(3, 6), value=0.0))
def padded(x: Float[np.ndarray, "batch height width"], offset: Float[np.ndarray, " batch"], factor: int = 1) -> Parts:
    """Declares padded dimensions in another way in each output. Zeros do not change a sum."""
    return {
        "shifted": x * factor + offset[:, None, None],
        "row_sums": x.sum(axis=2),
        "num_bytes": np.full(len(x), x[0].size, np.int64),
    }


@dyorc.program
def plain(
    x: Int32[np.ndarray, "batch 2 n"], y: dyorc.Bytes[np.ndarray, " batch"]
) -> tuple[Int32[np.ndarray, "batch n 2"], dyorc.Bytes[np.ndarray, " batch"]]:
    return x.transpose(0, 2, 1), np.array([text[::-1] for text in y], dtype=object)


@dyorc.program(batched=False)
def whole(x: Float[np.ndarray, "n m"]) -> Float[np.ndarray, " m"]:
    x += 1  # its input is its own
    return x.max(axis=0, initial=0)


INLINE_LIMITS = (0, 24, 2**20)
"""Up to which size tensors travel inline: none, some, all."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorPath]:
    """Opens three processes' ends of the tensor path, for all examples."""
    with tensor_path(str(tmp_path_factory.mktemp("arenas"))) as opened:
        yield opened
        opened.check_empty()


def run(
    path: TensorPath, program: Program, calls: list[list[np.ndarray]], statics: tuple[StaticValue, ...], limit: int | None
) -> list[list[Any]]:
    """Returns the outputs of each call. Unless `limit` is None, inputs and outputs travel, inline up to that size."""
    columns: list[Rows] = [list(column) for column in zip(*calls, strict=True)]
    if limit is None:
        return run_here(program, columns, statics)
    path.limit(limit)
    published = path.publish(columns)
    outputs = run_here(program, path.deliver(published), statics)
    given = path.publish([list(column) for column in zip(*outputs, strict=True)])
    path.inbox.done()
    answers = [[array.copy() for array in path.tensors.read(call)] for call in given]
    path.release([*published, *given])
    return answers


def run_here(program: Program, columns: list[Rows], statics: tuple[StaticValue, ...]) -> list[list[Any]]:
    result = ProgramExecutor.load(program).run(columns, statics)
    assert isinstance(result, BatchResult), result
    return [list(map(np.asarray, row)) for row in zip(*result.outputs, strict=True)]


def check(
    path: TensorPath, program: Program, calls: list[list[np.ndarray]], statics: tuple[StaticValue, ...] = ()
) -> list[list[Any]]:
    alone = [run(path, program, [call], statics, None)[0] for call in calls]
    for limit in (None, *INLINE_LIMITS):
        if program.options.batched:
            together = run(path, program, calls, statics, limit)
        else:
            together = [run(path, program, [call], statics, limit)[0] for call in calls]
        for mine, others in zip(alone, together, strict=True):
            for a, b in zip(mine, others, strict=True):
                assert same_array(np.asarray(a), np.asarray(b)), (limit, a, b)
    return alone


def floats(*shape: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float32, shape, elements=st.integers(-100, 100).map(float))


@given(st.data(), st.sampled_from([(2, 3), (5, 3), (2, 6), (5, 6)]), st.integers(1, 5))
def test_results_with_padding_do_not_depend_on_the_batch(
    path: TensorPath, data: st.DataObject, bucket: tuple[int, int], num_calls: int
) -> None:
    low = {2: 1, 5: 3, 3: 1, 6: 4}
    calls = []
    for _ in range(num_calls):
        height, width = (data.draw(st.integers(low[size], size)) for size in bucket)
        calls.append([data.draw(floats(height, width)), data.draw(floats())])
    answers = check(path, padded, calls, (2,))
    for (x, offset), (shifted, row_sums, num_bytes) in zip(calls, answers, strict=True):
        assert np.array_equal(shifted, x * 2 + offset)
        assert np.array_equal(row_sums, x.sum(axis=1))
        assert num_bytes == bucket[0] * bucket[1], "every call is padded to its bucket, also one that is alone"


@given(st.data(), st.integers(0, 4), st.integers(1, 5))
def test_results_without_padding_do_not_depend_on_the_batch(
    path: TensorPath, data: st.DataObject, n: int, num_calls: int
) -> None:
    numbers = hnp.arrays(np.int32, (2, n))
    texts = st.binary(max_size=5).map(lambda text: np.array(text, dtype=object))
    calls = [[data.draw(numbers), data.draw(texts)] for _ in range(num_calls)]
    for (x, text), (turned, reverse) in zip(calls, check(path, plain, calls), strict=True):
        assert np.array_equal(turned, x.T)
        assert reverse[()] == text[()][::-1]


@given(st.data(), st.integers(0, 3), st.integers(0, 3))
def test_results_of_single_calls_do_not_depend_on_their_form(path: TensorPath, data: st.DataObject, n: int, m: int) -> None:
    x = data.draw(floats(n, m))
    before = x.copy()
    check(path, whole, [[x], [x]])
    assert np.array_equal(x, before), "a program changed what belongs to others"
