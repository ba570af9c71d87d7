"""Runs batches on a loaded program: gathers the inputs, calls the program, checks and splits what it gives.

Called by the replica's worker, and by `dyorc.run` without any process of its own. One thread at a time.
"""

import importlib
import os
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from dyorc.arrays import Array, as_array, dtype_of, numpy_to_torch
from dyorc.authoring.program import Program, num_threads
from dyorc.authoring.signature import StaticSpec, StaticValue
from dyorc.authoring.spec import Framework, TensorSpec
from dyorc.errors import InvalidInputError, ProgramLoadError
from dyorc.tensor import DType
from dyorc.transport.codec import Rows


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a batch gave: for each output, the arrays of its calls in order; and the program's own seconds."""

    outputs: Sequence[Rows]
    execute_s: float


@dataclass(frozen=True, slots=True)
class BatchError:
    """What a program raised."""

    error_type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> "BatchError":
        return cls(type(error).__name__, _sendable(str(error)), _sendable("".join(traceback.format_exception(error))))


class Executor:
    """A program with its weights loaded."""

    def __init__(self, program: Program, function: Any) -> None:
        self._program = program
        self._function = function
        self._outputs = program.signature.outputs
        self._cuts = self._find_cuts()
        self._uses_torch = any(spec.framework is Framework.TORCH for spec in (*program.signature.inputs, *self._outputs.tensors))

    @classmethod
    def load(cls, program: Program) -> "Executor":
        """Loads the program.

        Raises:
            ProgramLoadError: If it raises; carries its type and text.
        """
        executor = cls(program, None)
        try:
            if executor._uses_torch and "DYORC_NUM_THREADS" in os.environ:  # in `dyorc.run` they are the user's affair
                importlib.import_module("torch").set_num_threads(num_threads())
            executor._function = program.factory()
        except Exception as error:
            failure = BatchError.of(error)
            raise ProgramLoadError(program.name, failure.error_type, failure.message, failure.traceback) from error
        return executor

    def run(self, columns: Sequence[Rows], statics: Sequence[StaticValue]) -> BatchResult | BatchError:
        """Runs one batch.

        Args:
            columns: For each input of the program, the arrays of the batch's calls in order.
            statics: Values of the static parameters, the same for all calls.
        """
        try:
            started_s = time.perf_counter()
            with self._inference_mode():
                outputs = self._run(columns, statics)
            return BatchResult(outputs, time.perf_counter() - started_s)
        except (Exception, SystemExit) as error:
            return BatchError.of(error)

    def _inference_mode(self) -> AbstractContextManager[Any]:
        return importlib.import_module("torch").inference_mode() if self._uses_torch else nullcontext()

    def _run(self, columns: Sequence[Rows], statics: Sequence[StaticValue]) -> Sequence[Rows]:
        program = self._program
        tensors, values = iter(range(len(columns))), iter(statics)
        arguments: dict[str, Any] = {}
        for parameter in program.signature.parameters:
            if isinstance(parameter, StaticSpec):
                arguments[parameter.name] = next(values)
            else:
                arguments[parameter.name] = self._gather(next(tensors), parameter, columns)
        returned = self._function(**arguments)
        parts = self._outputs.flatten(returned, f"program {program.name!r}")
        return [self._split(spec, part, columns) for spec, part in zip(self._outputs.tensors, parts, strict=True)]

    def _gather(self, at: int, spec: TensorSpec, columns: Sequence[Rows]) -> Any:
        """One input of the whole batch, padded to its bucket where the program declares one."""
        rows = columns[at]
        if not self._program.options.batched:
            array = rows[0].copy()
        else:
            shape = self._program.batch_keys.padded_shape(at, rows[0].shape)
            if isinstance(rows, np.ndarray) and rows.shape[1:] == shape:
                array = rows if rows.flags.writeable else rows.copy()  # off the wire it is ours, and writable
            elif all(row.shape == shape for row in rows):
                array = np.stack(list(rows))
            else:
                padding = self._program.options.pad
                fill = b"" if spec.dtype is DType.BYTES else padding.value if padding else 0
                array = np.full((len(rows), *shape), fill, rows[0].dtype)
                for row, place in zip(rows, array, strict=True):
                    place[tuple(slice(0, size) for size in row.shape)] = row
        return numpy_to_torch(array) if spec.framework is Framework.TORCH else array

    def _split(self, spec: TensorSpec, part: Any, columns: Sequence[Rows]) -> Rows:
        """One output, call by call, checked against what the program declares."""
        program = self._program
        where = f"program {program.name!r} returned"
        array = as_array(part, spec.dtype, f"{where} {spec.name!r}")
        num_calls = len(columns[0]) if columns else 1
        if not program.options.batched:
            rows: Rows = (array,)
        else:
            if array.ndim == 0 or array.shape[0] != num_calls:
                raise InvalidInputError(
                    f"{where} {spec.name!r} of shape {list(array.shape)} for a batch of {num_calls}, expected {num_calls} rows"
                )
            rows = self._cut_back(spec, array, columns)
        dtype = dtype_of(array)
        for shape in (rows.shape[1:],) if isinstance(rows, np.ndarray) else (row.shape for row in rows):
            spec.check(dtype, shape, {}, where)
        return rows

    def _cut_back(self, spec: TensorSpec, array: Array, columns: Sequence[Rows]) -> Rows:
        """Takes the padding off outputs that declare a padded dimension."""
        # Iterating over an object array would give its elements, not arrays of rank 0.
        rows: Rows = array if array.dtype != object else [array[at, ...] for at in range(len(array))]
        for axis, source, source_axis in self._cuts.get(spec.name, ()):
            before = (slice(None),) * axis
            rows = [rows[at][(*before, slice(0, given.shape[source_axis]))] for at, given in enumerate(columns[source])]
        return rows

    def _find_cuts(self) -> dict[str, list[tuple[int, int, int]]]:
        """For each output that declares padded dimensions: its axis, and the input and axis whose size it follows."""
        padding, signature = self._program.options.pad, self._program.signature
        sources = {
            dim.name: (at, axis)
            for at, spec in enumerate(signature.inputs)
            for axis, dim in enumerate(spec.dims)
            if padding and dim.name in padding.buckets
        }
        return {
            spec.name: [(axis, *sources[dim.name]) for axis, dim in enumerate(spec.dims) if dim.name in sources]
            for spec in signature.outputs.tensors
        }


def _sendable(text: str) -> str:
    """Text that UTF-8 can carry: file names in errors may hold lone surrogates."""
    return text.encode(errors="replace").decode()
