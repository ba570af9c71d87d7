"""Calls of programs that wait or yield, for `dyorc.run`: on the programs' own event loops, while the caller's thread waits.

So they also run where the caller's thread has a running loop itself, as in a notebook.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
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
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.ongoing_calls import OngoingCalls, load_on
from dyorc.replica.program_loops import ProgramLoops
from dyorc.transport.column_codec import Rows

_POLL_S = 0.02
"""How often it is looked whether calls that may wait for each other do so."""
_CLOSE_S = 5.0
"""How long a `dyorc.run` that ends early waits for the ``finally`` blocks of its calls."""
_MAX_PATIENCE_S = 3600.0
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
        arguments = partial(executor.arguments, columns, action.statics)
        calls.start(call.call_id, arguments, call, max_parts=action.max_parts, seen=action.seen)

    def control(self, action: BatchControl) -> None:
        """Passes on what the engine says to a call, unless it has ended."""
        call = self._running.get(action.batch_id)
        if call is None:
            return
        call.note(action)
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
        """Waits until a call has done something; returns that, and nothing once no call runs or can go on by itself.

        A call that neither ends nor yields within its program's `execution_timeout_s` fails, and its program is loaded again for
        the next one: whatever blocks may block for ever.
        """
        events: list[Event] = []
        while self._running and not events and not self.is_stuck:
            with suppress(Empty):
                events += self._take(self._patience_s())
            if not events:
                events += [self._time_out(call) for call in list(self._running.values()) if call.is_late]
        while not self._events.empty():
            events += self._take(None)
        return events

    def _patience_s(self) -> float:
        """Returns how long to wait for the next event before a look at what waits, or takes too long."""
        if all(call.may_wait for call in self._running.values()):
            return _POLL_S
        return min(_MAX_PATIENCE_S, max(_POLL_S, min(call.left_s for call in self._running.values())))

    def _time_out(self, call: "_LocalCall") -> Event:
        del self._running[call.batch_id]
        _give_up(call.calls)
        return call.timed_out()

    @property
    def is_stuck(self) -> bool:
        """Whether calls run, and each waits until its stream is read further, or for a part that it reads."""
        running = self._running.values()
        return bool(running) and self._events.empty() and all(call.waits for call in running)

    def waiting(self) -> list[str]:
        """Returns which programs' calls wait, and for what."""
        return [call.describe() for call in self._running.values()]

    def close(self) -> None:
        """Ends the calls that still run."""
        for call in self._running.values():
            call.calls.cancel(call.call_id)
        give_up_s = time.monotonic() + _CLOSE_S
        try:
            while not all(call.has_ended for call in self._running.values()):
                self._take(max(0.0, give_up_s - time.monotonic()))
        except Empty:
            for call in self._running.values():
                if not call.has_ended:
                    _give_up(call.calls)

    def _take(self, timeout_s: float | None) -> Sequence[Event]:
        """Returns the next event; nothing if it is of a call that was given up. Raises Empty if none comes in time.

        What a signal handler raises here, a KeyError perhaps, goes to the caller.
        """
        event = self._events.get(timeout=timeout_s)
        match event:
            case BatchDone() | BatchFailed():
                call = self._running.pop(event.batch_id, None)
            case BatchPart() | InputPartsTaken():
                call = self._running.get(event.batch_id)
                if call is not None:
                    call.note(event)
            case _:
                return (event,)
        return () if call is None else (event,)


