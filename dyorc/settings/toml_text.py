"""Writes settings as TOML, for people: with comments."""

import json
import re
import textwrap
from typing import Any

from pydantic import BaseModel

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 110


def value_text(value: Any) -> str:
    """Returns a value as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(value_text, value))}]"
        case dict():
            pairs = ", ".join(f"{key_text(key)} = {value_text(element)}" for key, element in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case BaseModel():
            return value_text({name: element for name, element in value if element is not None})
        case _:
            return str(value)


def key_text(key: str) -> str:
    """Returns a key as TOML."""
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def comment(text: str | None) -> list[str]:
    """Returns a docstring as lines of comments."""
    plain = " ".join((text or "").replace("``", "`").split())
    return [f"# {line}" for line in textwrap.wrap(plain, _WIDTH, break_long_words=False, break_on_hyphens=False)]
