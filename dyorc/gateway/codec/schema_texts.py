"""Which values that are written as JSON may be a bare text, by their JSON Schema: forms and queries send texts alone."""

from collections.abc import Mapping
from typing import Any

_FILE = "contentEncoding"
_UNIONS = ("anyOf", "oneOf", "allOf")


def takes_text(schema: Mapping[str, Any]) -> bool:
    """Returns whether a value may be a text, alone or among other types: ``str | None``, a date, an enumeration of texts.

    Args:
        schema: As pydantic writes it. One without a type, as of ``Any``, does not say so.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    pending, seen = [schema], set[str]()
    while pending:
        part = pending.pop()
        if (part.get("type") == "string" and _FILE not in part) or _names_text(part):
            return True
        for union in _UNIONS:
            pending += part.get(union, ())
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name in definitions and name not in seen:
            seen.add(name)
            pending.append(definitions[name])
    return False


def _names_text(part: Mapping[str, Any]) -> bool:
    return any(isinstance(value, str) for value in (*part.get("enum", ()), part.get("const")))
