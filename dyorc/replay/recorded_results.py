"""Answers the calls of a replayed request: with what the history says, or by running the program.

A tensor without bytes in the history passes through the engine as a *placeholder*: a stored tensor of its type and shape, which
nothing can read. If it has to be read after all, the call that made it runs again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticValue
from dyorc.core.arrays import Array, apply_views, inline
from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.actions import BatchControl, CancelBatch, DispatchBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken
from dyorc.errors import text_of, type_name
from dyorc.replay.identities import Identities, of_call, of_input, of_result, shown_views
from dyorc.replay.played_calls import PlayedCall, RecordedCall
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.resident_table import ResidentRows
from dyorc.telemetry.histories.history import (
    INPUT,
    WHOLE,
    HistoryCall,
    KeptTensor,
    RequestHistory,
    digest_of,
    digest_of_statics,
    json_of_index,
)


class MissingValueError(Exception):
    """A history holds neither a call nor a value that a version needs. Says which."""


Following: TypeAlias = tuple[int, Event]
"""What comes of something, and when, in nanoseconds."""


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
        missing: Why calls could not be answered, in order. Perhaps nothing needs them.
        missing_values: Why values could not be read, in order: the history does not have their bytes.
        has_run_programs: Whether a program ran, for a call or for a value that the history does not have.
    """

    def __init__(self, history: RequestHistory, programs: LoadedPrograms | None) -> None:
        self._history = history
        self._programs = programs
        self._recorded: dict[str, list[RecordedCall]] = {}
        """By what is equal for calls that differ in nothing but the streams that they read."""
        self._used: set[RecordedCall] = set()
        self._playing: dict[int, PlayedCall] = {}
        identities = Identities(history)
        for number, call in enumerate(history.calls):
            recorded = RecordedCall(call, identities.of_call(number), identities.streams_of(number))
            self._recorded.setdefault(identities.of_call_without_streams(number), []).append(recorded)
        self._placeholders: dict[int, _Placeholder] = {}
        self._blocks = count(1)
        self.missing: list[str] = []
        self.missing_values: list[str] = []
        self.has_run_programs = False

    def input(self, name: str) -> TensorRef:
        """Returns an input of the request."""
        kept = self._history.inputs[name]
        return self._tensor(kept, of_input(name, ()), None, 0)

    def answer(self, action: DispatchBatch, now_ns: int) -> list[Following]:
        """Returns what comes of a call. Nothing, if it does not end, as far as the history says: `missing` may say why.

        An effect that the history does not have fails: it never runs here.
        """
        identity = self._identity(action)
        recorded = self._recorded.get(identity, [])
        if _has_streams(action.program):
            played = self._playing[action.batch_id] = PlayedCall(action, now_ns, recorded, self._used)
            return self._go_on(played, now_ns)
        unused = [each for each in recorded if each not in self._used]
        if unused or (recorded and action.program.options.pure):  # a pure call may be made twice
            call = (unused or recorded[-1:])[0]
            self._used.add(call)
            return self._repeat(action, call, now_ns)
        if reason := self._refusal_to_run(action.program):
            self.missing.append(reason)
            return []
        try:
            return self._run(action, now_ns)
        except MissingValueError as error:
            self.missing_values.append(str(error))
            return []

    def control(self, action: BatchControl, now_ns: int) -> list[Following]:
        """Returns what comes of what is sent to a call that reads or yields streams."""
        played = self._playing.get(action.batch_id)
        if played is None or played.is_over:
            return []
        match action:
            case GrantParts(max_parts=max_parts):
                played.grant(max_parts)
            case FeedPart(stream=stream, is_end=False, tensors=tensors):
                played.feed(stream, tuple([self._identity_of(tensor) for tensor in tensors]))
            case FeedPart(stream=stream, error=error):
                played.end(stream, () if error is None else (type_name(error), text_of(error)))
            case CancelBatch():
                played.is_over = True
                return []
        return self._go_on(played, now_ns)

    def why_endless(self) -> str:
        """Returns what a request waits for that has no answer, and to which nothing happens any longer."""
        for reason in (*self.missing_values, *self.missing):
            return reason
        for played in self._playing.values():
            if played.recorded is not None and not played.is_over:
                name = played.recorded.call.program
                return f"part {played.num_sent} of {name!r}, which had not come when the request was recorded"
        return "something that it waits for"

    def _refusal_to_run(self, program: Program) -> str:
        """Returns why a call that is in no history is not made; empty: its program runs."""
        call = f"a call of {_own_name(program)!r} that is in no history"
        if not program.options.pure:
            return f"{call}, and has an effect"
        if self._programs is None:
            return call
        return "" if _is_runnable(program) else f"{call}, and has streams or residents, so it does not run in a replay"

    def read(self, tensor: TensorRef) -> Array:
        """Returns the contents of a tensor.

        Raises:
            MissingValueError: If they are not known, and cannot be made.
        """
        if tensor.block:
            return apply_views(self._made(self._placeholders[tensor.block]), tensor.views)
        return apply_views(tensor.data, tensor.views)

    def _repeat(self, action: DispatchBatch, recorded: RecordedCall, now_ns: int) -> list[Following]:
        call = recorded.call
        at_ns = now_ns + round((call.queue_ms + call.compute_ms) * 1e6)
        if call.error:
            return [(at_ns, _failure(action, call, call.error))]
        if call.outputs is None:
            self.missing.append(f"a result of {call.program!r}, which was not computed when the request was recorded")
            return []
        outputs = self._outputs(action, recorded, call.outputs)
        return [] if outputs is None else [(at_ns, BatchDone("", action.batch_id, (outputs,), call.compute_ms / 1e3))]

    def _outputs(
        self, action: DispatchBatch, recorded: RecordedCall, kept: Sequence[KeptTensor], part: int = WHOLE
    ) -> tuple[TensorRef, ...] | None:
        """Returns the tensors of a result, or of a part; None if the program declares another number of them."""
        name, num_outputs = recorded.call.program, len(action.program.signature.outputs.tensors)
        if len(kept) != num_outputs:
            kind = "a result" if part == WHOLE else "a part"
            self.missing.append(f"{kind} of {name!r} with {num_outputs} outputs: it has {len(kept)} in the history")
            return None
        identities = [of_result(recorded.identity, at, (), part) for at in range(num_outputs)]
        return tuple([self._tensor(each, identities[at], action, at) for at, each in enumerate(kept)])

    def go_on(self, now_ns: int) -> list[Following]:
        """Returns what comes of the calls that read streams, now that nothing else happens any longer."""
        undecided = [played for played in self._playing.values() if played.recorded is None and not played.is_over]
        return [following for played in undecided for following in self._go_on(played, now_ns, waits=False)]

    def _go_on(self, played: PlayedCall, now_ns: int, *, waits: bool = True) -> list[Following]:
        """Returns what comes of a call that reads or yields streams, now that something has come to it."""
        action = played.action
        played.choose(waits=waits)
        following: list[Following] = [
            (now_ns, InputPartsTaken("", action.batch_id, stream, num_taken)) for stream, num_taken in played.taken()
        ]
        if played.recorded is not None:
            following += self._play(played, played.recorded, now_ns)
        elif played.is_unknown:
            played.is_over = True
            self.missing.append(self._refusal_to_run(action.program))
        return following

    def _play(self, played: PlayedCall, recorded: RecordedCall, now_ns: int) -> Iterator[Following]:
        """Yields the parts that a call may send now, and its end."""
        action, call = played.action, recorded.call
        parts = call.parts or ()
        while played.num_sent < len(parts):
            if not played.may_send:
                return
            index = played.num_sent
            tensors = self._outputs(action, recorded, parts[index], index)
            if tensors is None:
                played.is_over = True
                return
            played.num_sent += 1
            yield played.next_ns((index + 1) / (len(parts) + 1), now_ns), BatchPart("", action.batch_id, index, tensors)
        if error := played.failure_passed_on() or call.error:
            played.is_over = True
            yield played.next_ns(1.0, now_ns), _failure(action, call, error)
        elif call.outputs is not None:
            played.is_over = True
            outputs = () if action.program.is_streaming else self._outputs(action, recorded, call.outputs)
            if outputs is not None:
                yield played.next_ns(1.0, now_ns), BatchDone("", action.batch_id, (outputs,), call.compute_ms / 1e3)

    def _run(self, action: DispatchBatch, now_ns: int) -> list[Following]:
        assert self._programs is not None
        self.has_run_programs = True
        operands = [self.read(tensor) for tensor in action.operands[0]]
        try:
            arrays, took_s = self._programs.run(action.program, operands, action.statics)
        except ProgramFailure as failure:
            return [(now_ns, failure.error.event("", action.batch_id))]
        outputs = tuple([inline(array) for array in arrays])
        return [(now_ns + round(took_s * 1e9), BatchDone("", action.batch_id, (outputs,), took_s))]

    def _made(self, placeholder: _Placeholder) -> Array:
        """Runs the call behind a placeholder."""
        action = placeholder.action
        if action is None:
            raise MissingValueError(f"the value of {placeholder.identity}, which is not in the history")
        name = _own_name(action.program)
        if self._programs is None or not (action.program.options.pure and _is_runnable(action.program)):
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


def _has_streams(program: Program) -> bool:
    """Returns whether a program reads or yields streams."""
    return program.is_streaming or bool(program.signature.streams)


def _is_runnable(program: Program) -> bool:
    """Returns whether one call of a program can be made here: it needs nothing but arrays, and makes nothing else."""
    signature = program.signature
    return not (_has_streams(program) or signature.takes_residents or signature.outputs.has_residents)


def _failure(action: DispatchBatch, call: HistoryCall, error: tuple[str, ...]) -> BatchFailed:
    error_type, message = error
    input_at = -1 if error_type else next((at for at, source in enumerate(call.arguments) if source.call == INPUT), -1)
    return BatchFailed("", action.batch_id, error_type, message, input_at=input_at)
