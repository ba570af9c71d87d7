"""`dyorc.run`: a workflow in this process, without server, Ray or sockets.

The same engine decides; programs run here, one batch at a time, and those that wait or yield on their own threads. For notebooks,
unit tests and a first try.
"""

import secrets
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow, of_program
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.arrays import apply_views, inline
from dyorc.core.request import NO_DEADLINE_NS, RequestFacts, Terms
from dyorc.core.tensor import DType, TensorRef
from dyorc.engine.actions import (
    Action,
    AnswerPart,
    AnswerRequest,
    CancelBatch,
    DispatchBatch,
    EffectFailed,
    FailRequest,
    FeedPart,
    GrantParts,
    ReleaseTensors,
    SetTimer,
)
from dyorc.engine.engine import Engine
from dyorc.engine.events import (
    BatchDone,
    BatchFailed,
    Event,
    PartTaken,
    ReplicaJoined,
    RequestArrived,
    RequestCancelled,
    TimerFired,
)
from dyorc.engine.model.tree_walks import queued_programs
from dyorc.engine.tasks.generators import close_generator
from dyorc.errors import InternalError, WorkflowError
from dyorc.local_calls import LocalCalls
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.resident_bytes import fingerprint
from dyorc.replica.resident_table import ResidentRows, ResidentTable
from dyorc.system.handler_exceptions import HandlerExceptions

_CONFIG = EngineConfig(hold=False, max_untaken_parts=1, speculation=SpeculationConfig(enabled=False))
"""One batch at a time: a guess would only delay. And no part before the previous one was read."""
_PROCESS = "here"
"""The name of this process, for residents: all programs of a `run` share it."""
_executors: WeakKeyDictionary[Program, ProgramExecutor] = WeakKeyDictionary()
_loading = threading.RLock()  # a program may run another one while it loads


def run(workflow: Workflow | Program, *args: Any, **kwargs: Any) -> Any:
    """Runs a workflow (or a single program on one item) and returns its result.

    Programs are loaded when they are first called, and kept for the next `run`. When this returns, programs with an effect have
    run, awaited or not; if one of these fails, there is a RuntimeWarning where a server logs it. There is one, too, if a program
    changed a resident that it does not declare `Consumed`, which a server does not notice.

    Args:
        args: Tensors as NumPy arrays, torch tensors or lists; numbers and texts for static parameters.

    Returns:
        NumPy, grouped as the workflow declares: an array, a tuple, a dict or a dataclass. A tensor of rank 0 is a
        NumPy number or `bytes`. For a streaming workflow, an iterator over its parts, each grouped so; the workflow runs only as
        far as the iterator is consumed. Close the iterator if you stop early.

    Raises:
        InvalidInputError: If an input is not what the workflow declares.
        ExecutionError: If a program or the workflow's own code raises anything, or if nothing can go on; if a program that waits
            or yields does neither within its `execution_timeout_s`.
        BaseException: What a signal handler raises meanwhile, as it is, wherever it strikes, and even if a program catches it:
            KeyboardInterrupt of Ctrl-C, or your own. A handler that a program sets while it runs is the program's own affair.
    """
    if isinstance(workflow, Program):
        workflow = of_program(workflow)
    if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance] -- a mistake that people make
        raise TypeError(f"dyorc.run got {workflow!r}, expected a workflow or a program (the class of a program is called first)")
    signature = workflow.signature
    values, statics = signature.bind(args, kwargs)
    inputs = tuple(
        inline(spec.array_of(value, f"{signature.owner}: {spec.name!r}"))
        for spec, value in zip(signature.inputs, values, strict=True)
    )
    signature.check_inputs(inputs)
    signature.check_contents([tensor.data for tensor in inputs])
    terms, facts = Terms(deadline_ns=NO_DEADLINE_NS), partial(RequestFacts, f"run-{secrets.token_hex(4)}")
    handlers = HandlerExceptions()
    answers = _answers(workflow, RequestArrived(1, workflow, inputs, statics, terms, facts=facts), handlers)
    if workflow.is_streaming:
        return _parts(answers, handlers)
    with handlers:
        return next(answers)


def _parts(answers: Generator[Any], handlers: HandlerExceptions) -> Generator[Any]:
    """Yields the parts of a stream. What signal handlers raise between two of them is the caller's affair."""
    try:
        while True:
            with handlers:
                try:
                    part = next(answers)
                except StopIteration:
                    return
            yield part
    finally:
        with handlers:
            answers.close()


