"""Reads tables of a TOML file key by key, with errors that say in which line what was expected."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

from dyorc.errors import PlanError
from dyorc.planner.cluster.value_ranges import MAX_BYTES, RATES, SECONDS
from dyorc.system.toml_lines import KeyPath

_REQUIRED = object()


class Table:
    """A TOML table; `end` refuses keys that were not read."""

    def __init__(self, content: Mapping[str, Any], path: KeyPath, lines: Mapping[KeyPath, int], where: str) -> None:
        self._content = content
        self._path = path
        self._lines = lines
        self._where = where
        self._taken: list[str] = []

    def error(self, key: str, expected: str) -> PlanError:
        """Returns an error about a key that is there."""
        return PlanError(f"{self._place(key)}: {self._named(key)} must be {expected}")

    def missing(self, key: str, expected: str) -> PlanError:
        """Returns an error about a key that is not there."""
        return PlanError(f"{self._place('')}: {self._named(key)} is missing: {expected}")

    def take(self, key: str, default: object = _REQUIRED, expected: str = "it must be given") -> Any:
        """Returns the value of a key, of any type."""
        self._taken.append(key)
        if key in self._content:
            return self._content[key]
        if default is _REQUIRED:
            raise self.missing(key, expected)
        return default

    def text(self, key: str, default: object = _REQUIRED) -> str:
        """Returns a text."""
        value = self.take(key, default, "a text")
        if not isinstance(value, str) or not (value or default == ""):
            raise self.error(key, f"a text, and not {value!r}")
        return value

    def choice(self, key: str, choices: Sequence[str], default: object = _REQUIRED) -> str:
        """Returns one of several texts."""
        value = self.take(key, default, f"one of {', '.join(choices)}")
        if value not in choices:
            raise self.error(key, f"one of {', '.join(choices)}, and not {value!r}")
        return value

    def truth(self, key: str, default: object = _REQUIRED) -> bool:
        """Returns true or false."""
        value = self.take(key, default, "true or false")
        if not isinstance(value, bool):
            raise self.error(key, f"true or false, and not {value!r}")
        return value

    def whole(self, key: str, default: object = _REQUIRED, *, most: int = MAX_BYTES) -> int:
        """Returns a whole number above 0, which is not more than the most it may be."""
        value = self.take(key, default, "a whole number above 0")
        if isinstance(value, float) and isfinite(value) and value.is_integer():  # 16e9
            value = int(value)
        if type(value) is not int or value <= 0:
            raise self.error(key, f"a whole number above 0, and not {value!r}")
        if value > most:
            raise self.error(key, f"a whole number, {most:,} at most, and not {_short(value)}")
        return value

    def rate(self, key: str, default: object = _REQUIRED) -> float:
        """Returns what is done in a second: a number above 0 that a machine can reach."""
        return self._number(key, default, "a number above 0", RATES, is_zero_right=False)

    def seconds(self, key: str, default: object = _REQUIRED) -> float:
        """Returns a time: a number, 0 or above, that is not endless."""
        return self._number(key, default, "a number, 0 or above", SECONDS, is_zero_right=True)

    def table(self, key: str) -> "Table | None":
        """Returns a table within this one, or None."""
        value = self.take(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(key, f"a table, and not {value!r}")
        return Table(value, (*self._path, key), self._lines, self._where)

    def tables(self, key: str, *, at_least: int = 0) -> list["Table"]:
        """Returns the tables of an array."""
        value = self.take(key, [])
        header = ".".join([*(str(part) for part in self._path if isinstance(part, str)), key])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.error(key, f"tables under [[{header}]], and not {value!r}")
        if len(value) < at_least:
            raise self.missing(key, f"at least {at_least} table [[{header}]]")
        return [Table(part, (*self._path, key, index), self._lines, self._where) for index, part in enumerate(value)]

    def end(self) -> None:
        """Refuses keys that were not read."""
        for key in self._content:
            if key not in self._taken:
                raise PlanError(f"{self._place(key)}: {self._named(key)} is unknown; known are {', '.join(sorted(self._taken))}")

    def _number(self, key: str, default: object, expected: str, limits: tuple[float, float], *, is_zero_right: bool) -> float:
        value = self.take(key, default, expected)
        if value is default:
            return float(value)
        if type(value) not in (int, float) or not value >= 0 or (value == 0 and not is_zero_right) or value == inf:
            raise self.error(key, f"{expected}, and not {_short(value)}")
        least, most = limits
        if not least <= value <= most:
            raise self.error(key, f"a number from {least:g} to {most:g}, and not {_short(value)}")
        return float(value)

    def _place(self, key: str) -> str:
        path: KeyPath = (*self._path, key) if key else self._path
        while path and path not in self._lines:
            path = path[:-1]
        return f"{self._where}, line {self._lines.get(path, 1)}"

    def _named(self, key: str) -> str:
        path = [*self._path, key]
        return ".".join(str(part) for part in path if isinstance(part, str)) + self._which()

    def _which(self) -> str:
        name = self._content.get("name")
        return f" ({name})" if isinstance(name, str) else ""


def _short(value: object) -> str:
    """A value as text for an error, without thousands of digits."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else f"a number of {value.bit_length()} binary digits"
    return text if len(text) <= 80 else f"{text[:80]}..."
