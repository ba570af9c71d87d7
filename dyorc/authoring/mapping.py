"""`dyorc.map`: one call of a program or workflow for each item, made together."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from dyorc.authoring.context import current_recorder
from dyorc.authoring.program import Program
from dyorc.authoring.ref import Ref
from dyorc.authoring.spec import TensorSpec
from dyorc.authoring.stream import Stream
from dyorc.authoring.workflow import Workflow
from dyorc.errors import InvalidInputError

_NONE_LEFT = object()


def map_calls(callee: Program | Workflow, /, *items: Iterable[Any], **shared: Any) -> list[Any]:
    """Calls a program or workflow once for each item; does not wait: ``lines = dyorc.map(read, [page[box] for box in boxes])``.

    It is the list ``[callee(item, **shared) for item in items]``, and costs less: what the calls share is looked at once. Items
    of an iterator are taken one by one as their calls are made, as in that list: it may use the same array for each.

    Args:
        items: A Ref, an array or another value for each call. An array gives its rows. With several iterables, a call gets one
            item of each, and they have to be equally long.
        shared: Arguments that all calls get, by name, as they are: a list or an array is not split.

    Returns:
        For each item a `Ref`, in their order; a `Stream`, if the callee yields.

    Raises:
        RuntimeError: If no workflow is running.
        TypeError: If it is given something else to call.
        WorkflowError: If items cannot be gone through, are not equally many, or do not fit. Calls for the items before one that
            does not fit have been made. An item of a wrong type or shape fails its own call.
        WorkflowLimitError: If there are more items than a request may make calls.
    """
    if not isinstance(callee, Program | Workflow):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"dyorc.map calls a program or a workflow, got {type(callee).__name__} {callee!r}")
    recorder = current_recorder.get()
    if recorder is None:
        raise RuntimeError(f"dyorc.map({callee.name}, ...) was called outside a workflow; run one with dyorc.run(workflow, ...)")
    try:
        _check_items(callee, items)
        signature = callee.signature
        num_items = len(items)
        are_tensors = len(signature.parameters) >= num_items and not signature.streams
        are_tensors = are_tensors and all(isinstance(each, TensorSpec) for each in signature.parameters[:num_items])
        rows = _rows_of(callee, items) if all(map(_is_whole, items)) else _drawn(callee, items)
        if are_tensors and isinstance(rows, list) and rows:
            tensors, statics, _ = signature.bind_call(rows[0], shared)
            rest = tensors[num_items:]
            return recorder.call_all(callee, [(*row, *rest) for row in rows] if rest else rows, statics)
        return [recorder.call(callee, *signature.bind_call(row, shared)) for row in rows]
    except InvalidInputError as error:
        raise recorder.mistake(error) from None


def _check_items(callee: Program | Workflow, items: tuple[Iterable[Any], ...]) -> None:
    """Raises InvalidInputError if there are no items to go through."""
    if not items:
        raise InvalidInputError(f"dyorc.map of {callee!r}: no items were given; expected an iterable with an item for each call")
    for at, given in enumerate(items):
        if isinstance(given, Ref | Stream):
            instead = "await it, or pass a list of its rows, as [ref[at] for at in range(num_rows)]"
            raise InvalidInputError(
                f"dyorc.map of {callee!r}: items {at} are of type {type(given).__name__}, expected a list; {instead}"
            )
        try:
            iter(given)
        except TypeError:
            raise InvalidInputError(
                f"dyorc.map of {callee!r}: items {at} are of type {type(given).__name__}, expected a list, or an array with rows"
            ) from None


def _is_whole(given: Iterable[Any]) -> bool:
    """Returns whether items are all there, and stay what they are while calls are made."""
    return isinstance(given, list | tuple) or hasattr(given, "__array__")


def _rows_of(callee: Program | Workflow, items: tuple[Iterable[Any], ...]) -> list[tuple[Any, ...]]:
    """Returns the items of each call.

    Raises:
        InvalidInputError: If there are not equally many.
    """
    columns = [list(given) for given in items]
    numbers = [len(column) for column in columns]
    if len(set(numbers)) > 1:
        raise InvalidInputError(f"dyorc.map of {callee!r}: there are {numbers} items, expected equally many of each")
    return list(zip(*columns, strict=True))


def _drawn(callee: Program | Workflow, items: tuple[Iterable[Any], ...]) -> Iterator[tuple[Any, ...]]:
    """Yields the items of each call, taken one by one.

    Raises:
        InvalidInputError: If there are not equally many.
    """
    for number, row in enumerate(zip_longest(*items, fillvalue=_NONE_LEFT)):
        if any(item is _NONE_LEFT for item in row):
            ended = [at for at, item in enumerate(row) if item is _NONE_LEFT]
            raise InvalidInputError(
                f"dyorc.map of {callee!r}: of items {ended} there are only {number}, of others more; expected equally many"
            )
        yield row
