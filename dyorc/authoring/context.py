"""Which run of a workflow is executing now.

A call of a program inside a workflow has to reach the engine that steps it. The engine sets the recorder around each step.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from dyorc.authoring.signature import Signature, StaticValue
from dyorc.core.request import RequestInfo
from dyorc.errors import InvalidInputError, WorkflowError


class Callee(Protocol):
    """A program or workflow, as far as recording a call needs it."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...


class CallRecorder(Protocol):
    """Records the calls that a workflow makes while it is being stepped."""

    def call(self, callee: Any, tensors: Sequence[Any], statics: tuple[StaticValue, ...], streams: Sequence[Any] = ()) -> Any:
        """Records a call of a program or workflow, and returns its Ref, or its Stream if it yields.

        Args:
            tensors: Refs, or values to convert to tensors.
            streams: What is passed for parameters that are streams.
        """
        ...

    def call_all(self, callee: Any, rows: Sequence[Sequence[Any]], statics: tuple[StaticValue, ...]) -> list[Any]:
        """Records calls that take no streams, each with the tensors of a row, and returns what `call` does for each."""
        ...

    def request_info(self) -> RequestInfo:
        """Returns the request for which the workflow runs."""
        ...

    def mistake(self, error: InvalidInputError) -> WorkflowError:
        """Returns the workflow's own error for a call with arguments that do not fit. The request is not at fault: its inputs
        were checked before."""
        ...


current_recorder: ContextVar[CallRecorder | None] = ContextVar("dyorc_recorder", default=None)


def record_call(kind: str, callee: Callee, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Records a call made by the running workflow; does not wait for the result.

    Args:
        kind: "program" or "workflow", for the error's text.

    Raises:
        RuntimeError: If no workflow is running.
        WorkflowError: If the arguments do not fit.
    """
    recorder = current_recorder.get()
    if recorder is None:
        raise RuntimeError(f"{kind} {callee.name!r} was called outside a workflow; run it with dyorc.run({callee.name}, ...)")
    try:
        if not kwargs and len(args) == callee.signature.num_by_place:  # most calls: nothing is to be sorted
            return recorder.call(callee, args, ())
        tensors, statics, streams = callee.signature.bind_call(args, kwargs)
        return recorder.call(callee, tensors, statics, streams)
    except InvalidInputError as error:
        raise recorder.mistake(error) from None
