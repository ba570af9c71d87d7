"""`Ref`: a tensor that may not exist yet, as a workflow's code holds it."""

import operator
from collections.abc import Callable, Generator, Iterator
from typing import Any, NoReturn, TypeVar

from dyorc.authoring.signature import OutputKind, OutputSpec
from dyorc.core.tensor import Index, IndexItem

T = TypeVar("T")

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "xor", "or")
_UNARY = ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil")

_USES: dict[str, tuple[str, ...]] = {
    "has no truth value yet": ("bool",),
    "cannot be compared (`is` tells whether two are the same object)": _COMPARISONS,
    "cannot be computed with": (*_BINARY, *(f"r{name}" for name in _BINARY), *_UNARY, "array_ufunc"),
    "is not a number yet": ("int", "float", "complex", "index"),
    "is not an array yet": ("array",),
    "has no length yet": ("len",),
    "cannot be iterated over or unpacked yet": ("iter", "reversed"),
    "cannot be searched yet": ("contains",),
    "cannot be indexed yet": ("getitem",),
    "cannot become a text yet (`repr` names it, for a log)": ("str", "format"),
}


def refuse_use(advice: Callable[[Any], tuple[str, str]], *, is_value: bool = True) -> Callable[[type[T]], type[T]]:
    """Makes a class raise TypeError for every use in `_USES` that it does not define itself.

    Python answers many questions about any object by its identity or type: whether it is true, whether it equals a number, how it
    reads as text. For a Ref, a decision or a gather these answers are wrong, and the mistake would go unnoticed. Objects stay
    hashable by identity, and `repr` works, for debuggers and error texts.

    Args:
        advice: Returns what an object is, and what to write instead.
        is_value: Whether it stands for a value that allows the use later. If not, the texts have no "yet".
    """

    def decorate(cls: type[T]) -> type[T]:
        own = frozenset(vars(cls))
        for cannot, names in _USES.items():
            refusal = _refusal(advice, cannot if is_value else cannot.replace(" yet", ""))
            for name in names:
                if f"__{name}__" not in own:
                    setattr(cls, f"__{name}__", refusal)
        return cls

    return decorate


def _refusal(advice: Callable[[Any], tuple[str, str]], cannot: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        subject, instead = advice(self)
        raise TypeError(f"{subject} {cannot}; {instead}")

    return refuse


_INSTEAD = "`await` it to look at its value, or decide by `await dyorc.when(ref, predicate)`"


_INSTEAD_OF_RESIDENT = "it stays in the process of its program: pass it to a program of its group, and use what that returns"


def _advice(ref: "Ref") -> tuple[str, str]:
    """Returns what a Ref is, and what to do in place of looking at it."""
    if not ref.outputs.has_residents:
        return "a Ref", _INSTEAD
    if ref.field is None:
        return "a Ref of several outputs", "pick one of them first, since there is a resident among them"
    spec = ref.outputs.tensors[ref.field]
    return (f"the resident {spec.name!r}", _INSTEAD_OF_RESIDENT) if spec.is_resident else ("a Ref", _INSTEAD)


@refuse_use(_advice)
class Ref:
    """A future value: the result of a call, or an input of the workflow.

    Pass it on to other calls without waiting. ``await ref`` returns the value as NumPy (grouped as declared: one array,
    a tuple, a dict or a dataclass). ``ref["field"]`` names one of several outputs; ``ref[:, 2:5]`` is a view of a tensor
    and costs nothing until its consumer reads it. Any other use before it is computed raises TypeError.

    Attributes:
        future: The engine's place for the value.
        outputs: How the value is grouped.
        field: Which tensor of the group this is; None for the whole group.
        views: Indices into that tensor, in order.
        hold: What keeps the value: everything that may still need it refers to this object.
    """

    __slots__ = ("field", "future", "hold", "outputs", "views")

    def __init__(self, future: Any, outputs: OutputSpec, field: int | None = None, views: tuple[Index, ...] = ()) -> None:
        self.future = future
        self.outputs = outputs
        self.field = 0 if outputs.is_single else field
        self.hold = future.hold_of(self.field) if outputs.has_residents else future.hold
        self.views = views

    def __await__(self) -> Generator["Ref", Any, Any]:
        return (yield self)

    def __getitem__(self, key: Any) -> "Ref":
        if self.field is not None:
            return Ref(self.future, self.outputs, self.field, (*self.views, (key,) if type(key) is int else _as_index(key)))
        names = self.outputs.names
        if self.outputs.kind is OutputKind.FIELDS:
            if key not in names:
                raise KeyError(f"no output {key!r}; expected one of {list(names)}")
            return Ref(self.future, self.outputs, names.index(key))
        return Ref(self.future, self.outputs, range(len(names))[operator.index(key)])

    def __getattr__(self, name: str) -> "Ref":
        # Reached only for names that are no slots: the fields of a dataclass output.
        if name.startswith("_"):  # `copy` asks for such names of an object that has no slots yet
            raise AttributeError(f"a Ref has no attribute {name!r}")
        if self.field is not None or name not in self.outputs.names:
            subject, instead = _advice(self)
            raise AttributeError(f"{subject} has no attribute {name!r}; {instead}")
        return self[name]

    def __iter__(self) -> Iterator["Ref"]:
        """Unpacks a tuple of outputs: ``boxes, scores = detect(page)``."""
        if self.field is not None or self.outputs.kind is not OutputKind.TUPLE:
            subject, instead = _advice(self)
            raise TypeError(f"{subject} cannot be iterated over yet, only a tuple of outputs can be unpacked; {instead}")
        return iter([Ref(self.future, self.outputs, at) for at in range(len(self.outputs.tensors))])

    def __repr__(self) -> str:
        field = "" if self.field is None else f".{self.field}"
        views = "".join(str(list(index)) for index in self.views)
        return f"Ref({self.future}{field}{views})"


_PLAIN_ENDS = (int, type(None))


def _as_index(key: Any) -> Index:
    index = tuple([_as_index_item(item) for item in (key if isinstance(key, tuple) else (key,))])
    if index.count(Ellipsis) > 1:
        raise IndexError("an index has more than one ellipsis")
    return index


def _as_index_item(item: Any) -> IndexItem:
    kind = type(item)
    if item is None or item is Ellipsis or kind is int:
        return item
    if kind is slice and item.step is None and type(item.start) in _PLAIN_ENDS and type(item.stop) in _PLAIN_ENDS:
        return item
    try:
        if isinstance(item, slice):
            if item.step is not None and operator.index(item.step) == 0:
                raise ValueError("a slice has step 0")
            return slice(*(None if part is None else operator.index(part) for part in (item.start, item.stop, item.step)))
        if not isinstance(item, bool):
            return operator.index(item)
    except TypeError:
        pass
    raise TypeError(f"a Ref is indexed by ints, slices, ... and None; got {item!r}")
