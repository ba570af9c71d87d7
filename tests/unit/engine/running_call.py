"""A call of a program that waits or yields, as a replica runs it: step by step, as far as it may go."""

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any

import numpy as np

from dyorc.authoring.program import Program
from dyorc.authoring.signature import StaticSpec, StreamSpec
from dyorc.core.arrays import Array, as_array, as_value
from dyorc.engine.actions import DispatchBatch
from dyorc.errors import DyOrcError


class _Pause:
    """What a call awaits that has no part to read."""

    def __await__(self) -> Generator[Any, Any, Any]:
        yield self


class InputStream:
    """A stream that a running call reads.

    Attributes:
        num_fed: Parts that were fed.
        num_taken: Parts that the call has read.
        num_told: Of these, how many the engine knows of.
    """

    def __init__(self, spec: StreamSpec) -> None:
        self._spec = spec
        self._fed: deque[list[Array] | DyOrcError | None] = deque()
        self.num_fed = self.num_taken = self.num_told = 0
        self.has_ended = False

    def feed(self, arrays: list[Array]) -> None:
        assert not self.has_ended
        self._fed.append(arrays)
        self.num_fed += 1

    def end(self, error: DyOrcError | None) -> None:
        assert not self.has_ended
        self.has_ended = True
        self._fed.append(error)

    @property
    def is_empty(self) -> bool:
        return not self._fed

    def __aiter__(self) -> "InputStream":
        return self

    async def __anext__(self) -> Any:
        while not self._fed:
            await _Pause()
        first = self._fed[0]
        if first is None:
            raise StopAsyncIteration
        if isinstance(first, DyOrcError):
            raise first
        self._fed.popleft()
        self.num_taken += 1
        return self._spec.outputs.build([as_value(array) for array in first])


class RunningCall:
    """One call on its replica.

    Attributes:
        max_parts: How many parts it may send.
        num_parts: How many it has sent.
        is_cancelled: Whether the engine has said that nothing needs it.
        closed: Whether its code has ended.
    """

    def __init__(self, action: DispatchBatch, columns: list[list[Array]]) -> None:
        self.program: Program = action.program
        self.max_parts = action.max_parts
        self.num_parts = 0
        self.is_cancelled = False
        self.closed = False
        self.inputs = [InputStream(spec) for spec in self.program.signature.streams]
        self._waits = False
        tensors, statics, streams = iter(columns), iter(action.statics), iter(self.inputs)
        arguments: dict[str, Any] = {}
        for parameter in self.program.signature.parameters:
            if isinstance(parameter, StaticSpec):
                arguments[parameter.name] = next(statics)
            elif isinstance(parameter, StreamSpec):
                arguments[parameter.name] = next(streams)
            else:
                arguments[parameter.name] = parameter.value_of(np.array(next(tensors)[0]), "a running call")
        self._running = self.program.factory()(**arguments)
        self._step: Any = None

    @property
    def can_go_on(self) -> bool:
        """Whether it has not ended, may send another part, and does not wait for one to read."""
        if self.is_cancelled:
            return True
        has_credit = not self.program.is_streaming or self.num_parts < self.max_parts
        return has_credit and not (self._waits and all(each.is_empty for each in self.inputs))

    def go_on(self) -> tuple[str, list[Array]] | None:
        """Runs to its next part, its end, or until it has to wait.

        Returns:
            "part" or "end", with arrays; None if it waits for a part.

        Raises:
            BaseException: What it raises.
        """
        if self.is_cancelled:
            self.close()
            return "end", []
        assert self.can_go_on, "a call went on that has to wait"
        self._waits = False
        try:
            value = self._advance()
        except (StopIteration, StopAsyncIteration) as stop:
            self.closed = True
            outputs = [] if self.program.is_streaming else self._arrays(getattr(stop, "value", None))
            return "end", outputs
        if isinstance(value, _Pause):
            self._waits = True
            return None
        self.num_parts += 1
        assert self.num_parts <= self.max_parts, "a part was sent without credit"
        return "part", self._arrays(value)

    def _advance(self) -> Any:
        style = self.program.style
        if not style.is_async:
            return next(self._running)
        if not style.is_streaming:
            return self._running.send(None)
        if self._step is None:
            awaited: Awaitable[Any] = self._running.asend(None)
            self._step = awaited.__await__()
        try:
            return self._step.send(None)
        except StopIteration as stop:
            self._step = None
            return stop.value
        except BaseException:
            self._step = None
            raise

    def _arrays(self, value: Any) -> list[Array]:
        outputs = self.program.signature.outputs
        parts = outputs.flatten(value, self.program.name)
        # Copied, as a replica does: the program may use its buffer again.
        return [np.array(as_array(part, spec.dtype, spec.name)) for spec, part in zip(outputs.tensors, parts, strict=True)]

    def close(self) -> None:
        """Ends its code; its ``finally`` blocks run."""
        self.closed = True
        if not self.program.style.is_async or not self.program.is_streaming:
            self._running.close()
            return
        if self._step is not None:
            with contextlib.suppress(asyncio.CancelledError, StopIteration, StopAsyncIteration):
                self._step.throw(asyncio.CancelledError())
            return
        with contextlib.suppress(StopIteration):
            self._running.aclose().send(None)


def digest_of(arrays: list[Array]) -> bytes:
    """Returns the digest of a part."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(b"".join(array.ravel().tolist()) if array.dtype == object else np.ascontiguousarray(array).tobytes())
    return digest.digest()
