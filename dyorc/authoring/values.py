"""Structured values: parameters and outputs that are no tensors, such as texts, dicts, dataclasses, pydantic models and images.

To everything but the user's code, a value is a tensor: BYTES of rank 0, with the value as UTF-8 text, as JSON, or as the bytes of
a file. So it takes every way that tensors take. pydantic checks, reads and writes JSON; it is imported where a value is declared.
"""

import io
import re
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any, Self, get_type_hints

from typing_extensions import is_typeddict

from dyorc.authoring.resident import ResidentMark
from dyorc.core.image_files import encode_image
from dyorc.core.nested_values import leaves, odd_numbers
from dyorc.errors import DefinitionError, InvalidInputError

MAX_IMAGE_PIXELS = 64 * 1024 * 1024
"""Images of requests with more pixels are refused before they are decoded, unless the settings say otherwise: a file of a few
kilobytes can announce any number."""

_MAX_SHOWN = 200
_MAX_PROBLEMS = 3
_MAX_PARTS = 10_000


class ContentKind(StrEnum):
    """What the bytes of a structured value are."""

    TEXT = "text"
    JSON = "json"
    BYTES = "bytes"
    IMAGE = "image"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class File:
    """The bytes of a file, as a client sent them."""

    data: bytes

    @property
    def content_type(self) -> str:
        """Its media type, by its first bytes; ``application/octet-stream`` if these say nothing."""
        return content_type_of(self.data)


_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)


def content_type_of(data: bytes) -> str:
    """Returns the media type of a file, by its first bytes."""
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(data[8:12], "application/octet-stream")
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), "application/octet-stream")


