"""Runs batches on a loaded program: gathers the inputs, calls the program, checks and splits its outputs.

Called by the replica's worker, by a cell's fleet, and by `dyorc.run` inside the caller's process. One thread at a time. Calls of
programs that wait or yield run elsewhere (`OngoingCalls`), with what this makes of their inputs and outputs.
"""

import importlib
import inspect
import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Any, cast

import numpy as np
import structlog

from dyorc.authoring.array_memory import Reserve, reserve_for_results
from dyorc.authoring.current_request import RowRequests, row_requests
from dyorc.authoring.program import Program, num_threads
from dyorc.authoring.resident import ChainCall, ChainLink
from dyorc.authoring.signature import StaticSpec, StaticValue
from dyorc.authoring.spec import Framework, TensorSpec, ValueSpec
from dyorc.core.arrays import Array, dtype_of, numpy_to_torch
from dyorc.core.request import RequestInfo
from dyorc.core.tensor import Shape
from dyorc.core.trace_context import TraceContext
from dyorc.devices.device_rows import DeviceRows
from dyorc.errors import InvalidInputError, ProgramLoadError
from dyorc.replica.batch_results import BatchError, BatchResult, UnreadableInputError
from dyorc.replica.captured_program import CapturedProgram
from dyorc.replica.padding_cuts import padding_cuts
from dyorc.replica.program_device import ProgramDevice, is_movable
from dyorc.replica.resident_bytes import resident_bytes
from dyorc.replica.resident_table import ResidentRows
from dyorc.replica.user_code import settle_thread
from dyorc.telemetry.tracing.program_spans import ProgramSpans
from dyorc.transport.column_codec import Rows, each_row
from dyorc.transport.inbox import BatchBuffers

_log = structlog.get_logger("dyorc.replica")

_SMALL_BYTES = 64 * 1024
"""Up to this size, fresh memory costs less than finding memory to reuse."""


