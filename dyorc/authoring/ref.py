"""`Ref`: a tensor that may not exist yet, as a workflow's code holds it."""

import operator
from collections.abc import Generator, Iterator
from typing import Any

from dyorc.authoring.pending_values import refuses_use
from dyorc.authoring.signature import OutputKind, OutputSpec
from dyorc.core.tensor import Index, IndexItem

_INSTEAD = "`await` it to look at its value, or decide by `await dyorc.when(ref, predicate)`"


@refuses_use(lambda ref: ("a Ref", _INSTEAD))
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
        hold: An object of the future's. Everything that may still need the value refers to it.
    """

    __slots__ = ("field", "future", "hold", "outputs", "views")

    def __init__(self, future: Any, outputs: OutputSpec, field: int | None = None, views: tuple[Index, ...] = ()) -> None:
        self.future = future
        self.hold = getattr(future, "hold", None)
        self.outputs = outputs
        self.field = 0 if outputs.kind is OutputKind.SINGLE else field
        self.views = views

    def __await__(self) -> Generator["Ref", Any, Any]:
        return (yield self)

    def __getitem__(self, key: Any) -> "Ref":
        if self.field is not None:
            return Ref(self.future, self.outputs, self.field, (*self.views, _as_index(key)))
        names = self.outputs.names
        if self.outputs.kind is OutputKind.FIELDS:
            if key not in names:
                raise KeyError(f"no output {key!r}; expected one of {list(names)}")
            return Ref(self.future, self.outputs, names.index(key))
        return Ref(self.future, self.outputs, range(len(names))[operator.index(key)])

    def __getattr__(self, name: str) -> "Ref":
        # Reached only for names that are no slots: the fields of a dataclass output.
        if name.startswith("_") or self.field is not None or name not in self.outputs.names:
            raise AttributeError(f"a Ref has no attribute {name!r}; `await` it to look at the value")
        return self[name]

    def __iter__(self) -> Iterator["Ref"]:
        """Unpacks a tuple of outputs: ``boxes, scores = detect(page)``."""
        if self.field is not None or self.outputs.kind is not OutputKind.TUPLE:
            raise TypeError(f"a Ref cannot be iterated over yet, only a tuple of outputs can be unpacked; {_INSTEAD}")
        return (self[at] for at in range(len(self.outputs.tensors)))

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