@dataclass(frozen=True, eq=False)
class ValueType:
    """The type of a structured value, where the user's code is at hand.

    Attributes:
        annotation: As the user wrote it.
    """

    kind: ContentKind
    annotation: Any

    @classmethod
    def of(cls, annotation: Any, owner: str, name: str) -> Self | None:
        """Returns the type that an annotation means; None if it is no structured value.

        Raises:
            DefinitionError: If it has tensors inside.
        """
        if (kind := _kind_of(annotation)) is not None:
            return cls(kind, annotation)
        if annotation in (None, type(None)) or has_tensors(annotation):
            return None
        by_json = cls(ContentKind.JSON, annotation)
        try:
            schema = by_json.adapter.core_schema
        except Exception as error:
            if type(error).__name__ == "PydanticSchemaGenerationError":
                return None
            raise DefinitionError(
                f"{owner}: {name!r} is annotated {annotation!r}, which pydantic cannot read: {error}"
            ) from error
        if lost := _lost_parts(schema):
            raise DefinitionError(f"{owner}: {name!r} is annotated {annotation!r}: {lost}, and programs get values as JSON")
        return by_json

    @cached_property
    def adapter(self) -> Any:
        """What checks, reads and writes its JSON."""
        from pydantic import PydanticUserError, TypeAdapter  # here, since most programs declare tensors only

        try:
            return TypeAdapter(self.annotation, config=_JSON_CONFIG)
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
        return TypeAdapter(self.annotation)  # a class, whose configuration is its own

    @cached_property
    def _writing(self) -> dict[str, bool]:
        """How pydantic writes it so that it can read it again, and else as clients know it: with aliases and computed fields."""
        is_strict = any(
            part.get("type") == "json" or part.get("extra_fields_behavior") == "forbid" or part.get("extra_behavior") == "forbid"
            for part in _parts_of(self.adapter.core_schema)
        )
        try:
            read, written = (_properties(self.adapter.json_schema(mode=mode)) for mode in ("validation", "serialization"))
        except Exception:  # there is no JSON Schema
            return {"by_alias": False, "round_trip": is_strict}
        return {"by_alias": read <= written, "round_trip": is_strict}

    @cached_property
    def is_scalar(self) -> bool:
        """Whether it is a bool, int, float or str, which a request may pass as a parameter."""
        return self.annotation in (bool, int, float, str)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema.

        Raises:
            DefinitionError: If there is none, as for a field of a class that pydantic does not know.
        """
        match self.kind:
            case ContentKind.JSON | ContentKind.TEXT:
                try:
                    return self.adapter.json_schema()
                except Exception as error:
                    reason = str(error).partition("\n")[0]
                    raise DefinitionError(
                        f"no JSON Schema can be made of {self.annotation!r}, and clients need it: {reason}; give the "
                        f"field a type that JSON has, or pydantic's WithJsonSchema"
                    ) from error
            case _:
                return {"type": "string", "contentEncoding": "base64"}

    def encode(self, value: Any, label: str) -> bytes:
        """Returns a value as bytes.

        Raises:
            InvalidInputError: If it is of another type; names `label`, and the field.
        """
        match self.kind:
            case ContentKind.TEXT:
                if isinstance(value, str):
                    return _utf8(value, label)
            case ContentKind.BYTES:
                if isinstance(value, bytes | bytearray | memoryview):
                    return bytes(value)
            case ContentKind.FILE:
                if isinstance(value, File):
                    return value.data
                if isinstance(value, bytes | bytearray | memoryview):
                    return bytes(value)
            case ContentKind.IMAGE:
                if isinstance(value, bytes | bytearray | memoryview):
                    return bytes(value)
                if hasattr(value, "save") and hasattr(value, "getbbox"):
                    return encode_image(value, label)
            case ContentKind.JSON:
                return self._as_json(value, label)
        raise InvalidInputError(f"{label} is {type(value).__name__} {_short(value)}, expected {self.name}")

    def _as_json(self, value: Any, label: str) -> bytes:
        checked = self._validated(lambda: self.adapter.validate_python(value, by_alias=True, by_name=True), label)
        try:
            raw = self._written(checked)
            is_lossy = self._loses_numbers(checked, raw)
        except Exception as error:
            why = advice_on(checked) or f": {error}"
            raise InvalidInputError(f"{label}: {type(value).__name__} cannot be written as JSON{why}") from None
        if is_lossy:
            raise _lost_numbers(value, label)
        return raw

    def _from_json(self, raw: bytes, label: str) -> Any:
        value = self._read(raw, label)
        if self._may_lose_numbers and _may_be_odd(raw) and self._loses_numbers(value, self._written(value)):
            raise _lost_numbers(value, label)
        return value

    def _written(self, checked: Any) -> bytes:
        return self.adapter.dump_json(checked, fallback=_plain, **self._writing)

    def _read(self, raw: bytes, label: str) -> Any:
        return self._validated(lambda: self.adapter.validate_json(raw, by_alias=True, by_name=True), label)

    @cached_property
    def _may_lose_numbers(self) -> bool:
        """Whether it has numbers and a class, whose own configuration says how they are written: by default, NaN as null."""
        kinds = {str(part.get("type")) for part in _parts_of(self.adapter.core_schema)}
        return not kinds.isdisjoint({"model", "dataclass", "typed-dict"}) and not kinds.isdisjoint({"float", "any"})

    def _loses_numbers(self, checked: Any, raw: bytes) -> bool:
        """Returns whether numbers in a value are NaN or infinite and something else once it is written and read again."""
        num_odd = self._num_odd(checked) if b"null" in raw else 0
        return num_odd > 0 and num_odd != self._num_odd_in(raw)

    def _num_odd_in(self, raw: bytes) -> int:
        try:
            return self._num_odd(self._read(raw, ""))
        except InvalidInputError:  # null where only a number is allowed
            return 0

    def _num_odd(self, value: Any) -> int:
        """Returns how many numbers in a value are NaN or infinite."""
        return sum(1 for _ in odd_numbers(self.adapter.dump_python(value, fallback=_plain)))

    def decode(self, raw: bytes, label: str) -> Any:
        """Returns the value that bytes hold. It is a new one each time, so it may be changed.

        Raises:
            InvalidInputError: If they do not hold one; names `label`, and the field.
        """
        match self.kind:
            case ContentKind.TEXT:
                try:
                    return raw.decode()
                except UnicodeDecodeError as error:
                    raise InvalidInputError(f"{label} is not UTF-8: {error}") from None
            case ContentKind.BYTES:
                return raw
            case ContentKind.FILE:
                return File(raw)
            case ContentKind.IMAGE:
                return open_image(raw, label)
            case ContentKind.JSON:
                return self._from_json(raw, label)

    def _validated(self, validate: Callable[[], Any], label: str) -> Any:
        from pydantic import ValidationError

        try:
            return validate()
        except ValidationError as error:
            raise InvalidInputError(_problems(error, label)) from None
        except RecursionError:
            raise InvalidInputError(f"{label} is nested too deeply") from None

    @property
    def name(self) -> str:
        """The type as messages show it."""
        annotation = self.annotation
        return annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__origin__") else repr(annotation)


_JSON_CONFIG: Any = {"ser_json_inf_nan": "strings", "ser_json_bytes": "base64", "val_json_bytes": "base64"}
"""JSON has neither NaN nor bytes."""


_LONG_EXPONENT = re.compile(rb"[eE]\+?\d{3}")


def _may_be_odd(raw: bytes) -> bool:
    """Returns whether JSON may hold what is read as NaN or infinity: a text such as "NaN", or a number such as 1e999."""
    lower = raw.lower()
    return b"nan" in lower or b"inf" in lower or _LONG_EXPONENT.search(raw) is not None


def _lost_numbers(value: Any, label: str) -> InvalidInputError:
    return InvalidInputError(
        f"{label}: {type(value).__name__} {_short(value)} holds NaN or infinity, which JSON does not have; give its class the "
        f"pydantic configuration ser_json_inf_nan='strings'"
    )


def _parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yields the nested parts of pydantic's schema of a type."""
    seen: set[int] = set()
    pending = [schema]
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            yield part
            pending.extend(part.values())
        elif isinstance(part, list | tuple):
            pending.extend(part)


def has_base64(schema: Any) -> bool:
    """Returns whether a JSON Schema has bytes somewhere, which its JSON has as base64."""
    return any(part.get("format") == "base64url" for part in _parts_of(schema))


