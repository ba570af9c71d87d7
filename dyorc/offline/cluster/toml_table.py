"""Reads tables of a TOML file key by key, with errors that say in which line what was expected."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

from dyorc.errors import PlanError
from dyorc.offline.cluster.limits import MAX_BYTES, RATES, SECONDS
from dyorc.toml_lines import Path

_REQUIRED = object()


class Table:
    """One table; `end` refuses keys that nobody has asked for."""

    def __init__(self, content: Mapping[str, Any], path: Path, lines: Mapping[Path, int], where: str) -> None:
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
        """Returns the value of a key, whatever its type."""
        self._taken.append(key)
        if key in self._content:
            return self._content[key]
        if default is _REQUIRED:
            raise self.missing(key, expected)
        return default

    def text(self, key: str, default: object = _REQUIRED) -> str:
        """Returns a text."""
        found = self.take(key, default, "a text")
        if not isinstance(found, str) or not (found or default == ""):
            raise self.error(key, f"a text, and not {found!r}")
        return found

    def choice(self, key: str, choices: Sequence[str], default: object = _REQUIRED) -> str:
        """Returns one of several texts."""
        found = self.take(key, default, f"one of {', '.join(choices)}")
        if found not in choices:
            raise self.error(key, f"one of {', '.join(choices)}, and not {found!r}")
        return found

    def truth(self, key: str, default: object = _REQUIRED) -> bool:
        """Returns true or false."""
        found = self.take(key, default, "true or false")
        if not isinstance(found, bool):
            raise self.error(key, f"true or false, and not {found!r}")
        return found

    def whole(self, key: str, default: object = _REQUIRED, *, most: int = MAX_BYTES) -> int:
        """Returns a whole number above 0, which is not more than the most it may be."""
        found = self.take(key, default, "a whole number above 0")
        if isinstance(found, float) and isfinite(found) and found.is_integer():  # 16e9
            found = int(found)
        if type(found) is not int or found <= 0:
            raise self.error(key, f"a whole number above 0, and not {found!r}")
        if found > most:
            raise self.error(key, f"a whole number, {most:,} at most, and not {_short(found)}")
        return found

    def rate(self, key: str, default: object = _REQUIRED) -> float:
        """Returns what is done in a second: a number above 0 that a machine can reach."""
        return self._number(key, default, "a number above 0", RATES, is_zero_right=False)

    def seconds(self, key: str, default: object = _REQUIRED) -> float:
        """Returns a time: a number, 0 or above, that is not endless."""
        return self._number(key, default, "a number, 0 or above", SECONDS, is_zero_right=True)

    def table(self, key: str) -> "Table | None":
        """Returns a table within this one, or None."""
        found = self.take(key, None)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self.error(key, f"a table, and not {found!r}")
        return Table(found, (*self._path, key), self._lines, self._where)

    def tables(self, key: str, *, at_least: int = 0) -> list["Table"]:
        """Returns the tables of an array."""
        found = self.take(key, [])
        header = ".".join([*(str(part) for part in self._path if isinstance(part, str)), key])
        if not isinstance(found, list) or not all(isinstance(part, dict) for part in found):
            raise self.error(key, f"tables under [[{header}]], and not {found!r}")
        if len(found) < at_least:
            raise self.missing(key, f"at least {at_least} table [[{header}]]")
        return [Table(part, (*self._path, key, index), self._lines, self._where) for index, part in enumerate(found)]

    def end(self) -> None:
        """Refuses what nobody has asked for."""
        for key in self._content:
            if key not in self._taken:
                raise PlanError(f"{self._place(key)}: {self._named(key)} is unknown; known are {', '.join(sorted(self._taken))}")

    def _number(self, key: str, default: object, expected: str, limits: tuple[float, float], *, is_zero_right: bool) -> float:
        found = self.take(key, default, expected)
        if found is default:
            return float(found)
        if type(found) not in (int, float) or not found >= 0 or (found == 0 and not is_zero_right) or found == inf:
            raise self.error(key, f"{expected}, and not {_short(found)}")
        least, most = limits
        if not least <= found <= most:
            raise self.error(key, f"a number from {least:g} to {most:g}, and not {_short(found)}")
        return float(found)

    def _place(self, key: str) -> str:
        path: Path = (*self._path, key) if key else self._path
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
    """A value as an error names it: digits by the thousand help nobody."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else f"a number of {value.bit_length()} binary digits"
    return text if len(text) <= 80 else f"{text[:80]}..."
