"""Calls of programs that wait or yield, for `dyorc.run`: on an event loop that runs only while the engine has nothing to do."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticSpec, StreamSpec
from dyorc.authoring.spec import Framework
from dyorc.core.arrays import apply_views, as_array, as_value, dtype_of, inline, numpy_to_torch
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import BatchControl, CancelBatch, DispatchBatch, FeedPart, GrantParts
from dyorc.engine.events import BatchDone, BatchFailed, BatchPart, Event, InputPartsTaken
from dyorc.errors import DyOrcError
from dyorc.replica.executor import BatchError

_functions: WeakKeyDictionary[Program, Any] = WeakKeyDictionary()


class LocalCalls:
    """The running calls of one `dyorc.run`.

    Attributes:
        events: What they have done, for the engine.
    """

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self._running: dict[int, _Call] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, action: DispatchBatch) -> None:
        """Starts a call; it begins to run in `wait`."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        call = self._running[action.batch_id] = _Call(action, self.events)
        call.task = self._loop.create_task(self._run(call))

    async def _run(self, call: "_Call") -> None:
        await call.run()
        del self._running[call.action.batch_id]

    def control(self, action: BatchControl) -> None:
        """Passes on what the engine says to a running call."""
        call = self._running.get(action.batch_id)
        if call is not None:
            call.control(action)

    def wait(self) -> bool:
        """Runs calls until one of them has done something. Returns whether any is running."""
        if self._loop is None or not self._running:
            return False
        self._loop.run_until_complete(self._until_event())
        return True

    async def _until_event(self) -> None:
        while not self.events:
            tasks = [call.task for call in self._running.values() if call.task is not None]
            news = [asyncio.ensure_future(call.news.wait()) for call in self._running.values()]
            await asyncio.wait([*tasks, *news], return_when=asyncio.FIRST_COMPLETED)
            for each in news:
                each.cancel()
        for call in self._running.values():
            call.news.clear()

    def close(self) -> None:
        """Ends the calls that still run."""
        if self._loop is None:
            return
        for call in list(self._running.values()):
            call.control(CancelBatch("", call.action.batch_id))
        tasks = [call.task for call in self._running.values() if call.task is not None]
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()


class _Call:
    """One running call."""

    def __init__(self, action: DispatchBatch, events: deque[Event]) -> None:
        self.action = action
        self.task: asyncio.Task[None] | None = None
        self.news = asyncio.Event()
        self._events = events
        self._max_parts = action.max_parts
        self._may_go_on = asyncio.Event()
        self._is_cancelled = False
        self._inputs = [_Input(spec, self, at) for at, spec in enumerate(action.program.signature.streams)]

    def control(self, action: BatchControl) -> None:
        match action:
            case GrantParts(max_parts=max_parts):
                self._max_parts = max_parts
                self._may_go_on.set()
            case CancelBatch():
                self._is_cancelled = True
                if self.task is not None:
                    self.task.cancel()
            case FeedPart(stream=stream):
                self._inputs[stream].feed(action)

    def tell(self, event: Event) -> None:
        self._events.append(event)
        self.news.set()

    async def run(self) -> None:
        replica_id, batch_id = self.action.replica_id, self.action.batch_id
        try:
            outputs = [await self._call()]
        except BaseException as error:
            failure = BatchError.of(error)
            self.tell(BatchFailed(replica_id, batch_id, failure.error_type, failure.message, failure.traceback))
        else:
            self.tell(BatchDone(replica_id, batch_id, outputs, 0.0))

    async def _call(self) -> tuple[TensorRef, ...]:
        program = self.action.program
        if program not in _functions:
            _functions[program] = program.factory()
        returned = _functions[program](**self._arguments())
        if not program.is_streaming:
            return self._outputs(await returned, "returned")
        index = 0
        parts: AsyncIterator[Any] = returned if program.style.is_async else _as_async(returned)
        try:
            async for value in parts:
                tensors = self._outputs(value, "yielded")
                self.tell(BatchPart(self.action.replica_id, self.action.batch_id, index, tensors))
                index += 1
                while index >= self._max_parts and index < program.options.max_parts:
                    self._may_go_on.clear()
                    await self._may_go_on.wait()
                await asyncio.sleep(0)
        finally:
            close: Any = getattr(parts, "aclose")  # noqa: B009 -- an async generator has it
            await close()
        return ()

    def _arguments(self) -> dict[str, Any]:
        signature, action = self.action.program.signature, self.action
        tensors, statics, streams = iter(action.operands[0]), iter(action.statics), iter(self._inputs)
        arguments: dict[str, Any] = {}
        for parameter in signature.parameters:
            if isinstance(parameter, StaticSpec):
                arguments[parameter.name] = next(statics)
            elif isinstance(parameter, StreamSpec):
                arguments[parameter.name] = next(streams)
            else:
                arguments[parameter.name] = _given(parameter.framework, next(tensors))
        return arguments

    def _outputs(self, value: Any, verb: str) -> tuple[TensorRef, ...]:
        program, sizes = self.action.program, dict[str, tuple[int, str]]()
        where = f"program {program.name!r} {verb}"
        outputs = program.signature.outputs
        tensors: list[TensorRef] = []
        for spec, part in zip(outputs.tensors, outputs.flatten(value, f"program {program.name!r}", verb), strict=True):
            array = np.array(as_array(part, spec.dtype, f"{where} {spec.name!r}"), order="C")
            spec.check(dtype_of(array), array.shape, sizes, where)
            tensors.append(inline(array))
        return tuple(tensors)


class _Input:
    """A stream that a call reads."""

    def __init__(self, spec: StreamSpec, call: _Call, at: int) -> None:
        self._spec = spec
        self._call = call
        self._at = at
        self._fed: deque[FeedPart] = deque()
        self._has_more = asyncio.Event()
        self._num_taken = 0

    def feed(self, action: FeedPart) -> None:
        self._fed.append(action)
        self._has_more.set()

    def __aiter__(self) -> "_Input":
        return self

    async def __anext__(self) -> Any:
        while not self._fed:
            self._has_more.clear()
            await self._has_more.wait()
        if self._fed[0].is_end:
            error: DyOrcError | None = self._fed[0].error
            if error is not None:
                raise error
            raise StopAsyncIteration
        fed = self._fed.popleft()
        self._num_taken += 1
        action = self._call.action
        self._call.tell(InputPartsTaken(action.replica_id, action.batch_id, self._at, self._num_taken))
        specs = self._spec.outputs.tensors
        return self._spec.outputs.build([_given(spec.framework, each) for spec, each in zip(specs, fed.tensors, strict=True)])


def _given(framework: Framework, tensor: TensorRef) -> Any:
    array = np.array(apply_views(tensor.data, tensor.views))
    return numpy_to_torch(array) if framework is Framework.TORCH else as_value(array) if array.dtype == object else array


async def _as_async(parts: Iterator[Any]) -> AsyncIterator[Any]:
    try:
        for value in parts:
            yield value
    finally:
        close: Any = getattr(parts, "close")  # noqa: B009 -- a generator has it
        close()
