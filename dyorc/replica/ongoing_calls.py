"""Runs the calls of a loaded program that waits or yields: several side by side, each with its streams.

How inputs come and parts leave is the caller's affair: the replica's worker, a cell's fleet and `dyorc.run` each have their own.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from dyorc.authoring.array_memory import Reserve, reserve_for_results
from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.current_request import RowRequests, row_requests
from dyorc.authoring.program import Program
from dyorc.authoring.signature import StreamSpec
from dyorc.authoring.spec import Framework, TensorSpec, ValueSpec
from dyorc.core.arrays import Array, numpy_to_torch
from dyorc.core.request import RequestInfo
from dyorc.core.trace_context import TraceContext
from dyorc.errors import InvalidInputError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.input_streams import BlockingStream, CallTurns, InputStream
from dyorc.replica.part_digest import digest_of
from dyorc.replica.part_sources import END, AsyncParts, PartSource, SteppedParts, ThreadedParts
from dyorc.replica.program_loop import ProgramLoop
from dyorc.replica.user_code import settle_thread
from dyorc.transport.column_codec import Rows

_POLL_ROOM_S = 0.02
"""How soon results that found no room are offered again."""


class CallReceiver(Protocol):
    """Gets what becomes of one call. All methods are called on the program's loop, must not wait, and copy what they are given:
    the program may write to it afterwards.

    What `part` and `done` raise ends the call, and comes back in `failed`. Exactly one of `done` (when it returns true) and
    `failed` is the last.
    """

    @property
    def reserve(self) -> Reserve | None:
        """Provides memory for results, if the program requests it (`dyorc.empty`)."""
        ...

    def part(self, index: int, outputs: Sequence[Rows], digest: bytes) -> bool:
        """Takes a part; returns whether there was room for it. If not, it is offered again.

        Args:
            outputs: For each output, its one array.
            digest: See `BatchPart`.
        """
        ...

    def taken(self, stream: int, num_taken: int) -> None:
        """Learns how many parts of a stream the program has taken, in all."""
        ...

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        """Takes the result; returns whether there was room for it. If not, it is offered again.

        Args:
            outputs: For each output, its one array. Nothing, if the program has yielded all of it.
            execute_s: How long it took, without the time in which it was not allowed to go on or waited for parts of streams.
        """
        ...

    def failed(self, error: BaseException) -> None:
        """Learns why the call has ended without a result: what the program, the call's inputs or this receiver raised."""
        ...


class _Call:
    """One call that runs."""

    def __init__(self, receiver: CallReceiver, streams: Sequence[InputStream], max_parts: int, requests: RowRequests) -> None:
        self.receiver = receiver
        self.requests = requests
        self.streams = streams
        self.task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.is_cancelled = False
        self._paused_s = 0.0
        self._max_parts = max_parts
        self._is_granted = asyncio.Event()

    def grant(self, max_parts: int) -> None:
        """Lets it send up to so many parts, in all."""
        self._max_parts = max(self._max_parts, max_parts)
        self._is_granted.set()

    @property
    def idle_s(self) -> float:
        """How long it has done nothing so far: it was not allowed to go on, or waited for parts of its streams."""
        return self._paused_s + sum([stream.waited_s for stream in self.streams])

    async def until_granted(self, index: int) -> None:
        """Waits until the part of this index may be sent."""
        if index < self._max_parts:
            return
        since_s = time.perf_counter()
        while index >= self._max_parts:
            self._is_granted.clear()
            await self._is_granted.wait()
        self._paused_s += time.perf_counter() - since_s

    async def until_taken(self, offer: Callable[[], bool]) -> None:
        """Waits until the receiver had room."""
        if offer():
            return
        since_s = time.perf_counter()
        while not offer():  # noqa: ASYNC110 -- room is made by other threads and processes
            await asyncio.sleep(_POLL_ROOM_S)
        self._paused_s += time.perf_counter() - since_s


