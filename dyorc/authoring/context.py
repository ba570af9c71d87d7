"""Which run of a workflow is executing now.

A call of a program inside a workflow has to reach the engine that steps it. The engine sets the recorder around each step.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from dyorc.authoring.signature import StaticValue
from dyorc.errors import InvalidInputError, WorkflowError

if TYPE_CHECKING:
    from dyorc.authoring.program import Program
    from dyorc.authoring.ref import Ref
    from dyorc.authoring.workflow import Workflow


class Recorder(Protocol):
    """Records what a workflow asks for while it is being stepped."""

    def call(self, callee: "Program | Workflow", tensors: Sequence[Any], statics: tuple[StaticValue, ...]) -> "Ref":
        """Records a call. `tensors` are Refs, or values to be turned into tensors."""
        ...

    def mistake(self, error: InvalidInputError) -> WorkflowError:
        """Returns the workflow's own error for a call that it makes with arguments that do not fit."""
        ...


current_recorder: ContextVar[Recorder | None] = ContextVar("dyorc_recorder", default=None)


def record(recorder: Recorder, callee: "Program | Workflow", args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Ref":
    """Records a call that a workflow's code makes.

    Raises:
        WorkflowError: If the arguments do not fit. That is no fault of the request's, whose inputs were checked before.
    """
    try:
        tensors, statics = callee.signature.bind(args, kwargs)
        return recorder.call(callee, tensors, statics)
    except InvalidInputError as error:
        raise recorder.mistake(error) from None
