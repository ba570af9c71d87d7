"""The coroutine of a run: how it is opened and closed, where in the user's file it stands, and what its errors hold on to."""

import contextlib
import sys
from collections.abc import Coroutine, Sequence
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType
from typing import Any

from dyorc.authoring.decisions import DecisionSite
from dyorc.authoring.signature import StaticValue, StreamSpec
from dyorc.authoring.spec import TensorSpec
from dyorc.authoring.stream import Stream
from dyorc.authoring.workflow import Workflow
from dyorc.engine.model.journal import last_line
from dyorc.engine.model.part_list import StreamArgument
from dyorc.engine.model.request_tree import Task
from dyorc.engine.tasks.generators import MAX_REFUSALS, Generating


def open_coroutine(task: Task, inputs: Sequence[Any]) -> "Coroutine[Any, Any, Any] | Generating":
    """Returns the coroutine of a run, at its start.

    Args:
        inputs: What its code gets for the inputs of its signature.
    """
    opened = _call(task.callee, inputs, task.statics, task.streams)
    return Generating(opened) if isinstance(opened, AsyncGeneratorType) else opened


def _call(workflow: Workflow, inputs: Sequence[Any], statics: Sequence[StaticValue], streams: Sequence[StreamArgument]) -> Any:
    num_by_name = workflow.function.__code__.co_kwonlyargcount
    if not statics and not streams and not num_by_name:
        return workflow.function(*inputs)
    tensors, values, lists = iter(inputs), iter(statics), iter(streams)
    arguments: dict[str, Any] = {}
    for parameter in workflow.signature.parameters:
        if isinstance(parameter, StreamSpec):
            arguments[parameter.name] = Stream(next(lists).parts, parameter.outputs)
        else:
            arguments[parameter.name] = next(tensors if isinstance(parameter, TensorSpec) else values)
    named = {name: arguments.pop(name) for name in list(arguments)[len(arguments) - num_by_name :]}
    return workflow.function(*arguments.values(), **named)


def close_coroutine(coroutine: Any) -> None:
    """Ends a coroutine, if there is one: its ``finally`` blocks run, up to the first thing that each awaits. Errors are ignored.

    One that awaits something while it is closed stays suspended. Left so, Python would run the rest when it collects the
    coroutine, perhaps amid another run, which would then record the calls of this one.
    """
    if coroutine is None:
        return
    for _ in range(MAX_REFUSALS):
        with contextlib.suppress(BaseException):
            coroutine.close()
        if coroutine.cr_frame is None:
            return


def line_of(error: BaseException, coroutine: Any, workflow: Workflow) -> str:
    """Returns the last line of the user's file that an exception passed through, else where the coroutine stands."""
    code = workflow.function.__code__
    line = last_line(error, code)
    return str(DecisionSite(code, line)) if line else current_line(coroutine, workflow)


def current_line(coroutine: Any, workflow: Workflow) -> str:
    """Returns where a workflow's coroutine stands, as deep as the user's file goes; its first line without a coroutine."""
    deepest = coroutine
    code = workflow.function.__code__
    if deepest is None:
        return str(DecisionSite(code, code.co_firstlineno))
    file = code.co_filename
    if deepest.cr_running:
        return _running_line(file, deepest.cr_code)
    while isinstance(deepest.cr_await, CoroutineType) and deepest.cr_await.cr_code.co_filename == file:
        deepest = deepest.cr_await
    frame = deepest.cr_frame
    line = frame.f_lineno if frame is not None else deepest.cr_code.co_firstlineno
    return str(DecisionSite(deepest.cr_code, line))


def _running_line(file: str, code: CodeType) -> str:
    """Returns the innermost line of a file on this thread's stack; without one, as on another thread, the first line of `code`.

    Of a coroutine that is running, `cr_await` must not be read: CPython 3.11 looks for it on the stack of a frame that changes.
    """
    frame: FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage] (the nearest frame of Python, if this is compiled)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return str(DecisionSite(code, code.co_firstlineno) if frame is None else DecisionSite(frame.f_code, frame.f_lineno))


_TRACEBACK, _CAUSE, _CONTEXT = (BaseException.__dict__[name] for name in ("__traceback__", "__cause__", "__context__"))
"""Attributes of exceptions as Python has them: a class of the user's is not asked, which might raise."""


def forget_frames(error: BaseException) -> None:
    """Cuts a cycle that only the garbage collector would find: frames hold a run's values, which may hold the error."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            _TRACEBACK.__set__(current, None)
            pending += (_CAUSE.__get__(current), _CONTEXT.__get__(current))
