"""A workflow evaluated at once, call by call, without engine, queues or time: the answer that every policy must give.

So the oracle knows outcomes in advance: it evaluates what a decision depends on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dyorc.authoring.context import current_recorder
from dyorc.authoring.decisions import Decision, Gather
from dyorc.authoring.program import Program
from dyorc.authoring.ref import Ref
from dyorc.authoring.signature import StaticValue, StreamSpec
from dyorc.authoring.spec import TensorSpec
from dyorc.authoring.stream import END_OF_STREAM, NextPart, Stream
from dyorc.authoring.workflow import Workflow
from dyorc.core.arrays import apply_views, as_value, inline
from dyorc.core.request import RequestInfo
from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.guessing.prediction import Distribution
from dyorc.engine.model.futures import Argument, Future, FutureState, Outcome
from dyorc.engine.model.journal import Context
from dyorc.engine.model.part_list import Cell
from dyorc.engine.model.program_call import Call
from dyorc.engine.tasks.generators import Generating, Yielded
from dyorc.errors import DyOrcError, InternalError, InvalidInputError, WorkflowError
from dyorc.simulation.value_draws import Value, draw_parts, value_of


@dataclass(frozen=True)
class Evaluation:
    """A request, from its end.

    Attributes:
        answers: What its workflow returns: one value, or one per part.
        calls: Program and output of each call it made, in order.
    """

    answers: tuple[Value, ...]
    calls: list[tuple[Program, Value]]

    @property
    def answer(self) -> Value:
        """The answer of a workflow that does not stream."""
        return self.answers[0]


@dataclass(frozen=True)
class _PlainRun:
    """Answers each call as it is made."""

    calls: list[tuple[Program, Value]] = field(default_factory=list[tuple[Program, Value]])

    def call(
        self, callee: Program | Workflow, tensors: Sequence[Any], statics: tuple[StaticValue, ...], streams: Sequence[Any] = ()
    ) -> Ref | Stream:
        values = [as_operand(_look(value) if isinstance(value, Ref) else value) for value in tensors]
        outputs = callee.signature.outputs
        if not isinstance(callee, Program):
            results = self.evaluate(callee, values, statics, streams)
        elif streams:
            results = self._read(callee, values, streams)
        elif callee.is_streaming:
            results = tuple(draw_parts(callee.name, float(values[0]), callee.options.max_parts))
        else:
            results = (value_of(callee, values),)
        if isinstance(callee, Program):
            self.calls.extend([(callee, result) for result in results[:1]])
        refs = [Ref(Future.ready(None, *[tensor_of(value)] * len(outputs.tensors)), outputs) for value in results]
        return Stream(refs, outputs) if callee.is_streaming else refs[0]

    def call_all(
        self, callee: Program | Workflow, rows: Sequence[Sequence[Any]], statics: tuple[StaticValue, ...]
    ) -> list[Ref | Stream]:
        return [self.call(callee, row, statics) for row in rows]

    @staticmethod
    def _read(program: Program, values: Sequence[Value], streams: Sequence[Stream]) -> tuple[Value, ...]:
        """Returns what a program yields for each part of the stream that it reads, or returns after the last."""
        (stream,) = streams
        parts = [as_operand(_look(part)) for part in stream.parts]
        if program.is_streaming:
            return tuple([value_of(program, [part, *values]) for part in parts])
        return (value_of(program, [*parts, *values]),)

    def request_info(self) -> RequestInfo:
        """Returns a request without an id or anything else."""
        return RequestInfo()

    def mistake(self, error: InvalidInputError) -> WorkflowError:
        """Returns the workflow's own error."""
        return WorkflowError(str(error))

    def evaluate(
        self, workflow: Workflow, values: Sequence[Value], statics: Sequence[StaticValue], streams: Sequence[Stream] = ()
    ) -> tuple[Value, ...]:
        """Steps a workflow from its start to its end. Returns its result, or its parts."""
        signature = workflow.signature
        tensors, rest, read = iter(values), iter(statics), iter(streams)
        arguments: list[Any] = [
            Ref(Future.ready(None, tensor_of(next(tensors))), signature.input_group, 0)
            if isinstance(spec, TensorSpec)
            else next(read if isinstance(spec, StreamSpec) else rest)
            for spec in signature.parameters
        ]
        opened: Any = workflow.function(*arguments)
        coroutine = Generating(opened) if workflow.is_streaming else opened
        parts: list[Value] = []
        wanted = None
        try:
            while True:
                wanted = coroutine.send(None if wanted is None else _reply(wanted))
                if isinstance(wanted, Yielded):
                    parts.append(_value_of(wanted.value))
                    wanted = None
        except StopIteration as stop:
            return tuple(parts) if workflow.is_streaming else (_value_of(stop.value),)


