"""Exceptions that the process's signal handlers raise in the middle of other code."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self


class HandlerExceptions:
    """Lets through what signal handlers raise: to whom they belong cannot be told where code catches all that it runs.

    ``with`` it, the first such exception leaves the block, whatever has caught it inside. That holds for handlers in Python that
    were set when the block was entered; one that is set inside belongs to the code that sets it. May be entered repeatedly. Does
    nothing on other threads than the main one: no handler runs there.
    """

    def __init__(self) -> None:
        self._raised: list[BaseException] = []
        self._watched: list[tuple[int, Callable[[int, FrameType | None], Any], Any]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            try:
                for number in signal.valid_signals():
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self._watch(number, handler)
            except BaseException:
                self._restore()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._restore()
        raised, self._raised = self._raised, []
        if raised and raised[0] is not error:
            raise raised[0]

    def check(self) -> None:
        """Raises what a handler has raised in this block, if one has."""
        if self._raised:
            raise self._raised[0]

    def _watch(self, number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
        def note(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                self._raised.append(error)
                raise

        self._watched.append((number, note, handler))
        signal.signal(number, note)

    def _restore(self) -> None:
        """Sets the handlers as they were, except where the code inside has set another one."""
        while self._watched:
            try:
                number, note, handler = self._watched[-1]
                if signal.getsignal(number) is note:
                    signal.signal(number, handler)
                self._watched.pop()
            except BaseException as error:  # of a handler: the others are to be restored too
                self._raised.append(error)
