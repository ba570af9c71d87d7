"""Which run of a workflow is executing now.

A call of a program inside a workflow has to reach the engine that steps it. The engine sets the recorder around each step.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from dyorc.authoring.signature import StaticValue
from dyorc.errors import InvalidInputError, WorkflowError

if TYPE_CHECKING:
    from dyorc.authoring.program import Program
    from dyorc.authoring.ref import Ref
    from dyorc.authoring.workflow import Workflow


class CallRecorder(Protocol):
    """Records what a workflow asks for while it is being stepped."""

    def call(self, callee: "Program | Workflow", tensors: Sequence[Any], statics: tuple[StaticValue, ...]) -> "Ref":
        """Records a call. `tensors` are Refs, or values to be turned into tensors."""
        ...

    def mistake(self, error: InvalidInputError) -> WorkflowError:
        """Returns the workflow's own error for a call that it makes with arguments that do not fit: that is no fault of the
        request's, whose inputs were checked before."""
        ...


current_recorder: ContextVar[CallRecorder | None] = ContextVar("dyorc_recorder", default=None)
