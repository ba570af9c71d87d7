"""Calls of programs that wait or yield, for `dyorc.run`: on the programs' own event loops, while the caller's thread waits.

So they also run where the caller's thread has a running loop itself, as in a notebook.
"""

import threading
import time
from collections.abc import Sequence
from itertools import count
from queue import Empty, SimpleQueue
from weakref import WeakKeyDictionary

import numpy as np

from dyorc.authoring.array_memory import Reserve
from dyorc.authoring.program import Program
from dyorc.core.arrays import Array, apply_views, inline
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import BatchControl, CancelBatch, DispatchBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken
from dyorc.replica.executor import BatchError, ProgramExecutor
from dyorc.replica.ongoing_calls import OngoingCalls, load_on
from dyorc.replica.program_loops import ProgramLoops
from dyorc.transport.column_codec import Rows

_CLOSE_S = 5.0
"""How long a `dyorc.run` that ends early waits for the ``finally`` blocks of its calls."""
_loaded: WeakKeyDictionary[Program, tuple[ProgramExecutor, OngoingCalls]] = WeakKeyDictionary()
_loading = threading.RLock()  # a program may run another one while it loads
_loops = ProgramLoops()
_numbers = count(1)


class LocalCalls:
    """The running calls of one `dyorc.run`. Used on the caller's thread."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._running: dict[int, _LocalCall] = {}

    def start(self, action: DispatchBatch) -> None:
        """Starts a call."""
        executor, calls = _load(action.program)
        call = self._running[action.batch_id] = _LocalCall(action, calls, self._events)
        columns = [[_array(tensor) for tensor in column] for column in zip(*action.operands, strict=True)]
        calls.start(call.call_id, lambda: executor.arguments(columns, action.statics), call, max_parts=action.max_parts)

    def control(self, action: BatchControl) -> None:
        """Passes on what the engine says to a call, unless it has ended."""
        call = self._running.get(action.batch_id)
        if call is None:
            return
        match action:
            case GrantParts(max_parts=max_parts):
                call.calls.grant(call.call_id, max_parts)
            case CancelBatch():
                call.calls.cancel(call.call_id)
            case FeedPart(stream=stream, is_end=True, error=error):
                call.calls.end_stream(call.call_id, stream, error)
            case FeedPart(stream=stream, tensors=tensors):
                call.calls.feed(call.call_id, stream, lambda: [np.array(_array(tensor)) for tensor in tensors])

    def wait(self) -> Sequence[Event]:
        """Waits until a call has done something; returns that, and nothing once no call runs."""
        events: list[Event] = []
        while self._running and not events:
            events.append(self._take(None))
        while not self._events.empty():
            events.append(self._take(None))
        return events

    def close(self) -> None:
        """Ends the calls that still run."""
        for call in self._running.values():
            call.calls.cancel(call.call_id)
        give_up_s = time.monotonic() + _CLOSE_S
        try:
            while self._running:
                self._take(max(0.0, give_up_s - time.monotonic()))
        except Empty:
            return

    def _take(self, timeout_s: float | None) -> Event:
        event = self._events.get(timeout=timeout_s)
        if isinstance(event, BatchDone | BatchFailed):
            del self._running[event.batch_id]
        return event


class _LocalCall:
    """Receives what one call makes, on its program's loop (`CallReceiver`)."""

    reserve: Reserve | None = None

    def __init__(self, action: DispatchBatch, calls: OngoingCalls, events: "SimpleQueue[Event]") -> None:
        self.call_id = next(_numbers)
        self.calls = calls
        self._action = action
        self._events = events

    def part(self, index: int, outputs: Sequence[Rows], digest: bytes) -> bool:
        action = self._action
        self._events.put(BatchPart(action.replica_id, action.batch_id, index, _kept(outputs), digest))
        return True

    def taken(self, stream: int, num_taken: int) -> None:
        self._events.put(InputPartsTaken(self._action.replica_id, self._action.batch_id, stream, num_taken))

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        self._events.put(BatchDone(self._action.replica_id, self._action.batch_id, [_kept(outputs)], execute_s))
        return True

    def failed(self, error: BaseException) -> None:
        failure = BatchError.of(error)
        self._events.put(
            BatchFailed(self._action.replica_id, self._action.batch_id, failure.error_type, failure.message, failure.traceback)
        )


def _load(program: Program) -> tuple[ProgramExecutor, OngoingCalls]:
    with _loading:
        if program not in _loaded:
            loop = _loops.open(program)
            try:
                executor = load_on(loop, program).result()
            except BaseException:
                _loops.close(loop)
                raise
            _loaded[program] = executor, OngoingCalls(executor, loop)
        return _loaded[program]


def _array(tensor: TensorRef) -> Array:
    return apply_views(tensor.data, tensor.views)


def _kept(outputs: Sequence[Rows]) -> tuple[TensorRef, ...]:
    """Returns copies of a call's outputs."""
    return tuple([inline(np.array(array, order="C")) for (array,) in outputs])
