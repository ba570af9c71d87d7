"""Lets a path step an async generator like a coroutine.

What the generator awaits comes out unchanged, what it yields as a `Yielded`. Nothing is left to an event loop: Python would hand
the generator to the loop running in the thread of its first step, which would close it when it is collected; and closing a
suspended generator has to be awaited. So its first step runs without the loop's hooks, and `Generating.close` steps the closing
itself; generators that it uses are closed by `close_generator` when they are collected. A path uses one on one thread.
"""

import contextlib
import sys
from collections.abc import Generator
from types import AsyncGeneratorType, CodeType, FrameType
from typing import Any

MAX_REFUSALS = 100
"""How many times a coroutine or generator may await or yield while it is closed; after that it is abandoned."""


def close_generator(generator: Any) -> None:
    """Ends an async generator that is being collected, wherever it is suspended. Errors are ignored, as by `close_coroutine`.

    Its ``finally`` blocks run, up to the first thing that each awaits. From Python 3.13 on, if one of them awaits something while
    what iterates the generator is closed, the rest of it is left out.
    """
    step: Generator[Any, Any, Any] | None = None
    for _ in range(MAX_REFUSALS):
        if generator.ag_frame is None:
            return
        if step is None:
            # One whose last step was never finished counts as running, and refuses to be closed; up to Python 3.12, it takes an
            # error by way of another step.
            step = _generator_of(generator.asend(None) if generator.ag_running else generator.aclose())
        is_refused = False
        with contextlib.suppress(BaseException):
            step.throw(GeneratorExit())
            is_refused = True
        if not is_refused:
            step = None


class Yielded:
    """What a streaming workflow yields: a part of its answer."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Generating:
    """One run of an async generator, with the methods of a coroutine. The end of the generator is that of the coroutine.

    Attributes:
        cr_code: The generator's code, under the name that a coroutine has for it; so are `cr_frame` and `cr_await`.
        cr_running: Whether its code is running. `ag_running` says so of a generator that is suspended at an await, too.
    """

    __slots__ = ("_generator", "_step", "cr_running")

    def __init__(self, generator: AsyncGeneratorType[Any, None]) -> None:
        self._generator = generator
        self._step: Generator[Any, Any, Any] | None = None
        """Of the generator, to its next yield; None while it is suspended at one."""
        self.cr_running = False

    def send(self, value: Any) -> Any:
        """Runs to the next thing that it awaits, which is returned, or yields.

        Raises:
            StopIteration: If it has ended.
        """
        return self._advance(value, None)

    def throw(self, error: BaseException) -> Any:
        """Raises an error where it awaits, and continues like `send`."""
        return self._advance(None, error)

    def _advance(self, value: Any, error: BaseException | None) -> Any:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, close_generator)  # so that generators it uses are not closed by a loop either
        self.cr_running = True
        try:
            if self._step is None:
                self._step = _generator_of(self._generator.asend(None))
            return self._step.send(value) if error is None else self._step.throw(error)
        except StopIteration as stop:
            self._step = None
            return Yielded(stop.value)
        except StopAsyncIteration:
            self._step = None
            raise StopIteration from None
        except BaseException:
            self._step = None
            raise
        finally:
            self.cr_running = False
            sys.set_asyncgen_hooks(*hooks)

    def close(self) -> None:
        """Ends it where it is suspended; its ``finally`` blocks run, up to the first thing that they await.

        Raises:
            BaseException: What its ``finally`` blocks raise.
            RuntimeError: If it will not end.
        """
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, close_generator)
        self.cr_running = True
        try:
            for _ in range(MAX_REFUSALS):
                try:
                    if self._step is None:
                        self._step = _generator_of(self._generator.aclose())
                        self._step.send(None)
                    else:
                        self._step.throw(GeneratorExit())
                except (StopIteration, StopAsyncIteration, GeneratorExit):
                    self._step = None  # it has ended, or yielded
                except BaseException:
                    self._step = None
                    raise
                if self.cr_frame is None:
                    return
            raise RuntimeError("an async generator does not end when it is closed")
        finally:
            self.cr_running = False
            sys.set_asyncgen_hooks(*hooks)

    @property
    def cr_await(self) -> Any:
        """What it awaits. Read it only while the generator is suspended: see `cr_running`."""
        return self._generator.ag_await

    @property
    def cr_frame(self) -> FrameType | None:
        return self._generator.ag_frame

    @property
    def cr_code(self) -> CodeType:
        return self._generator.ag_code


def _generator_of(awaitable: Any) -> Generator[Any, Any, Any]:
    return awaitable.__await__()
