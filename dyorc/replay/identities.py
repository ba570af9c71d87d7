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
    HistoryCall,
    KeptTensor,
    RequestHistory,
    TensorSource,
    digest_of,
    index_of_json,
)

_NOTHING = KeptTensor("", ())


class Identities:
    """The identities of the tensors and calls of one history: texts that are equal for equal ones, also in other histories.

    Args:
        recorded: Those of the history that was replayed, if this one is of its replay. Whether a result is known by its bytes
            depends on that history: here it may be missing, since the call was not needed any longer, or be there, since the
            workflow had it made again.
    """

    def __init__(self, history: RequestHistory, recorded: "Identities | None" = None) -> None:
        self._history = history
        self._recorded = recorded
        self._names = list(history.inputs)
        self._calls: dict[int, str] = {}
        self._outputs: dict[str, tuple[KeptTensor, ...]] | None = None

    def of(self, source: TensorSource) -> str:
        """Returns the identity of a tensor."""
        kept = self._kept(source)
        if self._recorded is not None and source.call >= 0:
            theirs = self._recorded.output_of(self.of_call(source.call), source.field)
            if theirs is not None and (kept is _NOTHING or theirs.data is None):
                kept = theirs
        array = _seen_through(kept, source)
        if array is not None:
            return digest_of(array)
        if source.call == INPUT:
            return of_input(self._names[source.field], source.views)
        if source.call == CONSTANT:
            return f"{kept.digest}{shown_views(source.views)}"
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
        return _seen_through(self._kept(source), source)

    def output_of(self, call: str, field: int) -> KeptTensor | None:
        """Returns an output of the first call with this identity that has a result; None if there is none."""
        outputs = self.outputs_of(call)
        return None if outputs is None else outputs[field]

    def outputs_of(self, call: str) -> tuple[KeptTensor, ...] | None:
        """Returns the outputs of the first call with this identity that has a result; None if there is none."""
        if self._outputs is None:
            self._outputs = {}
            for number, made in enumerate(self._history.calls):
                if made.outputs is not None:
                    self._outputs.setdefault(self.of_call(number), made.outputs)
        return self._outputs.get(call)

    def _kept(self, source: TensorSource) -> KeptTensor:
        if source.call == INPUT:
            return self._history.inputs[self._names[source.field]]
        if source.call == CONSTANT:
            return self._history.constants[source.field]
        outputs = self._history.calls[source.call].outputs
        return _NOTHING if outputs is None else outputs[source.field]


def complete(history: RequestHistory) -> None:
    """Gives calls without a result, since they were not needed any longer, that of an equal call that has one."""
    while any(_lacks_result(call) for call in history.calls):
        identities, is_changed = Identities(history), False
        for number, call in enumerate(history.calls):
            if _lacks_result(call):
                outputs = identities.outputs_of(identities.of_call(number))
                if outputs is not None:
                    call.outputs, is_changed = outputs, True
        if not is_changed:
            return


def _lacks_result(call: HistoryCall) -> bool:
    return call.outputs is None and not call.error and not call.is_effect


def _seen_through(kept: KeptTensor, source: TensorSource) -> Array | None:
    """Returns a tensor through the views of a source; None without its bytes."""
    array = kept.array()
    if array is None or not source.views:
        return array
    return apply_views(array, [index_of_json(view) for view in source.views])


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
    return f"input {name}{shown_views(views)}"


def of_result(call: str, field: int, views: Sequence[Any]) -> str:
    """Returns the identity of an output without bytes of a call."""
    return f"{call}.{field}{shown_views(views)}"


def shown_views(views: Sequence[Any]) -> str:
    """Returns views as part of an identity; empty for views of the whole, as ``x[:]`` and ``x[..., :]``.

    The shape is not always known, so ``x[0:3]`` of three rows counts as a part.

    Args:
        views: As JSON.
    """
    parts = [part for part in map(_without_wholes, views) if part]
    return str(parts) if parts else ""


def _without_wholes(view: list[Any]) -> list[Any]:
    """Returns a view without the dimensions at its end that it takes whole."""
    end = len(view)
    while end and (view[end - 1] == "..." or _is_whole(view[end - 1])):
        end -= 1
    return view if "..." in view[:end] else view[:end]  # ``x[..., 0, :]`` means the last dimension but one


def _is_whole(item: Any) -> bool:
    return isinstance(item, list) and item[0] in (None, 0) and item[1] is None and item[2] in (None, 1)