class ProgramExecutor:
    """A program with its weights loaded.

    Attributes:
        num_copied_bytes: Bytes of inputs copied so far to form batches.
        device: The program's device; None if that is the host.
    """

    def __init__(self, program: Program, function: Any) -> None:
        self.num_copied_bytes = 0
        self._buffers: BatchBuffers | None = None
        self._spans: ProgramSpans | None = None
        self._program = program
        self._function = function
        self._graphs: CapturedProgram | None = None
        self._outputs = program.signature.outputs
        self._cuts = padding_cuts(program)
        self._keeps_state = any(spec.is_resident for spec in self._outputs.tensors)
        self.device: ProgramDevice | None = None
        self._uses_torch = any(spec.framework is Framework.TORCH for spec in (*program.signature.inputs, *self._outputs.tensors))

    @classmethod
    def load(cls, program: Program) -> "ProgramExecutor":
        """Loads the program.

        Raises:
            ProgramLoadError: If it raises; carries the exception's type and text.
        """
        executor = cls(program, None)
        try:
            executor.settle_thread()
            settle_thread()
            executor.device = ProgramDevice.of(program)
            executor._function = program.factory()
        except BaseException as error:
            raise load_error(program.name, error) from error
        return executor

    def capture_graphs(self) -> None:
        """Records the program, which is on a device, as graphs: batches replay them from now on.

        Raises:
            ProgramLoadError: If it cannot be recorded.
        """
        assert self.device is not None
        started_s = time.monotonic()
        try:
            with self._without_gradients():
                self._graphs = CapturedProgram.capture(self._program, self._function, self.device)
        except BaseException as error:
            raise load_error(self._program.name, error) from error
        seconds = round(time.monotonic() - started_s, 3)
        _log.info("cuda_graphs_captured", program=self._program.name, num_graphs=self._graphs.num_graphs, seconds=seconds)

    @property
    def program(self) -> Program:
        """The program."""
        return self._program

    @property
    def function(self) -> Any:
        """What was loaded: the program's function, or its object."""
        return self._function

    @property
    def is_plain_function(self) -> bool:
        """Whether the program is a function, which loads nothing."""
        return inspect.isfunction(self._function)

    def settle_thread(self) -> None:
        """Sets torch's number of threads, a setting of each thread: call it on every thread that runs batches."""
        if self._uses_torch and "DYORC_NUM_THREADS" in os.environ:  # under `dyorc.run`, the user decides about threads
            importlib.import_module("torch").set_num_threads(num_threads())

    def turn_gradients_off(self) -> None:
        """Turns torch's gradients off for all that this thread runs."""
        if self._uses_torch:
            importlib.import_module("torch").set_grad_enabled(False)

    def reuse_memory(self) -> None:
        """Makes all later batches share memory: results of `run` may be part of it, and are valid until the next `run`.

        Not for a program whose residents may refer to its inputs.
        """
        if not self._keeps_state:
            self._buffers = self._find_buffers()

    def trace_by(self, spans: ProgramSpans | None) -> None:
        """Lets the program's code make spans below those of its batches."""
        self._spans = spans

    def enter_span(self, span: TraceContext | None) -> None:
        """Makes a batch's span the current one in the present context, for good."""
        if self._spans is not None and span is not None:
            self._spans.enter(span)

    def arguments(self, columns: Sequence[Rows], statics: Sequence[StaticValue]) -> dict[str, Any]:
        """Returns a batch's arguments by their names, without streams. The program may keep them and write to them.

        Args:
            columns, statics: As for `run`. Rows that this process may not write are copied.
        """
        arguments = self._arguments(columns, statics)
        if self.device is not None:
            self.device.accelerator.synchronize()  # what they were copied from may end now
        return arguments

    def outputs(self, value: Any, verb: str = "returned") -> Sequence[Rows]:
        """Returns what an unbatched program returned or yielded, checked: for each output, its one array, which the program may
        still write to.

        Args:
            verb: What the program did, for errors.

        Raises:
            InvalidInputError: If it is not what the program declares.
        """
        rows = self._split_all(value, (), verb)
        return cast("Sequence[Rows]", rows)  # such programs have no residents

    def run(
        self,
        columns: Sequence[Rows],
        statics: Sequence[StaticValue],
        reserve: Reserve | None = None,
        span: TraceContext | None = None,
        chain: Sequence[ChainLink] = (),
        seen: Sequence[RequestInfo] = (),
    ) -> BatchResult | BatchError:
        """Runs one batch.

        Args:
            columns: For each input of the program, the arrays of the batch's calls in order; for a resident, the objects.
            statics: Values of the static parameters, the same for all calls.
            reserve: Provides memory for results, if the program requests it (`dyorc.empty`).
            span: The batch's span, if it is traced.
            chain, seen: See `DispatchBatch`.
        """
        if chain:
            return self._rebuild(columns, chain)
        if self._keeps_state:
            reserve = None  # what a resident refers to must not end with a result
        if self._program.options.batch_invariant and columns and len(columns[0]) > 1:
            return self._run_each(columns, statics, span, seen)
        try:
            started_s = time.perf_counter()
            token = reserve_for_results.set(reserve)
            sees_requests = self._program.options.sees_requests
            of_requests = row_requests.set(self.row_requests(seen, len(columns[0]) if columns else 1) if sees_requests else ())
            try:
                with self._without_gradients():
                    arguments = self._arguments(columns, statics)
                    stacked_s = time.perf_counter()
                    function = self._graphs or self._function
                    returned = function(**arguments) if span is None else self._call_under(span, function, arguments)
                    if self.device is not None:
                        self.device.accelerator.synchronize()  # so that its time and its errors are this batch's
                    returned_s = time.perf_counter()
                    outputs = self._split_all(returned, columns)
                    del arguments, returned
            finally:
                reserve_for_results.reset(token)
                row_requests.reset(of_requests)
            ended_s = time.perf_counter()
            return BatchResult(outputs, ended_s - started_s, stacked_s - started_s, ended_s - returned_s)
        except BaseException as error:
            failure, text = BatchError.of(error), self.device and self.device.explain(error)
            return replace(failure, message=text, is_out_of_device=True) if text else failure

    def row_requests(self, seen: Sequence[RequestInfo], num_calls: int = 1) -> RowRequests:
        """Returns what a batch's code may know of its requests.

        Args:
            seen: See `DispatchBatch`. With none at all, as for a batch of zeros, nothing is known of the requests.
        """
        options = self._program.options
        if not options.sees_requests:
            return ()
        rows = tuple(seen) or (RequestInfo(),) * num_calls
        return rows if options.batched else rows[0]

    def _run_each(
        self,
        columns: Sequence[Rows],
        statics: Sequence[StaticValue],
        span: TraceContext | None,
        seen: Sequence[RequestInfo],
    ) -> BatchResult | BatchError:
        """Runs the calls of a batch one by one: kernels choose their order of summation by a batch's size and a row's place."""
        outputs: list[Any] = [ResidentRows() if spec.is_resident else [] for spec in self._outputs.tensors]
        execute_s = stack_s = split_s = 0.0
        for at in range(len(columns[0])):
            result = self.run([rows[at : at + 1] for rows in columns], statics, None, span, seen=seen[at : at + 1])
            if isinstance(result, BatchError):
                return result
            for column, rows in zip(outputs, result.outputs, strict=True):
                if isinstance(rows, ResidentRows):
                    column.objects.extend(rows.objects)
                    column.sizes.extend(rows.sizes)
                elif isinstance(rows, DeviceRows):
                    column.append(rows)
                else:
                    column.append(np.array(rows[0]))  # a copy: the next call may be read into its memory
            execute_s += result.execute_s
            stack_s += result.stack_s
            split_s += result.split_s
        if self.device is not None:
            outputs = [self.device.join(rows) for rows in outputs]
        return BatchResult(outputs, execute_s, stack_s, split_s)

    def _rebuild(self, columns: Sequence[Rows], chain: Sequence[ChainLink]) -> BatchResult | BatchError:
        """Has the program make the resident of a whole chain."""
        arrays = iter([np.array(rows[0]) for rows in columns])
        calls = [ChainCall(link.program, tuple(islice(arrays, link.num_inputs)), tuple(link.statics)) for link in chain]
        started_s = time.perf_counter()
        try:
            specs = [spec for spec in self._outputs.tensors if spec.is_resident]
            with self._without_gradients():
                rebuilt = self._function.rebuild(calls)
                parts = rebuilt if len(specs) > 1 else (rebuilt,)
                if not isinstance(parts, tuple | list) or len(parts) != len(specs):
                    what = type(rebuilt).__name__
                    raise InvalidInputError(f"program {self._program.name!r} rebuilt a {what}, expected {len(specs)} residents")
                outputs = [self._take(spec.name, [part], 1, "rebuilt") for spec, part in zip(specs, parts, strict=True)]
            return BatchResult(outputs, time.perf_counter() - started_s)
        except BaseException as error:
            failure = BatchError.of(error)
            return replace(failure, message=f"its rebuild of a lost resident failed: {failure.message}")

    def _call_under(self, span: TraceContext, function: Any, arguments: dict[str, Any]) -> Any:
        """Calls the program with its batch's span as the current one."""
        return function(**arguments) if self._spans is None else self._spans.run(span, function, arguments)

    def _without_gradients(self) -> AbstractContextManager[Any]:
        """Not torch's inference mode: its tensors never have gradients, and a program may need those of its inputs."""
        return importlib.import_module("torch").no_grad() if self._uses_torch else nullcontext()

    def _arguments(self, columns: Sequence[Rows], statics: Sequence[StaticValue]) -> dict[str, Any]:
        """Returns the arguments of the program."""
        tensors, values = iter(range(len(columns))), iter(statics)
        arguments: dict[str, Any] = {}
        for parameter in self._program.signature.parameters:
            if isinstance(parameter, StaticSpec):
                arguments[parameter.name] = next(values)
            elif isinstance(parameter, TensorSpec):
                at = next(tensors)
                if parameter.is_resident:
                    arguments[parameter.name] = list(columns[at]) if self._program.options.batched else columns[at][0]
                else:
                    arguments[parameter.name] = self._gather(at, parameter, columns)
        return arguments

    def _split_all(self, returned: Any, columns: Sequence[Rows], verb: str = "returned") -> Sequence[Rows | ResidentRows]:
        """Returns what the program returned, output by output and call by call."""
        parts: Sequence[Any] = self._outputs.flatten(returned, f"program {self._program.name!r}", verb)
        if self.device is not None:
            parts = self.device.bring_back(self._outputs.tensors, parts)
        return [self._split(spec, part, columns, verb) for spec, part in zip(self._outputs.tensors, parts, strict=True)]

    def _gather(self, at: int, spec: TensorSpec, columns: Sequence[Rows]) -> Any:
        """Returns one input of the whole batch, padded to its bucket where the program declares one."""
        rows = columns[at]
        is_batched = self._program.options.batched
        if isinstance(spec, ValueSpec):
            values = self._values(at, spec, rows)
            return values if is_batched else values[0]
        shape = self._program.batch_keys.padded_shape(at, tuple(rows[0].shape)) if is_batched else tuple(rows[0].shape)
        device = self.device if self.device is not None and is_movable(spec) else None
        if device is not None and isinstance(rows, DeviceRows):
            return device.gather(rows, shape)
        if not isinstance(rows, np.ndarray) or rows.shape[1:] != shape or self._keeps_state:
            array = self._bring_together(at, rows, shape)
        elif rows.flags.writeable and rows.flags.aligned:
            array = rows  # this process owns it and may write to it
        elif rows.nbytes <= _SMALL_BYTES:
            array = rows.copy()
            self.num_copied_bytes += rows.nbytes
        else:
            array = self._bring_together(at, rows, shape)
        if not is_batched:
            array = array[0, ...]
        if device is not None:
            return device.send(array)
        return numpy_to_torch(array) if spec.framework is Framework.TORCH else array

    def _values(self, at: int, spec: ValueSpec, rows: Rows) -> list[Any]:
        """Returns one input of structured values, one for each call."""
        try:
            return [spec.value_of(row, f"program {self._program.name!r}") for row in each_row(rows)]
        except InvalidInputError as error:
            raise UnreadableInputError(str(error), at) from error

    def _bring_together(self, at: int, rows: Rows, shape: Shape) -> Array:
        """Copies the rows of an input into one array, padded to `shape`."""
        dtype, whole = rows[0].dtype, (len(rows), *shape)
        if dtype.kind == "O":
            array = np.empty(whole, dtype)
        else:
            array = self._memory(at, whole, dtype)
            self.num_copied_bytes += array.nbytes
        if isinstance(rows, np.ndarray) and rows.shape == whole:
            np.copyto(array, rows)
            return array
        padding = self._program.options.pad
        for number, row in enumerate(rows):
            place = array[number, ...]
            if row.shape != shape:
                place[...] = b"" if dtype.kind == "O" else padding.value if padding else 0
                place = place[tuple(slice(0, size) for size in row.shape)]
            place[...] = row
        return array

    def _memory(self, at: int, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Returns memory for an input."""
        if self._buffers is None:
            return np.empty(shape, dtype)
        memory = self._buffers.take(at, math.prod(shape) * dtype.itemsize)
        return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)

    def _find_buffers(self) -> BatchBuffers:
        """Returns memory for batches: pinned for the GPU, if there is one."""
        if self.device is not None:
            return BatchBuffers(self.device.accelerator.allocate_pinned)
        torch = sys.modules.get("torch") if self._uses_torch else None
        if torch is None or not torch.cuda.is_available():
            return BatchBuffers()
        return BatchBuffers(
            lambda num_bytes: torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=True).numpy().data
        )

    def _split(self, spec: TensorSpec, part: Any, columns: Sequence[Rows], verb: str) -> Rows | ResidentRows:
        """Returns one output, call by call, checked against the program's declaration."""
        program = self._program
        where = f"program {program.name!r} {verb}"
        num_calls = len(columns[0]) if columns else 1
        if spec.is_resident:
            return self._take(spec.name, part if program.options.batched else [part], num_calls, verb)
        if isinstance(spec, ValueSpec) and program.options.batched:
            return self._encoded(spec, part, num_calls, verb)
        if self.device is not None and self.device.keeps(spec, part):
            return self.device.split(spec, part, num_calls, verb, lambda part: self._cut_back(spec, part, columns))
        array = spec.array_of(part, f"{where} {spec.name!r}")
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

    def _encoded(self, spec: ValueSpec, part: Any, num_calls: int, verb: str) -> Rows:
        """Returns an output of structured values, one for each call."""
        where = f"program {self._program.name!r} {verb}"
        values = _one_per_row(part, num_calls, where, spec.name, "value", "values")
        return [spec.array_of(value, f"{where} {spec.name!r} of row {row}") for row, value in enumerate(values)]

    def _take(self, name: str, part: Any, num_calls: int, verb: str) -> ResidentRows:
        """Returns an output that stays here: one object per call, with its size."""
        where = f"program {self._program.name!r} {verb}"
        objects = _one_per_row(part, num_calls, where, name, "object", "residents")
        for row, resident in enumerate(objects):
            if resident is None:
                raise InvalidInputError(f"{where} None as {name!r} of row {row}, expected an object")
        measure = getattr(self._function, "resident_bytes", resident_bytes)
        return ResidentRows(objects, [self._size(measure(resident)) for resident in objects])

    def _size(self, num_bytes: Any) -> int:
        """Returns what a program says of a resident's size, as a whole number."""
        if isinstance(num_bytes, bool) or not isinstance(num_bytes, int | np.integer) or num_bytes < 0:
            raise InvalidInputError(
                f"program {self._program.name!r}: resident_bytes returned {num_bytes!r}, expected a whole number of at least 0"
            )
        return int(num_bytes)

    def _cut_back(self, spec: TensorSpec, array: Array, columns: Sequence[Rows]) -> Rows:
        """Removes the padding from outputs that declare a padded dimension."""
        # Iterating over an object array would yield its elements, not arrays of rank 0.
        rows: Rows = array if array.dtype != object else each_row(array)
        for axis, source, source_axis in self._cuts.get(spec.name, ()):
            before = (slice(None),) * axis
            rows = [rows[at][(*before, slice(0, row.shape[source_axis]))] for at, row in enumerate(columns[source])]
        return rows


def _one_per_row(part: Any, num_calls: int, where: str, name: str, kind: str, kinds: str) -> list[Any]:
    """Returns an output that is a list, checked to have one of a kind for each call."""
    if not isinstance(part, list | tuple):
        raise InvalidInputError(f"{where} a {type(part).__name__} as {name!r}, expected a list with one {kind} per row")
    objects: list[Any] = list(part)  # pyright: ignore[reportUnknownArgumentType]
    if len(objects) != num_calls:
        raise InvalidInputError(f"{where} {len(objects)} {kinds} as {name!r}, expected {num_calls}, one per row")
    return objects


def load_error(program: str, error: BaseException) -> ProgramLoadError:
    """Returns the error of a program that cannot be loaded because of `error`."""
    failure = BatchError.of(error)
    return ProgramLoadError(program, failure.error_type, failure.message, failure.traceback)
