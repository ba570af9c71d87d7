"""What the settings are called, and what is known of each: for files, for the environment and for people."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dyorc.config import ProgramOverrides, Settings
from dyorc.system.toml_lines import KeyPath

PROGRAMS = "programs"
_NUM_SUGGESTIONS = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, or a section of them."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def is_section(self) -> bool:
        """Whether it consists of others."""
        return isinstance(self.field.default, BaseModel)

    @property
    def is_secret(self) -> bool:
        """Whether its value must not be shown."""
        return bool(_extra(self.field).get("writeOnly"))

    @property
    def is_file(self) -> bool:
        """Whether it names a file or folder."""
        return _extra(self.field).get("format") == "path"


def settings_of(section: type[BaseModel] = Settings, above: tuple[str, ...] = ()) -> Iterator[Setting]:
    """Yields all settings and sections, each section before what it consists of."""
    for name, field in section.model_fields.items():
        setting = Setting((*above, name), field)
        yield setting
        if setting.is_section:
            yield from settings_of(type(field.default), setting.path)


SETTINGS = {setting.path: setting for setting in settings_of()}


def value_of(settings: Settings, path: KeyPath) -> Any:
    """Returns the value of a setting."""
    value: Any = settings
    for key in path:
        value = getattr(value, str(key))
    return value


def dotted(path: KeyPath) -> str:
    """Returns a path as people write it: ``gateway.port``."""
    return ".".join(map(str, path))


def is_secret(path: KeyPath) -> bool:
    """Returns whether the value at a path must not be shown: it is a secret, contains one, or is unknown."""
    names = tuple(map(str, path))
    if names[:1] == (PROGRAMS,):
        return False
    related = [setting for place, setting in SETTINGS.items() if place[: len(names)] == names or place == names[: len(place)]]
    return not related or any(setting.is_secret for setting in related)


def suggestion(path: KeyPath) -> str:
    """Returns what was probably meant by an unknown key, in parentheses with a space before them; or nothing."""
    *above, name = map(str, path)
    siblings = _siblings(tuple(above))
    candidates = [dotted(place) for place in SETTINGS if place[-1] == name]
    if not candidates and (close := get_close_matches(name, siblings, n=1)):
        candidates = [dotted((*above, *close))]
    if not candidates:
        close = get_close_matches(name, _all_names(), n=1)
        candidates = [dotted(place) for place in SETTINGS if place[-1] in close]
    return f" (did you mean {' or '.join(candidates[:_NUM_SUGGESTIONS])}?)" if candidates else ""


def _siblings(above: tuple[str, ...]) -> Sequence[str]:
    if above[:1] == (PROGRAMS,):
        return list(ProgramOverrides.model_fields)
    return [place[-1] for place in SETTINGS if place[:-1] == above]


def _all_names() -> list[str]:
    return sorted({place[-1] for place in SETTINGS})


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}
