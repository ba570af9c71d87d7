"""Records what torch computes while a function runs, as a program of ATen's operations with the tensors of all its sources.

Composite operations come apart as they do when a module is captured, and forward and backward are recorded alike. Torch computes
with real tensors meanwhile, so that its own results are there to compare with.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dyorc.planner.program.decompositions import ByFormula, decompositions
from dyorc.planner.program.graph import Argument, Node, TensorProgram, Value, ValueKind, ValueRef, type_sizes
from dyorc.planner.program.graph_reader import argument_of

_PLACE_KEYWORDS = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}


class UnsupportedSampleError(Exception):
    """A sample does what no captured program may do: draws random numbers, reads memory that
    nobody wrote, changes tensors in place, uses complex numbers."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a function computed.

    Attributes:
        program: Its operations as torch called them.
        sources: The tensors that none of these made.
        results: What torch computed for each of the program's outputs.
    """

    program: TensorProgram
    sources: Mapping[str, torch.Tensor]
    results: Mapping[str, torch.Tensor]


def record(function: Callable[[], Sequence[torch.Tensor]], name: str, *, whole: frozenset[str] = frozenset()) -> Recording:
    """Runs a function and returns its program.

    Args:
        function: Returns the tensors that are its results.
        name: The program's.
        whole: Names of operations that stay whole, though they may come apart when a module is captured.

    Raises:
        UnsupportedSampleError: It does what no captured program may do.
    """
    recorder = _Recorder(whole)
    with recorder, ByFormula():
        results = function()
    return recorder.recording(name, [result for result in results if isinstance(result, torch.Tensor)])


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    return decompositions()  # takes a sixth of a second


class _Recorder(TorchDispatchMode):
    """Writes down each operation that torch dispatches, and keeps all tensors so that each `id` stays that of one tensor."""

    def __init__(self, whole: frozenset[str]) -> None:
        super().__init__()
        self._whole = whole
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._names: dict[int, str] = {}
        self._kept: list[torch.Tensor] = []
        self._sources: dict[str, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for each operation."""
        kwargs = kwargs or {}
        parts = () if func.name().split("::")[1].split(".")[0] in self._whole else (_table().get(func), func.decompose)
        for decomposition in filter(None, parts):
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags or "empty" in str(func):
            raise UnsupportedSampleError(str(func))
        arguments = tuple(self._argument(argument) for argument in args)
        keywords = tuple((key, self._argument(value)) for key, value in kwargs.items() if key not in _PLACE_KEYWORDS)
        result = func(*args, **kwargs)
        self._note(str(func), arguments, keywords, result)
        return result

    def _note(self, op: str, arguments: tuple[Argument, ...], keywords: tuple[tuple[str, Argument], ...], result: Any) -> None:
        parts = (result,) if isinstance(result, torch.Tensor) else result
        if not isinstance(parts, tuple | list) or not all(part is None or isinstance(part, torch.Tensor) for part in parts):
            return  # a number: what is computed from it is a constant
        name = f"n{len(self._nodes)}"
        outputs = [self._add(f"{name}.{index}", part) if part is not None else "" for index, part in enumerate(parts)]
        self._nodes.append(Node(name=name, op=op, arguments=arguments, keywords=keywords, outputs=tuple(outputs)))

    def _add(self, name: str, tensor: torch.Tensor, kind: ValueKind = ValueKind.ACTIVATION) -> str:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in type_sizes or tensor.layout is not torch.strided:
            raise UnsupportedSampleError(f"{dtype}, {tensor.layout}")
        self._values[name] = Value(name=name, shape=tuple(tensor.shape), dtype=dtype, kind=kind)
        self._names[id(tensor)] = name
        self._kept.append(tensor)
        return name

    def _argument(self, argument: Any) -> Argument:
        try:
            return argument_of(argument, self._reference)
        except TypeError as error:
            raise UnsupportedSampleError(str(error)) from error

    def _reference(self, argument: Any) -> ValueRef | None:
        if not isinstance(argument, torch.Tensor):
            return None
        if id(argument) not in self._names:
            name = self._add(f"s{len(self._sources)}", argument, ValueKind.INPUT)
            self._sources[name] = argument.detach()
        return ValueRef(self._names[id(argument)])

    def recording(self, name: str, results: Sequence[torch.Tensor]) -> Recording:
        """Returns the program that ends in these results; a result that is a source is left out."""
        outputs = {self._names[id(result)]: result.detach() for result in results if id(result) in self._names}
        outputs = {name: result for name, result in outputs.items() if name not in self._sources}
        program = TensorProgram(
            name=name, values=self._values, nodes=tuple(self._nodes), inputs=tuple(self._sources), outputs=tuple(outputs)
        )
        return Recording(program=program, sources=self._sources, results=outputs)