def evaluate(workflow: Workflow, values: Sequence[Value], statics: Sequence[StaticValue] = ()) -> Evaluation:
    """Evaluates a workflow of simulated programs, which return one tensor each."""
    run = _PlainRun()
    token = current_recorder.set(run)
    try:
        return Evaluation(run.evaluate(workflow, values, statics), run.calls)
    finally:
        current_recorder.reset(token)


def as_operand(value: Any) -> Value:
    """Returns a value in the form that `value_of` takes."""
    return value if getattr(value, "ndim", 0) else float(value)


def operand_of(tensor: TensorRef) -> Value:
    """Returns the value of a tensor that carries its data, in the form that `value_of` takes."""
    data = apply_views(tensor.data, tensor.views) if tensor.views else tensor.data
    return as_operand(data)


def tensor_of(value: Value) -> TensorRef:
    """Returns a tensor that carries `value`."""
    if isinstance(value, np.ndarray):
        return inline(value)
    return TensorRef(dtype=DType.FP64, shape=(), num_bytes=8, data=np.float64(value))


def _reply(wanted: Any) -> Any:
    match wanted:
        case Ref():
            return _look(wanted)
        case Gather(refs=refs):
            return [_look(ref) for ref in refs]
        case NextPart(parts=parts, index=index):
            return parts[index] if index < len(parts) else END_OF_STREAM
        case Decision():
            outcome: Any = wanted.decide([_look(ref) for ref in wanted.refs])
            return outcome if wanted.is_single else list(outcome)
        case _:
            raise InternalError(f"a simulated workflow awaits a {type(wanted).__name__}")


def _value_of(result: Any) -> Value:
    """Returns the value of what a workflow returned or yielded."""
    return as_operand(_look(result) if isinstance(result, Ref) else result)


def _look(ref: Ref) -> Any:
    array = ref.future.array(ref.field)
    return as_value(apply_views(array, ref.views) if ref.views else array)


_MAX_KNOWN = 10_000
"""How many values an oracle keeps."""


class OraclePredictor:
    """An engine's `Predictor` that knows every outcome in advance, since the output of a simulated call follows from its inputs.

    It can serve any number of engines. Cost: one evaluation of each pending call that the decision depends on. Values are kept
    for later decisions: a loop that is guessed far ahead asks for the same calls at each turn.
    """

    def __init__(self) -> None:
        self._known: dict[Future, Value] = {}

    def predict(self, decision: Decision, context: Context) -> Distribution:
        outcome = self.outcome(decision)
        return {} if outcome is None else {outcome[0]: 1.0}

    def observe(self, decision: Decision, context: Context, outcome: Outcome) -> None:
        """Does nothing: there is nothing to learn."""

    def outcome(self, decision: Decision) -> tuple[Outcome] | None:
        """Returns the outcome of `decision` in a tuple, since it may be None; None if it cannot be known, or will be an error."""
        seen: list[Any] = []
        for ref in decision.refs:
            value = self.value(ref.future)
            if value is None:
                return None
            array = apply_views(value, ref.views) if ref.views else value  # pyright: ignore[reportArgumentType]
            seen.append(as_value(array))
        try:
            return (decision.decide(seen),)
        except DyOrcError:
            return None

    def value(self, future: Future) -> Value | None:
        """Returns what a future holds, or will hold; None if that cannot be known.

        Simulated programs and workflows return one number; residents beside it hold the same.
        """
        if future.state is FutureState.FAILED:
            return None
        if future.is_at_hand:
            return as_operand(future.array(0))
        if (known := self._known.get(future)) is not None:
            return known
        producer = future.producer
        if producer is None or producer.streams or isinstance(future, Cell):
            return None
        operands: list[Value] = []
        for argument in producer.arguments:
            operand = self._operand(argument)
            if operand is None:
                return None
            operands.append(operand)
        if isinstance(producer, Call):
            value = value_of(producer.callee, operands)
        else:
            value = evaluate(producer.callee, operands, producer.statics).answer
        if value is not None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[future] = value
        return value

    def _operand(self, argument: Argument) -> Value | None:
        value = self.value(argument.future)
        if value is None or not argument.views:
            return value
        return as_operand(apply_views(value, argument.views))  # pyright: ignore[reportArgumentType]
