"""How a program's code is called: it computes, waits, or yields its result in parts."""

import inspect
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any


class CallStyle(Enum):
    """The kind of function that a program is; the value names it in errors."""

    PLAIN = "a plain function"
    """Computes a batch on the program's thread, or on the event loop of a cell."""
    GENERATOR = "a generator"
    """Yields parts, on the program's thread; several calls take turns there, a part each."""
    ASYNC = "an `async def`"
    """Waits for something else, on an event loop of the program's own; several calls run side by side."""
    ASYNC_GENERATOR = "an async generator"
    """Waits and yields parts, on that loop."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "CallStyle":
        """Returns the style of a function."""
        while isinstance(function, partial):
            function = function.func
        if inspect.isasyncgenfunction(function):
            return cls.ASYNC_GENERATOR
        if inspect.iscoroutinefunction(function):
            return cls.ASYNC
        return cls.GENERATOR if inspect.isgeneratorfunction(function) else cls.PLAIN

    @property
    def is_streaming(self) -> bool:
        """Whether it yields parts."""
        return self in (CallStyle.GENERATOR, CallStyle.ASYNC_GENERATOR)

    @property
    def is_async(self) -> bool:
        """Whether it runs on an event loop."""
        return self in (CallStyle.ASYNC, CallStyle.ASYNC_GENERATOR)
