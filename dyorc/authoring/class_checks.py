"""Checks the code that `@dyorc.program` decorates, so that mistakes show when it is declared, not at the first request."""

import dis
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from dyorc.errors import DefinitionError


def check_function(owner: str, function: Callable[..., Any], label: str) -> None:
    """Checks that a function computes when it is called.

    Args:
        label: The function in the error's text, such as ``__call__``.

    Raises:
        DefinitionError: If it is a coroutine function, or a generator.
    """
    for kind, is_of_kind in (
        ("an `async def`", inspect.iscoroutinefunction),
        ("an async generator", inspect.isasyncgenfunction),
        ("a generator", inspect.isgeneratorfunction),
    ):
        if is_of_kind(function):
            place = _place(function)
            raise DefinitionError(f"{owner}: {label} is {kind}, expected a plain function that returns its tensors ({place})")


def check_class(cls: type) -> None:
    """Checks a program class.

    Raises:
        DefinitionError: If it cannot be called, or its code relies on its name meaning a plain class.
    """
    owner = f"program class {cls.__name__}"
    if not any("__call__" in base.__dict__ for base in cls.__mro__):
        raise DefinitionError(f"{owner} has no __call__")
    method = inspect.getattr_static(cls, "__call__")
    if isinstance(method, FunctionType):
        check_function(owner, method, "__call__")
    _check_annotations(owner, cls)
    for function in _functions_of(cls):
        if line := _line_of_explicit_super(function.__code__, cls.__name__):
            raise DefinitionError(
                f"{owner}: super({cls.__name__}, ...) is called with the program class, which is not a Python class; "
                f"write super() without arguments ({function.__code__.co_filename}, line {line})"
            )


def _check_annotations(owner: str, cls: type) -> None:
    """A torch module is called by its own `__call__`, whose annotations name no tensors."""
    definer = next(base for base in cls.__mro__ if "__call__" in base.__dict__)
    if "forward" in cls.__dict__ and definer.__module__.partition(".")[0] == "torch":
        raise DefinitionError(
            f"{owner}: its forward is annotated, and a program is called by __call__; annotate that: "
            f"def __call__(self, x: ...) -> ...: return super().__call__(x)"
        )


def _functions_of(cls: type) -> Iterator[FunctionType]:
    for value in vars(cls).values():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(function, FunctionType):
            yield function


def _line_of_explicit_super(code: CodeType, name: str) -> int:
    """Returns the line on which code calls ``super(name, ...)``; 0 if it does not."""
    before, line = "", 0
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST"):
            if before == "super" and instruction.argval == name:
                return line
            before = instruction.argval
        elif instruction.opname not in ("PUSH_NULL", "PRECALL", "CACHE"):
            before = ""
    return 0


def _place(function: Callable[..., Any]) -> str:
    code: CodeType | None = getattr(function, "__code__", None)
    return "?" if code is None else f"{code.co_filename}, line {code.co_firstlineno}"
