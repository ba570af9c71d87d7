"""Residents in the process that holds them: their table, their sizes, and the programs that take and return them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.resident import ChainLink
from dyorc.core.tensor import DType
from dyorc.replica.batch_results import BatchError, BatchResult
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.program_lifecycle import load_and_warm_up
from dyorc.replica.resident_bytes import fingerprint, resident_bytes
from dyorc.replica.resident_table import ResidentRows, ResidentTable
from dyorc.transport.inbox import InputsLostError

Numbers = Int[np.ndarray, " batch"]


@dataclass
class Sum:
    """A state that refers to an input of each call."""

    addends: tuple[Any, ...]


@dyorc.program(group="sums", max_batch_size=4)
class Add:
    def __call__(self, number: Numbers, total: dyorc.Resident[Sum]) -> tuple[Numbers, dyorc.Resident[Sum]]:
        sums = [Sum((*old.addends, row)) for old, row in zip(total, number[:, None], strict=True)]
        return np.array([sum(int(row[0]) for row in each.addends) for each in sums]), sums

    def rebuild(self, calls: list[dyorc.ChainCall]) -> Sum:
        assert [call.program for call in calls] == ["start", *["add"] * (len(calls) - 1)]
        return Sum(tuple(call.inputs[0].reshape(1) for call in calls))


def start(number: Numbers) -> dyorc.Resident[Sum]:
    return [Sum((row,)) for row in number[:, None]]


def executor_of(program: Program) -> ProgramExecutor:
    executor = ProgramExecutor.load(program)
    executor.reuse_memory()
    return executor


def result_of(result: BatchResult | BatchError) -> BatchResult:
    assert isinstance(result, BatchResult), result
    return result


def residents_of(result: BatchResult, at: int) -> ResidentRows:
    rows = result.outputs[at]
    assert isinstance(rows, ResidentRows)
    return rows


def numbers(*values: int) -> list[Any]:
    return [np.array(value) for value in values]


# The table


def test_a_number_is_never_used_again_and_says_what_is_gone() -> None:
    table = ResidentTable("here")
    first = table.add("a", 3)
    second = table.add("b", 4)
    assert (table.get(first), table.get(second), len(table), table.num_bytes) == ("a", "b", 2, 7)
    table.release([first, first, 99])
    assert (len(table), table.num_bytes) == (1, 4)
    assert table.add("c", 0) not in (first, second)
    with pytest.raises(InputsLostError) as lost:
        table.get(first)
    assert lost.value.blocks == (("here", first),)
    table.clear()
    assert (len(table), table.num_bytes) == (0, 0)


def test_references_lead_back_to_the_objects_in_their_process_only() -> None:
    table, objects = ResidentTable("here"), [object(), object()]
    refs = table.keep(ResidentRows(list(objects), [5, 6]), "node")
    assert table.read(refs) == objects
    assert [(ref.dtype, ref.shape, ref.num_bytes, ref.holder) for ref in refs] == [
        (DType.RESIDENT, (), 5, "here"), (DType.RESIDENT, (), 6, "here"),
    ]  # fmt: skip
    with pytest.raises(InputsLostError, match="'here' cannot be read in 'there'"):
        ResidentTable("there").read(refs)


# Sizes


class Slotted:
    __slots__ = ("array", "missing")

    def __init__(self, array: Any) -> None:
        self.array = array


def test_the_size_of_a_resident_is_that_of_its_arrays() -> None:
    array, tensor = np.zeros(10, np.float32), torch.zeros(6, dtype=torch.float64)
    assert resident_bytes(array) == 40
    assert resident_bytes([array, {"a": tensor}, (array,)]) == 40 + 48
    assert resident_bytes(Sum((array, Slotted(tensor)))) == 40 + 48
    assert resident_bytes(np.array([b"abc", b"de"], object)) == 16 + 5
    assert resident_bytes("text") == resident_bytes(3) == resident_bytes(object()) == 0


def test_memory_that_is_shared_counts_once_and_only_what_is_seen_of_it() -> None:
    array, tensor = np.zeros((4, 10), np.float32), torch.zeros(4, 10)
    assert resident_bytes([array, array[1:]]) == resident_bytes([tensor, tensor[1:]]) == 160
    assert resident_bytes([array[0], array[1][:5]]) == resident_bytes([tensor[0], tensor[1, :5]]) == 60


def test_an_object_that_refers_to_itself_has_a_size() -> None:
    cycle: list[Any] = [np.zeros(2)]
    cycle.append(cycle)
    assert resident_bytes(cycle) == 16


def test_a_fingerprint_changes_with_what_an_object_holds_and_only_then() -> None:
    array, tensor = np.arange(6, dtype=np.float32), torch.zeros(3, dtype=torch.bfloat16)
    resident = {"array": array[::2], "tensor": tensor, "number": 1, "own": Slotted(["text"])}
    before = fingerprint(resident)
    assert fingerprint(resident) == before
    array[1] = 7  # not in the view
    assert fingerprint(resident) == before
    seen = {before}
    changes: list[Callable[[], object]] = [
        lambda: array.__setitem__(2, 7),
        lambda: tensor.__setitem__(0, 1),
        lambda: resident.__setitem__("number", 2),
        lambda: resident["own"].array.append("more"),
        lambda: resident.pop("own"),
    ]
    for change in changes:
        change()
        seen.add(fingerprint(resident))
    assert len(seen) == 1 + len(changes)


# Programs


def test_a_program_gets_and_returns_an_object_per_row() -> None:
    begin, add = executor_of(dyorc.program(group="sums")(start)), executor_of(Add())
    begun = residents_of(result_of(begin.run([numbers(1, 2)], ())), 0)
    added = result_of(add.run([numbers(10, 20), begun.objects], ()))
    np.testing.assert_array_equal(np.asarray(added.outputs[0]), [11, 22])
    state = residents_of(added, 1)
    assert [len(each.addends) for each in state.objects] == [2, 2]
    assert state.sizes == [16, 16]
    assert [len(each.addends) for each in begun.objects] == [1, 1]  # as it was


def test_what_a_resident_keeps_of_an_input_stays_as_it_was() -> None:
    begin = executor_of(dyorc.program(group="sums")(start))
    rows = np.array([7, 8])  # as if it lay in memory that is used again
    state = residents_of(result_of(begin.run([rows], ())), 0)
    rows[:] = 0
    begin.run([numbers(5, 6)], ())
    assert [int(each.addends[0][0]) for each in state.objects] == [7, 8]


def test_a_program_that_is_not_batched_handles_the_object_itself() -> None:
    @dyorc.program(batched=False, group="sums")
    def again(total: dyorc.Resident[Sum]) -> dyorc.Resident[Sum]:
        return Sum((*total.addends, *total.addends))

    total: Any = Sum((np.array([1]),))
    state = residents_of(result_of(executor_of(again).run([[total]], ())), 0)
    assert [len(each.addends) for each in state.objects] == [2]


def test_the_calls_of_a_batch_invariant_program_keep_their_objects() -> None:
    add = executor_of(Add().with_options(batch_invariant=True))
    totals: list[Any] = [Sum(()), Sum(())]
    result = result_of(add.run([numbers(1, 2), totals], ()))
    assert [int(each.addends[0][0]) for each in residents_of(result, 1).objects] == [1, 2]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned None"),
        (7, "returned a int as 'output', expected a list with one object per row"),
        ([Sum(())], "returned 1 residents as 'output', expected 2, one per row"),
        ([Sum(()), None], "returned None as 'output' of row 1, expected an object"),
    ],
)
def test_a_wrong_number_of_objects_fails_the_batch(returned: Any, message: str) -> None:
    @dyorc.program(group="sums")
    def wrong(number: Numbers) -> dyorc.Resident[Sum]:
        return returned

    error = executor_of(wrong).run([numbers(1, 2)], ())
    assert isinstance(error, BatchError)
    assert message in error.message


class Sized:
    def __init__(self, size: Any) -> None:
        self.size = size

    def __call__(self, number: Float[Tensor, " batch"]) -> dyorc.Resident[Sum]:
        return [Sum((row,)) for row in number]

    def resident_bytes(self, resident: Sum) -> Any:
        return self.size


def test_a_program_may_say_what_its_residents_take() -> None:
    sized = dyorc.program(group="sums")(Sized)
    result = result_of(executor_of(sized(77)).run([[np.ones((), np.float32)]], ()))
    assert residents_of(result, 0).sizes == [77]
    for wrong in (-1, "77", True, 1.5):
        error = executor_of(sized(wrong)).run([[np.ones((), np.float32)]], ())
        assert isinstance(error, BatchError)
        assert "resident_bytes returned" in error.message


def test_a_chain_is_rebuilt_at_once() -> None:
    program = Add()
    assert program.can_rebuild
    assert not dyorc.program(group="sums")(start).can_rebuild
    links = (ChainLink("start", 1), ChainLink("add", 1), ChainLink("add", 1))
    rebuilt = residents_of(result_of(executor_of(program).run([[row] for row in numbers(1, 10, 100)], (), chain=links)), 0)
    assert [sum(int(row[0]) for row in each.addends) for each in rebuilt.objects] == [111]


def test_a_program_that_needs_a_resident_is_not_warmed_up() -> None:
    called: list[int] = []

    @dyorc.program(group="sums")
    class Counted:
        def __call__(self, total: dyorc.Resident[Sum]) -> dyorc.Resident[Sum]:
            called.append(len(total))
            return total

    load_and_warm_up(Counted())
    assert called == []


def test_a_rebuild_that_fails_is_named() -> None:
    links = (ChainLink("stop", 1), ChainLink("add", 1))
    error = executor_of(Add()).run([numbers(1), numbers(2)], (), chain=links)
    assert isinstance(error, BatchError)
    assert error.message.startswith("its rebuild of a lost resident failed")
