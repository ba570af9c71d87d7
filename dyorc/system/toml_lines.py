"""Finds the line of each key in a TOML file, which `tomllib` does not report."""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys that lead to a value, and places in arrays."""

_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|#[^\n]*|\n|[\[\]{},=]|[^\s"'#\[\]{},=]+''',
    re.DOTALL,
)


def lines_of(text: str) -> Mapping[KeyPath, int]:
    """Returns the line of each table, key and element of an array. An array of tables is where its first is.

    Args:
        text: Valid TOML.

    Raises:
        ValueError: If it is nested too deeply.
    """
    try:
        return _Reader(text).read()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class _Reader:
    """Reads tokens. What comes is known to be valid, so it needs to understand only where values begin and end."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ("\n", 0)]
        self._next = 0
        self._lines: dict[KeyPath, int] = {}
        self._counts: dict[KeyPath, int] = {}  # of the tables in each array of tables so far

    def read(self) -> Mapping[KeyPath, int]:
        table: KeyPath = ()
        while self._next < len(self._tokens):
            token, line = self._tokens[self._next]
            if token == "[":
                table = self._header(line)
                self._lines.setdefault(table, line)
            elif token in ("\n", "]"):
                self._next += 1
            else:
                self._pair(table)
        return self._lines

    def _header(self, line: int) -> KeyPath:
        self._next += 1
        if is_one_of_several := self._peek() == "[":
            self._next += 1
        path: KeyPath = ()
        *outer, last = self._key("]")
        for key in outer:
            path = (*path, key)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        path = (*path, last)
        if is_one_of_several:
            self._lines.setdefault(path, line)
            self._counts[path] = self._counts.get(path, 0) + 1
            path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._tokens[self._next][1]
        path = table
        for key in self._key("="):
            path += (key,)
            self._lines.setdefault(path, line)
        self._next += 1
        self._value(path)

    def _key(self, end: str) -> list[str]:
        """Returns the parts of a key that may be dotted and quoted."""
        parts = ""
        while self._peek() != end:
            parts += self._peek()
            self._next += 1
        value = tomllib.loads(f"{parts} = 0")
        keys: list[str] = []
        while isinstance(value, dict):
            ((key, value),) = value.items()
            keys.append(key)
        return keys

    def _value(self, path: KeyPath) -> None:
        token = self._peek()
        if token == "[":
            self._next += 1
            self._elements(path)
        elif token == "{":
            self._next += 1
            while self._skip() != "}":
                self._pair(path)
            self._next += 1
        else:
            while self._peek() not in ("\n", ",", "]", "}"):
                self._next += 1  # a date and a time may be apart

    def _elements(self, path: KeyPath) -> None:
        for number in itertools.count():
            if self._skip() == "]":
                break
            self._lines[*path, number] = self._tokens[self._next][1]
            self._value((*path, number))
        self._next += 1

    def _skip(self) -> str:
        """Goes on to what is neither a comma nor the end of a line, and returns it."""
        while self._peek() in ("\n", ","):
            self._next += 1
        return self._peek()

    def _peek(self) -> str:
        return self._tokens[self._next][0]


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, end = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        if not match[0].startswith("#"):
            yield match[0], line