def _lost_parts(schema: Any) -> str:
    """Returns what pydantic leaves out of the JSON of a type that it can read; empty if nothing."""
    for part in _parts_of(schema):
        if part.get("serialization_exclude"):
            return "a field with exclude=True is not in its JSON"
        if getattr(part.get("cls"), "__name__", "") in ("SecretStr", "SecretBytes"):
            return f"a {part['cls'].__name__} is written as stars"
    return ""


def _properties(schema: Any) -> set[tuple[str, str]]:
    """Returns the names of fields in a JSON Schema, each with the title of its object."""
    return {(part.get("title", ""), name) for part in _parts_of(schema) for name in part.get("properties", ())}


def _kind_of(annotation: Any) -> ContentKind | None:
    if annotation is str:
        return ContentKind.TEXT
    if annotation is bytes:
        return ContentKind.BYTES
    if annotation is File:
        return ContentKind.FILE
    pillow = sys.modules.get("PIL.Image")  # an annotation can only name what was imported
    if pillow is not None and annotation is pillow.Image:
        return ContentKind.IMAGE
    return None


def has_tensors(annotation: Any) -> bool:
    """Returns whether an annotation is a tensor, or a dataclass or TypedDict that has one among its fields."""
    if hasattr(annotation, "dim_str") or any(isinstance(mark, ResidentMark) for mark in getattr(annotation, "__metadata__", ())):
        return True
    if hasattr(annotation, "__metadata__"):  # Annotated
        return has_tensors(annotation.__origin__)
    if isinstance(annotation, type) and (is_dataclass(annotation) or is_typeddict(annotation)):
        hints = get_type_hints(annotation, include_extras=True)
        names = [field.name for field in fields(annotation)] if is_dataclass(annotation) else hints
        return any(has_tensors(hints[name]) for name in names)
    return False


def open_image(raw: bytes, label: str) -> Any:
    """Returns the decoded image of a file. Its pixels were counted when its request came (`check_image`).

    Raises:
        InvalidInputError: If it is no image, or is damaged.
    """
    image = _image_of(raw, label)
    try:
        image.load()
    except Exception as error:  # each of Pillow's readers raises its own
        raise InvalidInputError(f"{label} is a damaged image: {error}") from None
    return image


def check_image(raw: bytes, label: str, max_pixels: int) -> None:
    """Checks the head of an image's file; no pixel is decoded.

    Raises:
        InvalidInputError: If it is no image, or has too many pixels.
    """
    image = _image_of(raw, label)
    if image.width * image.height > max_pixels:
        raise InvalidInputError(
            f"{label} is an image of {image.width} x {image.height} pixels, expected at most {max_pixels} in all"
        )


def _image_of(raw: bytes, label: str) -> Any:
    """Returns the image of a file whose pixels have not been decoded."""
    from PIL import Image

    try:
        Image.init()  # once; else the formats are not known yet
        return Image.open(io.BytesIO(raw), formats=[name for name in _IMAGE_FORMATS if name in Image.OPEN])
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # the latter where warnings are errors
        raise InvalidInputError(f"{label} is an image of too many pixels: {error}") from None
    except Exception:
        start = bytes(raw[:8])
        raise InvalidInputError(f"{label} is no image: {len(raw)} bytes, which begin with {start!r}") from None


_IMAGE_FORMATS = ("AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""What Pillow may read of a client. It knows others, such as EPS, for which it runs another program."""


def _utf8(text: str, label: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise InvalidInputError(f"{label} is no valid text: {error}") from None


def _plain(value: Any) -> Any:
    """Returns what JSON can carry of a value that pydantic does not know: NumPy's numbers and arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON{_advice_on_part(value)}")


def _problems(error: Any, label: str) -> str:
    """Returns what pydantic found, each with the path of its field."""
    problems = error.errors(include_url=False, include_context=False)
    if "recursion limit" in problems[0]["msg"]:
        return f"{label} is nested too deeply"
    shown = [
        f"{''.join(f'{part}.' for part in problem['loc'])[:-1]}{': ' if problem['loc'] else ''}{problem['msg']}, got "
        f"{_short(problem['input'])}{advice_on(problem['input'])}"
        for problem in problems[:_MAX_PROBLEMS]
    ]
    more = f" (and {len(problems) - _MAX_PROBLEMS} more)" if len(problems) > _MAX_PROBLEMS else ""
    return f"{label}: {'; '.join(shown)}{more}"


def advice_on(value: Any) -> str:
    """Returns what to do with a call's result that nobody waited for, or with a value that holds some; empty for others."""
    if isinstance(value, Awaitable):
        return f"; {_COLLECT}" if isinstance(value, AsyncIterable) else "; `await` it first"
    pending = next((part for part in islice(leaves(value), _MAX_PARTS) if isinstance(part, Awaitable)), None)
    return "" if pending is None else f": a {type(pending).__name__} is in it{_advice_on_part(pending)}"


_COLLECT = "read it by `await dyorc.collect(stream)`"


def _advice_on_part(value: Any) -> str:
    if isinstance(value, AsyncIterable):
        return f"; {_COLLECT}"
    return "; `await` each, or several Refs at once by `await dyorc.gather(*refs)`" if isinstance(value, Awaitable) else ""


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
