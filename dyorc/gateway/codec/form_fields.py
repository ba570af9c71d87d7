"""Forms in the bodies of requests: ``multipart/form-data`` (RFC 7578), read by python-multipart."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from dyorc.errors import InvalidInputError

_MAX_FIELDS = 1000

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
"""It writes a warning for each malformed form, which any client could fill a disk with. The answer says the same."""


@dataclass(frozen=True, slots=True)
class FormField:
    """What a form or a query has for a field: a text or the bytes of a file, which only its parameter's type tells apart."""

    data: bytes


class _Fields:
    """Takes what the parser finds."""

    def __init__(self) -> None:
        self.fields: dict[str, FormField] = {}
        self.is_ended = False
        self._data: list[bytes] = []
        self._header: list[bytes] = []
        self._value: list[bytes] = []
        self._name: str | None = None

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._adder("_header"),
            "on_header_value": self._adder("_value"),
            "on_header_end": self._header_ended,
            "on_part_data": self._adder("_data"),
            "on_part_end": self._end,
            "on_end": self._all_ended,
        }

    def _adder(self, pieces: str) -> Callable[[bytes, int, int], None]:
        def add(data: bytes, start: int, end: int) -> None:
            getattr(self, pieces).append(data[start:end])

        return add

    def _begin(self) -> None:
        self._data, self._name = [], None

    def _header_ended(self) -> None:
        if b"".join(self._header).lower() == b"content-disposition":
            _, options = parse_options_header(b"".join(self._value))
            if (name := options.get(b"name")) is not None:
                self._name = name.decode("utf-8", "replace")
        self._header, self._value = [], []

    def _end(self) -> None:
        if self._name is None:
            raise InvalidInputError("a part of the form has no name; expected Content-Disposition: form-data; name=...")
        if self._name in self.fields:
            raise InvalidInputError(f"the form has two fields named {self._name!r}")
        if len(self.fields) == _MAX_FIELDS:
            raise InvalidInputError(f"the form has more than {_MAX_FIELDS} fields")
        self.fields[self._name] = FormField(b"".join(self._data))

    def _all_ended(self) -> None:
        self.is_ended = True


def read_form(body: bytes, content_type: str) -> dict[str, FormField]:
    """Returns the fields of a form, by name.

    Raises:
        InvalidInputError: If it is malformed, does not end, or has a field twice.
    """
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise InvalidInputError("Content-Type is multipart/form-data without a boundary")
    read = _Fields()
    try:
        parser = MultipartParser(boundary, read.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise InvalidInputError(f"the form is malformed: {error}") from None
    if not read.is_ended:
        raise InvalidInputError(f"the form does not end: its last boundary is missing after {len(body)} bytes")
    return read.fields
