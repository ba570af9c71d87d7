"""Settings as text: a complete ``dyorc.toml``, its JSON schema, and the settings in force with their sources."""

import ast
import functools
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from dyorc import config
from dyorc.config import ProgramOverrides, Settings
from dyorc.settings.setting_names import PROGRAMS, SETTINGS, dotted, value_of
from dyorc.settings.settings_reader import LoadedSettings

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


@functools.cache
def describe() -> None:
    """Gives the settings' fields their docstrings as descriptions.

    pydantic can do that when it makes the classes (`use_attribute_docstrings`). It takes two thirds of the time of importing
    them then, in every process, and few need it.
    """
    for node in ast.parse(inspect.getsource(config)).body:
        model = getattr(config, node.name) if isinstance(node, ast.ClassDef) else None
        if isinstance(node, ast.ClassDef) and isinstance(model, type) and issubclass(model, BaseModel):
            for above, below in pairwise(node.body):
                match above, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        model.model_fields[name].description = inspect.cleandoc(text)
                    case _:
                        pass
            model.model_rebuild(force=True)


def schema() -> str:
    """Returns the JSON schema of ``dyorc.toml``, for editors; always the same text for the same settings."""
    describe()
    content = Settings.model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    content["title"] = "dyorc.toml"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


_HEAD = """\
#:schema ./dyorc.schema.json
# For editors: `dyorc config schema > dyorc.schema.json`.
# Flags and environment variables (DYORC_GATEWAY__PORT) come before this file.
# Relative paths are relative to its folder. Times are in seconds, sizes in bytes. A key without a value has no default.
"""


def defaults() -> str:
    """Returns a complete ``dyorc.toml`` with every default, and a comment for each setting."""
    describe()
    return "\n".join([_HEAD, *_section(Settings, ()), *_programs()]).rstrip() + "\n"


def _section(section: type[BaseModel], above: tuple[str, ...]) -> Iterator[str]:
    """Yields the lines of a section: its own values, then the sections in it, as TOML wants them."""
    below: list[tuple[str, BaseModel]] = []
    for name, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            below.append((name, field.default))
        elif (*above, name) != (PROGRAMS,):
            yield from comment(field.description)
            yield f"# {name} =" if field.default is None else f"{name} = {value_text(field.default)}"
    for name, default in below:
        path = (*above, name)
        yield ""
        yield from comment(type(default).__doc__)
        yield f"[{'.'.join(path)}]"
        yield from _section(type(default), path)


def _programs() -> Iterator[str]:
    yield ""
    yield from comment(ProgramOverrides.__doc__)
    yield f"# [{PROGRAMS}.NAME]"
    for name, field in ProgramOverrides.model_fields.items():
        yield from comment(field.description)
        yield f"# {name} ="


_MAX_COLUMN = 60


def print_in_force(reading: LoadedSettings, *, is_all: bool = True) -> None:
    """Prints a line for each setting, as TOML with dotted keys; secrets are not shown.

    Args:
        is_all: Whether to print defaults as well.
    """
    lines = [(text, place) for text, place in _lines(reading) if is_all or place != "default"]
    column = min(max((len(text) for text, _ in lines), default=0), _MAX_COLUMN)
    for text, place in lines:
        print(f"{text:{column}}  # {place}")


def _lines(reading: LoadedSettings) -> Iterator[tuple[str, str]]:
    for path, setting in SETTINGS.items():
        if setting.is_section or path == (PROGRAMS,):
            continue
        yield _text(dotted(path), value_of(reading.settings, path), is_secret=setting.is_secret), reading.place(path)
    for name, overrides in reading.settings.programs.items():
        for key, value in overrides.changes.items():
            yield _text(f"{PROGRAMS}.{key_text(name)}.{key}", value), reading.place((PROGRAMS, name, key))


def _text(key: str, value: Any, *, is_secret: bool = False) -> str:
    if value is None:
        return f"# {key} ="
    return f"{key} = {value_text('***' if is_secret and value else value)}"
