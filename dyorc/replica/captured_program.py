"""A program as graphs of a device: what it launches is recorded once for each shape that its batches have, when it is loaded, and
from then on launched at once, without running its code.

A batch is filled up to the next of a few sizes, its calls to their buckets, so a few graphs serve all batches. A graph reads and
writes fixed memory: inputs are copied into it, and results out of it, on the device.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Self

import numpy as np

from dyorc.authoring.program import Program
from dyorc.authoring.signature import OutputKind, OutputSpec
from dyorc.authoring.spec import TensorSpec
from dyorc.core.arrays import numpy_dtype
from dyorc.core.tensor import Shape
from dyorc.devices.accelerator import DeviceGraph
from dyorc.errors import DefinitionError, text_of, type_name
from dyorc.replica.program_device import ProgramDevice, is_movable

MAX_GRAPHS = 256
"""Each takes time at loading, and memory of the device."""


class CapturedProgram:
    """Called with a batch's tensors, like the program's function. One thread.

    Args:
        sizes: The sizes that batches are filled up to, ascending; empty if the program takes no batch.
        buffers: For each size of the padded dimensions, the memory of all inputs, for the largest batch.
        graphs: By the shapes of all inputs.
    """

    def __init__(
        self,
        program: Program,
        device: ProgramDevice,
        sizes: Sequence[int],
        graphs: Mapping[tuple[Shape, ...], DeviceGraph],
        buffers: Mapping[tuple[Shape, ...], Sequence[Any]],
    ) -> None:
        self._device = device
        self._sizes = sizes
        self._graphs = graphs
        self._buffers = buffers
        self._outputs = program.signature.outputs
        self._padding = program.options.pad.value if program.options.pad else 0.0

    @classmethod
    def capture(cls, program: Program, function: Callable[..., Any], device: ProgramDevice) -> Self:
        """Records a program for all shapes, the largest batches first: smaller ones then use the same memory.

        Raises:
            DefinitionError: If its shapes are not all known, or it does something that cannot be recorded.
        """
        _check_signature(program)
        sizes = _batch_sizes(program)
        shapes = _shapes(program)
        if len(shapes) * max(1, len(sizes)) > MAX_GRAPHS:
            raise DefinitionError(
                f"program {program.name!r}: cuda_graphs would capture {len(sizes)} sizes of batches in {len(shapes)} shapes, "
                f"expected at most {MAX_GRAPHS} graphs; declare fewer buckets"
            )
        specs = program.signature.inputs
        buffers = {
            shape: [_zeros(device, spec, (*sizes[-1:], *each)) for spec, each in zip(specs, shape, strict=True)]
            for shape in shapes
        }
        launches: dict[tuple[Shape, ...], Callable[[], Sequence[Any]]] = {}
        for size, shape in product(reversed(sizes) if sizes else (None,), shapes):
            tensors = [buffer if size is None else buffer[:size] for buffer in buffers[shape]]
            key = tuple(tuple(tensor.shape) for tensor in tensors)
            launches[key] = _launch(
                program, function, device, dict(zip([spec.name for spec in specs], tensors, strict=True)), key
            )
        graphs = device.accelerator.capture(list(launches.values()))
        return cls(program, device, sizes, dict(zip(launches, graphs, strict=True)), buffers)

    @property
    def num_graphs(self) -> int:
        """How many shapes were recorded."""
        return len(self._graphs)

    def __call__(self, **tensors: Any) -> Any:
        """Runs a batch of a known shape. Results that stay on the device are copies; others are valid until the next batch."""
        batch = list(tensors.values())
        rows, filled, size = slice(None), slice(0, 0), 0
        shapes = tuple(tuple(tensor.shape) for tensor in batch)
        if self._sizes:
            num_calls = len(batch[0])
            size = self._sizes[bisect_left(self._sizes, num_calls)]
            rows, filled = slice(0, num_calls), slice(num_calls, size)
            shapes = tuple(shape[1:] for shape in shapes)
        for buffer, tensor in zip(self._buffers[shapes], batch, strict=True):
            buffer[rows].copy_(tensor)
            if filled.start < filled.stop:
                buffer[filled].fill_(self._padding)  # no call sees what another one left there
        graph = self._graphs[tuple((size, *shape) for shape in shapes) if self._sizes else shapes]
        graph.replay()
        parts = [part[rows] for part in graph.results]
        return _grouped(self._outputs, [part.clone() for part in parts] if self._device.is_keeping else parts)


def _check_signature(program: Program) -> None:
    """Raises DefinitionError if a shape is not known when the program is loaded, or a tensor is not on the device."""
    owner = f"program {program.name!r}: cuda_graphs"
    if statics := program.signature.statics:
        raise DefinitionError(f"{owner} records tensors alone, and the program takes the static value {statics[0].name!r}")
    if not program.signature.inputs:
        raise DefinitionError(f"{owner} needs inputs, and the program takes none")
    padded = program.options.pad.buckets if program.options.pad else {}
    for spec in (*program.signature.inputs, *program.signature.outputs.tensors):
        if not is_movable(spec):
            raise DefinitionError(f"{owner} needs torch tensors of numbers, and {spec.name!r} is none")
    for spec in program.signature.inputs:
        if spec.variadic_at is not None:
            raise DefinitionError(f"{owner} needs known shapes, and {spec.name!r} has no fixed rank")
        for dim in spec.dims:
            if dim.size is None and dim.name not in padded:
                raise DefinitionError(
                    f"{owner} needs known shapes, and dimension '{dim}' of {spec.name!r} may have any size; declare its size, or "
                    f"its buckets: pad=dyorc.pad({dim}=(...))"
                )


def _batch_sizes(program: Program) -> list[int]:
    """Returns the powers of two below the largest batch, and that; nothing if the program takes no batch."""
    if not program.options.batched:
        return []
    largest = 1 if program.options.batch_invariant else program.options.max_batch_size
    return [2**power for power in range(largest.bit_length()) if 2**power < largest] + [largest]


def _shapes(program: Program) -> list[tuple[Shape, ...]]:
    """Returns the shapes of one call's inputs, the largest first: one for each choice of buckets."""
    specs = program.signature.inputs
    padded = program.options.pad.buckets if program.options.pad else {}
    names = [name for name in padded if any(dim.name == name for spec in specs for dim in spec.dims)]
    choices = [dict(zip(names, sizes, strict=True)) for sizes in product(*(reversed(padded[name]) for name in names))]
    return [
        tuple(tuple(choice[dim.name or ""] if dim.size is None else dim.size for dim in spec.dims) for spec in specs)
        for choice in choices
    ]


