"""Finds the first operation of a module whose result the captured program never computes."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dyorc.planner.program.capture_errors import module_line
from dyorc.planner.program.evaluate import compute_node
from dyorc.planner.program.graph import TensorProgram
from dyorc.planner.reference.tolerance import TOLERANCES

_OURS = str(Path(__file__).parent)
_UNDEFINED = ("aten.empty", "aten.new_empty")
"""Operations whose results are not defined until something is written into them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation that a module ran.

    Attributes:
        name: ATen's name with its overload.
        place: The line of the module, or "in the backward pass".
        result: What it computed.
    """

    name: str
    place: str
    result: torch.Tensor

    def __str__(self) -> str:
        return f"{self.name} {self.place}"


class Recorder(TorchDispatchMode):
    """Records the result of each operation that computes while it is entered, and the line of the module that called it.

    For an operation that writes into a view, it records the whole tensor. Views compute nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for each operation."""
        result = func(*args, **(kwargs or {}))
        tensor = result[0] if isinstance(result, tuple | list) and result else result
        if isinstance(tensor, torch.Tensor) and not func.is_view and not str(func).startswith(_UNDEFINED):
            base = tensor._base if func._schema.is_mutable else None
            whole = tensor if base is None else base
            self.operations.append(Operation(name=str(func), place=_place(), result=whole.detach().clone()))
        return result


def _place() -> str:
    frames = traceback.extract_stack()[:-2]  # without this function and the recorder
    start = max((index for index, frame in enumerate(frames) if frame.filename.startswith(_OURS)), default=-1)
    return module_line(frames[start + 1 :]) or "in the backward pass"


def first_difference(program: TensorProgram, sources: Mapping[str, torch.Tensor], run: Callable[[], object]) -> Operation | None:
    """Runs a module, and returns the first of its operations whose result is no value of the program.

    A program may compute by other operations, so this is where to look, and no proof: the results after it differ, too.

    Args:
        program: The captured module.
        sources: Its parameters, buffers and inputs.
        run: Runs the module on the same tensors.

    Returns:
        The operation; None if all their results are values of the program.
    """
    values = _Values(program, sources)
    recorder = Recorder()
    with recorder:
        run()
    return next((operation for operation in recorder.operations if not values.holds(operation.result)), None)


class _Values:
    """All values of a program, to look results up: a view of one counts as the same."""

    def __init__(self, program: TensorProgram, sources: Mapping[str, torch.Tensor]) -> None:
        self._by_size: dict[int, list[torch.Tensor]] = {}
        for tensor in _all_values(program, sources):
            self._by_size.setdefault(tensor.numel(), []).append(tensor.flatten())

    def holds(self, result: torch.Tensor) -> bool:
        flat = result.flatten()
        return any(_close(flat, other) for other in self._by_size.get(flat.numel(), ()))


def _all_values(program: TensorProgram, sources: Mapping[str, torch.Tensor]) -> Iterator[torch.Tensor]:
    tensors = dict(sources)
    yield from sources.values()
    for node in program.nodes:
        shape = program.values[next(output for output in node.outputs if output)].shape
        made = compute_node(node, tensors, shape)
        tensors |= made
        yield from made.values()


def _close(result: torch.Tensor, other: torch.Tensor) -> bool:
    if result.is_floating_point() != other.is_floating_point():
        return False
    left, right = result.double(), other.double()
    tolerance = max(TOLERANCES.get(str(result.dtype).removeprefix("torch."), 0.0), 1e-12)
    same = (left == right) | (left.isnan() & right.isnan())
    scale = left[left.isfinite()].abs().max() if bool(left.isfinite().any()) else left.new_ones(())
    return bool((same | ((left - right).abs() <= tolerance * scale)).all())
