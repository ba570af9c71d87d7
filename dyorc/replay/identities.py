"""What makes two calls of two versions the same: their program and equal arguments.

A tensor whose bytes a history holds is known by their digest. Any other is known by where it comes from: an input by its name,
a result by its call, and that by its program and arguments, and so on.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from dyorc.core.arrays import Array, apply_views
from dyorc.telemetry.histories.history import (
    CONSTANT,
    INPUT,
    KeptTensor,
    RequestHistory,
    TensorSource,
    digest_of,
    index_of_json,
)


class Identities:
    """The identities of the tensors and calls of one history: texts that are equal for equal ones, also in other histories."""

    def __init__(self, history: RequestHistory) -> None:
        self._history = history
        self._names = list(history.inputs)
        self._calls: dict[int, str] = {}

    def of(self, source: TensorSource) -> str:
        """Returns the identity of a tensor."""
        array = self.array(source)
        if array is not None:
            return digest_of(array)
        if source.call == INPUT:
            return of_input(self._names[source.field], source.views)
        if source.call == CONSTANT:
            return f"{self._kept(source).digest}{list(source.views) or ''}"
        return of_result(self.of_call(source.call), source.field, source.views)

    def of_call(self, number: int) -> str:
        """Returns the identity of a call, by its number."""
        identity = self._calls.get(number)
        if identity is None:
            call = self._history.calls[number]
            identity = self._calls[number] = of_call(call.program, call.statics, [self.of(source) for source in call.arguments])
        return identity

    def array(self, source: TensorSource) -> Array | None:
        """Returns a tensor; None if its bytes are not in the history."""
        array = self._kept(source).array()
        if array is None or not source.views:
            return array
        return apply_views(array, [index_of_json(view) for view in source.views])

    def _kept(self, source: TensorSource) -> KeptTensor:
        if source.call == INPUT:
            return self._history.inputs[self._names[source.field]]
        if source.call == CONSTANT:
            return self._history.constants[source.field]
        outputs = self._history.calls[source.call].outputs
        return KeptTensor("", ()) if outputs is None else outputs[source.field]


def of_call(program: str, statics: str, arguments: Sequence[str]) -> str:
    """Returns the identity of a call.

    Args:
        statics: The digest of its static parameters.
        arguments: The identities of its tensors.
    """
    text = " ".join([program, statics, *arguments])
    return f"{program} {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


def of_input(name: str, views: Sequence[Any]) -> str:
    """Returns the identity of an input without bytes, seen through views as JSON."""
    return f"input {name}{list(views) or ''}"


def of_result(call: str, field: int, views: Sequence[Any]) -> str:
    """Returns the identity of an output without bytes of a call."""
    return f"{call}.{field}{list(views) or ''}"