def _zeros(device: ProgramDevice, spec: TensorSpec, shape: Shape) -> Any:
    return device.accelerator.copy_from_host(np.zeros(shape, numpy_dtype(spec.dtype)))


def _launch(
    program: Program, function: Callable[..., Any], device: ProgramDevice, tensors: Mapping[str, Any], shapes: tuple[Shape, ...]
) -> Callable[[], Sequence[Any]]:
    """Returns what runs the program on fixed memory, and names what cannot be recorded."""

    def launch() -> Sequence[Any]:
        where = f"program {program.name!r} cannot be captured as a CUDA graph, for inputs of {list(map(list, shapes))}"
        try:
            parts = program.signature.outputs.flatten(function(**tensors), f"program {program.name!r}")
        except Exception as error:
            raise DefinitionError(f"{where}: {type_name(error)}: {text_of(error)}") from error
        for spec, part in zip(program.signature.outputs.tensors, parts, strict=True):
            if not device.accelerator.holds(part):
                raise DefinitionError(f"{where}: it returned {spec.name!r}, which is not on device {device.accelerator.name}")
            if program.options.batched and tuple(part.shape[:1]) != shapes[0][:1]:
                raise DefinitionError(
                    f"{where}: it returned {spec.name!r} of shape {list(part.shape)}, expected {shapes[0][0]} rows"
                )
        return parts

    return launch


def _grouped(outputs: OutputSpec, parts: Sequence[Any]) -> Any:
    """Returns results as the program's code would."""
    if outputs.is_single:
        return parts[0]
    return dict(zip(outputs.names, parts, strict=True)) if outputs.kind is OutputKind.FIELDS else tuple(parts)
