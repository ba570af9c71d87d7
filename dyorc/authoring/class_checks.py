"""Checks the code that `@dyorc.program` decorates, so that mistakes show when it is declared, not at the first request."""

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType

from dyorc.errors import DefinitionError


def check_class(cls: type) -> None:
    """Checks a program class.

    Raises:
        DefinitionError: If it cannot be called, or its code relies on its name meaning a plain class.
    """
    owner = f"program class {cls.__name__}"
    if not any("__call__" in base.__dict__ for base in cls.__mro__):
        raise DefinitionError(f"{owner} has no __call__")
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
    if "forward" in cls.__dict__ and str(definer.__module__).partition(".")[0] == "torch":
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
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    if "super" not in names or name not in names:  # most code; each replica imports all programs of its file
        return 0
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