class OngoingCalls:
    """The calls of one program, on its loop. Any thread may call what is public; the events of a call come in order.

    Coroutines and async generators run on the loop. So do generators, a step at a time: calls take turns. A generator that reads
    streams runs on a thread of its own, since it may wait at any line; one at a time, except while it waits.

    Args:
        executor: The loaded program.
        loop: The loop where it was loaded.
    """

    def __init__(self, executor: ProgramExecutor, loop: ProgramLoop) -> None:
        self._executor = executor
        self._program = executor.program
        self._specs = self._program.signature.streams
        self._loop = loop
        self._calls: dict[int, _Call] = {}
        self._turn = CallTurns()

    @property
    def loop(self) -> ProgramLoop:
        """Where they run."""
        return self._loop

    def start(
        self,
        call_id: int,
        arguments: Callable[[], dict[str, Any]],
        receiver: CallReceiver,
        *,
        max_parts: int = 0,
        span: TraceContext | None = None,
        seen: Sequence[RequestInfo] = (),
    ) -> None:
        """Starts a call.

        Args:
            arguments: Returns its arguments without streams (`ProgramExecutor.arguments`). Called on the loop; what it raises
                fails the call.
            max_parts: How many parts it may send before it is granted more.
            span: The call's span, if it is traced.
            seen: See `DispatchBatch`.
        """
        self._loop.post(lambda: self._start(call_id, arguments, receiver, max_parts, span, seen))

    def grant(self, call_id: int, max_parts: int) -> None:
        """Lets a call send up to so many parts, in all since its start."""
        self._on_call(call_id, lambda call: call.grant(max_parts))

    def feed(self, call_id: int, stream: int, read: Callable[[], Sequence[Array]]) -> None:
        """Gives a call the next part of a stream.

        Args:
            stream: Which one, in the order of the program's parameters.
            read: Returns the part's arrays, which the program may keep and write to. Called on the loop; what it raises is
                raised where the program reads the part.
        """

        def append(call: _Call) -> None:
            try:
                part = _part_of(self._specs[stream], read())
            except BaseException as error:
                call.streams[stream].end(error)
            else:
                call.streams[stream].feed(part)

        self._on_call(call_id, append)

    def feed_all(self, call_id: int, stream: int, parts: Sequence[Sequence[Array]]) -> None:
        """Gives a call the next parts of a stream, whose arrays are here and the program's to keep."""

        def append(call: _Call) -> None:
            spec, fed = self._specs[stream], call.streams[stream]
            try:
                for arrays in parts:
                    fed.feed(_part_of(spec, arrays))
            except BaseException as error:
                fed.end(error)

        self._on_call(call_id, append)

    def end_stream(self, call_id: int, stream: int, error: BaseException | None = None) -> None:
        """Ends a stream of a call after the parts before; with an error, which is raised where the program reads on."""
        self._on_call(call_id, lambda call: call.streams[stream].end(error))

    def cancel(self, call_id: int) -> None:
        """Ends a call early: its ``finally`` blocks run, and then it ends like any other. Nothing happens if it has ended."""
        self._on_call(call_id, self._cancel)

    def is_starved(self, call_id: int) -> bool:
        """Returns whether a call waits for the next part of a stream, and does nothing else: its own task or thread waits."""
        call = self._calls.get(call_id)
        if call is None:
            return False
        readers = [stream.reader for stream in call.streams if stream.reader is not None]
        return bool(readers) and (not self._program.style.is_async or call.task in readers)

    # On the loop

    def _on_call(self, call_id: int, act: Callable[[_Call], None]) -> None:
        def look_up() -> None:
            if (call := self._calls.get(call_id)) is not None:
                act(call)

        self._loop.post(look_up)

    def _start(
        self,
        call_id: int,
        arguments: Callable[[], dict[str, Any]],
        receiver: CallReceiver,
        max_parts: int,
        span: TraceContext | None,
        seen: Sequence[RequestInfo],
    ) -> None:
        streams = [InputStream(lambda num_taken, stream=at: receiver.taken(stream, num_taken)) for at in range(len(self._specs))]
        call = self._calls[call_id] = _Call(receiver, streams, max_parts, self._executor.row_requests(seen))
        call.task = self._loop.start(self._run(call_id, call, arguments, span), self._loop.new_context())
        for stream in streams:
            stream.owner = call.task

    def _cancel(self, call: _Call) -> None:
        if not call.is_cancelled:
            call.is_cancelled = True
            if call.has_begun and call.task is not None:  # asyncio drops a task that was cancelled before its first step
                call.task.cancel()

    async def _run(self, call_id: int, call: _Call, arguments: Callable[[], dict[str, Any]], span: TraceContext | None) -> None:
        """Runs a call to its end."""
        started_s = time.perf_counter()
        call.has_begun = True
        try:
            if call.is_cancelled:
                raise asyncio.CancelledError
            self._enter(call, span)
            inputs = arguments()
            outputs = () if self._program.is_streaming else self._executor.outputs(await self._returned(call, inputs))
            if self._program.is_streaming:
                await self._send_parts(call, self._source(call, inputs, span))
            del inputs
            execute_s = time.perf_counter() - started_s - call.idle_s
            await call.until_taken(lambda: call.receiver.done(outputs, execute_s))
        except BaseException as error:  # also SystemExit: nothing that a program raises ends its loop
            call.receiver.failed(error)
        finally:
            del self._calls[call_id]
            for stream in call.streams:
                stream.cut(RuntimeError(f"the call of program {self._program.name!r} has ended"))

    def _enter(self, call: _Call, span: TraceContext | None) -> None:
        """Sets the call's context variables, in the present context."""
        reserve_for_results.set(call.receiver.reserve)
        row_requests.set(call.requests)
        self._executor.enter_span(span)

    async def _returned(self, call: _Call, inputs: dict[str, Any]) -> Any:
        streams = {spec.name: stream for spec, stream in zip(self._specs, call.streams, strict=True)}
        return await self._executor.function(**inputs, **streams)

    def _source(self, call: _Call, inputs: dict[str, Any], span: TraceContext | None) -> PartSource:
        """Calls the program, and returns where its parts come from."""
        function = self._executor.function
        if self._program.style is CallStyle.ASYNC_GENERATOR:
            streams = {spec.name: stream for spec, stream in zip(self._specs, call.streams, strict=True)}
            return AsyncParts(function(**inputs, **streams))
        if not self._specs:
            return SteppedParts(function(**inputs), self._loop)
        blocking = {
            spec.name: BlockingStream(stream, self._turn, self._loop.loop)
            for spec, stream in zip(self._specs, call.streams, strict=True)
        }

        def make() -> Any:
            settle_for_calls(self._executor)
            self._enter(call, span)
            return function(**inputs, **blocking)

        return ThreadedParts(make, self._loop.new_context(), self._loop.open_thread(), call.streams, self._turn)

    async def _send_parts(self, call: _Call, source: PartSource) -> None:
        """Sends what a source yields, as far as that is granted."""
        options, index = self._program.options, 0
        try:
            while True:
                await call.until_granted(index)
                value = await source.next()
                if value is END:
                    return
                if call.is_cancelled:  # the program has caught that, and goes on
                    raise asyncio.CancelledError
                if index == options.max_parts:
                    raise InvalidInputError(
                        f"program {self._program.name!r} yielded more parts than its max_parts allows, {index}"
                    )
                outputs = self._executor.outputs(value, "yielded")
                digest = digest_of(outputs) if options.is_repeatable else b""
                await call.until_taken(lambda at=index, outputs=outputs, digest=digest: call.receiver.part(at, outputs, digest))
                del value, outputs
                index += 1
        finally:
            await source.close()


def load_on(loop: ProgramLoop, program: Program) -> "Future[ProgramExecutor]":
    """Loads a program that waits or yields, on its loop: the ``__init__`` of one that waits may start tasks there.

    Returns:
        The future executor. It raises ProgramLoadError.
    """

    def load() -> ProgramExecutor:
        executor = ProgramExecutor.load(program)
        settle_for_calls(executor)
        return executor

    return loop.run(load, is_async=program.style.is_async)


def settle_for_calls(executor: ProgramExecutor) -> None:
    """Makes this thread's settings those that the program's code expects, for as long as the thread runs."""
    executor.settle_thread()
    settle_thread()
    executor.turn_gradients_off()


def _part_of(spec: StreamSpec, arrays: Sequence[Array]) -> Any:
    """Returns a part of a stream as the program declares it."""
    return spec.outputs.build(
        [_argument(tensor, array, spec.name) for tensor, array in zip(spec.outputs.tensors, arrays, strict=True)]
    )


def _argument(spec: TensorSpec, array: Array, stream: str) -> Any:
    if isinstance(spec, ValueSpec):
        return spec.value_of(array, f"stream {stream!r}")
    return numpy_to_torch(array) if spec.framework is Framework.TORCH else array
