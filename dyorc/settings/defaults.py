"""A complete ``dyorc.toml`` with every default, and what each setting is for."""

from collections.abc import Iterator

from pydantic import BaseModel

from dyorc.config import ProgramOverrides, Settings
from dyorc.settings.descriptions import describe
from dyorc.settings.setting_names import PROGRAMS
from dyorc.settings.toml_text import comment, value_text

_HEAD = """\
#:schema ./dyorc.schema.json
# For editors: `dyorc config schema > dyorc.schema.json`.
# Flags and environment variables (DYORC_GATEWAY__PORT) come before this file.
# Relative paths are relative to its folder. Times are in seconds, sizes in bytes. A key without a value has no default.
"""


def defaults() -> str:
    """Returns the text of the file."""
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
