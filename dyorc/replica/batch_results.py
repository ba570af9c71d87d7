"""What comes of a batch: its results, or the error of its program."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from dyorc.engine.events import BatchFailed
from dyorc.errors import InvalidInputError, bounded, text_of, traceback_of, type_name
from dyorc.replica.resident_table import ResidentRows
from dyorc.transport.column_codec import Rows

_MAX_TRACEBACK = 65_536
"""Characters of a traceback that are passed on."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of a batch: for each output, the arrays of its calls in order.

    Attributes:
        execute_s: Time in all.
        stack_s: The part of it spent on stacking inputs.
        split_s: The part of it spent on checking and splitting outputs.
    """

    outputs: Sequence[Rows | ResidentRows]
    execute_s: float
    stack_s: float = 0.0
    split_s: float = 0.0


class UnreadableInputError(InvalidInputError):
    """An input's bytes are not the structured value that the program declares, such as half of an image.

    Attributes:
        input_at: Index of the program's input.
    """

    def __init__(self, message: str, input_at: int = 0) -> None:
        super().__init__(message)
        self.input_at = input_at


@dataclass(frozen=True, slots=True)
class BatchError:
    """What a program raised. Not only an `Exception`: nothing that it raises ends the replica.

    Attributes:
        input_at: Index of the input that could not be read, before the program ran; -1: it was not that.
        is_out_of_device: Whether the program's device had no memory left.
    """

    error_type: str
    message: str
    traceback: str
    input_at: int = -1
    is_out_of_device: bool = False

    @classmethod
    def of(cls, error: BaseException) -> "BatchError":
        input_at = -1
        if type(error) is UnreadableInputError:  # an exception of the program may raise when `isinstance` looks at it
            input_at = error.input_at
        return cls(type_name(error), text_of(error), bounded(_traceback_of(error), _MAX_TRACEBACK), input_at)

    def event(self, replica_id: str, batch_id: int) -> BatchFailed:
        """Returns it as the engine learns of it, where the program runs in the engine's process."""
        return BatchFailed(replica_id, batch_id, self.error_type, self.message, self.traceback, input_at=self.input_at)


def _traceback_of(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # an exception may misbehave in any way
        return "".join(traceback.format_tb(traceback_of(error)))
