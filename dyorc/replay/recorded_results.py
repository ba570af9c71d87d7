"""Answers the calls of a replayed request: with what the history says, or by running the program.

A tensor without bytes in the history passes through the engine as a *placeholder*: a stored tensor of its type and shape, which
nothing can read. If it has to be read after all, the call that made it runs again.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from weakref import WeakKeyDictionary

import numpy as np

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import Array, apply_views, inline
from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.actions import DispatchBatch
from dyorc.engine.events import BatchDone, BatchFailed
from dyorc.replay.identities import Identities, of_call, of_input, of_result, shown_views
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.resident_table import ResidentRows
from dyorc.telemetry.histories.history import (
    INPUT,
    HistoryCall,
    KeptTensor,
    RequestHistory,
    digest_of,
    digest_of_statics,
    json_of_index,
)


class MissingValueError(Exception):
    """A history holds neither a call nor a value that a version needs. Says which."""


@dataclass(frozen=True, slots=True)
class Answered:
    """How a call ended.

    Attributes:
        event: For the engine.
        took_s: Until it did, from when it was made.
        is_new: Whether its program has run for it.
    """

    event: BatchDone | BatchFailed
    took_s: float
    is_new: bool = False


class LoadedPrograms:
    """Programs, loaded when they are first run."""

    def __init__(self) -> None:
        self._executors: WeakKeyDictionary[Program, ProgramExecutor] = WeakKeyDictionary()

    def run(self, program: Program, operands: Sequence[Array], statics: tuple[StaticValue, ...]) -> tuple[list[Array], float]:
        """Returns what a program makes of one call, and how long that took, in seconds.

        Raises:
            ProgramFailure: If it raised.
        """
        executor = self._executors.get(program)
        if executor is None:
            executor = self._executors[program] = ProgramExecutor.load(program)
        result = executor.run([[operand] for operand in operands], statics)
        if isinstance(result, BatchError):
            raise ProgramFailure(result)
        arrays = [np.array(rows[0], order="C") for rows in result.outputs if not isinstance(rows, ResidentRows)]
        return arrays, result.execute_s


class ProgramFailure(Exception):
    """What a program raised."""

    def __init__(self, error: BatchError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """A tensor without bytes: how it is known, and the call that can make it again, if any."""

    identity: str
    action: DispatchBatch | None
    field: int


class RecordedResults:
    """The results of one history.

    Args:
        programs: Run calls that the history does not have; None: nothing runs.

    Attributes:
        missing: Why calls could not be answered, or values not read, in order.
        lacks_value: Whether the first of these is a value of the history whose bytes it does not have.
        has_run_programs: Whether a program ran, for a call or for a value that the history does not have.
    """

    def __init__(self, history: RequestHistory, programs: LoadedPrograms | None) -> None:
        self._history = history
        self._programs = programs
        self._calls: dict[str, deque[HistoryCall]] = {}
        identities = Identities(history)
        for number, call in enumerate(history.calls):
            self._calls.setdefault(identities.of_call(number), deque()).append(call)
        self._placeholders: dict[int, _Placeholder] = {}
        self._blocks = count(1)
        self.missing: list[str] = []
        self.lacks_value = False
        self.has_run_programs = False

    def input(self, name: str) -> TensorRef:
        """Returns an input of the request."""
        kept = self._history.inputs[name]
        return self._tensor(kept, of_input(name, ()), None, 0)

    def answer(self, action: DispatchBatch) -> Answered | None:
        """Returns how a call ends; None if it does not, as far as the history says: `missing` may say why.

        An effect that the history does not have fails: it never runs here.
        """
        program, name = action.program, _own_name(action.program)
        identity = self._identity(action)
        recorded = self._calls.get(identity)
        if recorded:
            return self._repeat(
                action, identity, recorded.popleft() if len(recorded) > 1 or not program.options.pure else recorded[0]
            )
        if not program.options.pure:
            self.missing.append(f"a call of {name!r} that is in no history, and has an effect")
            return None
        if self._programs is None:
            self.missing.append(f"a call of {name!r} that is in no history")
            return None
        try:
            return self._run(action)
        except MissingValueError as error:
            self.miss_value(error)
            return None

    def miss_value(self, error: MissingValueError) -> None:
        """Notes that a value could not be read."""
        self.lacks_value = self.lacks_value or not self.missing
        self.missing.append(str(error))

    def read(self, tensor: TensorRef) -> Array:
        """Returns the contents of a tensor.

        Raises:
            MissingValueError: If they are not known, and cannot be made.
        """
        if tensor.block:
            return apply_views(self._made(self._placeholders[tensor.block]), tensor.views)
        return apply_views(tensor.data, tensor.views)

    def _repeat(self, action: DispatchBatch, identity: str, call: HistoryCall) -> Answered | None:
        took_s = (call.queue_ms + call.compute_ms) / 1e3
        if call.error:
            error_type, message = call.error
            input_at = -1 if error_type else next((at for at, source in enumerate(call.arguments) if source.call == INPUT), -1)
            return Answered(BatchFailed("", action.batch_id, error_type, message, input_at=input_at), took_s)
        if call.outputs is None:
            self.missing.append(f"a result of {call.program!r}, which was not computed when the request was recorded")
            return None
        num_outputs = len(action.program.signature.outputs.tensors)
        if len(call.outputs) != num_outputs:
            num_kept = len(call.outputs)
            self.missing.append(f"a result of {call.program!r} with {num_outputs} outputs: it has {num_kept} in the history")
            return None
        outputs = tuple([self._tensor(kept, of_result(identity, at, ()), action, at) for at, kept in enumerate(call.outputs)])
        return Answered(BatchDone("", action.batch_id, (outputs,), call.compute_ms / 1e3), took_s)

    def _run(self, action: DispatchBatch) -> Answered:
        assert self._programs is not None
        self.has_run_programs = True
        operands = [self.read(tensor) for tensor in action.operands[0]]
        try:
            arrays, took_s = self._programs.run(action.program, operands, action.statics)
        except ProgramFailure as failure:
            return Answered(failure.error.event("", action.batch_id), 0.0, is_new=True)
        outputs = tuple([inline(array) for array in arrays])
        return Answered(BatchDone("", action.batch_id, (outputs,), took_s), took_s, is_new=True)

    def _made(self, placeholder: _Placeholder) -> Array:
        """Runs the call behind a placeholder."""
        action = placeholder.action
        if action is None:
            raise MissingValueError(f"the value of {placeholder.identity}, which is not in the history")
        name = _own_name(action.program)
        if self._programs is None or not action.program.options.pure:
            raise MissingValueError(f"the value that {name!r} returned, which is not in the history")
        self.has_run_programs = True
        operands = [self.read(tensor) for tensor in action.operands[0]]
        try:
            return self._programs.run(action.program, operands, action.statics)[0][placeholder.field]
        except ProgramFailure as failure:
            raise MissingValueError(f"the value that {name!r} returned: run again, it failed: {failure}") from failure

    def _tensor(self, kept: KeptTensor, identity: str, action: DispatchBatch | None, field: int) -> TensorRef:
        array = kept.array()
        if array is not None:
            return inline(array)
        block = next(self._blocks)
        self._placeholders[block] = _Placeholder(identity, action, field)
        return TensorRef(dtype=DType(kept.dtype), shape=kept.shape, block=block)

    def _identity(self, action: DispatchBatch) -> str:
        identities = [self._identity_of(tensor) for tensor in action.operands[0]]
        return of_call(_own_name(action.program), digest_of_statics(action.statics), identities)

    def _identity_of(self, tensor: TensorRef) -> str:
        if not tensor.block:
            return digest_of(apply_views(tensor.data, tensor.views))
        identity = self._placeholders[tensor.block].identity
        return f"{identity}{shown_views([json_of_index(index) for index in tensor.views])}"


def _own_name(program: Program) -> str:
    return program.own_name or program.name
