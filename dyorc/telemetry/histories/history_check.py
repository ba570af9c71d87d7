"""Checks a history that was read: a damaged line must be skipped where it is read, not fail halfway through a replay."""

import math
from collections.abc import Iterator
from graphlib import TopologicalSorter

import numpy as np

from dyorc.core.arrays import Array, apply_views, numpy_dtype
from dyorc.core.tensor import TENSOR_TYPES, DType, Index
from dyorc.errors import TransportError
from dyorc.protocol.raw import MAX_RANK, MAX_SIZE
from dyorc.telemetry.histories.history import (
    CONSTANT,
    INPUT,
    ROOT,
    WHOLE,
    HistoryCall,
    KeptTensor,
    RequestHistory,
    TensorSource,
    index_of_json,
)

_MAX_MS = 1e12
"""Of a time: 31 years. The replay adds them up in whole nanoseconds."""


def check_history(history: RequestHistory) -> None:
    """Checks that tensors are what they say, that each comes from a place that is there, that no call needs its own result, and
    that errors and times can be read.

    Raises:
        ValueError: If not.
    """
    try:
        _check(history)
    except (ValueError, TransportError, IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"the history is damaged: {error}") from error


def _check(history: RequestHistory) -> None:
    """Does the same. Raises any of the errors that a wrong tensor, index or call raises."""
    for tensor in _tensors_of(history):
        _array_like(tensor)
    for source in _sources_of(history):
        _check_source(history, source)
    makers = {at: [source.call for source in _sources_of_call(call) if source.call >= 0] for at, call in enumerate(history.calls)}
    TopologicalSorter(makers).prepare()
    for number, run in enumerate(history.nested):
        if not ROOT <= run.caller < number:
            raise ValueError(f"nested run {number} was called by run {run.caller}")
    made_by = [each.workflow for each in (*history.calls, *history.decisions)]
    for number in (*[each for each in made_by if each != ROOT], *[run for call in history.calls for run in call.results]):
        if not 0 <= number < len(history.nested):
            raise ValueError(f"something belongs to nested run {number}, and there are {len(history.nested)}")
    streams = [stream for call in history.calls for stream in call.streams]
    for error in (history.error, *[each.error for each in (*history.calls, *streams)]):
        if len(error) not in (0, 2):
            raise ValueError(f"an error has {len(error)} texts, expected 2")
    for duration_ms in (history.duration_ms, *[each for call in history.calls for each in (call.queue_ms, call.compute_ms)]):
        if not abs(duration_ms) <= _MAX_MS:
            raise ValueError(f"something took {duration_ms:g} ms")


def _tensors_of(history: RequestHistory) -> Iterator[KeptTensor]:
    yield from history.inputs.values()
    yield from history.constants
    for call in history.calls:
        yield from call.outputs or ()
        for part in call.parts or ():
            yield from part


def _sources_of(history: RequestHistory) -> Iterator[TensorSource]:
    for call in history.calls:
        yield from _sources_of_call(call)
    for run in history.nested:
        yield from run.arguments
    for decision in history.decisions:
        yield from decision.subject
    yield from history.answer
    for part in history.parts or ():
        yield from part


def _sources_of_call(call: HistoryCall) -> Iterator[TensorSource]:
    yield from call.arguments
    for stream in call.streams:
        for part in stream.parts:
            yield from part


def _array_like(tensor: KeptTensor) -> Array | None:
    """Returns a tensor's array; without its bytes, one of its type and shape that takes no memory; None if it is a resident.

    Raises:
        ValueError: If it is no tensor. Or TransportError.
    """
    dtype, shape = DType(tensor.dtype), tensor.shape
    if len(shape) > MAX_RANK or any(size < 0 for size in shape) or math.prod(shape) > MAX_SIZE:
        raise ValueError(f"a tensor has the shape {list(shape)}")
    if tensor.data is not None and dtype not in TENSOR_TYPES:
        raise ValueError(f"a tensor of type {dtype} has bytes")
    if tensor.data is not None:
        return tensor.array()
    return np.broadcast_to(np.empty((), numpy_dtype(dtype)), shape) if dtype in TENSOR_TYPES else None


def _check_source(history: RequestHistory, source: TensorSource) -> None:
    """Checks that a tensor is there, and can be seen through its views. Raises ValueError, IndexError or TypeError."""
    if source.call < 0 and source.part != WHOLE:
        raise ValueError(f"part {source.part} comes from no call")
    if source.call == INPUT:
        tensors = list(history.inputs.values())
    elif source.call == CONSTANT:
        tensors = history.constants
    elif 0 <= source.call < len(history.calls):
        call = history.calls[source.call]
        if source.part != WHOLE and not 0 <= source.part < len(call.parts or ()):
            raise ValueError(f"a tensor comes from part {source.part} of {len(call.parts or ())}")
        tensors = call.outputs if source.part == WHOLE else (call.parts or ())[source.part]
    else:
        raise ValueError(f"a tensor comes from call {source.call}, and there are {len(history.calls)}")
    if any(isinstance(item, list) and len(item) != 3 for view in source.views for item in view):
        raise ValueError("a slice has other than three parts")
    views = [index_of_json(view) for view in source.views]
    for view in views:
        _check_index(view)
    if tensors is None:
        return
    if not 0 <= source.field < len(tensors):
        raise ValueError(f"a tensor comes from place {source.field} of {len(tensors)}")
    array = _array_like(tensors[source.field]) if views else None
    if array is not None:
        apply_views(array, views)


def _check_index(index: Index) -> None:
    """Checks that an index makes a view: NumPy also takes others, which copy."""
    for item in index:
        parts = (item.start, item.stop, item.step) if isinstance(item, slice) else (None if item is ... else item,)
        if any(part is not None and type(part) is not int for part in parts):
            raise ValueError(f"a tensor is seen through {item!r}")