class _LocalCall:
    """Receives what one call makes, on its program's loop (`CallReceiver`).

    Attributes:
        has_ended: Whether it makes nothing more. The event that says so may be on its way, or lost to an exception of a signal
            handler.
    """

    reserve: Reserve | None = None

    def __init__(self, action: DispatchBatch, calls: OngoingCalls, events: "SimpleQueue[Event]") -> None:
        self.call_id = next(_numbers)
        self.calls = calls
        self._action = action
        self._events = events
        self._max_parts = action.max_parts
        self._num_parts = 0
        self._unread = [0] * len(action.program.signature.streams)
        self._is_cancelled = False
        self.has_ended = False
        self._since_s = time.monotonic()
        """Since when it has had what it needs to go on."""

    # On the caller's thread

    @property
    def batch_id(self) -> int:
        return self._action.batch_id

    @property
    def left_s(self) -> float:
        """How long it may go on without a part or an end."""
        return self._since_s + self._action.program.options.execution_timeout_s - time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether it has gone on for too long; what waits for the engine or for a reader is not late."""
        return self.left_s <= 0 and not self.may_wait

    def timed_out(self) -> BatchFailed:
        """Returns what becomes of it then."""
        limit_s = self._action.program.options.execution_timeout_s
        text = f"it has neither ended nor yielded for {limit_s:g} s, its execution_timeout_s"
        return BatchFailed(self._action.replica_id, self._action.batch_id, "TimeoutError", text, "")

    def note(self, news: BatchControl | BatchPart | InputPartsTaken) -> None:
        """Notes how far it may send and has sent, and how much it has to read."""
        self._since_s = time.monotonic()
        match news:
            case GrantParts(max_parts=max_parts):
                self._max_parts = max_parts
            case BatchPart(index=index):
                self._num_parts = index + 1
            case FeedPart(stream=stream):
                self._unread[stream] += 1  # the end, too: it is never taken
            case InputPartsTaken(stream=stream):
                self._unread[stream] -= 1
            case CancelBatch():
                self._is_cancelled = True

    @property
    def has_sent_all(self) -> bool:
        """Whether it may send no more: then it does not go on."""
        return self._action.program.is_streaming and self._num_parts >= self._max_parts

    @property
    def may_wait(self) -> bool:
        """Whether it waits, or reads a stream of which there is nothing more."""
        return not self._is_cancelled and (self.has_sent_all or not all(self._unread or [1]))

    @property
    def waits(self) -> bool:
        """Whether it waits for the engine."""
        return self.may_wait and (self.has_sent_all or self.calls.is_starved(self.call_id))

    def describe(self) -> str:
        """Returns what it waits for."""
        name = self._action.program.name
        if self.has_sent_all:
            return f"a call of {name!r} waits until its part {self._num_parts - 1} is read"
        return f"a call of {name!r} waits for a part of a stream that it reads"

    # On its program's loop

    def part(self, index: int, outputs: Sequence[Rows], digest: bytes) -> bool:
        action = self._action
        self._events.put(BatchPart(action.replica_id, action.batch_id, index, _kept(outputs), digest))
        return True

    def taken(self, stream: int, num_taken: int) -> None:
        self._events.put(InputPartsTaken(self._action.replica_id, self._action.batch_id, stream, num_taken))

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        self._end(BatchDone(self._action.replica_id, self._action.batch_id, [_kept(outputs)], execute_s))
        return True

    def failed(self, error: BaseException) -> None:
        self._end(BatchError.of(error).event(self._action.replica_id, self._action.batch_id))

    def _end(self, event: BatchDone | BatchFailed) -> None:
        self.has_ended = True  # first: `close` waits for the event of a call that has not ended
        self._events.put(event)


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


def _give_up(calls: OngoingCalls) -> None:
    """Interrupts the loop of calls that hang. The programs there are loaded again when they are called next."""
    with _loading:
        for program, (_, others) in list(_loaded.items()):
            if others.loop is calls.loop:
                del _loaded[program]
    _loops.give_up(calls.loop)


def _array(tensor: TensorRef) -> Array:
    return apply_views(tensor.data, tensor.views)


def _kept(outputs: Sequence[Rows]) -> tuple[TensorRef, ...]:
    """Returns copies of a call's outputs."""
    return tuple([inline(np.array(array, order="C")) for (array,) in outputs])
