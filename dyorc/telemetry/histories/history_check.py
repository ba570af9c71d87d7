"""Checks a history that was read: a damaged line must be skipped where it is read, not fail halfway through a replay."""

from collections.abc import Iterator
from graphlib import TopologicalSorter

from dyorc.core.arrays import apply_views
from dyorc.errors import TransportError
from dyorc.telemetry.histories.history import CONSTANT, INPUT, KeptTensor, RequestHistory, TensorSource, index_of_json


def check_history(history: RequestHistory) -> None:
    """Checks that tensors are what they say, that each comes from a place that is there, and that no call needs its own result.

    Raises:
        ValueError: If not.
    """
    try:
        for tensor in _tensors_of(history):
            tensor.array()
        for source in _sources_of(history):
            _check_source(history, source)
    except (TransportError, IndexError, TypeError) as error:
        raise ValueError(str(error)) from error
    makers = {at: [source.call for source in call.arguments if source.call >= 0] for at, call in enumerate(history.calls)}
    TopologicalSorter(makers).prepare()


def _tensors_of(history: RequestHistory) -> Iterator[KeptTensor]:
    yield from history.inputs.values()
    yield from history.constants
    for call in history.calls:
        yield from call.outputs or ()


def _sources_of(history: RequestHistory) -> Iterator[TensorSource]:
    for call in history.calls:
        yield from call.arguments
    for decision in history.decisions:
        yield from decision.subject
    yield from history.answer


def _check_source(history: RequestHistory, source: TensorSource) -> None:
    """Checks that a tensor is there, and can be seen through its views. Raises ValueError, IndexError or TypeError."""
    if source.call == INPUT:
        tensors = list(history.inputs.values())
    elif source.call == CONSTANT:
        tensors = history.constants
    elif 0 <= source.call < len(history.calls):
        tensors = history.calls[source.call].outputs
    else:
        raise ValueError(f"a tensor comes from call {source.call}, and there are {len(history.calls)}")
    views = [index_of_json(view) for view in source.views]
    if tensors is None:
        return
    if not 0 <= source.field < len(tensors):
        raise ValueError(f"a tensor comes from place {source.field} of {len(tensors)}")
    array = tensors[source.field].array()
    if array is not None and views:
        apply_views(array, views)