def _handle(engine: Engine, events: Sequence[Event], now_ns: int) -> Sequence[Action]:
    """Lets the engine handle events. The generators of the workflow are not for the event loop that the caller may run in."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, close_generator)
    try:
        return engine.handle(events, now_ns)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _answers(workflow: Workflow, request: RequestArrived, handlers: HandlerExceptions) -> Generator[Any]:
    """Yields the request's parts on demand, or its one answer, grouped as the user declared, once its effects have happened.

    Args:
        handlers: Watched while this runs: programs and workflows may catch what a signal handler raises, and so does the engine,
            which takes it for an error of theirs.
    """

    def build(tensors: tuple[TensorRef, ...]) -> Any:
        outputs = workflow.signature.outputs
        arrays = [np.array(_array(tensor)) for tensor in tensors]
        return outputs.build(
            [spec.value_of(array, workflow.signature.owner) for spec, array in zip(outputs.tensors, arrays, strict=True)]
        )

    engine = Engine(_CONFIG, workflow.programs)
    residents = ResidentTable(_PROCESS)
    events: deque[Event] = deque(ReplicaJoined(program.name, program.name, process=_PROCESS) for program in workflow.programs)
    events.append(request)
    answer: AnswerRequest | FailRequest | None = None
    noticed: dict[str, None] = {}
    calls, stuck = LocalCalls(), ""
    clock_ns = count(time.monotonic_ns())  # hardly moves: `LocalCalls` limits time, since the caller may wait between parts
    now_ns = next(clock_ns)
    try:
        while batch := [*events, *(() if events else calls.wait())]:
            handlers.check()
            events.clear()
            actions = _handle(engine, batch, now_ns := next(clock_ns))
            handlers.check()
            for action in actions:
                match action:
                    case DispatchBatch(program=program) if program.style is CallStyle.PLAIN:
                        events.append(_execute(action, residents, noticed))
                        handlers.check()
                    case DispatchBatch():
                        calls.start(action)
                    case GrantParts() | CancelBatch() | FeedPart():
                        calls.control(action)
                    case ReleaseTensors(blocks=blocks):
                        residents.release(number for holder, number in blocks if holder == _PROCESS)
                    case AnswerPart(index=index, tensors=tensors):
                        yield build(tensors)
                        events.append(PartTaken(request.request_id, index))
                    case AnswerRequest() | FailRequest():
                        answer = action
                    case EffectFailed(callee=callee, error=error):
                        noticed[f"an effect of {callee!r} failed: {error}"] = None
                    case SetTimer(at_ns=at_ns) if at_ns <= now_ns:
                        events.append(TimerFired())
                    case _:
                        pass
        if calls.is_stuck:
            stuck = _describe_wait(workflow, engine, calls)
    finally:
        try:
            _handle(engine, [RequestCancelled(request.request_id)], next(clock_ns))  # ends a request that was left early
        finally:
            calls.close()
    for text in noticed:  # once all effects have happened: a warning may be an error
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    match answer:
        case AnswerRequest(tensors=tensors):
            if not workflow.is_streaming:
                yield build(tensors)
        case FailRequest(error=error):
            raise error
        case None if stuck:
            raise WorkflowError(stuck)
        case None:
            raise InternalError("the engine went to sleep with a request in flight")


def _describe_wait(workflow: Workflow, engine: Engine, calls: LocalCalls) -> str:
    """Returns what waits for what, when nothing can go on."""
    roots = [request.root for request in engine.tasks.requests.values() if request.root is not None]
    queued = sorted({name for root in roots for name in queued_programs(root)})
    limits = {program.name: program.max_ongoing for program in workflow.programs}
    texts = calls.waiting()
    texts += [f"a call of {name!r} waits until one has ended: max_ongoing is {limits.get(name, 1)}" for name in queued]
    return f"workflow {workflow.name!r} cannot go on, because everything waits: {'; '.join(texts)}"


def _execute(action: DispatchBatch, residents: ResidentTable, noticed: dict[str, None]) -> BatchDone | BatchFailed:
    """Runs a batch here and now. What it did wrong and nobody would see goes to `noticed`."""
    columns = [
        residents.read(column) if column[0].dtype is DType.RESIDENT else [_array(tensor) for tensor in column]
        for column in zip(*action.operands, strict=True)
    ]
    with _watching(action, columns, noticed):
        result = _executor(action.program).run(columns, action.statics, chain=action.chain, seen=action.seen)
    if isinstance(result, BatchError):
        return result.event(action.replica_id, action.batch_id)
    outputs = [
        residents.keep(rows, "") if isinstance(rows, ResidentRows) else [inline(np.array(row, order="C")) for row in rows]
        for rows in result.outputs
    ]
    return BatchDone(action.replica_id, action.batch_id, list(zip(*outputs, strict=True)), result.execute_s)


@contextmanager
def _watching(action: DispatchBatch, columns: Sequence[Sequence[Any]], noticed: dict[str, None]) -> Generator[None]:
    """Notices residents that a program changes though it does not consume them: other calls may read them, and on a server they
    would get the wrong state. A chain is rebuilt from none."""
    specs = () if action.chain else action.program.signature.inputs
    lent = {at: list(map(fingerprint, columns[at])) for at, spec in enumerate(specs) if spec.is_resident and not spec.is_consumed}
    yield
    for at, before in lent.items():
        if list(map(fingerprint, columns[at])) != before:
            text = (
                f"program {action.program.name!r} changed the resident {specs[at].name!r} that it was given, which others may "
                f"read; return another one, or declare dyorc.Resident[..., dyorc.Consumed]"
            )
            noticed[text] = None


def _executor(program: Program) -> ProgramExecutor:
    with _loading:
        if program not in _executors:
            _executors[program] = ProgramExecutor.load(program)
        return _executors[program]


def _array(tensor: TensorRef) -> Any:
    return apply_views(tensor.data, tensor.views)
