"""Refuses what Python would otherwise do with an object that a workflow has to await first.

Python answers many questions about any object by its identity or type: whether it is true, whether it equals a number, how it
reads as text. For a Ref, a decision or a gather these answers are wrong, and nobody notices. `refuses_use` makes a class raise
instead. Its objects stay hashable by identity, and `repr` works, for debuggers and error texts.
"""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_TWO = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "xor", "or")
_OF_ONE = ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")

_USES: dict[str, tuple[str, ...]] = {
    "has no truth value yet": ("bool",),
    "cannot be compared (`is` tells whether two are the same object)": _COMPARISONS,
    "cannot be computed with": (*_OF_TWO, *(f"r{name}" for name in _OF_TWO), *_OF_ONE, "array_ufunc"),
    "is not a number yet": ("int", "float", "complex", "index"),
    "is not an array yet": ("array",),
    "has no length yet": ("len",),
    "cannot be iterated over or unpacked yet": ("iter", "reversed"),
    "cannot be searched yet": ("contains",),
    "cannot be indexed yet": ("getitem",),
    "cannot become a text yet (`repr` names it, for a log)": ("str", "format"),
}


def refuses_use(advice: Callable[[Any], tuple[str, str]]) -> Callable[[type[T]], type[T]]:
    """Makes a class raise TypeError for every use in `_USES` that it does not define itself.

    Args:
        advice: Returns for an object what it is and what to write instead.
    """

    def decorate(cls: type[T]) -> type[T]:
        own = frozenset(vars(cls))
        for cannot, names in _USES.items():
            refusal = _refusal(advice, cannot)
            for name in names:
                if f"__{name}__" not in own:
                    setattr(cls, f"__{name}__", refusal)
        return cls

    return decorate


def _refusal(advice: Callable[[Any], tuple[str, str]], cannot: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        what, instead = advice(self)
        raise TypeError(f"{what} {cannot}; {instead}")

    return refuse
