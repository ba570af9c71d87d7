"""Settings from one source, and several of them one above the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dyorc.system.toml_lines import Path


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """What one source sets.

    Attributes:
        values: As nested tables.
        place: Returns where the source sets the value at a path, in words for people, e.g. ``dyorc.toml:3``.
    """

    values: Mapping[str, Any]
    place: Callable[[Path], str]

    def has(self, path: Path) -> bool:
        """Returns whether it sets the value at this path, or an element of it."""
        table: Any = self.values
        for key in path:
            if not isinstance(table, Mapping):
                return True
            if key not in table:
                return False
            table = table[key]
        return True


def merge_layers(layers: Iterable[SettingsLayer]) -> dict[str, Any]:
    """Returns the values of all; those of later layers win."""
    values: dict[str, Any] = {}
    for layer in layers:
        values = _merge(values, layer.values)
    return values


def place_of(path: Path, layers: Sequence[SettingsLayer]) -> str | None:
    """Returns where the value at a path comes from; None if it is the default."""
    return next((layer.place(path) for layer in reversed(layers) if path and layer.has(path)), None)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        under = both.get(key)
        both[key] = _merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return both
