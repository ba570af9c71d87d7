"""How much lies in the containers of this process's objects, by class and attribute: what grows there without end is a leak."""

import gc
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sized
from typing import Any

_CONTAINERS = (dict, list, set, deque, bytearray)
_MAX_DEPTH = 3


def container_sizes(package: str = "dyorc") -> dict[str, int]:
    """Returns how many entries the containers of all instances of a package's classes have, by class and attribute.

    Containers in containers count with the attribute that holds them. Objects that `gc.freeze` has put aside
    are not seen. Cost: looks at every object of the process.
    """
    sizes: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        if not _is_of(kind, package) or isinstance(thing, type):
            continue
        for name, value in _attributes(thing):
            if isinstance(value, _CONTAINERS):
                sizes[f"{kind.__module__}.{kind.__qualname__}.{name}"] += _entries(value, _MAX_DEPTH)
    return dict(sizes)


def instance_counts(package: str = "dyorc") -> dict[str, int]:
    """Returns how many instances of a package's classes there are, by class."""
    counts: defaultdict[str, int] = defaultdict(int)
    for thing in gc.get_objects():
        kind = type(thing)
        if _is_of(kind, package) and not isinstance(thing, type):
            counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
    return dict(counts)


def _is_of(kind: type, package: str) -> bool:
    name: Any = kind.__module__  # of some classes it is a descriptor
    return isinstance(name, str) and name.partition(".")[0] == package


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(thing, "__dict__", {}).items()
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            try:
                yield name, getattr(thing, private)
            except AttributeError:
                continue


def _entries(container: Sized, depth: int) -> int:
    number = len(container)
    if depth and not isinstance(container, bytearray):
        values: Any = container.values() if isinstance(container, dict) else container
        number += sum(_entries(value, depth - 1) for value in list(values) if isinstance(value, _CONTAINERS))
    return number
